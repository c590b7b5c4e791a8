"""Spark against a node with TLS and users: reads, exactly-once writes, streams and jobs, by a
certificate and by a token; and what is said to whoever has neither. Tokens are in nothing that
Spark shows or keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kvorum
import kvorum.spark
from tests.kit.secured import Secured, secured

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

RIGHT = ("certificate", "token", "token_file")
SETTINGS = ("endpoint", "tls_dir", "ca", "token", "token_file")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """ann may read and write two tables, and run Spark's jobs."""
    with secured(tmp_path_factory.mktemp("secured"), 1) as made:
        with kvorum.connect(made.url, tls_dir=made.home / "boss") as db:
            columns = [kvorum.Column("id", "int4", nullable=False), kvorum.Column("v", "text")]
            for name in ("t", "streamed"):
                db.create_table("default", name, columns=columns, primary_key=["id"])
                table = {"kind": "table", "namespace": "default", "name": name}
                db.access("grant.give", {"role": "ann", "actions": ["read", "write"], **table})
            job = {"kind": "procedure type", "name": "kvorum.spark_job"}
            db.access("grant.give", {"role": "ann", "actions": ["submit", "read"], **job})
        yield made


def login(made: Secured, way: str) -> dict[str, str]:
    at = made.home / "ann"
    if way == "certificate":
        return {"tls_dir": str(at)}
    ca = {"ca": str(at / "ca.crt")}
    if way == "token_file":
        return {**ca, "token_file": str(at / "token")}
    return {**ca, "token": (at / "token").read_text()}


def options(made: Secured, way: str, table: str = "t") -> dict[str, str]:
    return {"endpoint": made.join, "table": f"default.{table}", **login(made, way)}


@pytest.mark.parametrize("way", RIGHT)
def test_batches(spark: Any, shop: Secured, way: str) -> None:
    """A task, or the driver, has no login; or a write that is done again is done twice."""
    number = RIGHT.index(way)
    once = {"txnAppId": way, "txnVersion": "1"}
    frame = spark.createDataFrame([(10 * number + i, way) for i in range(4)], "id INT, v STRING")
    for _ in range(2):
        frame.repartition(2).write.format("kvorum").mode("append").options(
            **options(shop, way), **once
        ).save()
    read = spark.read.format("kvorum").options(**options(shop, way), where=f"v = '{way}'").load()
    assert sorted(row.id for row in read.collect()) == [10 * number + i for i in range(4)]


def test_settings_of_a_session(spark: Any, shop: Secured, tmp_path: Path) -> None:
    """The short forms (`kvorum.spark`) find no login, as options are not theirs to take."""
    try:
        for name, value in {"endpoint": shop.join, **login(shop, "token_file")}.items():
            spark.conf.set(f"spark.kvorum.{name}", value)
        rows = [(100, "job"), (101, "job")]
        frame = spark.createDataFrame(rows, "id INT, v STRING")
        for _ in range(2):
            with kvorum.spark.job(spark, "secured", app_id="secured", version=1) as job:
                job.write(frame, "default.t")
            assert job.done
        with kvorum.spark.job(spark, "once") as job:
            job.write(frame.selectExpr("id + 20 AS id", "v"), "default.t")
        kvorum.spark.bulk_load(frame.selectExpr("id + 10 AS id", "v"), "default.t", splits=2)
        with kvorum.spark.snapshot(spark) as held:
            found = held.table("default.t", where="v = 'job'").count()
        assert found == 6
        (tmp_path / "source").mkdir()
        (tmp_path / "source/one.csv").write_text("1,a\n2,b\n")
        stream = spark.readStream.schema("id INT, v STRING").csv(str(tmp_path / "source"))
        query = (
            stream.writeStream.format("kvorum")
            .options(**options(shop, "token_file", "streamed"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert kvorum.spark.table(spark, "default.streamed").count() == 2
        token = (shop.home / "ann/token").read_bytes()
        kept = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert not [path for path in kept if token in path.read_bytes()]
    finally:
        for name in SETTINGS:
            spark.conf.unset(f"spark.kvorum.{name}")


@pytest.mark.parametrize("mode", ["simple", "extended", "codegen", "cost", "formatted"])
def test_plans_do_not_show_a_token(spark: Any, shop: Secured, capsys: Any, mode: str) -> None:
    """Whoever looks at a plan, in a log or in Spark's pages, has a login."""
    given = options(shop, "token")
    read = spark.read.format("kvorum").options(**given).load()
    read.createOrReplaceTempView("secured")
    read.explain(mode)
    spark.sql("SELECT count(*) FROM secured").explain(mode)
    shown = capsys.readouterr().out + repr(read) + str(read._jdf.queryExecution())
    assert "id" in shown
    assert given["token"] not in shown


@pytest.mark.slow
def test_the_event_log_does_not_keep_a_token(spark: Any, shop: Secured, tmp_path: Path) -> None:
    """Whoever reads what Spark's history is shown from has a login, for as long as it is kept."""
    jvm, context = spark._jvm, spark.sparkContext._jsc.sc()
    conf = context.conf().clone()
    for name in ("compress", "rolling.enabled"):
        conf.set(f"spark.eventLog.{name}", "false")
    conf.set("spark.eventLog.logBlockUpdates.enabled", "true")
    none = jvm.scala.Option.apply(None)
    log = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "secured",
        none,
        jvm.java.net.URI(tmp_path.as_uri()),
        conf,
        jvm.org.apache.hadoop.conf.Configuration(),
    )
    token = (shop.home / "ann/token").read_text().strip()
    log.start()
    context.addSparkListener(log)
    try:
        given = options(shop, "token")
        rows = spark.createDataFrame([(200, "logged"), (201, "logged")], "id INT, v STRING")
        rows.write.format("kvorum").mode("append").options(**given).save()
        read = spark.read.format("kvorum").options(**given).load()
        read.createOrReplaceTempView("logged")
        assert spark.sql("SELECT count(*) FROM logged WHERE v = 'logged'").collect()[0][0] == 2
        context.listenerBus().waitUntilEmpty()
    finally:
        context.removeSparkListener(log)
        log.stop()
    kept = [path.read_text() for path in tmp_path.rglob("secured*") if path.is_file()]
    assert any("SparkListenerSQLExecutionStart" in text and "kvorum" in text for text in kept)
    assert not [text for text in kept if token in text]


def test_who_may_not(spark: Any, shop: Secured) -> None:
    """Spark waits for two minutes for what no waiting cures, or shows a traceback that says nothing
    of TLS or of logging in.
    """
    base = {"endpoint": shop.join, "table": "default.t", "timeoutMs": "20000"}
    at = {name: str(shop.home / name) for name in ("eve", "mistaken", "foreign", "ann")}
    for given, said in (
        ({}, "TLS only"),
        ({"ca": f"{at['ann']}/ca.crt"}, "log in"),
        ({"tls_dir": at["mistaken"]}, "not believed"),
        ({"tls_dir": at["foreign"]}, "may not believe"),
        ({"tls_dir": at["eve"]}, "there is no namespace"),
        ({"ca": f"{at['ann']}/ca.crt", "token": "kvt_x"}, "could not be verified"),
        ({"ca": "a", "tls_dir": "b"}, "give tls_dir or ca"),
        ({"token": "a", "token_file": "b"}, "contradict"),
    ):
        with pytest.raises(Exception, match=said) as caught:
            spark.read.format("kvorum").options(**base, **given).load().collect()
        assert "kvt_" not in str(caught.value)

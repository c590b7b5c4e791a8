"""Whoever may write a table, and submit Spark's jobs, runs them: he sees what is staged for his
tables, lets go of it, and learns nothing of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import httpx
import pytest

import kvorum
from kv.base import system
from kv.base.config import HTTP_OFFSET
from kv.base.errors import Forbidden, InvalidArgument, NotFound
from kv.base.keys import table_range
from kvorum.api.sink_attempts import SinkAttempt
from kvorum.native import staged_attempts
from kvorum.sdk.sync import Database
from kvorum.spark.sinks import Sinks
from procedures.sink.format.sink_parts import SPARK_JOB
from procedures.sink.format.sink_records import Sealed, attempt_key, attempt_of, task_key
from procedures.verbs import PROC_LIST, SINK_ABORT, SINK_BEGIN, SINK_SEAL
from sqlproxy.catalog.visible_catalog import RemoteCatalog
from tests.kit.machine import free_port_base

TASKS: Final = 3
LEASE_MS: Final = 600_000


class Cluster:
    """loader may read and write a table of two, and run jobs. Both have attempts of two writers."""

    def __init__(self, base: int, db: Database) -> None:
        self.url = f"127.0.0.1:{base}"
        self.http = f"http://127.0.0.1:{base + HTTP_OFFSET}"
        self.db = db
        self.root = db.access("init")["token"]
        self.ids = {one.name: one.id for one in db.tables("shop")}
        self.loader = self.user("loader", ["read", "write"], ["submit", "read"])
        self.reader = self.user("reader", ["read"], [])
        self.stranger = self.user("stranger", [], [])
        with kvorum.connect(self.url, token=self.root) as root:
            for name, id_ in self.ids.items():
                for attempt in (f"a-{name}", f"b-{name}"):
                    ask(root, SINK_BEGIN, attempt, id_, LEASE_MS)
                    for task in range(TASKS):
                        ask(root, SINK_SEAL, attempt, id_, task, f"task{task}", 1, 1, 0, None)

    def user(self, name: str, table: list[str], jobs: list[str]) -> str:
        self.db.access("user.create", {"name": name})
        for actions, said in (
            (table, {"kind": "table", "namespace": "shop", "name": "orders"}),
            (jobs, {"kind": "procedure type", "name": SPARK_JOB}),
        ):
            if actions:
                self.db.access("grant.give", {"role": name, "actions": actions, **said})
        return str(self.db.access("token.create", {"user": name, "name": "t"})["token"])

    def sinks(self, token: str) -> Sinks:
        return Sinks(f"kvorum://{self.url}", token=token)


def ask(db: Database, method: int, *args: object) -> list[object]:
    found: list[object] = db._call(db._async._backend.kv.call_node(method, *args))
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    base = free_port_base()
    with kvorum.open(tmp_path_factory.mktemp("n") / "data", port=base) as db:
        db.create_namespace("shop")
        columns = [kvorum.Column("id", "int4", nullable=False)]
        for name in ("orders", "secrets"):
            db.create_table("shop", name, columns=columns, primary_key=["id"])
        yield Cluster(base, db)


def test_what_is_staged_is_seen_by_whose_tables_it_is_for(cluster: Cluster) -> None:
    """A job takes an administrator, who alone finds which of its writes are staged; or everybody
    learns who loads which table.
    """
    every = ["a-orders", "a-secrets", "b-orders", "b-secrets"]
    for token, seen in (
        (cluster.root, every),
        (cluster.loader, every[::2]),
        (cluster.reader, every[::2]),
    ):
        with cluster.sinks(token) as sinks:
            found = sinks.attempts()
        assert [one.attempt for one in found] == seen
        assert {(one.tasks, one.rows, one.state) for one in found} == {(TASKS, TASKS, "OPEN")}
        assert {one.table for one in found} <= {"shop.orders", "shop.secrets"}


@pytest.mark.slow
def test_over_http_as_natively(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The console shows one's own staged work to nobody else, and to oneself what others stage:
    itself, by a page that ends early, or by a name behind which there is more.
    """
    every = ["a-orders", "a-secrets", "b-orders", "b-secrets"]
    for listed in (100, 1):
        monkeypatch.setattr(staged_attempts, "SINK_LISTED_MAX", listed)
        for token, seen in (
            (cluster.root, every),
            (cluster.loader, every[::2]),
            (cluster.reader, every[::2]),
            (cluster.stranger, []),
        ):
            headers = {"authorization": f"Bearer {token}"}
            answers = [httpx.get(f"{cluster.http}/v1/sinks", headers=headers).json()]
            while on := answers[-1].get("after"):
                query = {"after": on}
                answers.append(
                    httpx.get(f"{cluster.http}/v1/sinks", params=query, headers=headers).json()
                )
            assert [one["attempt"] for told in answers for one in told["items"]] == seen
            assert len(answers) == max(1, len(seen) if listed == 1 else 1)
            for one in (one for told in answers for one in told["items"]):
                assert (one["user"], one["tasks"], one["level"]) == ("admin", TASKS, "good")
                assert one["since_ms"] < LEASE_MS
            with kvorum.connect(cluster.http, token=token) as db:
                found, _ = db._call(db._async._backend.sink_attempts())
            with cluster.sinks(token) as sinks:
                same = sinks.attempts()[:listed]
            assert [_timeless(one) for one in found] == [_timeless(one) for one in same]
    long = httpx.get(
        f"{cluster.http}/v1/sinks?after={'x' * 65}",
        headers={"authorization": f"Bearer {cluster.root}"},
    )
    assert (long.status_code, long.json()["error"]["code"]) == (400, "INVALID_ARGUMENT")
    assert "after" in long.json()["error"]["message"]


def _timeless(one: SinkAttempt) -> SinkAttempt:
    """The time goes on between two questions."""
    return replace(one, since_ms=0, left_ms=0)


@pytest.mark.parametrize("limit", range(1, 7))
def test_pages_end_anywhere(cluster: Cluster, limit: int) -> None:
    """A page that begins amid the tasks of an attempt shows those of others, or hides one's own."""
    start, end = table_range(system.SINK_ATTEMPTS)

    async def read(catalog: RemoteCatalog, resume: bytes | None) -> list[bytes]:
        found: list[bytes] = []
        while resume is not None:
            page = await catalog.scan(resume, end, limit=limit)
            assert len(page.items) <= limit
            found += [key for key, _, _ in page.items]
            resume = page.resume
        return found

    with kvorum.connect(cluster.url, token=cluster.loader) as db:
        catalog = RemoteCatalog(db._async._backend.kv)
        keys = db._call(read(catalog, start))
        assert [attempt_of(key) for key in keys] == [
            name for name in ("a-orders", "b-orders") for _ in range(TASKS + 1)
        ]
        own, hidden = task_key("b-orders", "task1"), task_key("a-secrets", "task1")
        for low in (own, own + b"\0", attempt_key("b-orders"), hidden, hidden[:-1], start + b"\0"):
            assert db._call(read(catalog, low)) == [key for key in keys if key >= low]
        assert db._call(catalog.get(hidden)) == (None, 0)
        value, _ = db._call(catalog.get(own))
        assert Sealed.unpack(value).rows == 1


def test_who_may_write_a_table_lets_go_of_what_is_staged_for_it(cluster: Cluster) -> None:
    """A write that failed leaves what it staged to its lease; or somebody ends that of others."""
    orders, secrets = cluster.ids["orders"], cluster.ids["secrets"]
    with kvorum.connect(cluster.url, token=cluster.reader) as db, pytest.raises(Forbidden):
        ask(db, SINK_ABORT, "a-orders", orders)
    with kvorum.connect(cluster.url, token=cluster.loader) as db:
        ask(db, SINK_BEGIN, "mine", orders, LEASE_MS)
        for args, error in (
            (("a-secrets", secrets), Forbidden),
            (("a-secrets",), Forbidden),
            (("a-secrets", 0), Forbidden),
            (("a-secrets", orders), InvalidArgument),
        ):
            with pytest.raises(error) as caught:
                ask(db, SINK_ABORT, *args)
            assert "shop.secrets" not in str(caught.value) or args[-1] == secrets
        for _ in range(2):
            assert ask(db, SINK_ABORT, "mine", orders) == ["ABORTED"]
    with cluster.sinks(cluster.loader) as sinks:
        with pytest.raises(NotFound):
            sinks.abort("a-secrets")
        sinks.abort("mine")
    with cluster.sinks(cluster.root) as sinks:
        states = {one.attempt: one.state for one in sinks.attempts()}
        assert states["mine"] == "ABORTED"
        assert states["a-secrets"] == "OPEN"
        sinks.abort("b-secrets")


def test_jobs_are_listed_to_who_may_read_them(cluster: Cluster) -> None:
    """`kvorum spark sinks` takes a right to all types of procedures."""
    with cluster.sinks(cluster.loader) as sinks:
        args = {"app": "nightly", "version": 1, "name": "nightly"}
        id_ = int(sinks.ask(sinks.procedures.submit(SPARK_JOB, args, nonce="one")))
        assert [(one.id, one.app) for one in sinks.jobs()] == [(id_, "nightly")]
        assert sinks.prepared(id_) == set()
        sinks.commit_job(id_)
        assert [(one.app, one.table, one.version) for one in sinks.ledgers()] == [
            ("nightly", "", 1)
        ]
    with cluster.sinks(cluster.reader) as sinks:
        assert sinks.ledgers() == []
        assert sinks.jobs() == []
    with kvorum.connect(cluster.url, token=cluster.loader) as db:
        for wanted, seen in (
            ({}, 1),
            ({"name": None}, 1),
            ({"name": "kvorum.sink_commit"}, 0),
            ({"owner": "spark"}, 0),
        ):
            rows, more = ask(db, PROC_LIST, wanted)
            assert (len(rows), more) == (seen, False)

"""Tables as Spark frames without option strings.

    spark.conf.set("spark.kvorum.endpoint", "host:7600")                   # .tls_dir, .ca, .token
    kvorum.spark.table(spark, "shop.orders", where="day >= '2026-11-01'", columns=["id", "total"])
    kvorum.spark.changes(spark, "shop.orders", starting="latest")          # a streaming frame
    with kvorum.spark.snapshot(spark, owner="month's end") as s:           # several at one version
        s.table("shop.orders").join(s.table("shop.customers"), "customer")

Each call is one `load()`: one version, which all frames derived from it share. `snapshot` holds
its version in this process for as long as it is open, `table` by a lease that ends some minutes
after the last task that read it.

Nothing of Spark is imported before a function is called. The data source is found by its name, as
Spark does: kvorum and pyspark_kvorum do not import each other.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypedDict

from kv.base.credentials import from_file
from kv.base.errors import InvalidArgument
from kvorum.connecting import connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kvorum.sdk.sync import Database, Snapshot

_SETTING = "spark.kvorum."
ENDPOINT = f"{_SETTING}endpoint"


def table(
    spark: SparkSession,
    name: str,
    *,
    columns: Sequence[str] | None = None,
    where: str = "",
    key_from: str | None = None,
    key_to: str | None = None,
    as_of: int | str | datetime | None = None,
    parts: int | None = None,
    owner: str = "",
    endpoint: str = "",
) -> DataFrame:
    """The rows of `namespace.table`, as they are now or were `as_of` a version or a time.

    `columns`, `where` and the key bounds [key_from, key_to) (of the first primary-key column, or
    the key) are applied before rows reach Spark. `endpoint` HOST:BASE[,…] is by default the
    setting `spark.kvorum.endpoint`. Raises InvalidArgument; Spark raises what the source refuses.
    """
    reader = found(spark).read.format("kvorum").option("table", name)
    chosen = {
        **cluster_of(spark, endpoint),
        "columns": ",".join(columns or ()),
        "where": where,
        "keyFrom": key_from,
        "keyTo": key_to,
        "asOf": as_of.isoformat() if isinstance(as_of, datetime) else as_of,
        "parts": parts,
        "owner": owner or _owner(spark),
    }
    return reader.options(**_given(chosen)).load()


def changes(
    spark: SparkSession,
    name: str,
    *,
    starting: int | str = "earliest",
    columns: Sequence[str] | None = None,
    key_from: str | None = None,
    key_to: str | None = None,
    max_rows_per_batch: int | None = None,
    hold_history: bool = False,
    owner: str = "",
    endpoint: str = "",
) -> DataFrame:
    """The committed changes of `namespace.table` as a streaming frame (docs/guides/spark.md):
    whole transactions, after all rows as they are now (`starting` "earliest"), from now on
    ("latest"), or those after a version.
    """
    reader = found(spark).readStream.format("kvorum").option("table", name)
    chosen = {
        **cluster_of(spark, endpoint),
        "changes": "true",
        "startingVersion": starting,
        "columns": ",".join(columns or ()),
        "keyFrom": key_from,
        "keyTo": key_to,
        "maxRowsPerBatch": max_rows_per_batch,
        "holdHistory": "true" if hold_history else None,
        "owner": owner or _owner(spark),
    }
    return reader.options(**_given(chosen)).load()


def size(spark: SparkSession, name: str, *, endpoint: str = "") -> int:
    """An estimate of a table's bytes, newest versions without compression; nothing is scanned."""
    options = {**cluster_of(spark, endpoint), "table": name}
    estimate: int = importlib.import_module("pyspark_kvorum.reader").estimate(options)
    return estimate


def snapshot(
    spark: SparkSession,
    *,
    as_of: int | None = None,
    owner: str = "",
    endpoint: str = "",
) -> SparkSnapshot:
    """Several tables at one version: use it in `with`. `kvorum snapshot list` shows it."""
    endpoint = cluster_of(spark, endpoint)["endpoint"]
    return SparkSnapshot(spark, endpoint, as_of, owner or _owner(spark))


class SparkSnapshot:
    """A version that this process holds. `at` is known inside of `with`."""

    def __init__(self, spark: SparkSession, endpoint: str, as_of: int | None, owner: str) -> None:
        self._spark, self._endpoint, self._as_of, self._owner = spark, endpoint, as_of, owner
        self._database: Database | None = None
        self._held: Snapshot | None = None

    def __repr__(self) -> str:
        state = f"at {self._held.at}" if self._held is not None else "not open"
        return f"<kvorum snapshot for Spark, {state}>"

    @property
    def at(self) -> int:
        """The version of all its tables."""
        if self._held is None:
            raise InvalidArgument("the snapshot is not open: with kvorum.spark.snapshot(…) as s:")
        return self._held.at

    def table(self, name: str, **options: Any) -> DataFrame:
        """As `kvorum.spark.table`, at this version. Read it before the snapshot is closed."""
        return table(
            self._spark, name, as_of=self.at, endpoint=self._endpoint, owner=self._owner, **options
        )

    def __enter__(self) -> Self:
        self._database = database_at(cluster_of(self._spark, self._endpoint))
        self._held = self._database.snapshot(self._as_of, owner=self._owner)
        return self

    def __exit__(self, *_error: object) -> None:
        held, self._held = self._held, None
        database, self._database = self._database, None
        if held is not None:
            held.close()
        if database is not None:
            database.close()


def found(spark: SparkSession) -> SparkSession:
    """The session, which knows the format from now on (not every thread finds it by itself)."""
    spark.dataSource.register(importlib.import_module("pyspark_kvorum").DefaultSource)
    return spark


def cluster_of(spark: SparkSession, endpoint: str = "") -> dict[str, str]:
    """The options of format("kvorum") that say where the cluster is and who asks: the settings
    `spark.kvorum.endpoint`, `.tls_dir`, `.ca`, `.token` and `.token_file`. Raises InvalidArgument.
    """
    names = ("endpoint", "tls_dir", "ca", "token", "token_file")
    found = {name: spark.conf.get(f"{_SETTING}{name}", None) for name in names}
    if endpoint:
        found["endpoint"] = endpoint
    if not found["endpoint"]:
        raise InvalidArgument(
            f'where is the cluster? spark.conf.set("{ENDPOINT}", "HOST:BASE[,…]"), or endpoint=…'
        )
    return {name: value for name, value in found.items() if value}


def database_at(cluster: Mapping[str, str]) -> Database:
    """Of this process. `cluster`: as from `cluster_of`."""
    return connect("kvorum://" + cluster["endpoint"], **login_of(cluster))


class Login(TypedDict):
    """Arguments of a connection."""

    tls_dir: str | None
    ca: str | None
    token: str


def login_of(cluster: Mapping[str, str]) -> Login:
    """`cluster`: as from `cluster_of`. Raises InvalidArgument."""
    token, file = cluster.get("token", ""), cluster.get("token_file", "")
    if file and not token:
        token = from_file(file, "token_file")
    return Login(tls_dir=cluster.get("tls_dir"), ca=cluster.get("ca"), token=token)


def _owner(spark: SparkSession) -> str:
    context = spark.sparkContext
    return f"spark {context.applicationId} {context.appName}"


def _given(options: dict[str, Any]) -> dict[str, str]:
    return {
        name: str(value) for name, value in options.items() if value is not None and value != ""
    }

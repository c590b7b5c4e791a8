"""The options of `format("kvorum")`, read from Spark's case-insensitive map into one checked value.

    endpoint              HOST:BASE[,HOST:BASE…], required
    table                 namespace.table, required
    columns               read: a,b,c: only these, in this order
    where                 read: a SQL condition, evaluated at the source (pyspark_kvorum.where)
    keyFrom, keyTo        read: the first primary-key column (or the key) from, and up to but not
                          including
    at                    read: the version to read at; default: the newest
    pageRows              read: rows fetched per request, default 10000
    appId                 stream: a name; default is Spark's query id, which survives restarts
    txnAppId, txnVersion  batch: make a resubmitted write idempotent, as in Delta Lake
    timeoutMs             how long one step may retry, default 120000

Predicates and columns are options because Spark's own pushdown hook leaks filters between scans of
one `load()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kv.base import limits, timestamps
from kv.base.errors import InvalidArgument

_KNOWN = {
    "endpoint", "table", "columns", "where", "keyfrom", "keyto", "at", "pagerows", "appid",
    "txnappid", "txnversion", "timeoutms",
}  # fmt: skip
# What Spark itself puts into the map of a stream or a save.
_SPARKS_OWN = {"checkpointlocation", "queryname", "outputmode", "path"}


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options. `addresses` are (host, base port)."""

    addresses: tuple[tuple[str, int], ...]
    namespace: str
    table: str
    columns: tuple[str, ...] = ()
    where: str = ""
    key_from: str | None = None
    key_to: str | None = None
    at: int = 0
    page_rows: int = limits.SCAN_ROWS_MAX
    app: str = ""
    txn_app: str = ""
    txn_version: int = -1
    timeout_ms: int = limits.DEADLINE_MS_MAX

    @staticmethod
    def parse(raw: Mapping[str, str]) -> Options:
        """Raises InvalidArgument with the option's name, what was given and what is allowed."""
        given = {k.lower(): v for k, v in raw.items()}
        unknown = sorted(set(given) - _KNOWN - _SPARKS_OWN)
        if unknown:
            raise InvalidArgument(
                f"unknown option {unknown[0]!r} for format kvorum; known:"
                f" {', '.join(sorted(_KNOWN))}"
            )
        if given.get("path"):
            raise InvalidArgument(
                "kvorum has no paths: use .option('table', 'namespace.table').save() without a path"
            )
        namespace, _, table = _required(given, "table").partition(".")
        if not namespace or not table:
            raise InvalidArgument(f"option table must be namespace.table, got {given['table']!r}")
        has_app, has_version = "txnappid" in given, "txnversion" in given
        if has_app != has_version:
            raise InvalidArgument("options txnAppId and txnVersion belong together; one is missing")
        return Options(
            addresses=tuple(_address(a) for a in _required(given, "endpoint").split(",")),
            namespace=namespace,
            table=table,
            columns=tuple(c.strip() for c in given.get("columns", "").split(",") if c.strip()),
            where=given.get("where", "").strip(),
            key_from=given.get("keyfrom"),
            key_to=given.get("keyto"),
            at=_number(given, "at", 0, 0, timestamps.MAX),
            page_rows=_number(given, "pagerows", limits.SCAN_ROWS_MAX, 1, limits.SCAN_ROWS_MAX),
            app=given.get("appid", ""),
            txn_app=given.get("txnappid", ""),
            txn_version=_number(given, "txnversion", -1, 0, 2**62),
            timeout_ms=_number(given, "timeoutms", limits.DEADLINE_MS_MAX, 1_000, 24 * 3_600_000),
        )


def _required(given: Mapping[str, str], name: str) -> str:
    value = given.get(name, "").strip()
    if not value:
        raise InvalidArgument(f"option {name} is missing: format kvorum needs endpoint and table")
    return value


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise InvalidArgument(f"option endpoint must be HOST:BASE[,…], got {text!r}")
    return host.strip("[]"), int(port)


def _number(given: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.strip().isdigit() or not low <= int(text) <= high:
        raise InvalidArgument(f"option {name} must be between {low} and {high}, got {text!r}")
    return int(text)

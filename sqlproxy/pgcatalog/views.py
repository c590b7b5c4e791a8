"""The views of schema `kvorum`: what the cluster reports of itself, as tables.

Each has a provider: a function of the wiring that returns what the node reports of it (the maps of
kvorum/api/backend.py). Here is which columns there are, and how a map becomes a row. Whoever adds a
field to what nodes report may add a column here; columns are never taken away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from sqlproxy.pg import oids

Reported = Mapping[str, Any]
Provider = Callable[[], Awaitable[Sequence[Reported]]]
PastProvider = Callable[[int], Awaitable[Sequence[Reported]]]
PageProvider = Callable[[int], Awaitable[tuple[Sequence[Reported], int]]]
TEXTS: Final = 1009
INT8S: Final = 1016
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """`field`: of the map that is reported (dots go inside), the column's name if it is empty."""

    name: str
    type: int
    what: str
    field: str = ""


@dataclass(frozen=True, slots=True)
class SystemView:
    name: str
    what: str
    columns: tuple[ViewColumn, ...]


def _view(name: str, what: str, *columns: tuple[Any, ...]) -> SystemView:
    return SystemView(name, what, tuple(ViewColumn(*c) for c in columns))


TEXT, INT4, INT8, BOOL = oids.TEXT, oids.INT4, oids.INT8, oids.BOOL
FLOAT8, TIME, JSONB, BYTEA = oids.FLOAT8, oids.TIMESTAMPTZ, oids.JSONB, oids.BYTEA

VIEWS: Final = {
    view.name: view
    for view in (
        _view(
            "procedures",
            "procedures that run, and ended ones that are kept",
            ("id", INT8, "its id"),
            ("name", TEXT, "what it is"),
            ("state", TEXT, "RUNNABLE, WAITING, SUCCESS, FAILED, ROLLED_BACK, BYPASSED"),
            ("step", TEXT, "the step that it is at; undo:… while it rolls back"),
            ("owner", TEXT, "whose it is"),
            ("parent", INT8, "the procedure that it is a child of"),
            ("attempt", INT4, "of the step, from 1"),
            ("created", TIME, "when it was submitted", "created_ms"),
            ("updated", TIME, "when it last changed", "updated_ms"),
            ("queue", TEXT, "the queue that it is in"),
            ("priority", INT4, "within the queue"),
            ("pool", TEXT, "the workers that it needs"),
            ("locks", JSONB, "resources: [{mode, resource}]"),
            ("result", JSONB, "what it returned"),
            ("error_code", TEXT, "why it failed", "error.code"),
            ("error", TEXT, "the same, for people", "error.message"),
        ),
        _view(
            "locks",
            "keys that transactions hold, and who waits for what",
            ("kind", TEXT, "intent, guard; of a waiting row: write, read, procedure"),
            ("strength", TEXT, "of a row lock: update, no key update, share, key share"),
            ("waiting", BOOL, "it waits (else it holds)", "waits"),
            ("database", TEXT, "of the table", "ns"),
            ("table_name", TEXT, "whose key it is", "table"),
            ("key", BYTEA, "the key as stored"),
            ("keys", INT8, "so many of the transaction in this table"),
            ("txn", INT8, "the transaction"),
            ("owner", TEXT, "the procedure whose transaction it is, or ''"),
            ("resource", TEXT, "of a procedure's lock: its name"),
            ("holder", INT8, "what it waits for"),
            ("waiters", INT4, "how many wait for it", "waiting"),
            ("age_ms", INT8, "since the transaction began, or since it waits"),
            ("partition", INT8, "where"),
            ("node", INT4, "the node that reports it"),
        ),
        _view(
            "partitions",
            "key ranges, who has them and what they are asked for",
            ("id", INT8, "its id"),
            ("database", TEXT, "of its table", "ns"),
            ("table_name", TEXT, "whose keys it has; null: the cluster's own", "table"),
            ("start", BYTEA, "its first storage key"),
            ("end", BYTEA, "the storage key after its last; empty: no end"),
            ("leader", INT4, "a node's id; null: none answers"),
            ("replicas", INT8S, "nodes that vote"),
            ("learners", INT8S, "nodes that are being filled"),
            ("witnesses", INT8S, "nodes that vote and keep no data"),
            ("epoch", INT8, "of its descriptor"),
            ("term", INT8, "of its group"),
            ("size", INT8, "bytes of keys and newest values"),
            ("load", FLOAT8, "standard traffic units per second"),
            ("reads", FLOAT8, "per second"),
            ("writes", FLOAT8, "per second"),
            ("bytes", FLOAT8, "per second"),
            ("hint", TEXT, "what to do about its load"),
            ("shard", TEXT, "storage shard of its rows; empty: the default one"),
            ("policy", TEXT, "how that merges files: leveled or universal"),
            ("policy_proposed", TEXT, "what fits its reads and writes of now"),
        ),
        _view(
            "nodes",
            "the members of the cluster",
            ("id", INT4, "its id"),
            ("address", TEXT, "HOST:BASE"),
            ("state", TEXT, "live, down, joining, leaving, gone"),
            ("leaders", INT4, "partitions that it leads"),
            ("replicas", INT4, "partitions that it has"),
            ("version", TEXT, "of its program"),
            ("witness", BOOL, "it votes and keeps no data"),
            ("dc", TEXT, "label", "labels.dc"),
            ("rack", TEXT, "label", "labels.rack"),
            ("server", TEXT, "label", "labels.server"),
            ("tags", TEXTS, "what it was started with"),
            ("health", TEXT, "alive, suspect, dead; null: nobody knows"),
            ("heard_ms", INT8, "since its last beat"),
            ("cpu", FLOAT8, "share of a core"),
            ("disk_free", INT8, "bytes"),
        ),
        _view(
            "transactions",
            "open transactions of the cluster, and snapshots that are held",
            ("id", INT8, "the transaction, or the snapshot's id"),
            ("kind", TEXT, "transaction or snapshot"),
            ("owner", TEXT, "whose it is, for people"),
            ("at", INT8, "the timestamp that it reads at"),
            ("age_ms", INT8, "since it began"),
            ("left_ms", INT8, "how long it lives if nobody renews it"),
            ("keys", INT8, "keys that it holds"),
            ("waits_for", INT8, "the transaction that it waits for"),
            ("node", INT4, "the node that reports it"),
        ),
        _view(
            "settings",
            "settings of the cluster",
            ("name", TEXT, "its name"),
            ("value", TEXT, "what it is"),
            ("default", TEXT, "what it is unless it is set"),
            ("minimum", TEXT, "the least that may be set"),
            ("maximum", TEXT, "the most that may be set"),
            ("what", TEXT, "what it does"),
        ),
        _view(
            "jobs",
            "schema changes that run, and ended ones that are kept",
            ("id", INT8, "the procedure's id"),
            ("kind", TEXT, "add index, drop column, …"),
            ("state", TEXT, "as in kvorum.procedures"),
            ("database", TEXT, "of the table"),
            ("table_name", TEXT, "what is changed", "table"),
            ("object", TEXT, "the column, index or constraint"),
            ("phase", TEXT, "delete-only, write-only, backfill, public, …"),
            ("rows_done", INT8, "of the backfill"),
            ("rows_total", INT8, "of the backfill, estimated"),
            ("progress", FLOAT8, "0 to 1"),
            ("created", TIME, "when it was submitted", "created_ms"),
            ("updated", TIME, "when it last changed", "updated_ms"),
            ("error", TEXT, "why it failed, for people"),
        ),
        _view(
            "tables",
            "tables and their indexes, with sizes",
            ("id", INT8, "of the catalog's counter"),
            ("oid", oids.OID, "in pg_class"),
            ("database", TEXT, "its namespace", "ns"),
            ("name", TEXT, "its name"),
            ("kind", TEXT, "table, index, sequence, view"),
            ("state", TEXT, "public, disabled, …"),
            ("partitions", INT4, "how many"),
            ("size", INT8, "bytes of keys and newest values"),
            ("rows", INT8, "null: they are not counted"),
            ("replicas", INT4, "how many it is to have; null: every node's"),
            ("tags", TEXTS, "where it is to be"),
            ("shard", TEXT, "storage shard of its own; empty: its database's"),
            ("survive", TEXT, "what may be lost without stopping it; empty: as its database says"),
            ("leaders", TEXT, "labels of the nodes that should lead it; empty: its database's"),
            ("version", INT8, "of its descriptor"),
        ),
        _view(
            "site_links",
            "links to other clusters",
            ("site", TEXT, "its name in the nodes' file of sites"),
            ("cluster", TEXT, "the other cluster's id"),
            ("role", TEXT, "active: its tables are written here; standby: by the link alone"),
            ("tables", JSONB, "what is taken over: [{table: [database, name], rule}]"),
            ("procedure", INT8, "the link's"),
            ("does", TEXT, "what it is at, or why it cannot go on"),
        ),
        _view(
            "queues",
            "queues, types and pools that have a limit, or of which somebody waits",
            ("name", TEXT, "of the queue, the type or the pool"),
            ("kind", TEXT, "queue, type, pool"),
            ("running", INT8, "procedures that have begun and not ended"),
            ("waiting", INT8, "those that the limits hold up"),
            ("max_concurrent", INT4, "so many at once; 0: any number"),
            ("rate_per_s", FLOAT8, "so many begin per second; 0: any number"),
            ("burst", INT4, "so many at once after a pause; 0: one second's worth"),
            ("key_concurrent", INT4, "of each key at once; 0: any number; null: it is no queue"),
            ("key_rate_per_s", FLOAT8, "of each key per second"),
            ("key_burst", INT4, "of each key at once after a pause"),
            ("aging_ms", INT8, "waiting so long counts as one priority; 0: it does not"),
            ("weights", JSONB, "key: how many turns it has in place of one"),
        ),
        _view(
            "schedules",
            "procedures that a clock starts",
            ("name", TEXT, "its name"),
            ("procedure", TEXT, "the type that it starts"),
            ("cron", TEXTS, "its times"),
            ("timezone", TEXT, "of these", "zone"),
            ("every_ms", INT8, "its interval; 0: none"),
            ("next", TIME, "when it runs next; null: never", "next_ms"),
            ("last", TIME, "when it ran last", "last_ms"),
            ("last_id", INT8, "what it started then"),
            ("runs", INT8, "how often it ran"),
            ("skipped", INT8, "how often it did not, because the run before was there"),
            ("waiting", INT4, "runs that wait for the one before"),
            ("remaining", INT8, "so many are left; null: any number"),
            ("overlap", TEXT, "what happens while the run before is there"),
            ("missed", TEXT, "which of the times run that nobody was there for"),
            ("paused", BOOL, "nothing of it starts by the clock"),
            ("args", JSONB, "arguments of what it starts"),
        ),
        _view(
            "pauses",
            "what is paused: no step of it begins",
            ("kind", TEXT, "procedure, type, queue, pool, schedule"),
            ("name", TEXT, "which; of a procedure its id"),
            ("note", TEXT, "why"),
            ("by", TEXT, "who did it"),
            ("since", TIME, "when", "at_ms"),
        ),
        _view(
            "workers",
            "processes that run procedures of their pool",
            ("worker", TEXT, "its name"),
            ("pool", TEXT, "whose procedures it runs"),
            ("host", TEXT, "where it runs"),
            ("pid", INT8, "its process"),
            ("slots", INT4, "so many at once"),
            ("running", INT4, "how many it runs now"),
            ("procedures", INT8S, "which; at most 100"),
            ("types", TEXTS, "what it can run: name@version"),
            ("capacity", JSONB, "what it has of each resource"),
            ("used", JSONB, "what is used of it"),
            ("silent_ms", INT8, "since it was heard last"),
        ),
        _view(
            "retention",
            "how long ended procedures are kept",
            ("type", TEXT, "of which; null: of all"),
            ("state", TEXT, "how they ended; null: however"),
            ("keep_ms", INT8, "so long after their end; null: as they declare"),
            ("most", INT8, "only so many of them; null: any number"),
        ),
        _view(
            "versions",
            "versions of procedure types that live ones, nodes or workers have",
            ("name", TEXT, "the type"),
            ("version", INT8, "its number"),
            ("by_code", BOOL, "it was made of the code"),
            ("live", INT8, "procedures that run with it"),
            ("new_percent", FLOAT8, "share of new ones that begin with it"),
            ("drained", BOOL, "none do"),
            ("workers", TEXTS, "who has it"),
            ("nodes", BOOL, "nodes have it, too"),
            ("safe_to_stop", BOOL, "who has it may go"),
            ("why_not", TEXT, "why not"),
        ),
    )
}


def rows(view: SystemView, reported: Sequence[Reported]) -> list[tuple[Any, ...]]:
    """Maps as they are reported → rows of the view; what a map does not have is NULL."""
    return [
        tuple(_value(_inside(one, c.field or c.name), c.type) for c in view.columns)
        for one in reported
    ]


def _inside(reported: object, path: str) -> object:
    for part in path.split("."):
        reported = reported.get(part) if isinstance(reported, Mapping) else None
    return reported


def _value(value: Any, kind: int) -> object:
    """The value in the form that its column has; numbers come as text where JSON could not hold
    them.
    """
    if value is None:
        return None
    if kind in (INT4, INT8, oids.OID):
        return int(value)
    if kind == FLOAT8:
        return float(value)
    if kind == TIME:
        return value if isinstance(value, datetime) else _EPOCH + timedelta(milliseconds=int(value))
    if kind == JSONB:
        return (
            value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
        )
    if kind == BYTEA:
        return value.encode() if isinstance(value, str) else bytes(value)
    if kind in (TEXTS, INT8S):
        return list(value)
    return bool(value) if kind == BOOL else str(value)

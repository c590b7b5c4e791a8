"""The arguments of node methods are checked here, before their handler runs: count, type, size,
range.

A check gets the whole row `[rid, method, budget_ms, *args]` and raises InvalidArgument or TooLarge;
the text names the method, the argument, the limit and what came. The arguments of partition methods
are checked by kv/partition/requests.py, which has to read them anyway to know the keys; here is
only how to find the key that such a request is routed by. What depends on data (does the table
exist?) is decided where the data is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kv.base import limits, methods
from kv.base.descriptors import PARTITION_ID_MAX, is_descriptor
from kv.base.errors import InvalidArgument, TooLarge
from kv.base.timestamps import MAX

Row = list[Any]
Check = Callable[[Row], None]
Field = Callable[[str, Any], None]  # (what is checked, for the text; the value)

ARGS_AT: Final = 3
_BOUND_BYTES_MAX: Final = 4 + limits.KEY_BYTES_MAX + 1  # table id, key, "the next key"
_SAID_BYTES_MAX: Final = limits.FRAME_BYTES_MAX


def _kind(value: object) -> str:
    return type(value).__name__


def _too_large(what: str, actual: int, limit: int, unit: str) -> TooLarge:
    return TooLarge(
        f"{what}: {actual} {unit}; the limit is {limit}",
        details={"what": what, "limit": limit, "actual": actual},
    )


# ------------------------------------------------------------------------------------------ fields


def integer(low: int, high: int) -> Field:
    """An integer in `[low, high]`; a bool is none."""

    def check(what: str, value: Any) -> None:
        if type(value) is not int or not low <= value <= high:
            got = value if type(value) is int else _kind(value)
            raise InvalidArgument(f"{what} must be an integer in {low} … {high}, got {got}")

    return check


def optional(field: Field) -> Field:
    """None, or what `field` accepts."""

    def check(what: str, value: Any) -> None:
        if value is not None:
            field(what, value)

    return check


def text(chars_max: int) -> Field:
    """A string of at most `chars_max` characters."""

    def check(what: str, value: Any) -> None:
        if type(value) is not str:
            raise InvalidArgument(f"{what} must be a string, got {_kind(value)}")
        if len(value) > chars_max:
            raise _too_large(what, len(value), chars_max, "characters")

    return check


def octets(bytes_max: int) -> Field:
    """Bytes of at most `bytes_max`."""

    def check(what: str, value: Any) -> None:
        if type(value) is not bytes:
            raise InvalidArgument(f"{what} must be bytes, got {_kind(value)}")
        if len(value) > bytes_max:
            raise _too_large(what, len(value), bytes_max, "bytes")

    return check


def boolean(what: str, value: Any) -> None:
    if type(value) is not bool:
        raise InvalidArgument(f"{what} must be a boolean, got {_kind(value)}")


def _people(what: str, value: Any) -> None:
    if value != "all":
        boolean(what, value)


def mapping(what: str, value: Any) -> None:
    if type(value) is not dict:
        raise InvalidArgument(f"{what} must be a map, got {_kind(value)}")


def _error(what: str, value: Any) -> None:
    """kv.base.errors.to_wire."""
    kinds = [type(field) for field in value] if type(value) is list else []
    if kinds != [str, str, str, dict]:
        raise InvalidArgument(f"{what} must be a class, a code, a message and details")


def _descriptor(what: str, value: Any) -> None:
    """kv.base.descriptors.PartitionDescriptor.to_wire."""
    if not is_descriptor(value):
        raise InvalidArgument(f"{what} must be a partition's descriptor, got {_kind(value)}")


def _members(what: str, value: Any) -> None:
    if type(value) is not list or len(value) > limits.NODES_MAX:
        raise InvalidArgument(f"{what} must be a list of at most {limits.NODES_MAX} node ids")
    for one in value:
        _node(what, one)


def _owners(what: str, value: Any) -> None:
    """Whoever serves the method looks at it: it knows what an attempt or a manifest is."""


timestamp: Final = integer(0, MAX)
_u64: Final = integer(0, MAX)
_name: Final = text(limits.NAME_CHARS_MAX)
_args: Final = octets(limits.PROCEDURE_ARGS_BYTES_MAX)
_nonce: Final = text(limits.NONCE_CHARS_MAX)
_reason: Final = text(limits.REASON_CHARS_MAX)
_owner: Final = text(limits.OWNER_CHARS_MAX)
_node: Final = integer(1, (1 << 32) - 1)
_partition: Final = integer(1, PARTITION_ID_MAX)
_i64: Final = integer(-(1 << 63), (1 << 63) - 1)
_wait_ms: Final = integer(0, limits.WAIT_MS_MAX)
_index: Final = integer(0, (1 << 63) - 1)
_epoch: Final = integer(0, (1 << 63) - 1)
_of_partition: Final = (("partition", _partition), ("epoch", _epoch))
_submission: Final = (
    *(("name", _name), ("args", _args), ("owner", _nonce), ("nonce", optional(_nonce))),
)

# ----------------------------------------------------------------------------------------- methods


def _counted(*names: str) -> tuple[tuple[str, Field], ...]:
    return tuple((name, _owners) for name in names)


# Method number → (its name, its arguments in order). Methods that are not here bring their own
# check (`Dispatcher.register`): their owners know what an attempt or a manifest looks like.
FIELDS: Final[dict[int, tuple[str, tuple[tuple[str, Field], ...]]]] = {
    methods.PING: ("PING", ()),
    methods.LOOKUP: ("LOOKUP", (("key", octets(_BOUND_BYTES_MAX)),)),
    methods.TSO: ("TSO", (("count", integer(1, limits.TSO_COUNT_MAX)),)),
    methods.TSO_RELAYED: ("TSO_RELAYED", (("count", integer(1, limits.TSO_COUNT_MAX)),)),
    methods.STATS: ("STATS", ()),
    methods.FIND_TXN: ("FIND_TXN", (("start_ts", timestamp),)),
    methods.SAFEPOINT: ("SAFEPOINT", ()),
    methods.STANDING: ("STANDING", ()),
    methods.HOLDS_TXN: ("HOLDS_TXN", (("txn", timestamp),)),
    methods.END_TXN: ("END_TXN", (("txn", timestamp),)),
    methods.PROC_SUBMIT: ("PROC_SUBMIT", _submission),
    methods.PROC_SUBMIT_MORE: ("PROC_SUBMIT_MORE", (*_submission, ("options", mapping))),
    methods.PROC_GET: ("PROC_GET", (("id", _u64), ("wait_ms", _wait_ms))),
    methods.PROC_LIST: ("PROC_LIST", (("filter", mapping),)),
    methods.PROC_ACK: ("PROC_ACK", (("id", _u64),)),
    methods.PROC_ABORT: (
        "PROC_ABORT",
        (("id", _u64), ("reason", _reason), ("dry_run", boolean)),
    ),
    methods.WAITS: ("WAITS", (("people", _people),)),
    methods.REFUSE_WAIT: (
        "REFUSE_WAIT",
        (("node", _u64), ("source", _u64), ("id", _u64), ("holder", _u64), ("error", _error)),
    ),
    methods.SNAPSHOT_OPEN: (
        "SNAPSHOT_OPEN",
        (("at", timestamp), ("owner", _owner), ("ttl_ms", integer(1, limits.LEASE_TTL_MS_MAX))),
    ),
    methods.SNAPSHOT_RENEW: ("SNAPSHOT_RENEW", (("id", timestamp),)),
    methods.SNAPSHOT_RELEASE: ("SNAPSHOT_RELEASE", (("id", timestamp),)),
    methods.SNAPSHOT_LIST: ("SNAPSHOT_LIST", ()),
    methods.COLLECT_BELOW: ("COLLECT_BELOW", ()),
    methods.OLDEST_INTENT: ("OLDEST_INTENT", ()),
    methods.ANCHORED: (
        "ANCHORED",
        (("start", octets(_BOUND_BYTES_MAX)), ("end", octets(_BOUND_BYTES_MAX))),
    ),
    methods.BEAT_NOW: ("BEAT_NOW", (("node", _node),)),
    methods.REPORTS: ("REPORTS", ()),
    methods.LOCK_BEAT: ("LOCK_BEAT", (("id", _u64), ("wait_ms", _wait_ms))),
    methods.LOCK_END: ("LOCK_END", (("id", _u64),)),
    methods.WORK_ENTER: (
        "WORK_ENTER",
        (("worker", _name), ("registration", octets(limits.WORKER_DECLARATIONS_BYTES_MAX))),
    ),
    methods.WORK_POLL: (
        "WORK_POLL",
        (
            *(("worker", _name), ("epoch", _i64), ("seq", _i64), ("seen", _i64)),
            *(("again", boolean), ("wait_ms", _wait_ms), ("said", octets(_SAID_BYTES_MAX))),
        ),
    ),
    methods.WORK_LEAVE: ("WORK_LEAVE", (("worker", _name), ("epoch", _i64))),
    methods.WORK_LIST: ("WORK_LIST", ()),
    methods.PROC_CONTROL: ("PROC_CONTROL", (("what", _name), ("args", octets(_SAID_BYTES_MAX)))),
    methods.SPLIT_PARTITION: (
        "SPLIT_PARTITION",
        (
            *(("partition", _partition), ("key", octets(_BOUND_BYTES_MAX))),
            *(("new", _partition), ("epoch", _epoch)),
        ),
    ),
    methods.FREEZE_PARTITION: ("FREEZE_PARTITION", _of_partition),
    methods.THAW_PARTITION: ("THAW_PARTITION", _of_partition),
    methods.CAUGHT_UP: ("CAUGHT_UP", (("partition", _partition), ("index", _index))),
    methods.MERGE_PARTITION: (
        "MERGE_PARTITION",
        (
            *(*_of_partition, ("right", _descriptor)),
            *(("index", _index), ("term", _index), ("nodes", _members)),
        ),
    ),
    methods.SETTLE_PARTITION: ("SETTLE_PARTITION", _of_partition),
    methods.SINK_BEGIN: ("SINK_BEGIN", _counted("attempt", "table", "lease_ms")),
    methods.SINK_STAGE: (
        "SINK_STAGE",
        _counted("attempt", "table", "part", "task", "seq", "chunk"),
    ),
    methods.SINK_SEAL: (
        "SINK_SEAL",
        _counted(
            *("attempt", "table", "part", "task", "chunks", "rows", "crc", "last_chunk"),
            *("txns", "placed"),
        ),
    ),
    methods.SINK_COMMIT: ("SINK_COMMIT", _counted("request")),
    methods.SINK_ABORT: ("SINK_ABORT", _counted("attempt")),
    methods.SINK_PLACE: ("SINK_PLACE", _counted("attempt", "table", "part", "task", "start_ts")),
}
_FEWEST: Final = {methods.SINK_SEAL: 8}  # where the last ones may be missing


def check_arguments(row: Row) -> None:
    """Check a row field by field against FIELDS. The method must be there."""
    name, fields = FIELDS[row[1]]
    count = len(row) - ARGS_AT
    if count != len(fields) and not _FEWEST.get(row[1], len(fields)) <= count < len(fields):
        wanted = ", ".join(field for field, _ in fields) or "none"
        raise InvalidArgument(f"{name} takes {len(fields)} arguments ({wanted}), got {count}")
    for (what, field), value in zip(fields, row[ARGS_AT:], strict=False):
        field(f"{name}: {what}", value)


# Where a partition method has the key that it is routed by; of several, the first.
_KEY_AT: Final[dict[int, tuple[int, ...]]] = {
    methods.GET: (5,),
    methods.PUT: (5,),
    methods.DELETE: (5,),
    methods.WRITE: (5, 0, 1),
    methods.WRITE_ROWS: (5, 0),
    methods.INGEST: (5, 0),
    methods.MGET: (5, 0),
    methods.READ_NOW: (5, 0),
    methods.SCAN: (5,),
    methods.SCAN_VALUES: (5,),
    methods.SCAN_SEALED: (5,),
    methods.PAIRS: (5,),
    methods.PARTS: (5,),
    methods.CHANGES: (5,),
    methods.AWAIT_CHANGES: (5,),
    methods.PREWRITE: (8, 0, 1),
    methods.PREWRITE_ROWS: (8, 0),
    methods.COMMIT: (5,),
    methods.ROLLBACK: (5,),
    methods.CHECK: (5,),
    methods.RESOLVE: (7, 0),
    methods.HEARTBEAT: (5,),
    methods.RECOVER: (7, 0),
    methods.SETTLE: (5,),
    methods.FINISH: (5, 0, 3, 0),
}


def routing_key(row: Row) -> bytes | None:
    """The first key of a partition request, None if it has none or the request is not well
    formed.
    """
    path = _KEY_AT.get(row[1])
    if path is None:
        return None
    found: Any = row
    for step in path:
        if not isinstance(found, list | tuple) or len(found) <= step:
            return None
        found = found[step]
    return found if type(found) is bytes else None

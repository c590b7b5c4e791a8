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
from kv.base.errors import InvalidArgument, TooLarge
from kv.base.timestamps import MAX

Row = list[Any]
Check = Callable[[Row], None]
Field = Callable[[str, Any], None]  # (what is checked, for the text; the value)

ARGS_AT: Final = 3
_BOUND_BYTES_MAX: Final = 4 + limits.KEY_BYTES_MAX + 1  # table id, key, "the next key"


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


timestamp: Final = integer(0, MAX)
_u64: Final = integer(0, MAX)
_name: Final = text(limits.NAME_CHARS_MAX)
_args: Final = octets(limits.PROCEDURE_ARGS_BYTES_MAX)
_nonce: Final = text(limits.NONCE_CHARS_MAX)
_reason: Final = text(limits.REASON_CHARS_MAX)
_owner: Final = text(limits.OWNER_CHARS_MAX)

# ----------------------------------------------------------------------------------------- methods

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
    methods.PROC_SUBMIT: (
        "PROC_SUBMIT",
        (("name", _name), ("args", _args), ("owner", _nonce), ("nonce", optional(_nonce))),
    ),
    methods.PROC_GET: ("PROC_GET", (("id", _u64), ("wait_ms", integer(0, limits.WAIT_MS_MAX)))),
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
}


def check_arguments(row: Row) -> None:
    """Check a row field by field against FIELDS. The method must be there."""
    name, fields = FIELDS[row[1]]
    if len(row) != ARGS_AT + len(fields):
        wanted = ", ".join(field for field, _ in fields) or "none"
        raise InvalidArgument(
            f"{name} takes {len(fields)} arguments ({wanted}), got {len(row) - ARGS_AT}"
        )
    for (what, field), value in zip(fields, row[ARGS_AT:], strict=True):
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

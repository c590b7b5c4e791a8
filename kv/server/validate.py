"""Every argument of every request is checked here, before anything is queued: type, size, range,
count.

A check gets the whole row `[rid, method, deadline, *args]` and raises InvalidArgument or TooLarge;
the text names the method, the argument, the limit and what came. Hot methods have a short test that
accepts the usual row; whatever it does not accept goes through the table, which finds the words.
What depends on data (is the key in the partition's range, does the table exist) is decided where
the data is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kv.base import limits, methods
from kv.base.errors import InvalidArgument, TooLarge
from kv.base.methods import BLIND, NODE_METHODS, OP_CHECK, OP_DELETE, OP_PUT
from kv.base.timestamps import MAX

Row = list[Any]
Check = Callable[[Row], None]
Field = Callable[[str, Any], None]  # (what is checked, for the text; the value)

ARGS_AT: Final = 3  # of a node method
PARTITION_ARGS_AT: Final = 5  # behind partition_id and epoch
PREFIX_BYTES: Final = 4  # the table id of a storage key
STORAGE_KEY_BYTES_MAX: Final = PREFIX_BYTES + limits.KEY_BYTES_MAX
_OP_FIELDS: Final = 5
_PREWRITE_TOTAL_MAX: Final = (
    limits.PREWRITE_BYTES_MAX + limits.VALUE_BYTES_MAX + STORAGE_KEY_BYTES_MAX
)


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


def mapping(what: str, value: Any) -> None:
    if type(value) is not dict:
        raise InvalidArgument(f"{what} must be a map, got {_kind(value)}")


def anything(what: str, value: Any) -> None:
    """For arguments whose owner checks them (a procedure's own arguments)."""


def storage_key(what: str, value: Any) -> None:
    """A table prefix and a user key."""
    if type(value) is not bytes:
        raise InvalidArgument(f"{what} must be bytes, got {_kind(value)}")
    if len(value) < PREFIX_BYTES:
        raise InvalidArgument(f"{what} must begin with a table id of 4 bytes, got {value!r}")
    if len(value) > STORAGE_KEY_BYTES_MAX:
        actual = len(value) - PREFIX_BYTES
        raise _too_large(what, actual, limits.KEY_BYTES_MAX, "bytes without its table id")


def listed(field: Field, count_max: int, *, count_min: int = 0) -> Field:
    """A list whose elements `field` accepts."""

    def check(what: str, value: Any) -> None:
        if not isinstance(value, list | tuple):
            raise InvalidArgument(f"{what} must be a list, got {_kind(value)}")
        if len(value) > count_max:
            raise _too_large(what, len(value), count_max, "elements")
        if len(value) < count_min:
            raise InvalidArgument(f"{what} must have at least {count_min} elements")
        for i, element in enumerate(value):
            field(f"{what}[{i}]", element)

    return check


def operations(count_max: int, bytes_max: int) -> Field:
    """The ops of one atomic write (`kv.base.ops`)."""

    def check(what: str, value: Any) -> None:
        if not isinstance(value, list | tuple):
            raise InvalidArgument(f"{what} must be a list, got {_kind(value)}")
        if not 0 < len(value) <= count_max:
            if not value:
                raise InvalidArgument(f"{what} must not be empty")
            raise _too_large(what, len(value), count_max, "operations")
        total = 0
        for i, op in enumerate(value):
            total += _operation(what, i, op)
        if total > bytes_max:
            raise _too_large(what, total, bytes_max, "bytes of keys and values")

    return check


def _operation(what: str, i: int, op: Any) -> int:
    """Check one op; its bytes. The first test accepts nearly all."""
    if not isinstance(op, list | tuple) or len(op) != _OP_FIELDS:
        raise InvalidArgument(f"{what}[{i}] must be [kind, key, value, cond, ttl_ms]")
    kind, key, value, cond, ttl_ms = op
    if (
        type(key) is not bytes
        or not PREFIX_BYTES <= len(key) <= STORAGE_KEY_BYTES_MAX
        or cond is not None
        or ttl_ms != 0
    ):
        storage_key(f"{what}[{i}].key", key)
        _version(f"{what}[{i}].cond", cond)
        _ttl(f"{what}[{i}].ttl_ms", ttl_ms)
    if kind == OP_PUT and type(kind) is int:
        if type(value) is not bytes or len(value) > limits.VALUE_BYTES_MAX:
            _value(f"{what}[{i}].value", value)
        return len(key) + len(value)
    if type(kind) is not int or kind not in (OP_DELETE, OP_CHECK):
        raise InvalidArgument(f"{what}[{i}].kind must be 1 (put), 2 (delete) or 3 (check)")
    if value is not None:
        raise InvalidArgument(f"{what}[{i}] has a value, but only a put has one")
    if kind == OP_CHECK and cond is None:
        raise InvalidArgument(f"{what}[{i}] checks nothing: cond is missing")
    return len(key)


timestamp: Final = integer(0, MAX)
_version: Final = optional(timestamp)
_ttl: Final = integer(0, limits.TTL_MS_MAX)
_txn_ttl: Final = integer(0, limits.TXN_TTL_MS_MAX)
_value: Final = octets(limits.VALUE_BYTES_MAX)
_bound: Final = octets(STORAGE_KEY_BYTES_MAX + 1)  # a scan may go on behind the longest key
_ignore: Final = optional(listed(timestamp, limits.IGNORED_TXNS_MAX))
_keys: Final = listed(storage_key, limits.MULTI_KEYS_MAX)
_flags: Final = integer(0, BLIND)
_u64: Final = integer(0, MAX)
_name: Final = text(limits.NAME_CHARS_MAX)

# ----------------------------------------------------------------------------------------- methods

# Method number → (its name, its arguments in order). The rest of the node methods bring their own
# check (`Dispatcher.register`): their owners know what an attempt or a manifest looks like.
FIELDS: Final[dict[int, tuple[str, tuple[tuple[str, Field], ...]]]] = {
    methods.GET: ("GET", (("key", storage_key), ("read_ts", timestamp), ("ignore", _ignore))),
    methods.PUT: (
        "PUT",
        (("key", storage_key), ("value", _value), ("cond", _version), ("ttl_ms", _ttl)),
    ),
    methods.DELETE: ("DELETE", (("key", storage_key), ("cond", _version))),
    methods.WRITE: (
        "WRITE",
        (
            ("ops", operations(limits.BATCH_OPS_MAX, limits.BATCH_BYTES_MAX)),
            ("start_ts", timestamp),
            ("flags", _flags),
        ),
    ),
    methods.MGET: ("MGET", (("keys", _keys), ("read_ts", timestamp), ("ignore", _ignore))),
    methods.SCAN: (
        "SCAN",
        (
            ("start", _bound),
            ("end", _bound),
            ("read_ts", timestamp),
            ("limit", integer(0, limits.SCAN_ROWS_MAX)),
            ("reverse", boolean),
            ("ignore", _ignore),
        ),
    ),
    methods.PREWRITE: (
        "PREWRITE",
        (
            ("start_ts", timestamp),
            ("anchor", storage_key),
            ("ttl_ms", _txn_ttl),
            ("ops", operations(limits.PREWRITE_KEYS_MAX, _PREWRITE_TOTAL_MAX)),
            ("flags", _flags),
        ),
    ),
    methods.COMMIT: (
        "COMMIT",
        (("anchor", storage_key), ("start_ts", timestamp), ("commit_ts", timestamp)),
    ),
    methods.ROLLBACK: ("ROLLBACK", (("anchor", storage_key), ("start_ts", timestamp))),
    methods.CHECK: (
        "CHECK",
        (
            ("anchor", storage_key),
            ("start_ts", timestamp),
            ("push_above", timestamp),
            ("ttl_ms", _txn_ttl),
        ),
    ),
    methods.RESOLVE: (
        "RESOLVE",
        (("start_ts", timestamp), ("commit_ts", timestamp), ("keys", _keys)),
    ),
    methods.HEARTBEAT: ("HEARTBEAT", (("anchor", storage_key), ("start_ts", timestamp))),
    methods.PING: ("PING", ()),
    methods.LOOKUP: ("LOOKUP", (("key", _bound),)),
    methods.TSO: ("TSO", (("count", integer(1, limits.TSO_COUNT_MAX)),)),
    methods.STATS: ("STATS", ()),
    methods.FIND_TXN: ("FIND_TXN", (("start_ts", timestamp),)),
    methods.SAFEPOINT: ("SAFEPOINT", ()),
    methods.PROC_SUBMIT: (
        "PROC_SUBMIT",
        (
            ("name", _name),
            ("args", anything),
            ("owner", text(limits.NONCE_CHARS_MAX)),
            ("nonce", optional(text(limits.NONCE_CHARS_MAX))),
        ),
    ),
    methods.PROC_GET: ("PROC_GET", (("id", _u64), ("wait_ms", integer(0, limits.WAIT_MS_MAX)))),
    methods.PROC_LIST: ("PROC_LIST", (("filter", mapping),)),
    methods.PROC_ACK: ("PROC_ACK", (("id", _u64),)),
    methods.PROC_ABORT: ("PROC_ABORT", (("id", _u64), ("reason", text(limits.KEY_BYTES_MAX)))),
}


def by_table(row: Row) -> None:
    """Check a row field by field against FIELDS. The method must be there."""
    method = row[1]
    name, fields = FIELDS[method]
    at = ARGS_AT
    if method < NODE_METHODS:
        at = PARTITION_ARGS_AT
        if len(row) < at:
            raise _arity(name, ("partition_id", "epoch", *(f for f, _ in fields)), len(row) - 3)
        _u64(f"{name}: partition_id", row[3])
        _u64(f"{name}: epoch", row[4])
    if len(row) != at + len(fields):
        raise _arity(name, tuple(f for f, _ in fields), len(row) - at)
    for (what, field), value in zip(fields, row[at:], strict=True):
        field(f"{name}: {what}", value)


def _arity(name: str, wanted: tuple[str, ...], got: int) -> InvalidArgument:
    return InvalidArgument(f"{name} takes {len(wanted)} arguments ({', '.join(wanted)}), got {got}")


def _get(row: Row) -> None:
    if len(row) == 8 and row[7] is None:
        _, _, _, partition, epoch, key, read_ts, _ = row
        if (
            type(key) is bytes
            and PREFIX_BYTES <= len(key) <= STORAGE_KEY_BYTES_MAX
            and type(read_ts) is int
            and 0 <= read_ts <= MAX
            and type(partition) is int
            and type(epoch) is int
        ):
            return
    by_table(row)


def _put(row: Row) -> None:
    if len(row) == 9 and row[7] is None and row[8] == 0:
        _, _, _, partition, epoch, key, value, _, ttl_ms = row
        if (
            type(key) is bytes
            and PREFIX_BYTES <= len(key) <= STORAGE_KEY_BYTES_MAX
            and type(value) is bytes
            and len(value) <= limits.VALUE_BYTES_MAX
            and type(partition) is int
            and type(epoch) is int
            and type(ttl_ms) is int
        ):
            return
    by_table(row)


CHECKS: Final[dict[int, Check]] = dict.fromkeys(FIELDS, by_table) | {
    methods.GET: _get,
    methods.PUT: _put,
}

# Where a partition method has the key that it is routed by; of several, the first.
_KEY_AT: Final = {
    methods.GET: (5,),
    methods.PUT: (5,),
    methods.DELETE: (5,),
    methods.WRITE: (5, 0, 1),
    methods.MGET: (5, 0),
    methods.SCAN: (5,),
    methods.PREWRITE: (8, 0, 1),
    methods.COMMIT: (5,),
    methods.ROLLBACK: (5,),
    methods.CHECK: (5,),
    methods.RESOLVE: (7, 0),
    methods.HEARTBEAT: (5,),
}


def routing_key(row: Row) -> bytes | None:
    """The first key of a checked partition request, None if it has none (an empty list)."""
    found: Any = row
    for step in _KEY_AT[row[1]]:
        if not found:
            return None
        found = found[step]
    return found if type(found) is bytes else None

"""What one argument of a request must be: its type, size and range.

A check gets what the argument is called, for the text, and the value as it came from the wire. It
returns nothing, or raises InvalidArgument or TooLarge; the text names the argument, the limit and
what came. Nothing is taken for granted, not even a type: a bool is no integer here. The structs of
kv/base/verbs.py name these checks in their annotations. Limits: kv/base/limits.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from kv.base import limits
from kv.base.descriptors import PARTITION_ID_MAX, is_descriptor
from kv.base.errors import InvalidArgument, TooLarge
from kv.base.intents import TxnId, start_of
from kv.base.timestamps import MAX

Check = Callable[[str, Any], None]

HANDED_OUT: Final = "handed out"
"""Marks a timestamp of the oracle: who serves the request believes none that is not given out yet
(kv/partition/claims.py)."""
PREFIX_BYTES: Final = 4  # of a storage key: the id of its table
STORAGE_KEY_BYTES_MAX: Final = PREFIX_BYTES + limits.KEY_BYTES_MAX
BOUND_BYTES_MAX: Final = STORAGE_KEY_BYTES_MAX + 1  # "the next key"


def _kind(value: object) -> str:
    return type(value).__name__


def _too_large(what: str, actual: int, limit: int, unit: str) -> TooLarge:
    return TooLarge(
        f"{what}: {actual} {unit}; the limit is {limit}",
        details={"what": what, "limit": limit, "actual": actual},
    )


# ------------------------------------------------------------------------------------------ checks


def integer(low: int, high: int) -> Check:
    """An integer in `[low, high]`; a bool is none."""

    def check(what: str, value: object) -> None:
        if type(value) is not int or not low <= value <= high:
            got = value if type(value) is int else _kind(value)
            raise InvalidArgument(f"{what} must be an integer in {low} … {high}, got {got}")

    return check


def optional(field: Check) -> Check:
    """None, or what `field` accepts."""

    def check(what: str, value: object) -> None:
        if value is not None:
            field(what, value)

    return check


def text(chars_max: int, chars_min: int = 0) -> Check:
    """A string of so many characters."""
    return _sized(str, "a string", "characters", chars_max, chars_min)


def octets(bytes_max: int, bytes_min: int = 0) -> Check:
    """Bytes, so many of them."""
    return _sized(bytes, "bytes", "bytes", bytes_max, bytes_min)


def _sized(type_: type[str] | type[bytes], name: str, unit: str, most: int, least: int) -> Check:
    def check(what: str, value: object) -> None:
        if type(value) is not type_:
            raise InvalidArgument(f"{what} must be {name}, got {_kind(value)}")
        if len(value) > most:
            raise _too_large(what, len(value), most, unit)
        if len(value) < least:
            raise InvalidArgument(f"{what} needs at least {least} {unit}, got {len(value)}")

    return check


def one_of(*words: str) -> Check:
    """One of these strings."""

    def check(what: str, value: object) -> None:
        if type(value) is not str or value not in words:
            raise InvalidArgument(f"{what} must be one of {', '.join(words)}, got {value!r:.40}")

    return check


def boolean(what: str, value: object) -> None:
    if type(value) is not bool:
        raise InvalidArgument(f"{what} must be a boolean, got {_kind(value)}")


def mapping(what: str, value: object) -> None:
    if type(value) is not dict:
        raise InvalidArgument(f"{what} must be a map, got {_kind(value)}")


def items(item: Check, most: int, least: int = 0) -> Check:
    """A list of so many, each of which `item` accepts."""

    def check(what: str, value: object) -> None:
        if type(value) is not list or not least <= len(value) <= most:
            got = len(value) if type(value) is list else _kind(value)
            raise InvalidArgument(f"{what} must be a list of {least} … {most}, got {got}")
        for one in value:
            item(what, one)

    return check


def anything(what: str, value: object) -> None:
    """Whoever serves the verb looks at it: only that knows what it means."""


def descriptor(what: str, value: object) -> None:
    """kv.base.descriptors.PartitionDescriptor.to_wire."""
    if not is_descriptor(value):
        raise InvalidArgument(f"{what} must be a partition's descriptor, got {_kind(value)}")


def error(what: str, value: object) -> None:
    """kv.base.errors.to_wire."""
    kinds = [type(field) for field in value] if type(value) is list else []
    if kinds != [str, str, str, dict]:
        raise InvalidArgument(f"{what} must be a class, a code, a message and details")


# ------------------------------------------------------------------------- keys, values and readers


def too_large(what: str, limit: int, actual: int) -> TooLarge:
    return TooLarge(
        f"{what}: {actual}, at most {limit}; nothing was done. Send less at once "
        "(docs/limits.md lists every limit)",
        details={"what": what, "limit": limit, "actual": actual},
    )


def check_key(what: str, key: object) -> None:
    """A storage key: the four bytes of its table, then the user's."""
    if type(key) is bytes and PREFIX_BYTES <= len(key) <= STORAGE_KEY_BYTES_MAX:
        return  # nearly always
    if type(key) is not bytes:
        raise InvalidArgument(f"{what} must be bytes, got {_kind(key)}")
    if len(key) > STORAGE_KEY_BYTES_MAX:
        raise too_large("key bytes", STORAGE_KEY_BYTES_MAX, len(key))
    raise InvalidArgument(
        f"{what}: a storage key begins with the {PREFIX_BYTES} bytes of its table's id, "
        f"got {key!r}",
        details={"key": key},
    )


def check_bound(what: str, key: object) -> None:
    """Where a range begins or ends: "the next key" is one byte longer."""
    if type(key) is not bytes:
        raise InvalidArgument(f"{what} must be bytes, got {_kind(key)}")
    if len(key) > BOUND_BYTES_MAX:
        raise too_large("key bytes", STORAGE_KEY_BYTES_MAX, len(key))


def check_value(what: str, value: object) -> None:
    if type(value) is not bytes:
        raise InvalidArgument(f"{what} must be bytes, got {_kind(value)}")
    if len(value) > limits.VALUE_BYTES_MAX:
        raise too_large("value bytes", limits.VALUE_BYTES_MAX, len(value))


def keys_up_to(most: int) -> Check:
    """A list of so many storage keys."""

    def check(what: str, keys: object) -> None:
        if type(keys) is not list:
            raise InvalidArgument(f"{what} must be a list, got {_kind(keys)}")
        if len(keys) > most:
            raise too_large("keys", most, len(keys))
        for key in keys:
            check_key(what, key)

    return check


def check_ignored(what: str, value: object) -> None:
    """The transactions whose intents a reader does not mind."""
    if value is not None and (
        type(value) is not list or any(type(one) not in (int, bytes) for one in value)
    ):
        raise InvalidArgument(f"{what} must be nil or a list of transaction ids")


def check_through(what: str, value: object) -> None:
    """Transactions that are known to be committed, and at which versions."""
    if type(value) is not list or len(value) > limits.THROUGH_TXNS_MAX:
        raise InvalidArgument(f"{what} is a list of at most {limits.THROUGH_TXNS_MAX} pairs")
    for pair in value:
        if type(pair) is not list or len(pair) != 2:
            raise InvalidArgument(f"{what}: a transaction and its version, got {pair!r:.60}")
        named = type(pair[0]) is bytes and len(pair[0]) > 8
        start_ts = start_of(pair[0]) if named else pair[0]
        integer(1, MAX)(f"{what}: transaction", start_ts)
        integer(start_ts, MAX)(f"{what}: version", pair[1])


# ---------------------------------------------------------------- what several verbs have in common

Timestamp = Annotated[int, integer(0, MAX), HANDED_OUT]  # 0 usually is the newest, or now
Fresh = Annotated[int, integer(1, MAX), HANDED_OUT]
U64 = Annotated[int, integer(0, MAX)]
I64 = Annotated[int, integer(-(1 << 63), (1 << 63) - 1)]
Index = Annotated[int, integer(0, (1 << 63) - 1)]
Node = Annotated[int, integer(1, (1 << 32) - 1)]
Partition = Annotated[int, integer(1, PARTITION_ID_MAX)]
Partitions = Annotated[list[int], items(integer(1, PARTITION_ID_MAX), limits.LIST_ITEMS_MAX)]
WaitMs = Annotated[int, integer(0, limits.WAIT_MS_MAX)]
Bound = Annotated[bytes, octets(BOUND_BYTES_MAX)]  # where a range begins or ends
Flag = Annotated[bool, boolean]
Name = Annotated[str, text(limits.NAME_CHARS_MAX)]
Row = Annotated[list[Any], descriptor]
RangeBound = Annotated[bytes, check_bound]
Value = Annotated[bytes, check_value]
Cond = Annotated[int | None, optional(integer(0, MAX))]  # the version that is expected, 0 = none
Ignored = Annotated[list[TxnId] | None, check_ignored]
TxnTtlMs = Annotated[int, integer(1, limits.TXN_TTL_MS_MAX)]
TsoCount = Annotated[int, integer(1, limits.TSO_COUNT_MAX)]
Unchecked = Annotated[Any, anything]

"""What a field of a request must look like: keys, values, numbers, bounds.

Each check raises InvalidArgument or TooLarge, says what, where and the limit, and changes nothing
(C15). They see what came from the wire, so nothing is taken for granted, not even a type: `type(x)
is not bytes` is a check, and `bool` is no integer here. Limits: kv/base/limits.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kv.base.errors import InvalidArgument, TooLarge
from kv.base.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from kv.base.timestamps import MAX

HEAD: Final = 5  # fields of a request before its arguments
PREFIX_BYTES: Final = 4
STORAGE_KEY_BYTES_MAX: Final = PREFIX_BYTES + KEY_BYTES_MAX
Keys = Sequence[bytes]
NO_KEYS: Final[Keys] = ()


def too_large(what: str, limit: int, actual: int) -> TooLarge:
    return TooLarge(
        f"{what}: {actual}, at most {limit}; nothing was done. Send less at once "
        "(docs/limits.md lists every limit)",
        details={"what": what, "limit": limit, "actual": actual},
    )


def check_bound(key: Any, more: int = 0) -> None:
    """Where a range begins or ends; `more`: "the next key" is one byte longer."""
    if type(key) is not bytes:
        raise InvalidArgument(f"a key must be bytes, got {type(key).__name__}")
    if len(key) > STORAGE_KEY_BYTES_MAX + more:
        raise too_large("key bytes", STORAGE_KEY_BYTES_MAX, len(key))


def check_key(key: Any) -> None:
    """A storage key: the four bytes of its table, then the user's."""
    if type(key) is bytes and PREFIX_BYTES <= len(key) <= STORAGE_KEY_BYTES_MAX:
        return  # nearly always
    check_bound(key)
    if len(key) < PREFIX_BYTES:
        raise InvalidArgument(
            f"a storage key begins with the {PREFIX_BYTES} bytes of its table's id, got {key!r}",
            details={"key": key},
        )


def check_value(value: Any) -> None:
    if type(value) is not bytes:
        raise InvalidArgument(f"a value must be bytes, got {type(value).__name__}")
    if len(value) > VALUE_BYTES_MAX:
        raise too_large("value bytes", VALUE_BYTES_MAX, len(value))


def check_int(value: Any, what: str, high: int, low: int = 0) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidArgument(f"{what} must be an integer from {low} to {high}, got {value!r:.40}")


def check_keys(keys: Any, keys_max: int) -> None:
    if type(keys) is not list:
        raise InvalidArgument(f"keys must be a list, got {type(keys).__name__}")
    if len(keys) > keys_max:
        raise too_large("keys", keys_max, len(keys))
    for key in keys:
        check_key(key)


def check_reader(read_ts: Any, ignore: Any) -> None:
    check_int(read_ts, "read_ts", MAX)
    if ignore is not None and (
        type(ignore) is not list or any(type(ts) is not int for ts in ignore)
    ):
        raise InvalidArgument("ignore must be nil or a list of transaction ids")

"""Requests that read: GET, MGET, SCAN, and what watchers ask for. See kv/partition/requests.py.

Only GET names a key for the read-ahead; the others read what they need themselves, at once.
"""

from __future__ import annotations

from typing import Any

from kv.base.errors import InvalidArgument
from kv.base.limits import (
    FEED_BYTES_MAX,
    FEED_ROWS_MAX,
    MULTI_KEYS_MAX,
    RANGE_PARTS_MAX,
    SCAN_ROWS_MAX,
    THROUGH_TXNS_MAX,
    WAIT_MS_MAX,
)
from kv.base.timestamps import MAX
from kv.feed.pairs import SEALED
from kv.partition.fields import (
    NO_KEYS,
    Keys,
    check_bound,
    check_int,
    check_key,
    check_keys,
    check_reader,
)


def get(r: list[Any]) -> Keys:
    check_key(r[5])
    check_reader(r[6], r[7])
    return (r[5],)


def mget(r: list[Any]) -> Keys:
    check_keys(r[5], MULTI_KEYS_MAX)
    check_reader(r[6], r[7])
    _check_flag(r, 8, "counted")
    return NO_KEYS  # the verb reads them itself, at once


def _check_flag(r: list[Any], at: int, name: str) -> None:
    if len(r) > at and type(r[at]) is not bool:
        raise InvalidArgument(f"{name} must be true or false, got {r[at]!r:.40}")


def _check_bounds(r: list[Any]) -> None:
    check_bound(r[5], 1)
    check_bound(r[6], 1)
    if r[6] and r[6] < r[5]:
        raise InvalidArgument(
            f"range from {r[5][:64]!r} to {r[6][:64]!r}: the end lies before the start"
        )


def scan_values(r: list[Any]) -> Keys:
    _check_scan(r)
    if len(r) > 11:
        through = r[11]
        if type(through) is not list or len(through) > THROUGH_TXNS_MAX:
            raise InvalidArgument(f"through is a list of at most {THROUGH_TXNS_MAX} pairs")
        for pair in through:
            if type(pair) is not list or len(pair) != 2:
                raise InvalidArgument(f"through: a transaction and its version, got {pair!r:.60}")
            check_int(pair[0], "through: transaction", MAX, 1)
            check_int(pair[1], "through: version", MAX, pair[0])
    _check_flag(r, 12, "counted")
    return NO_KEYS


def scan_sealed(r: list[Any]) -> Keys:
    _check_scan(r)
    if r[9]:
        raise InvalidArgument("SCAN_SEALED goes forward only: reverse must be false")
    if not r[7]:
        raise InvalidArgument("SCAN_SEALED reads at a timestamp: read_ts must not be 0")
    return NO_KEYS


def _check_scan(r: list[Any]) -> None:
    _check_bounds(r)
    check_int(r[8], "limit", SCAN_ROWS_MAX, 1)
    if type(r[9]) is not bool:
        raise InvalidArgument(f"reverse must be true or false, got {r[9]!r:.40}")
    check_reader(r[7], r[10])


def scan(r: list[Any]) -> Keys:
    _check_scan(r)
    _check_flag(r, 11, "expiries")
    _check_flag(r, 12, "counted")
    return NO_KEYS


def changes(r: list[Any]) -> Keys:
    if type(r[10]) is not bool:
        raise InvalidArgument(f"closed must be true or false, got {r[10]!r:.40}")
    return _versions(r, "read_ts")


def pairs(r: list[Any]) -> Keys:
    check_int(r[10], "form", SEALED)
    return _versions(r, "upto")


def _versions(r: list[Any], high: str) -> Keys:
    _check_bounds(r)
    check_int(r[7], high, MAX, 1)
    check_int(r[8], "limit", FEED_ROWS_MAX, 1)
    check_int(r[9], "above", MAX)
    check_int(r[11], "bytes_max", FEED_BYTES_MAX, 1)
    if r[12] is not None and type(r[12]) is not bytes:
        raise InvalidArgument(f"cursor must be bytes or nil, got {type(r[12]).__name__}")
    return NO_KEYS


def parts(r: list[Any]) -> Keys:
    _check_bounds(r)
    check_int(r[7], "parts", RANGE_PARTS_MAX, 1)
    return NO_KEYS


def await_changes(r: list[Any]) -> Keys:
    _check_bounds(r)
    check_int(r[7], "mark", MAX)
    check_int(r[8], "wait_ms", WAIT_MS_MAX)
    return NO_KEYS

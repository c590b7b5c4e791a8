"""Requests about a transaction that has written: its status record and its intents. See
kv/partition/requests.py.

The verbs are kv.mvcc's (commit, rollback, check, heartbeat, settle, resolve, finish, recover).
"""

from __future__ import annotations

from typing import Any

from kv.base.errors import InvalidArgument
from kv.base.limits import ENDS_KEYS_MAX, ENDS_MAX, MULTI_KEYS_MAX, PARALLEL_KEYS_MAX
from kv.base.options import check_options
from kv.base.timestamps import MAX
from kv.partition.fields import NO_KEYS, Keys, check_int, check_key, check_keys, too_large


def anchored(r: list[Any]) -> Keys:
    check_key(r[5])
    check_int(r[6], "start_ts", MAX, 1)
    return NO_KEYS


def commit(r: list[Any]) -> Keys:
    check_int(r[7], "commit_ts", MAX, 1)
    check_options("options", r[8] if len(r) > 8 else None)
    return anchored(r)


def check(r: list[Any]) -> Keys:
    check_int(r[7], "push_above", MAX - 1)
    check_int(r[8], "ttl_ms", 1 << 32)
    return anchored(r)


def resolve(r: list[Any]) -> Keys:
    check_int(r[5], "start_ts", MAX, 1)
    check_int(r[6], "commit_ts", MAX)
    check_keys(r[7], MULTI_KEYS_MAX)
    if len(set(r[7])) != len(r[7]):
        raise InvalidArgument("resolve: a key occurs twice")
    keys: list[bytes] = r[7]
    return keys


def finish(r: list[Any]) -> Keys:
    ends = r[5]
    if type(ends) is not list or not ends:
        raise InvalidArgument("ends must be a list with at least one transaction")
    if len(ends) > ENDS_MAX:
        raise too_large("transactions", ENDS_MAX, len(ends))
    needed: list[bytes] = []
    for row in ends:
        if type(row) is not list or len(row) != 4 or type(row[3]) is not list or not row[3]:
            raise InvalidArgument("each end is [start_ts, anchor, commit_ts, keys], with keys")
        start_ts, anchor, commit_ts, keys = row
        check_int(start_ts, "start_ts", MAX, 1)
        check_int(commit_ts, "commit_ts", MAX, start_ts + 1)
        for key in keys:
            check_key(key)
        if len(set(keys)) != len(keys):
            raise InvalidArgument("finish: a key occurs twice in a transaction")
        needed += keys
        if anchor is not None and anchor != keys[0]:
            check_key(anchor)
            needed.append(anchor)
    if len(needed) > ENDS_KEYS_MAX:
        raise too_large("keys", ENDS_KEYS_MAX, len(needed))
    if len({row[0] for row in ends}) != len(ends):
        raise InvalidArgument("finish: a transaction occurs twice")
    return needed


def rollback(r: list[Any]) -> Keys:
    check_options("options", r[7] if len(r) > 7 else None)
    return anchored(r)


def settle(r: list[Any]) -> Keys:
    check_int(r[7], "commit_ts", MAX)
    return anchored(r)


def recover(r: list[Any]) -> Keys:
    check_int(r[5], "start_ts", MAX, 1)
    check_key(r[6])
    check_keys(r[7], PARALLEL_KEYS_MAX)
    if not r[7] or type(r[8]) is not bool:
        raise InvalidArgument("recover needs keys, and whether to fence: true or false")
    return NO_KEYS  # only intents are looked at

"""The first look at a drain's requests: late, misplaced or malformed ones are answered before
anything is read or written (C15).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError
from kv.base.internal_errors import Faults
from kv.base.limits import MiB
from kv.base.methods import GET, PREWRITE, PUT, RANGES, READS, WRITE
from kv.base.wire_row import WireRow
from kv.partition.answers import moved, too_late
from kv.partition.ports import Connection
from kv.partition.request_writes import outer_reads
from kv.partition.requests import check_request, first_and_last, plain, weight

READ_AHEAD_BYTES: Final = 16 * MiB
_KEYS_AT_ONCE: Final = 64  # any of their records may be the largest
_HOT: Final = frozenset({GET, PUT})
_READING: Final = frozenset({WRITE, PREWRITE})  # they may say what a transaction read

Item = tuple[Connection, WireRow]
Refuse = Callable[[Item, KvorumError], None]


def admit(
    descriptor: PartitionDescriptor,
    batch: list[Item],
    now_s: float,
    refuse: Refuse,
    faults: Faults,
) -> tuple[list[Item], list[Item], list[bytes]]:
    """(reads, writes, keys whose records they will look at), each in the order of arrival."""
    reads: list[Item] = []
    writes: list[Item] = []
    keys: list[bytes] = []
    epoch, start, end = descriptor.epoch, descriptor.start, descriptor.end
    for item in batch:
        r = item[1]
        try:
            if r[2] <= now_s:
                raise too_late(now_s - r[2])
            if r[4] != epoch:
                raise moved(descriptor, r[4])
            method = r[1]
            if method in _HOT:
                if not plain(r):
                    check_request(r)
                key = r[5]
                if not (start <= key and (not end or key < end)):
                    raise moved(descriptor, r[4])
                keys.append(key)
            elif type(method) is int:
                needed = check_request(r)
                check_range(descriptor, r, needed)
                keys += needed
        except KvorumError as error:
            refuse(item, error)
            continue
        except Exception as error:  # noqa: BLE001 - the boundary: a request that breaks its check
            refuse(item, faults.answer(error, f"the check of method {r[1]!r:.40}"))
            continue
        (reads if method in READS else writes).append(item)
    return reads, writes, keys


def read_ahead(
    multi_cur: Callable[[list[bytes]], Sequence[bytes | None]], keys: list[bytes]
) -> dict[bytes, bytes | None]:
    """The records of the first of these keys (sorted and unique), as many as READ_AHEAD_BYTES
    allow, give or take _KEYS_AT_ONCE. What cannot be read ends it: whoever wants that key finds out
    by itself.
    """
    found: dict[bytes, bytes | None] = {}
    size = 0
    for at in range(0, len(keys), _KEYS_AT_ONCE):
        part = keys[at : at + _KEYS_AT_ONCE]
        try:
            records = multi_cur(part)
        except KvorumError:
            break
        found.update(zip(part, records, strict=True))
        size += sum(len(record) for record in records if record is not None)
        if size >= READ_AHEAD_BYTES:
            break
    return found


def in_time(batch: list[Item], now_s: float, refuse: Refuse) -> list[Item]:
    """Those of an admitted batch, which waited since, whose time is not over."""
    kept = []
    for item in batch:
        deadline_s = item[1][2]
        if deadline_s <= now_s:
            refuse(item, too_late(now_s - deadline_s))
        else:
            kept.append(item)
    return kept


def by_turns(items: list[Item]) -> list[Item]:
    """What waits for room in an entry, user by user in turns of as many bytes, each user's in their
    order: who sends little does not stand behind all that another one has sent.
    """
    users = [conn.author.user for conn, _ in items]
    if len(set(users)) < 2:
        return items
    sent = dict.fromkeys(users, 0)
    before = []
    for user, (_, r) in zip(users, items, strict=True):
        before.append(sent[user])
        sent[user] += weight(r)
    return [items[n] for n in sorted(range(len(items)), key=before.__getitem__)]


def check_range(d: PartitionDescriptor, r: WireRow, keys: Any) -> None:
    """Raises Moved unless every key of the request lies in the range."""
    if r[1] in RANGES:
        inside = r[5] >= d.start and (not d.end or (r[6] != b"" and r[6] <= d.end))
    else:
        outer = first_and_last(r, keys)
        inside = outer is None
        if outer is not None:
            low, high = outer
            inside = d.covers(low) and (low is high or d.covers(high))
        if r[1] in _READING and len(r) > 8 and (read := outer_reads(r)) is not None:
            first, last, is_end = read
            ends = not d.end or (last != b"" and last <= d.end) if is_end else d.covers(last)
            inside = inside and first >= d.start and ends
    if not inside:
        raise moved(d, r[4])

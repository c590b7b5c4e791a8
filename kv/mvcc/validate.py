"""Serializable transactions: what was read at start_ts must still be so at commit_ts.

A transaction reads its snapshot; at its commit every partition in which it read checks that no key
and no range that was read has a version above start_ts, and none of another transaction's intents,
which may become one. `validate` alone is for a transaction of one entry: nothing can come between
the check and its versions. Otherwise `look` checks, and `guard` leaves guards (kv.mvcc.guards),
which keep the answer true until the outcome is known.

Why commit timestamps are then a serial order. Let T commit at c. No version of what T read has a
timestamp in (start_ts, c]:
  * one that was evaluated before T's check is seen by it, as a version or as an intent;
  * one that is evaluated later is refused while the guard stands. The guard goes only when T's
    record is final, so after c was taken; and a partition evaluates nothing that writes versions
    between asking for a timestamp and using it, RESOLVE included (kv.partition.timestamps), so
    whatever is evaluated after the guard's end got a timestamp that was asked for after c. An
    intent's commit timestamp is younger than its prewrite, too;
  * a record that expires is a version of its own at that moment: `before_ts`.
So T reads as if it had done everything at c. Timestamps are unique, and a transaction that only
reads does everything at its start_ts: it needs no check, waits for nobody and never fails here.

Among snapshot-isolated transactions: they meet guards like everybody, so the above holds whatever
they do; but their own reads are of their start_ts and their writes of their commit_ts, so an
invariant is safe only if every transaction that writes what it speaks of is serializable.

Source: commit-time validation of reads after Kung and Robinson (1981), with read locks during the
two phases as in Spanner (2012, section 4.2.1). Deliberately missing: avoiding needless restarts by
counting dangerous pairs (SSI, Cahill 2008): it needs the reads of finished transactions, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from zlib import crc32

from kv.base.checksum import CRC_OK
from kv.base.errors import Busy, TooLarge
from kv.base.keys import from_u64
from kv.base.limits import GUARD_BYTES, GUARD_ROWS, GUARDS_HELD_MAX, TXN_LIFETIME_MS_MAX
from kv.base.methods import OP_CHECK
from kv.base.timestamps import MAX, compose, physical_ms
from kv.mvcc.guards import At, Guard
from kv.mvcc.prewrite import Prewritten, check_fence, lived_ms
from kv.mvcc.records import GOING, HAS_TTL, Lock, corrupt, expiry_of
from kv.mvcc.refusals import in_the_way, read_conflict, read_expired, taken
from kv.mvcc.view import Mutations, View

Range = tuple[bytes, bytes]
_NOTHING: Final[Mapping[At, Guard]] = {}
_MANY: Final = 32  # keys from which one sorted read beats single ones


class Reads(NamedTuple):
    """What a transaction read in a partition. Keys rise; ranges [start, end) (end b"" = no bound)
    rise and do not overlap.
    """

    keys: Sequence[bytes]
    ranges: Sequence[Range]


@dataclass(slots=True)
class Checked:
    """`before_ts`: the reads hold below it, MAX = for ever. `reached`: how far each range was
    looked at.
    """

    before_ts: int
    reached: list[bytes]

    def left(self, reads: Reads) -> int:
        """How many ranges were not looked through to their end."""
        return sum(r != end for (_, end), r in zip(reads.ranges, self.reached, strict=True))


def validate(
    view: View,
    reads: Reads,
    *,
    start_ts: int,
    commit_ts: int,
    now_ms: int,
    user: str = "",
    since: int = 0,
) -> None:
    """Check that `reads` hold from start_ts to commit_ts, ranges from `since`, if they were read
    then; hold nothing. Raises WriteConflict, KeyLocked, TxnAborted, Corruption; TooLarge if one
    step is not enough for it: then use `guard`.
    """
    begin = [start for start, _ in reads.ranges]
    checked = _check(view, reads, begin, start_ts, user, now_ms, since)
    if checked.left(reads):
        raise TooLarge(
            f"the ranges that transaction {start_ts} read have more than {GUARD_ROWS} rows or "
            f"{GUARD_BYTES} bytes here, the limit of a commit in one entry; nothing was written. "
            "Commit it in two phases, or read less in one transaction",
            details={"what": "rows read", "limit": GUARD_ROWS, "start_ts": start_ts},
        )
    if commit_ts >= checked.before_ts:
        raise read_expired(start_ts, checked.before_ts)


def look(
    view: View,
    reads: Reads,
    *,
    start_ts: int,
    now_ms: int,
    user: str = "",
    shared: bool = False,
    since: int = 0,
) -> Checked:
    """Check what can be checked at once; a range goes on where the transaction's guard ends.
    `user`: whose it is. `shared`: what it has locked holds, whenever it was written. `since`: as
    that of `validate`. Raises WriteConflict, KeyLocked, TxnAborted, Corruption.
    """
    held = view.guards.by_at if view.guards else _NOTHING
    if shared:
        keys = [key for key in reads.keys if not _locks(held.get((key, start_ts)), user)]
        reads = reads._replace(keys=keys)
    mine = [held.get((start, start_ts)) for start, _ in reads.ranges]
    begin = [_from(r, old) for r, old in zip(reads.ranges, mine, strict=True)]
    checked = _check(view, reads, begin, start_ts, user, now_ms, since)
    before = (old.before_ts or MAX for old in mine if old is not None)
    checked.before_ts = min(checked.before_ts, *before, MAX)
    return checked


def guard(
    view: View,
    reads: Reads,
    checked: Checked,
    *,
    start_ts: int,
    anchor: bytes,
    ttl_ms: int,
    bound_ts: int,
    now_ms: int,
    m: Mutations,
    shared: bool = False,
) -> Prewritten:
    """Guard what `look` has checked in this step. As `prewrite`, the highest bound of these guards
    as they are, which is exact if all have one. `bound_ts`: that of new guards of a parallel
    commit; 0 = none.

    A row lock stays one, with a bound, if it is to be no more (`shared`).
    What the transaction writes, perhaps in `m`, needs no guard, unless it must commit in time: that
    is remembered nowhere else. Guards that are there stay. Raises TxnAborted, Busy.
    """
    held = view.guards.by_at if view.guards else _NOTHING
    before_ts = 0 if checked.before_ts == MAX else checked.before_ts
    ttl_ms += lived_ms(start_ts, now_ms)
    ends: list[tuple[bytes, bytes | None]] = [
        (key, None) for key in reads.keys if before_ts or not _written(view, key, start_ts, m)
    ]
    ends += [(start, r) for (start, _), r in zip(reads.ranges, checked.reached, strict=True)]
    bound, exact = 0, bound_ts > 0
    for start, end in ends:
        made = Guard(start, end, start_ts, anchor, ttl_ms, before_ts, bound_ts, m.user)
        old = held.get((start, start_ts))
        if old is not None and old.user != m.user:
            raise taken(start_ts)
        stays = old is not None and old.past >= made.past and not old.shared
        if shared and end is None and old is not None and old.shared:
            made = replace(made, shared=old.shared)
            stays = old.anchor == anchor and (old.min_commit_ts > 0 or not bound_ts)
        if old is not None and stays:
            bound, exact = max(bound, old.min_commit_ts), exact and old.min_commit_ts > 0
            continue
        if bound_ts:
            check_fence(view, start, start_ts)
        bound = max(bound, bound_ts)
        m.set_guard(made)
    check_room(len(held) + len(m.guards))
    return Prewritten(bound, exact)


def _locks(guard: Guard | None, user: str) -> bool:
    """Whether a guard of the transaction is a row lock."""
    return guard is not None and guard.shared > 0 and guard.user == user


def check_room(guards: int) -> None:
    """Whether a partition may have so many. Raises Busy."""
    if guards > GUARDS_HELD_MAX:
        raise _too_many(guards)


def _from(wanted: Range, old: Guard | None) -> bytes | None:
    """Where to go on with a range of which `old` is guarded; None: nowhere."""
    start, end = wanted
    if old is None or old.end is None:
        return start
    return None if not old.end or (end and old.end >= end) else old.end


def _written(view: View, key: bytes, start_ts: int, m: Mutations) -> bool:
    lock = m.locks.get(key) or view.lock(key)
    return (
        lock is not None
        and (lock.start_ts, lock.user) == (start_ts, m.user)
        and lock.kind != OP_CHECK
    )


def _too_many(actual: int) -> Busy:
    return Busy(
        f"{actual} keys and ranges of this partition would be guarded for serializable "
        f"transactions and shared locks, at most {GUARDS_HELD_MAX}; nothing was done. Try again, "
        "read or lock fewer keys, or read one range instead of many keys, in a transaction",
        details={"what": "guards of a partition", "limit": GUARDS_HELD_MAX, "actual": actual},
    )


def _check(
    view: View,
    reads: Reads,
    begin: Sequence[bytes | None],
    start_ts: int,
    user: str,
    now_ms: int,
    since: int,
) -> Checked:
    """Conflicts first, over everything: to wait for an intent would be in vain then."""
    checked = Checked(_keys_until(view, reads.keys, start_ts), [end for _, end in reads.ranges])
    looked: list[Range] = []
    if reads.ranges:
        looked = _look_through(view, reads.ranges, begin, max(start_ts, since), checked)
    _check_intents(view, reads.keys, looked, start_ts, user, now_ms)
    return checked


def _keys_until(view: View, keys: Sequence[bytes], start_ts: int) -> int:
    """How long what was read at `keys` holds. Raises WriteConflict."""
    view.look(len(keys))
    records: Iterable[bytes | None] = map(view.cur, keys)
    if len(keys) >= _MANY:
        records = view.many_cur(keys)
    until = MAX
    for key, record in zip(keys, records, strict=True):
        if record is not None:
            until = min(until, _valid_until(key, record, start_ts))
    return until


def _look_through(
    view: View,
    ranges: Sequence[Range],
    begin: Sequence[bytes | None],
    start_ts: int,
    checked: Checked,
) -> list[Range]:
    """Enter into `checked` how far the rows of the ranges were looked at, and how long they hold;
    what was looked at. Raises WriteConflict, Corruption.
    """
    looked: list[Range] = []
    rows, size, until = GUARD_ROWS, GUARD_BYTES, checked.before_ts
    fresh = view.records_in_flight(ranges[0][0], ranges[-1][1])
    for i, (_, end) in enumerate(ranges):
        at = begin[i]
        if at is None or (end and at >= end):
            continue
        if rows <= 0 or size <= 0:
            checked.reached[i] = at
            continue
        found = view.scan("cur", at, end, limit=rows, bytes_max=size)
        view.look(len(found))
        for key, record in found:
            size -= len(key) + len(record)
            if key in fresh:
                continue  # replaced in flight: that record decides, below
            if crc32(record, crc32(key)) != CRC_OK:
                raise corrupt("cur", key)
            until = min(until, _valid_until(key, record, start_ts))
        if len(found) >= rows or size <= 0:
            checked.reached[i] = found[-1][0] + b"\x00"
        rows -= len(found)
        looked.append((at, checked.reached[i]))
    for key in _inside(looked, fresh):
        if record := fresh[key]:
            until = min(until, _valid_until(key, record, start_ts))
    checked.before_ts = until
    return looked


def _valid_until(key: bytes, record: bytes, start_ts: int) -> int:
    """When a record that a snapshot at start_ts saw expires; MAX = not while the transaction can
    commit, or it was not seen. Raises WriteConflict if it is younger.
    """
    version = from_u64(record)
    if version > start_ts:
        raise read_conflict(key, version, start_ts)
    if not record[8] & HAS_TTL:
        return MAX
    left_ms = expiry_of(record) - physical_ms(start_ts)
    return compose(expiry_of(record)) if 0 < left_ms <= 2 * TXN_LIFETIME_MS_MAX else MAX


def _check_intents(
    view: View,
    keys: Sequence[bytes],
    looked: Sequence[Range],
    start_ts: int,
    user: str,
    now_ms: int,
) -> None:
    """Raises KeyLocked for the first intent of another transaction that may become a version, or
    locks what is about to go.
    """
    for key in view.locked(keys):
        _refuse(view.lock(key), key, start_ts, user, now_ms)
    for start, end in looked:
        for key in view.locked_keys(start, end):
            _refuse(view.lock(key), key, start_ts, user, now_ms)
    if looked:
        for key in _inside(looked, view.locks_in_flight(looked[0][0], looked[-1][1])):
            _refuse(view.lock(key), key, start_ts, user, now_ms)


def _refuse(lock: Lock | None, key: bytes, start_ts: int, user: str, now_ms: int) -> None:
    if lock is None or (lock.kind == OP_CHECK and lock.payload != GOING):
        return
    if lock.start_ts != start_ts or lock.user != user:
        raise in_the_way(key, lock, start_ts, now_ms)


def _inside(ranges: Sequence[Range], keys: Iterable[bytes]) -> Iterator[bytes]:
    """Those of `keys` that lie in one of the ranges, which rise."""
    starts = [start for start, _ in ranges]
    for key in keys:
        at = bisect_right(starts, key) - 1
        if at >= 0 and (not ranges[at][1] or key < ranges[at][1]):
            yield key

"""Reading a group back from the LogDB, and deciding what of it may be believed.

Rules (facts proved by the crash tests)
  * the LogDB loses a suffix of unsynced batches, so an unreadable *last* stretch of entries that
    the state machine has not applied was never acknowledged: it is cut, and counted;
  * an unreadable entry before a readable one, or one that was applied, is damage: refused with
    group and index;
  * a gap in the indexes is damage, also between the state machine and the log's first entry;
  * a log that ends before the applied index lost its tail although the state DB has it: the log
    restarts there.

Source: Raft section 7 for the base; the distinction of torn tail and damage follows TigerBeetle and
"Protocol-Aware Recovery for Consensus-Based Storage" (Alagappan and others, FAST 2018).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raft import records
from raft.api import LogDB
from raft.errors import LogCorrupt, LogHole, UnknownGroup
from raft.records import Base, Entry, HardState


@dataclass(frozen=True, slots=True)
class StoredLog:
    """What was found. `torn` entries after the last of `entries` are unreadable; their keys are
    still stored.
    """

    base: Base
    hard: HardState
    entries: list[Entry]
    torn: int

    @property
    def last_index(self) -> int:
        return self.base.index + len(self.entries)

    @property
    def last_term(self) -> int:
        return self.entries[-1][2] if self.entries else self.base.term

    def term_at(self, index: int) -> int | None:
        if index == self.base.index:
            return self.base.term
        at = index - self.base.index - 1
        return self.entries[at][2] if 0 <= at < len(self.entries) else None


def exists(db: LogDB, group_id: int) -> bool:
    """Is there a bootstrap record?"""
    return _get(db, records.base_key(group_id)) is not None


def stored_groups(db: LogDB) -> Iterator[int]:
    """Group ids in ascending order; one short scan per group, whatever the length of its log."""
    start, end = b"", b"\xff" * 17
    while (first := _first(db.scan(start, end))) is not None:
        group_id = records.group_of(first[0])
        if exists(db, group_id):
            yield group_id
        start = records.pack_u64(group_id + 1)


def read_log(db: LogDB, group_id: int) -> StoredLog:
    """Read and verify all of a group. Raises UnknownGroup, LogCorrupt, LogHole."""
    base_key, hard_key = records.base_key(group_id), records.hard_key(group_id)
    base_value, hard_value = _get(db, base_key), _get(db, hard_key)
    if base_value is None:
        raise UnknownGroup(group_id)
    if hard_value is None:
        raise LogCorrupt(group_id, None, "the hard state (term and vote) is missing")
    try:
        base, hard = (
            records.decode_base(base_key, base_value),
            records.decode_hard(hard_key, hard_value),
        )
    except records.BadRecord as error:
        raise LogCorrupt(group_id, None, str(error)) from error
    entries: list[Entry] = []
    torn = 0
    first, last = records.entry_key(group_id, 0), records.entry_key(group_id, records.INDEX_MAX)
    for key, value in db.scan(first, last):
        expected = base.index + len(entries) + torn + 1
        index = records.index_of(key)
        if index != expected:
            raise LogHole(
                group_id, expected, f"the next stored entry is {index}: entries are missing between"
            )
        try:
            entry = records.decode_entry(key, value)
        except records.BadRecord:
            torn += 1
            continue
        if torn:
            raise LogCorrupt(
                group_id,
                expected - torn,
                "unreadable, but a later entry is readable: not a torn tail",
            )
        if entry[2] < (entries[-1][2] if entries else base.term):
            raise LogCorrupt(
                group_id, index, f"term {entry[2]} is lower than that of the entry before"
            )
        entries.append(entry)
    return StoredLog(base, hard, entries, torn)


def needs_reset(log: StoredLog, group_id: int, me: int, applied: tuple[int, int]) -> bool:
    """Must the log restart at the state machine's (index, term)? Raises LogHole or LogCorrupt if
    neither can be used.
    """
    index, term = applied
    if index < log.base.index:
        raise LogHole(
            group_id,
            index + 1,
            f"the state machine stands at {index}, but the log starts after {log.base.index}",
        )
    if index > log.last_index:
        if log.torn:
            raise LogCorrupt(
                group_id,
                log.last_index + 1,
                f"unreadable, but the state machine applied up to {index}",
            )
        return True
    if log.term_at(index) == term:
        return False
    if log.base.config.voters == (me,):
        # Nobody else ever wrote this log, so no snapshot can explain the difference.
        raise LogCorrupt(
            group_id,
            index,
            f"has term {log.term_at(index)}, but the state machine applied term {term}",
        )
    return True  # crashed between installing a snapshot and restarting the log


def _get(db: LogDB, key: bytes) -> bytes | None:
    first = _first(db.scan(key, key + b"\x00"))
    return None if first is None else first[1]


def _first(pairs: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bytes] | None:
    return next(iter(pairs), None)

"""Reading a group back from the LogDB, and deciding what of it may be believed.

Rules
  * the LogDB loses a suffix of whole unsynced batches and nothing else, so what it gives back is
    either what was written or damage: an unreadable entry is refused with group and index, wherever
    it is. Not even the last one may be cut: it may be acknowledged, and the state machine, whose
    disk is synced later, may not have it yet;
  * a gap in the indexes is damage, also between the state machine and the log's first entry;
  * an entry is applied only when it is durable here, so a log that ends before the applied index,
    or contradicts it, lost what was durable, and perhaps more than the state machine has: refused,
    also if there are other voters, to whom it may have acknowledged it. Only the snapshot that was
    announced before it was installed explains such a state: the log restarts there now, with the
    configuration of that snapshot;
  * a log may be larger than the memory: it is read one entry at a time, and what is kept of it is
    the journal's to decide.

Source: Raft section 7 for the base; the distinction of torn tail and damage follows TigerBeetle and
"Protocol-Aware Recovery for Consensus-Based Storage" (Alagappan and others, FAST 2018).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raft import records
from raft.api import LogDB
from raft.errors import LogCorrupt, LogHole, UnknownGroup
from raft.journal import Journal
from raft.records import Base, Entry, HardState


@dataclass(frozen=True, slots=True)
class StoredLog:
    """What was found. The entries are read, and verified, by whoever goes through them."""

    base: Base
    hard: HardState
    announced: Base | None
    """The snapshot that was about to be installed last; perhaps it was, perhaps not."""
    entries: StoredEntries


class StoredEntries:
    """The readable entries after `base`, from the LogDB, one at a time; to be gone through once.
    Afterwards `bytes` is what their commands have.
    """

    def __init__(self, db: LogDB, group_id: int, base: Base) -> None:
        self.bytes = 0
        self._db, self._group_id, self._base = db, group_id, base

    def __iter__(self) -> Iterator[Entry]:
        """Raises LogCorrupt, LogHole."""
        group_id, self.bytes = self._group_id, 0
        last_index, last_term = self._base.index, self._base.term
        first, end = records.entry_key(group_id, 0), records.entry_key(group_id, records.INDEX_MAX)
        for key, value in self._db.scan(first, end):
            expected = last_index + 1
            index = records.index_of(key)
            if index != expected:
                why = f"the next stored entry is {index}: entries are missing between"
                raise LogHole(group_id, expected, why)
            try:
                entry = records.decode_entry(key, value)
            except records.BadRecord as error:
                raise LogCorrupt(group_id, index, str(error)) from error
            if entry[2] < last_term:
                why = f"term {entry[2]} is lower than that of the entry before"
                raise LogCorrupt(group_id, index, why)
            last_index, last_term = index, entry[2]
            self.bytes += len(entry[0])
            yield entry


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
    """Read and verify the records of a group, and make its entries ready to be read. Raises
    UnknownGroup, LogCorrupt.
    """
    base_key, hard_key = records.base_key(group_id), records.hard_key(group_id)
    announced_key = records.announced_key(group_id)
    base_value, hard_value = _get(db, base_key), _get(db, hard_key)
    announced_value = _get(db, announced_key)
    if base_value is None:
        raise UnknownGroup(group_id)
    if hard_value is None:
        raise LogCorrupt(group_id, None, "the hard state (term and vote) is missing")
    try:
        base, hard = (
            records.decode_base(base_key, base_value),
            records.decode_hard(hard_key, hard_value),
        )
        announced = (
            None if announced_value is None else records.decode_base(announced_key, announced_value)
        )
    except records.BadRecord as error:
        raise LogCorrupt(group_id, None, str(error)) from error
    return StoredLog(base, hard, announced, StoredEntries(db, group_id, base))


def needs_restart(journal: Journal, announced: Base | None, applied: tuple[int, int]) -> bool:
    """Must the log restart at the announced snapshot, where the state machine stands? Raises
    LogHole or LogCorrupt if the log fits neither that nor the state machine.
    """
    group_id, (index, term) = journal.group_id, applied
    installed = announced is not None and (announced.index, announced.term) == applied
    if index < journal.base_index:
        why = f"the state machine stands at {index}, but the log starts after {journal.base_index}"
        raise LogHole(group_id, index + 1, why)
    stored_term = journal.term_at(index)
    if stored_term == term:
        return False
    if installed:
        return True  # crashed between installing it and restarting the log
    if index > journal.last_index:
        why = f"the log ends before it, but the state machine applied up to {index}"
        raise LogHole(group_id, journal.last_index + 1, why)
    why = f"has term {stored_term}, but the state machine applied term {term}"
    raise LogCorrupt(group_id, index, why)


def _get(db: LogDB, key: bytes) -> bytes | None:
    first = _first(db.scan(key, key + b"\x00"))
    return None if first is None else first[1]


def _first(pairs: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bytes] | None:
    return next(iter(pairs), None)

"""The log and the hard state of one group: written through the host's open batch, recent entries
kept in memory.

Invariants
  * indexes are contiguous from `base_index + 1` to `last_index`; the base is committed and applied
    everywhere it matters;
  * `synced` is the last index known durable. A truncation lowers `_inflight` too: a sync that began
    before it must not, when it ends, vouch for entries that were written at the same indexes after
    it began;
  * every entry that is not yet applied is in memory (so applying reads no disk), except during
    recovery, which keeps no more than the bounds of the configuration;
  * the term of any index and the configuration at any index are known without reading the disk.

Sources: Raft section 5.3 (log), 7 (compaction); etcd's `raftLog` for the split into stable and
unstable parts. Left out: prefetching for far-behind followers (who are read for in bounded
pieces, or get a snapshot), compression.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

from raft import records
from raft.api import LogBatch, LogDB, RaftConfig, RaftCounters
from raft.errors import InvariantBroken, LogCorrupt, SyncFailed
from raft.records import CONFIG_KIND, NOOP, Base, Entry, HardState
from raft.rules import membership
from raft.rules.membership import Membership, MembershipHistory
from raft.rules.sizes import LogSizes


class _Nowhere:
    """The batch of a node that has stopped."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete_range(self, start: bytes, end: bytes) -> None: ...


class LogBuffer:
    """The open batch of a node, shared by all its groups: one write and sync for all of them."""

    def __init__(self, db: LogDB, on_failed: Callable[[BaseException], None]) -> None:
        """`on_failed` is called when the LogDB refuses a batch: its entries are lost."""
        self._db, self._on_failed = db, on_failed
        self._batch: LogBatch = db.batch()
        self._filled = False
        self.unsynced = False
        """Something was written to the LogDB after the last sync began."""

    def put(self, key: bytes, value: bytes) -> None:
        self._batch.put(key, value)
        self._filled = True

    def delete_range(self, start: bytes, end: bytes) -> None:
        self._batch.delete_range(start, end)
        self._filled = True

    def close(self) -> None:
        """Let the open batch go, which would keep its database open; what comes later is lost, as
        what was not written is.
        """
        self._batch = _Nowhere()

    def write(self) -> None:
        """Hand the open batch to the LogDB (visible to scans, not durable) and open another.

        Raises SyncFailed.
        """
        if self._filled and not isinstance(self._batch, _Nowhere):
            batch, self._batch, self._filled = self._batch, self._db.batch(), False
            self.unsynced = True
            try:
                self._db.write(batch)
            except Exception as error:
                self._on_failed(error)
                raise SyncFailed from error


class Journal:
    """See the module. `on_dirty` is called when the journal has something to sync that no begun
    sync covers.
    """

    def __init__(
        self,
        group_id: int,
        base: Base,
        hard: HardState,
        entries: Iterable[Entry],
        *,
        db: LogDB,
        buffer: LogBuffer,
        config: RaftConfig,
        counters: RaftCounters,
        on_dirty: Callable[[], None],
    ) -> None:
        """`entries` are all stored ones, read but not known durable: nothing counts before a first
        sync. Only the newest stay in memory, the others can be read again.
        """
        self.group_id = group_id
        self._prefix = records.prefix(group_id)
        self._db, self._buffer, self._config, self._counters = db, buffer, config, counters
        self._on_dirty = on_dirty
        self.dirty = False
        self.term, self.vote = hard.term, hard.vote
        self._hard_version = self._hard_inflight = self._hard_synced = 0
        self._start_at(base)
        for entry in entries:
            self._remember(entry)
            self.trim_memory(self.last_index)
        self.synced = self._inflight = base.index
        self._hard_version = 1  # read back, but not known durable either

    def _start_at(self, base: Base) -> None:
        self.base_index, self.base_term = base.index, base.term
        self.last_index, self.last_term = base.index, base.term
        self.memberships = MembershipHistory(base.config)
        self._recent: list[Entry] = []
        self._recent_bytes = 0
        # Runs of equal terms: run i covers indexes from _run_starts[i] on. Few, since a run is a
        # leadership.
        self._run_starts, self._run_terms = [base.index], [base.term]
        self._sizes = LogSizes(base.index)

    # ------------------------------------------------------------------ reading

    @property
    def base_entry(self) -> Entry:
        """Stands for everything before the first entry; its command is never used."""
        return NOOP, self.base_index, self.base_term

    def term_at(self, index: int) -> int | None:
        """None outside of base..last."""
        if index == self.last_index:
            return self.last_term
        if not self.base_index <= index < self.last_index:
            return None
        return self._run_terms[bisect_right(self._run_starts, index) - 1]

    def run_start(self, index: int) -> int:
        """The first index of the run of equal terms that `index`, inside the log, belongs to."""
        return self._run_starts[bisect_right(self._run_starts, index) - 1]

    @property
    def log_bytes(self) -> int:
        """Of the commands in the log; like the next two to within `LogSizes.PIECE`."""
        return self._sizes.after(self.base_index)

    def bytes_after(self, index: int) -> int:
        """Of the commands after `index`."""
        return self._sizes.after(index)

    def index_before_end(self, size: int) -> int:
        """The last index that at least `size` bytes of commands follow; the base if there are not
        so many.
        """
        return max(self.base_index, self._sizes.before_end(size)) if size > 0 else self.last_index

    def entries(self, first: int, last: int, bytes_max: int | None = None) -> list[Entry]:
        """Entries first..last (inclusive, both inside the log), at least one, cut after `bytes_max`
        command bytes; those that are read from disk are cut after a bounded piece, too.

        Raises LogCorrupt if they must be read from disk and are damaged.
        """
        start = first - self._recent_first
        if start >= 0:
            found = self._recent[start : last + 1 - self._recent_first]
        else:
            found = self._read(
                first,
                min(last, self._recent_first - 1, first + self._config.replay_entries_max - 1),
            )
        if bytes_max is None:
            return found
        total = 0
        for count, entry in enumerate(found, 1):
            total += len(entry[0])
            if total >= bytes_max:
                return found[:count]
        return found

    @property
    def _recent_first(self) -> int:
        return self.last_index + 1 - len(self._recent)

    def _read(self, first: int, last: int) -> list[Entry]:
        self._counters.disk_reads += 1
        self._buffer.write()
        start, end = (
            records.entry_key(self.group_id, first),
            records.entry_key(self.group_id, last + 1),
        )
        found: list[Entry] = []
        room = self._config.memory_bytes_max
        for key, value in self._db.scan(start, end):
            try:
                entry = records.decode_entry(key, value)
            except records.BadRecord as error:
                raise LogCorrupt(self.group_id, first + len(found), str(error)) from error
            if entry[1] != first + len(found):
                break
            found.append(entry)
            room -= len(entry[0])
            if room <= 0:
                return found
        if len(found) != last + 1 - first:
            raise LogCorrupt(self.group_id, first + len(found), "an entry that was stored is gone")
        return found

    # ------------------------------------------------------------------ appending and truncating

    def append(self, command: bytes, term: int) -> int:
        """Write an entry (`command` includes its kind byte) after the last one; its index. Hot
        path.
        """
        index = self.last_index + 1
        key = self._prefix + records.pack_u64(index)
        self._buffer.put(key, records.encode_entry(key, command, term))
        self._remember((command, index, term))
        counters = self._counters
        counters.entries_appended += 1
        counters.bytes_appended += len(command)
        if not self.dirty:
            self._mark_dirty()
        return index

    def _remember(self, entry: Entry) -> None:
        command, index, term = entry
        self._recent.append(entry)
        self._recent_bytes += len(command)
        self._sizes.appended(index, len(command))
        self.last_index = index
        if term != self.last_term:
            self.last_term = term
            self._run_starts.append(index)
            self._run_terms.append(term)
        if command[0] == CONFIG_KIND:
            self.memberships.append(self._decode_membership(index, command))

    def _decode_membership(self, index: int, command: bytes) -> Membership:
        try:
            return membership.decode(index, memoryview(command)[1:])
        except ValueError as error:
            raise LogCorrupt(self.group_id, index, str(error)) from error

    def truncate(self, index: int) -> None:
        """Remove the entries from `index` on: they conflict with a leader's. They must not be
        committed.
        """
        if index > self.last_index:
            return
        if index <= self.base_index:
            raise InvariantBroken(
                f"group {self.group_id}: truncation at {index} below the base {self.base_index}"
            )
        term_before = self.term_at(index - 1)
        assert term_before is not None
        gone: int | None = None
        if index < self._recent_first:
            self._recent, self._recent_bytes = [], 0
        else:
            keep = index - self._recent_first
            gone = sum(len(entry[0]) for entry in self._recent[keep:])
            self._recent_bytes -= gone
            del self._recent[keep:]
        while self._run_starts[-1] >= index:
            self._run_starts.pop()
            self._run_terms.pop()
        self.memberships.truncate(index)
        self._sizes.truncate(index, gone)
        self._buffer.delete_range(
            records.entry_key(self.group_id, index),
            records.entry_key(self.group_id, self.last_index + 1),
        )
        self.last_index, self.last_term = index - 1, term_before
        self.synced, self._inflight = min(self.synced, index - 1), min(self._inflight, index - 1)
        self._mark_dirty()

    def set_hard_state(self, term: int, vote: int | None) -> None:
        """Remember the term and the vote; durable with the next sync (`hard_state_synced`)."""
        self.term, self.vote = term, vote
        self._hard_version += 1
        key = records.hard_key(self.group_id)
        self._buffer.put(key, records.encode_hard(key, HardState(term, vote)))
        self._mark_dirty()

    # ------------------------------------------------------------------ forgetting

    def trim_memory(self, applied_index: int) -> None:
        """Drop the oldest applied entries beyond the bounds of the configuration. Cheap when there
        is nothing to do.

        A quarter of the bound goes at once, so that the cost per entry is constant.
        """
        config, recent = self._config, self._recent
        if (
            len(recent) <= config.memory_entries_max
            and self._recent_bytes <= config.memory_bytes_max
        ):
            return
        entries_kept, bytes_kept = (
            config.memory_entries_max * 3 // 4,
            config.memory_bytes_max * 3 // 4,
        )
        droppable = applied_index + 1 - self._recent_first
        count = 0
        while count < droppable and (
            len(recent) - count > entries_kept or self._recent_bytes > bytes_kept
        ):
            self._recent_bytes -= len(recent[count][0])
            count += 1
        del recent[:count]

    def compact(self, index: int) -> None:
        """Forget the entries up to `index`, which becomes the base. The caller knows that they are
        durable elsewhere.
        """
        if index <= self.base_index:
            return
        term = self.term_at(index)
        assert term is not None, f"compaction beyond the end: {index} > {self.last_index}"
        first_gone, self.base_index, self.base_term = self.base_index + 1, index, term
        drop = max(0, min(index + 1 - self._recent_first, len(self._recent)))
        self._recent_bytes -= sum(len(entry[0]) for entry in self._recent[:drop])
        del self._recent[:drop]
        run = bisect_right(self._run_starts, index) - 1
        self._run_starts, self._run_terms = self._run_starts[run:], self._run_terms[run:]
        self._sizes.compact(index)
        self._put_base(Base(index, term, self.memberships.compact(index)))
        self._buffer.delete_range(
            records.entry_key(self.group_id, first_gone),
            records.entry_key(self.group_id, index + 1),
        )
        self._mark_dirty()

    def reset(self, index: int, term: int, config: Membership) -> None:
        """Start again after (index, term), which the state machine holds durably."""
        first, last = (
            records.entry_key(self.group_id, 0),
            records.entry_key(self.group_id, records.INDEX_MAX),
        )
        self._buffer.delete_range(first, last)
        base = Base(index, term, config)
        self._start_at(base)
        self._put_base(base)
        self.synced = self._inflight = index
        self._mark_dirty()

    def announce(self, base: Base) -> None:
        """A snapshot is about to be installed: what the log restarts at if we crash after it."""
        key = records.announced_key(self.group_id)
        self._buffer.put(key, records.encode_base(key, base))

    def restart(self, base: Base) -> None:
        """The state machine holds the state at `base` durably. A log with that very entry keeps
        its tail, any other begins anew.
        """
        if self.term_at(base.index) == base.term:
            self.compact(base.index)
        else:
            self.reset(base.index, base.term, base.config)
        key = records.announced_key(self.group_id)
        self._buffer.delete_range(key, key + b"\x00")
        self._mark_dirty()

    def _put_base(self, base: Base) -> None:
        key = records.base_key(self.group_id)
        self._buffer.put(key, records.encode_base(key, base))

    # ------------------------------------------------------------------ syncing

    def _mark_dirty(self) -> None:
        if not self.dirty:
            self.dirty = True
            self._on_dirty()

    def touch(self) -> None:
        """Ask for a sync without writing: after a start, what was read is not yet known to be
        durable.
        """
        self._mark_dirty()

    def sync_begins(self) -> None:
        self.dirty = False
        self._inflight, self._hard_inflight = self.last_index, self._hard_version

    def sync_ended(self) -> None:
        if self._inflight > self.synced:
            self.synced = self._inflight
        self._hard_synced = self._hard_inflight

    @property
    def in_flight(self) -> bool:
        """The running sync carries entries of this group."""
        return self._inflight > self.synced

    @property
    def hard_state_synced(self) -> bool:
        return self._hard_synced == self._hard_version

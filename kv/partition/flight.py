"""The entries of one partition on their way: sealed, in the log, applied or lost.

At most one is uncommitted, the next one fills meanwhile; it is sealed when the first is applied.
Invariants
  * every command in an entry is answered once: when it is applied, or when it is certain that this
    node does not hear of it. What was proposed and got lost is UNKNOWN_OUTCOME; what was evaluated
    on top of it was never proposed, so it is refused as if it had not come;
  * the read point advances in the step in which the entry is applied.

Source: HBase's MultiVersionConcurrencyControl and group commit.
"""

from __future__ import annotations

from collections.abc import Callable

from kv.base.errors import KvorumError, TooLarge, to_wire
from kv.feed.recent import Recent
from kv.partition.answers import unknown_outcome
from kv.partition.counters import PartitionCounters
from kv.partition.entry import Entry
from kv.partition.evaluated_state import Evaluated
from kv.partition.ports import ReplicaPort
from kv.partition.read_point import ReadPoint
from kv.partition.reader import Reader
from kv.partition.replies import Replies
from kv.partition.shapes import Shape, encode
from kv.partition.statistics import Traffic


class Flight:
    """See the module."""

    def __init__(
        self,
        view: Evaluated,
        replica: ReplicaPort,
        replies: Replies,
        reader: Reader,
        *,
        counters: PartitionCounters,
        traffic: Traffic,
        recent: Recent,
        freed: Callable[[], None],
        shaped: Callable[[KvorumError], None],
    ) -> None:
        """`freed()`: an entry was lost, there is room again. `shaped(error)`: the change of what
        the partition is was lost.
        """
        self.view, self._replica, self._replies, self._reader = view, replica, replies, reader
        self._counters, self._traffic, self._recent = counters, traffic, recent
        self._freed, self._shaped = freed, shaped
        self.read_point = ReadPoint(replica.state.top_ts)

    def seal(self) -> None:
        """Propose the open entry, unless one is uncommitted: then more requests join it."""
        view = self.view
        if view.flying is not None or view.open.empty:
            return
        command = view.open.seal()
        self._traffic.write_bytes += len(command)
        entry = view.fly()
        self.read_point.begin(entry.number, entry.top_ts)
        try:
            self._replica.propose(command, entry)
        except KvorumError as error:
            self._lose(error)
            return
        except Exception:  # whether it is in the log is not known, and nobody will say
            self._lose(unknown_outcome(view.descriptor))
            entry.forget()
            raise
        self._counters.entries += 1
        self._replica.prepare(entry)

    def propose_shape(self, shape: Shape) -> None:
        """An entry of its own, while nothing is in flight."""
        entry = self.view.fly()
        entry.shape = shape
        self.read_point.begin(entry.number, 0)
        try:
            self._replica.propose(encode(shape), entry)
        except KvorumError as error:
            self._lose(error)
            return
        self._counters.entries += 1

    def applied(self, entry: Entry) -> None:
        """Our entry is part of the applied state: advance the read point, seal the next."""
        self.land(entry)
        for row in entry.prewrites:
            # Reads served while the intents were in flight ignored them, so the bound is settled
            # now.
            row[2] = max(row[2], self._reader.high + 1)
        if self._recent.active:
            self._recent.applied(entry)
        self.seal()

    def land(self, entry: Entry) -> None:
        """The entry is no more in flight."""
        self.view.land(entry)
        self.read_point.complete(entry.number)

    def dropped(self, entries: list[Entry], *, unknown: bool) -> None:
        """Proposed entries that get no `applied`: perhaps executed later, if `unknown`."""
        error: KvorumError = self._replies.not_leader()
        if unknown:
            error = unknown_outcome(self.view.descriptor)
        for entry in entries:
            if self.view.flying is entry:
                self._lose(error)
            else:
                self.fail(entry, error, self._replies.not_leader())

    def give_up(self) -> None:
        """We lead no more and do not hear what became of the entry in flight, perhaps for long:
        answer for it now. It is still ours, and gets its `applied` or `dropped` in the end.
        """
        entry = self.view.flying
        if entry is not None:
            self.fail(entry, unknown_outcome(self.view.descriptor), self._replies.not_leader())
            entry.forget()

    def _lose(self, error: KvorumError) -> None:
        """The entry in flight is lost, and with it the one that was evaluated on top of it."""
        retry = self._replies.not_leader()
        lost, on_top = self.view.lose(), self.view.reset()
        self.read_point.forget()
        if lost is not None:
            self.fail(lost, error, error if isinstance(error, TooLarge) else retry)
        self.fail(on_top, retry, retry)
        if self._replies.waits.by_key:
            self._replies.waits.wake_all()
        self._freed()

    def fail(self, entry: Entry, error: KvorumError, quiet: KvorumError) -> None:
        """`error` to commands with an effect in the entry, `quiet` to those without one and to
        waiting reads.
        """
        if entry.shape is not None:
            self._shaped(error)
        for conn, row in entry.replies:
            self._replies.answer(conn, [row[0], 1, *to_wire(error)])
        for conn, row in entry.quiet:
            self._replies.answer(conn, [row[0], 1, *to_wire(quiet)])
        self._replies.refuse_all(entry.parked, quiet)

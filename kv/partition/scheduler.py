"""One drain per pass of the event loop over all partitions that have requests.

`call_soon` runs after every socket of this pass was read, so requests batch by themselves; no task,
no future, no timer per request. Replies of applied entries go through `after_apply`: the host first
starts the next sync, then replies are written while the disk works.

What breaks in a pass ends there: a partition that breaks takes itself back to what is applied
(`Drained.broke`), a connection or a callback loses its own reply, and the pass goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Protocol

from kv.base.errors import KvorumError
from kv.base.intents import NOBODY
from kv.base.internal_errors import Faults
from kv.base.limits import DRAIN_REPLY_BYTES, DRAIN_ROWS_MAX
from kv.base.ports import Clock
from kv.partition.entry import Entry
from kv.partition.ports import Connection


class Drained(Protocol):
    def drain(self) -> None: ...

    def broke(self, error: KvorumError) -> None:
        """`drain` raised what nobody expected: forget what is not applied, and answer for it."""
        ...


class Scheduler:
    """Shared by all partitions of a node."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Clock,
        defer: Callable[[Callable[[], None]], object] | None = None,
        faults: Faults | None = None,
    ) -> None:
        """`defer` runs a callback after the next sync was started (raft.RaftHost.defer); without
        it, call_soon does.
        """
        self.clock = clock
        self.faults = Faults() if faults is None else faults
        self.dirty: dict[Connection, None] = {}  # connections with replies to flush
        self.reply_room = DRAIN_REPLY_BYTES  # what reads may still answer in this pass
        self._call_soon = call_soon
        self._defer = call_soon if defer is None else defer
        self._touched: list[Drained] = []
        self._scheduled = self._running = False
        self._applied: list[Entry] = []
        self.between: Callable[[], None] = _nothing
        """Called between slices of a pass: what cannot wait for its end. The node sets it."""
        self.rows: Callable[[], int] = _all_rows
        """How many rows reads may look at in a pass now, and a scan in a step. The node sets it."""

    def touch(self, machine: Drained) -> None:
        """The machine has requests. It calls this once per drain."""
        self._touched.append(machine)
        self._schedule()

    def wake(self) -> None:
        """There are replies to flush; nothing to do if that is about to happen anyway."""
        if not self._running:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self.run)

    def run(self) -> None:
        """Drain every touched partition, then flush every connection that got a reply."""
        self._scheduled = False
        self._running = True
        self.reply_room = DRAIN_REPLY_BYTES
        touched, self._touched = self._touched, []
        for machine in touched:
            try:
                machine.drain()
            except Exception as error:  # noqa: BLE001 - the boundary: the others have their pass
                self.break_off(machine, error)
            self.between()
        self._running = False
        self._flush()

    def break_off(self, machine: Drained, error: Exception) -> None:
        """A partition met what nobody expected outside of any one request."""
        answer = self.faults.answer(error, "a pass over a partition", unknown=True)
        try:
            machine.broke(answer)
        except Exception as worse:  # noqa: BLE001 - the boundary, as above
            self.faults.note(worse, "the recovery of a partition")

    def after_apply(self, entry: Entry) -> None:
        """Send the replies of an applied entry once the next sync was started."""
        if not self._applied:
            self._defer(self._reply)
        self._applied.append(entry)

    def _reply(self) -> None:
        applied, self._applied = self._applied, []
        dirty = self.dirty
        for entry in applied:
            for conn, row in chain(entry.replies, entry.quiet):
                try:
                    conn.reply(row)
                except Exception as error:  # noqa: BLE001 - the boundary: the others have their replies
                    self.faults.note(error, "a reply")
                    continue
                dirty[conn] = None
        self._flush()

    def _flush(self) -> None:
        dirty, self.dirty = self.dirty, {}
        between = self.between
        for conn in dirty:
            try:
                conn.flush()
            except Exception as error:  # noqa: BLE001 - the boundary, as above
                self.faults.note(error, "a reply")
            between()


def _nothing() -> None:
    return


def _all_rows() -> int:
    return DRAIN_ROWS_MAX


class Callback:
    """A connection that hands the outcome of an internal command to a function."""

    __slots__ = ("_done", "_faults")
    author = NOBODY

    def __init__(self, done: Callable[[list[object]], None], faults: Faults) -> None:
        self._done, self._faults = done, faults

    def stand_in(self, row: list[object]) -> None:
        raise AssertionError("a node ends whatever it wants to")

    def reply(self, row: list[object]) -> None:
        try:
            self._done(row)
        except Exception as error:  # noqa: BLE001 - the boundary: whoever answers is in the middle of a pass
            self._faults.note(error, "a callback")

    def flush(self) -> None:
        """Nothing is queued."""

    def ready(self, wake: Callable[[], None]) -> bool:
        return True

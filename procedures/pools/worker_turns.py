"""A worker's turns: the same decisions and commits as the master's, without its roster.

What the roster would hear (it moved, it waits, children, signals, pauses) is collected on a
`Desk` and reported. Two things differ from the master's own turns:

- somebody else's commit (`Fenced`) means that the procedure was taken away: the turn ends at once,
  and nothing else is done with it. The master goes on from the store;
- after an unknown outcome the stored record is compared with what was to be written: only if it is
  that very one the turn goes on.
"""

from __future__ import annotations

from kv.base.errors import Forbidden
from procedures.engine import core, records
from procedures.engine.core import Change, Flow, limit_ms
from procedures.engine.procedure import State
from procedures.engine.records import Failure, Record
from procedures.engine.roster import Live, Roster
from procedures.engine.store import NOT_HELD, Stored
from procedures.engine.turn import Turns
from procedures.pools.messages import Run, Turned


class Desk(Roster):
    """What one turn does instead of the roster. Only what Turns calls is here."""

    def __init__(self, live: Live, run: Run, alive: int, now_ms: int) -> None:
        # no Roster.__init__: nothing of it is used
        self._mine = live
        self._doom = run.doom if run.doomed else None
        self._alive = alive
        self._now_ms = now_ms
        self.signals = 0
        self.created: dict[int, Stored] = {}
        self.events: list[str] = []
        self.paused: tuple[Failure, int] | None = None
        self.moves = 0
        self.lost = False

    def __len__(self) -> int:
        return self._alive

    def get(self, id: int) -> Live | None:
        return self._mine if id == self._mine.id and not self.lost else None

    def doom(self, id: int) -> str | None:
        return self._doom if id == self._mine.parent else None

    def adopt(self, stored: Stored) -> Live:
        self.created[stored.record.id] = stored
        if stored.record.parent == self._mine.id:
            self._mine.bore(stored.record.id)
        return Live(stored)

    def moved(self, live: Live, record: Record, version: int) -> None:
        self.moves += 1
        live.record = record
        live.version = version
        live.wake = ""
        live.tries = 0
        live.retry_ms = 0
        live.deadline_ms = limit_ms(record)
        live.rolling = record.state is State.ROLLING_BACK
        live.granted = record.grant != 0

    def drop(self, live: Live) -> None:
        pass

    def place(self, live: Live, record: Record) -> None:
        pass

    def enqueue(self, live: Live, *, front: bool = False) -> None:
        pass

    def ripe(self, live: Live, record: Record) -> bool:
        now_ms = self._now_ms
        if record.trying is not None and not self.moves:  # the master's clock said so
            now_ms = max(now_ms, record.trying.due_ms)
        why = core.ripe(record, live.wake, now_ms)
        if why is not None:
            live.wake = why
        return why is not None

    def signal(self, event: str) -> None:
        self.events.append(event)

    def missed(self, live: Live, event: str, since: int) -> None:
        pass  # the master knows which signals came meanwhile

    def pause(self, live: Live, error: Failure, ms_max: int) -> None:
        self.paused = (error, ms_max)
        live.retry_ms = 1  # not to be placed

    def barred(self, live: Live) -> str:
        return ""  # the master gives nothing out without its locks

    def report(self, commits: int) -> Turned:
        """The turn is over."""
        live, record = self._mine, self._mine.record
        if self.lost:
            return Turned(live.id, live.version, b"", commits=commits, lost=True)
        moved = self.moves > 0 and record is not None
        retry, ms = self.paused or (None, 0)
        return Turned(
            live.id,
            live.version,
            records.encode(record) if moved and record is not None else b"",
            tuple((s.version, records.encode(s.record)) for s in self.created.values()),
            tuple(self.events),
            commits,
            retry,
            ms,
            live.parked,
            wake=live.wake if moved else "",
            lost=not moved and not self.paused and not live.parked,
        )


class HandTurns(Turns):
    """Turns of a worker; `desk` is its roster."""

    desk: Desk

    async def reload(self, live: Live, change: Change | None = None) -> Flow:
        if change is None:  # Fenced
            return self._lose()
        try:
            stored = await self._store.load(live.id)
        except Forbidden as error:
            if error.code == NOT_HELD:
                return self._lose()
            raise
        if stored is not None and stored.version == live.version:
            live.record = stored.record
            return Flow.MORE
        if stored is None or change.record.settled(stored.version) != stored.record:
            return self._lose()
        return await super().reload(live)

    def _lose(self) -> Flow:
        self.desk.lost = True
        return Flow.ENDED

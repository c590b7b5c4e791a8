"""Runs a workload: prepare, load until it is to stop, read the end. No clock but the event loop's,
no chance but what is passed in: in virtual time the same seed gives the same history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kv.base.errors import KvorumError, Unavailable
from kv.base.limits import VERIFY_OPERATIONS_MAX
from kv.base.ports import Rng
from kvorum.sdk.database import AsyncDatabase
from kvorum.verify.client import Client
from kvorum.verify.history import Event, Header, History, Recorder
from kvorum.verify.random_choices import Chance
from kvorum.verify.workloads.base import Workload

PHASE_LOAD: Final = "load"
PHASE_HEALED: Final = "healed"
PHASE_FINAL: Final = "final"
"""Notes in the history: the load begins, it has ended and the faults are over, the end is read."""

FINAL_S: Final = 60.0
_PAUSE_S = 0.002  # between two operations of a client, on average
_REFUSED_S = 0.004  # … after a refusal, doubling …
_REFUSED_S_MAX = 0.25  # … up to this
_AGAIN_S = 0.25  # between two attempts of what must succeed


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a workload is run. `table` must be new: it is made, and holds this run's records."""

    table: str
    clients: int
    seed: int = 0
    isolation: str = "snapshot"
    final_s: float = FINAL_S


class Run:
    """One workload, from `prepare` to `final`. Its `history` can be read at any time."""

    def __init__(
        self,
        workload: Workload,
        settings: Settings,
        databases: Sequence[AsyncDatabase],
        *,
        monotonic: Callable[[], float],
        rng: Callable[[str], Rng],
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        """The clients share `databases` in turn. `rng(name)` is a source of chance of its own for
        each name, the same one for the same seed.
        """
        self.workload = workload
        self._settings = settings
        self._databases = databases
        self._monotonic = monotonic
        self._rng = rng
        header = Header(
            workload.name, settings.seed, settings.isolation, dict(workload.parameters())
        )
        self.recorder = Recorder(header, monotonic, on_event)
        self._clients = [self._client(number) for number in range(settings.clients)]

    @property
    def history(self) -> History:
        return self.recorder.history

    def _client(self, number: int) -> Client:
        settings = self._settings
        return Client(
            self._databases[number % len(self._databases)],
            self.recorder,
            Chance(self._rng(f"{self.workload.name}/{number}")),
            number=number,
            clients=settings.clients + 1,  # one more reads the end
            table=settings.table,
            isolation=settings.isolation,
        )

    async def prepare(self) -> None:
        """Raises what the database says when it does not succeed in time."""
        deadline = self._monotonic() + self._settings.final_s
        while True:
            try:
                return await self.workload.begin(self._databases, self._settings.table)
            except KvorumError as e:
                again = e.disposition in ("retry", "reroute", "unknown_outcome")
                if not again or self._monotonic() > deadline:
                    raise
            await asyncio.sleep(_AGAIN_S)

    async def load(self, stop: asyncio.Event) -> None:
        """All clients at once until `stop` is set; then each ends what it is doing."""
        self.recorder.note(PHASE_LOAD)
        async with asyncio.TaskGroup() as group:
            for client in self._clients:
                group.create_task(self._work(client, stop))
        self.recorder.note(PHASE_HEALED)

    async def _work(self, client: Client, stop: asyncio.Event) -> None:
        events = self.history.events
        while not stop.is_set() and len(events) < 2 * VERIFY_OPERATIONS_MAX:
            await self.workload.step(client)
            bound_s = _PAUSE_S
            if client.refusals:
                bound_s = min(_REFUSED_S * 2 ** min(client.refusals, 10), _REFUSED_S_MAX)
            await asyncio.sleep(2 * bound_s * client.chance.rng.random())

    async def final(self) -> None:
        """Read the end. Raises Unavailable when the database did not answer in time: after the
        faults are over it has to.
        """
        self.recorder.note(PHASE_FINAL)
        client = self._client(self._settings.clients)
        deadline = self._monotonic() + self._settings.final_s
        while not await self.workload.final(client):
            if self._monotonic() > deadline:
                errors = (e.error for e in reversed(self.history.events) if e.type == "fail")
                last = next(errors, "not the one that it should be")
                raise Unavailable(
                    f"{self.workload.name}: the end could not be read within "
                    f"{self._settings.final_s:.0f} s after the faults were over; the last answer "
                    f"was {last}",
                    code="NOT_RECOVERED",
                )
            await asyncio.sleep(_AGAIN_S)

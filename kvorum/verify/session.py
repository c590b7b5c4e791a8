"""A whole run against real nodes: connect, prepare, load and hurt, heal, read the end.

The order of the end matters: the faults are over before the end is read, whatever happened, and
before anybody's exception (Ctrl-C is one) leaves this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from kv.base.adapters import SeededRng, SystemClock
from kv.base.errors import InvalidArgument
from kv.base.limits import VERIFY_CLIENTS_MAX, VERIFY_SECONDS_MAX
from kvorum.connecting import aconnect
from kvorum.sdk.database import AsyncDatabase
from kvorum.verify.catalog import workload
from kvorum.verify.history import Event, History
from kvorum.verify.nemesis import Nemesis
from kvorum.verify.run_workload import Run, Settings
from kvorum.verify.workloads.base import ISOLATIONS, READ_COMMITTED, Workload

CONNECTIONS_MAX: Final = 4  # of the load, each with caches of its own, as separate programs have
OPERATION_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be run. `run_id` makes the names of its tables new."""

    workloads: Sequence[str]
    seconds: float
    clients: int
    seed: int
    run_id: str
    isolation: str = "snapshot"

    def __post_init__(self) -> None:
        """Raises InvalidArgument."""
        if not self.workloads:
            raise InvalidArgument("no workload is named")
        if not 0 < self.seconds <= VERIFY_SECONDS_MAX:
            raise InvalidArgument(f"seconds must be 1 to {VERIFY_SECONDS_MAX}, got {self.seconds}")
        if not 0 < self.clients <= VERIFY_CLIENTS_MAX:
            raise InvalidArgument(f"clients must be 1 to {VERIFY_CLIENTS_MAX}, got {self.clients}")
        about = {workload(name).clusters for name in self.workloads}
        if len(about) > 1:
            raise InvalidArgument("a workload of two clusters (sites) is run without others")
        if self.clients < (clusters := about.pop()):
            raise InvalidArgument(f"clients must be {clusters} or more, one for each cluster")
        levels = (*ISOLATIONS, READ_COMMITTED)
        if self.isolation not in levels:
            known = " or ".join(levels)
            raise InvalidArgument(f"isolation is {known}, not {self.isolation!r}")
        for name in self.workloads:
            known = " or ".join(workload(name).isolations)
            if self.isolation not in workload(name).isolations:
                raise InvalidArgument(f"{name} has something to check only with isolation {known}")


@dataclass
class Session:
    """The runs of one command; their histories can be read whatever became of it."""

    wanted: Wanted
    on_event: Callable[[Event], None]
    """Hears of every event of every run."""
    runs: list[Run] = field(default_factory=list)
    begun: bool = False
    """Whether the load began: before that there is nothing to judge."""

    @property
    def kinds(self) -> list[type[Workload]]:
        return [workload(name) for name in self.wanted.workloads]

    @property
    def clusters(self) -> int:
        """How many it is about."""
        return self.kinds[0].clusters

    @property
    def histories(self) -> list[History]:
        return [run.history for run in self.runs]

    def fault(self, what: str, nodes: list[int]) -> None:
        """A fault is noted in every history."""
        named = f"{what} {','.join(map(str, nodes))}" if nodes else what
        for run in self.runs:
            run.recorder.note(named, fault=True)

    async def run(self, urls: Sequence[str], nemeses: Callable[[], Sequence[Nemesis]]) -> list[str]:
        """Everything, in order, on these clusters, of each of which there may be a nemesis. Returns
        what they found (nodes that ended by themselves).

        They are made first: what runs then is to run at the end. Raises KvorumError when the
        cluster cannot be used, or does not answer after the faults are over.
        """
        async with self._databases(urls) as databases:
            self.runs = [self._run(name, databases) for name in self.wanted.workloads]
            hurt = nemeses()
            try:
                for run in self.runs:
                    await run.prepare()
                self.begun = True
                await self._load(hurt)
            finally:
                for one in hurt:
                    await one.heal()
            for run in self.runs:
                await run.final()
            return [death for one in hurt for death in one.deaths]

    async def drop(self, url: str) -> None:
        """Remove the tables of this run."""
        async with await aconnect(url) as db:
            for name in self.wanted.workloads:
                await workload(name)().clean(db, self._table(name))

    async def _load(self, nemeses: Sequence[Nemesis]) -> None:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for run in self.runs:
                group.create_task(run.load(stop))
            faults = [group.create_task(one.run()) for one in nemeses]
            await asyncio.sleep(self.wanted.seconds)
            for one in faults:
                one.cancel()  # a plan ends in time, but starting a node may take longer
            stop.set()

    def _run(self, name: str, databases: Sequence[AsyncDatabase]) -> Run:
        wanted = self.wanted
        settings = Settings(
            table=self._table(name),
            clients=wanted.clients,
            seed=wanted.seed,
            isolation=wanted.isolation,
        )

        def rng(what: str) -> SeededRng:
            return SeededRng(f"{wanted.seed}/{what}")

        clock = SystemClock()
        return Run(
            workload(name)(),
            settings,
            databases,
            monotonic=clock.monotonic,
            rng=rng,
            on_event=self.on_event,
        )

    def _table(self, name: str) -> str:
        return f"{name.replace('-', '_')}_{self.wanted.run_id}"

    @asynccontextmanager
    async def _databases(self, urls: Sequence[str]) -> AsyncIterator[list[AsyncDatabase]]:
        """One cluster's after the other's, in turn."""
        count = min(CONNECTIONS_MAX, self.wanted.clients * len(self.wanted.workloads))
        async with AsyncExitStack() as stack:
            opened = [
                await stack.enter_async_context(
                    await aconnect(urls[number % len(urls)], timeout_ms=OPERATION_MS, near="")
                )
                for number in range(count - count % len(urls))
            ]
            yield opened

"""The simulation that runs now, for code that was not given it: steps of users, and the doubles of
outside services. There is one at a time in a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from kv.base.errors import Refused
from kvorum.testing.history import History
from kvorum.testing.simulation.life import Life, LivesLoop, State, living
from kvorum.testing.simulation.processes import CLIENTS_FROM, WORKERS_FROM


def name_of(life: Life) -> str:
    """A process as tests call it."""
    if life.number >= WORKERS_FROM:
        return f"worker {life.number - WORKERS_FROM}"
    return f"node {life.number}" if life.number < CLIENTS_FROM else "test"


procedure_now: ContextVar[int] = ContextVar("procedure_now", default=0)
"""Whose step this is."""


class Running:
    """`moment(life, what)` is called at whatever may be disturbed; what comes back is what becomes
    of a call of a service ("": nothing happens to it).
    """

    def __init__(self, loop: LivesLoop, now_ms: Callable[[], int]) -> None:
        self.loop = loop
        self.history = History(now_ms)
        self.moment: Callable[[Life, str], str] = lambda _life, _what: ""
        self.done: dict[tuple[str, str, str], Any] = {}
        """What services answered, by service, effect and key."""
        self.to_fail: dict[str, dict[int, BaseException]] = {}
        """By step: which of its executions raise what."""
        self.began: dict[str, int] = {}
        self.on_their_way = 0
        """Requests to services that have not arrived."""

    def at(self, what: str) -> str:
        """This moment of the process that calls."""
        life = living()
        return "" if life is None else self.moment(life, what)

    @property
    def who(self) -> str:
        life = living()
        return "outside" if life is None else name_of(life)

    @staticmethod
    def is_dead() -> bool:
        """Whether the process that calls was killed: not a line of it may run on."""
        life = living()
        return life is not None and life.state is State.DEAD

    async def unless_dead(self) -> None:
        """Never comes back for a process that was killed."""
        if self.is_dead():
            await asyncio.Event().wait()


_now: list[Running] = []


def running() -> Running:
    """Raises Refused."""
    if not _now:
        raise Refused(
            "there is no simulation: the double of a service answers inside of "
            "kvorum.testing.simulate, explore, or a test with the fixture kvorum_cluster",
            code="NOT_SIMULATED",
        )
    return _now[-1]


@contextmanager
def as_the_one(one: Running) -> Iterator[None]:
    """Raises Refused."""
    if _now:
        raise Refused(
            "another simulation runs in this process: one after the other, or in several processes",
            code="SIMULATION_RUNS",
        )
    _now.append(one)
    try:
        yield
    finally:
        _now.remove(one)

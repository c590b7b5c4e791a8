"""What a worker over HTTP is given, and how many there may be (kvorum/http/routes/leases.py), by a
clock of this test's own.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kv.base import limits
from kv.base.errors import Busy, InvalidArgument
from kvorum.http.routes.leases import Leases, Session, type_of
from procedures.engine.runner import TryAgain
from tests.kit.each import each

_HALF_S = limits.HTTP_LEASE_MS / 2000


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self._made = 0

    def monotonic(self) -> float:
        return self.now

    def token(self, size: int) -> bytes:
        self._made += 1
        return self._made.to_bytes(size, "big")


def leases(clock: Clock, make: Any = None) -> Leases:
    return Leases(make, clock, clock)  # type: ignore[arg-type]


def offered(session: Session, id: int) -> Any:
    return session.offer(SimpleNamespace(name="step"), SimpleNamespace(id=id))  # type: ignore[arg-type]


async def test_a_task_whose_answer_was_lost_is_given_again() -> None:
    """It stayed with a worker that had never heard of it, for as long as the worker spoke."""
    clock = Clock()
    session = Session(leases(clock), ("pool", "w", "ann"), [])
    first, second = offered(session, 1), offered(session, 2)
    assert await session.lease(2, 0, []) == [first, second]
    assert await session.lease(2, 0, [first.name]) == [], "its answer may still be under way"
    clock.now += _HALF_S
    assert await session.lease(1, 0, None) == [], "the worker does not say what it has"
    assert await session.lease(0, 0, [first.name]) == []
    assert await session.lease(2, 5_000, [first.name]) == [second], "it waits for no other one"
    assert await session.lease(2, 0, [first.name]) == [], "this answer, too"
    third = offered(session, 3)
    clock.now += _HALF_S
    assert await session.lease(2, 0, [first.name]) == [second, third]
    second.ended.set_result(TryAgain(None))  # type: ignore[arg-type]
    session.taken_back(second)
    clock.now += _HALF_S
    assert await session.lease(2, 0, []) == [first, third]


async def test_one_user_leaves_others_a_place() -> None:
    """Who may run one pool took all workers that a node serves."""

    class Worker:
        def __init__(self) -> None:
            self.entered, self._stop = asyncio.Event(), asyncio.Event()
            self.entered.set()

        async def run(self) -> None:
            await self._stop.wait()

        def stop(self) -> None:
            self._stop.set()

    every = leases(Clock(), lambda *_: Worker())
    types = [{"name": "t", "steps": [{"name": "go"}]}]
    for n in range(limits.HTTP_WORKERS_OF_USER_MAX):
        await every.session("pool", f"w{n}", "ann", types, 1)
    with pytest.raises(Busy, match="of 'ann'"):
        await every.session("pool", "one more", "ann", types, 1)
    await every.session("pool", "w0", "bob", types, 1)
    await every.close()


@each(
    "said",
    [
        *({"factor": "2"}, {"factor": True}, {"factor": [2]}, {"factor": float("nan")}),
        *({"factor": 0.5}, {"jitter": "x"}, {"jitter": {}}, {"jitter": 2}, {"jitter": None}),
    ],
    ids=str,
)
def test_a_policy_of_a_wrong_kind_is_refused(said: dict[str, Any]) -> None:
    """It would end the request with an error of the server."""
    for one in (
        {"name": "t", "steps": [{"name": "go", "retry": said}]},
        {"name": "t", "steps": [{"name": "go"}], "retry": said},
    ):
        with pytest.raises(InvalidArgument):
            type_of(one, "pool")

"""Long computing in turns on the loop, though what computes awaits nothing.

Expressions are closures, called for each row: none of them can await. So what runs a statement runs
in a greenlet, which is a coroutine that any function below may leave:

    task ─▶ breaking(work) ─ switch ─▶ [greenlet: work, closures, functions ─ pause() ─┐
                 ▲ a turn on the loop, or what cancels the task                         │
                 └──────────────────────── switch, if a slice is over ◀────────────────┘

So `statement_timeout`, a cancel request and the end of a session reach what computes, at its next
break, and it ends there by the error that the task gets. What is shared must be as it should be at
each break, as at each await.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from time import perf_counter
from typing import Any, Generic, TypeVar

from greenlet import getcurrent, greenlet

from kv.base.accounts import Use
from kv.base.fair_turns import FairTurns
from sqlproxy.values.breaks import set_breaks

T = TypeVar("T")
R = TypeVar("R")


class Breaking(Awaitable[T], Generic[T]):
    """Await `work`; what it computes takes a `turn` whenever it has had the loop for a slice, and
    counts for `use`. `turns`: how long that is.
    """

    __slots__ = ("_hub", "_inner", "_result", "_turn", "_turns", "_until", "_use", "_work")

    def __init__(
        self,
        work: Awaitable[T],
        turn: Callable[[], Coroutine[object, None, None]],
        use: Use,
        turns: FairTurns,
    ) -> None:
        self._work, self._turn, self._use, self._turns = work, turn, use, turns
        self._until = 0.0
        self._result: list[T] = []

    def __await__(self) -> Generator[object, object, T]:
        self._hub = getcurrent()
        inner = self._inner = greenlet(self._run)
        inner.gr_context = copy_context()
        self._use.enter()
        try:
            return (yield from self._pieces(inner))
        finally:
            self._use.end()

    def _pieces(self, inner: greenlet) -> Generator[object, object, T]:
        switch: Callable[..., object] = inner.switch
        given: Any = ()
        while True:
            began = perf_counter()
            self._until = began + self._turns.slice_s
            asked = switch(*given)
            self._use.spend(sql_us=round((perf_counter() - began) * 1_000_000))
            if inner.dead:
                return self._result[0]
            try:
                switch, given = inner.switch, ((yield asked),)
            except BaseException as error:  # noqa: BLE001 - what cancels the task: it is raised inside
                switch, given = inner.throw, (error,)

    def _run(self) -> None:
        set_breaks(self._take)
        self._result.append(_awaited(self._hub, self._work.__await__()))

    def _take(self) -> None:
        if perf_counter() >= self._until and getcurrent() is self._inner:
            _awaited(self._hub, self._turn().__await__())


def _awaited(hub: greenlet, work: Generator[object, object, R]) -> R:
    """Inside of the greenlet: what it waits for the task waits for."""
    send: Callable[..., object] = work.send
    given: object = None
    while True:
        try:
            asked = send(given)
        except StopIteration as ended:
            result: R = ended.value
            return result
        try:
            send, given = work.send, hub.switch(asked)
        except BaseException as error:  # noqa: BLE001 - it is the work's
            send, given = work.throw, error

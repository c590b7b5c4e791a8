"""What ends a statement under way: a cancel request, statement_timeout, the end of the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from kv.base.accounts import Use
from kv.base.errors import KvorumError
from kv.base.fair_turns import FairTurns
from sqlproxy.loop.computing import Breaking
from sqlproxy.session.state.settings import Settings
from sqlproxy.values.errors import QUERY_CANCELED, SqlError

T = TypeVar("T")


class Interrupts:
    """Of one session. `cancel_after`: calls when so many seconds are over. `refused`: what an error
    of the store means. `turn`: what computes long waits for it between two pieces. `use`: whom its
    computing counts for; `turns`: how long a piece is.
    """

    def __init__(
        self,
        settings: Settings,
        cancel_after: Callable[[float, Callable[[], None]], asyncio.TimerHandle],
        refused: Callable[[KvorumError], SqlError],
        turn: Callable[[], Coroutine[object, None, None]],
        use: Use,
        turns: FairTurns,
    ) -> None:
        self._turn, self._use, self._turns = turn, use, turns
        self._settings, self._cancel_after, self._refused = settings, cancel_after, refused
        self._running: asyncio.Task[object] | None = None
        self._why: SqlError | None = None  # why the running task is being cancelled
        self._deaf = False  # a commit is under way, which nothing cancels …
        self._missed: SqlError | None = None  # … and this came meanwhile
        self.until_s = 0.0  # the loop's time when what was read of a statement is to end; 0: none

    @property
    def running(self) -> bool:
        """Whether there is something to end."""
        return self._running is not None

    async def guard(self, work: Awaitable[T], *, reads: bool = False) -> T:
        """Await one piece of a statement: it can be cancelled, ends at statement_timeout, and what
        the store refuses is SQL's error. `reads`: the next piece has what is left of its time.
        """
        outer = self._running
        task = asyncio.current_task()
        self._running = task
        ms = self._settings.ms("statement_timeout")
        timer = None
        if ms and outer is None:
            now_s = asyncio.get_running_loop().time()
            until_s = self.until_s or now_s + ms / 1000
            self.until_s = until_s if reads else 0.0
            timer = self._cancel_after(max(0.0, until_s - now_s), self._timed_out)
        try:
            return await (
                Breaking(work, self._turn, self._use, self._turns) if outer is None else work
            )
        except KvorumError as error:
            raise self._refused(error) from error
        except asyncio.CancelledError:
            if self._why is None or task is None:
                raise
            why, self._why = self._why, None
            task.uncancel()
            raise why from None
        finally:
            self._running = outer
            if timer is not None:
                timer.cancel()

    async def undisturbed(self, commit: Awaitable[T]) -> T:
        """A commit, which nothing cancels."""
        self._deaf, self._missed = True, None
        try:
            return await commit
        finally:
            self._deaf = False

    async def attempt(self, work: Callable[[], Awaitable[T]]) -> T:
        """A part of a commit that has written nothing yet, and may wait: it is cancelled as any
        piece of a statement. Raises SqlError.
        """
        try:
            if self._missed is not None:
                raise self._missed
            self._deaf = False
            return await self.guard(work())
        finally:
            self._deaf = True

    def listen(self, waited_s: float) -> None:
        """What was to be committed so long is not, and would be tried again. Raises SqlError: that
        is not wanted any more.
        """
        ms = self._settings.ms("statement_timeout")
        if self._missed is None and ms and waited_s * 1000 >= ms:
            self._missed = _timed_out()
        if self._missed is not None:
            raise self._missed

    def interrupt(self, why: SqlError) -> None:
        """What runs ends with this error; nothing else does."""
        if self._deaf:
            self._missed = self._missed or why
        if self._running is not None and not self._deaf and self._why is None:
            self._why = why
            self._running.cancel()

    def cancel(self) -> None:
        """The client asked for it."""
        self.interrupt(SqlError(QUERY_CANCELED, "canceling statement due to user request"))

    def _timed_out(self) -> None:
        self.interrupt(_timed_out())

    def explain(self, detail: str) -> None:
        """What the error of the statement that is being cancelled says besides."""
        if self._why is not None:
            self._why.detail = detail


def _timed_out() -> SqlError:
    return SqlError(QUERY_CANCELED, "canceling statement due to statement timeout")

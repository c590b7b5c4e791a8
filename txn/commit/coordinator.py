"""Commits the transactions of one client, so many at a time (COMMITS_IN_FLIGHT_MAX).

    Coordinator ── a Commit each (shell.py) ─┬─ CommitCore: what is due (core.py)
                                             ├─ Sending: the messages (sending.py)
                                             └─ Ends: what comes after the answer (finishing.py)

A slot covers the cleaning after the answer, too, so that intents cannot pile up. The time of a
commit is divided: the work (grouping, prewrites, timestamps) has `WORK_SHARE` of the deadline, the
rest is for learning the outcome of what was sent last.
"""

from __future__ import annotations

import asyncio

from kv.base.errors import Busy
from kv.base.limits import (
    COMMITS_IN_FLIGHT_MAX,
    RETRY_WAIT_MS_FIRST,
    RETRY_WAIT_MS_MAX,
    UNSTAGE_MS,
)
from kv.base.methods import ABORTED, ROLLBACK
from kv.base.ports import Rng, Timers
from txn.commit.finishing import Ends
from txn.commit.sending import Request, Shared
from txn.commit.shell import Commit
from txn.commit.trace import CommitTrace
from txn.intents.resolver import Outcome, Resolver
from txn.shared.deadlines import Alarm, Background, Backoff, Deadline
from txn.shared.ports import Kv, Quick, Tso


class Coordinator:
    """Commits transactions of one client."""

    def __init__(
        self,
        kv: Kv,
        tso: Tso,
        *,
        timers: Timers,
        rng: Rng,
        resolver: Resolver,
        background: Background,
        parallel: bool = True,
    ) -> None:
        """`parallel`: whether few parts are committed by their intents (txn.commit.core)."""
        self.resolver = resolver
        self.shared = Shared(
            kv=kv,
            quick=kv if isinstance(kv, Quick) else None,
            tso=tso,
            timers=timers,
            resolver=resolver,
            background=background,
            backoff=Backoff(timers, rng, first_ms=RETRY_WAIT_MS_FIRST, max_ms=RETRY_WAIT_MS_MAX),
            ends=Ends(kv, background),
            unstaging=Alarm(timers, UNSTAGE_MS),
            parallel=parallel,
        )
        self._slots = asyncio.Semaphore(COMMITS_IN_FLIGHT_MAX)

    async def commit(
        self, request: Request, budget_ms: int, trace: CommitTrace | None = None
    ) -> int:
        """The commit version. Raises the participant's error, or UnknownOutcome (txn.commit.core).
        `trace` gets its messages.

        Waits for a slot first.
        """
        deadline = Deadline(self.shared.timers, budget_ms)
        if self._slots.locked():
            await self._slot(deadline)
        else:
            await self._slots.acquire()  # at once
        trace = trace or CommitTrace(self.shared.timers.monotonic)
        return await Commit(self.shared, request, deadline, self._slots.release, trace).run()

    async def _slot(self, deadline: Deadline) -> None:
        try:
            async with asyncio.timeout(deadline.left_ms() / 1000):
                await self._slots.acquire()
        except TimeoutError:
            raise Busy(
                f"{COMMITS_IN_FLIGHT_MAX} transactions of this client are committing or being "
                "cleaned up, the limit; try again",
                details={"what": "commits in flight", "limit": COMMITS_IN_FLIGHT_MAX},
            ) from None

    async def roll_back(self, anchor: bytes, start_ts: int, budget_ms: int) -> None:
        """Record that a transaction which sent nothing yet is over."""
        await self.shared.kv.call(ROLLBACK, anchor, anchor, start_ts, budget_ms=budget_ms)
        self.resolver.learn(start_ts, Outcome(ABORTED))

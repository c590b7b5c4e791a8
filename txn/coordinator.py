"""Commits the transactions of one client, so many at a time (COMMITS_IN_FLIGHT_MAX).

    Coordinator ─┬ one WRITE, if that is plainly all there is to do
                 ├ a PREWRITE to each of a few partitions, and the ends (txn/small.py)
                 └ else one Commit (txn/commit.py) ── core.CommitCore: what is due (txn/core.py)
                                                   └─ Sending: the messages (txn/sending.py)

A slot covers the cleaning behind the answer, too, so that intents cannot pile up. The time of a
commit is divided: the work (grouping, prewrites, timestamps) has `WORK_SHARE` of the deadline, the
rest is for learning the outcome of what was sent last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kv.base.errors import Busy, KvorumError
from kv.base.limits import COMMITS_IN_FLIGHT_MAX, RETRY_WAIT_MS_FIRST, RETRY_WAIT_MS_MAX
from kv.base.methods import (
    ABORTED,
    COMMITTED,
    DELETE,
    OP_DELETE,
    OP_PUT,
    PUT,
    ROLLBACK,
    WRITE,
    WRITE_ROWS,
)
from kv.base.ops import Op
from kv.base.ports import Rng, Timers
from kv.client.calls import Started
from kv.client.links import LinkExpired, LinkLost, Receiver
from txn.commit import Commit
from txn.cutting import FEW_OPS, as_rows, fits_one_entry, rows_fit
from txn.ends import Ends
from txn.ports import Kv, Quick, Tso
from txn.resolver import Outcome, Resolver
from txn.sending import WORK_SHARE, Request, Shared, rows_args, write_args
from txn.small import Patience, Small, grouped
from txn.trace import CommitTrace
from txn.waiting import Background, Backoff, Deadline


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
        """`parallel`: whether few parts are committed by their intents (txn.core)."""
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
            parallel=parallel,
        )
        self._located = getattr(kv, "located", None)  # a KvClient's
        self._patience = Patience(timers)
        self._slots = asyncio.Semaphore(COMMITS_IN_FLIGHT_MAX)

    async def commit(
        self, request: Request, budget_ms: int, trace: CommitTrace | None = None
    ) -> int:
        """The commit version. Raises the participant's error, or UnknownOutcome (txn.core). `trace`
        gets its messages.

        Waits for a slot first: each covers the cleaning behind the answer, too, so intents can not
        pile up.
        """
        deadline = Deadline(self.shared.timers, budget_ms)
        if self._slots.locked():
            await self._slot(deadline)
        else:
            await self._slots.acquire()  # at once
        trace = trace or CommitTrace(self.shared.timers.monotonic)
        if not request.serializable:
            if (first := self._start_alone(request, deadline)) is not None:
                return await self._alone(request, deadline, trace, first)
            if (small := self._start_small(request, deadline, trace)) is not None:
                try:
                    return await small.answer
                except asyncio.CancelledError:
                    small.abandon()
                    raise
        return await self._commit(request, deadline, trace).run()

    def _commit(self, request: Request, deadline: Deadline, trace: CommitTrace) -> Commit:
        return Commit(self.shared, request, deadline, self._slots.release, trace)

    def _start_alone(self, request: Request, deadline: Deadline) -> Started | None:
        """Send what is plainly one WRITE: few ops, or rising puts, in one partition that is known.
        None: it takes the long way.
        """
        quick, ops = self.shared.quick, request.ops
        if quick is None or self._located is None:
            return None
        here = self._located(ops[0].key)
        if here is None:
            return None
        budget_ms = max(1, int(deadline.left_ms() * WORK_SHARE))
        if len(ops) > FEW_OPS:
            if not here.covers(ops[-1].key) or (rows := as_rows(ops)) is None:
                return None
            args = rows_args(request, *rows)
            return quick.start(WRITE_ROWS, ops[0].key, args, budget_ms)
        if not (all(map(here.covers, [op.key for op in ops])) and fits_one_entry(ops)):
            return None
        args = write_args(request, list(ops), request.terms.options())
        return quick.start(WRITE, ops[0].key, args, budget_ms)

    def _start_small(
        self, request: Request, deadline: Deadline, trace: CommitTrace
    ) -> Small | None:
        """Send what is plainly a PREWRITE for each of a few partitions that are known. None: it
        takes the long way.
        """
        shared = self.shared
        if shared.quick is None or self._located is None or not shared.parallel:
            return None
        if shared.background.closed or (found := grouped(request.ops, self._located)) is None:
            return None
        release = self._slots.release
        small = Small(shared, self._patience, request, deadline, release, trace)
        small.start(*found)
        return small

    def start_write(self, waiter: Receiver, ops: Sequence[Op], budget_ms: int) -> bool:
        """Send ops of distinct keys that are no transaction; False unless one partition, which is
        known, has them all and one entry holds them.
        """
        quick = self.shared.quick
        if quick is None:
            return False
        kind, key, value, cond, ttl_ms = ops[0]
        if len(ops) == 1:
            if kind == OP_PUT:
                return quick.start_for(waiter, PUT, key, (key, value, cond, ttl_ms), budget_ms)
            if kind == OP_DELETE:
                return quick.start_for(waiter, DELETE, key, (key, cond), budget_ms)
        here = None if self._located is None else self._located(key)
        if here is None or not all(map(here.covers, [op.key for op in ops])):
            return False
        if not fits_one_entry(ops):
            return False
        return quick.start_for(waiter, WRITE, key, (list(ops), 0, 0), budget_ms)

    def start_rows(
        self,
        waiter: Receiver,
        keys: list[bytes],
        values: list[bytes],
        budget_ms: int,
        *,
        absent: bool,
    ) -> bool:
        """`start_write` of puts, whose keys rise."""
        quick = self.shared.quick
        here = None if quick is None or self._located is None else self._located(keys[0])
        if quick is None or here is None or not here.covers(keys[-1]):
            return False
        if not rows_fit(keys, values):
            return False
        said = ({"absent": True},) if absent else ()
        args = (keys, values, 0, 0, *said)
        return quick.start_for(waiter, WRITE_ROWS, keys[0], args, budget_ms)

    async def _alone(
        self, request: Request, deadline: Deadline, trace: CommitTrace, first: Started
    ) -> int:
        """The usual end of a small transaction: one request, one answer, nothing behind it. The
        same as a Commit would do, which takes over as soon as it is not as usual.
        """
        start_ts, owner = request.start_ts, request.terms.owner
        message = trace.sent("WRITE", len(request.ops), logged=True)
        if owner:
            self.resolver.owners[start_ts] = owner
        try:
            (version,) = await first.reply
        except asyncio.CancelledError:
            self._commit(request, deadline, trace).abandon()
            raise
        except (KvorumError, LinkLost, LinkExpired) as error:
            trace.answered(message, getattr(error, "code", ""))
            return await self._commit(request, deadline, trace).run((first, error))
        trace.answered(message)
        trace.finished()
        self.resolver.learn(start_ts, Outcome(COMMITTED, commit_ts=version))
        if owner:
            self.resolver.owners.pop(start_ts, None)
        self._slots.release()
        result: int = version
        return result

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

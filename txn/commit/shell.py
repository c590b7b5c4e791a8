"""One commit under way: the shell around `txn.commit.core`. It performs effects, feeds the answers
back as events, and answers the caller.

    run ─┬─ one WRITE, if that is plainly all there is to do; the caller's own task waits for it
         ├─ a PREWRITE to each of a few partitions that are known, all staged
         └─ else it asks for the partitions first

The caller awaits a future, while every message is a task of the client's background set, so that
neither a caller that goes away nor an early answer leaves a message or its answer unowned: a commit
that was cancelled before it was decided is rolled back, one that was decided is finished. What is
usual needs no task: the caller's own does what must be done first, first prewrites are answered by
callback, and what comes after the answer travels with that of others (txn/commit/finishing.py).

Invariants
  * the answer is given once; `ended` is called once, when nothing of this commit is under way;
  * readers of this client see it as committed when the record says so, not before.

What the messages are and how they are tried again: txn/commit/sending.py. Sources:
txn/commit/core.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import assert_never

from kv.base.errors import KvorumError
from kv.base.limits import UNSTAGE_MS
from kv.base.methods import COMMITTED, PREWRITE, WRITE, WRITE_ROWS
from kv.base.ports import Handle
from kv.base.wire_row import WireRow
from kv.client.calls import Started
from kv.client.links import LinkExpired, LinkLost
from txn.commit import effects as msg
from txn.commit.core import CommitCore, State
from txn.commit.finishing import LOST, End
from txn.commit.sending import (
    WORK_SHARE,
    Request,
    Sending,
    Shared,
    part_args,
    rows_args,
    write_args,
)
from txn.commit.trace import CommitTrace, Message
from txn.intents.resolver import Outcome
from txn.shared.deadlines import Deadline
from txn.shared.grouping import few_parts
from txn.shared.message_sizes import FEW_OPS, Indexes, as_rows, fits_one_entry
from txn.shared.ports import Quick
from txn.shared.refusals import caller_gone, deadline_exceeded

Work = Coroutine[object, None, msg.Event | None]  # sends a message; what the core hears of it


class Commit:
    """One run of the protocol."""

    __slots__ = (
        "_answer",
        "_armed",
        "_core",
        "_deadline",
        "_next_beat",
        "_quick",
        "_release",
        "_released",
        "_request",
        "_running",
        "_sending",
        "_shared",
        "_time_ends",
        "_trace",
    )

    def __init__(
        self,
        shared: Shared,
        request: Request,
        deadline: Deadline,
        ended: Callable[[], None],
        trace: CommitTrace,
        streaming: Sending | None = None,
    ) -> None:
        """`streaming`: the messages of one whose rows are not in the request."""
        self._shared, self._request, self._deadline = shared, request, deadline
        self._release, self._trace, self._sending = ended, trace, streaming
        if streaming is None:
            self._core = CommitCore(
                request.start_ts,
                request.ops,
                parallel=shared.parallel and not request.beaten,
                locked=request.locked,
            )
            self._quick = None if request.serializable or request.locked else shared.quick
        else:
            self._core, self._quick = streaming.core, None
        self._answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._running = 0  # messages, and ends
        self._released = self._armed = False
        self._next_beat: Handle | None = None
        self._time_ends: tuple[Handle, ...] = ()
        if request.terms.owner:
            shared.resolver.owners[request.start_ts] = request.terms.owner

    @property
    def _send(self) -> Sending:
        """Most commits need none of it."""
        if self._sending is None:
            self._sending = Sending(
                self._shared, self._request, self._core, self._deadline, self._trace
            )
        return self._sending

    def run(self) -> Coroutine[object, None, int]:
        """The commit version. Raises the participant's error, or UnknownOutcome (core)."""
        quick, shared = self._quick, self._shared
        if quick is not None:
            budget_ms = max(1, int(self._deadline.left_ms() * WORK_SHARE))
            if (first := self._start_write(quick, budget_ms)) is not None:
                return self._written(first)
            if shared.parallel and not shared.background.closed:
                few = few_parts(self._request.ops, quick.located)
                if few is not None:
                    for effect in self._core.start_staged(*few):
                        assert isinstance(effect, msg.Prewrite)
                        self._prewrite(effect, quick, budget_ms)
                    return self._until_answered()
        return self._start(self._core.start())

    def _start_write(self, quick: Quick, budget_ms: int) -> Started | None:
        """Send what is plainly one WRITE: few ops, or rising puts, in one partition that is known.
        None: it takes another way.
        """
        request, ops = self._request, self._request.ops
        here = quick.located(ops[0].key)
        if here is None:
            return None
        if len(ops) > FEW_OPS:
            if not here.covers(ops[-1].key) or (rows := as_rows(ops)) is None:
                return None
            return quick.start(WRITE_ROWS, ops[0].key, rows_args(request, *rows), budget_ms)
        if not (all(map(here.covers, [op.key for op in ops])) and fits_one_entry(ops)):
            return None
        args = write_args(request, list(ops), request.terms.options)
        return quick.start(WRITE, ops[0].key, args, budget_ms)

    async def _written(self, first: Started) -> int:
        """The usual end of a small transaction: one request, one answer, nothing after it."""
        message = self._trace.sent("WRITE", len(self._request.ops), logged=True)
        try:
            (version,) = await first.reply
        except asyncio.CancelledError:
            self._core.start_in_one()
            self._caller_is_gone()
            raise
        except (KvorumError, LinkLost, LinkExpired) as error:
            self._trace.answered(message, getattr(error, "code", ""))
            return await self._start(self._core.start_in_one(), (first, error))
        self._trace.answered(message)
        self._trace.finished()
        outcome = Outcome(COMMITTED, commit_ts=version)
        self._shared.resolver.learn(self._request.start_ts, outcome)
        self._ended()
        return outcome.commit_ts

    async def _start(
        self, effects: list[msg.Effect], first: tuple[Started, BaseException] | None = None
    ) -> int:
        """`first`: all was sent as one WRITE, and how that failed.

        As long as one thing is to be done at a time (finding the partition, and writing if there is
        only one), the caller's own task does it: most transactions never need another. When the
        time for work is over, the timers end what would be tried again and again.
        """
        tried = False
        try:
            while len(effects) == 1 and isinstance(alone := effects[0], msg.Group | msg.Write):
                if tried and self._send.work.passed:
                    break
                tried = True
                if isinstance(alone, msg.Write):
                    work: Work = self._send.write(alone, first)
                    first = None
                else:
                    work = self._send.group(alone)
                event = await self._event(alone, work)
                assert event is not None
                effects = self._core.step(event)
            if self._shared.background.closed and not isinstance(effects[0], msg.Finish):
                raise self._core.interrupted(unsent=effects)
        except BaseException as stop:
            if isinstance(stop, asyncio.CancelledError):
                self._caller_is_gone()
            if not self._running:
                self._ended()
            raise
        self._perform(effects)
        return await self._until_answered()

    async def _until_answered(self) -> int:
        if not self._running:
            self._ended()
            return self._answer.result()
        self._arm()
        try:
            return await self._answer
        except asyncio.CancelledError:
            self._caller_is_gone()
            raise

    # -- its time

    def _arm(self) -> None:
        """The first beat; of a staged one it ends what is early. Of a streamed one each message has
        its own time, and heartbeats.
        """
        if self._armed or self._core.streamed:
            return
        self._armed = True
        beat_ms = self._request.ttl_ms / 3
        if self._core.stage and beat_ms >= UNSTAGE_MS:
            beat_ms = UNSTAGE_MS
            self._shared.unstaging.add(self._beat)
        else:
            self._next_beat = self._shared.timers.call_later(beat_ms / 1000, self._beat)
        if self._deadline.left_ms() * WORK_SHARE <= beat_ms:
            self._arm_ends()

    def _arm_ends(self) -> None:
        """The ends of its time. Most commits never see the first beat, so it arms these."""
        if not self._time_ends:
            later = self._shared.timers.call_later
            self._time_ends = (
                later(self._send.work.left_ms() / 1000, self._work_is_over),
                later(self._deadline.left_ms() / 1000, self._feed, msg.OutOfTime()),
            )

    def _disarm(self) -> None:
        self._shared.unstaging.remove(self._beat)
        if self._next_beat is not None:
            self._next_beat.cancel()
        for timer in self._time_ends:
            timer.cancel()

    def _work_is_over(self) -> None:
        self._feed(msg.GiveUp(deadline_exceeded(self._request.start_ts)))

    def _beat(self) -> None:
        """Every third of the ttl, while intents lie around and nothing is decided."""
        if self._answer.done():
            return
        later = self._shared.timers.call_later
        self._next_beat = later(self._request.ttl_ms / 3000, self._beat)
        self._arm_ends()
        self._perform(self._core.beat())

    def _caller_is_gone(self) -> None:
        if not self._answer.cancel() and not self._answer.cancelled():
            return  # it was answered in this very pass of the loop
        if not self._core.streamed:
            self._arm()
            self._arm_ends()  # nobody hears the beats of it any more
        self._feed(msg.GiveUp(caller_gone(self._request.start_ts)))

    # -- events

    def _feed(self, event: msg.Event) -> None:
        try:
            self._perform(self._core.step(event))
        except BaseException as bug:
            self._break(bug)
            raise

    def _break(self, error: BaseException) -> None:
        """A bug, or the client is being closed: whoever waits must not wait for ever."""
        self._disarm()
        if isinstance(error, asyncio.CancelledError):
            error = self._core.interrupted()
        if not self._answer.done():
            self._answer.set_exception(error)

    def _ended(self) -> None:
        if not self._released:
            self._released = True
            if self._shared.resolver.flipping:
                self._flip_ended()
            if self._request.terms.owner:
                self._shared.resolver.owners.pop(self._request.start_ts, None)
            self._release()

    # -- effects

    def _perform(self, effects: Sequence[msg.Effect]) -> None:
        for effect in effects:
            match effect:
                case msg.Finish():
                    self._finish(effect.outcome)
                case msg.Prewrite(attempt=0) if self._quick is not None:
                    self._prewrite(effect, self._quick, self._send.work.budget_ms())
                case msg.Flip(attempt=0) if self._core.state is State.IMPLIED:
                    part = self._core.laid[0]
                    message = self._trace.sent("COMMIT", len(part), logged=True)
                    then = partial(self._flipped, effect, message)
                    self._end(part, self._core.anchor, effect.commit_ts, then)
                case msg.Resolve() if effect.commit_ts and self._core.stage:
                    self._resolve_with_others(effect)
                case _:
                    self._spawn(effect, self._work_of(effect))

    def _work_of(self, effect: msg.Effect) -> Work:
        match effect:
            case msg.Group():
                return self._send.group(effect)
            case msg.Write():
                return self._send.write(effect)
            case msg.Prewrite():
                return self._send.prewrite(effect)
            case msg.TakeTimestamp():
                return self._send.take(effect)
            case msg.Flip() | msg.Rollback():
                return self._decide(effect)
            case msg.Heartbeat():
                return self._send.heartbeat()
            case msg.Resolve():
                return self._send.resolve(effect)
            case msg.Finish():
                raise AssertionError("no work")
            case _:
                assert_never(effect)

    def _finish(self, outcome: int | KvorumError) -> None:
        self._disarm()
        self._trace.finished()
        if isinstance(outcome, int):
            # This client's readers resolve what they know to be committed: only when the record
            # says so, too. Until then they wait for the flip.
            if self._core.state is State.IMPLIED:
                flipping = asyncio.get_running_loop().create_future()
                self._shared.resolver.flipping[self._request.start_ts] = flipping
            else:
                self._record_says(outcome)
        if self._answer.done():
            return  # the caller went away
        if isinstance(outcome, int):
            self._answer.set_result(outcome)
        else:
            self._answer.set_exception(outcome)

    def _record_says(self, commit_ts: int) -> None:
        outcome = Outcome(COMMITTED, commit_ts=commit_ts)
        self._shared.resolver.learn(self._request.start_ts, outcome)
        self._flip_ended()

    def _flip_ended(self) -> None:
        """Readers of this client waited for the record; it says what it will say."""
        flipping = self._shared.resolver.flipping.pop(self._request.start_ts, None)
        if flipping is not None:
            flipping.set_result(None)

    async def _decide(self, effect: msg.Flip | msg.Rollback) -> msg.Event:
        implied = self._core.state is State.IMPLIED
        answered = await self._send.decide(effect)
        if implied and answered.status == COMMITTED:
            self._record_says(answered.commit_ts)
        return answered

    # -- effects that need no task

    def _prewrite(self, effect: msg.Prewrite, quick: Quick, budget_ms: int) -> None:
        """The first attempt: sent without a task, and answered by callback, if nothing stands in
        its way.
        """
        args = part_args(self._request, self._core, effect.indexes)
        first = quick.start(PREWRITE, args[3][0].key, args, budget_ms)
        if first is None:
            self._spawn(effect, self._send.prewrite(effect))
            return
        message = self._trace.sent("PREWRITE", len(effect.indexes), logged=True)
        self._running += 1
        self._shared.background.watch(first.reply)
        first.reply.add_done_callback(partial(self._prewritten, effect, message, first))

    def _prewritten(
        self,
        effect: msg.Prewrite,
        message: Message,
        first: Started,
        reply: asyncio.Future[WireRow],
    ) -> None:
        self._shared.background.forget(reply)
        if reply.cancelled():  # this client is being closed
            self._break(asyncio.CancelledError())
            self._ended()
            return
        self._running -= 1
        error = reply.exception()
        if error is not None:
            self._trace.answered(message, getattr(error, "code", ""))
            self._spawn(effect, self._send.prewrite(effect, (first, error)))
            return
        self._trace.answered(message)
        low, *exact = reply.result()
        try:
            effects = self._core.prewritten(effect.indexes, low, exact=exact[:1] == [True])
            if effects:
                self._perform(effects)
        except BaseException as bug:
            self._break(bug)
            raise
        if not self._running:
            self._ended()

    def _flipped(
        self, effect: msg.Flip, message: Message, part: Indexes, status: int, left: int
    ) -> None:
        self._trace.answered(message)
        if status != COMMITTED:
            self._spawn(effect, self._decide(effect))
            return
        self._record_says(effect.commit_ts)
        resolved = () if left else part
        self._feed(msg.Answered(effect, COMMITTED, effect.commit_ts, resolved=resolved))

    def _resolve_with_others(self, effect: msg.Resolve) -> None:
        left = set(effect.indexes)
        for part in self._core.laid:
            if not left.isdisjoint(part):
                left.difference_update(part)
                self._end(part, None, effect.commit_ts, partial(self._resolved, effect.commit_ts))
        if left:  # their prewrites were not answered; somebody else found them, and the commit
            rest = msg.Resolve(effect.commit_ts, tuple(sorted(left)))
            self._spawn(rest, self._send.resolve(rest))

    def _resolved(self, commit_ts: int, part: Indexes, status: int, left: int) -> None:
        if status != COMMITTED or left:
            effect = msg.Resolve(commit_ts, part)
            self._spawn(effect, self._send.resolve(effect))

    def _end(
        self,
        part: Indexes,
        anchor: bytes | None,
        commit_ts: int,
        then: Callable[[Indexes, int, int], None],
    ) -> None:
        """One end of this transaction, by FINISH (txn.commit.finishing)."""
        self._running += 1
        ops = self._core.ops
        keys = list(dict.fromkeys([ops[i].key for i in part]))
        done = partial(self._end_answered, part, then)
        self._shared.ends.add(End(self._request.start_ts, anchor, commit_ts, keys, done))

    def _end_answered(
        self,
        part: Indexes,
        then: Callable[[Indexes, int, int], None],
        status: int,
        left: int,
    ) -> None:
        self._running -= 1
        if status == LOST:
            self._break(asyncio.CancelledError())
            self._ended()
            return
        then(part, status, left)
        if not self._running:
            self._ended()

    # -- effects that are tasks

    def _spawn(self, effect: msg.Effect, work: Work) -> None:
        self._running += 1
        name = f"txn-{self._request.start_ts}-{type(effect).__name__}"
        task = self._shared.background.spawn(self._run(effect, work), name)
        task.add_done_callback(partial(self._ran, work))

    def _ran(self, work: Work, task: asyncio.Task[None]) -> None:
        """Here and not in `_run`, because a task that is cancelled before its first step runs
        nothing of it.
        """
        stop = asyncio.CancelledError() if task.cancelled() else task.exception()
        if stop is not None:
            work.close()
            self._break(stop)
            self._ended()

    async def _run(self, effect: msg.Effect, work: Work) -> None:
        event = await self._event(effect, work)
        self._running -= 1
        if event is not None:
            self._feed(event)
        if not self._running:
            self._ended()

    async def _event(self, effect: msg.Effect, work: Work) -> msg.Event | None:
        try:
            return await work
        except KvorumError as error:
            match effect:
                case msg.Heartbeat() | msg.Resolve() | msg.Finish():
                    return None  # the next one does it
                case _:
                    return msg.Failed(effect, error)

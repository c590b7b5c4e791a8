"""One commit under way: the shell around `txn.core`. It performs effects, feeds the answers back
as events, and answers the caller.

The caller awaits a future, while every message is a task of the client's background set, so that
neither a caller that goes away nor an early answer leaves a message or its answer unowned: a commit
that was cancelled before it was decided is rolled back, one that was decided is finished. What is
usual needs no task: the caller's own does what must be done first, first prewrites are answered by
callback, and what comes behind the answer travels with that of others (txn/ends.py).

Invariants
  * the answer is given once; `ended` is called once, when nothing of this commit is under way;
  * readers of this client see it as committed when the record says so, not before.

What the messages are and how they are tried again: txn/sending.py. Sources: txn/core.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, assert_never, overload

from kv.base.errors import KvorumError
from kv.base.limits import UNSTAGE_MS
from kv.base.methods import COMMITTED, PREWRITE
from kv.base.ports import Handle
from kv.client.calls import Started
from txn import core
from txn import messages as msg
from txn.ends import LOST, End
from txn.refusals import caller_gone, deadline_exceeded
from txn.resolver import Outcome
from txn.sending import Request, Sending, Shared
from txn.trace import CommitTrace, Message
from txn.waiting import Deadline


class Commit:
    """One run of the protocol."""

    def __init__(
        self,
        shared: Shared,
        request: Request,
        deadline: Deadline,
        ended: Callable[[], None],
        trace: CommitTrace,
    ) -> None:
        self._shared = shared
        self._request = request
        self._core = core.CommitCore(request.start_ts, request.ops, parallel=shared.parallel)
        self._send = Sending(shared, request, self._core, deadline, trace)
        self._deadline = deadline
        self._answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._running = 0
        self._tried = False
        self._release = ended
        self._released = False
        if request.terms.owner:
            shared.resolver.owners[request.start_ts] = request.terms.owner
        self._timers: list[Handle] = []

    async def run(self, first: tuple[Started, BaseException] | None = None) -> int:
        """The commit version. `first`: all was sent as one WRITE, and how that failed.

        As long as one thing is to be done at a time (finding the partition, and writing if there is
        only one), the caller's own task does it: most transactions never need another. When the
        time for work is over, the timers end what would be tried again and again.
        """
        effects = self._core.start() if first is None else self._all_in_one()
        try:
            while len(effects) == 1 and isinstance(alone := effects[0], msg.Group | msg.Write):
                if self._tried and self._send.work.passed:
                    break
                self._tried = True
                effects = self._core.step(await self._event(alone, self._first(alone, first)))
                first = None
            if self._shared.background.closed and not isinstance(effects[0], msg.Finish):
                raise self._core.interrupted(unsent=effects)
        except BaseException as stop:
            if isinstance(stop, asyncio.CancelledError):
                self.caller_is_gone()
            if not self._running:
                self._ended()
            raise
        self._perform(effects)
        if not self._running:
            self._ended()
            return self._answer.result()
        self._arm()
        try:
            return await self._answer
        except asyncio.CancelledError:
            self.caller_is_gone()
            raise

    def _first(
        self, effect: msg.Group | msg.Write, failed: tuple[Started, BaseException] | None
    ) -> Coroutine[Any, Any, msg.Grouped | msg.Written]:
        if isinstance(effect, msg.Group):
            return self._send.group(effect)
        return self._send.write(effect, failed)

    def _all_in_one(self) -> list[msg.Effect]:
        """One partition has it all, and was sent it."""
        (group,) = self._core.start()
        assert isinstance(group, msg.Group)
        effects = self._core.step(msg.Grouped(group, [group.indexes]))
        assert [type(effect) for effect in effects] == [msg.Write], effects
        return effects

    def abandon(self) -> None:
        """The caller of a commit that was sent as one WRITE went away before its answer."""
        self._all_in_one()
        self.caller_is_gone()

    # -- what txn.small began

    def take_over(
        self,
        answer: asyncio.Future[int],
        asked: Sequence[tuple[msg.Indexes, Started | None, Message]],
    ) -> None:
        """Its prewrites were sent, or (None) could not be; `answer` is what the caller awaits."""
        self._answer = answer
        for (_, first, message), effect in zip(asked, self._staged(asked), strict=True):
            if first is None:
                self._spawn(effect, self._send.prewrite(effect))
                continue
            self._running += 1
            self._shared.background.watch(first.reply)
            first.reply.add_done_callback(partial(self._prewritten, effect, message, first))
        self._arm()

    def _staged(self, asked: Sequence[tuple[msg.Indexes, Any, object]]) -> list[msg.Prewrite]:
        (group,) = self._core.start()
        assert isinstance(group, msg.Group)
        effects = self._core.step(msg.Grouped(group, [part for part, _, _ in asked]))
        sent = [effect for effect in effects if isinstance(effect, msg.Prewrite)]
        assert [effect.indexes for effect in sent] == [part for part, _, _ in asked], effects
        assert self._core.stage, "few, so that it was staged"
        return sent

    def flip_behind(self, answered: Sequence[tuple[msg.Indexes, list[Any]]]) -> None:
        """Its caller was told, by these exact answers; its flip needs more than one message."""
        effects: Sequence[msg.Effect] = ()
        prewrites = self._staged([(part, None, None) for part, _ in answered])
        for effect, (_, reply) in zip(prewrites, answered, strict=True):
            effects = self._core.step(self._send.answered(effect, reply))
        finish, flip = effects
        assert isinstance(finish, msg.Finish), "as it was told"
        self._spawn(flip, self._work_of(flip))

    def resolve_behind(self, part: msg.Indexes, commit_ts: int) -> None:
        """It is committed, and its record says so; this part may have intents yet."""
        effect = msg.Resolve(commit_ts, part)
        self._spawn(effect, self._send.resolve(effect))

    def beat(self) -> None:
        """UNSTAGE_MS are over: it goes on in two phases."""
        self._timers[0].cancel()
        self._beat()

    def _arm(self) -> None:
        if self._timers:
            return
        beat_ms = self._request.ttl_ms / 3
        if self._core.stage:
            beat_ms = min(beat_ms, UNSTAGE_MS)
        self._timers = [self._shared.timers.call_later(beat_ms / 1000, self._beat)]
        if self._send.work.left_ms() <= beat_ms:
            self._arm_rest()

    def _arm_rest(self) -> None:
        """The ends of its time. Most commits never see the first beat, so it arms these."""
        later = self._shared.timers.call_later
        self._timers += (
            later(self._send.work.left_ms() / 1000, self._work_is_over),
            later(self._deadline.left_ms() / 1000, self._feed, msg.OutOfTime()),
        )

    def caller_is_gone(self) -> None:
        self._answer.cancel()
        gone = caller_gone(self._request.start_ts)
        self._arm()
        if len(self._timers) == 1:  # nobody hears the beats of it any more
            self._arm_rest()
        self._feed(msg.GiveUp(gone))

    # -- events

    def _feed(self, event: msg.Event) -> None:
        try:
            self._perform(self._core.step(event))
        except BaseException as bug:
            self._break(bug)
            raise

    def _break(self, error: BaseException) -> None:
        """A bug, or the client is being closed: whoever waits must not wait for ever."""
        for timer in self._timers:
            timer.cancel()
        if isinstance(error, asyncio.CancelledError):
            error = self._core.interrupted()
        if not self._answer.done():
            self._answer.set_exception(error)

    def _work_is_over(self) -> None:
        self._feed(msg.GiveUp(deadline_exceeded(self._request.start_ts)))

    def _beat(self) -> None:
        """Every third of the ttl, while intents lie around and nothing is decided."""
        if self._answer.done():
            return
        timer = self._shared.timers.call_later(self._request.ttl_ms / 3000, self._beat)
        self._timers[0] = timer
        if len(self._timers) == 1:
            self._arm_rest()
        self._perform(self._core.beat())

    def _ended(self) -> None:
        if not self._released:
            self._released = True
            self._send.flip_ended()
            self._shared.resolver.owners.pop(self._request.start_ts, None)
            self._release()

    # -- effects

    def _perform(self, effects: Sequence[msg.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, msg.Finish):
                self._finish(effect.outcome)
            elif not self._needs_no_task(effect):
                self._spawn(effect, self._work_of(effect))

    def _needs_no_task(self, effect: msg.Effect) -> bool:
        """What a small commit does when nothing stands in its way; it is on its way then."""
        match effect:
            case msg.Prewrite():
                return not effect.attempt and self._prewrites_at_once(effect)
            case msg.Flip():
                return not effect.attempt and self._send.behind and self._flips_with_others(effect)
            case msg.Resolve():
                return bool(effect.commit_ts) and self._resolves_with_others(effect)
            case _:
                return False

    def _work_of(self, effect: msg.Effect) -> Coroutine[Any, Any, msg.Event | None]:
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
                return self._send.decide(effect)
            case msg.Heartbeat():
                return self._send.heartbeat()
            case msg.Resolve():
                return self._send.resolve(effect)
            case msg.Finish():
                raise AssertionError("no work")
            case _:
                assert_never(effect)

    def _finish(self, outcome: int | KvorumError) -> None:
        for timer in self._timers:
            timer.cancel()
        self._send.trace.finished()
        if isinstance(outcome, int):
            self._committed(outcome)
        if self._answer.done():
            return  # the caller went away
        if isinstance(outcome, int):
            self._answer.set_result(outcome)
        else:
            self._answer.set_exception(outcome)

    def _committed(self, version: int) -> None:
        """Tell this client's readers, who resolve what they know to be committed: only when the
        record says it, too. Until then they wait for the flip.
        """
        resolver, start_ts = self._shared.resolver, self._request.start_ts
        if self._core.state is core.State.IMPLIED:
            resolver.flipping[start_ts] = asyncio.get_running_loop().create_future()
            return
        resolver.learn(start_ts, Outcome(COMMITTED, commit_ts=version))
        self._send.flip_ended()

    def _flips_with_others(self, effect: msg.Flip) -> bool:
        """By FINISH, together with the intents of its partition."""
        part = next(part for part in self._send.parts if 0 in part)
        message = self._send.trace.sent("COMMIT", len(part), logged=True)
        then = partial(self._flipped, effect, message)
        self._end(part, self._core.anchor, effect.commit_ts, then)
        return True

    def _flipped(
        self, effect: msg.Flip, message: Message, part: msg.Indexes, status: int, left: int
    ) -> None:
        self._send.trace.answered(message)
        if status != COMMITTED:
            self._spawn(effect, self._send.decide(effect))
            return
        self._send.record_says(effect.commit_ts)
        resolved = () if left else part
        self._feed(msg.Answered(effect, COMMITTED, effect.commit_ts, resolved=resolved))

    def _resolves_with_others(self, effect: msg.Resolve) -> bool:
        if not self._core.stage:
            return False
        left = set(effect.indexes)
        for part in self._send.parts:
            if not left.isdisjoint(part):
                left.difference_update(part)
                self._end(part, None, effect.commit_ts, partial(self._resolved, effect.commit_ts))
        if left:  # their prewrites were not answered; somebody else found them, and the commit
            rest = msg.Resolve(effect.commit_ts, tuple(sorted(left)))
            self._spawn(rest, self._send.resolve(rest))
        return True

    def _resolved(self, commit_ts: int, part: msg.Indexes, status: int, left: int) -> None:
        if status != COMMITTED or left:
            effect = msg.Resolve(commit_ts, part)
            self._spawn(effect, self._send.resolve(effect))

    def _end(
        self,
        part: msg.Indexes,
        anchor: bytes | None,
        commit_ts: int,
        then: Callable[[msg.Indexes, int, int], None],
    ) -> None:
        """One end of this transaction, by FINISH (txn.ends)."""

        def done(status: int, left: int) -> None:
            self._running -= 1
            if status == LOST:
                self._break(asyncio.CancelledError())
                self._ended()
                return
            then(part, status, left)
            if not self._running:
                self._ended()

        self._running += 1
        ops = self._core.ops
        keys = list(dict.fromkeys([ops[i].key for i in part]))
        self._shared.ends.add(End(self._request.start_ts, anchor, commit_ts, keys, done))

    def _spawn(self, effect: msg.Effect, work: Coroutine[Any, Any, msg.Event | None]) -> None:
        self._running += 1
        name = f"txn-{self._request.start_ts}-{type(effect).__name__}"
        task = self._shared.background.spawn(self._run(effect, work), name)
        task.add_done_callback(partial(self._ran, work))

    def _ran(self, work: Coroutine[Any, Any, msg.Event | None], task: asyncio.Task[None]) -> None:
        """Here and not in `_run`, because a task that is cancelled before its first step runs
        nothing of it.
        """
        stop = asyncio.CancelledError() if task.cancelled() else task.exception()
        if stop is not None:
            work.close()
            self._break(stop)
            self._ended()

    async def _run(self, effect: msg.Effect, work: Coroutine[Any, Any, msg.Event | None]) -> None:
        event = await self._event(effect, work)
        self._running -= 1
        if event is not None:
            self._feed(event)
        if not self._running:
            self._ended()

    @overload
    async def _event(
        self,
        effect: msg.Group | msg.Write,
        work: Coroutine[Any, Any, msg.Grouped | msg.Written],
    ) -> msg.Event: ...

    @overload
    async def _event(
        self, effect: msg.Effect, work: Coroutine[Any, Any, msg.Event | None]
    ) -> msg.Event | None: ...

    async def _event(
        self, effect: msg.Effect, work: Coroutine[Any, Any, msg.Event | None]
    ) -> msg.Event | None:
        try:
            return await work
        except KvorumError as error:
            match effect:
                case msg.Heartbeat() | msg.Resolve() | msg.Finish():
                    return None  # the next one does it
                case _:
                    return msg.Failed(effect, error)

    def _prewrites_at_once(self, effect: msg.Prewrite) -> bool:
        """The usual case: sent without a task, and answered. False: it needs one."""
        shared = self._shared
        if shared.quick is None or self._request.serializable:
            return False
        args = self._send.prewrite_args(effect)
        first = shared.quick.start(PREWRITE, args[3][0].key, args, self._send.work.budget_ms())
        if first is None:
            return False
        self._running += 1
        message = self._send.trace.sent("PREWRITE", len(args[3]), logged=True)
        shared.background.watch(first.reply)
        first.reply.add_done_callback(partial(self._prewritten, effect, message, first))
        return True

    def _prewritten(
        self,
        effect: msg.Prewrite,
        message: Message,
        first: Started,
        reply: asyncio.Future[list[Any]],
    ) -> None:
        self._shared.background.forget(reply)
        if reply.cancelled():  # this client is being closed
            self._break(asyncio.CancelledError())
            self._ended()
            return
        self._running -= 1
        error = reply.exception()
        if error is not None:
            self._send.trace.answered(message, getattr(error, "code", ""))
            self._spawn(effect, self._send.prewrite(effect, (first, error)))
            return
        self._send.trace.answered(message)
        self._feed(self._send.answered(effect, reply.result()))
        if not self._running:
            self._ended()

"""The shell around `txn.core`: sends its messages, feeds the answers back, answers the caller.

One `Commit` per transaction. The caller awaits a future, while every message is a task of the
client's background set, so that neither a caller that goes away nor an early answer leaves a
message or its answer unowned: a commit that was cancelled before it was decided is rolled back, one
that was decided is finished.

The time of a commit is divided: the work (grouping, prewrites, timestamps) has `WORK_SHARE` of the
deadline, the rest is for learning the outcome of what was sent last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, assert_never, overload

from kv.base.errors import (
    Busy,
    DeadlineExceeded,
    KeyLocked,
    KvorumError,
    Reroute,
    TxnAborted,
    Unavailable,
)
from kv.base.limits import (
    COMMITS_IN_FLIGHT_MAX,
    RETRY_WAIT_MS_FIRST,
    RETRY_WAIT_MS_MAX,
    UNSTAGE_MS,
)
from kv.base.methods import (
    ABORTED,
    BLIND,
    COMMIT,
    COMMITTED,
    HEARTBEAT,
    OP_READ,
    PREWRITE,
    ROLLBACK,
    WRITE,
)
from kv.base.ops import Op
from kv.base.ports import Handle, Rng, Timers
from kv.base.timestamps import MAX
from kv.client.calls import NO_PARTITION, Started
from txn import core
from txn import messages as msg
from txn.ends import LOST, End, Ends
from txn.grouping import by_partition
from txn.ports import Kv, Quick, Tso
from txn.readset import cut, split
from txn.resolver import Outcome, Resolver, resolve
from txn.terms import USUAL, Terms
from txn.trace import CommitTrace, Message
from txn.waiting import Background, Backoff, Deadline

T = TypeVar("T")

WORK_SHARE: Final = 0.8
PATIENCE_SHARE: Final = 0.9  # of the work: waiting for an intent ends with its holder's name
_CLEANING_BUDGET_MS: Final = 5_000  # of one message of the coordinator behind its answer

_LOGGED: Final = {WRITE: "WRITE", PREWRITE: "PREWRITE", COMMIT: "COMMIT", ROLLBACK: "ROLLBACK"}


@dataclass(frozen=True, slots=True)
class Request:
    """What to commit. `blind`: no check for versions above start_ts, since nothing was read."""

    start_ts: int
    ops: Sequence[Op]
    ttl_ms: int
    blind: bool = False
    terms: Terms = USUAL
    serializable: bool = False
    """`ops` end with what it read and does not write (txn.readset); `also_read`: what it writes."""
    also_read: frozenset[bytes] = frozenset()


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
        self.kv = kv
        self.quick = kv if isinstance(kv, Quick) else None
        self.tso = tso
        self.timers = timers
        self.resolver = resolver
        self.background = background
        self.parallel = parallel
        self.backoff = Backoff(timers, rng, first_ms=RETRY_WAIT_MS_FIRST, max_ms=RETRY_WAIT_MS_MAX)
        self.ends = Ends(kv, background)
        self._slots = asyncio.Semaphore(COMMITS_IN_FLIGHT_MAX)

    async def commit(
        self, request: Request, budget_ms: int, trace: CommitTrace | None = None
    ) -> int:
        """The commit version. Raises the participant's error, or UnknownOutcome (txn.core). `trace`
        gets its messages.

        Waits for a slot first: each covers the cleaning behind the answer, too, so intents can not
        pile up.
        """
        deadline = Deadline(self.timers, budget_ms)
        if self._slots.locked():
            await self._slot(deadline)
        else:
            await self._slots.acquire()  # at once
        trace = trace or CommitTrace(self.timers.monotonic)
        commit = Commit(self, request, deadline, self._slots.release, trace)
        return await commit.run()

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
        await self.kv.call(ROLLBACK, anchor, anchor, start_ts, budget_ms=budget_ms)
        self.resolver.learn(start_ts, Outcome(ABORTED))


class Commit:
    """One run of the protocol."""

    def __init__(
        self,
        owner: Coordinator,
        request: Request,
        deadline: Deadline,
        ended: Callable[[], None],
        trace: CommitTrace,
    ) -> None:
        self._owner = owner
        self._kv = owner.kv
        self._request = request
        self._core = core.CommitCore(request.start_ts, request.ops, parallel=owner.parallel)
        self._trace = trace
        self._keys = [op.key for op in request.ops]
        self._deadline = deadline
        left_ms = deadline.left_ms() * WORK_SHARE
        self._work = Deadline(owner.timers, left_ms)
        self._patience = Deadline(owner.timers, left_ms * PATIENCE_SHARE)
        self._answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._parts: list[msg.Indexes] = []  # as they were prewritten, each in one partition then
        self._running = 0
        self._tried = False
        self._release = ended
        self._released = False
        self._said = request.terms.options()
        if request.terms.owner:
            owner.resolver.owners[request.start_ts] = request.terms.owner
        self._timers: list[Handle] = []

    async def run(self) -> int:
        """The commit version.

        As long as one thing is to be done at a time (finding the partition, and writing if there is
        only one), the caller's own task does it: most transactions never need another. When the
        time for work is over, the timers end what would be tried again and again.
        """
        effects = self._core.start()
        try:
            while len(effects) == 1 and isinstance(alone := effects[0], msg.Group | msg.Write):
                if self._tried and self._work.passed:
                    break
                self._tried = True
                effects = self._core.step(await self._event(alone, self._first(alone)))
            if self._owner.background.closed and not isinstance(effects[0], msg.Finish):
                raise self._core.interrupted(unsent=effects)
        except BaseException as stop:
            if isinstance(stop, asyncio.CancelledError):
                self._caller_is_gone()
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
            self._caller_is_gone()
            raise

    def _first(
        self, effect: msg.Group | msg.Write
    ) -> Coroutine[Any, Any, msg.Grouped | msg.Written]:
        return self._group(effect) if isinstance(effect, msg.Group) else self._write(effect)

    def _arm(self) -> None:
        if self._timers:
            return
        beat_ms = self._request.ttl_ms / 3
        if self._core.stage:
            beat_ms = min(beat_ms, UNSTAGE_MS)
        self._timers = [self._owner.timers.call_later(beat_ms / 1000, self._beat)]
        if self._work.left_ms() <= beat_ms:
            self._arm_rest()

    def _arm_rest(self) -> None:
        """The ends of its time. Most commits never see the first beat, so it arms these."""
        later = self._owner.timers.call_later
        self._timers += (
            later(self._work.left_ms() / 1000, self._work_is_over),
            later(self._deadline.left_ms() / 1000, self._feed, msg.OutOfTime()),
        )

    def _caller_is_gone(self) -> None:
        self._answer.cancel()
        gone = TxnAborted(
            f"the caller of transaction {self._request.start_ts} went away",
            details={"txn": self._request.start_ts, "reason": "cancelled"},
        )
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
        self._feed(msg.GiveUp(core.deadline_exceeded(self._request.start_ts)))

    def _beat(self) -> None:
        """Every third of the ttl, while intents lie around and nothing is decided."""
        if self._answer.done():
            return
        timer = self._owner.timers.call_later(self._request.ttl_ms / 3000, self._beat)
        self._timers[0] = timer
        if len(self._timers) == 1:
            self._arm_rest()
        self._perform(self._core.beat())

    def _ended(self) -> None:
        if not self._released:
            self._released = True
            self._flip_ended()
            self._owner.resolver.owners.pop(self._request.start_ts, None)
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
                return not effect.attempt and self._behind and self._flips_with_others(effect)
            case msg.Resolve():
                return bool(effect.commit_ts) and self._resolves_with_others(effect)
            case _:
                return False

    def _work_of(self, effect: msg.Effect) -> Coroutine[Any, Any, msg.Event | None]:
        match effect:
            case msg.Group():
                return self._group(effect)
            case msg.Write():
                return self._write(effect)
            case msg.Prewrite():
                return self._prewrite(effect)
            case msg.TakeTimestamp():
                return self._take(effect)
            case msg.Flip() | msg.Rollback():
                return self._decide(effect)
            case msg.Heartbeat():
                return self._heartbeat()
            case msg.Resolve():
                return self._resolve(effect)
            case msg.Finish():
                raise AssertionError("no work")
            case _:
                assert_never(effect)

    def _finish(self, outcome: int | KvorumError) -> None:
        for timer in self._timers:
            timer.cancel()
        self._trace.finished()
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
        resolver, start_ts = self._owner.resolver, self._request.start_ts
        if self._core.state is core.State.IMPLIED:
            resolver.flipping[start_ts] = asyncio.get_running_loop().create_future()
            return
        resolver.learn(start_ts, Outcome(COMMITTED, commit_ts=version))
        self._flip_ended()

    def _record_says(self, commit_ts: int) -> None:
        """It was flipped, after its caller had been answered."""
        outcome = Outcome(COMMITTED, commit_ts=commit_ts)
        self._owner.resolver.learn(self._request.start_ts, outcome)
        self._flip_ended()

    def _flip_ended(self) -> None:
        flipping = self._owner.resolver.flipping.pop(self._request.start_ts, None)
        if flipping is not None:
            flipping.set_result(None)

    @property
    def _behind(self) -> bool:
        """Whether the answer was given by the intents alone."""
        return self._core.state is core.State.IMPLIED

    def _flips_with_others(self, effect: msg.Flip) -> bool:
        """By FINISH, together with the intents of its partition."""
        part = next(part for part in self._parts if 0 in part)
        message = self._trace.sent("COMMIT", len(part), logged=True)
        then = partial(self._flipped, effect, message)
        self._end(part, self._core.anchor, effect.commit_ts, then)
        return True

    def _flipped(
        self, effect: msg.Flip, message: Message, part: msg.Indexes, status: int, left: int
    ) -> None:
        self._trace.answered(message)
        if status != COMMITTED:
            self._spawn(effect, self._decide(effect))
            return
        self._record_says(effect.commit_ts)
        resolved = () if left else part
        self._feed(msg.Answered(effect, COMMITTED, effect.commit_ts, resolved=resolved))

    def _resolves_with_others(self, effect: msg.Resolve) -> bool:
        if not self._core.stage:
            return False
        left = set(effect.indexes)
        for part in self._parts:
            if not left.isdisjoint(part):
                left.difference_update(part)
                self._end(part, None, effect.commit_ts, partial(self._resolved, effect.commit_ts))
        assert not left, "what was touched was prewritten"
        return True

    def _resolved(self, commit_ts: int, part: msg.Indexes, status: int, left: int) -> None:
        if status != COMMITTED or left:
            effect = msg.Resolve(commit_ts, part)
            self._spawn(effect, self._resolve(effect))

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
        self._owner.ends.add(End(self._request.start_ts, anchor, commit_ts, keys, done))

    def _spawn(self, effect: msg.Effect, work: Coroutine[Any, Any, msg.Event | None]) -> None:
        self._running += 1
        name = f"txn-{self._request.start_ts}-{type(effect).__name__}"
        task = self._owner.background.spawn(self._run(effect, work), name)
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

    async def _wait(self, attempt: int, deadline: Deadline | None) -> None:
        if attempt:
            await self._owner.backoff.wait(attempt - 1, deadline)

    async def _group(self, effect: msg.Group) -> msg.Grouped:
        await self._wait(effect.attempt, self._work)
        indexes: Sequence[int] = effect.indexes
        if self._request.serializable:
            indexes = await self._cut(indexes)
        groups = await by_partition(self._kv, self._keys, indexes)
        return msg.Grouped(effect, [tuple(group) for group in groups])

    async def _cut(self, indexes: Sequence[int]) -> list[int]:
        """Ranges that were read lie in one partition each, then."""
        places: list[int] = []
        for index in indexes:
            op = self._core.ops[index]
            pieces = await cut(self._kv, op) if op.kind == OP_READ else [op]
            places += self._core.cut(index, pieces) if len(pieces) > 1 else [index]
        self._keys = [op.key for op in self._core.ops]
        return places

    @property
    def _flags(self) -> int:
        return BLIND if self._request.blind else 0

    async def _write(self, effect: msg.Write) -> msg.Written:
        await self._wait(effect.attempt, self._work)
        request, ops = self._request, self._core.ops
        options: Mapping[str, Any] = self._said
        if request.serializable:
            ops, reads = split(ops, request.also_read)
            options = {**options, **reads}
        args = (ops, request.start_ts, self._flags, *_optional(options))
        (version,) = await self._past_intents(WRITE, ops[0].key, args)
        return msg.Written(version)

    def _prewrite_args(self, effect: msg.Prewrite) -> tuple[Any, ...]:
        request, ops = self._request, [self._core.ops[i] for i in effect.indexes]
        args = (request.start_ts, self._core.anchor, request.ttl_ms, ops, self._flags)
        return (*args, *_optional(self._options(effect)))

    def _prewrites_at_once(self, effect: msg.Prewrite) -> bool:
        """The usual case: sent without a task, and answered. False: it needs one."""
        owner = self._owner
        if owner.quick is None or self._request.serializable:
            return False
        args = self._prewrite_args(effect)
        first = owner.quick.start(PREWRITE, args[3][0].key, args, self._work.budget_ms())
        if first is None:
            return False
        self._running += 1
        message = self._trace.sent("PREWRITE", len(args[3]), logged=True)
        owner.background.watch(first.reply)
        first.reply.add_done_callback(partial(self._prewritten, effect, message, first))
        return True

    def _prewritten(
        self,
        effect: msg.Prewrite,
        message: Message,
        first: Started,
        reply: asyncio.Future[list[Any]],
    ) -> None:
        self._owner.background.forget(reply)
        if reply.cancelled():  # this client is being closed
            self._break(asyncio.CancelledError())
            self._ended()
            return
        self._running -= 1
        error = reply.exception()
        if error is not None:
            self._trace.answered(message, getattr(error, "code", ""))
            self._spawn(effect, self._prewrite(effect, (first, error)))
            return
        self._trace.answered(message)
        self._feed(self._answered(effect, reply.result()))
        if not self._running:
            self._ended()

    def _answered(self, effect: msg.Prewrite, reply: list[Any]) -> msg.Prewritten:
        self._parts.append(effect.indexes)
        return msg.Prewritten(effect, reply[0], exact=reply[1:2] == [True])

    async def _prewrite(
        self, effect: msg.Prewrite, failed: tuple[Started, BaseException] | None = None
    ) -> msg.Event:
        """`failed`: its first attempt."""
        await self._wait(effect.attempt, self._work)
        if self._request.serializable:
            return await self._guard(effect)
        args = self._prewrite_args(effect)
        reply = await self._past_intents(PREWRITE, args[3][0].key, args, failed)
        return self._answered(effect, reply)

    def _options(self, effect: msg.Prewrite) -> Mapping[str, Any]:
        stage = self._core.stage
        if not stage or not self._core.bounded:
            return self._said
        parallel: dict[str, Any] = {"fence": True}
        if 0 in effect.indexes:  # with the anchor
            parallel["stage"] = [list(part) for part in stage]
        return {**self._said, **parallel}

    async def _guard(self, effect: msg.Prewrite) -> msg.Event:
        """Prewrite, and guard what was read; long ranges need several requests."""
        request, part = self._request, [self._core.ops[i] for i in effect.indexes]
        ops, reads = split(part, request.also_read)
        said, min_commit_ts, before_ts = {**self._options(effect), **reads}, 0, MAX
        while True:
            args = (request.start_ts, self._core.anchor, request.ttl_ms, ops, self._flags)
            bound, *more = await self._past_intents(
                PREWRITE, part[0].key, (*args, *_optional(said))
            )
            exact, before, left = more if reads else (more[:1] == [True], 0, 0)
            min_commit_ts = max(min_commit_ts, bound)
            before_ts = min(before_ts, before or MAX)
            if not left:
                self._parts.append(effect.indexes)
                before_ts = 0 if before_ts == MAX else before_ts
                return msg.Prewritten(effect, min_commit_ts, exact=exact, before_ts=before_ts)
            ops, said = [], {**self._said, "ranges": reads["ranges"]}

    async def _past_intents(
        self,
        method: int,
        key: bytes,
        args: tuple[Any, ...],
        failed: tuple[Started, BaseException] | None = None,
    ) -> Any:
        """Send a write; intents of others on its keys are resolved or waited for. `failed`: it was
        sent once, and how that ended.
        """
        attempt, rows = 0, max(1, len(args[3 if method == PREWRITE else 0]))
        while True:
            try:
                if failed is not None:
                    quick, again, failed = self._owner.quick, failed, None
                    assert quick is not None, "who sent it"
                    return await quick.go_on(*again)
                return await self._call(
                    method, key, *args, budget_ms=self._work.budget_ms(), rows=rows
                )
            except KeyLocked as met:
                await self._owner.resolver.met_by_write(met, attempt, self._patience)
                attempt += 1

    async def _take(self, effect: msg.TakeTimestamp) -> msg.Event:
        attempt = 0
        while (ts := await self._traced("TSO", self._owner.tso.now())) < effect.above:
            attempt += 1
            await self._wait(attempt, self._work)
        return msg.Timestamp(ts)

    async def _call(
        self, method: int, key: bytes, *args: Any, budget_ms: int, rows: int = 1
    ) -> Any:
        """`Kv.call`, recorded."""
        work = self._kv.call(method, key, *args, budget_ms=budget_ms)
        return await self._traced(_LOGGED[method], work, rows)

    async def _traced(self, name: str, work: Awaitable[T], rows: int = 0) -> T:
        """`rows` 0: it needs no log."""
        message = self._trace.sent(name, rows, logged=rows > 0)
        try:
            result = await work
        except KvorumError as error:
            self._trace.answered(message, error.code)
            raise
        self._trace.answered(message)
        return result

    async def _decide(self, effect: msg.Flip | msg.Rollback) -> msg.Event:
        anchor, start_ts = self._core.anchor, self._request.start_ts
        behind = self._behind
        await self._wait(effect.attempt, self._deadline if not behind else None)
        budget_ms = _CLEANING_BUDGET_MS if behind else self._deadline.budget_ms()
        if isinstance(effect, msg.Flip):
            try:
                status, commit_ts, min_commit_ts = await self._call(
                    COMMIT, anchor, anchor, start_ts, effect.commit_ts, budget_ms=budget_ms
                )
            except (Unavailable, DeadlineExceeded):
                if not (behind and await self._owner.resolver.dropped(anchor)):
                    raise
                # Its record went with a table. It is committed, nobody else can tell that any more,
                # and nobody can write anything else down: so its other keys are resolved from here.
                status, commit_ts, min_commit_ts = COMMITTED, effect.commit_ts, 0
            if behind and status == COMMITTED:
                self._record_says(commit_ts)
            return msg.Answered(effect, status, commit_ts, min_commit_ts)
        own = ({"own": True},) if self._core.stage else ()
        status, commit_ts = await self._call(
            ROLLBACK, anchor, anchor, start_ts, *own, budget_ms=budget_ms
        )
        if status == ABORTED:
            self._owner.resolver.learn(start_ts, Outcome(ABORTED))
        return msg.Answered(effect, status, commit_ts)

    async def _heartbeat(self) -> msg.Event:
        anchor, ttl_ms = self._core.anchor, self._request.ttl_ms
        options = {"ttl_ms": ttl_ms, "owner": self._request.terms.owner}
        (status,) = await self._kv.call(
            HEARTBEAT,
            anchor,
            anchor,
            self._request.start_ts,
            options,
            budget_ms=max(1, ttl_ms // 3),
        )
        return msg.Beat(status)

    async def _resolve(self, effect: msg.Resolve) -> None:
        """Clean up, partition by partition in requests of a bounded size. What fails here is left
        to readers.
        """
        todo: list[int] = list(effect.indexes)
        for attempt in range(3):  # again only what moved meanwhile
            moved: list[int] = []
            await self._wait(attempt, self._deadline)
            unknown: list[int] = []  # in a table that was dropped
            for group in await by_partition(self._kv, self._keys, todo, unknown):
                for part in core.parts(self._core.ops, group):
                    try:
                        await self._resolve_part(effect.commit_ts, part)
                    except Reroute:
                        moved += part
                    except Unavailable as error:
                        if error.code != NO_PARTITION:
                            raise
            todo = moved
            if not todo:
                return

    async def _resolve_part(self, commit_ts: int, part: Sequence[int]) -> None:
        # an intent and a guard may begin at one key
        keys = list(dict.fromkeys(self._core.ops[i].key for i in part))
        start_ts = self._request.start_ts
        await resolve(self._kv, keys, start_ts, commit_ts, budget_ms=_CLEANING_BUDGET_MS)


def _optional(options: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return (options,) if options else ()

"""The messages of one commit: what an effect of `txn.core` asks for is sent, waited for, tried past
the intents of others, and told as an event.

`Sending` decides nothing: it neither knows which message is due nor what follows from an answer. It
keeps what messages of one commit share: its deadlines, its trace, and which parts were prewritten
together. Every method is one effect and runs as one task (or in the caller's); `txn.commit` starts
them and owns them. A refusal leaves as KvorumError.

Invariants
  * work (grouping, prewrites, timestamps) ends with `work`; what asks the record has the deadline,
    and behind the answer (IMPLIED) a budget of its own;
  * a write waits for a foreign intent only as long as `patience`: the error names its holder;
  * keys are grouped anew for every attempt: partitions are split and merged under a commit.

Left out here: messages that travel with those of other commits (txn/ends.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kv.base.errors import DeadlineExceeded, KeyLocked, KvorumError, Reroute, Unavailable
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
from kv.base.ports import Timers
from kv.base.timestamps import MAX
from kv.client.calls import NO_PARTITION, Started
from txn import messages as msg
from txn.core import CommitCore, State
from txn.cutting import parts
from txn.ends import Ends
from txn.grouping import by_partition
from txn.ports import Kv, Quick, Tso
from txn.readset import cut, split
from txn.resolver import Outcome, Resolver, resolve
from txn.terms import USUAL, Terms
from txn.trace import CommitTrace
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


@dataclass(slots=True)
class Shared:
    """What all commits of one client use."""

    kv: Kv
    quick: Quick | None  # the same, if it can send without a task
    tso: Tso
    timers: Timers
    resolver: Resolver
    background: Background
    backoff: Backoff
    ends: Ends
    parallel: bool


class Sending:
    """The messages of one commit."""

    __slots__ = (
        "_core",
        "_deadline",
        "_keys",
        "_kv",
        "_patience",
        "_request",
        "_said",
        "_shared",
        "parts",
        "trace",
        "work",
    )

    def __init__(
        self,
        shared: Shared,
        request: Request,
        commit_core: CommitCore,
        deadline: Deadline,
        trace: CommitTrace,
    ) -> None:
        self._shared, self._kv = shared, shared.kv
        self._request, self._core = request, commit_core
        self._keys = [op.key for op in request.ops]
        self._said = request.terms.options()
        self._deadline = deadline
        left_ms = deadline.left_ms() * WORK_SHARE
        self.work = Deadline(shared.timers, left_ms)
        self._patience = Deadline(shared.timers, left_ms * PATIENCE_SHARE)
        self.trace = trace
        self.parts: list[msg.Indexes] = []  # as they were prewritten, each in one partition then

    @property
    def behind(self) -> bool:
        """Whether the answer was given by the intents alone."""
        return self._core.state is State.IMPLIED

    def flip_ended(self) -> None:
        """Readers of this client waited for the record; it says what it will say."""
        flipping = self._shared.resolver.flipping.pop(self._request.start_ts, None)
        if flipping is not None:
            flipping.set_result(None)

    def record_says(self, commit_ts: int) -> None:
        """It was flipped, after its caller had been answered."""
        outcome = Outcome(COMMITTED, commit_ts=commit_ts)
        self._shared.resolver.learn(self._request.start_ts, outcome)
        self.flip_ended()

    async def _wait(self, attempt: int, deadline: Deadline | None) -> None:
        if attempt:
            await self._shared.backoff.wait(attempt - 1, deadline)

    async def group(self, effect: msg.Group) -> msg.Grouped:
        await self._wait(effect.attempt, self.work)
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

    async def write(
        self, effect: msg.Write, failed: tuple[Started, BaseException] | None = None
    ) -> msg.Written:
        """`failed`: its first attempt."""
        await self._wait(effect.attempt, self.work)
        request, ops = self._request, self._core.ops
        options: Mapping[str, Any] = self._said
        if request.serializable:
            ops, reads = split(ops, request.also_read)
            options = {**options, **reads}
        args = write_args(request, ops, options)
        (version,) = await self._past_intents(WRITE, ops[0].key, args, failed)
        return msg.Written(version)

    def prewrite_args(self, effect: msg.Prewrite) -> tuple[Any, ...]:
        request, ops = self._request, [self._core.ops[i] for i in effect.indexes]
        args = (request.start_ts, self._core.anchor, request.ttl_ms, ops, self._flags)
        return (*args, *_optional(self._options(effect)))

    def answered(self, effect: msg.Prewrite, reply: list[Any]) -> msg.Prewritten:
        self.parts.append(effect.indexes)
        return msg.Prewritten(effect, reply[0], exact=reply[1:2] == [True])

    async def prewrite(
        self, effect: msg.Prewrite, failed: tuple[Started, BaseException] | None = None
    ) -> msg.Event:
        """`failed`: its first attempt."""
        await self._wait(effect.attempt, self.work)
        if self._request.serializable:
            return await self._guard(effect)
        args = self.prewrite_args(effect)
        reply = await self._past_intents(PREWRITE, args[3][0].key, args, failed)
        return self.answered(effect, reply)

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
                self.parts.append(effect.indexes)
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
                    quick, again, failed = self._shared.quick, failed, None
                    assert quick is not None, "who sent it"
                    return await quick.go_on(*again)
                return await self._call(
                    method, key, *args, budget_ms=self.work.budget_ms(), rows=rows
                )
            except KeyLocked as met:
                await self._shared.resolver.met_by_write(met, attempt, self._patience)
                attempt += 1

    async def take(self, effect: msg.TakeTimestamp) -> msg.Event:
        attempt = 0
        while (ts := await self._traced("TSO", self._shared.tso.now())) < effect.above:
            attempt += 1
            await self._wait(attempt, self.work)
        return msg.Timestamp(ts)

    async def _call(
        self, method: int, key: bytes, *args: Any, budget_ms: int, rows: int = 1
    ) -> Any:
        """`Kv.call`, recorded."""
        work = self._kv.call(method, key, *args, budget_ms=budget_ms)
        return await self._traced(_LOGGED[method], work, rows)

    async def _traced(self, name: str, work: Awaitable[T], rows: int = 0) -> T:
        """`rows` 0: it needs no log."""
        message = self.trace.sent(name, rows, logged=rows > 0)
        try:
            result = await work
        except KvorumError as error:
            self.trace.answered(message, error.code)
            raise
        self.trace.answered(message)
        return result

    async def decide(self, effect: msg.Flip | msg.Rollback) -> msg.Event:
        anchor, start_ts = self._core.anchor, self._request.start_ts
        behind = self.behind
        await self._wait(effect.attempt, self._deadline if not behind else None)
        budget_ms = _CLEANING_BUDGET_MS if behind else self._deadline.budget_ms()
        if isinstance(effect, msg.Flip):
            try:
                status, commit_ts, min_commit_ts = await self._call(
                    COMMIT, anchor, anchor, start_ts, effect.commit_ts, budget_ms=budget_ms
                )
            except (Unavailable, DeadlineExceeded):
                if not (behind and await self._shared.resolver.dropped(anchor)):
                    raise
                # Its record went with a table. It is committed, nobody else can tell that any more,
                # and nobody can write anything else down: so its other keys are resolved from here.
                status, commit_ts, min_commit_ts = COMMITTED, effect.commit_ts, 0
            if behind and status == COMMITTED:
                self.record_says(commit_ts)
            return msg.Answered(effect, status, commit_ts, min_commit_ts)
        own = ({"own": True},) if self._core.stage else ()
        status, commit_ts = await self._call(
            ROLLBACK, anchor, anchor, start_ts, *own, budget_ms=budget_ms
        )
        if status == ABORTED:
            self._shared.resolver.learn(start_ts, Outcome(ABORTED))
        return msg.Answered(effect, status, commit_ts)

    async def heartbeat(self) -> msg.Event:
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

    async def resolve(self, effect: msg.Resolve) -> None:
        """Clean up, partition by partition in requests of a bounded size. What fails here is left
        to readers.
        """
        todo: list[int] = list(effect.indexes)
        for attempt in range(3):  # again only what moved meanwhile
            moved: list[int] = []
            await self._wait(attempt, self._deadline)
            unknown: list[int] = []  # in a table that was dropped
            for group in await by_partition(self._kv, self._keys, todo, unknown):
                for part in parts(self._core.ops, group):
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


def write_args(request: Request, ops: Sequence[Op], options: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of a WRITE."""
    flags = BLIND if request.blind else 0
    return (ops, request.start_ts, flags, *_optional(options))


def rows_args(
    request: Request, keys: list[bytes], values: list[bytes], absent: bool
) -> tuple[Any, ...]:
    """The arguments of a WRITE_ROWS."""
    options = request.terms.options()
    if absent:
        options = {**options, "absent": True}
    flags = BLIND if request.blind else 0
    return (keys, values, request.start_ts, flags, *_optional(options))


def _optional(options: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return (options,) if options else ()

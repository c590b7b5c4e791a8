"""The messages of one commit: what an effect of `txn.commit.core` asks for is sent, waited for,
tried past the intents of others, and reported as an event.

`Sending` decides nothing: it neither knows which message is due nor what follows from an answer. It
keeps what messages of one commit share: its deadlines, its trace, and which parts were prewritten
together. Every method is one effect and runs as one task (or in the caller's); `txn.commit.shell`
starts them and owns them. A refusal leaves as KvorumError.

Invariants
  * work (grouping, prewrites, timestamps) ends with `work`; what asks the record has the deadline,
    and after the answer (IMPLIED) a budget of its own;
  * a write waits for a foreign intent only as long as `patience`: the error names its holder;
  * keys are grouped anew for every attempt: partitions are split and merged under a commit.

Left out here: messages that travel with those of other commits (txn/commit/finishing.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from msgspec import Struct

from kv.base.errors import DeadlineExceeded, KeyLocked, KvorumError, Reroute, Unavailable
from kv.base.methods import (
    ABORTED,
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
from txn.buffered.read_set import cut, split
from txn.commit import effects as msg
from txn.commit.core import CommitCore, State
from txn.commit.finishing import Ends
from txn.commit.trace import CommitTrace
from txn.intents.resolver import Outcome, Resolver, resolve
from txn.shared.deadlines import Alarm, Background, Backoff, Deadline
from txn.shared.grouping import by_partition
from txn.shared.message_sizes import Indexes, parts
from txn.shared.ports import Kv, Quick, Tso
from txn.shared.wait_terms import USUAL, Terms

T = TypeVar("T")

WORK_SHARE: Final = 0.8
PATIENCE_SHARE: Final = 0.9  # of the work: waiting for an intent ends with its holder's name
_CLEANING_BUDGET_MS: Final = 5_000  # of one message of the coordinator after its answer

_LOGGED: Final = {WRITE: "WRITE", PREWRITE: "PREWRITE", COMMIT: "COMMIT", ROLLBACK: "ROLLBACK"}


class Request(Struct, frozen=True):
    """What to commit. `flags`: BLIND, if nothing was read: no check for versions
    above start_ts.
    """

    start_ts: int
    ops: Sequence[Op]
    ttl_ms: int
    flags: int = 0
    terms: Terms = USUAL
    serializable: bool = False
    """`ops` end with what it read and does not write (txn.buffered.read_set); `also_read`: what it
    writes.
    """
    also_read: frozenset[bytes] = frozenset()
    locked: bool = False
    """Keys of it were locked before (txn.row_locks), so its record is there …"""
    shared: bool = False
    """… some only to share them: of what it read those hold by themselves."""
    beaten: bool = False
    """… and a heartbeat of that may still come, which would take STAGING back: it is flipped."""
    since: int = 0
    """As of when the ranges were read, if that was later than start_ts."""

    def reads_of(self, ops: Sequence[Op]) -> tuple[list[Op], dict[str, object]]:
        """The writes of a part, and what was read, as options."""
        writes, reads = split(ops, self.also_read)
        if self.since and "ranges" in reads:
            reads["since"] = self.since
        return writes, reads


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
    unstaging: Alarm  # of those whose prewrites take long
    parallel: bool


class Sending:
    """The messages of one commit."""

    __slots__ = (
        "_deadline",
        "_keys",
        "_kv",
        "_patience",
        "_request",
        "_shared",
        "_trace",
        "core",
        "work",
    )

    def __init__(
        self,
        shared: Shared,
        request: Request,
        core: CommitCore,
        deadline: Deadline,
        trace: CommitTrace,
    ) -> None:
        self._shared, self._kv = shared, shared.kv
        self._request, self.core = request, core
        self._keys = [op.key for op in request.ops]
        self._deadline = deadline
        left_ms = deadline.left_ms() * WORK_SHARE
        self.work = Deadline(shared.timers, left_ms)
        self._patience = Deadline(shared.timers, left_ms * PATIENCE_SHARE)
        self._trace = trace

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
            op = self.core.ops[index]
            pieces = await cut(self._kv, op) if op.kind == OP_READ else [op]
            places += self.core.cut(index, pieces) if len(pieces) > 1 else [index]
        self._keys = [op.key for op in self.core.ops]
        return places

    async def write(
        self, effect: msg.Write, failed: tuple[Started, BaseException] | None = None
    ) -> msg.Written:
        """`failed`: its first attempt."""
        await self._wait(effect.attempt, self.work)
        request, ops = self._request, self.core.ops
        options: Mapping[str, object] = request.terms.options
        if request.serializable:
            ops, reads = request.reads_of(ops)
            options = {**options, **reads}
        args = write_args(request, ops, options)
        (version,) = await self._past_intents(WRITE, ops[0].key, args, failed)
        return msg.Written(version)

    async def prewrite(
        self, effect: msg.Prewrite, failed: tuple[Started, BaseException] | None = None
    ) -> msg.Event:
        """`failed`: its first attempt."""
        await self._wait(effect.attempt, self.work)
        if self._request.serializable:
            return await self._guard(effect)
        args = part_args(self._request, self.core, effect.indexes)
        low, *exact = await self._past_intents(PREWRITE, args[3][0].key, args, failed)
        return msg.Prewritten(effect, low, exact=exact[:1] == [True])

    async def _guard(self, effect: msg.Prewrite) -> msg.Event:
        """Prewrite, and guard what was read; long ranges need several requests."""
        request, part = self._request, [self.core.ops[i] for i in effect.indexes]
        ops, reads = request.reads_of(part)
        options = {**part_options(request, self.core, effect.indexes), **reads}
        min_commit_ts, before_ts = 0, MAX
        while True:
            args = prewrite_args(
                request.start_ts, self.core.anchor, request.ttl_ms, (ops, request.flags), options
            )
            bound, *more = await self._past_intents(PREWRITE, part[0].key, args)
            exact, before, left = more if reads else (more[:1] == [True], 0, 0)
            min_commit_ts = max(min_commit_ts, bound)
            before_ts = min(before_ts, before or MAX)
            if not left:
                before_ts = 0 if before_ts == MAX else before_ts
                return msg.Prewritten(effect, min_commit_ts, exact=exact, before_ts=before_ts)
            ranges = {name: value for name, value in reads.items() if name != "reads"}
            ops, options = [], {**request.terms.options, **ranges}

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
        self, method: int, key: bytes, *args: object, budget_ms: int, rows: int = 1
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

    async def decide(self, effect: msg.Flip | msg.Rollback) -> msg.Answered:
        anchor, start_ts = self.core.anchor, self._request.start_ts
        implied = self.core.state is State.IMPLIED
        await self._wait(effect.attempt, self._deadline if not implied else None)
        budget_ms = _CLEANING_BUDGET_MS if implied else self._record_budget_ms()
        if isinstance(effect, msg.Flip):
            try:
                status, commit_ts, min_commit_ts = await self._call(
                    COMMIT, anchor, anchor, start_ts, effect.commit_ts, budget_ms=budget_ms
                )
            except (Unavailable, DeadlineExceeded):
                if not (implied and await self._shared.resolver.dropped(anchor)):
                    raise
                # Its record went with a table. It is committed, nobody else can tell that any more,
                # and nobody can write anything else down: so its other keys are resolved from here.
                status, commit_ts, min_commit_ts = COMMITTED, effect.commit_ts, 0
            return msg.Answered(effect, status, commit_ts, min_commit_ts)
        own = ({"own": True},) if self.core.stage else ()
        status, commit_ts = await self._call(
            ROLLBACK, anchor, anchor, start_ts, *own, budget_ms=budget_ms
        )
        if status == ABORTED:
            self._shared.resolver.learn(start_ts, Outcome(ABORTED))
        return msg.Answered(effect, status, commit_ts)

    def _record_budget_ms(self) -> int:
        return self._deadline.budget_ms()

    async def heartbeat(self) -> msg.Event:
        anchor, ttl_ms = self.core.anchor, self._request.ttl_ms
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
                for part in parts(self.core.ops, group):
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
        keys = list(dict.fromkeys(self.core.ops[i].key for i in part))
        start_ts = self._request.start_ts
        await resolve(self._kv, keys, start_ts, commit_ts, budget_ms=_CLEANING_BUDGET_MS)


def part_args(request: Request, core: CommitCore, part: Indexes) -> tuple[Any, ...]:
    """The arguments of the PREWRITE of a part, but of what it read."""
    rows = ([core.ops[i] for i in part], request.flags)
    options = part_options(request, core, part)
    return prewrite_args(request.start_ts, core.anchor, request.ttl_ms, rows, options)


def part_options(request: Request, core: CommitCore, part: Indexes) -> Mapping[str, Any]:
    """Its options: of a staged one that its intents leave bounds, and at the anchor all keys."""
    options = request.terms.options
    if request.locked:
        options = {**options, "locked": True}
        if request.shared:
            options["shared"] = True
    if not core.stage or not core.bounded:
        return options
    if 0 in part:
        return {**options, "fence": True, "stage": list(map(list, core.stage))}
    return {**options, "fence": True}


def prewrite_args(
    start_ts: int,
    anchor: bytes,
    ttl_ms: int,
    rows: tuple[object, object],
    options: Mapping[str, object],
) -> tuple[object, ...]:
    """The arguments of every PREWRITE (`rows`: ops and flags) and PREWRITE_ROWS (keys, values)."""
    if options:
        return (start_ts, anchor, ttl_ms, *rows, options)
    return (start_ts, anchor, ttl_ms, *rows)


def write_args(
    request: Request, ops: Sequence[Op] | Sequence[bytes], options: Mapping[str, object]
) -> tuple[object, ...]:
    """The arguments of a WRITE (or, after their keys, the values of a WRITE_ROWS)."""
    if options:
        return (ops, request.start_ts, request.flags, options)
    return (ops, request.start_ts, request.flags)


def rows_args(
    request: Request, keys: list[bytes], values: list[bytes], absent: bool
) -> tuple[object, ...]:
    """The arguments of a WRITE_ROWS."""
    options = request.terms.options
    if absent:
        options = {**options, "absent": True}
    return (keys, *write_args(request, values, options))

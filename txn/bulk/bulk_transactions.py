"""Transactions whose writes do not fit in memory: the caller streams them, part by part, under one
transaction id.

The same protocol as `txn.commit.core` (prewrite, fresh commit timestamp, one flip at the anchor,
resolve), without a buffer: the caller chooses the anchor, keeps the id durably before it uses it,
and can do every part again after a crash, because all messages are idempotent. So a durable
procedure drives it, step by step (`procedures.sink.sink_commit`). Writes are blind: nothing was
read, so there is nothing to conflict with; intents of others are waited for.

Transactions that need no anchor of their own among the rows may be committed by another one
(`beside`): their records are begun and kept alive by `keep`.

Two that touch the same keys in different orders may be a deadlock, and one has to begin again. Give
those the same anchor: it is locked first, so they come one after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, TypeAlias

from kv.base.errors import (
    KeyLocked,
    Moved,
    NotLeader,
    Reroute,
    TryLater,
    TxnAborted,
    Unavailable,
    UnknownOutcome,
)
from kv.base.limits import (
    BULK_PART_BUDGET_MS,
    BULK_PIECES_IN_FLIGHT_MAX,
    BULK_TTL_MS,
    LOAD_SCANS_LOOK_MS,
    PREWRITE_BYTES_MAX,
    PREWRITE_KEYS_MAX,
    PREWRITES_IN_FLIGHT_MAX,
    TXN_TTL_MS_MAX,
)
from kv.base.methods import (
    ABORTED,
    BLIND,
    COMMIT,
    COMMITTED,
    HEARTBEAT,
    PENDING,
    PREWRITE,
    PREWRITE_ROWS,
    RESOLVE,
    ROLLBACK,
)
from kv.base.ops import Op
from kv.base.ports import Timers
from kv.base.waits import WAITED
from kv.mvcc.packed_rows import PackedKeys, opened, pack_values
from txn.commit.sending import prewrite_args
from txn.intents.resolver import Resolver
from txn.shared.deadlines import Backoff, Deadline, Rests, sleep
from txn.shared.grouping import by_partition, end_of_part
from txn.shared.message_sizes import row_runs
from txn.shared.ports import Kv, Tso
from txn.shared.together import together
from txn.shared.wait_terms import USUAL, Terms

Get: TypeAlias = Callable[[bytes], Awaitable[tuple[bytes | None, int]]]
Record: TypeAlias = tuple[bytes, int]
"""Anchor and start_ts of a transaction."""
_BESIDE_S: Final = TXN_TTL_MS_MAX / 6000  # from one time that those beside are kept to the next
Rows: TypeAlias = tuple[Sequence[bytes], Sequence[bytes | None] | bytes]
"""Keys, which rise, and values; PackedKeys and bytes: packed."""


class BulkTransactions:
    """Begins, asks for and cleans up bulk transactions of one client."""

    def __init__(
        self,
        kv: Kv,
        tso: Tso,
        *,
        resolver: Resolver,
        backoff: Backoff,
        timers: Timers,
        get: Get,
        loop_s: Callable[[], float] = float,
    ) -> None:
        """`get`: a point read that finishes what it meets (`TxnClient.get`). `loop_s`: seconds that
        the loop's thread has used of a processor.
        """
        self.kv, self.tso, self.timers, self._loop_s = kv, tso, timers, loop_s
        self.resolver, self.backoff, self._get = resolver, backoff, get

    async def read(self, key: bytes) -> bytes | None:
        """The newest value at `key`, None if there is none."""
        value, _ = await self._get(key)
        return value

    async def fresh_ts(self) -> int:
        """A transaction id. Keep it durably before `begin`."""
        return await self.tso.now()

    def begin(
        self,
        start_ts: int,
        anchor: bytes,
        *,
        checked: bool = False,
        locked: bool = False,
        terms: Terms = USUAL,
        beside: Sequence[Record] = (),
        met: Callable[[KeyLocked], None] | None = None,
        met_ms: int = 0,
    ) -> BulkTransaction:
        """A transaction that goes on where an earlier run of the same id ended. `checked`: it has
        read at start_ts, so newer versions of its keys are conflicts. `locked`: it has row locks,
        whose places its intents take. `beside`: those that are to
        be committed with it are kept alive meanwhile. `met` is called with each intent of others
        that live, when it has waited `met_ms` for it, and may raise instead of waiting on.
        """
        return BulkTransaction(
            self,
            start_ts,
            anchor,
            checked=checked,
            locked=locked,
            terms=terms,
            beside=beside,
            met=met,
            met_ms=met_ms,
        )

    async def lives(self, record: Record) -> bool:
        """Whether a transaction, whose record was there, is still to be decided."""
        anchor, start_ts = record
        outcome, _ = await self.resolver.check(
            start_ts, anchor, ttl_ms=BULK_TTL_MS, budget_ms=BULK_PART_BUDGET_MS
        )
        return outcome.status == PENDING

    async def keep(self, records: Sequence[Record], ttl_ms: int, *, user: str = "") -> bool:
        """Begin these transactions' records, or say that their owner lives: from now on each may be
        silent for `ttl_ms`. False: one of them was rolled back. `user`: whose those are that are
        begun.
        """
        alive = True
        said = {"ttl_ms": ttl_ms, "user": user} if user else {"ttl_ms": ttl_ms}

        async def keep(anchor: bytes, start_ts: int) -> None:
            nonlocal alive
            try:
                (status,) = await self.kv.call(
                    HEARTBEAT, anchor, anchor, start_ts, said, budget_ms=BULK_TTL_MS
                )
            except TxnAborted:  # so old that it is forgotten
                status = ABORTED
            alive = alive and status != ABORTED

        await _each(records, keep)
        return alive

    async def end(self, records: Sequence[Record]) -> dict[int, int]:
        """`roll_back` of each: their commit_ts by start_ts, 0 if it is rolled back."""
        outcomes: dict[int, int] = {}

        async def end(anchor: bytes, start_ts: int) -> None:
            status, commit_ts = await self.roll_back(anchor, start_ts)
            outcomes[start_ts] = commit_ts if status == COMMITTED else 0

        await _each(records, end)
        return outcomes

    async def commit(
        self, start_ts: int, anchor: bytes, min_commit_ts: int, beside: Sequence[Record] = ()
    ) -> tuple[int, int]:
        """Flip the status: everything that was prewritten is committed, together with the
        transactions `beside` it. (COMMITTED | ABORTED, commit_ts), whoever decided it; doing it
        again gives the same answer. ABORTED, too, if one beside it is over; then it should be
        rolled back. Raises a retryable error while it cannot be known.
        """
        more = [{"beside": [list(one) for one in beside]}] if beside else []
        deadline = Deadline(self.timers, BULK_PART_BUDGET_MS)
        attempt = 0
        while True:
            ts = await self.tso.now()
            if ts >= min_commit_ts:
                try:
                    status, commit_ts, low = await self.kv.call(
                        COMMIT, anchor, anchor, start_ts, ts, *more, budget_ms=deadline.budget_ms()
                    )
                except TxnAborted:
                    return ABORTED, 0
                if status != PENDING:
                    return int(status), int(commit_ts)
                min_commit_ts = max(min_commit_ts, low)
            if deadline.passed:
                raise Unavailable(f"transaction {start_ts} is pushed all the time; ask again")
            await self.backoff.wait(attempt, deadline)
            attempt += 1

    async def roll_back(self, anchor: bytes, start_ts: int) -> tuple[int, int]:
        """Abort it for good, unless it is committed: (ABORTED | COMMITTED, commit_ts)."""
        status, commit_ts = await self.kv.call(
            ROLLBACK, anchor, anchor, start_ts, budget_ms=BULK_PART_BUDGET_MS
        )
        return int(status), int(commit_ts)

    async def resolve(self, keys: Sequence[bytes], start_ts: int, commit_ts: int) -> None:
        """Turn the intents on `keys` into versions of `commit_ts` (0: remove them). Doing it again
        is harmless.
        """
        deadline = Deadline(self.timers, BULK_PART_BUDGET_MS)
        todo, attempt = list(keys), 0
        while todo:
            again: list[bytes] = []
            for group in await by_partition(self.kv, todo, range(len(todo))):
                for at in range(0, len(group), PREWRITE_KEYS_MAX):
                    part = [todo[i] for i in group[at : at + PREWRITE_KEYS_MAX]]
                    try:
                        _, left = await self.kv.call(
                            RESOLVE,
                            part[0],
                            start_ts,
                            commit_ts,
                            part,
                            budget_ms=deadline.budget_ms(),
                        )
                    except (Reroute, TryLater, UnknownOutcome):
                        if deadline.passed:
                            raise
                        await self.backoff.wait(attempt, deadline)
                        attempt += 1
                        left = len(part)
                    if left:
                        again += part
            todo = again

    async def resolve_rows(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        start_ts: int,
        commit_ts: int,
    ) -> None:
        """`resolve` for what `prewrite_rows` was given. It laid one chunk per message, and whoever
        names one key of a chunk resolves it whole; where that is not all of a message's keys (some
        were locked or resolved before), each is named.
        """
        for message, _ in row_runs(keys, values):
            at = 0
            while at < len(message):
                high = await end_of_part(self.kv, message, at)
                part, at = message[at:high], high
                try:
                    resolved, _ = await self.kv.call(
                        RESOLVE,
                        part[0],
                        start_ts,
                        commit_ts,
                        [part[0]],
                        budget_ms=BULK_PART_BUDGET_MS,
                    )
                except (Reroute, TryLater, UnknownOutcome):
                    resolved = 0
                if resolved != len(part):
                    await self.resolve(part, start_ts, commit_ts)

    async def resolve_laid(
        self,
        laid: Sequence[tuple[bytes, int]],
        start_ts: int,
        commit_ts: int,
        *,
        anchor: bytes | None = None,
        pages: Callable[[], int] | None = None,
    ) -> list[bytes]:
        """`resolve_rows` for a caller that knows by `prewrite_rows` what it laid, and need not have
        the rows. The first keys of chunks that were not there and whole (a run before a crash, a
        reader that was faster): go over their rows. One chunk after the other with rests between
        them, as after a load, while others use the loop. `anchor`: only what has its record there,
        if somebody else says what was laid. `pages`: it does not rest, since the next
        statement may write these rows, but waits while scans of this client read so many pages
        through such chunks.
        """
        of = () if anchor is None else (anchor,)
        missed: list[bytes] = []
        alone, seen = pages is not None, 0
        waiting = deque(laid)
        rests = Rests(self.timers, self._loop_s)

        async def one(first: bytes, rows: int) -> None:
            try:
                resolved, _ = await self.kv.call(
                    RESOLVE,
                    first,
                    start_ts,
                    commit_ts,
                    [first],
                    *of,
                    budget_ms=BULK_PART_BUDGET_MS,
                )
            except (Reroute, TryLater, UnknownOutcome):
                resolved = 0
            if resolved != rows:
                missed.append(first)

        while waiting:
            while pages and seen != (seen := pages()) and not rests.yields.passed:
                await sleep(self.timers, LOAD_SCANS_LOOK_MS / 1000)
            began = self.timers.monotonic()
            async with together() as tasks:
                for _ in range(min(len(waiting), BULK_PIECES_IN_FLIGHT_MAX if alone else 1)):
                    tasks.create_task(one(*waiting.popleft()))
            if not pages:
                alone = not waiting or not await rests.rest(self.timers.monotonic() - began)
        return missed


class BulkTransaction:
    """One run of one transaction id. Close it when done, committed or not: a heartbeat runs until
    then.
    """

    def __init__(
        self,
        owner: BulkTransactions,
        start_ts: int,
        anchor: bytes,
        *,
        checked: bool = False,
        locked: bool = False,
        terms: Terms = USUAL,
        beside: Sequence[Record] = (),
        met: Callable[[KeyLocked], None] | None = None,
        met_ms: int = 0,
    ) -> None:
        said = terms.options if met is None else {**terms.options, "wait_ms": met_ms}
        self._beside, self._met = beside, met
        self._flags = 0 if checked else BLIND
        self._options = {**said, "locked": True} if locked else said
        self._rows_options = {**said, "over": True} if locked else said
        if checked:
            self._rows_options = {**self._rows_options, "checked": True}
        self._owner, self.start_ts, self.anchor = owner, start_ts, anchor
        self.min_commit_ts = start_ts + 1
        self.before_ts = 0  # 0 = it may commit whenever that is
        self._beats: list[asyncio.Task[None]] = []
        self._lost: TxnAborted | None = None

    async def prewrite(self, ops: Sequence[Op]) -> None:
        """Lay down intents, of few rows; the anchor first of all. Raises TxnAborted once it was
        rolled back, ConditionFailed.
        """
        for group in await by_partition(self._owner.kv, [op.key for op in ops], range(len(ops))):
            part = [ops[i] for i in group]
            await self._send(PREWRITE, part[0].key, (part, self._flags), self._options)
        self._live()

    async def keep_shared(self, keys: Sequence[bytes]) -> None:
        """What it has locked to share stays as it is until the end. Keys rise. Raises
        WriteConflict: a lock was lost, and its key was written.
        """
        for group in await by_partition(self._owner.kv, keys, range(len(keys))):
            for at in range(0, len(group), PREWRITE_KEYS_MAX):
                part = [keys[i] for i in group[at : at + PREWRITE_KEYS_MAX]]
                options = {**self._options, "reads": part, "shared": True}
                await self._send(PREWRITE, part[0], ([], self._flags), options)

    async def prewrite_rows(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        laid: list[tuple[bytes, int]] | None = None,
    ) -> None:
        """Intents to put the values (None: delete) at the keys, which rise; by the thousand. The
        anchor is not among them. `laid` gets first key and rows of each message (`resolve_laid`).
        Raises TxnAborted.
        """
        await self._prewrite(row_runs(keys, values), laid)

    async def _prewrite(
        self, messages: Sequence[Rows], laid: list[tuple[bytes, int]] | None = None
    ) -> None:
        waiting = deque(messages)
        while waiting:
            async with together() as tasks:
                for _ in range(min(len(waiting), PREWRITES_IN_FLIGHT_MAX)):
                    part_keys, part_values = waiting.popleft()
                    tasks.create_task(self.send_rows(part_keys, part_values, laid=laid))

    async def prewrite_pieces(
        self,
        pieces: AsyncGenerator[Sequence[Rows], None],
        laid: list[tuple[bytes, int]],
        arrived: Callable[[int], object],
        *,
        at_once: int,
    ) -> None:
        """`prewrite_rows` of each piece, which is cut into messages already; `arrived` is called
        with how many rows it had. `at_once` of them are under way, so that the next is read and
        evaluated while the disk has the one before; 1 if two may have one key, of which the first
        is to stay. Raises what `pieces` raises, too.
        """
        room = asyncio.Semaphore(at_once)

        async def lay(messages: Sequence[Rows]) -> None:
            await self._prewrite(messages, laid)
            arrived(sum(len(keys) for keys, _ in messages))
            room.release()

        async with together() as tasks, aclosing(pieces):
            async for messages in pieces:
                await room.acquire()
                tasks.create_task(lay(messages))

    async def send_rows(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None] | bytes,
        *,
        absent: bool = False,
        firsts: list[bytes] | None = None,
        laid: list[tuple[bytes, int]] | None = None,
    ) -> None:
        """`prewrite_rows` of a legal size: one message for each partition that serves a part of
        these keys. `absent`: none of them may be there (ConditionFailed); the caller has seen to it
        that none is sent twice. `firsts` gets the first key of each message: it lays one chunk.
        `laid`: those that arrived, with their rows. Packed rows (kv/mvcc/packed_rows.py), of any
        size, go as they are if they are one legal message. Raises InvalidArgument if they are no
        rows.
        """
        options = {**self._rows_options, "absent": True} if absent else self._rows_options
        if isinstance(values, bytes):
            assert isinstance(keys, PackedKeys)
            if await self._send_packed(keys, values, options, firsts, laid):
                return
            for part in row_runs(*opened(keys, values)):
                await self.send_rows(*part, absent=absent, firsts=firsts, laid=laid)
            return
        at = 0
        while at < len(keys):
            high = await end_of_part(self._owner.kv, keys, at)
            if firsts is not None:
                firsts.append(keys[at])
            try:
                await self._send(
                    PREWRITE_ROWS, keys[at], _sent(keys[at:high], values[at:high]), options
                )
            except Moved:
                continue  # the partition was split meanwhile: the cache has learned where
            if laid is not None:
                laid.append((keys[at], high - at))
            at = high

    async def _send_packed(
        self,
        keys: PackedKeys,
        values: bytes,
        options: Mapping[str, object],
        firsts: list[bytes] | None,
        laid: list[tuple[bytes, int]] | None,
    ) -> bool:
        """False: they do not fit one message to one partition; nothing was done."""
        size = len(keys.packed) + len(values)
        if len(keys) > PREWRITE_KEYS_MAX or (len(keys) > 1 and size > PREWRITE_BYTES_MAX):
            return False
        while True:
            descriptor = await self._owner.kv.locate(keys.first)
            if descriptor.end and keys.last >= descriptor.end:
                return False
            try:
                await self._send(PREWRITE_ROWS, keys.first, (keys.sent(), values), options)
            except Moved:
                continue  # the partition was split meanwhile: the cache has learned where
            if firsts is not None:
                firsts.append(keys.first)
            if laid is not None:
                laid.append((keys.first, len(keys)))
            return True

    def stop(self) -> None:
        """`close`, without waiting for it."""
        for beat in self._beats:
            beat.cancel()

    async def close(self) -> None:
        """End the heartbeat."""
        self.stop()
        beats, self._beats = self._beats, []
        if beats:
            await asyncio.wait(beats)

    # -- inside

    async def _send(
        self, method: int, key: bytes, rows: tuple[Any, ...], options: Mapping[str, object]
    ) -> None:
        """One prewrite message until it is answered. Raises Moved if its rows do not lie in one
        partition any more.
        """
        if self._lost is not None:
            raise self._lost
        owner, deadline, attempt = self._owner, Deadline(self._owner.timers, BULK_PART_BUDGET_MS), 0
        args = prewrite_args(self.start_ts, self.anchor, BULK_TTL_MS, rows, options)
        while True:
            try:
                low, *more = await owner.kv.call(method, key, *args, budget_ms=deadline.budget_ms())
            except KeyLocked as met:
                if self._met is not None:
                    met.details.pop(WAITED, None)  # it waited but little, so it looks again
                    if await owner.resolver.lives(met, deadline):
                        self._met(met)
                await owner.resolver.met_by_write(met, attempt, deadline)
            except (NotLeader, TryLater, UnknownOutcome):
                if deadline.passed:
                    raise
                await owner.backoff.wait(attempt, deadline)
            else:
                self.min_commit_ts = max(self.min_commit_ts, low)
                if len(more) > 1 and more[1]:  # of what was read
                    self.before_ts = min(self.before_ts or more[1], more[1])
                return
            attempt += 1

    def _live(self) -> None:
        if self._beats:
            return
        loop = asyncio.get_running_loop()
        self._beats.append(loop.create_task(self._heartbeats(), name=f"bulk-{self.start_ts}"))
        if self._beside:
            keeping = self._keep_beside()
            self._beats.append(loop.create_task(keeping, name=f"beside-{self.start_ts}"))

    async def _keep_beside(self) -> None:
        """Those may be many: the own heartbeats do not wait for theirs."""
        while True:
            await sleep(self._owner.timers, _BESIDE_S)
            with suppress(TryLater, Reroute, UnknownOutcome):
                await self._owner.keep(self._beside, TXN_TTL_MS_MAX)

    async def _heartbeats(self) -> None:
        while True:
            await sleep(self._owner.timers, BULK_TTL_MS / 3000)
            try:
                (status,) = await self._owner.kv.call(
                    HEARTBEAT,
                    self.anchor,
                    self.anchor,
                    self.start_ts,
                    budget_ms=BULK_TTL_MS // 3,
                )
            except (TryLater, Reroute, UnknownOutcome):
                continue
            if status == ABORTED:
                self._lost = self._killed()
                return

    def _killed(self) -> TxnAborted:
        return TxnAborted(
            f"bulk transaction {self.start_ts} was rolled back: it went without a heartbeat for"
            f" {BULK_TTL_MS} ms",
            details={"txn": self.start_ts, "reason": "expired"},
        )


async def _each(records: Sequence[Record], do: Callable[[bytes, int], Awaitable[None]]) -> None:
    """Some at once. Raises the first error."""
    waiting = deque(records)

    async def some() -> None:
        while waiting:
            await do(*waiting.popleft())

    async with together() as tasks:
        for _ in range(min(len(waiting), PREWRITES_IN_FLIGHT_MAX)):
            tasks.create_task(some())


def _sent(keys: Sequence[bytes], values: Sequence[bytes | None]) -> tuple[object, object]:
    """Rows as a request has them: packed, so that the partition keeps and logs them as they come,
    and remembers of their keys a fifth of what a list of them takes.
    """
    return PackedKeys.of(keys).sent(), pack_values(values)

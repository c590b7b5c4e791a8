"""The commit of a transaction whose writes are spilled: streamed (txn/bulk/streaming.py), part by
part.

The writes come from the buffer's runs in key order, once to be prewritten and once more to be
resolved. Rows without a condition, and rows that must be new, go as chunk intents
(txn/bulk/bulk_transactions), checked for versions above the snapshot; the others one by one. At any
moment LARGE_IN_FLIGHT_MAX messages are in memory, here and at a partition, whatever the size of the
transaction.

One that has locked rows (txn/row_locks.py) keeps its locks until its intents take their places, one
by one: nobody comes between.

A caller that goes away, or a client that is closed, stops it between two messages; what it laid
down by then is rolled back, or expires.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final

from kv.base.errors import ConditionFailed, Moved
from kv.base.limits import LARGE_IN_FLIGHT_MAX, PREWRITE_BYTES_MAX, PREWRITE_KEYS_MAX
from kv.base.methods import OP_CHECK, OP_DELETE, OP_PUT, OP_TOMBSTONE
from kv.base.ops import Op, check
from kv.mvcc.refusals import write_conflict
from txn.buffered.write_buffer import WriteBuffer
from txn.bulk.bulk_transactions import BulkTransaction, BulkTransactions
from txn.bulk.streaming import Streaming
from txn.commit.sending import Shared
from txn.row_locks import RowLocks
from txn.shared.message_sizes import op_bytes, runs
from txn.shared.together import together
from txn.shared.wait_terms import Terms

_MOVES_MAX: Final = 4
_ROWS: Final = frozenset((OP_PUT, OP_DELETE))


class Portion:
    """What goes in one message for each of its three kinds."""

    __slots__ = ("keys", "new_keys", "new_values", "others", "values")

    def __init__(self, ops: Sequence[Op], locked: Collection[bytes] = ()) -> None:
        """Of one op at least; those on keys that are `locked` go one by one."""
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []
        self.new_keys: list[bytes] = []  # puts where nothing may be
        self.new_values: list[bytes | None] = []
        self.others: list[Op] = []  # with another condition, or a time to live, …
        kinds, keys, values, conds, ttls = zip(*ops, strict=True)
        plain = set(ttls) == {0} and set(conds) == {None} and set(kinds) <= _ROWS
        if plain and not (locked and any(key in locked for key in keys)):
            self.keys, self.values = list(keys), list(values)
            return
        for op in ops:
            if op.key in locked:
                self.others.append(op)
            elif op.kind == OP_PUT and op.cond == 0 and not op.ttl_ms:
                self.new_keys.append(op.key)
                self.new_values.append(op.value)
            elif op.kind in (OP_CHECK, OP_TOMBSTONE) or op.cond is not None or op.ttl_ms:
                self.others.append(op)
            else:
                self.keys.append(op.key)
                self.values.append(op.value)

    def __len__(self) -> int:
        return len(self.keys) + len(self.new_keys) + len(self.others)


def portions(ops: Iterator[Op], anchor: bytes, locked: Collection[bytes] = ()) -> Iterator[Portion]:
    """All ops but the anchor's, in portions of a legal size."""
    while some := list(islice(ops, PREWRITE_KEYS_MAX)):
        some = [op for op in some if op.key != anchor]
        if sum([len(op.key) + len(op.value or b"") for op in some]) <= PREWRITE_BYTES_MAX:
            yield from (Portion(some, locked),) if some else ()
        else:
            yield from (Portion(run, locked) for run in runs(some, op_bytes))


class LargeCommit:
    """One run of it. The buffer is closed at its end."""

    def __init__(
        self,
        shared: Shared,
        bulk: BulkTransactions,
        start_ts: int,
        buffer: WriteBuffer,
        terms: Terms,
        *,
        locks: RowLocks | None = None,
        checked: bool = True,
        pages: Callable[[], int] | None = None,
    ) -> None:
        """`checked`: as that of `BulkTransactions.begin`; `pages`: see its `resolve_laid`."""
        self._bulk, self._buffer, self._pages = bulk, buffer, pages
        self._laid: list[tuple[bytes, int]] = []  # the first key and the rows of each chunk
        self._whole = False  # all chunks are laid, and there is nothing else
        versions = {} if locks is None else locks.versions
        self._versions = versions
        self._shared = [] if locks is None else sorted(locks.shared)
        self._only_locked = [
            check(key, version) for key, version in versions.items() if buffer.op(key) is None
        ]
        anchor = b"" if locks is None else locks.anchor
        if anchor in versions:
            self._anchor = buffer.op(anchor) or check(anchor, versions[anchor])
        else:
            self._anchor = anchor_of(buffer)
        self._start_ts = start_ts
        self._txn = bulk.begin(
            start_ts, self._anchor.key, checked=checked, locked=locks is not None, terms=terms
        )
        self._streaming = Streaming(
            shared,
            self._txn,
            self._anchor,
            terms,
            lay=self._lay,
            clean=self._clean,
            ended=buffer.close,
        )

    async def run(self) -> int:
        """The commit version. Raises what a participant refuses, or UnknownOutcome."""
        return await self._streaming.commit()

    async def _lay(self) -> None:
        try:
            await self._prewrite()
        except ConditionFailed as error:
            error.details["op"] = None  # its place in a message says nothing to the caller
            key = error.details["key"]
            given = self._buffer.op(key)
            if key in self._versions and (given is None or given.cond is None):
                newest = int(error.details["version"] or 0)
                raise write_conflict(key, newest, self._start_ts) from error
            raise

    def _ops(self) -> Iterator[Op]:
        """All that is prewritten."""
        if not self._versions:
            return self._buffer.stream()
        return map(self._conditioned, chain(self._buffer.stream(), self._only_locked))

    def _conditioned(self, op: Op) -> Op:
        """On a locked key its version is the condition, if there is no other
        (`RowLocks.conditions`).
        """
        version = None if op.cond is not None else self._versions.get(op.key)
        return op if version is None else op._replace(cond=version)

    def _portions(self) -> Iterator[Portion]:
        return portions(self._ops(), self._anchor.key, self._versions)

    async def _prewrite(self) -> None:
        await self._txn.prewrite([self._conditioned(self._anchor)])
        if self._shared:
            await _while_moving(partial(self._txn.keep_shared, self._shared))
        waiting = self._portions()
        laid, others = 1, 0
        while some := list(islice(waiting, LARGE_IN_FLIGHT_MAX)):
            self._streaming.check_wanted()
            async with together() as group:
                for portion in some:
                    group.create_task(_send(self._txn, portion, self._laid))
            laid += sum(map(len, some))
            others += sum(len(portion.others) for portion in some)
            del some
        whole = len(self._buffer) + len(self._only_locked)
        assert laid == whole, f"{laid} of {whole} keys are prewritten"
        self._whole = not others

    async def _clean(self, version: int) -> None:
        """Chunk by chunk; where that is not all that lies there, row by row."""
        start_ts = self._start_ts
        first = dict.fromkeys((self._anchor.key, *self._shared))
        await self._bulk.resolve(list(first), start_ts, version)
        if self._whole:
            missed = await self._bulk.resolve_laid(self._laid, start_ts, version, pages=self._pages)
            if not missed:
                self._bulk.resolver.forget_load(start_ts)
                return
        for portion in self._portions():
            for keys, values in (
                (portion.keys, portion.values),
                (portion.new_keys, portion.new_values),
            ):
                if keys:
                    await self._bulk.resolve_rows(keys, values, start_ts, version)
            if portion.others:
                await self._bulk.resolve([op.key for op in portion.others], start_ts, version)


def anchor_of(buffer: WriteBuffer) -> Op:
    """The first write; the first check if there is none."""
    written = (op for op in buffer.stream() if op.kind != OP_CHECK)
    return next(written, None) or next(buffer.stream())


async def _send(txn: BulkTransaction, portion: Portion, laid: list[tuple[bytes, int]]) -> None:
    if portion.keys:
        await txn.send_rows(portion.keys, portion.values, laid=laid)
    if portion.new_keys:
        await txn.send_rows(portion.new_keys, portion.new_values, absent=True, laid=laid)
    if portion.others:
        await _while_moving(partial(txn.prewrite, portion.others))


async def _while_moving(send: Callable[[], Awaitable[None]]) -> None:
    for attempt in range(_MOVES_MAX):
        try:
            await send()
            return
        except Moved:  # split meanwhile: they are grouped anew
            if attempt == _MOVES_MAX - 1:
                raise

"""The staged rows of a part, read back chunk by chunk, checked against their checksums, and what is
done about two rows with one key.

A part is never in memory as a whole. What is remembered to find duplicates are hashes of keys: of
SINK_UNIQUE_ROWS rows at a time, so a part of more rows is read several times; two keys of one hash
are compared as what they are before anything is refused. To know which of several rows of one key
has the highest order (`winners`), every key is remembered: at most SINK_ORDERED_ROWS_MAX.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from typing import NamedTuple, TypeAlias

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, TooLarge
from kv.base.keys import table_prefix
from kv.mvcc.packed_rows import PackedKeys, opened
from procedures.sink.format.sink_parts import LAST, ORDER, REFUSE, Part, two_rows
from procedures.sink.format.sink_records import (
    DUPLICATE,
    Apart,
    add_crc,
    chunk_key,
    is_laid,
    packed_rows,
    trusted,
)
from procedures.sink.sink_ports import Show, SinkRefused
from txn.bulk.bulk_transactions import Rows
from txn.shared.message_sizes import row_runs

Read: TypeAlias = Callable[[bytes], Awaitable[bytes | None]]
"""The newest value at a storage key."""


class Piece(NamedTuple):
    """One chunk. `at` rises with the tasks and their chunks."""

    at: int
    keys: list[bytes]
    values: list[bytes | None]
    orders: list[bytes] | None


async def chunks(part: Part, read: Read) -> AsyncIterator[Piece]:
    """All chunks of the manifest's tasks, in the order of their numbers. Raises SinkRefused for
    what is missing or damaged.
    """
    async for at, chunk in stored(part, read):
        yield Piece(at, *_opened(chunk))


async def stored(
    part: Part, read: Read, *, backwards: bool = False
) -> AsyncIterator[tuple[int, bytes]]:
    """`chunks` as they were staged."""
    at = part.chunks if backwards else -1
    for _, task, count, _, crc in sorted(part.manifest, reverse=backwards):
        running = 0
        for seq in reversed(range(count)) if backwards else range(count):
            chunk = part.inline.get(task)
            if chunk is None:
                chunk = await read(chunk_key(part.attempt, task, seq))
            if chunk is None:
                raise SinkRefused(f"chunk {seq} of task {task} is missing", code="SINK_MANIFEST")
            running = add_crc(running, seq, chunk)
            at += -1 if backwards else 1
            if not is_laid(chunk):  # else its rows are in the table
                yield at, chunk
        if running != crc:
            raise SinkRefused(
                f"the checksum of what task {task} staged is {running}, not {crc}; run the batch"
                " again",
                code="SINK_CORRUPT",
            )


def moderate(part: Part) -> bool:
    """Whether a batch is so small that all of it may be in memory, and done again after a crash."""
    if part.placed:
        return False
    return part.rows <= limits.SINK_STEP_ROWS and part.chunks <= limits.SINK_STEP_CHUNKS


async def merged(
    part: Part, chunks: Iterable[bytes], show: Show | None = None
) -> dict[bytes, bytes | None]:
    """The rows of its chunks, which are in the order of their numbers: of rows with one key the
    last. Raises SinkRefused if there may be one only; not without `show`, when that was seen to.
    """
    rows: dict[bytes, bytes | None] = {}
    for chunk in chunks:
        keys, values, _ = _opened(chunk)
        if show is not None and part.twice == REFUSE and not rows.keys().isdisjoint(keys):
            raise duplicate(await show(next(key for key in keys if key in rows)))
        rows.update(zip(keys, values, strict=True))
    return rows


async def rows_of(
    part: Part, read: Read, show: Show | None = None
) -> AsyncGenerator[tuple[Sequence[bytes], Sequence[bytes | None]], None]:
    """(storage keys that rise, values) of the batch, piece by piece; the same pieces at every call.

    A moderate batch is one piece, so that its tasks share messages (`show` as in `merged`); else
    each is one message (`messages_of`), so that whoever resolves it finds it as it was laid. Of
    rows with one key the last stays. Last chunk first, since of two intents on one key the first
    stays: so the last row of a key wins, as in a small batch. Raises SinkRefused for what is
    missing or damaged.
    """
    prefix = table_prefix(part.table)
    if moderate(part):
        rows = await merged(part, [chunk async for _, chunk in stored(part, read)], show)
        rising = sorted(rows)
        yield list(map(prefix.__add__, rising)), [rows[key] for key in rising]
        return
    async for _, chunk in stored(part, read, backwards=True):
        for keys, values in _messages(chunk, prefix):
            yield keys, values


async def messages_of(
    part: Part, read: Read, show: Show, doubts: Doubts | None
) -> AsyncGenerator[Sequence[Rows], None]:
    """`rows_of`, cut into messages; chunks of packed rows are cut already, and go as they lie.
    Raises InvalidArgument, too.
    """
    if moderate(part):
        async for keys, values in rows_of(part, read, show):
            yield row_runs(keys, values)
        return
    prefix = table_prefix(part.table)
    async for _, chunk in stored(part, read, backwards=True):
        messages = _cut(chunk, prefix)
        if doubts is not None:
            for run, _ in messages:
                doubts.add_run(run)
        yield messages


def _cut(chunk: bytes, prefix: bytes) -> Sequence[Rows]:
    """A staged chunk as messages. Raises InvalidArgument."""
    if (packed := packed_rows(chunk, prefix)) is not None:
        return packed
    keys, values, _ = trusted(chunk)
    return row_runs(list(map(prefix.__add__, keys)), values)


def _messages(
    chunk: bytes, prefix: bytes
) -> Iterator[tuple[Sequence[bytes], Sequence[bytes | None]]]:
    """`_cut`, unpacked. Raises SinkRefused."""
    try:
        for keys, values in _cut(chunk, prefix):
            if isinstance(values, bytes):
                assert isinstance(keys, PackedKeys)
                yield opened(keys, values)
            else:
                yield keys, values
    except (InvalidArgument, TooLarge) as error:
        raise damaged(error) from error


def _opened(chunk: bytes) -> tuple[list[bytes], list[bytes | None], list[bytes] | None]:
    try:
        return trusted(chunk)
    except (InvalidArgument, TooLarge) as error:
        raise damaged(error) from error


def damaged(error: KvorumError) -> SinkRefused:
    """A task's program staged what it must not."""
    return SinkRefused(
        f"what was staged is no rows of a table: {error.message}", code="SINK_CORRUPT"
    )


def duplicate(shown: str) -> SinkRefused:
    return SinkRefused(two_rows(shown), code=DUPLICATE)


class Doubts:
    """Hashes of the keys that were seen; what two keys had is in doubt.

    While runs of keys lie apart, as those of a sorted frame do, nothing is hashed: only where they
    begin and end is remembered, and the runs, until one meets another.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._apart: Apart | None = Apart()
        self._runs: list[Sequence[bytes]] = []
        self.hashes: set[int] = set()

    def add_run(self, keys: Sequence[bytes]) -> None:
        """Keys that rise."""
        if self._apart is not None and keys:
            if self._apart.add(keys[0], keys[-1]):
                self._runs.append(keys)
                return
            self._apart = None
            for run in self._runs:
                self.add(run)
            self._runs = []
        self.add(keys)

    def add(self, keys: Iterable[bytes], rounds: int = 1, number: int = 0) -> None:
        """Keys that differ. Of several rounds each looks at a part of the hashes."""
        mine = [one for one in map(hash, keys) if one % rounds == number]
        new = set(mine)
        if len(new) < len(mine):
            self.hashes |= {one for one in new if mine.count(one) > 1}
        if not self._seen.isdisjoint(new):
            self.hashes |= new & self._seen
        self._seen |= new

    def forget(self) -> None:
        self._seen = set()


async def refuse_duplicates(part: Part, read: Read, show: Show) -> None:
    """Raises SinkRefused if two rows of the part have one key."""
    rounds = 1 + part.rows // limits.SINK_UNIQUE_ROWS
    doubts = Doubts()
    for number in range(rounds):
        async for piece in chunks(part, read):
            doubts.add(piece.keys, rounds, number)
        doubts.forget()
    await compare(part, read, show, doubts)


async def compare(part: Part, read: Read, show: Show, doubts: Doubts, prefix: bytes = b"") -> None:
    """Look at the keys themselves, which were added after `prefix`. Raises SinkRefused."""
    if not doubts.hashes:
        return
    known: set[bytes] = set()
    async for piece in chunks(part, read):
        for key in piece.keys:
            if hash(prefix + key) in doubts.hashes:
                if key in known:
                    raise duplicate(await show(key))
                known.add(key)


async def winners(part: Part, read: Read) -> dict[bytes, int]:
    """For each key the number of the chunk whose row stays. Raises SinkRefused (too many rows)."""
    if part.rows > limits.SINK_ORDERED_ROWS_MAX:
        raise SinkRefused(
            f"a batch of {part.rows} rows cannot be deduplicated here, the limit is"
            f" {limits.SINK_ORDERED_ROWS_MAX}: drop its duplicates in Spark, or write it in parts",
            code="SINK_TOO_MANY_ROWS",
        )
    best: dict[bytes, tuple[bytes, int]] = {}
    async for piece in chunks(part, read):
        orders = piece.orders if part.twice == ORDER and piece.orders is not None else None
        for n, key in enumerate(piece.keys):
            found = (b"" if orders is None else orders[n], piece.at)
            if key not in best or found >= best[key]:
                best[key] = found
    return {key: at for key, (_, at) in best.items()}


async def once(
    part: Part, read: Read, chosen: dict[bytes, int] | None
) -> AsyncIterator[tuple[list[bytes], list[bytes | None]]]:
    """(user keys that rise, values), each key once: of those in `chosen` the row that stays; None:
    the part has no duplicates.
    """
    async for piece in chunks(part, read):
        if chosen is None:
            yield piece.keys, piece.values
            continue
        kept = [n for n, key in enumerate(piece.keys) if chosen[key] == piece.at]
        if kept:
            yield [piece.keys[n] for n in kept], [piece.values[n] for n in kept]


async def settle(part: Part, read: Read, show: Show) -> dict[bytes, int] | None:
    """What `once` wants to know. Raises SinkRefused."""
    if part.twice == REFUSE:
        await refuse_duplicates(part, read, show)
        return None
    assert part.twice in (LAST, ORDER)
    return await winners(part, read)

"""COPY FROM STDIN is read slice by slice: between two of them others have the loop."""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Any, cast

import pytest

from kv.base.limits import SQL_COPY_BATCH_BYTES, SQL_COPY_SLICE_BYTES
from sqlproxy.pg import oids
from sqlproxy.pg.answers import Columns, CopyFormat, Field, Part
from sqlproxy.pg.copying import reader
from sqlproxy.pg.style import DEFAULT
from sqlproxy.values import memory
from sqlproxy.values.errors import SqlError
from sqlproxy.wire import codec
from sqlproxy.wire.copying import CopyIn

FIELDS = (Field("a", oids.INT8, 0), Field("b", oids.TEXT, 0))


class Fake:
    """The portal that takes the rows, and the door that they come through."""

    def __init__(self, data: bytes, chance: random.Random, whole: bool = False) -> None:
        self.fields, self.out = FIELDS, bytearray()
        self.rows: list[tuple[Any, ...]] = []
        self.turns, self.most, self.read = 0, 0, 0
        self.taken: list[int] = []
        self._messages: deque[tuple[int, bytes]] = deque()
        while data:
            size = len(data) if whole else chance.randrange(1, 2 * SQL_COPY_SLICE_BYTES)
            self._messages.append((codec.COPY_DATA, data[:size]))
            data = data[size:]
        self._messages.append((codec.COPY_DONE, b""))

    async def message(self) -> tuple[int, bytes]:
        return self._messages.popleft()

    async def turn(self) -> None:
        self.turns += 1
        self.most, self.read = max(self.most, self.read), 0

    async def take(self, rows: Sequence[Sequence[Any]]) -> None:
        self.rows += map(tuple, rows)

    async def take_parts(self, parts: Sequence[Part]) -> None:
        self.taken.append(sum(p.count if isinstance(p, Columns) else len(p) for p in parts))
        for part in parts:
            await self.take(part.rows() if isinstance(part, Columns) else part)

    async def finish(self) -> None:
        """All came."""


class Watched(memory.Budget):
    """Remembers the most that was held."""

    most = 0

    def take(self, size: int) -> None:
        super().take(size)
        self.most = max(self.most, self.used)


async def copied(data: bytes, of: CopyFormat, chance: random.Random, whole: bool = False) -> Fake:
    """What came out of a COPY of these bytes. `whole`: they come as one message."""
    fake = Fake(data, chance, whole)

    async def guard(work: Awaitable[list[Part]]) -> list[Part]:
        return await work

    copy = CopyIn(cast("Any", fake), of, DEFAULT, cast("Any", fake), guard)
    feed = copy._reader.feed_many

    def counted(piece: bytes) -> Any:
        fake.read += len(piece)
        return feed(piece)

    copy._reader.feed_many = counted  # type: ignore[method-assign]
    await copy.run()
    return fake


@pytest.mark.slow
async def test_p10_a_copy_is_read_in_slices() -> None:
    """Who wants one row beside a COPY would wait until a quarter of a megabyte is parsed."""
    chance = random.Random(1)
    rows = [(i, "x" * chance.randrange(60)) for i in range(20_000)]
    text = "".join(f"{a}\t{b}\n" for a, b in rows).encode()
    csv = "".join(f'{a},"{b}"\n' for a, b in rows).encode()
    binary = b"PGCOPY\n\xff\r\n\0" + bytes(8)
    for a, b in rows:
        binary += struct.pack(">hiqi", 2, 8, a, len(b)) + b.encode()
    binary += b"\xff\xff"
    forms = (
        (text, CopyFormat(table="t")),
        (csv, CopyFormat("csv", ",", "", table="t")),
        (binary, CopyFormat("binary", table="t")),
    )
    for data, of in forms:
        fake = await copied(data, of, chance)
        assert fake.rows == rows
        assert fake.most <= SQL_COPY_SLICE_BYTES
        assert fake.turns >= len(data) // SQL_COPY_SLICE_BYTES


async def test_p10_a_long_row_is_not_looked_at_once_for_each_slice() -> None:
    """A row of megabytes would be searched for its end, and copied, in steps of one slice."""
    rows = [(1, "x"), (2, "y" * 8 * SQL_COPY_BATCH_BYTES), (3, "z"), (4, "z" * 50_000)]
    data = "".join(f"{a}\t{b}\n" for a, b in rows).encode()
    fake = await copied(data, CopyFormat(table="t"), random.Random(2))
    assert fake.rows == rows
    assert fake.turns < 24


async def test_p10_one_message_of_many_rows_is_taken_in_batches() -> None:
    """32 MiB of short rows would be there as rows, which takes a gigabyte, before one is stored."""
    data = b"".join(b"%d\tx\n" % n for n in range(200_000))
    fake = await copied(data, CopyFormat(table="t"), random.Random(3), whole=True)
    assert len(fake.rows) == 200_000
    assert max(fake.taken) <= SQL_COPY_BATCH_BYTES // 4


@pytest.mark.parametrize("wide", ["", "\U0001f600"])
@pytest.mark.parametrize("kind", ["text", "csv"])
async def test_p10_a_long_row_counts_while_it_is_there(kind: str, wide: str) -> None:
    """Rows that do not end, of many clients, take all of a node's memory, and nobody counts it."""
    start, end = ('1,"', '"\n') if kind == "csv" else ("1\t", "\n")
    of = CopyFormat("csv", ",", "", table="t") if kind == "csv" else CopyFormat(table="t")
    data = f"{start}{wide}{'x' * (1 << 20)}{end}".encode()
    budget = Watched(memory.Share(1 << 30), 1 << 30)
    with memory.spending(budget):
        fake = await copied(data, of, random.Random(4))
    assert fake.rows == [(1, wide + "x" * (1 << 20))]
    assert budget.used == 0
    assert budget.most > (12 << 20 if wide else 4 << 20)
    with memory.spending(memory.Budget(memory.Share(1 << 30), 2 << 20)):
        with pytest.raises(SqlError) as caught:
            await copied(data, of, random.Random(4))
        assert caught.value.sqlstate == "53200"
        assert memory.now().used == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("inner", ["\n", "ab\n"])
async def test_p10_lines_inside_of_quotes_have_a_bound(inner: str) -> None:
    """A value of nothing but line ends is as long as its client likes: none of them was counted."""
    row = reader(CopyFormat("csv", ",", "", table="t"), FIELDS, DEFAULT, 1 << 20)
    row.feed(b'1,"a"\n2,"')
    for _ in range(3):
        row.feed((inner * 100_000).encode())
        assert row.unread >= 100_000
    with pytest.raises(SqlError) as caught:
        _ = [row.feed((inner * 100_000).encode()) for _ in range(20)]
    assert caught.value.sqlstate == "54000"


async def test_p10_the_end_of_the_first_line_is_not_looked_for_each_time() -> None:
    """A first row of megabytes would be searched from its beginning with each piece."""
    row = reader(CopyFormat(table="t"), FIELDS, DEFAULT, 1 << 25)
    looked: list[int] = []
    real = row._first_end  # type: ignore[attr-defined]

    def first_end(data: bytes) -> Any:
        looked.append(len(data))
        return real(data)

    row._first_end = first_end  # type: ignore[attr-defined]
    for _ in range(200):
        row.feed(b"x" * 10_000)
    assert sum(looked) <= 3 * 200 * 10_000
    row.feed(b"\ty\n")
    with pytest.raises(SqlError):
        row.finish()

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
from sqlproxy.pg.style import DEFAULT
from sqlproxy.wire import codec
from sqlproxy.wire.copying import CopyIn

FIELDS = (Field("a", oids.INT8, 0), Field("b", oids.TEXT, 0))


class Fake:
    """The portal that takes the rows, and the door that they come through."""

    def __init__(self, data: bytes, chance: random.Random) -> None:
        self.fields, self.out = FIELDS, bytearray()
        self.rows: list[tuple[Any, ...]] = []
        self.turns, self.most, self.read = 0, 0, 0
        self._messages: deque[tuple[int, bytes]] = deque()
        while data:
            size = chance.randrange(1, 2 * SQL_COPY_SLICE_BYTES)
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
        for part in parts:
            await self.take(part.rows() if isinstance(part, Columns) else part)

    async def finish(self) -> None:
        """All came."""


async def copied(data: bytes, of: CopyFormat, chance: random.Random) -> Fake:
    """What came out of a COPY of these bytes."""
    fake = Fake(data, chance)

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

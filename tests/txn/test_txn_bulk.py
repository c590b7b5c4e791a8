"""Pieces of a bulk transaction: some are under way at once, and what ends one ends all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgpack
import pytest

from kv.base.errors import InvalidArgument, Moved, TxnAborted
from kv.mvcc.packed_rows import PackedKeys, unpack_values
from tests.kv.mvcc.store import packed
from txn.bulk.bulk_transactions import BulkTransaction, Rows

PIECES = 6


class Disk(BulkTransaction):
    """Messages that arrive when the test says so."""

    def __init__(self) -> None:
        super().__init__(cast("Any", None), 1, b"anchor")
        self.sent: list[bytes] = []
        self.under_way = self.most = 0
        self.tick = asyncio.Event()
        self.fails: bytes | None = None

    async def send_rows(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None] | bytes,
        *,
        absent: bool = False,
        firsts: list[bytes] | None = None,
        laid: list[tuple[bytes, int]] | None = None,
    ) -> None:
        self.sent.append(keys[0])
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.tick.wait()
            if keys[0] == self.fails:
                raise TxnAborted("expired")
        finally:
            self.under_way -= 1
        assert laid is not None
        laid.append((keys[0], len(keys)))


class Source:
    """Pieces of two rows; knows whether it was closed."""

    def __init__(self, breaks_at: int = PIECES) -> None:
        self.breaks_at, self.given, self.closed = breaks_at, 0, False

    async def pieces(self) -> AsyncGenerator[Sequence[Rows], None]:
        try:
            for n in range(PIECES):
                if n == self.breaks_at:
                    raise LookupError("a chunk is missing")
                self.given += 1
                yield [([b"%d" % n, b"%d+" % n], [b"v", None])]
        finally:
            self.closed = True


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("at_once", [1, 2])
def test_o3_pieces_are_under_way_as_many_as_may_be(at_once: int) -> None:
    """All of a batch is in memory at once, or the loop waits for the disk with nothing to do, or
    of two rows with one key the wrong one is the first.
    """

    async def work() -> None:
        disk, source, arrived = Disk(), Source(), list[int]()
        laid: list[tuple[bytes, int]] = []
        doing = asyncio.ensure_future(
            disk.prewrite_pieces(source.pieces(), laid, arrived.append, at_once=at_once)
        )
        await turns()
        assert len(disk.sent) == at_once
        assert source.given == at_once + 1, "the next one is read meanwhile, no more"
        disk.tick.set()
        await doing
        assert disk.most == at_once
        assert disk.sent == [b"%d" % n for n in range(PIECES)]
        assert sorted(laid) == [(b"%d" % n, 2) for n in range(PIECES)]
        assert arrived == [2] * PIECES
        assert source.closed

    asyncio.run(work())


def test_o3_what_ends_one_piece_ends_all() -> None:
    """A refused piece is hidden in a group, its neighbour goes on behind the rollback, or the
    reader of the staged rows stays open.
    """

    async def work() -> None:
        disk, source = Disk(), Source()
        disk.fails = b"1"
        disk.tick.set()
        with pytest.raises(TxnAborted):
            await disk.prewrite_pieces(source.pieces(), [], lambda rows: None, at_once=2)
        assert disk.under_way == 0
        assert source.closed
        assert b"5" not in disk.sent

    asyncio.run(work())


def test_o3_a_source_that_breaks_ends_what_is_under_way() -> None:
    """A damaged chunk is told as something else, or pieces arrive after it was told."""

    async def work() -> None:
        disk, source = Disk(), Source(breaks_at=1)
        with pytest.raises(LookupError):
            await disk.prewrite_pieces(source.pieces(), [], lambda rows: None, at_once=2)
        assert disk.sent == [b"0"] or disk.sent == []
        assert disk.under_way == 0
        assert source.closed

    asyncio.run(work())


class Sent(BulkTransaction):
    """Remembers its messages; the partition ends before `end`, and is split once on the way."""

    def __init__(self, end: bytes, split: bytes = b"") -> None:
        kv = SimpleNamespace(locate=self._locate)
        super().__init__(cast("Any", SimpleNamespace(kv=kv)), 1, b"anchor")
        self.end, self.split = end, split
        self.sent: list[tuple[Any, ...]] = []

    async def _locate(self, key: bytes) -> Any:
        return SimpleNamespace(end=self.end if key < self.end else b"")

    async def _send(
        self, method: int, key: bytes, rows: tuple[Any, ...], options: Mapping[str, Any]
    ) -> None:
        if self.split:
            self.end, self.split = self.split, b""
            raise Moved("it was split")
        self.sent.append(rows)


@pytest.mark.parametrize(
    ("end", "split", "cut"),
    [
        (b"", b"", [10]),
        (b"k0010", b"", [10]),
        (b"k0009", b"", [9, 1]),
        (b"k0004", b"", [4, 6]),
        (b"k0010", b"k0003", [3, 7]),
    ],
)
def test_o3_packed_rows_go_whole_or_as_rows(end: bytes, split: bytes, cut: list[int]) -> None:
    """Packed rows are sent to a partition that does not have all of them, are lost where it ends,
    or are cut where they need not be.
    """
    keys, values = packed([b"k%04d" % i for i in range(10)], [b"v%d" % i for i in range(10)])
    laid, firsts = list[tuple[bytes, int]](), list[bytes]()
    sender = Sent(end, split)
    asyncio.run(sender.send_rows(keys, values, laid=laid, firsts=firsts))
    assert [count for _, count in laid] == cut
    assert [first for first, _ in laid] == firsts
    if cut == [10]:
        assert sender.sent == [(keys.sent(), values)]
    assert [key for head, _ in sender.sent for key in PackedKeys(*head)] == list(keys)
    sent = [v for _, packed_values in sender.sent for v in unpack_values(packed_values)]
    assert sent == [b"v%d" % i for i in range(10)]


def test_o3_packed_rows_of_other_limits_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was staged under other limits is refused by the partition, for ever."""
    monkeypatch.setattr("txn.bulk.bulk_transactions.PREWRITE_KEYS_MAX", 4)
    monkeypatch.setattr("txn.shared.message_sizes.PREWRITE_KEYS_MAX", 4)
    keys, values = packed([b"k%04d" % i for i in range(10)], [b"v"] * 10)
    sender = Sent(b"")
    asyncio.run(sender.send_rows(keys, values))
    assert [len(PackedKeys(*head)) for head, _ in sender.sent] == [4, 4, 2]


@pytest.mark.parametrize("end", [b"k0005", b""])
@pytest.mark.parametrize(
    ("keys", "values"),
    [
        (["k0001", "k0009"], [b"1", b"2", b"3"]),
        (["k0001", "k0005", "k0009"], [b"1", b"2"]),
        (["k0001", "k0005", "k0005", "k0009"], [b"1"] * 4),
        (["k0001", "k0007", "k0003", "k0009"], [b"1"] * 4),
        (["k0002", "k0009"], [b"1"] * 2),
        (["k0001", "k0009"], [b"1", 2]),
        (["k0001", "k0009"], b"\xc1"),
        (b"\xc1", [b"1"] * 2),
        ([1, 9], [b"1"] * 2),
    ],
)
def test_o6_packed_rows_that_are_none_are_not_cut(
    end: bytes, keys: Any, values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a partition looks into packed rows that go whole. Those that are cut on the way, because
    a partition ends among them or limits changed, would lose rows without a word, or fail with an
    error that nobody expects.
    """
    monkeypatch.setattr("txn.bulk.bulk_transactions.PREWRITE_KEYS_MAX", 1)
    rows = 2 if isinstance(keys, bytes) else len(keys)
    if isinstance(keys, list):
        keys = msgpack.packb([one.encode()[1:] if isinstance(one, str) else one for one in keys])
    if isinstance(values, list):
        values = msgpack.packb(values)
    sender = Sent(end)
    with pytest.raises(InvalidArgument):
        asyncio.run(sender.send_rows(PackedKeys(b"k0001", 1, rows, keys, b"k0009"), values))
    assert sender.sent == []

"""Rows that one session has for itself: read, written and committed with the rest, or not."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.errors import ConditionFailed, Unavailable, UnknownOutcome, WriteConflict
from kv.base.keys import PRIVATE
from kv.base.limits import SQL_LOAD_SLICE_ROWS
from kv.base.ops import put
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.world import World, failure, k
from txn.client import TxnClient
from txn.private import PrivateRows, PrivateWrites
from txn.transaction import Transaction

OWN = [PRIVATE + bytes([n]) for n in range(10)]
SHARED = k("b")
END = PRIVATE + b"\xff"


async def _begin(client: TxnClient, rows: PrivateRows, *, renews: bool = False) -> Transaction:
    t = await client.begin(renews=renews)
    t.beside = PrivateWrites(rows)
    t.beside.ts = t.start_ts
    return t


def _played(scene: object) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop)
        await world.start()
        await scene(world.client(), PrivateRows())  # type: ignore[operator]
        world.close()

    run(main, 0)


def test_p4_private_rows_are_committed_with_the_rest() -> None:
    """One of both is there without the other."""

    async def scene(client: TxnClient, rows: PrivateRows) -> None:
        t = await _begin(client, rows)
        t.put(OWN[1], b"one")
        t.put(SHARED, b"shared")
        assert await t.get(OWN[1]) == (b"one", 0)
        assert rows.get(OWN[1]) is None
        version = await t.commit()
        assert rows.get(OWN[1]) == (b"one", version)
        assert (await client.get(SHARED))[0] == b"shared"
        lost = await _begin(client, rows)
        lost.put(OWN[1], b"two")
        lost.put(SHARED, b"two")
        await client.write([put(SHARED, b"other")])
        assert isinstance(await failure(lost.commit()), WriteConflict)
        assert rows.get(OWN[1]) == (b"one", version)
        gone = await _begin(client, rows)
        gone.delete(OWN[1])
        await gone.abort()
        assert rows.get(OWN[1]) == (b"one", version)

    _played(scene)


def test_p4_conditions_of_private_rows_hold_before_anything_is_sent() -> None:
    """A duplicate in a temporary table leaves the permanent half behind."""

    async def scene(client: TxnClient, rows: PrivateRows) -> None:
        rows.put(OWN[1], b"there", 5)
        t = await _begin(client, rows)
        t.put(OWN[1], b"again", cond=0)
        t.put(SHARED, b"half")
        error = await failure(t.commit())
        assert isinstance(error, ConditionFailed)
        assert error.details["key"] == OWN[1]
        assert (await client.get(SHARED))[0] is None
        t = await _begin(client, rows, renews=True)
        t.computes_from(OWN[1], 5)
        t.put(OWN[1], b"new")
        await t.commit()
        assert rows.get(OWN[1]) is not None

    _played(scene)


def test_p4_pages_views_and_savepoints_over_private_rows() -> None:
    """A scan passes over rows, or a view or a savepoint sees what came after it."""

    async def scene(client: TxnClient, rows: PrivateRows) -> None:
        for n in (1, 3, 5, 7):
            rows.put(OWN[n], b"%d" % n, 1)
        t = await _begin(client, rows)
        before = t.view()
        t.delete(OWN[3])
        t.put(OWN[4], b"4")
        mark = t.beside.mark() if t.beside is not None else None
        t.put(OWN[6], b"6")
        found, at = [], PRIVATE
        while True:
            page = await t.scan(at, END, limit=2)
            found += [key[-1] for key, _, _ in page.items]
            if page.resume is None:
                break
            at = page.resume
        assert found == [1, 4, 5, 6, 7]
        back = await t.scan(PRIVATE, END, limit=3, reverse=True)
        assert [key[-1] for key, _, _ in back.items] == [7, 6, 5]
        assert [key[-1] for key, _, _ in (await before.scan(PRIVATE, END, limit=9)).items] == [
            1,
            3,
            5,
            7,
        ]
        before.end()
        assert t.beside is not None
        t.beside.undo_to(mark)
        assert await t.get(OWN[6]) == (None, 0)
        assert await t.multi_get([OWN[3], OWN[4]]) == [None, (b"4", 0)]
        t.beside.drop(PRIVATE, OWN[5])
        await t.commit()
        left = [key[-1] for key, _, _ in rows.page(PRIVATE, END, 9, False, 0).items]
        assert left == [5, 7]

    _played(scene)


def test_p4_locks_of_private_rows_ask_nobody() -> None:
    """A lock of a temporary table's row is looked for in a partition."""

    async def scene(client: TxnClient, rows: PrivateRows) -> None:
        rows.put(OWN[1], b"1", 7)
        t = await _begin(client, rows, renews=True)
        assert await t.lock([OWN[1], OWN[2]]) == [7, 0]
        assert await t.lock_present(OWN[1]) == (b"1", 7)
        assert await t.newest([OWN[1]]) == [(b"1", 7)]
        t.hold_key(OWN[1])
        t.hold_range(PRIVATE, END)
        assert t.locked == 0
        await t.commit()

    _played(scene)


def test_p4_an_unanswered_commit_puts_private_rows_in_doubt() -> None:
    """Half of a transaction is told as all of it."""

    async def scene(client: TxnClient, rows: PrivateRows) -> None:
        t = await _begin(client, rows)
        t.put(OWN[1], b"1")
        t.put(SHARED, b"1")

        async def unanswered() -> int:
            raise UnknownOutcome("lost")

        t._send = unanswered  # type: ignore[method-assign]
        with pytest.raises(UnknownOutcome):
            await t.commit()
        assert rows.doubtful
        assert rows.get(OWN[1]) is None
        with pytest.raises(Unavailable, match="in doubt"):
            PrivateWrites(rows)
        await asyncio.sleep(0)

    _played(scene)


def test_p4_private_bytes_are_counted() -> None:
    """A session's rows take more memory than it may have."""
    rows = PrivateRows()
    rows.put(OWN[1], b"x" * 100, 1)
    once = rows.bytes
    assert once > 100
    rows.put(OWN[1], b"x" * 100, 2)
    assert rows.bytes == once
    rows.put(OWN[1], None, 3)
    assert rows.bytes == 0


MANY = [PRIVATE + n.to_bytes(4, "big") for n in range(10 * SQL_LOAD_SLICE_ROWS)]


async def _turns(work: asyncio.Task[None]) -> int:
    """How often somebody else has the loop meanwhile."""
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


def test_p4_a_commit_of_many_private_rows_gives_way() -> None:
    """One session's temporary tables stop the process for as long as they are large."""

    async def scene(client: TxnClient, rows: PrivateRows) -> None:
        writes = PrivateWrites(rows)
        writes.add_rows(MANY, [b"one"] * len(MANY), cond=0)
        assert await _turns(asyncio.create_task(writes.check())) >= 4
        assert await _turns(asyncio.create_task(writes.commit(7))) >= 4
        assert [rows.get(key) for key in MANY] == [(b"one", 7)] * len(MANY)
        writes = PrivateWrites(rows)
        writes.drop(PRIVATE, END)
        assert len(list(rows.apply(writes, 8))) == 10
        assert rows.bytes == 0
        assert not rows.page(PRIVATE, END, 10, False, 8).items

    _played(scene)


def test_p4_private_rows_are_committed_though_their_owner_is_cancelled() -> None:
    """Half of them are there, and the other half is lost."""

    async def scene(client: TxnClient, rows: PrivateRows) -> None:
        writes = PrivateWrites(rows)
        writes.add_rows(MANY, [b"one"] * len(MANY))
        work = asyncio.create_task(writes.commit(7))
        while rows.get(MANY[0]) is None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        assert rows.get(MANY[-1]) is None
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert [rows.get(key) for key in MANY] == [(b"one", 7)] * len(MANY)

    _played(scene)

"""What a serializable transaction read is held on both sides of a cut (B10, H2): the guard of a
range is cut in two with its partition. Else rows come into the upper half that the transaction did
not see, and that are older than it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import txn.commit.core
from kv.partition import shapes
from kvorum.testing.simulation.loop import SimLoop, run
from tests.kvorum.cluster.simulated import SimCluster
from tests.kvorum.cluster.splits import Bank, submit
from txn.commit.sending import Sending

KEYS = ("b", "d", "p", "r")


def phantom(monkeypatch: pytest.MonkeyPatch, *, merge: bool) -> tuple[int, int]:
    """The versions of a transaction that counted rows and wrote their number elsewhere, and of a
    row that came between its prewrites and its flip, while the table was cut between both.
    """
    found: list[int] = []
    held, go_on = asyncio.Event(), asyncio.Event()
    take = Sending.take
    waits: list[int] = []

    async def late(self: Sending, effect: Any) -> Any:
        if self._request.start_ts in waits:
            held.set()
            await go_on.wait()
        return await take(self, effect)

    monkeypatch.setattr(Sending, "take", late)
    monkeypatch.setattr(txn.commit.core, "PARALLEL_PARTS_MAX", 0)

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 5)
        await cluster.start()
        bank = Bank(cluster, 5)
        db = bank.db()
        await db.create_table("default", "rows")
        (partition,) = [row["id"] for row in await db.partitions() if row["id"] != 1]
        await db.create_table("default", "counts")
        rows, counts = db.table("default", "rows"), db.table("default", "counts")
        for key in KEYS:
            await rows.put(key, "v")
        if merge:  # the guards are of two partitions, and those become one
            args = {"partition": partition, "at": "m"}
            upper = (await submit(bank, "kvorum.split_partition", args)).result["new"]
        t = await db.transaction(isolation="serializable")
        waits.append(t.id)
        seen = (await t.table("default", "rows").scan(start="a", end="z")).items
        await t.table("default", "counts").put("n", str(len(seen)))
        committing = asyncio.ensure_future(t.commit())
        await held.wait()
        if merge:
            args = {"left": partition, "right": upper}
            info = await submit(bank, "kvorum.merge_partitions", args)
        else:
            args = {"partition": partition, "at": "m"}
            info = await submit(bank, "kvorum.split_partition", args)
        assert info.state == "SUCCESS", info
        putting = asyncio.ensure_future(rows.put("q", "phantom"))
        await asyncio.sleep(0.5)
        go_on.set()
        found.append(await committing)
        found.append(await putting)
        counted = await counts.get("n")
        assert counted is not None
        then = (await rows.scan(at=found[0])).items
        if found[0] < found[1]:
            assert int(counted.value) == len(then) == len(KEYS)
        await cluster.close()

    run(main, 5)
    return found[0], found[1]


@pytest.mark.parametrize("merge", [False, True])
def test_b10_h2_no_row_comes_into_a_range_that_is_held_where_it_was_cut(
    monkeypatch: pytest.MonkeyPatch, merge: bool
) -> None:
    """The count of a serializable transaction would be wrong at the moment of its commit."""
    counted, row = phantom(monkeypatch, merge=merge)
    assert row > counted, "it had to wait for the transaction"


def test_b10_h2_guards_that_are_not_cut_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scene that sees no difference proves nothing of the build as it is."""
    monkeypatch.setattr(shapes, "_cut_guards", lambda _guards, _key: [])
    counted, row = phantom(monkeypatch, merge=False)
    assert row < counted

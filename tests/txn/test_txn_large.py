"""What one log entry cannot hold is committed in two phases, in parts of a legal size (B6)."""

from __future__ import annotations

import asyncio
import random

import pytest

import kv.mvcc.get
import kv.mvcc.resolve
import kv.mvcc.write
import kv.partition.evaluator
import kv.partition.reader
import txn.shared.message_sizes
from kv.base.errors import TooLarge
from kv.base.limits import KiB, MiB
from kv.base.methods import PREWRITE, RESOLVE, WRITE
from kv.base.ops import Op, delete, put
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.world import Hooked, RealWorld, doomed_client, failure, k
from txn.client import TxnClient

KEYS = [k(f"b{i:03d}") for i in range(40)]  # one partition


class Watched(Hooked):
    """Notes the methods that were executed."""

    def __init__(self, loop: SimLoop, world: RealWorld) -> None:
        super().__init__(loop, world.kv())
        self.sent: list[int] = []

    async def arrives(self, method: int) -> None:
        self.sent.append(method)


async def commit(client: TxnClient, ops: list[Op], *, transaction: bool) -> int:
    """All of `ops`, in a transaction or as an autocommitted batch."""
    if not transaction:
        return await client.write(ops)
    t = await client.begin()
    for op in ops:
        t.write(op)
    return await t.commit()


@pytest.mark.parametrize("transaction", [False, True], ids=["batch", "transaction"])
@pytest.mark.parametrize("what", ["old versions", "entry"])
def test_b6_what_no_entry_holds_is_committed_in_two_phases(
    what: str, transaction: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A legal batch would be refused for the size of what it replaces, or of its keys."""
    if what == "entry":
        monkeypatch.setattr(kv.partition.evaluator, "ENTRY_ROOM", 48 * KiB)
        monkeypatch.setattr(txn.shared.message_sizes, "PREWRITE_KEYS_MAX", 7)
    else:
        monkeypatch.setattr(kv.mvcc.write, "SUPERSEDED_BYTES_MAX", 30 * KiB)
    monkeypatch.setattr(kv.mvcc.resolve, "RESOLVE_BYTES", 4 * KiB)

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        network = Watched(loop, world)
        client = world.client(network)
        for key in KEYS:
            await client.write([put(key, b"old" * 300)])
        network.sent.clear()
        value = b"n" * (2000 if what == "entry" else 1)
        version = await commit(
            client,
            [put(key, value) for key in KEYS[:-1]] + [delete(KEYS[-1])],
            transaction=transaction,
        )
        assert {WRITE, PREWRITE} <= set(network.sent)
        rows, _ = await client.multi_get(KEYS)
        assert rows == [(value, version)] * (len(KEYS) - 1) + [None]
        old, _ = await client.multi_get(KEYS, at=version - 1)
        assert {row and row[0] for row in old} == {b"old" * 300}
        await client.close()
        assert RESOLVE in network.sent
        assert world.locked() == []
        world.close()

    run(main)


def test_b8_multi_get_of_large_values_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys whose values are more than one reply may hold could not be read in one snapshot."""
    monkeypatch.setattr(kv.mvcc.get, "MULTI_GET_BYTES_MAX", 10 * KiB)
    monkeypatch.setattr(kv.mvcc.get, "_SLICE_KEYS", 4)
    monkeypatch.setattr(kv.partition.reader, "FEW_KEYS", 0)  # who reads few counts no bytes

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        client = world.client()
        version = await client.write([put(key, key + bytes(3000)) for key in KEYS])
        rows, _ = await client.multi_get(KEYS)
        assert rows == [(key + bytes(3000), version) for key in KEYS]
        await client.write([put(KEYS[0], bytes(11 * KiB))])
        assert isinstance(await failure(client.multi_get(KEYS)), TooLarge)
        await client.close()
        world.close()

    run(main)


def test_b6_one_value_that_no_part_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fallback must end: what no prewrite can hold either is refused, and nothing stays."""
    monkeypatch.setattr(kv.partition.evaluator, "ENTRY_ROOM", 8 * KiB)

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        client = world.client()
        ops = [put(KEYS[0], b"1"), put(KEYS[1], bytes(9 * KiB))]
        for transaction in (False, True):
            error = await failure(commit(client, ops, transaction=transaction))
            assert isinstance(error, TooLarge)
        await client.close()
        assert world.locked() == []
        assert world.pending() == []
        world.close()

    run(main)


@pytest.mark.slow
def test_b6_batch_that_replaces_more_than_one_entry_may() -> None:
    """The same at real size: 72 MiB of old versions."""

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        client = world.client()
        keys = KEYS[:18]
        for key in keys:
            await client.write([put(key, bytes(4 * MiB - 100))])
        version = await client.write([put(key, b"new") for key in keys])
        rows, _ = await client.multi_get(keys)
        assert rows == [(b"new", version)] * 18
        await client.close()
        assert world.locked() == []
        world.close()

    run(main)


def test_d12_large_intents_of_a_dead_coordinator_are_resolved_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readers who met them would be refused for the size of what somebody else wrote."""
    monkeypatch.setattr(kv.partition.evaluator, "ENTRY_ROOM", 48 * KiB)
    monkeypatch.setattr(kv.mvcc.resolve, "RESOLVE_BYTES", 8 * KiB)
    monkeypatch.setattr(txn.shared.message_sizes, "PREWRITE_KEYS_MAX", 7)

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        reader = world.client()
        # 40 intents in 6 parts, the flip, and no answer: committed, and nobody cleans up.
        dying, _ = doomed_client(world, 1 + 2 * 6 + 2)
        task = loop.create_task(
            dying.write([put(key, bytes(3000)) for key in KEYS] + [put(k("z"), b"1")])
        )
        await asyncio.sleep(0.2)
        assert len(world.locked()) >= len(KEYS)
        await asyncio.sleep(10)
        rows, _ = await reader.multi_get(KEYS)
        assert len({row and len(row[0]) for row in rows}) == 1
        await reader.close()
        assert [key for key in world.locked() if key in KEYS] == []
        world.close()
        task.cancel()

    run(main)


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_cut_as_a_stream_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in bulk come in messages above the limits, lose rows, or come in more than needed."""
    rng = random.Random(seed)
    monkeypatch.setattr(txn.shared.message_sizes, "PREWRITE_KEYS_MAX", rng.choice([1, 3, 50]))
    monkeypatch.setattr(txn.shared.message_sizes, "PREWRITE_BYTES_MAX", rng.choice([1, 20, 200]))
    keys = [b"k" * rng.randrange(1, 9) for _ in range(rng.choice([0, 1, 7, 100]))]
    values = [rng.choice([None, b"", b"v" * rng.randrange(40)]) for _ in keys]
    rows = list(zip(keys, values, strict=True))
    wanted = list(txn.shared.message_sizes.runs(rows, lambda row: len(row[0]) + len(row[1] or b"")))
    cut = txn.shared.message_sizes.row_runs(keys, values)
    assert [list(zip(*part, strict=True)) for part in cut if part[0]] == wanted

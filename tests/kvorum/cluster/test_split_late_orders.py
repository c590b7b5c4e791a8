"""Orders to split and to freeze that go on after their procedure was undone (H2, H4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Refused
from procedures.master.shape.reshape_methods import ReshapeMethods
from tests.kvorum.cluster.splits import Bank, scene, submit

pytestmark = pytest.mark.slow


class Slow:
    """A node's replicas with a disk that does not answer for now."""

    def __init__(self, replicas: Any, disk: asyncio.Event) -> None:
        self._replicas, self._disk = replicas, disk

    def replica(self, partition: int) -> Any:
        return self._replicas.replica(partition)

    def covering(self, key: bytes) -> PartitionDescriptor | None:
        found: PartitionDescriptor | None = self._replicas.covering(key)
        return found

    async def synced(self) -> None:
        await self._disk.wait()


def leads(methods: ReshapeMethods, args: list[Any]) -> bool:
    replica = methods._replicas.replica(args[0])
    return replica is not None and replica.leads()


def test_h2_a_split_that_was_undone_does_not_happen_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The map would never hear of the new half: every node would remove it, and its rows."""
    real = ReshapeMethods.split
    late: list[asyncio.Task[Any]] = []

    async def main(bank: Bank) -> None:
        disk = asyncio.Event()

        async def split(self: ReshapeMethods, context: object, args: list[Any]) -> list[Any]:
            if not leads(self, args):
                return await real(self, context, args)
            slow = ReshapeMethods(Slow(self._replicas, disk))
            late.append(asyncio.create_task(real(slow, context, args)))
            await asyncio.sleep(0.1)
            raise Refused("who waited for it gave up", code="CANNOT_SPLIT")

        patched["split"] = split
        left = bank.led_at(bank.ranges()[0][0]).id
        info = await submit(bank, "kvorum.split_partition", {"partition": left, "at": "m"})
        assert info.state in ("FAILED", "ROLLED_BACK"), info
        disk.set()
        with pytest.raises(Refused, match="any more"):
            await late[0]
        await asyncio.sleep(1)
        assert len(bank.ranges()) == 1
        del patched["split"]
        info = await submit(bank, "kvorum.split_partition", {"partition": left, "at": "m"})
        assert info.state == "SUCCESS", info

    patched: dict[str, Any] = {}

    async def either(self: ReshapeMethods, context: object, args: list[Any]) -> list[Any]:
        found: list[Any] = await patched.get("split", real)(self, context, args)
        return found

    monkeypatch.setattr(ReshapeMethods, "split", either)
    scene(main, calm=True)


def test_h4_a_freeze_that_comes_after_the_thaw_freezes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody would thaw it: the partition would stand still for ever."""
    real = ReshapeMethods.freeze
    lost: list[tuple[ReshapeMethods, list[Any]]] = []

    async def freeze(self: ReshapeMethods, context: object, args: list[Any]) -> list[Any]:
        if lost or not leads(self, args):
            return await real(self, context, args)
        lost.append((self, args))
        raise Refused("who waited for it gave up", code="CANNOT_MERGE")

    monkeypatch.setattr(ReshapeMethods, "freeze", freeze)

    async def main(bank: Bank) -> None:
        left = bank.led_at(bank.ranges()[0][0]).id
        info = await submit(bank, "kvorum.split_partition", {"partition": left, "at": "m"})
        right = info.result["new"]
        refused = await submit(bank, "kvorum.merge_partitions", {"left": left, "right": right})
        assert refused.state in ("FAILED", "ROLLED_BACK"), refused
        methods, args = lost[0]
        with pytest.raises(Refused, match="any more"):
            await real(methods, None, args)
        number = bank.sent.get("z-x", 0)
        await asyncio.sleep(2)
        assert bank.sent.get("z-x", 0) > number, "it is served"
        merged = await submit(bank, "kvorum.merge_partitions", {"left": left, "right": right})
        assert merged.state == "SUCCESS", merged

    scene(main, calm=True)

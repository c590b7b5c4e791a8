"""A split is entered into the map when enough nodes have applied it (H2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Refused, Unavailable
from kv.base.ids import NodeId, PartitionId
from kv.partition.shapes import Split
from kv.replica.births import Births
from procedures.master.shape.reshape_methods import ReshapeMethods
from procedures.master.shape.splitting import _least
from tests.kvorum.cluster.splits import Bank, scene, submit


def having(bank: Bank, partition: int) -> set[int]:
    """The nodes that have the partition."""
    return {
        number
        for number, node in bank.cluster.nodes.items()
        if node.store.manager.replica(partition) is not None
    }


@pytest.mark.slow
@pytest.mark.parametrize("undone", [False, True])
def test_h2_a_split_is_done_when_a_majority_has_applied_it(
    monkeypatch: pytest.MonkeyPatch, undone: bool
) -> None:
    """Replicas of the old partition were moved before they had applied the split: the new one's
    rows went with them, and it was on fewer nodes than its majority. Or a slow node held a split.
    `undone`: the procedure gives up when the log has the split.
    """
    apply_now, split_now = Births.apply, ReshapeMethods.split
    behind, made = {1, 2, 3}, set[int]()
    refused: list[bool] = []

    def apply(self: Births, replica: Any, shape: Any, index: int, term: int) -> None:
        if isinstance(shape, Split):
            made.add(shape.new.id)
            if self._node in behind:
                raise Unavailable("this disk is slow")
        apply_now(self, replica, shape, index, term)

    async def split(self: ReshapeMethods, context: object, args: list[Any]) -> list[Any]:
        told = await split_now(self, context, args)
        if undone and not refused:
            refused.append(True)
            raise Refused("who waited for it gave up", code="CANNOT_SPLIT")
        return told

    monkeypatch.setattr(Births, "apply", apply)
    monkeypatch.setattr(ReshapeMethods, "split", split)

    async def main(bank: Bank) -> None:
        left = bank.led_at(bank.ranges()[0][0])
        leader = next(
            number
            for number, node in bank.cluster.nodes.items()
            if (found := node.store.manager.replica(left.id)) is not None and found.leads()
        )
        behind.discard(leader)
        slow, slowest = sorted(behind)
        order = submit(bank, "kvorum.split_partition", {"partition": left.id, "at": "m"})
        work = asyncio.create_task(order)
        await asyncio.sleep(6)
        (new,) = made
        assert having(bank, new) == {leader}
        assert not work.done(), "only the leader has applied it"
        (split,) = await bank.db().procedures(name="kvorum.split_partition")
        for dry_run in (True, False):
            with pytest.raises(Refused, match="Abort it") as caught:
                await bank.db().bypass_procedure(split.id, "it hangs", dry_run=dry_run)
            assert caught.value.code == "NOT_BYPASSABLE"
        behind.discard(slow)
        async with asyncio.timeout(60):
            info = await work
        assert info.state == ("ROLLED_BACK" if undone else "SUCCESS"), info
        assert having(bank, new) == {leader, slow}, "a majority will do"
        behind.discard(slowest)
        await asyncio.sleep(2)
        assert having(bank, new) == {1, 2, 3}
        assert len(bank.ranges()) == 2

    scene(main, calm=True)


@pytest.mark.parametrize(
    ("data", "witnesses", "least"), [(1, 0, 1), (2, 0, 2), (3, 0, 2), (2, 1, 1), (4, 1, 2)]
)
def test_h2_witnesses_count_for_the_majority_that_a_split_waits_for(
    data: int, witnesses: int, least: int
) -> None:
    """A split waited for ever for a node that is down, though a witness stood in for it."""
    voters = tuple(NodeId(n + 1) for n in range(data + witnesses))
    new = PartitionDescriptor(PartitionId(7), b"a", b"b", 1, voters, (), voters[data:])
    assert _least(new) == least

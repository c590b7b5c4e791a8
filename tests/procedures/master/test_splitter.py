"""The loop that submits splits and merges: once each, followed to the end, with patience."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import NotFound, Unavailable
from kv.base.ids import NodeId, PartitionId
from kv.base.limits import MiB
from procedures.engine.submission import Submission
from procedures.master.map.partitions import Placed
from procedures.master.map.reports import Picture, Report
from procedures.master.members.move_apart import MOVE_BESIDE
from procedures.master.shape.deciding import Policy
from procedures.master.shape.splitter import BACKOFF_S, MERGE, SPLIT, Splitter

MAX = 64 * MiB
PLAIN = Report(2, 1, True, 3, 10, 1_000, 0, 3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, True, ())


class Lab:
    """A master with partitions whose leaders say what a test wants."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.picture = Picture()
        self.placed: dict[int, Placed] = {}
        self.sizes: dict[int, int] = {}
        self.submitted: list[Submission] = []
        self.records: dict[int, Any] = {}
        self.unknown: set[str] = set()
        self.busy: set[int] = set()
        self.key: bytes | None = b"\0\0\0\x64m"
        self.deaf = False
        self.living = [1]
        self.splitter = Splitter(
            picture=self.picture,
            nodes=lambda: self.living,
            map_=self._map,
            busy=self._busy,
            groups=self,  # type: ignore[arg-type]
            procedures=self,
            policy=lambda: Policy(bytes_max=MAX, settle_s=30.0),
            monotonic=lambda: self.now_s,
        )

    async def _map(self) -> list[Placed]:
        return [self.placed[id_] for id_ in sorted(self.placed)]

    async def _busy(self) -> set[int]:
        return self.busy

    async def order(self, partition: int, nodes: Any, method: int, *args: Any) -> list[Any]:
        if self.deaf:
            raise Unavailable("no leader")
        return [self.key]

    async def submit(self, sub: Submission) -> int:
        if sub.name in self.unknown:
            raise NotFound(f"no procedure named {sub.name}", code="PROCEDURE_UNKNOWN")
        for id_, known in enumerate(self.submitted, 1):
            if known.nonce == sub.nonce:
                return id_
        self.submitted.append(sub)
        id_ = len(self.submitted)
        self.records[id_] = SimpleNamespace(ended=False, error=None)
        return id_

    async def wait(self, id: int, wait_ms: int) -> Any:
        if id not in self.records:
            raise NotFound("gone", code="PROCEDURE_NOT_FOUND")
        return self.records[id]

    def partition(self, id_: int, size: int, epoch: int = 1) -> None:
        start, end = b"\0\0\0\x64%02d" % id_, b"\0\0\0\x64%02d" % (id_ + 1)
        one = (NodeId(1),)
        d = PartitionDescriptor(PartitionId(id_), start, end, epoch, one, ())
        self.placed[id_] = Placed(d, one)
        self.sizes[id_] = size

    async def look(self, seconds: float = 5.0) -> None:
        self.now_s += seconds
        rows = [
            replace(
                PLAIN, partition=id_, size=size, epoch=self.placed[id_].descriptor.epoch
            ).to_wire()
            for id_, size in self.sizes.items()
        ]
        told = {"full": True, "told_all": True, "node": [0.1, 1, 1], "rows": rows, "gone": []}
        self.picture.handle(1, told)
        await self.splitter.look()


def test_h1_a_split_is_submitted_once_with_the_leaders_key_and_followed() -> None:
    """Submitted with every look, it would be cut into crumbs."""

    async def main() -> None:
        lab = Lab()
        lab.partition(2, 2 * MAX)
        for _ in range(5):
            await lab.look()
        assert len(lab.submitted) == 1
        sub = lab.submitted[0]
        assert (sub.name, sub.args) == (SPLIT, {"partition": 2, "key": lab.key})
        assert "changing it" in lab.splitter.shown()["refused"][0][1]
        lab.records[1].ended = True
        lab.partition(2, MAX, epoch=2)
        await lab.look()
        assert lab.splitter.shown()["working"] == []
        assert len(lab.submitted) == 1
        del lab.records[1]
        lab.partition(2, 2 * MAX, epoch=2)
        await lab.look()
        assert len(lab.submitted) == 2, "it grew again"
        assert lab.submitted[0].nonce != lab.submitted[1].nonce

    asyncio.run(main())


def test_h1_a_new_master_finds_the_procedure_that_is_there() -> None:
    """Its own submission would be a second split of the same partition."""

    async def main() -> None:
        lab = Lab()
        lab.partition(2, 2 * MAX)
        await lab.look()
        lab.splitter.begin()
        await lab.look()
        assert len(lab.submitted) == 1
        assert lab.splitter.shown()["working"] == [[1, SPLIT, [2]]]

    asyncio.run(main())


def test_h1_what_failed_is_tried_again_after_a_while_with_a_new_nonce() -> None:
    """With the old nonce it would get the failed procedure, for ever; at once, it would storm."""

    async def main() -> None:
        lab = Lab()
        lab.partition(2, 2 * MAX)
        await lab.look()
        lab.records[1].ended = True
        lab.records[1].error = SimpleNamespace(message="it would not")
        await lab.look()
        assert len(lab.submitted) == 1
        assert "it would not" in lab.splitter.shown()["refused"][0][1]
        await lab.look(BACKOFF_S)
        assert len(lab.submitted) == 2
        assert lab.splitter.failures == 1

    asyncio.run(main())


def test_h1_without_a_key_or_a_leader_nothing_is_submitted() -> None:
    """A procedure that cannot succeed would block the partition meanwhile."""

    async def main() -> None:
        for deaf in (True, False):
            lab = Lab()
            lab.partition(2, 2 * MAX)
            lab.key, lab.deaf = None, deaf
            await lab.look()
            assert lab.submitted == []
            assert lab.splitter.failures == 1
            await lab.look(1.0)
            assert lab.splitter.failures == 1, "with a pause"

    asyncio.run(main())


def test_h3_neighbours_are_merged_and_a_version_without_merges_says_it_once() -> None:
    """During a rolling upgrade the master may not have the procedure yet."""

    async def main() -> None:
        lab = Lab()
        for id_ in (2, 3):
            lab.partition(id_, MiB)
        for _ in range(8):
            await lab.look()
        assert [(s.name, s.args) for s in lab.submitted] == [(MERGE, {"left": 2, "right": 3})]
        old = Lab()
        old.unknown.add(MERGE)
        for id_ in (2, 3):
            old.partition(id_, MiB)
        for _ in range(20):
            await old.look()
        assert sum("cannot be started" in text for text in old.splitter.done) == 1
        old.partition(2, 2 * MAX)
        await old.look()
        assert [s.name for s in old.submitted] == [SPLIT], "the rest goes on"

    asyncio.run(main())


def test_n10_what_is_busy_moving_or_not_agreed_is_left_alone() -> None:
    """Two operations on one partition would wait for each other, or undo each other."""

    async def main() -> None:
        lab = Lab()
        lab.partition(2, 2 * MAX)
        lab.busy = {2}
        await lab.look()
        lab.busy = set()
        placed = lab.placed[2]
        lab.placed[2] = placed._replace(
            descriptor=replace(placed.descriptor, learners=(NodeId(4),))
        )
        await lab.look()
        lab.placed[2] = placed._replace(change=("split", 9, b"k"))
        await lab.look()
        assert lab.submitted == []
        lab.placed[2] = placed
        lab.living = [1, 2]
        await lab.look()
        assert lab.submitted == [], "not before every node has told everything"
        lab.living = [1]
        await lab.look()
        assert len(lab.submitted) == 1

    asyncio.run(main())


def test_h6_neighbours_at_different_nodes_are_brought_together_before_they_are_merged() -> None:
    """A merge of partitions that are elsewhere is refused, so fragments would stay for ever; were
    the larger one moved, more bytes would travel than need to.
    """

    async def main() -> None:
        lab = Lab()
        lab.partition(2, 3 * MiB)
        lab.partition(3, 1 * MiB)
        lab.placed[3] = lab.placed[3]._replace(first=(NodeId(2),))
        d = lab.placed[3].descriptor
        lab.placed[3] = lab.placed[3]._replace(descriptor=replace(d, voters=(NodeId(2),)))
        assert lab.placed[3].nodes != lab.placed[2].nodes
        for _ in range(20):
            await lab.look()
        assert [(sub.name, sub.args) for sub in lab.submitted] == [
            (MOVE_BESIDE, {"partition": 3, "beside": 2})
        ]
        assert "to be merged with it" in lab.splitter.shown()["done"][-1]
        lab.records[1].ended = True
        lab.placed[3] = lab.placed[3]._replace(descriptor=d, first=(NodeId(1),))
        await lab.look()
        assert (lab.submitted[-1].name, lab.submitted[-1].args) == (MERGE, {"left": 2, "right": 3})
        lab.records[2].ended = True
        lab.records[2].error = SimpleNamespace(message="not now")
        lab.placed[3] = lab.placed[3]._replace(
            descriptor=replace(d, voters=(NodeId(3),)), first=(NodeId(3),)
        )
        for _ in range(20):
            await lab.look()
        assert [sub.name for sub in lab.submitted] == [MOVE_BESIDE, MERGE, MOVE_BESIDE]
        lab.records[3].ended = True
        lab.records[3].error = SimpleNamespace(message="node 3 lacks the tag ssd")
        await lab.look()
        assert len(lab.submitted) == 3, "it rests"
        assert "lacks the tag ssd" in lab.splitter.shown()["refused"][0][1]
        await lab.look(BACKOFF_S)
        assert len(lab.submitted) == 4

    asyncio.run(main())

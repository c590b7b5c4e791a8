"""Where a replica would cut its partition: right on a real state, and with little work."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kv.base.adapters import LoopTimers
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import InvalidArgument, NotLeader, Unavailable
from kv.base.ids import NodeId, PartitionId
from kv.base.limits import KEY_BYTES_MAX, MiB
from kv.base.methods import SplitPoint as SplitPointMethod
from kv.partition.sizes import SizeMap
from kv.partition.statistics import Traffic
from kv.replica.cutting import END, LOAD, MIDDLE, SplitPoint, split_key
from kv.storage.engine import STATE_FAMILIES
from kv.storage.memory import MemoryEngine

PREFIX = b"\0\0\0\x64"
D = PartitionDescriptor(PartitionId(5), PREFIX, b"\0\0\0\x65", 1, (NodeId(1),), ())


class Rows:
    """A partition's rows in an engine; `scanned` counts what was read."""

    def __init__(self, rows: dict[bytes, bytes]) -> None:
        self.engine = MemoryEngine(STATE_FAMILIES)
        batch = self.engine.batch()
        for key, value in rows.items():
            batch.put(PREFIX + key, value, self.engine.family("cur"))
        self.engine.write(batch)
        self.rows = rows
        self.live_bytes = sum(len(k) + 4 + len(v) for k, v in rows.items())
        self.sizes = SizeMap()
        self.scanned = 0

    def scan(self, family: str, start: bytes, end: bytes, **bounds: Any) -> Any:
        found = self.engine.scan(family, start, end, **bounds)
        self.scanned += len(found)
        return found

    def below(self, key: bytes) -> float:
        size = sum(len(k) + 4 + len(v) for k, v in self.rows.items() if PREFIX + k < key)
        return size / self.live_bytes


def _replica(rows: dict[bytes, bytes], *, leads: bool = True) -> Any:
    return SimpleNamespace(
        descriptor=D,
        state=Rows(rows),
        machine=SimpleNamespace(traffic=Traffic()),
        leads=lambda: leads,
        leader_hint=lambda: 3,
    )


def test_g2_a_small_partition_is_cut_exactly() -> None:
    """Samples of a few rows would miss the middle, and a new user tries it with few rows."""
    replica = _replica({b"%03d" % i: b"." * (10 if i < 50 else 1_000) for i in range(100)})
    key = split_key(replica, MIDDLE)
    assert key is not None
    assert 0.45 <= replica.state.below(key) <= 0.55


@pytest.mark.parametrize("rows", [{}, {b"only": b"one"}])
def test_g2_nothing_and_a_single_row_cannot_be_cut(rows: dict[bytes, bytes]) -> None:
    """A half without a row would be merged again at once."""
    assert split_key(_replica(rows), MIDDLE) is None
    assert split_key(_replica(rows), LOAD) is None


def test_h7_the_end_lies_behind_the_last_row_and_inside() -> None:
    """What is appended next must go to the new partition, and no row may move."""
    replica = _replica({b"%03d" % i: b"." for i in range(100)})
    assert split_key(replica, END) == PREFIX + b"099\x00"
    assert replica.state.scanned == 1, "one seek, however much there is"
    assert split_key(_replica({}), END) is None
    longest = b"z" * KEY_BYTES_MAX
    assert split_key(_replica({b"a": b"1", longest: b"2"}), END) == PREFIX + longest


def test_h5_the_key_by_load_is_the_requests() -> None:
    """Not that of the bytes."""
    replica = _replica({b"%03d" % i: b"." for i in range(100)})
    for i in range(4_000):
        replica.machine.traffic.until -= 1
        if replica.machine.traffic.until < 0:
            replica.machine.traffic.sample([PREFIX + b"%03d" % (90 + i % 10)])
    key = split_key(replica, LOAD)
    assert key is not None
    assert PREFIX + b"092" <= key <= PREFIX + b"098"


def test_g2_rows_of_before_are_surveyed_once_in_small_steps() -> None:
    """After an upgrade the largest partitions would be the ones that are never split."""

    async def main() -> None:
        rows = {b"%06d" % i: b"." * 500 for i in range(6_000)}
        replica = _replica(rows)
        assert replica.state.live_bytes > MiB
        manager: Any = SimpleNamespace(replica=lambda _partition: replica)
        method = SplitPoint(manager, LoopTimers(asyncio.get_running_loop()))
        assert method.handle(None, [5, MIDDLE]) == [None]
        assert method.handle(None, [5, MIDDLE]) == [None]
        async with asyncio.timeout(20):
            while (key := method.handle(None, [5, MIDDLE])[0]) is None:
                before = replica.state.scanned
                await asyncio.sleep(0.012)
                assert replica.state.scanned - before <= 1_500, "the loop is never held for long"
        assert 0.4 <= replica.state.below(key) <= 0.6
        assert not method._surveys

    asyncio.run(main())


def test_g2_only_the_leader_answers_and_only_what_is_asked_rightly() -> None:
    """A follower knows nothing of the load."""

    async def main() -> None:
        timers = LoopTimers(asyncio.get_running_loop())
        follower: Any = SimpleNamespace(replica=lambda _p: _replica({}, leads=False))
        with pytest.raises(NotLeader) as refused:
            SplitPoint(follower, timers).handle(None, [5, MIDDLE])
        assert refused.value.details["leader"] == 3
        nobody: Any = SimpleNamespace(replica=lambda _p: None)
        with pytest.raises(Unavailable):
            SplitPoint(nobody, timers).handle(None, [5, MIDDLE])
        for args in ([], [5], [5, "above"], ["5", MIDDLE]):
            with pytest.raises(InvalidArgument, match="SPLIT_POINT"):
                SplitPointMethod.verb.check([0, 132, 0, *args])

    asyncio.run(main())

"""What is counted of a partition's rows: how many, and when they expire."""

from __future__ import annotations

import random

import pytest

from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import NodeId, PartitionId
from kv.mvcc.records import Row, cur_row
from kv.partition.collectors import Collected
from kv.replica.state import PartitionState
from kv.storage.engine import STATE_FAMILIES
from kv.storage.memory import MemoryEngine
from kvorum.storage.garbage import ROUNDS_MAX, Garbage


class Table:
    """A partition that is written to, and the truth about it."""

    def __init__(self) -> None:
        self.engine = MemoryEngine(STATE_FAMILIES)
        self.d = PartitionDescriptor(PartitionId(5), b"", b"", 1, (NodeId(1),))
        self.state = PartitionState(self.engine, self.d)
        self.expiry: dict[bytes, int] = {}
        self.ts = 0

    def write(self, key: bytes, expire_ms: int, size: int = 20) -> None:
        self.ts += 1
        row = cur_row(key, b"v" * size, self.ts, self.state.cur(key), expire_ms=expire_ms)
        self.expiry[key] = expire_ms
        self._apply(row)

    def forget(self, key: bytes) -> None:
        del self.expiry[key]
        self._apply((key, None, None, None))

    def _apply(self, row: Row) -> None:
        state = self.state
        noted = state.choose([row], 0)
        batch = state.batch()
        state.fill(batch, [row], [])
        state.write(batch, index=state.index + 1, term=1, noted=noted)

    def share(self, now_ms: int) -> float:
        return sum(0 < e <= now_ms for e in self.expiry.values()) / len(self.expiry)

    def restart(self) -> None:
        """As after a kill: what was written is there, what was in memory is gone."""
        self.engine = self.engine.reopen()
        self.state = PartitionState(self.engine, self.d)

    def check(self, times: range) -> None:
        found = self.state.collected
        assert abs(found.rows - len(self.expiry)) <= len(self.expiry) / 20
        for now_ms in times:
            assert abs(found.expired_share(now_ms) - self.share(now_ms)) <= 0.05


@pytest.mark.parametrize("seed", range(4))
def test_g4_the_share_that_expired_is_known_without_a_look(seed: int) -> None:
    """Within 5 points of the truth at every moment, over overwrites, removals and restarts."""
    chance, table = random.Random(seed), Table()
    spread = [100, 10_000, 1_000_000][seed % 3]
    for i in range(3_000):
        key = b"%04d" % chance.randrange(2_000)
        expire = chance.choice([0, 1 + chance.randrange(spread), 1 + i])
        table.write(key, expire, size=chance.choice([10, 600]))
        if i % 5 == 4 and (gone := chance.choice(list(table.expiry))):
            table.forget(gone)
    table.check(range(0, spread + 1, spread // 20))
    table.restart()
    table.check(range(0, spread + 1, spread // 20))


def test_g1_what_is_collected_is_parted_and_joined() -> None:
    """A split would count everything in both halves, a merge in none."""
    table = Table()
    for i in range(100):
        table.write(b"%03d" % i, 1_000 + i)
    left = table.state.collected
    right = left.cut(0.25)
    assert (left.rows, right.rows) == (75, 25)
    assert right.expired_share(1_049) == pytest.approx(0.5)
    left.join(right)
    assert left.rows == 100
    assert left.expired_share(1_049) == pytest.approx(0.5)
    again = Collected(left.record())
    assert (again.rows, again.expired_share(1_024)) == (100, pytest.approx(0.25))


def test_g3_one_version_per_row_is_skipped_and_more_are_collected() -> None:
    """A range with a little garbage would be walked at every look; nothing is flushed here, so what
    is in memory counts.
    """
    once, often = Table(), Table()
    for i in range(1_000):
        once.write(b"%04d" % i, 0)
        often.write(b"%04d" % (i % 300), 0)
    once.write(b"0000", 0)
    for table, old, walked in ((once, 1, False), (often, 700, True)):
        garbage = Garbage()
        found = garbage.look(old, table.ts, table.ts)
        assert found == old
        assert garbage.worth_a_walk(found, table.state.collected.rows) is walked
    waiting = Garbage()
    for _ in range(ROUNDS_MAX - 1):
        found = waiting.look(1, 10, 10)
        assert not waiting.worth_a_walk(found, 1_000)
    assert waiting.worth_a_walk(waiting.look(1, 10, 10), 1_000), "but not for ever"

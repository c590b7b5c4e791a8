"""Crashes at random moments of a lone voter: what was acknowledged stays, in order, once.

A log DB that loses unsynced batches, and a state DB that loses what was not flushed, several groups
on one host. Each life of the node ends at a random moment, sometimes while the one before is still
being recovered.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from raft import RaftConfig, records
from raft.memory import MemoryLogDB, VirtualTimers
from raft.replica import Replica
from tests.raft.support import GROUP, Machine, Node

GROUPS = (1, 2, 3)
Row = tuple[int, int, bytes]


@dataclass
class StateDB:
    """Applied rows (index, term, command). A crash keeps the flushed and a prefix of the rest."""

    rows: list[Row] = field(default_factory=list)
    flushed: int = 0

    def crash(self, rng: random.Random) -> StateDB:
        kept = rng.randint(self.flushed, len(self.rows))
        return StateDB(self.rows[:kept], kept)


class Durable(Machine):
    """A machine whose state is a StateDB; refuses to apply anything twice or out of order."""

    def __init__(self, db: StateDB) -> None:
        super().__init__(at=db.rows[-1][:2] if db.rows else (0, 0))
        self.db = db

    def apply(
        self, index: int, term: int, command: bytes | memoryview, token: object | None
    ) -> None:
        super().apply(index, term, command, token)
        self.db.rows.append((index, term, bytes(command)))

    def advance(self, index: int, term: int) -> None:
        super().advance(index, term)
        self.db.rows.append((index, term, b""))


class History:
    """What the world outside knows of one group."""

    def __init__(self) -> None:
        self.acked: dict[int, bytes] = {}
        self.written: dict[tuple[int, int], bytes] = {}

    def saw_log(self, db: MemoryLogDB, group_id: int) -> None:
        """No (index, term) may ever hold two commands, in any life."""
        start, end = records.prefix(group_id), records.prefix(group_id + 1)
        for key, value in db.scan(start, end):
            if len(key) == 16:
                command, index, term = records.decode_entry(key, value)
                assert self.written.setdefault((index, term), command) == command

    def check(self, rows: list[Row]) -> None:
        for index, command in self.acked.items():
            assert rows[index - 1][2] == command, f"acknowledged entry {index} is lost or changed"


class World:
    """One node through its lives."""

    def __init__(self, seed: int) -> None:
        self.rng, self.timers, self.db = random.Random(seed), VirtualTimers(), MemoryLogDB()
        self.states = {group_id: StateDB() for group_id in GROUPS}
        self.histories = {group_id: History() for group_id in GROUPS}
        self.sequence = 0

    def live(self) -> None:
        """Start, work for a random time, crash."""
        rng = self.rng
        self.node = Node(
            db=self.db,
            timers=self.timers,
            sync_s=lambda: rng.choice([0.0, 0.0005, 0.002, 0.02]),
            config=RaftConfig(memory_entries_max=8, replay_entries_max=3),
        )
        self.open: dict[int, Replica] = {}
        self.machines: dict[int, Durable] = {}
        for group_id in GROUPS:
            self.machines[group_id] = Durable(self.states[group_id])
            self.node.host.create_group(group_id, [1])
            self.open[group_id] = self.node.host.open_group(group_id, self.machines[group_id])
        for _ in range(rng.choice([1, 5, 40])):
            self.act()
            self.timers.run(rng.choice([0.0, 0.0, 0.0003, 0.005, 0.05]))
            self.collect()
        assert self.node.fatal == []
        self.crash()

    def act(self) -> None:
        group_id = self.rng.choice(GROUPS)
        group, state = self.open[group_id], self.states[group_id]
        choice = self.rng.randrange(6)
        if choice == 0:
            state.flushed = len(state.rows)
        elif choice == 1 and state.flushed:
            group.compact(self.rng.randint(1, state.flushed))
        elif group.leader:
            for _ in range(self.rng.randint(1, 4)):
                self.sequence += 1
                command = b"%d" % self.sequence
                group.propose(command, (group.last_index + 1, command))

    def collect(self) -> None:
        for group_id, machine in self.machines.items():
            history = self.histories[group_id]
            for token in machine.acked:
                assert isinstance(token, tuple)
                history.acked[token[0]] = token[1]
            machine.acked.clear()
            history.saw_log(self.db, group_id)

    def crash(self) -> None:
        self.node.host.close()
        self.db = self.db.crash(self.rng.randint(0, self.db.unsynced))
        self.states = {group_id: state.crash(self.rng) for group_id, state in self.states.items()}


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(40))
def test_no_crash_loses_or_repeats_an_acknowledged_command(seed: int) -> None:
    """The promise of the whole package: an acknowledgement survives every crash."""
    world = World(seed)
    for _ in range(12):
        world.live()
    node, machines = Node(db=world.db, timers=world.timers), {}
    for group_id in GROUPS:
        node.host.create_group(group_id, [1])
        machines[group_id] = Durable(world.states[group_id])
        group = node.host.open_group(group_id, machines[group_id])
        assert world.timers.run(until=lambda group=group: group.leader)  # type: ignore[misc]
        world.histories[group_id].check(machines[group_id].db.rows)
    assert sum(len(history.acked) for history in world.histories.values()) > 20, "a dull seed"


def test_a_life_that_trusts_the_page_cache_would_lose_what_it_applied() -> None:
    """Why the first sync of a life comes before its replay: kill, restart, then the power goes."""
    node, machine = Node(sync_s=1.0), Machine()
    group = node.open(machine)
    assert node.timers.run(until=lambda: group.leader)
    group.propose(b"in the page cache only", None)
    node.timers.run(0.0)
    killed = node.db.crash(batches_kept=node.db.unsynced)
    second, replayed = Node(db=killed, sync_s=1.0), Machine()
    second.host.open_group(GROUP, replayed)
    second.timers.run(0.9)
    after_power_loss = second.db.crash()
    third, last = Node(db=after_power_loss), Machine()
    third.lead(last)
    assert last.commands[: len(replayed.commands)] == replayed.commands

"""Several nodes on one virtual clock: cuts, deaths, pauses, restarts, and a count of messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from raft import RaftConfig
from raft.memory import MemoryLogDB, MemoryNetwork, VirtualTimer, VirtualTimers
from raft.replica import Replica
from tests.raft.support import GROUP, Machine, Node


class PausableTimers:
    """The timers of one node: while it is paused its calls wait, and the clock goes on, as for a
    process that was stopped by a signal. `stood_s`: for so long its clock did not.
    """

    def __init__(self, timers: VirtualTimers) -> None:
        self._timers = timers
        self.paused = False
        self.stood_s = 0.0
        self._waiting: list[Callable[[], object]] = []

    def monotonic(self) -> float:
        return self._timers.now_s - self.stood_s

    def call_later(self, delay_s: float, fn: Callable[..., object], *args: object) -> VirtualTimer:
        timer = VirtualTimer(lambda: fn(*args))

        def due() -> None:
            if self.paused:
                self._waiting.append(due)
            elif timer.call is not None:
                timer.call()

        self._timers.call_later(delay_s, due)
        return timer

    def call_soon(self, fn: Callable[..., object], *args: object) -> VirtualTimer:
        return self.call_later(0.0, fn, *args)

    def resume(self) -> None:
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for due in waiting:
            due()


class Fleet:
    """Nodes with one group (GROUP), or more. The transport of a cut or dead link says so, unless
    `tell` is False.
    """

    def __init__(
        self,
        *,
        config: RaftConfig | None = None,
        seed: int = 1,
        founded_by_all: bool = False,
    ) -> None:
        self._founded_by_all = founded_by_all
        self.timers, self.config, self.seed = VirtualTimers(), config or RaftConfig(), seed
        self.cuts: set[tuple[int, int]] = set()
        self.network = MemoryNetwork(self.timers, lost=lambda a, b: (a, b) in self.cuts)
        self.sent: Counter[str] = Counter()
        self.nodes: dict[int, Node] = {}
        self.clocks: dict[int, PausableTimers] = {}
        self.machines: dict[int, Machine] = {}
        self.groups: dict[int, Replica] = {}
        self._deliver = self.network._deliver
        self.network._deliver = self._count  # type: ignore[method-assign]

    def _count(self, source: int, target: int, group_id: int, message: dict[str, Any]) -> None:
        clock = self.clocks.get(target)
        if clock is not None and clock.paused:
            clock.call_later(0.0, self._count, source, target, group_id, message)
            return
        self.sent[str(message["type"])] += 1
        self._deliver(source, target, group_id, message)

    # -- nodes

    def add(
        self,
        node_id: int,
        voters: Iterable[int] = (),
        *,
        witnesses: Iterable[int] = (),
        db: MemoryLogDB | None = None,
        machine: Machine | None = None,
        **options: Any,
    ) -> Replica:
        """A node with a replica of GROUP; as a witness if it is among `witnesses`."""
        node = self.host(node_id, db=db, **options)
        voting = [witness for witness in witnesses if witness in voters]
        node.host.create_group(GROUP, list(voters), (), voting)
        if node_id in witnesses:
            group = node.host.open_witness(GROUP)
        else:
            self.machines[node_id] = machine or Machine()
            by_all = self._founded_by_all
            group = node.host.open_group(GROUP, self.machines[node_id], founded_by_all=by_all)
        self.groups[node_id] = group
        for other in self.network.hosts.values():
            if other is not node.host:
                other.peer_up(node_id)
        return group

    def host(self, node_id: int, *, db: MemoryLogDB | None = None, **options: Any) -> Node:
        clock = self.clocks[node_id] = PausableTimers(self.timers)
        node = Node(
            node_id,
            db=db,
            timers=clock,  # type: ignore[arg-type]
            config=self.config,
            transport=self.network.transport(node_id),
            seed=self.seed * 1000 + node_id,
            **options,
        )
        self.nodes[node_id] = node
        self.network.hosts[node_id] = node.host
        return node

    def all(self, voters: Iterable[int], *, witnesses: Iterable[int] = ()) -> Fleet:
        for node_id in voters:
            self.add(node_id, voters, witnesses=witnesses)
        return self

    def kill(self, node_id: int, *, tell: bool = True) -> MemoryLogDB:
        """The power of a node goes; its log as a restart would find it."""
        self.network.hosts.pop(node_id)
        self.nodes[node_id].host.close()
        self.groups.pop(node_id, None)
        if tell:
            for other in self.network.hosts.values():
                other.peer_down(node_id)
        return self.nodes[node_id].db.crash()

    def restart(self, node_id: int, db: MemoryLogDB, *, witness: bool = False) -> Replica:
        """With an empty machine, which replays the log."""
        return self.add(node_id, db=db, witnesses=[node_id] if witness else ())

    def cut(self, left: Iterable[int], right: Iterable[int], *, tell: bool = True) -> None:
        for a in left:
            for b in right:
                self.cuts |= {(a, b), (b, a)}
                if tell:
                    self.nodes[a].host.peer_down(b)
                    self.nodes[b].host.peer_down(a)

    def heal(self) -> None:
        cuts, self.cuts = self.cuts, set()
        for a, b in cuts:
            if a in self.network.hosts and b in self.network.hosts:
                self.nodes[a].host.peer_up(b)

    # -- what happens

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        done = self.timers.run(seconds, until=until)
        fatal = [error for node in self.nodes.values() for error in node.fatal]
        if fatal:
            raise fatal[0]
        return done

    @property
    def leader(self) -> Replica | None:
        leading = [group for group in self.groups.values() if group.leader]
        return max(leading, key=lambda group: group.term, default=None)

    def elect(self, *, within_s: float = 10.0) -> Replica:
        assert self.run(within_s, lambda: self.leader is not None), "nobody leads"
        leader = self.leader
        assert leader is not None
        return leader

    def elect_node(self, node_id: int) -> Replica:
        """Let this node lead, by transfer if need be."""
        leader = self.elect()
        self.run(0.1)
        if leader is not self.groups[node_id]:
            leader.transfer(node_id)
            assert self.run(5, lambda: self.groups[node_id].leader)
        self.run(0.5)
        return self.groups[node_id]

    def write(self, command: bytes, *, within_s: float = 5.0) -> Replica:
        """Acknowledged by whoever leads."""
        leader = self.elect(within_s=within_s)
        leader.propose(command, command)
        machine = self.machines[leader._host.node_id]
        assert self.run(within_s, lambda: command in machine.acked), f"{command!r} is not acked"
        return leader

    def id_of(self, group: Replica) -> int:
        return group._host.node_id

    def everywhere(self, command: bytes, *, within_s: float = 5.0) -> None:
        assert self.run(
            within_s,
            lambda: all(command in self.machines[node].commands for node in self._with_data()),
        )

    def _with_data(self) -> list[int]:
        return [node for node, group in self.groups.items() if group._core.keeps_data]


def member(status: Mapping[int, Any], node: int) -> Any:
    """A follower's part of a status."""
    return status[node]

"""The simulated network: everything between two nodes, with its faults.

Every message goes through the production encoding (raft/wire.py), so what a peer sees are copies
made of bytes; to a peer whose queue is full, heartbeats lose their position as in raft/lanes.py.
Faults, per message: delay, drop, duplicate, reorder (a delay of its own each). Per link and
direction: cut (silent loss), clog (nothing arrives before a moment, then all of it), no room (the
sender's queue is full). Per pair: the connection is lost (what is on its way is gone, both ends are
told, later they are told of a new one).

A directed scenario sets `gate`, which sees every message first and may hold it back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raft import wire
from raft.lanes import bare
from tests.sim.raft.probes import probes

if TYPE_CHECKING:
    from tests.sim.raft.world import World

Message = dict[str, Any]
PASS, DROP, HOLD = "pass", "drop", "hold"
Gate = Callable[[int, int, Message], str]


def encode(group_id: int, message: Mapping[str, object]) -> bytes:
    return wire.messages_body([wire.pack_message(group_id, message)])


def decode(data: bytes) -> Message:
    ((_, message),) = wire.read_messages(data)
    return message


@dataclass(slots=True)
class Chances:
    """Per message."""

    drop: float = 0.0
    duplicate: float = 0.0
    bare: float = 0.0
    late: float = 0.0
    late_s: float = 1.5


class Network:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.chances = Chances()
        self.cut: set[tuple[int, int]] = set()
        self.full: set[tuple[int, int]] = set()
        self.clogged_until: dict[tuple[int, int], float] = {}
        self.gate: Gate | None = None
        self.held: list[tuple[int, int, int, Message]] = []
        self._epoch: defaultdict[frozenset[int], int] = defaultdict(int)
        self._down: set[frozenset[int]] = set()

    # ------------------------------------------------------------------ messages

    def send(self, source: int, target: int, group_id: int, message: Mapping[str, object]) -> None:
        world = self._world
        if (source, target) in self.full or self._world.random() < self.chances.bare:
            message = bare(message)  # a heartbeat that overtakes what waits tells no position
        data = encode(group_id, message)
        world.watch_sent(source, target, group_id, message)
        if self.gate is not None:
            verdict = self.gate(source, target, dict(message))
            if verdict == HOLD:
                self.held.append((source, target, group_id, decode(data)))
            if verdict != PASS:
                return
        link, random, chances = (source, target), world.random, self.chances
        if target not in world.nodes or link in self.cut or random() < chances.drop:
            return
        pair = frozenset(link)
        if pair in self._down:
            return
        copies = 2 if random() < chances.duplicate else 1
        for _ in range(copies):
            delay_s = world.latency_s * (0.2 + random())
            if random() < chances.late:
                delay_s += random() ** 3 * chances.late_s
            if self.clogged_until:
                delay_s = max(delay_s, self.clogged_until.get(link, 0.0) - world.events.now_s)
            epoch = self._epoch[pair]
            world.events.after(delay_s, self._arrive, source, target, group_id, data, epoch)

    def _arrive(self, source: int, target: int, group_id: int, data: bytes, epoch: int) -> None:
        if epoch == self._epoch[frozenset((source, target))]:
            self.deliver(source, target, group_id, decode(data))

    def deliver(self, source: int, target: int, group_id: int, message: Message) -> None:
        world = self._world
        world.note_message(source, target, group_id, message)
        world.nodes[target].receive(source, group_id, message)

    def release(self, wanted: Callable[[int, int, Message], bool] = lambda _s, _t, _m: True) -> int:
        """Deliver held messages, oldest first; how many there were."""
        ready = [item for item in self.held if wanted(item[0], item[1], item[3])]
        self.held = [item for item in self.held if not wanted(item[0], item[1], item[3])]
        for item in ready:
            self._world.events.after(0.0, self.deliver, *item)
        return len(ready)

    def room(self, source: int, target: int) -> bool:
        return (source, target) not in self.full

    # ------------------------------------------------------------------ faults

    def disconnect(self, a: int, b: int, down_s: float) -> None:
        pair = frozenset((a, b))
        if a == b or pair in self._down:
            return
        probes.hit("connection lost")
        self._down.add(pair)
        self._epoch[pair] += 1
        events, random = self._world.events, self._world.random
        for one, other in ((a, b), (b, a)):
            events.after(random() * down_s, self._tell, one, other, False, pair)
        events.after(down_s, self._reconnect, a, b)

    def _reconnect(self, a: int, b: int) -> None:
        pair = frozenset((a, b))
        if pair in self._down:
            self._down.discard(pair)
            for one, other in ((a, b), (b, a)):
                self._tell(one, other, True, pair)

    def _tell(self, node: int, peer: int, up: bool, pair: frozenset[int]) -> None:
        if up or pair in self._down:
            self._world.nodes[node].peer(peer, up)

    def died(self, node: int) -> None:
        """Its peers learn of it by the broken connections; what was on its way is gone."""
        for other in self._world.nodes:
            if other != node:
                self._epoch[frozenset((node, other))] += 1
                self._tell_soon(other, node, up=False)

    def came(self, node: int) -> None:
        for other in self._world.nodes:
            if other != node:
                self._tell_soon(other, node, up=True)
                self._tell_soon(node, other, up=True)

    def _tell_soon(self, one: int, other: int, *, up: bool) -> None:
        world = self._world
        delay_s = world.random() * world.config.heartbeat_ms / 1000
        world.events.after(delay_s, self._tell_of_node, one, other, up)

    def _tell_of_node(self, one: int, other: int, up: bool) -> None:
        nodes = self._world.nodes
        if nodes[other].up == up and frozenset((one, other)) not in self._down:
            nodes[one].peer(other, up)

    def isolate(self, node: int) -> None:
        for other in self._world.nodes:
            if other != node:
                self.cut |= {(node, other), (other, node)}

    def heal(self) -> None:
        self.cut.clear()
        self.full.clear()
        self.clogged_until.clear()
        self.chances = Chances()
        for pair in sorted(self._down, key=sorted):
            self._reconnect(*sorted(pair))

"""Whatever goes wrong in a whole cluster: one act after the other, at random moments, half of them
against a node that leads something, and ambushes at the n-th message or sync of somebody.

Limits of what is fair: all may stop, nothing may be lost that was synced. (Bits that flip and
majorities that are lost for good: tests/sim/raft.)
"""

from __future__ import annotations

from collections.abc import Callable

from kv.base.ids import META_PARTITION
from kv.replica.replica import Replica
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.simulation.life import Life, State
from kvorum.testing.simulation.loop import SimRng
from kvorum.testing.simulation.probes import probes
from kvorum.testing.simulation.processes import Cluster, NodeProcess, outcome_of
from raft import RaftError

WEIGHTS = {
    "kill": 3,
    "power": 3,
    "lie in wait": 6,
    "pause": 3,
    "cut one way": 2,
    "isolate": 2,
    "isolate from nodes": 2,
    "split": 1,
    "clog": 2,
    "disconnect": 3,
    "mend": 5,
    "fail syncs": 1,
    "jump": 2,
    "transfer": 2,
    "kill client": 2,
    "pause client": 2,
    "stop": 2,
    "reshape": 0,  # partitions are split and merged: plan.weights
    "move": 0,  # a replica goes to another node: plan.replicas, plan.weights
}


class Nemesis:
    """See the module. `begin`, `end`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._rng = cluster, cluster.rng
        self._active = False
        self._armed: list[tuple[str, int]] = []
        acts: dict[str, Callable[[NodeProcess], None]] = {
            "kill": self._kill,
            "power": self._power,
            "lie in wait": self._lie_in_wait,
            "pause": self._pause,
            "cut one way": self._cut_one_way,
            "isolate": self._isolate,
            "isolate from nodes": self._isolate_from_nodes,
            "split": self._split,
            "clog": self._clog,
            "disconnect": self._disconnect,
            "mend": self._mend,
            "fail syncs": self._fail_syncs,
            "jump": self._jump,
            "transfer": self._transfer,
            "kill client": self._kill_client,
            "pause client": self._pause_client,
            "stop": self._stop,
            "reshape": self._reshape,
            "move": self._move,
        }
        weights = {**WEIGHTS, **cluster.plan.weights}
        self._acts = [(name, acts[name]) for name, weight in weights.items() for _ in range(weight)]

    def begin(self) -> None:
        self._active = True
        self._cluster.network.on_bytes = self._on_bytes
        self._cluster.on_persist = self._on_persist
        self._schedule()

    def end(self) -> None:
        """Nothing new happens; what was done is not undone."""
        self._active = False
        self._cluster.network.on_bytes = lambda _life, _what: None
        self._cluster.on_persist = lambda _node: None

    def heal(self) -> None:
        """Everything is whole again from now on."""
        self.end()
        self._cluster.network.heal()
        for client in self._cluster.clients.values():
            client.life.resume()
        for node in self._cluster.nodes.values():
            node.clock.skew_ms = self._cluster.plan.skew_of(node.number)
            if node.sync_fails:
                node.kill(power=False)
            if node.life is not None:
                node.life.resume()
            node.start()

    def _schedule(self) -> None:
        if self._cluster.plan.faults_per_s:
            delay_s = self._rng.expovariate(self._cluster.plan.faults_per_s)
            self._cluster.later(delay_s, self._act)

    def _act(self) -> None:
        if not self._active:
            return
        self._schedule()
        nodes = list(self._cluster.nodes.values())
        leading = [node for node in nodes if node.led()]
        node = self._rng.choice(leading if leading and self._rng.random() < 0.5 else nodes)
        name, act = self._rng.choice(self._acts)
        self._cluster.note("act:", name, node.number)
        act(node)

    # ------------------------------------------------------------------ processes

    def _kill(self, node: NodeProcess) -> None:
        self._down(node, power=False)

    def _power(self, node: NodeProcess) -> None:
        victims = [node] if self._rng.random() < 0.9 else list(self._cluster.nodes.values())
        for victim in victims:  # sometimes of the whole cluster
            self._down(victim, power=True)

    def _down(self, node: NodeProcess, *, power: bool) -> None:
        if not node.up:
            return
        if node.leads():
            probes.hit("the oracle's leader dies")
        node.kill(power=power)
        down_s = self._rng.choice([0.05, 0.5, 1.5]) * (0.5 + self._rng.random())
        self._cluster.later(down_s, node.start)

    def _pause(self, node: NodeProcess) -> None:
        life = node.life
        if life is None:
            return
        if node.led():
            probes.hit("a leader stands still")
        life.pause()
        self._cluster.later(self._rng.choice([0.2, 1.0, 2.5]) * self._rng.random(), life.resume)

    def _fail_syncs(self, node: NodeProcess) -> None:
        """It must stop by itself: whoever went on would acknowledge what is not there."""
        if node.running:
            probes.hit("sync failed")
            node.fail_syncs()

    def _jump(self, node: NodeProcess) -> None:
        probes.hit("clock jumps")
        node.clock.skew_ms = self._rng.choice(self._cluster.plan.jumps)

    def _kill_client(self, _node: NodeProcess) -> None:
        self._rng.choice(list(self._cluster.clients.values())).kill()

    def _pause_client(self, _node: NodeProcess) -> None:
        """A coordinator that goes on when others took it for dead."""
        life = self._rng.choice(list(self._cluster.clients.values())).life
        probes.hit("a client stands still")
        life.pause()
        self._cluster.later(self._rng.choice([0.2, 1.0, 2.5]) * self._rng.random(), life.resume)

    def _stop(self, node: NodeProcess) -> None:
        node.stop()

    def _transfer(self, node: NodeProcess) -> None:
        """Hand a leadership over while it works."""
        if not node.running or node.node is None or not (led := node.led()):
            return
        replica = node.node.store.manager.replica(self._rng.choice(led))
        target = self._rng.choice(list(self._cluster.nodes))
        if replica is not None and target != node.number and node.life is not None:
            probes.hit("leadership transferred")
            node.life.enter(_transfer, replica, target)

    # ------------------------------------------------------------------ ambushes

    def _lie_in_wait(self, _node: NodeProcess) -> None:
        """Strike at a moment of its own choice: the n-th message or sync from now on, whose ever it
        is.
        """
        moment = self._rng.choice(["sends", "gets", "hears", "persists"])
        self._armed.append((moment, self._rng.choice([1, 3, 10, 30])))

    def _on_persist(self, node: NodeProcess) -> None:
        if node.life is not None:
            self._moment(node.life, "persists")

    def _on_bytes(self, life: Life, moment: str) -> None:
        client = self._cluster.clients.get(life.number)
        if client is not None:
            if client.life is life and self._rng.random() < self._cluster.plan.kills_per_message:
                probes.hit(f"client dies: {moment}")
                client.kill()
            return
        self._moment(life, moment)

    def _moment(self, life: Life, moment: str) -> None:
        if not self._armed:
            return
        for i, (armed, count) in enumerate(self._armed):
            if armed == moment:
                if count > 1:
                    self._armed[i] = armed, count - 1
                    return
                del self._armed[i]
                self._strike(life, moment)
                return

    def _strike(self, life: Life, moment: str) -> None:
        node = self._cluster.nodes.get(life.number)
        if node is None or node.life is not life or life.state is not State.RUNNING:
            return
        probes.hit(f"ambush: {moment}")
        self._cluster.note("ambush", moment, life)
        act = self._rng.choice([self._kill, self._power, self._power, self._pause, self._isolate])
        if act is self._pause or act is self._isolate:
            self._cluster.later(0.0, act, node)
        else:
            act(node)

    # ------------------------------------------------------------------ network

    def _everybody(self) -> list[int]:
        return [*self._cluster.nodes, *self._cluster.clients]

    def _cut_one_way(self, node: NodeProcess) -> None:
        for other in self._everybody():
            if other != node.number and self._rng.random() < 0.5:
                link = (node.number, other) if self._rng.random() < 0.5 else (other, node.number)
                self._cluster.network.cut.add(link)

    def _isolate(self, node: NodeProcess) -> None:
        self._cluster.network.isolate(node.number, self._everybody())
        self._cluster.later(0.3 + self._rng.random() * 2, self._mend, node)

    def _isolate_from_nodes(self, node: NodeProcess) -> None:
        """Clients still reach it."""
        self._cluster.network.isolate(node.number, list(self._cluster.nodes))
        self._cluster.later(0.3 + self._rng.random() * 2, self._mend, node)

    def _split(self, _node: NodeProcess) -> None:
        everybody = self._everybody()
        side = {number for number in everybody if self._rng.random() < 0.5}
        self._cluster.network.cut |= {
            (a, b) for a in everybody for b in everybody if (a in side) != (b in side)
        }

    def _clog(self, node: NodeProcess) -> None:
        link = (node.number, self._rng.choice(self._everybody()))
        until_s = self._cluster.loop.time() + self._rng.random() * 2
        self._cluster.network.clogged_until[self._rng.choice([link, link[::-1]])] = until_s

    def _disconnect(self, node: NodeProcess) -> None:
        self._cluster.network.disconnect(node.number, self._rng.choice(self._everybody()))

    def _mend(self, _node: NodeProcess) -> None:
        self._cluster.network.cut.clear()

    # ------------------------------------------------------------------ partitions

    def _reshape(self, node: NodeProcess) -> None:
        """Whoever is asked hands a procedure in: a partition is split in its middle, or merged with
        the one above. It may be refused, and take its time.
        """
        if node.node is None:
            return
        found = [d for d in node.node.store.manager.descriptors() if d.id != META_PARTITION]
        at = self._rng.randrange(len(found)) if found else 0
        if not found:
            return
        name, args = "kvorum.split_partition", {"partition": found[at].id}
        if at + 1 < len(found) and self._rng.random() < 0.5:
            name = "kvorum.merge_partitions"
            args = {"left": found[at].id, "right": found[at + 1].id}
        self._submit(node, name, args)

    def _move(self, node: NodeProcess) -> None:
        """A replica leaves a node for one that has none of the partition."""
        if node.node is None:
            return
        replicas = [
            r for r in node.node.store.manager.replicas() if r.descriptor.id != META_PARTITION
        ]
        if not replicas:
            return
        replica = self._rng.choice(replicas)
        voters = sorted(replica.group.status().voters)
        free = [n for n in self._cluster.nodes if n not in voters]
        if voters and free:
            probes.hit("replica to be moved")
            args = {"from": self._rng.choice(voters), "to": self._rng.choice(free)}
            self._submit(node, "kvorum.move_replica", {"partition": replica.descriptor.id, **args})

    def _submit(self, node: NodeProcess, name: str, args: dict[str, object]) -> None:
        """By whoever runs at that node, if it is up."""
        backend = getattr(node.node, "backend", None)
        if backend is None or not node.running or not node.ready or node.life is None:
            return
        db = AsyncDatabase(backend, SimRng(self._rng.getrandbits(64)))
        node.life.spawn(outcome_of(db.submit(name, args)))


def _transfer(replica: Replica, target: int) -> None:
    try:
        replica.group.transfer(target)
    except RaftError:
        probes.hit("transfer refused")

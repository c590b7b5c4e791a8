"""Whatever goes wrong: one act after the other, at random moments, half of them against a leader.

Limits of what is fair: messages and unsynced bytes may be lost, machines may stop, sleep and run
late; a majority of a group is never lost *for good* (a damaged log is), and clocks jump only in
seeds without leases, whose ground they take away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raft import RaftError
from raft.replica import Replica
from tests.sim.raft.probes import probes

if TYPE_CHECKING:
    from tests.sim.raft.node import SimNode
    from tests.sim.raft.world import World

MOMENTS = ("votes", "campaigns", "leads", "replicates", "acknowledges", "installs", "has installed")


WEIGHTS = {
    "crash": 3,
    "lie in wait": 4,
    "pause": 2,
    "cut one way": 2,
    "isolate": 1,
    "split": 2,
    "clog": 2,
    "fill": 2,
    "disconnect": 2,
    "mend": 8,
    "flush": 2,
    "compact": 7,
    "members": 8,
    "transfer": 2,
    "campaign": 1,
    "flip": 1,
    "fail syncs": 1,
    "jump": 3,
}
"""How often each act comes, unless the plan says otherwise."""


class Nemesis:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world, self._rng = world, world.rng
        self._active = False
        self._armed: dict[str, Callable[[SimNode], None]] = {}
        acts: dict[str, Callable[[SimNode], None]] = {
            "crash": self._crash,
            "lie in wait": self._lie_in_wait,
            "pause": self._pause,
            "cut one way": self._cut_one_way,
            "isolate": self._isolate,
            "split": self._split,
            "clog": self._clog,
            "fill": self._fill,
            "disconnect": self._disconnect,
            "mend": self._mend,
            "flush": self._flush,
            "compact": self._compact,
            "members": self._change_members,
            "transfer": self._transfer,
            "campaign": self._campaign,
            "flip": self._flip,
            "fail syncs": self._fail_syncs,
            "jump": self._jump,
        }
        weights = {**WEIGHTS, **world.plan.weights}
        if not world.plan.jumping_clocks:
            weights["jump"] = 0
        self._acts = [acts[name] for name, weight in weights.items() for _ in range(weight)]

    def begin(self) -> None:
        self._active = True
        self._world.ambush = self._moment
        self._schedule()

    def end(self) -> None:
        self._active = False

    def _schedule(self) -> None:
        delay_s = self._rng.expovariate(self._world.plan.faults_per_s)
        self._world.events.after(delay_s, self._act)

    def _act(self) -> None:
        if not self._active:
            return
        self._schedule()
        rng, nodes = self._rng, list(self._world.nodes.values())
        working = [(node, node.replicas.values()) for node in nodes if node.up]
        leading = [node for node, all_ in working if any(r._core.raft_leader for r in all_)]
        if any(replica._core.asleep for _, all_ in working for replica in all_):
            probes.hit("asleep")
        node = rng.choice(leading if leading and rng.random() < 0.5 else nodes)
        rng.choice(self._acts)(node)

    def _later(self, seconds: float, fn: Callable[[], object]) -> None:
        self._world.events.after(seconds, fn)

    def _lie_in_wait(self, _node: SimNode) -> None:
        """Strike whoever comes to this moment next, right then: there promises are broken."""
        acts = [self._crash, self._crash, self._pause, self._cut_off]
        self._armed[self._rng.choice(MOMENTS)] = self._rng.choice(acts)

    def _moment(self, node: SimNode, moment: str) -> None:
        act = self._armed.pop(moment, None)
        if act is not None and self._active:
            probes.hit(f"ambush: {moment}")
            delay_s = self._rng.choice([0.0, 0.0, 0.001, 0.005])
            self._world.events.after(delay_s, act, node)

    # ------------------------------------------------------------------ machines

    def _crash(self, node: SimNode) -> None:
        world, rng = self._world, self._rng
        victims = [node] if rng.random() < 0.9 else list(world.nodes.values())
        for victim in victims:  # sometimes the power of the whole cluster
            victim.crash()
            down_s = rng.choice([0.001, 0.05, 0.3, 1.0]) * (0.5 + rng.random())
            self._later(down_s, victim.restart)
            if rng.random() < 0.3:  # and again, before it has recovered
                again_s = down_s + rng.random() * rng.choice([0.01, 0.1])
                self._later(again_s, lambda node=victim: _restart(node))  # type: ignore[misc]

    def _pause(self, node: SimNode) -> None:
        probes.hit("pauses")
        node.pause()
        self._later(self._rng.random() * 2, node.resume)

    def _jump(self, node: SimNode) -> None:
        node.jump(self._rng.choice([0.01, 0.2, 3.0]))
        self._world.note("clock jumps", node.id)

    def _fail_syncs(self, node: SimNode) -> None:
        """Until its next start: whoever went on would acknowledge what is not there."""
        node.disk.failing = True

        def replace() -> None:
            node.crash()
            node.disk.failing = False
            node.restart()

        self._world.note("syncs fail", node.id)
        self._later(0.2 + self._rng.random(), replace)

    # ------------------------------------------------------------------ network

    def _cut_one_way(self, node: SimNode) -> None:
        rng, network = self._rng, self._world.network
        for other in self._world.nodes:
            if rng.random() < 0.7:
                network.cut.add((node.id, other) if rng.random() < 0.5 else (other, node.id))
        self._world.note("cut", sorted(network.cut))

    def _isolate(self, node: SimNode) -> None:
        self._world.network.isolate(node.id)
        self._world.note("isolate", node.id)

    def _cut_off(self, node: SimNode) -> None:
        self._isolate(node)
        self._later(0.1 + self._rng.random() * 2, lambda: self._mend(node))

    def _split(self, _node: SimNode) -> None:
        ids = list(self._world.nodes)
        side = {node for node in ids if self._rng.random() < 0.5}
        cut = {(a, b) for a in ids for b in ids if (a in side) != (b in side)}
        self._world.network.cut |= cut
        self._world.note("split", sorted(side))

    def _clog(self, node: SimNode) -> None:
        link = node.id, self._rng.choice(list(self._world.nodes))
        until_s = self._world.events.now_s + self._rng.random() * 2
        self._world.network.clogged_until[link] = until_s
        self._world.note("clog", link)

    def _fill(self, node: SimNode) -> None:
        link = node.id, self._rng.choice(list(self._world.nodes))
        full = self._world.network.full
        full.add(link)
        self._later(self._rng.random(), lambda: full.discard(link))

    def _disconnect(self, node: SimNode) -> None:
        other = self._rng.choice(list(self._world.nodes))
        self._world.network.disconnect(node.id, other, self._rng.random())
        self._world.note("connection lost", node.id, other)

    def _mend(self, _node: SimNode) -> None:
        self._world.network.cut.clear()
        self._world.note("mend")

    # ------------------------------------------------------------------ disks

    def _flush(self, node: SimNode) -> None:
        if node.up and not node.paused:
            for state in node.states.values():
                if state.installing is None:
                    state.flush()

    def _compact(self, node: SimNode) -> None:
        """Only what the state machine's disk holds for good may be forgotten."""
        group_id = self._rng.choice(list(self._world.truths))
        replica = node.replicas.get(group_id)
        if replica is None or not node.up or node.paused or replica.stopped or node.is_witness:
            return
        self._flush(node)
        upto = min(node.states[group_id].flushed[0], replica.applied_index)
        if upto > 0:
            probes.hit("compactions")
            node.enter(replica.compact, (self._rng.randint(max(1, upto - 20), upto),))

    def _flip(self, node: SimNode) -> None:
        """One synced bit. Its replica is lost at the restart: a majority must do without it."""
        world, rng = self._world, self._rng
        group_id = rng.choice(list(world.truths))
        if not self._can_spare(node.id, group_id) or not node.up:
            return
        key = node.disk.flip(group_id, rng)
        if key is None:
            return
        probes.hit("bits flipped")
        node.damaged.add(group_id)
        world.note("bit flipped", node.id, key.hex())
        self._later(rng.random(), lambda: _restart(node))

    def _can_spare(self, node_id: int, group_id: int) -> bool:
        """In every configuration that some replica believes in."""
        nodes = self._world.nodes.values()
        lost = {node.id for node in nodes if group_id in node.damaged} | {node_id}
        configs = [
            config
            for node in nodes
            if (replica := node.replicas.get(group_id)) is not None
            for config in replica._journal.memberships._all
        ]
        return all(2 * len(set(c.data_voters) - lost) > len(c.voters) for c in configs if c.voters)

    # ------------------------------------------------------------------ operators

    def _change_members(self, _node: SimNode | None = None) -> None:
        world, rng = self._world, self._rng
        group_id = rng.choice(list(world.truths))
        found = world.serving(group_id)
        if found is None or not self._active:
            return
        node, replica = found
        damaged = [other.id for other in world.nodes.values() if group_id in other.damaged]
        who = rng.choice(damaged or list(world.nodes))
        if replica.learners and rng.random() < 0.5:
            who = rng.choice(replica.learners)
        step = replica.remove if damaged else self._step(replica, who)
        world.note("members", group_id, step.__name__, who)
        node.enter(self._try_change, (group_id, step, who))

    def _step(self, replica: Replica, who: int) -> Callable[[int], int]:
        """What may come next for that node."""
        if who in self._world.plan.witnesses:
            return replica.remove if who in replica.voters else replica.add_witness
        if who in replica.voters:
            return self._rng.choice([replica.remove, replica.demote])
        return replica.promote if who in replica.learners else replica.add_learner

    def _try_change(self, group_id: int, step: Callable[[int], object], who: int) -> None:
        """Perhaps much later, if the node was paused: a replica may have been lost meanwhile."""
        damaged = [n.id for n in self._world.nodes.values() if group_id in n.damaged]
        if not damaged or who in damaged:
            self._try(step, who)

    def _try(self, step: Callable[[int], object], who: int) -> None:
        try:
            step(who)
        except RaftError:
            probes.hit(f"refused: {step.__name__}")
        else:
            probes.hit(f"done: {step.__name__}")
            if (
                step.__name__ != "transfer" and self._rng.random() < 0.3
            ):  # the next one close behind
                delay_s = self._rng.random() * 0.02
                self._later(delay_s, self._change_members)

    def _transfer(self, _node: SimNode) -> None:
        group_id = self._rng.choice(list(self._world.truths))
        found = self._world.serving(group_id)
        if found is not None:
            node, replica = found
            target = self._rng.choice(list(self._world.nodes))
            self._world.note("transfer", group_id, node.id, target)
            node.enter(self._try, (replica.transfer, target))

    def _campaign(self, node: SimNode) -> None:
        """Whoever knows no leader asks for the leadership at once."""
        for replica in node.replicas.values():
            node.enter(replica.campaign, ())


def _restart(node: SimNode) -> None:
    node.crash()
    node.restart()

"""One node through its lives: a disk, a clock, the production RaftHost, and the door that every
call into it goes through.

The door is what makes crashes and pauses exact: calls that belong to a past life vanish (a message
in a socket buffer, a timer, the end of a sync), those of a paused node wait and then come late, in
an order that the seed draws, while its clock went on (SIGSTOP).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from raft import Fenced, LogCorrupt, RaftHost, SyncFailed
from raft.replica import Replica
from tests.sim.raft.disk import LogView, SimDisk
from tests.sim.raft.events import Clock, NodeTimers
from tests.sim.raft.machine import Machine, StateDB
from tests.sim.raft.network import Message
from tests.sim.raft.probes import probes

if TYPE_CHECKING:
    from tests.sim.raft.world import World


class _Transport:
    """raft.api.PeerTransport of one life."""

    def __init__(self, node: SimNode) -> None:
        self._node = node

    def send(self, peer: int, group_id: int, message: Mapping[str, object], *, early: bool) -> None:
        node = self._node
        node.acts("sends", message["type"])
        node.world.network.send(node.id, peer, group_id, message)

    def room(self, peer: int) -> bool:
        return self._node.world.network.room(self._node.id, peer)


class SimNode:
    """See the module."""

    def __init__(self, world: World, node_id: int, *, clock_rate: float) -> None:
        self.world, self.id = world, node_id
        self.is_witness = node_id in world.plan.witnesses
        self.life = 0
        self.up = self.paused = False
        self.failed = False
        """Its disk failed in this life: it must do nothing any more."""
        self.away = False
        """Nobody starts it again, for the time being."""
        self.damaged: set[int] = set()
        """Groups with a flipped bit in a synced record."""
        self.refused: set[int] = set()
        """Groups that this node refused to open, or stopped, because of it."""
        self.views = {
            truth.group_id: LogView(
                truth.group_id, self._wrote(truth.group_id), payloads=not self.is_witness
            )
            for truth in world.truths.values()
        }
        self.disk = SimDisk(
            world.events,
            list(self.views.values()),
            sync_delay_s=lambda: world.sync_delay_s(self),
            sync_fails=lambda: world.sync_fails(self),
        )
        self.states = {group_id: StateDB() for group_id in world.truths}
        self.machines: dict[int, Machine] = {}
        self.replicas: dict[int, Replica] = {}
        self.clock = Clock(world.events, rate=clock_rate, start_s=1000.0 * world.random())
        self._backlog: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._seen: dict[int, tuple[int, int]] = {}  # group: (commit index, term led) last checked
        self.host: RaftHost | None = None

    def _wrote(self, group_id: int) -> Callable[[int, bytes, int | None], None]:
        truth = self.world.truths[group_id]
        return lambda index, stamp, before: truth.wrote(self.id, index, stamp, before)

    # ------------------------------------------------------------------ lives

    def start(self) -> None:
        assert not self.up
        world = self.world
        self.life += 1
        life = self.life
        self.up, self.paused, self.failed, self._backlog = True, False, False, []
        self.disk.enter = lambda fn, args: self.enter(fn, args, life)
        self.timers = NodeTimers(world.events, self.clock, self.disk.enter)
        self.replicas, self._seen = {}, {}
        self.host = RaftHost(
            node_id=self.id,
            log_db=self.disk,
            syncer=self.disk,
            timers=self.timers,
            rng=world.rng,
            on_fatal=self._fatal,
            transport=_Transport(self),
            config=world.config,
        )
        for group_id in world.truths:
            self._open(group_id)
        self.check()
        world.network.came(self.id)

    def _open(self, group_id: int) -> None:
        assert self.host is not None
        truth = self.world.truths[group_id]
        self._seen[group_id] = (0, 0)
        voters, witnesses = self.world.first_members(self.id)
        try:
            self.host.create_group(group_id, voters, (), witnesses)
            if self.is_witness:
                replica = self.host.open_witness(group_id)
            else:
                machine = self.machines[group_id] = Machine(self, truth, self.states[group_id])
                fresh = self.world.plan.fresh and self.life == 1
                replica = self.host.open_group(group_id, machine, fresh=fresh)
            self.replicas[group_id] = replica
        except LogCorrupt as error:
            self._damage_noticed(group_id, error)

    def _damage_noticed(self, group_id: int, error: BaseException) -> None:
        if group_id in self.damaged:
            probes.hit("damage refused")
            self.refused.add(group_id)
        else:
            self.world.fail(f"node {self.id} refuses an undamaged log: {error}")

    def _fatal(self, error: BaseException) -> None:
        self.world.note("fatal", self.id, str(error))
        if isinstance(error, SyncFailed) and self.disk.has_failed:
            self.failed = True
        elif isinstance(error, LogCorrupt) and error.group_id in self.damaged:
            self._damage_noticed(error.group_id, error)
        elif isinstance(error, Fenced) and self.id in self.world.given_up:
            probes.hit("fenced")
        else:
            cause = f" ({error.__cause__!r})" if error.__cause__ is not None else ""
            self.world.fail(f"node {self.id} stopped itself: {error!r}{cause}")

    def crash(self, *, lose_all: bool | None = None) -> None:
        """`lose_all`: does nothing unsynced survive, or all of it? None: the seed decides."""
        if not self.up:
            return
        probes.hit("crashes")
        self.up = self.paused = False
        lost = self.disk.crash(self.world.rng, lose_all=lose_all)
        for state in self.states.values():
            state.crash(self.world.random)
        self.world.note("crash", self.id, f"{lost} batches lost")
        self.world.network.died(self.id)

    def restart(self) -> None:
        if not self.up and not self.away:
            self.world.note("start", self.id)
            self.start()

    def pause(self) -> None:
        if self.up and not self.paused:
            self.paused = True
            self.world.note("pause", self.id)

    def resume(self) -> None:
        if not (self.up and self.paused):
            return
        self.world.note("resume", self.id)
        self.paused = False
        self.claims()  # whoever asks it first must not be told old news
        backlog, self._backlog = self._backlog, []
        if self.world.random() < 0.5:
            self.world.rng.shuffle(backlog)
        for fn, args in backlog:
            self.world.events.after(0.0, self.enter, fn, args, self.life)

    # ------------------------------------------------------------------ the door

    def enter(self, fn: Callable[..., object], args: tuple[Any, ...], life: int = 0) -> None:
        if not self.up or (life and life != self.life):
            return
        if self.paused:
            self._backlog.append((fn, args))
            return
        fn(*args)
        self.check()

    def receive(self, source: int, group_id: int, message: Message) -> None:
        if self.up:
            assert self.host is not None
            self.enter(self.host.receive, (source, group_id, message))

    def peer(self, peer: int, up: bool) -> None:
        if self.up:
            assert self.host is not None
            self.enter(self.host.peer_up if up else self.host.peer_down, (peer,))

    def disk_work(self, fn: Callable[..., object], *args: object) -> None:
        """Work of the state machine's disk, gone if the node crashes before."""
        life = self.life
        self.world.events.after(
            self.world.sync_delay_s(self), lambda: self.life == life and self.up and fn(*args)
        )

    def jump(self, seconds: float) -> None:
        probes.hit("clock jumps")
        self.clock.jump(seconds)
        if self.up:
            self.timers.jumped(seconds)

    # ------------------------------------------------------------------ what is checked

    def acts(self, what: str, of_what: object) -> None:
        """The node does something that others can see."""
        if self.failed:
            self.world.fail(f"node {self.id} {what} {of_what} although its disk failed")

    def check(self) -> None:
        """After every event at this node."""
        for group_id, replica in self.replicas.items():
            if replica.stopped:
                continue
            core = replica._core
            commit, led = self._seen[group_id]
            if core.commit_index > commit:
                commit = self._check_commits(group_id, core.term, commit, core.commit_index)
                self._seen[group_id] = (commit, led)
            if core.raft_leader:
                if core.term != led:
                    self._seen[group_id] = (commit, core.term)
                    self.world.note("leads", self.id, f"group {group_id} term {core.term}")
                    self.world.truths[group_id].leads(self.id, core.term, self.views[group_id])
                    self.world.ambush(self, "leads")
                if replica.leader:
                    self._check_claim(group_id, replica)
            if not replica.applied_index <= core.commit_index <= replica.last_index:
                self.world.fail(
                    f"group {group_id} node {self.id}: applied {replica.applied_index}, commit "
                    f"{core.commit_index}, last {replica.last_index} are out of order"
                )

    def _check_commits(self, group_id: int, term: int, first: int, last: int) -> int:
        view, truth = self.views[group_id], self.world.truths[group_id]
        leaders = self.world.leaders(group_id)
        for index in range(max(first, view.base[0]) + 1, last + 1):
            stamp = view.stamps.get(index)
            if stamp is None:
                truth.fail(f"node {self.id} commits {index}, which its log does not hold")
                return last
            truth.commits(self.id, term, index, stamp, leaders)
        return last

    def claims(self) -> None:
        """Could a client read something old here, at this moment?"""
        if self.up and not self.paused:
            for group_id, replica in self.replicas.items():
                if replica.leader:
                    self._check_claim(group_id, replica)

    def _check_claim(self, group_id: int, replica: Replica) -> None:
        truth = self.world.truths[group_id]
        if replica.applied_index < truth.floor and replica.serving():
            truth.serves(self.id, truth.floor, replica.applied_index, "lease")

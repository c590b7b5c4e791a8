"""The two timed schedulers of the master (I11; docs/decisions/0410):

    placement   what must change whatever it weighs (balancing/placing.py): dead nodes, tags,
                failure domains, too few and too many replicas
    balancer    leaderships and replicas to where load is even (balancing/leaders.py, replicas.py)

Each has a switch of its own (settings `placement.enabled`, `balance.enabled`). Neither changes
anything itself: it submits procedures, at most `balance.moves` of them at a time together, so that
a crash of the master loses no move and doubles none: the next one counts what is live. A partition
that a procedure holds a lock of, or that an operation of the bus is about, is left alone; so is one
that was moved less than COOLDOWN_S ago, whose figures are still those of before.

While nothing is worth a look, nobody is asked: a look that found nothing at all to do or to refuse
is not repeated before something that the master knows by itself has changed
(`procedures/master/map/quiet.py`), or SCHEDULE_QUIET_S have passed.

The balancer waits until every node that answers has sent everything it has, so a new master does
not take silence for emptiness. What was decided, and what refused, with the reasons, is kept for
`explain`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kv.base.errors import KvorumError
from kv.base.ids import META_PARTITION, NodeId, PartitionId
from kv.base.limits import BALANCE_COOLDOWN_S, BALANCE_KEPT
from procedures.engine import plain_data
from procedures.engine.executor import Executor
from procedures.engine.roster import Live
from procedures.engine.submission import Submission
from procedures.master.balancing import leaders, replicas
from procedures.master.balancing.cluster import ClusterState
from procedures.master.balancing.model import (
    DIMENSIONS,
    LEVELS,
    NAMES,
    SIZE,
    TRAFFIC,
    Dimension,
    Fix,
    Level,
    Move,
    Refusal,
)
from procedures.master.balancing.placing import Placer
from procedures.master.balancing.prediction import UnitCost
from procedures.master.map.groups import Groups
from procedures.master.map.liveness import Health
from procedures.master.map.nodes import NodeRow, NodeState
from procedures.master.map.partitions import Placed
from procedures.master.map.picture import Loads, loads_of, observed, picture, speaking, wanted_by
from procedures.master.map.quiet import Quiet, known
from procedures.master.map.replica_methods import GroupView
from procedures.master.map.reports import Picture
from procedures.master.members.crash import SERVER_CRASH
from procedures.master.members.moves import ADD_REPLICA, ADD_REPLICAS, REMOVE_REPLICA
from procedures.master.members.rebuilding import REBUILD_REPLICA, Damage
from procedures.master.members.relocating import MOVE_REPLICA, TRANSFER_LEADER
from procedures.master.schedulers.balance import damaged
from procedures.master.schedulers.slowness import Slowness

log = logging.getLogger(__name__)

OWNER: Final = "kvorum"
_MINE: Final = frozenset({MOVE_REPLICA, TRANSFER_LEADER, ADD_REPLICA, REMOVE_REPLICA})
_LOCK: Final = "partition/"

Views = Mapping[NodeId, Sequence[GroupView]]


@dataclass(frozen=True, slots=True)
class Sources:
    """What the schedulers work with. `setting` by name; `pace`: ms that a log sync takes, by
    node.
    """

    read: Callable[[], Awaitable[tuple[Sequence[NodeRow], Sequence[Placed]]]]
    groups: Groups
    reports: Picture
    health: Callable[[], Mapping[int, tuple[Health, int | None]]]
    executor: Callable[[], Executor | None]
    busy: Callable[[], Awaitable[Collection[int]]]
    setting: Callable[[str], int]
    monotonic: Callable[[], float]
    now_ms: Callable[[], int]
    pace: Callable[[], Mapping[int, float]] = dict
    damage: Callable[[], Sequence[Damage]] = tuple


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at everything."""

    nodes: Sequence[NodeRow]
    rows: Sequence[Placed]
    views: Views
    state: ClusterState
    fresh: Callable[[], ClusterState]
    """The same picture anew: plans change the one that they are made on."""
    dead: frozenset[NodeId]
    live: int
    """Moves under way."""


class Schedulers:
    """See the module. `placement` and `balance` are one look each."""

    def __init__(self, sources: Sources) -> None:
        self.slowness = Slowness()
        self.submitted = 0
        self._s = sources
        self._costs: dict[int, UnitCost] = {}
        self._moved: dict[PartitionId, float] = {}
        self._rebuilt: dict[tuple[NodeId, PartitionId], float] = {}
        self._done: deque[dict[str, object]] = deque(maxlen=BALANCE_KEPT)
        self._waits = {"placement": "", "balance": ""}
        self._quiet = {name: Quiet(sources.monotonic) for name in self._waits}

    # ------------------------------------------------------------------------------ settings

    def level(self) -> Level:
        """What two replicas must not share."""
        return LEVELS[self._s.setting("placement.level")]

    def dimensions(self) -> tuple[Dimension, ...]:
        alpha = self._s.setting("balance.alpha_percent") / 100
        return tuple(replace(one, alpha=alpha) for one in DIMENSIONS)

    def loads(self) -> Loads:
        """What was reported last."""
        return replace(loads_of(self._s.reports, self._costs), slow=self.slowness.slow)

    def dead(self) -> frozenset[NodeId]:
        """Who was silent for too long."""
        health = self._s.health()
        return frozenset(NodeId(n) for n, (how, _) in health.items() if how is Health.DEAD)

    def room(self, node: NodeId, partition: PartitionId) -> str | None:
        """Why a replica of this size does not fit there, as far as was reported."""
        loads = self.loads()
        size = loads.partitions[partition].size if partition in loads.partitions else 0.0
        free, files = loads.disks.get(node, (0.0, 0.0))
        if free + files > 0 and (files + size) > 0.9 * (free + files):
            return (
                f"node {node} has no room for it: {free / 2**20:.0f} MiB are free, the replica has "
                f"{size / 2**20:.0f} MiB, and a tenth of the disk stays free"
            )
        return None

    # ------------------------------------------------------------------------------ looking

    async def _look(self, quiet: Quiet | None = None) -> Seen | None:
        """Everything, of all nodes; None if `quiet` knows that it is as it was."""
        nodes, rows = await self._s.read()
        busy, live = await self._busy()
        if quiet is not None:
            health = self._s.health()
            if quiet.same(known(nodes, rows, health, self._s.reports, busy, live, self._rules())):
                return None
        asked = [row.id for row in nodes if row.state is not NodeState.GONE]
        began = self._s.monotonic()
        views, took = await self._timed(asked, began)
        pace = {NodeId(n): ms for n, ms in self._s.pace().items() if n in views}
        self.slowness.look(pace, took)
        held: dict[int, tuple[NodeId, ...]] = {row.descriptor.id: row.nodes for row in rows}
        self._costs = observed(self._s.reports, self._costs, held)
        loads, dimensions = self.loads(), self.dimensions()

        def fresh() -> ClusterState:
            return picture(nodes, rows, views, loads, busy=busy, dimensions=dimensions)

        return Seen(nodes, rows, views, fresh(), fresh, self.dead(), live)

    def _rules(self) -> tuple[object, ...]:
        """The settings that decisions follow."""
        damage = tuple((node, partition) for node, partition, _ in self._s.damage())
        moves = self._s.setting("balance.moves")
        return self.level(), self.dimensions(), moves, self.slowness.slow, damage

    async def _timed(
        self, nodes: Sequence[NodeId], began: float
    ) -> tuple[Views, dict[NodeId, float]]:
        took: dict[NodeId, float] = {}

        def answered(node: NodeId) -> None:
            took[node] = 1000 * (self._s.monotonic() - began)

        return await self._s.groups.views(nodes, answered), took

    async def _busy(self) -> tuple[dict[int, str], int]:
        """Partitions that must stay and why; how many moves are live."""
        found = dict.fromkeys(await self._s.busy(), "an operation of the bus is about it")
        now = self._s.monotonic()
        self._moved = {p: at for p, at in self._moved.items() if now - at < BALANCE_COOLDOWN_S}
        for partition, at in self._moved.items():
            found[partition] = f"it was moved {now - at:.0f} s ago: its figures are still old"
        live = 0
        executor = self._s.executor()
        for one in executor.locked() if executor is not None else ():
            if one.record is None:
                continue
            live += one.record.name in _MINE and not one.parent
            for _, resource in one.record.locks:
                if resource.startswith(_LOCK) and resource.removeprefix(_LOCK).isdigit():
                    found[int(resource.removeprefix(_LOCK))] = f"{one.record.name} has it"
        return found, live

    # ------------------------------------------------------------------------------ placement

    async def placement(self) -> None:
        """One look of the placement scheduler. Raises KvorumError: nothing was decided."""
        if not self._s.setting("placement.enabled"):
            self._waits["placement"] = "it is paused (setting placement.enabled)"
            return
        self._waits["placement"] = ""
        quiet = self._quiet["placement"]
        seen = await self._look(quiet)
        if seen is None:
            return
        submitted = self.submitted
        await self._rebuild(seen)
        refused = await self._place(seen)
        quiet.looked(idle=not refused and not seen.live and self.submitted == submitted)

    async def _place(self, seen: Seen) -> bool:
        """Submit what must change; whether something that should is refused."""
        crashed = {fix.source for fix in self._fixes(seen).fixes() if fix.rule == "dead"}
        for node in sorted(seen.dead & (crashed | self._in_meta(seen))):
            if not self._lives(SERVER_CRASH, node):
                await self._submit(SERVER_CRASH, {"node": node}, "it is dead")
        await self._give_up_on(seen.dead)
        room = self._room(seen)
        filled: set[NodeId] = set()
        placer = self._fixes(replace(seen, state=seen.fresh()))
        for fix in placer.fixes():
            if fix.rule == "dead":
                continue
            if room <= 0:
                break
            room -= await self._fix(fix, seen, filled)
        for node in self._outside_meta(seen):
            if node not in filled and not self._lives(ADD_REPLICAS, node):
                await self._submit(ADD_REPLICAS, {"node": node}, "it is back")
        return bool(placer.refusals.kept) or bool(seen.dead)

    async def _rebuild(self, seen: Seen) -> None:
        """What nodes have found damaged, one at a time at each. One that cannot be rebuilt is tried
        again when whatever hindered it may be over.
        """
        starts = {row.descriptor.id: row.descriptor.start for row in seen.rows}
        now, asked = self._s.monotonic(), set[NodeId]()
        for node, partition, why in self._s.damage():
            waits = now - self._rebuilt.get((node, partition), float("-inf")) < BALANCE_COOLDOWN_S
            known = partition in starts or partition == META_PARTITION
            if waits or not known or node in asked or self._lives(REBUILD_REPLICA, node):
                continue
            asked.add(node)
            self._rebuilt[node, partition] = now
            args = {"partition": partition, "start": starts.get(partition, b""), "node": node}
            await self._submit(REBUILD_REPLICA, {**args, "why": why}, why)

    def _fixes(self, seen: Seen) -> Placer:
        return Placer(
            seen.state,
            *wanted_by(seen.rows, seen.nodes),
            dead=seen.dead,
            level=self.level(),
        )

    async def _fix(self, fix: Fix, seen: Seen, filled: set[NodeId]) -> int:
        """Submit what a fix asks for; how many moves that was."""
        placed = next(row for row in seen.rows if row.descriptor.id == fix.partition)
        args: dict[str, object] = {"partition": fix.partition, "start": placed.descriptor.start}
        if fix.source is not None and fix.target is not None:
            move = {"partition": fix.partition, "from": fix.source, "to": fix.target}
            await self._submit(MOVE_REPLICA, {**move, "why": fix.reason}, fix.reason)
        elif fix.source is not None:
            await self._submit(REMOVE_REPLICA, {**args, "node": fix.source}, fix.reason)
        elif placed.replicas:
            if fix.rule != "witness":
                args["replaces"] = 0  # not if others have filled the place meanwhile
            await self._submit(ADD_REPLICA, {**args, "node": fix.target}, fix.reason)
        elif fix.target is not None and fix.target not in filled:
            filled.add(fix.target)  # everything that is everywhere, at once
            if not self._lives(ADD_REPLICAS, fix.target):
                await self._submit(ADD_REPLICAS, {"node": fix.target}, fix.reason)
        self._moved[fix.partition] = self._s.monotonic()
        return 1

    @staticmethod
    def _in_meta(seen: Seen) -> set[NodeId]:
        """Who votes in the meta partition, if it is better off without its dead ones."""
        view = speaking(seen.views).get(META_PARTITION)
        if view is None:
            return set()
        staying = [voter for voter in view.voters if voter not in seen.dead]
        return set(view.voters) if len(view.voters) // 2 > len(staying) // 2 else set()

    @staticmethod
    def _outside_meta(seen: Seen) -> list[NodeId]:
        """Members that answer and have no vote there: they came back."""
        view = speaking(seen.views).get(META_PARTITION)
        if view is None or not view.settled:
            return []
        return [
            row.id
            for row in seen.nodes
            if row.state is NodeState.MEMBER
            and row.id in seen.views
            and row.id not in (*view.voters, *view.learners)
        ]

    async def _give_up_on(self, dead: Collection[NodeId]) -> None:
        """Abort moves to nodes that died meanwhile: they would wait for them for ever."""
        executor = self._s.executor()
        moves = (MOVE_REPLICA, ADD_REPLICA)
        for one in (one for name in moves for one in _of(executor, name)):
            record = one.record
            if record is None:
                continue
            if one.parent and record.name == ADD_REPLICA:
                continue  # it ends with its parent
            args = plain_data.decode(record.args)
            if args.get("to", args.get("node")) in dead and executor is not None:
                try:
                    await executor.abort(one.id, "the node that it moves to is dead")
                except KvorumError as error:
                    log.info("move %d goes on: %s", one.id, error)

    # ------------------------------------------------------------------------------ balancer

    async def balance(self) -> None:
        """One look of the balancer. Raises KvorumError: nothing was decided."""
        if not self._s.setting("balance.enabled"):
            self._waits["balance"] = "it is paused (setting balance.enabled)"
            return
        quiet = self._quiet["balance"]
        seen = await self._look(quiet)
        if seen is None:
            return
        missing = sorted(
            row.id
            for row in seen.nodes
            if row.id in seen.state.nodes and not self._s.reports.complete([row.id])
        )
        if missing:
            self._waits["balance"] = f"nodes {missing} have not reported yet what they have"
            return
        self._waits["balance"] = ""
        room = self._room(seen)
        if room <= 0:
            return
        moves, refusals = self._plan(seen.state, room)
        quiet.looked(idle=not moves and not refusals and not seen.live)
        for move in moves:
            await self._do(move)

    def _plan(self, state: ClusterState, room: int) -> tuple[list[Move], list[Refusal]]:
        first = leaders.plan(state, moves_max=room)
        moves, refusals = list(first.moves), list(first.refusals)
        if len(moves) < room:
            busy = {move.partition for move in moves}
            then = replicas.plan(state, level=self.level(), moves_max=room - len(moves))
            moves += [move for move in then.moves if move.partition not in busy]
            refusals += then.refusals
        bad = damaged(self._s.damage())
        moves = [m for m in moves if m.kind == "replica" or (m.target, m.partition) not in bad]
        return moves, refusals

    async def _do(self, move: Move) -> None:
        args = {"partition": move.partition, "to": move.target, "why": move.reason}
        if move.kind == "replica":
            await self._submit(MOVE_REPLICA, {**args, "from": move.source}, move.reason)
        else:
            await self._submit(TRANSFER_LEADER, args, move.reason)
        self._moved[move.partition] = self._s.monotonic()

    # ------------------------------------------------------------------------------ submitting

    def _room(self, seen: Seen) -> int:
        return self._s.setting("balance.moves") - seen.live

    def _lives(self, name: str, node: int) -> bool:
        """Whether such a procedure is under way for a node."""
        executor = self._s.executor()
        for one in _of(executor, name):
            record = one.record
            if record is not None:
                args = plain_data.decode(record.args)
                if args.get("node") == node:
                    return True
        return False

    async def _submit(self, name: str, args: Mapping[str, object], reason: str) -> None:
        executor = self._s.executor()
        if executor is None:
            return
        id_ = await executor.submit(Submission(name, dict(args), OWNER))
        self.submitted += 1
        log.info("%s %s: %s (procedure %d)", name, _shown(args), reason, id_)
        self._done.append(
            {
                "at_ms": self._s.now_ms(),
                "procedure": str(id_),
                "name": name,
                "args": _shown(args),
                "reason": reason,
            }
        )

    # ------------------------------------------------------------------------------ explaining

    async def explain(self, moves_max: int) -> dict[str, object]:
        """What the schedulers see now, what they would do next, what they refuse and why, and what
        they did last. Changes nothing. Raises KvorumError.
        """
        seen = await self._look()
        assert seen is not None, "nobody asked for quiet"
        nodes = [_node(seen.state, node, self.slowness) for node in seen.state.nodes]
        placer = self._fixes(seen)
        fixes = list(placer.fixes())
        placement_refusals = placer.refusals.kept
        moves, refusals = self._plan(seen.fresh(), moves_max)
        return {
            "level": self.level(),
            "waits": dict(self._waits),
            "enabled": {
                name: bool(self._s.setting(f"{name}.enabled")) for name in ("placement", "balance")
            },
            "moves_live": seen.live,
            "dead": sorted(seen.dead),
            "nodes": nodes,
            "placement": [_fix(fix) for fix in fixes[:moves_max]],
            "moves": [_move(move) for move in moves],
            "refusals": [_refusal(one) for one in (*placement_refusals, *refusals)][:moves_max],
            "done": list(self._done),
            "quiet": {name: quiet.skipped for name, quiet in self._quiet.items()},
        }


def _of(executor: Executor | None, name: str) -> Sequence[Live]:
    return () if executor is None else executor.live_of(name)


def _shown(args: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in args.items() if name not in ("start", "why")}


def _node(state: ClusterState, node: NodeId, slowness: Slowness) -> dict[str, object]:
    view = state.nodes[node]
    return {
        "id": node,
        "domains": list(view.domains),
        "tags": sorted(view.tags),
        "slow": slowness.why.get(node, "") if node in slowness.slow else None,
        "used": {
            name: {"share": round(state.used(node, d), 4), "zone": state.zone(node, d).name.lower()}
            for d, name in enumerate(NAMES)
        },
        "traffic": round(state.load(node)[TRAFFIC], 1),
        "size": int(state.load(node)[SIZE]),
        "replicas": len(state.replicas(node)),
    }


def _move(move: Move) -> dict[str, object]:
    return {
        "kind": move.kind,
        "partition": move.partition,
        "from": move.source,
        "to": move.target,
        "dimension": move.dimension,
        "quality": move.quality,
        "reason": move.reason,
    }


def _fix(fix: Fix) -> dict[str, object]:
    return {
        "partition": fix.partition,
        "from": fix.source,
        "to": fix.target,
        "rule": fix.rule,
        "reason": fix.reason,
    }


def _refusal(one: Refusal) -> dict[str, object]:
    return {
        "kind": one.kind,
        "dimension": one.dimension,
        "from": one.source,
        "to": one.target,
        "partition": one.partition,
        "rule": one.rule,
        "reason": one.reason,
    }

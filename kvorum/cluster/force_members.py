"""FORCE_MEMBERS: the operator's last resort. The nodes that made a majority are gone for good;
`voters`, survivors that this node is one of, go on with what they have.

    plan     voters, reason, b"", proof      → [row of Plan, …], ticket; nothing is changed
    execute  voters, reason, ticket, proof   → [row of Plan, …], b""; of the plan with this ticket

What is forced where: each partition at the one survivor whose log of it is the most complete, here
those of which that is this node. A row that says `elsewhere` is to be executed there.

Refused, and nothing is changed, if a voter that is to be given up answers, if a survivor does not,
if a survivor still leads with the help of others, if this node keeps no data. So the
common mistakes (a node that is only slow, the wrong node, the older copy) end here. What cannot be
seen from here: a lost side that lives behind a cut. It must be down; its replicas stop when they
meet this side (raft/fence.py), and its nodes end, saying why. They must be decommissioned, and
come back with empty directories.

Whoever knows the cluster's secret may do this: `proof` is its HMAC over the other arguments. (Not
"whoever is on this machine": on a shared one that is anybody.) The ticket belongs to one plan of
one start of this node, so nothing that was overheard is of use later.

The audit: kept in the state DB before anything is forced (meta "forced"), in this node's log, in
the log of each partition, and, as soon as the meta partition takes writes, in the members table
(procedures/master/map/audit.py), where `kvorum node history` finds it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, Literal, Protocol

import msgspec

from kv.base.config import NodeConfig
from kv.base.errors import InvalidArgument, KvorumError, Refused
from kv.base.methods import PING
from kv.base.node_methods import NodesById
from kv.base.ports import Rng
from kv.base.wire_row import WireRow
from kvorum.local.identity import Identity
from procedures.master.map.audit import Forced
from procedures.master.map.replica_methods import GroupView
from procedures.verbs import REPLICA_STATUS
from raft.api import GroupStatus
from raft.errors import RaftError
from raft.host import RaftHost

log = logging.getLogger(__name__)

_ASK_MS: Final = 1_500
_LEADERLESS_S: Final = 4.0  # until a leader that is gone is forgotten
_SILENT_S: Final = 1.0  # until a connection with a node that is gone counts as such
_LOOK_S: Final = 0.1
_KEY_BYTES: Final = 32
_encode = msgspec.msgpack.encode

Action = Literal["force", "elsewhere", "done"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One partition. `at`: the survivor with the newest copy; `last`, `commit`: its log's end, and
    how much of it is known to be committed; `ahead`: entries that a surviving witness has seen and
    no survivor has.
    """

    partition: int
    action: Action
    at: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    last: int
    commit: int
    ahead: int

    def to_wire(self) -> WireRow:
        id_, action, at, before, after, *rest = astuple(self)
        return [id_, action, at, list(before), list(after), *rest]

    @staticmethod
    def from_wire(row: Sequence[Any]) -> Plan:
        id_, action, at, before, after, *rest = row
        last, commit, ahead = rest[:3]
        return Plan(id_, action, at, tuple(before), tuple(after), last, commit, ahead)


class Group(Protocol):
    def status(self) -> GroupStatus: ...
    def can_serve_reads(self) -> bool: ...


class Replica(Protocol):
    @property
    def group(self) -> Group: ...


def proof(secret: str, voters: Sequence[int], reason: str, ticket: bytes) -> bytes:
    """What only someone who knows the secret can say."""
    signed = b"kvorum force\n" + _encode([sorted(voters), reason, ticket])
    return hmac.digest(secret.encode(), signed, hashlib.sha256)


class ForceMethod:
    """The handler of one node."""

    def __init__(
        self,
        config: NodeConfig,
        identity: Identity,
        host: RaftHost,
        replicas: Callable[[], Sequence[Replica]],
        calls: NodesById,
        hears: Callable[[int], bool],
        rng: Rng,
        keep: Callable[[Forced], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        """`hears(node)`: its consensus messages arrive; `keep` makes an audit durable here before
        it returns.
        """
        self._config, self._identity, self._host = config, identity, host
        self._replicas, self._calls, self._hears = replicas, calls, hears
        self._keep, self._now_ms = keep, now_ms
        self._key = rng.token(_KEY_BYTES)

    async def handle(self, _context: object, args: WireRow) -> list[object]:
        """See the module. Raises Refused, InvalidArgument."""
        voters, reason, ticket, proved = args
        config = self._config
        if not (config.cluster_secret or config.on_loopback):
            raise Refused(
                "this node listens beyond this machine without a cluster_secret: nobody can prove "
                "that he may do this. Set one and start it again",
                code="NO_SECRET",
            )
        if not hmac.compare_digest(proved, proof(config.cluster_secret, voters, reason, ticket)):
            raise Refused(
                "the proof is wrong: set KVORUM_CLUSTER_SECRET to the secret of this cluster",
                code="WRONG_SECRET",
            )
        plan = await self._plan(tuple(sorted(set(voters))))
        expected = self._ticket(plan, reason)
        if not ticket:
            return [[row.to_wire() for row in plan], expected]
        if not hmac.compare_digest(ticket, expected):
            raise Refused(
                "the plan is another one by now, nothing was changed: look at it again",
                code="PLAN_CHANGED",
            )
        await self._execute(plan, tuple(sorted(set(voters))), reason)
        return [[row.to_wire() for row in plan], b""]

    def _ticket(self, plan: Sequence[Plan], reason: str) -> bytes:
        shown = _encode([[row.to_wire() for row in plan], reason])
        return hmac.digest(self._key, shown, hashlib.sha256)

    # -------------------------------------------------------------------------------- planning

    async def _plan(self, voters: tuple[int, ...]) -> list[Plan]:
        """Raises Refused, InvalidArgument."""
        me = self._identity.node
        if self._identity.witness:
            raise Refused(f"node {me} is a witness: it has no data to go on with", code="NO_DATA")
        if me not in voters:
            raise InvalidArgument(
                f"this is node {me}, which is none of the voters {list(voters)}: connect to the "
                "survivor that is to go on"
            )
        known = {node for replica in self._replicas() for node in replica.group.status().voters}
        if strangers := sorted(set(voters) - known):
            raise InvalidArgument(
                f"nodes {strangers} vote nowhere: voters are {sorted(known)}. Others are added "
                "when the cluster works again"
            )
        await self._check_lost(sorted(known - set(voters)))
        statuses = await self._leaderless(voters)
        others = await self._survivors([node for node in voters if node != me], voters)
        return [self._row(status, voters, others) for status in statuses]

    async def _leaderless(self, voters: Sequence[int]) -> list[GroupStatus]:
        """How every group here stands, once this node leads none with the help of others. Raises
        Refused.
        """
        deadline = asyncio.get_running_loop().time() + _LEADERLESS_S
        while True:
            groups: list[Group] = [replica.group for replica in self._replicas()]
            for group in groups:
                group.can_serve_reads()  # one that sleeps would not notice what is lost
            statuses = [group.status() for group in groups]
            led = [s for s in statuses if s.role == "leader" and not set(s.voters) <= {*voters}]
            if not led:
                return statuses
            if asyncio.get_running_loop().time() > deadline:
                raise _leader_lives(led[0].group_id, self._identity.node)
            await asyncio.sleep(_LOOK_S)

    async def _check_lost(self, lost: Sequence[int]) -> None:
        """Raises Refused if one of them answers, or its messages arrive, and go on arriving."""
        deadline = asyncio.get_running_loop().time() + _SILENT_S
        while any(map(self._hears, lost)) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(_LOOK_S)
        for node, answer in zip(lost, await self._ask(lost, PING), strict=True):
            if answer is not None or self._hears(node):
                raise Refused(
                    f"node {node} answers, and would be given up: stop it first, or name it among "
                    "the voters",
                    code="NODE_LIVES",
                    details={"node": node},
                )

    async def _survivors(
        self, others: Sequence[int], voters: Sequence[int]
    ) -> dict[int, dict[int, GroupView]]:
        """Partition → node → its copy. Raises Refused if one does not answer, or leads with the
        help of others.
        """
        found: dict[int, dict[int, GroupView]] = {}
        deadline = asyncio.get_running_loop().time() + _SILENT_S
        answers = await self._ask(others, REPLICA_STATUS, None)
        while None in answers and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_LOOK_S)  # a connection that broke is made again
            answers = await self._ask(others, REPLICA_STATUS, None)
        for node, answer in zip(others, answers, strict=True):
            if answer is None:
                raise Refused(
                    f"node {node} is to be a voter and does not answer: start it, or leave it out",
                    code="NODE_SILENT",
                    details={"node": node},
                )
            for view in map(GroupView.from_wire, answer[0]):
                if view.leads and not set(view.voters) <= set(voters):
                    raise _leader_lives(view.partition, node)
                found.setdefault(view.partition, {})[node] = view
        return found

    async def _ask(self, nodes: Iterable[int], method: int, *args: object) -> list[WireRow | None]:
        async def one(node: int) -> WireRow | None:
            try:
                return await self._calls.call_at(node, method, *args, budget_ms=_ASK_MS)
            except KvorumError:
                return None

        return await asyncio.gather(*(one(node) for node in nodes))

    def _row(
        self, status: GroupStatus, voters: Sequence[int], others: dict[int, dict[int, GroupView]]
    ) -> Plan:
        me, id_ = self._identity.node, status.group_id
        after = tuple(node for node in voters if node in status.voters)
        if me not in after:
            raise Refused(
                f"node {me} has no vote in partition {id_} yet, its copy may be incomplete: "
                "connect to a survivor that has",
                code="NO_DATA",
            )
        ends: dict[int, tuple[int, int, int]] = {
            me: (status.last_term, status.last_index, status.commit_index)
        }
        for node, view in others.get(id_, {}).items():
            if node in after:
                ends[node] = (view.last_term, view.last_index, view.commit_index)
        witnesses = [ends.pop(node) for node in status.witnesses if node in ends]
        # Of equals the first is taken: this node.
        at = max(ends, key=lambda node: (ends[node][:2], node == me))
        term, last, commit = ends[at]
        ahead = max((w[1] - last for w in witnesses if w[:2] > (term, last)), default=0)
        if set(status.voters) <= set(voters):
            action: Action = "done"
        else:
            action = "force" if at == me else "elsewhere"
        return Plan(id_, action, at, status.voters, after, last, commit, max(0, ahead))

    # ------------------------------------------------------------------------------- executing

    async def _execute(self, plan: Sequence[Plan], voters: tuple[int, ...], reason: str) -> None:
        """Raises Refused with what consensus says; what was forced until then stays."""
        rows = [row for row in plan if row.action == "force"]
        if not rows:
            return
        given_up = tuple(sorted({node for row in rows for node in row.before} - {*voters}))
        partitions = tuple(row.partition for row in rows)
        me = self._identity.node
        audit = Forced(self._now_ms(), me, voters, given_up, partitions, reason.strip())
        await self._keep(audit)
        log.critical(
            "an operator makes nodes %s the only voters of partitions %s and gives up nodes %s: %s",
            *(list(voters), list(partitions), list(given_up), reason),
        )
        for row in rows:
            try:
                self._host.force_members(row.partition, row.after, reason)
            except RaftError as error:
                raise Refused(str(error), code="MEMBERSHIP_REFUSED") from error
        durable = asyncio.Event()
        self._host.barrier(durable.set)
        await durable.wait()


def _leader_lives(partition: int, node: int) -> Refused:
    return Refused(
        f"node {node} leads partition {partition}: a majority lives, or has gone just now. Look "
        "again in some seconds; members that are gone while a majority lives are decommissioned",
        code="LEADER_LIVES",
    )

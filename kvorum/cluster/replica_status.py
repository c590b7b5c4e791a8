"""How the replicas of a node stand, as it answers whoever asks (STANDING), and the cluster as it
follows from what all nodes answer.

    {"node", "version", "replicas": [[id, epoch, role, term, leader or 0, applied, commit, last,
      first, log bytes, asleep, [voters], [learners], [witnesses],
      [[node, lag, responsive, takes a snapshot], …] (at the leader), bytes, entries ever,
      storage shard], …],
     "damaged": [ids of partitions whose replicas there are]}

A node that does not answer is down as far as the asking client knows; what its replicas lack is
known from their leaders. Of two nodes that both say they lead a partition, the one with the higher
term is right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, Final, Protocol

from kv.base.config import split_address
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError
from kv.base.node_methods import NodesAt
from kv.base.shards import policy_of, proposed_policy
from kv.base.wire_row import WireRow
from kvorum.api.verbs import PAST_HOUR, STANDING
from kvorum.version import VERSION
from procedures.engine.plain_data import Plain
from procedures.master.balancing.model import LEVELS
from procedures.master.map.audit import Forced
from procedures.master.map.nodes import NodeRow, NodeState
from procedures.master.map.reports import Report, hint
from procedures.verbs import REPORTS

_ASK_MS: Final = 1_500  # a node that needs longer is taken for down


class Replica(Protocol):
    """What is needed of kv.replica.replica.Replica; clients read this module, too."""

    @property
    def descriptor(self) -> PartitionDescriptor: ...
    @property
    def group(self) -> Any:
        """raft.api.ConsensusGroup"""

    @property
    def state(self) -> Any:
        """kv.replica.state.PartitionState"""


@dataclass(frozen=True, slots=True)
class Follower:
    """Another member, as the leader sees it."""

    node: int
    lag: int
    responsive: bool
    snapshot: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """One replica at one node. Indexes are of log entries; `leader` 0: it knows of none."""

    id: int
    epoch: int
    role: str
    term: int
    leader: int
    applied: int
    commit: int
    last: int
    first: int
    log_bytes: int
    asleep: bool
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    witnesses: tuple[int, ...]
    followers: tuple[Follower, ...]
    size: int
    entries: int
    shard: str = ""  # that its rows are in at that node

    @staticmethod
    def of(replica: Replica) -> Standing:
        status, state = replica.group.status(), replica.state
        return Standing(
            status.group_id,
            replica.descriptor.epoch,
            status.role,
            status.term,
            status.leader_id or 0,
            status.applied_index,
            status.commit_index,
            status.last_index,
            status.first_index,
            status.log_bytes,
            status.hibernating,
            tuple(status.voters),
            tuple(status.learners),
            tuple(status.witnesses),
            tuple(
                Follower(node, f.lag, f.responsive, f.snapshot)
                for node, f in sorted(status.followers.items())
            ),
            state.live_bytes,
            state.index,
            replica.descriptor.shard,
        )

    def to_wire(self) -> WireRow:
        row = list(astuple(self))
        row[11:15] = [*map(list, row[11:14]), [list(f) for f in row[14]]]
        return row

    @staticmethod
    def from_wire(row: Sequence[Any]) -> Standing:
        values = list(row[:_FIELDS])
        values[11:14] = [tuple(nodes) for nodes in values[11:14]]
        values[14] = tuple(Follower(*f) for f in values[14])
        return Standing(*values)


_FIELDS: Final = len(fields(Standing))


def standing_here(node: int, replicas: Iterable[Replica]) -> dict[str, object]:
    """What this node answers."""
    rows = [Standing.of(replica).to_wire() for replica in replicas]
    return {"node": node, "version": VERSION, "replicas": rows}


# ------------------------------------------------------------------------------ asking all nodes


async def _ask_one(kv: NodesAt, member: NodeRow, method: int, *args: object) -> Any:
    """The map that a member answers; None: it does not."""
    try:
        if member.address:
            address = split_address(member.address)
            (map_,) = await kv.call_at(address, method, *args, budget_ms=_ASK_MS)
        else:  # embedded: there is no other
            (map_,) = await kv.call_node(method, *args, budget_ms=_ASK_MS)
    except KvorumError:
        return None
    return map_


async def hours(kv: NodesAt, members: Iterable[NodeRow], after_ms: int) -> list[dict[str, object]]:
    """What each member that answers did in the last hour (kvorum/storage/hour.py)."""
    asked = [m for m in members if m.state is not NodeState.GONE and not m.witness]
    told = await asyncio.gather(*(_ask_one(kv, m, PAST_HOUR, after_ms) for m in asked))
    return [{"node": m.id, **one} for m, one in zip(asked, told, strict=True) if one is not None]


Answers = Mapping[int, Sequence[Standing]]
"""By node; those that did not answer are missing."""


async def ask(kv: NodesAt, members: Iterable[NodeRow]) -> Answers:
    """Ask every member at once."""

    async def one(member: NodeRow) -> tuple[int, Sequence[Standing]] | None:
        if (map_ := await _ask_one(kv, member, STANDING)) is None:
            return None
        # Another node may have its address by now.
        return map_["node"], [Standing.from_wire(row) for row in map_["replicas"]]

    found = await asyncio.gather(*(one(m) for m in members if m.state is not NodeState.GONE))
    return dict(each for each in found if each is not None)


def leaders(answers: Answers) -> dict[int, tuple[int, Standing]]:
    """By partition: the node that leads it, and how it sees the group."""
    found: dict[int, tuple[int, Standing]] = {}
    for node, standings in sorted(answers.items()):
        for standing in standings:
            if standing.role != "leader":
                continue
            known = found.get(standing.id)
            if known is None or standing.term > known[1].term:
                found[standing.id] = (node, standing)
    return found


@dataclass(frozen=True, slots=True)
class Reports:
    """What the master knows from beats (REPORTS); empty if it does not answer."""

    nodes: Mapping[int, Sequence[Any]]
    """By id: health, ms since heard or None, reported everything, CPU share, disk bytes free, …"""
    partitions: Mapping[int, Report]
    cluster: str | None = None
    """Its id."""
    master: int | None = None
    """The node that answers."""

    @staticmethod
    def from_wire(map_: Plain) -> Reports:
        rows = [Report.from_wire(row) for _, row in map_["partitions"]]
        return Reports(
            {node: row for node, *row in map_["nodes"]},
            {row.partition: row for row in rows},
            map_.get("cluster"),
            map_.get("master"),
        )


async def reports(kv: NodesAt) -> Reports:
    """Ask the master. A cluster that has none is described all the same."""
    try:
        (map_,) = await kv.call_node(REPORTS, budget_ms=_ASK_MS)
    except KvorumError:
        return Reports({}, {})
    return Reports.from_wire(map_)


def node_rows(
    members: Iterable[NodeRow],
    map_: Sequence[PartitionDescriptor],
    answers: Answers,
    forced: Sequence[Forced] = (),
    known: Reports | None = None,
) -> list[dict[str, object]]:
    """`/v1/nodes`. `forced`: shown at the node where it was done."""
    known = known or Reports({}, {})
    led = [node for node, _ in leaders(answers).values()]
    return [
        {
            "id": member.id,
            "address": member.address,
            "state": _state(member, answers),
            "leaders": led.count(member.id),
            "replicas": len(answers[member.id])
            if member.id in answers
            else sum(member.id in (*d.voters, *d.learners) for d in map_),
            "version": member.version,
            "witness": member.witness,
            "labels": dict(zip(LEVELS, member.domains, strict=True)),
            "tags": list(member.tags),
            "forced": [_plain(one) for one in forced if one.node == member.id],
            **_beats(known.nodes.get(member.id)),
        }
        for member in members
    ]


def _beats(row: Sequence[object] | None) -> dict[str, object]:
    """How the master hears a node: `health` is alive, suspect or dead; null where nobody knows."""
    if row is None:
        return {"health": None, "heard_ms": None, "cpu": None, "disk_free": None}
    health, heard_ms, _, cpu, disk_free, *_ = row
    return {"health": health, "heard_ms": heard_ms, "cpu": cpu, "disk_free": disk_free}


def _plain(forced: Forced) -> dict[str, object]:
    return {
        "at_ms": forced.at_ms,
        "voters": list(forced.voters),
        "given_up": list(forced.given_up),
        "partitions": list(forced.partitions),
        "reason": forced.reason,
    }


def _state(member: NodeRow, answers: Answers) -> str:
    if member.state is NodeState.GONE or member.id in answers:
        return "live" if member.state is NodeState.MEMBER else member.state.name.lower()
    return "down"


def partition_rows(
    map_: Sequence[PartitionDescriptor], answers: Answers, known: Reports | None = None
) -> list[dict[str, object]]:
    """`/v1/partitions`. Without a leader that answers, members are those of the map. `load` is in
    standard traffic units per second (kv/base/traffic.py), like the other rates an average of about
    ten seconds.
    """
    known = known or Reports({}, {})
    led = leaders(answers)
    anybody = {s.id: s for standings in answers.values() for s in standings}
    rows = []
    for d in map_:
        leader, standing = led.get(d.id, (None, anybody.get(d.id)))
        row = {"id": d.id, "start": d.start, "end": d.end, "leader": leader, "epoch": d.epoch}
        if standing is None:
            row |= {"term": None, "replicas": list(d.voters), "learners": list(d.learners)}
            row |= {"witnesses": list(d.witnesses), "lag": {}, "size": 0, "load": 0}
        else:
            row |= {
                "term": standing.term,
                "replicas": list(standing.voters),
                "learners": list(standing.learners),
                "witnesses": list(standing.witnesses),
                "lag": {str(f.node): f.lag for f in standing.followers},
                "size": standing.size,
                "load": 0.0,
                "entries": standing.entries,
            }
        report = known.partitions.get(d.id)
        row |= _traffic(report) | {"shard": d.shard, "policy": policy_of(d.shard)}
        rates = (0.0, 0.0) if report is None else (report.reads, report.writes)
        row["policy_proposed"] = proposed_policy(d.shard, *rates)
        row["moving_at"] = [
            node
            for node, standings in answers.items()
            if any(s.id == d.id and s.shard != d.shard for s in standings)
        ]
        rows.append(row)
    return rows


def _traffic(report: Report | None) -> dict[str, object]:
    """What its leader is asked for per second. `hint`: what to do about it, for people."""
    if report is None:
        return {"reads": 0.0, "writes": 0.0, "bytes": 0.0, "hot_keys": [], "hint": ""}
    hot = [{"key": one.key, "share": one.share} for one in report.hot]
    return {
        "load": report.units,
        "reads": report.reads,
        "writes": report.writes,
        "bytes": report.read_bytes + report.write_bytes,
        "hot_keys": hot,
        "hint": hint(report),
    }

"""Requests about procedures, and what the master orders of nodes (kv/base/verbs.py).

Maps travel as msgpack bytes where a handler looks at them anyway. What a sink says is looked at by
procedures/sink alone: it knows what an attempt or a manifest is.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from kv.base import limits
from kv.base.descriptors import PARTITION_ID_MAX
from kv.base.fields import (
    I64,
    U64,
    Bound,
    Flag,
    Index,
    Name,
    Partition,
    Row,
    Unchecked,
    WaitMs,
    descriptor,
    integer,
    items,
    mapping,
    octets,
    one_of,
    optional,
    text,
)
from kv.base.rights import Action, Kind
from kv.base.verbs import CLUSTER, Caller, Repeat, Request, Subject, verb

Packed = Annotated[bytes, octets(limits.FRAME_BYTES_MAX)]
Map = Annotated[dict[str, Any], mapping]
Partitions = Annotated[list[int], items(integer(1, PARTITION_ID_MAX), limits.SPLIT_KEYS_MAX + 1, 1)]
PROC_LISTS: Final = frozenset({"audit.page", "past.list", "version.page", "search", "count"})
"""What PROC_CONTROL answers everybody, with what he may see."""
PROC_OF_TYPES: Final = frozenset({"version.set", "version.rollback", "version.move"})
"""What PROC_CONTROL does with the type that is named."""
PROC_QUESTIONS: Final = frozenset(
    {
        *("schedule.list", "schedule.times", "queue.list", "queue.show", "pause.list"),
        *("version.page", "audit.page", "census", "explain", "live", "query", "events"),
        *("past", "past.record", "past.list", "type.list"),
        *("search", "count", "retention.list"),
    }
)

_TYPE: Final = Subject(Kind.PROCEDURE_TYPE, "name", "the name")
_OF: Final = Subject(Kind.PROCEDURE_TYPE, "id", "the procedure")
_ALL: Final = Subject(Kind.PROCEDURE_TYPE)
_LOCK: Final = Subject(Kind.LOCK, "id", "the procedure")
_POOL: Final = Subject(Kind.POOL, "worker", "the worker")
_TABLE: Final = Subject(Kind.TABLE, "table", "the id")
_procedures = partial(verb, by=Caller.CLIENT, master=True)
_work = partial(
    verb, by=Caller.WORKER, action=Action.RUN, on=_POOL, repeat=Repeat.QUESTION, master=True
)
_sink = partial(verb, by=Caller.CLIENT, action=Action.WRITE, repeat=Repeat.AGAIN)
_order = partial(verb, by=Caller.MASTER, action=Action.NODE, on=CLUSTER)

# --------------------------------------------------------------------------------------- procedures


class _Submission(Request):
    """What all submissions say; `args` is msgpack."""

    name: Name
    args: Annotated[bytes, octets(limits.PROCEDURE_ARGS_BYTES_MAX)]
    owner: Annotated[str, text(limits.NONCE_CHARS_MAX)]
    nonce: Annotated[str | None, optional(text(limits.NONCE_CHARS_MAX))]


@_procedures(70, action=Action.SUBMIT, on=_TYPE, nonce="nonce", in_reply={"procedure": 0})
class ProcSubmit(_Submission):
    """→ id [, map (ProcedureInfo) of one that has ended]"""


@_procedures(71, action=Action.READ, on=_OF, repeat=Repeat.QUESTION, shown={"procedure": "id"})
class ProcGet(Request):
    """→ map (ProcedureInfo), as msgpack bytes"""

    id: U64
    wait_ms: WaitMs


@_procedures(72, action=Action.CONNECT, on=CLUSTER, repeat=Repeat.QUESTION)
class ProcList(Request):
    """→ [map as msgpack bytes, …], of types that its caller may read; `before` of the next page, 0:
    there are no more. `filter`: {state?, owner?, name?, limit?, before?}
    """

    filter: Map


@_procedures(73, action=Action.SUBMIT, on=_OF, repeat=Repeat.QUESTION, shown={"procedure": "id"})
class ProcAck(Request):
    """→ true. The result was fetched: forget it"""

    id: U64


@_procedures(74, action=Action.OPERATE, on=_OF, repeat=Repeat.AGAIN, shown={"procedure": "id"})
class ProcAbort(Request):
    """→ true"""

    id: U64
    reason: Annotated[str, text(limits.REASON_CHARS_MAX)]
    dry_run: Flag


@_procedures(175, action=Action.OPERATE, on=_ALL, repeat=Repeat.AGAIN, questions=PROC_QUESTIONS)
class ProcControl(Request):
    """→ msgpack bytes. What users do with running procedures, queues and schedules
    (procedures/pools/control.py).
    """

    what: Name
    args: Packed


@_procedures(179, action=Action.SUBMIT, on=_TYPE, nonce="nonce", in_reply={"procedure": 0})
class ProcSubmitMore(_Submission):
    """→ id. PROC_SUBMIT with more said"""

    options: Map


@_procedures(150, action=Action.WRITE, on=_LOCK, repeat=Repeat.QUESTION)
class LockBeat(Request):
    """→ "waiting" | "held" | "ended", fencing token (0 unless held). A holder of a lock, or one who
    waits for it, is alive (procedures/engine/lock_procedure.py).
    """

    id: U64
    wait_ms: WaitMs


@_procedures(151, action=Action.WRITE, on=_LOCK, repeat=Repeat.QUESTION)
class LockEnd(Request):
    """→ true. The lock is given back"""

    id: U64


# ------------------------------------------------------------------------------------------ workers


@_work(170)
class WorkEnter(Request):
    """→ epoch, [id that it must drop, …], types (msgpack bytes). `registration` is msgpack."""

    worker: Annotated[str, text(limits.NAME_CHARS_MAX, 1)]
    registration: Annotated[bytes, octets(limits.WORKER_DECLARATIONS_BYTES_MAX)]


@_work(171)
class WorkPoll(Request):
    """→ orders (msgpack bytes). What is said (msgpack) with one `seq` is taken once; orders above
    `seen` are kept, and returned again if asked.
    """

    worker: Name
    epoch: I64
    seq: I64
    seen: I64
    again: Flag
    wait_ms: WaitMs
    said: Packed


@_work(172)
class WorkIds(Request):
    """→ first. Ids for children: so many in a row, for this worker alone"""

    worker: Name
    epoch: I64
    count: Annotated[int, integer(1, limits.PROCEDURE_CHILDREN_MAX)]


@_work(173)
class WorkLeave(Request):
    """→ true. It holds nothing any more and leaves"""

    worker: Name
    epoch: I64


@_procedures(174, action=Action.READ, on=Subject(Kind.POOL), repeat=Repeat.QUESTION)
class WorkList(Request):
    """→ [map as msgpack bytes, …] workers, the same of pools"""


# -------------------------------------------------------------------------------------------- sinks


class _Task(Request):
    """What a task of a sink says of itself."""

    attempt: Unchecked
    table: Unchecked
    part: Unchecked
    task: Unchecked


@_sink(80, on=_TABLE)
class SinkBegin(Request):
    """→ state. Opens the attempt or renews its lease"""

    attempt: Unchecked
    table: Unchecked
    lease_ms: Unchecked


@_sink(81, on=_TABLE)
class SinkStage(_Task):
    """→ true. Opens the attempt if it is new"""

    seq: Unchecked
    chunk: Unchecked


@_sink(82, on=_TABLE)
class SinkSeal(_Task):
    """→ true. txns: [[start_ts, bound], …] of the transactions under which the task laid so many
    rows in place.
    """

    chunks: Unchecked
    rows: Unchecked
    crc: Unchecked
    last_chunk: Unchecked
    txns: Unchecked = ()
    placed: Unchecked = 0


@_sink(83, on=Subject(Kind.TABLE, "request", "the id in"), master=True)
class SinkCommit(Request):
    """→ procedure id (0 = committed). `request`: {attempt, table, app, version, query, manifest,
    inline?, twice?, fresh?, replace?, reset?, early?}; what the rows mean:
    procedures/sink/format/sink_parts.py.
    """

    request: Unchecked


@_sink(84, on=_TABLE)
class SinkAbort(Request):
    """→ state. `table`: what the attempt stages for; who leaves it out may write all tables"""

    attempt: Unchecked
    table: Unchecked = 0


@_sink(85, on=_TABLE)
class SinkPlace(_Task):
    """→ whether the task may lay rows in place, in the table itself, under a transaction that began
    at start_ts (procedures/sink/placed_rows.py).
    """

    start_ts: Unchecked


# -------------------------------------------------------- orders of the master, and reports to it


class _OfPartition(Request):
    """What most orders say."""

    partition: Partition
    epoch: Index


@_order(92, repeat=Repeat.AGAIN)
class CreatePartition(Request):
    """→ true. Make and open this node's replicas; those that exist stay as they are"""

    descriptors: Annotated[list[Any], items(descriptor, limits.SPLIT_KEYS_MAX + 1, 1)]


@_order(93, repeat=Repeat.AGAIN)
class DropPartition(Request):
    """→ true. Remove this node's replicas with their data; those that are gone stay so"""

    partitions: Partitions


@_order(91, repeat=Repeat.AGAIN)
class Campaign(Request):
    """→ true. Ask for the leadership of those that nobody leads: they are new"""

    partitions: Partitions


@_order(95, repeat=Repeat.AGAIN)
class ChangeReplicas(Request):
    """→ index of the new configuration (0: nothing had to be changed). At the partition's leader;
    others NOT_LEADER.
    """

    partition: Partition
    change: Annotated[str, one_of("learner", "promote", "demote", "witness", "remove", "transfer")]
    node: Annotated[int, integer(1, 1 << 63)]


@verb(98, by=(Caller.MASTER, Caller.NODE), action=Action.NODE, on=CLUSTER, repeat=Repeat.QUESTION)
class ReplicaStatus(Request):
    """→ [row of GroupView, …], of this node's replicas. None = all"""

    partitions: Annotated[
        list[int] | None, optional(items(integer(1, PARTITION_ID_MAX), limits.LIST_ITEMS_MAX))
    ]


@_order(120, repeat=Repeat.AGAIN)
class SplitPartition(Request):
    """→ [descriptor, descriptor of the new one]. At the leader: split it in place
    (kv/partition/shapes.py); if that has been done, the same answer. `new`: the id of the new one.
    """

    partition: Partition
    key: Bound
    new: Partition
    epoch: Index


@_order(122, repeat=Repeat.AGAIN)
class FreezePartition(_OfPartition):
    """→ index, term. At the leader: let nobody be served from here on, until it is merged into
    another one or thawed.
    """


@_order(123, repeat=Repeat.AGAIN)
class ThawPartition(_OfPartition):
    """→ true. At the leader: serve again"""


@_order(124, repeat=Repeat.AGAIN)
class CaughtUp(Request):
    """→ true. At any replica: it has applied that, durably"""

    partition: Partition
    index: Index


@_order(125, repeat=Repeat.AGAIN)
class MergePartition(_OfPartition):
    """→ descriptor. At the leader: take the one above in, which is frozen at (index, term) and
    applied so far at these nodes, all that have data; if that has been done, the same answer.
    """

    right: Row
    index: Index
    term: Index
    nodes: Annotated[list[int], items(integer(1, (1 << 32) - 1), limits.NODES_MAX)]


@_order(126, repeat=Repeat.AGAIN)
class SettlePartition(_OfPartition):
    """→ descriptor. At the leader: nothing that was ordered for this epoch can happen any more,
    unless it has happened.
    """


@_order(127, repeat=Repeat.AGAIN)
class VerifyReplica(Request):
    """→ place, key | None. At the leader: read the next part of all that it has of the partition
    against its checksums; where to go on, None at the end (kv/replica/verifying.py).
    """

    partition: Partition
    place: Annotated[int, integer(0, 16)]
    key: Bound


@_procedures(133, action=Action.OPERATE, on=CLUSTER)
class Reports(Request):
    """→ map: what the master knows of nodes and replicas from their beats
    (procedures/master/map/reports.py)
    """


@_order(160)
class BusOrders(Request):
    """→ [report, …]. What the master wants of this node (procedures/bus/messages.py)"""

    orders: Unchecked


@verb(
    161,
    by=(Caller.NODE, Caller.WORKER),
    action=Action.RUN,
    on=Subject(Kind.POOL, "target", "the worker"),
    master=True,
)
class BusReports(Request):
    """→ [order, …]. What became of orders; answered with those that wait for the target."""

    target: Annotated[str, text(limits.FRAME_BYTES_MAX)]
    reports: Unchecked


PROC_SUBMIT: Final = ProcSubmit.number
PROC_GET: Final = ProcGet.number
PROC_LIST: Final = ProcList.number
PROC_ACK: Final = ProcAck.number
PROC_ABORT: Final = ProcAbort.number
PROC_CONTROL: Final = ProcControl.number
PROC_SUBMIT_MORE: Final = ProcSubmitMore.number
LOCK_BEAT: Final = LockBeat.number
LOCK_END: Final = LockEnd.number
WORK_ENTER: Final = WorkEnter.number
WORK_POLL: Final = WorkPoll.number
WORK_IDS: Final = WorkIds.number
WORK_LEAVE: Final = WorkLeave.number
WORK_LIST: Final = WorkList.number
SINK_BEGIN: Final = SinkBegin.number
SINK_STAGE: Final = SinkStage.number
SINK_SEAL: Final = SinkSeal.number
SINK_COMMIT: Final = SinkCommit.number
SINK_ABORT: Final = SinkAbort.number
SINK_PLACE: Final = SinkPlace.number
CREATE_PARTITION: Final = CreatePartition.number
DROP_PARTITION: Final = DropPartition.number
CAMPAIGN: Final = Campaign.number
CHANGE_REPLICAS: Final = ChangeReplicas.number
REPLICA_STATUS: Final = ReplicaStatus.number
SPLIT_PARTITION: Final = SplitPartition.number
FREEZE_PARTITION: Final = FreezePartition.number
THAW_PARTITION: Final = ThawPartition.number
CAUGHT_UP: Final = CaughtUp.number
MERGE_PARTITION: Final = MergePartition.number
SETTLE_PARTITION: Final = SettlePartition.number
VERIFY_REPLICA: Final = VerifyReplica.number
REPORTS: Final = Reports.number
BUS_ORDERS: Final = BusOrders.number
BUS_REPORTS: Final = BusReports.number

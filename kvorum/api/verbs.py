"""Requests that nodes and operators send (kv/base/verbs.py). Whoever imports this has all verbs."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from kv.base import limits
from kv.base import methods as _of_kv  # noqa: F401 - they are in the table then
from kv.base.errors import InvalidArgument
from kv.base.fields import (
    U64,
    Bound,
    Flag,
    Fresh,
    Name,
    Node,
    Partition,
    Partitions,
    Timestamp,
    boolean,
    error,
    integer,
    items,
    octets,
    optional,
    text,
)
from kv.base.rights import Action
from kv.base.verbs import CLUSTER, VERBS, Caller, Repeat, Request, verb
from procedures import verbs as _of_procedures  # noqa: F401 - the same
from raft.rules.membership import REASON_BYTES_MAX
from sqlproxy.catalog import visible_catalog as _of_the_catalog  # noqa: F401 - the same
from tso import verbs as _of_timestamps  # noqa: F401 - the same

TOKEN_BYTES: Final = 16
PROOF_BYTES: Final = 32
BOOT_BYTES: Final = 8

_ADDRESS_CHARS_MAX: Final = 300


def method_name(number: int) -> str:
    """What people call a method; its number, if it is of another version."""
    verb = VERBS.get(number)
    return str(number) if verb is None else verb.name


def _cut(what: str, value: Any) -> None:
    one_way = type(value) is list and len(value) == 2 and value[1] in ("in", "out")
    node = value[0] if one_way else value
    if type(node) is not int or node <= 0:
        raise InvalidArgument(f'{what} are node ids or [node id, "in" or "out"], or nothing to ask')


def _reason(what: str, value: Any) -> None:
    text(REASON_BYTES_MAX)(what, value)
    if not value.strip() or len(value.encode()) > REASON_BYTES_MAX:
        raise InvalidArgument(f"{what} has 1 to {REASON_BYTES_MAX} bytes")


def _people(what: str, value: object) -> None:
    if value != "all":
        boolean(what, value)


def _sections(what: str, value: object) -> None:
    if type(value) is not dict or len(value) > limits.BEAT_SECTIONS_MAX:
        raise InvalidArgument(f"{what} is a map of at most {limits.BEAT_SECTIONS_MAX} sections")
    for name, packed in value.items():
        text(limits.NAME_CHARS_MAX)(f"{what}: a name", name)
        octets(limits.BEAT_SECTION_BYTES_MAX)(f"{what}: {name}", packed)


_node = partial(verb, by=Caller.NODE, action=Action.NODE, on=CLUSTER)
_operate = partial(verb, by=Caller.CLIENT, action=Action.OPERATE, on=CLUSTER)
_admin = partial(verb, by=Caller.CLIENT, action=Action.ADMIN, on=CLUSTER)


@_admin(90, repeat=Repeat.AGAIN)
class Links(Request):
    """→ cuts. Fault injection: what this node neither hears nor speaks to from now on, raft and
    clients of its own alike; None only asks. A cut is a node id, or [node id, "in" | "out"]: it
    does not hear that node, or is not heard by it. Refused without the setting fault_injection.
    """

    cuts: Annotated[list[Any] | None, optional(items(_cut, limits.NODES_MAX))]


@verb(94, by=Caller.CLIENT, action=Action.NODE, on=CLUSTER, repeat=Repeat.AGAIN, master=True)
class Join(Request):
    """→ node id, cluster id, [[node id, address], …], "hybrid" if its clocks are. Take a new node
    in; the same address (HOST:BASE) gets the same id again. `proof`: kvorum/cluster/joining.py.
    """

    address: Annotated[str, text(_ADDRESS_CHARS_MAX, 1)]
    version: Name
    token: Annotated[bytes, octets(TOKEN_BYTES, TOKEN_BYTES)]
    proof: Annotated[bytes, octets(PROOF_BYTES, PROOF_BYTES)]
    witness: Flag = False


@_operate(96, repeat=Repeat.QUESTION)
class Standing(Request):
    """→ map: this node, its version, and how each of its replicas stands, which are damaged
    (kvorum/cluster/replica_status.py)
    """


@_node(97, repeat=Repeat.QUESTION, shown={"txn": "txn"})
class HoldsTxn(Request):
    """→ [host, port] of this node's HTTP API if the transaction is open in it, else ["", 0]"""

    txn: Timestamp


@_admin(99)
class ForceMembers(Request):
    """→ [row of Plan, …], ticket. An operator's last resort (kvorum/cluster/force_members.py):
    survivors become the only voters of what has lost its majority. Without a ticket (b"") only the
    plan is told.
    """

    voters: Annotated[list[int], items(integer(1, (1 << 63) - 1), limits.NODES_MAX, 1)]
    reason: Annotated[str, _reason]
    ticket: Annotated[bytes, octets(limits.FRAME_BYTES_MAX)]
    proof: Annotated[bytes, octets(limits.FRAME_BYTES_MAX)]


@_operate(100, repeat=Repeat.QUESTION)
class Waits(Request):
    """→ [Wait as list, …], [Held as list, …], whether there is more (kv/base/waits.py). What waits
    at this node and what its leaders hold: false = only waits of transactions that may hold
    something; true = a transaction's keys folded where nobody waits; "all" = a row for each key.
    """

    people: Annotated[bool | str, _people]


@_node(101, repeat=Repeat.QUESTION)
class RefuseWait(Request):
    """→ whether it was. End a wait (Wait.edge) with an error (to_wire)"""

    node: U64
    source: U64
    id: U64
    holder: U64
    error: Annotated[list[Any], error]


@_operate(102, repeat=Repeat.QUESTION)
class PastHour(Request):
    """→ map: `samples` of this node's last hour that are newer (kvorum/storage/hour.py), and when
    the certificates that it shows and believes end
    """

    after_ms: Annotated[int, integer(0, (1 << 63) - 1)]


@_node(115, repeat=Repeat.QUESTION)
class OldestIntent(Request):
    """→ the smallest start_ts of any intent among this node's replicas (0: none), [ids of the
    partitions that it leads]
    """


@_node(116, repeat=Repeat.QUESTION)
class Anchored(Request):
    """→ [[start_ts, anchor, ttl_ms, [key, …]], …], [partition id, …]. Closes the range, which is to
    be dropped, to new writes at this node. Intents and guards in the partitions that it leads:
    outside of the range, or at the record, of transactions with their record in it; in the range,
    of others; and the partitions of the range that it leads, whose log says that they are closed,
    and in which nothing is on its way.
    """

    start: Bound
    end: Bound


@verb(
    118,
    by=Caller.CLIENT,
    action=Action.OPERATE,
    on=CLUSTER,
    repeat=Repeat.QUESTION,
    shown={"txn": "txn"},
)
class EndTxn(Request):
    """→ whether it was open in this node's process (over HTTP, say), which has aborted it then"""

    txn: Timestamp


@_node(130, repeat=Repeat.QUESTION, master=True)
class Beat(Request):
    """→ reign, {section: bytes}. What a node tells the master about every second, and what the
    master answers (kvorum/cluster/heartbeat.py).
    """

    node: Node
    boot: Annotated[bytes, octets(BOOT_BYTES, BOOT_BYTES)]
    count: Annotated[int, integer(1, (1 << 63) - 1)]
    sections: Annotated[dict[str, bytes], _sections]


@verb(131, by=Caller.MASTER, action=Action.NODE, on=CLUSTER, repeat=Repeat.QUESTION)
class BeatNow(Request):
    """→ true. The master asks for a beat at once: it has just begun, or has something to tell"""

    node: Node


@verb(134, by=Caller.MASTER, action=Action.NODE, on=CLUSTER)
class CheckReplica(Request):
    """→ digest, rows, resume | None, [key, …], [key, …], applied. What this node's replica has of a
    part of a partition (kvorum/transfer/replica_digest.py).
    """

    partition: Partition
    start: Bound
    end: Bound
    at: Fresh
    rows: Annotated[int, integer(1, limits.CHECK_STEP_ROWS)]


@_node(136, repeat=Repeat.QUESTION)
class WallClock(Request):
    """→ ms. This node's wall clock (kvorum/cluster/clocks.py); of a cluster with hybrid clocks"""


@verb(135, by=Caller.MASTER, action=Action.NODE, on=CLUSTER)
class RaiseSafepoint(Request):
    """→ [partition, …]. Nothing below is read any more in those that this node leads
    (kvorum/transfer/raise_safepoint.py).
    """

    partitions: Partitions
    safepoint: Fresh


@_admin(148, questions=frozenset({"user.list", "token.list", "grant.list"}))
class Access(Request):
    """→ msgpack bytes. What administrators do with users, tokens and grants
    (kvorum/native/access.py).
    """

    what: Name
    args: Annotated[bytes, octets(limits.PROCEDURE_ARGS_BYTES_MAX)]


LINKS: Final = Links.number
JOIN: Final = Join.number
STANDING: Final = Standing.number
HOLDS_TXN: Final = HoldsTxn.number
FORCE_MEMBERS: Final = ForceMembers.number
WAITS: Final = Waits.number
REFUSE_WAIT: Final = RefuseWait.number
PAST_HOUR: Final = PastHour.number
OLDEST_INTENT: Final = OldestIntent.number
ANCHORED: Final = Anchored.number
END_TXN: Final = EndTxn.number
BEAT: Final = Beat.number
BEAT_NOW: Final = BeatNow.number
CHECK_REPLICA: Final = CheckReplica.number
RAISE_SAFEPOINT: Final = RaiseSafepoint.number
WALL_CLOCK: Final = WallClock.number
ACCESS: Final = Access.number

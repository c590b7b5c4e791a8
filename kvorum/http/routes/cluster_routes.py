"""The cluster: its settings, nodes, partitions, and who waits for whom; and how a node is."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query
from pydantic import Field

from kv.base.errors import Unavailable
from kv.base.rights import CLUSTER, Action
from kv.server.connection_rights import table_of
from kvorum.api.backend import Backend
from kvorum.http.routes.declaring import (
    As,
    Asked,
    Body,
    Flag,
    Here,
    Id,
    Me,
    Node,
    Plain,
    Routes,
    TextOrNone,
    sees,
    submitter,
)
from kvorum.http.routes.rights import OPEN, OPERATE_CLUSTER, READ_CLUSTER, SELF
from kvorum.http.routes.route import OBJECT, TS, D, items_of, object_of
from kvorum.http.wire.codec import Reply
from kvorum.http.wire.fields import DATA, NUMBERS, Schema, integer
from kvorum.http.wire.request import Request

ROUTES: Final = Routes("cluster")

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer"}
_STATUS: Final = object_of(status=_TEXT)
_STARTED: Final = object_of(id=TS)
_NAME: Final[Schema] = {"type": ["string", "null"]}  # null: not a user's table
_PLACE: Final[dict[str, Schema]] = {"ns": _NAME, "table": _NAME, "key": D}
_LOCK: Final = object_of(
    kind={"type": "string", "enum": ["intent", "guard"]},
    **_PLACE,
    end=D,
    keys=_COUNT,
    txn=TS,
    owner=_TEXT,
    age_ms=_COUNT,
    ttl_ms=_COUNT,
    partition=_COUNT,
    node=_COUNT,
    waiting=_COUNT,
)
_WAITING: Final = object_of(
    kind={"type": "string", "enum": ["intent", "guard", "procedure"]},
    **_PLACE,
    txn=_NAME,
    owner=_TEXT,
    priority={"type": "string", "enum": ["low", "normal", "high"]},
    waited_ms=_COUNT,
    holder=_NAME,
    holder_owner=_TEXT,
    holder_age_ms=_COUNT,
    partition=_COUNT,
    node=_COUNT,
    procedure=_TEXT,
    resource=_TEXT,
)
_LOCKS: Final = object_of(
    locks={"type": "array", "items": _LOCK},
    waits={"type": "array", "items": _WAITING},
    missing={"type": "array", "items": _COUNT},
    more={"type": "boolean"},
)
_SETTINGS: Final[Schema] = {"type": "array", "items": OBJECT}
_CLUSTER: Final = object_of(
    cluster=_NAME,
    master={"type": ["integer", "null"]},
    nodes=_COUNT,
    partitions=_COUNT,
    settings=_SETTINGS,
)
NodeId = Annotated[int, As(integer(1, (1 << 32) - 1))]
_UNTOLD: Final[Plain] = {
    "version": "",
    "labels": {},
    "tags": [],
    "forced": [],
    "health": None,
    "heard_ms": None,
    "cpu": None,
    "disk_free": None,
}
_WHY: Final = "For people; kept with the procedure."


class Settings(Body):
    settings: Annotated[dict[str, int], As(NUMBERS)] = Field(
        description="Whole numbers by name; `GET /v1/cluster` lists what there is."
    )


class Move(Body):
    source: NodeId = Field(alias="from", description="The node whose replica goes.")
    to: NodeId = Field(description="The node that gets one.")
    why: TextOrNone = Field(None, description=_WHY)


class Transfer(Body):
    to: NodeId = Field(description="The node that shall lead.")
    why: TextOrNone = Field(None, description=_WHY)


class Split(Body):
    key: Annotated[bytes | None, As(DATA)] = Field(
        None, description="Where the new partition begins; in the middle if left out."
    )


class Merge(Body):
    right: Annotated[int, As(integer(2, 1 << 62))] = Field(
        alias="with", description="The partition that begins where this one ends."
    )


@ROUTES.on("GET", "/v1/cluster", READ_CLUSTER, _CLUSTER)
async def look_at_cluster(node: Node) -> object:
    """Look at the cluster

    Its id, the node that is its `master` (null: there is none now), how many `nodes` and
    `partitions` there are, and every setting: `value`, `version` (0: never set), `default`, `low`,
    `high`, `about`.
    """
    return await node.cluster()


@ROUTES.on("POST", "/v1/cluster", OPERATE_CLUSTER, object_of(settings=_SETTINGS))
async def change_settings(node: Node, body: Settings) -> Plain:
    """Change settings of the cluster

    All of them are checked before one is changed. Waits until every node applies them, or for 30 s:
    `missing` names nodes that have not said so; the value counts all the same, and they read it
    when they are back.
    """
    return {"settings": await node.set_settings(body.settings)}


@ROUTES.on("GET", "/v1/nodes", SELF, items_of(OBJECT))
async def list_nodes(node: Node, asked: Asked) -> Plain:
    """List nodes

    `state`: `live`, `down` (it does not answer the node that was asked), `joining`, `leaving` or
    `gone`; `leaders`: partitions that it leads; `witness`: it votes and keeps no data; `labels`
    (`dc`, `rack`, `server`) and `tags`: what it was started with; `forced`: what operators did to
    the members by force at this node, `[{"at_ms", "voters", "given_up", "partitions", "reason"}]`.
    `health`, as the master hears it: `alive`, `suspect`, `dead` (silent for `dead_after_ms`), null
    while there is no master; `heard_ms`: since its last beat; `cpu`: share of a core; `disk_free`
    in bytes. Who may not operate the cluster is told `id`, `address`, `state`, `witness`, `leaders`
    and `replicas`.
    """
    return {"items": await told_nodes(node, asked)}


async def told_nodes(node: Backend, asked: Request) -> list[Plain]:
    """What who asks may know of them."""
    rows = await node.nodes()
    if not sees(asked, CLUSTER, Action.OPERATE):
        rows = [{**row, **_UNTOLD} for row in rows]
    return rows


@ROUTES.on("GET", "/v1/partitions", SELF, items_of(OBJECT))
async def list_partitions(node: Node, asked: Asked, here: Here) -> Plain:
    """List partitions

    In key order. `start` and `end` are storage keys: the table's id in 4 bytes, the key. `leader`:
    a node's id, null while none answers; `lag`: log entries that each other member still lacks, by
    node id; `size`: bytes of keys and newest values; `entries`: of its log, ever. Per second,
    averages of about ten seconds: `reads`, `writes`, `bytes`, `load` (in standard traffic units: a
    request of up to 1 KiB is 1, of 1 to 2 KiB is 2). `hot_keys`: `[{"key", "share"}]` of the
    requests; `hint`: what people should do about its load. `shard`: the storage shard of its rows,
    `policy`: how that merges files, `policy_proposed`: what fits its reads and writes;
    `moving_at`: nodes where they are not there yet. Who may not operate the cluster is told those
    of tables that he may read.
    """
    rows, book = await node.partitions(), here.guard.book
    if not sees(asked, CLUSTER, Action.OPERATE):
        tables = {} if book is None else book.tables
        known = {row["id"]: tables.get(table_of(row["start"])) for row in rows}
        rows = [row for row in rows if (its := known[row["id"]]) is not None and sees(asked, its)]
    return {"items": rows}


@ROUTES.on("POST", "/v1/partitions/{id}/move", OPERATE_CLUSTER, _STARTED, ok=202)
async def move(node: Node, me: Me, id: Id, body: Move) -> Plain:
    """Move a replica

    From node `from` to node `to`, by a procedure: the new replica votes before the old one leaves.
    The procedure fails with 409 `MOVE_REFUSED` and the reason if the node has no room, lacks a tag
    of the table, or would be the second one in a failure domain.
    """
    return await _started(node, me, "kvorum.move_replica", {"partition": id, **body.given()})


@ROUTES.on("POST", "/v1/partitions/{id}/transfer", OPERATE_CLUSTER, _STARTED, ok=202)
async def transfer(node: Node, me: Me, id: Id, body: Transfer) -> Plain:
    """Hand over a leadership

    To node `to`, which must have a replica; by a procedure. It stays there.
    """
    return await _started(node, me, "kvorum.transfer_leader", {"partition": id, **body.given()})


@ROUTES.on("POST", "/v1/partitions/{id}/split", OPERATE_CLUSTER, _STARTED, ok=202)
async def split(node: Node, me: Me, id: Id, body: Split) -> Plain:
    """Split a partition

    In place and under load, by a procedure; its result names the new one. It fails with 409
    `CANNOT_SPLIT` if the key does not lie inside, or if there is too little to find a middle of.
    """
    at = {} if body.key is None else {"at": body.key}
    return await _started(node, me, "kvorum.split_partition", {"partition": id, **at})


@ROUTES.on("POST", "/v1/partitions/{id}/merge", OPERATE_CLUSTER, _STARTED, ok=202)
async def merge(node: Node, me: Me, id: Id, body: Merge) -> Plain:
    """Merge a partition with the next one

    In place and under load, by a procedure. It fails with 409 `CANNOT_MERGE` and the reason if they
    are no neighbours, are of two tables, have replicas at other nodes, or if a replica is down.
    """
    return await _started(node, me, "kvorum.merge_partitions", {"left": id, "right": body.right})


@ROUTES.on("GET", "/v1/locks", OPERATE_CLUSTER, _LOCKS)
async def list_locks(
    node: Node,
    every: Annotated[Flag, Query(alias="all", description="A row for each key.")] = False,
) -> object:
    """Who holds and who waits

    Of all nodes: what is waited for, then the oldest. `locks`: keys that transactions hold (`kind`
    `intent`: being written; `guard`: read by a serializable one, up to `end` if there is one).
    `keys` > 1: so many of the transaction in the table, `key` is the first, and nobody waits for
    any; with `all` each has a row. `waits`: a write that waits (`txn` null: it is none's) for
    `holder` (null: its turn comes), or a procedure. `missing`: nodes that did not answer; `more`:
    the lists were cut.
    """
    return await node.locks(every)


# ---------------------------------------------------------------------------------- the node itself


@ROUTES.on("GET", "/healthz", OPEN, _STATUS)
async def healthz() -> Plain:
    """Is the process alive"""
    return {"status": "ok"}


@ROUTES.on("GET", "/readyz", OPEN, _STATUS, 503)
async def readyz(here: Here) -> Plain:
    """Can the node serve

    503 while it starts or stops. `warning`: what its operator should know, if there is anything.
    """
    reason = here.not_ready()
    if reason is not None:
        raise Unavailable(f"not ready: {reason}")
    return {"status": "ready", **({"warning": here.notice} if here.notice else {})}


@ROUTES.on("GET", "/metrics", READ_CLUSTER, raw_answer="text/plain")
async def metrics(here: Here) -> Reply:
    """Prometheus metrics"""
    return here.metrics()


@ROUTES.on("GET", "/openapi.json", OPEN, shown=False)
async def openapi_document(here: Here) -> Reply:
    """This API, for programs"""
    return Reply(200, await here.document())


@ROUTES.on("GET", "/docs", OPEN, shown=False)
async def docs(here: Here) -> Reply:
    """This API, for people"""
    return Reply(200, await here.page(), b"text/html; charset=utf-8")


async def _started(node: Node, me: Me, name: str, args: Plain) -> Plain:
    return {"id": str(await node.submit(name, args, None, submitter(me) or None))}

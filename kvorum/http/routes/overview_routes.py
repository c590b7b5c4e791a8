"""How the cluster is, and what an operator should look at first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Query

from kv.base.errors import KvorumError, NotFound
from kv.base.rights import CLUSTER, Action
from kvorum.api.attention import BACKUP, Facts, findings
from kvorum.api.backend import Backend
from kvorum.http.routes.cluster_routes import told_nodes
from kvorum.http.routes.declaring import (
    Asked,
    Here,
    Node,
    Plain,
    Routes,
    digits,
    sees,
    types_of,
)
from kvorum.http.routes.rights import READ_CLUSTER, SELF
from kvorum.http.routes.route import OBJECT, items_of, object_of
from kvorum.http.wire.fields import Schema

ROUTES: Final = Routes("cluster")

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer"}
_FINDING: Final = object_of(
    level={"type": "string", "enum": ["bad", "warn", "note"]},
    kind=_TEXT,
    title=_TEXT,
    text=_TEXT,
    do=_TEXT,
    page=_TEXT,
)
_OVERVIEW: Final = object_of(
    at_ms=_COUNT,
    attention={"type": "array", "items": _FINDING},
    nodes={"type": "array", "items": OBJECT},
    partitions=object_of(all=_COUNT, led=_COUNT, whole=_COUNT, bytes=_COUNT),
    procedures=OBJECT,
)
_CENSUS: Final = object_of(
    at_ms=_COUNT,
    live=_COUNT,
    kinds={"type": "object", "additionalProperties": _COUNT},
    types={"type": "array", "items": OBJECT},
    first={"type": "array", "items": OBJECT},
)
_NOBODY: Final[Plain] = {"at_ms": 0, "live": 0, "kinds": {}, "types": [], "first": []}


@ROUTES.on("GET", "/v1/overview", READ_CLUSTER, _OVERVIEW)
async def overview(node: Node, asked: Asked, here: Here) -> Plain:
    """How is the cluster

    `attention`: what an operator should look at first, the worst first: `title`, `text`, `do` (what
    helps), `page` (of the console). `nodes` as `GET /v1/nodes` has them; `partitions`: how many,
    that have a leader, all of whose replicas are at nodes that answer; `procedures` as
    `GET /v1/census`. Locks count in it for who may operate the cluster.
    """
    operates = sees(asked, CLUSTER, Action.OPERATE)
    # At once: a node that is cut off is waited for once, not five times.
    rows, partitions, hours, about, census, locks = await asyncio.gather(
        told_nodes(node, asked),
        node.partitions(),
        node.hour(),
        node.cluster(),
        _census(node, types_of(asked, here)),
        node.locks() if operates else _nothing(),
    )
    schedules = await _schedules(node)
    last = max((one["samples"][-1][0] for one in hours if one["samples"]), default=0)
    facts = Facts(
        now_ms=census["at_ms"] or last,
        master=about["master"],
        nodes=rows,
        partitions=partitions,
        hours=hours,
        procedures=census,
        locks=locks,
        schedules=schedules,
        pauses=await _pauses(node),
        backups=await _backups(node, schedules or []),
    )
    live = {row["id"] for row in rows if row["state"] not in ("down", "gone")}
    return {
        "at_ms": facts.now_ms,
        "attention": findings(facts),
        "nodes": rows,
        "partitions": {
            "all": len(partitions),
            "led": sum(p["leader"] is not None for p in partitions),
            "whole": sum(live.issuperset(p["replicas"]) for p in partitions),
            "bytes": sum(p["size"] for p in partitions),
        },
        "procedures": census,
    }


@ROUTES.on("GET", "/v1/hour", READ_CLUSTER, items_of(OBJECT))
async def hour(
    node: Node,
    after_ms: Annotated[
        int, digits(0, 1 << 53), Query(description="Only samples that are newer.")
    ] = 0,
) -> Plain:
    """The last hour of each node

    `samples`, one each 15 s: `[at_ms, reads, writes, bytes, sync_ms, sync_p99_ms, late_ms, lag,
    cpu, [[partition, units], …]]`. Per second, of the partitions that the node leads: `reads`,
    `writes`, `bytes`, and `units` of its busiest (a request of up to 1 KiB is 1). `sync_ms`: a sync
    of the log (null: there was none); `late_ms`: the longest time for which its loop did nothing
    else; `lag`: log entries that the member farthest behind lacked; `cpu`: share of a core. With
    TLS `expires_seconds`, `ca_expires_seconds`: when its certificates end, in seconds since 1970.
    """
    return {"items": await node.hour(after_ms)}


@ROUTES.on("GET", "/v1/census", SELF, _CENSUS)
async def census(node: Node, asked: Asked, here: Here) -> Plain:
    """What procedures do

    Those that have not ended, each of one of the `kinds`: `parked` (its code is missing), `stuck`
    (a step runs longer than it may), `retrying`, `rolling_back`, `running`, `queued`, `paused`,
    `children` (it waits for them), `waiting`. `types`: those with most trouble, then with most
    procedures; `first`: what an operator should look at: trouble, then what waits for longest. All
    of types that you may read, submit or operate on. At most 2 s old.
    """
    return await _census(node, types_of(asked, here))


async def _census(node: Backend, types: Sequence[str] | None) -> Plain:
    try:
        return dict(await node.control("census", {} if types is None else {"seen": types}))
    except KvorumError:
        return _NOBODY  # there is no master now; the rest is told all the same


async def _nothing() -> Plain:
    return {}


async def _schedules(node: Backend) -> list[Plain] | None:
    """Those that make backups are among them, if there are any; None: who knows."""
    try:
        found = list(await node.control("schedule.list", {}))
        if not found or any(one["procedure"] == BACKUP for one in found):
            return found
        more = await node.control("schedule.list", {"after": found[-1]["name"]})
    except KvorumError:
        return None
    return None if more else found


async def _pauses(node: Backend) -> list[Plain]:
    try:
        return list(await node.control("pause.list", {}))
    except KvorumError:
        return []


async def _backups(node: Backend, schedules: list[Plain]) -> dict[str, str]:
    """The state of the last run of each schedule that makes backups, while that is kept."""
    found = {}
    for one in schedules:
        if one["procedure"] == BACKUP and one["last_id"]:
            try:
                found[one["name"]] = (await node.procedure(int(one["last_id"]), 0)).state
            except NotFound:
                continue
    return found

"""Timestamps, snapshots that are held, and locks that users' code holds."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from kv.base import limits
from kv.base.errors import Forbidden
from kv.base.rights import CLUSTER, LOOPBACK, Action, Kind
from kvorum.http.routes.declaring import (
    As,
    Asked,
    Body,
    Id,
    Me,
    Node,
    Nothing,
    Plain,
    Routes,
    TextOrNone,
)
from kvorum.http.routes.rights import READ_CLUSTER, SELF, Right
from kvorum.http.routes.route import OBJECT, TS, items_of, object_of
from kvorum.http.wire.fields import SNAPSHOT, Schema, integer
from kvorum.http.wire.request import Request
from kvorum.sdk.snapshots import checked_owner

TIMESTAMPS: Final = Routes("transactions")
SNAPSHOTS: Final = Routes("snapshots")
LOCKS: Final = Routes("locks")

_SNAPSHOT: Final = object_of(
    id=TS,
    at=TS,
    owner={"type": "string"},
    ttl_ms={"type": "integer"},
    age_ms={"type": "integer"},
    left_ms={"type": "integer"},
)
_STATE: Final[Schema] = {"type": "string", "enum": ["waiting", "held", "ended"]}
_LOCK: Final = object_of(id=TS, state=_STATE, token=TS)
_RELEASED: Final = object_of(id=TS, held={"type": "boolean"})
_FIRST: Final = object_of(first=TS, count={"type": "integer"})
_HOLD: Final = Right(Action.WRITE, Kind.LOCK, "{id}")


class Timestamps(Body):
    count: Annotated[int, As(integer(1, limits.TSO_COUNT_MAX))] = Field(
        description="How many; 1 with `above`, and where clocks are hybrid."
    )
    above: Annotated[int, As(SNAPSHOT)] = Field(0, description="One above it: a session token.")


class OpenSnapshot(Body):
    at: Annotated[int, As(SNAPSHOT)] = Field(0, description="The moment; now if left out.")
    owner: TextOrNone = Field(None, description="Who holds it, for people.")
    ttl_ms: Annotated[int, As(integer(1, limits.LEASE_TTL_MS_MAX))] = Field(
        limits.LEASE_TTL_MS_DEFAULT,
        description="It ends after so long without a heartbeat; "
        f"{limits.LEASE_TTL_MS_DEFAULT} if left out.",
    )


class Heartbeat(Body):
    wait_ms: Annotated[int, As(integer(0, limits.WAIT_MS_MAX))] = Field(
        0, description="Wait so long for the lock; 0."
    )


@TIMESTAMPS.on("POST", "/v1/tso", SELF, _FIRST)
async def take_timestamps(node: Node, body: Timestamps) -> Plain:
    """Take timestamps

    `count` timestamps from `first` on, each by one: unique, above every version acknowledged
    before.
    """
    return {"first": str(await node.timestamps(body.count, body.above)), "count": body.count}


@SNAPSHOTS.on("POST", "/v1/snapshots", READ_CLUSTER, _SNAPSHOT, 410, 429, ok=201)
async def open_snapshot(node: Node, me: Me, body: OpenSnapshot) -> Plain:
    """Hold a snapshot

    Nothing that a read with `at` = its `at` sees is collected until it is released or nobody sends
    a heartbeat for `ttl_ms`. 410 `SNAPSHOT_TOO_OLD`: `at` lies below the safepoint.
    """
    owner = checked_owner(body.owner or "")
    user = "" if me == LOOPBACK else me.name
    return (await node.open_snapshot(body.at, owner, body.ttl_ms, user)).to_plain()


@SNAPSHOTS.on("GET", "/v1/snapshots", READ_CLUSTER, items_of(_SNAPSHOT))
async def list_snapshots(node: Node) -> Plain:
    """List snapshots

    Oldest first. `left_ms`: how long it lives without another heartbeat.
    """
    return {"items": [one.to_plain() for one in await node.snapshots()]}


@SNAPSHOTS.on("POST", "/v1/snapshots/{id}/heartbeat", READ_CLUSTER, OBJECT, 404)
async def keep_snapshot(node: Node, asked: Asked, id: Id, body: Nothing) -> Plain:
    """Keep a snapshot

    Another user's needs `operate` on the cluster. 404 `SNAPSHOT_NOT_FOUND`: it has ended.
    """
    await node.renew_snapshot(id, _whose(asked))
    return {"id": str(id)}


@SNAPSHOTS.on("DELETE", "/v1/snapshots/{id}", READ_CLUSTER, _RELEASED)
async def release_snapshot(node: Node, asked: Asked, id: Id) -> Plain:
    """Release a snapshot

    Another user's needs `operate` on the cluster; `held`: whether it was there.
    """
    return {"id": str(id), "held": await node.release_snapshot(id, _whose(asked))}


def _whose(asked: Request) -> str:
    """Whose snapshots it may be about; empty: anybody's."""
    if asked.may is None or asked.identity == LOOPBACK:
        return ""
    try:
        asked.may(frozenset({Action.OPERATE}), CLUSTER)
    except Forbidden:
        return asked.identity.name
    return ""


@LOCKS.on("POST", "/v1/locks/{id}/heartbeat", _HOLD, _LOCK, 404, 409)
async def keep_lock(node: Node, id: Id, body: Heartbeat) -> Plain:
    """Keep a lock, or wait for it

    Take it by `POST /v1/procedures/kvorum.lock` with `{"resource", "exclusive", "ttl_ms"}` and an
    `Idempotency-Key`; its `id` is the lock's. `state` `held`: until it is released or nobody sends
    a heartbeat for `ttl_ms`; `token` is its fencing token. `waiting`: others have it; `ended`: it
    is lost. 404 `PROCEDURE_NOT_FOUND`: it ended some time ago.
    """
    state, token = await node.beat_lock(id, body.wait_ms)
    return {"id": str(id), "state": state, "token": str(token)}


@LOCKS.on("DELETE", "/v1/locks/{id}", _HOLD, object_of(id=TS), 404, 409)
async def release_lock(node: Node, id: Id) -> Plain:
    """Release a lock

    Or wait for it no more; fine for one that has ended.
    """
    await node.end_lock(id)
    return {"id": str(id)}

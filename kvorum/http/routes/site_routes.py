"""Links to other clusters: made, looked at, ended, and who writes to their tables."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import Field

from kv.base.limits import SCAN_ROWS_MAX, SITE_TABLES_MAX
from kv.base.rights import LOOPBACK
from kvorum.api import site_links
from kvorum.http.routes.declaring import As, Body, Me, Node, Plain, Routes, Text, digits, submitter
from kvorum.http.routes.rights import OPERATE_CLUSTER, READ_CLUSTER
from kvorum.http.routes.route import OBJECT, TS, items_of, object_of
from kvorum.http.wire.fields import Schema, one_of

ROUTES: Final = Routes("sites")

_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": ["string", "null"]}
_TABLE: Final = object_of(table={"type": "array", "items": _TEXT}, rule=_TEXT)
_LINK: Final = object_of(
    site=_TEXT,
    cluster=_TEXT,
    role=_TEXT,
    tables={"type": "array", "items": _TABLE},
    procedure=TS,
    does=_TEXT,
)
_SIDE: Final = object_of(version=TS, value=_TEXTS)
_CONFLICT: Final = object_of(
    cluster=_TEXT, table=_TEXT, key=_TEXT, kept=_TEXT, here=_SIDE, there=_SIDE
)
_STARTED: Final = object_of(id=TS)


class Link(Body):
    site: Text = Field(description="Its name in the nodes' file of sites.")
    tables: list[Any] = Field(
        max_length=SITE_TABLES_MAX,
        description="What is taken over: `[{table: [namespace, name], rule, procedure}]`; `rule` "
        "of keys that both wrote: last (if left out), counter, set, procedure (and its name).",
    )


class Role(Body):
    role: Annotated[str, As(one_of(*site_links.ROLES))] = Field(
        description="active: its clients write; standby: the link alone does."
    )


@ROUTES.on("POST", "/v1/sites", OPERATE_CLUSTER, _STARTED, ok=202)
async def add_link(node: Node, me: Me, body: Link) -> Plain:
    """Take over what another cluster commits

    To these tables, by a procedure that lives as long as the link. The same at the other cluster
    makes it go both ways.
    """
    return await _started(node, me, site_links.SITE_LINK, body.given())


@ROUTES.on("GET", "/v1/sites", READ_CLUSTER, items_of(_LINK))
async def list_links(node: Node) -> Plain:
    """List links to other clusters

    `does`: what the link is at, or why it cannot go on.
    """
    return {"items": await site_links.links(node)}


@ROUTES.on("DELETE", "/v1/sites/{site}", OPERATE_CLUSTER, OBJECT, 404, ok=202)
async def remove_link(
    node: Node,
    me: Me,
    site: str,
    reason: Annotated[str, Query(description="Why: kept in the audit.")] = "the link is removed",
) -> object:
    """End a link to another cluster

    Nothing more is taken over; rows stay, and its tables are writable. 404 `SITE_NOT_FOUND`.
    """
    id = await site_links.procedure_of(node, site)
    actor = "http" if me.credential == LOOPBACK.credential else me.name
    return await node.control("abort", {"id": id, "reason": reason, "actor": actor})


@ROUTES.on("POST", "/v1/sites/{site}/role", OPERATE_CLUSTER, _STARTED, ok=202)
async def switch_role(node: Node, me: Me, site: str, body: Role) -> Plain:
    """Fail over, or stand by

    By a procedure: a stand-by refuses writes with 409 `SITE_STANDBY` once it has ended.
    """
    return await _started(node, me, site_links.SITE_ROLE, {"site": site, "role": body.role})


@ROUTES.on("GET", "/v1/sites/conflicts", OPERATE_CLUSTER, items_of(_CONFLICT))
async def list_conflicts(
    node: Node,
    limit: Annotated[int, digits(1, SCAN_ROWS_MAX), Query(description="So many at most.")] = 100,
) -> Plain:
    """List conflicts between clusters

    The latest keys that both wrote, neither knowing of it: what was `kept` (`here`, `there`,
    `both`), and both sides.
    """
    return {"items": await site_links.conflicts(node, limit)}


async def _started(node: Node, me: Me, name: str, args: object) -> Plain:
    return {"id": str(await node.submit(name, args, None, submitter(me) or None))}

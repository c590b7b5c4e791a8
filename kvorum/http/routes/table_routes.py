"""Namespaces and tables."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from kv.base import limits
from kv.base.errors import NotFound
from kv.base.placement import LEADERS_RULE, SURVIVE_RULE
from kv.base.rights import Action, Kind
from kv.base.shards import SHARD_RULE
from kvorum.api.model import Column, TableInfo, TableSpec
from kvorum.http.routes.declaring import (
    As,
    Body,
    BoolOrNone,
    Data,
    Node,
    Plain,
    Routes,
    Text,
)
from kvorum.http.routes.rights import READ_CLUSTER, TABLE, Right
from kvorum.http.routes.route import items_of, object_of
from kvorum.http.wire.fields import Schema, integer

ROUTES: Final = Routes("tables")

_STATE: Final[Schema] = {"type": "string", "enum": ["public", "disabled"]}
_TEXTS: Final[Schema] = {"type": "array", "items": {"type": "string"}}
_NUMBER_OR_NULL: Final[Schema] = {"type": ["integer", "null"]}
_COLUMN: Final = object_of(
    name={"type": "string"}, type={"type": "string"}, nullable={"type": "boolean"}
)
_TABLE: Final = object_of(
    namespace={"type": "string"},
    name={"type": "string"},
    id={"type": "integer"},
    columns={"type": "array", "items": _COLUMN},
    primary_key=_TEXTS,
    replicas=_NUMBER_OR_NULL,
    tags=_TEXTS,
    state=_STATE,
    partition_bytes=_NUMBER_OR_NULL,
    shard={"type": "string"},
    survive={"type": "string"},
    leaders={"type": "string"},
)
_NAMESPACE: Final = object_of(
    name={"type": "string"},
    replicas=_NUMBER_OR_NULL,
    tags=_TEXTS,
    state=_STATE,
    shard={"type": "string"},
    survive={"type": "string"},
    leaders={"type": "string"},
)
_NAME: Final = object_of(name={"type": "string"})
_DROPPED: Final = object_of(namespace={"type": "string"}, name={"type": "string"})
_DEFINE_NEW: Final = Right(Action.DEFINE, Kind.NAMESPACE, "<name>")
_READ_IN: Final = Right(Action.READ, Kind.NAMESPACE, "{ns}")
_DEFINE_IN: Final = Right(Action.DEFINE, Kind.NAMESPACE, "{ns}")
_DEFINE: Final = Right(Action.DEFINE, Kind.TABLE, TABLE)

_PARTITION_BYTES: Final = "Bytes of keys and newest values above which a partition is split"
_TABLES_TAGS: Final = "Tags that nodes must carry to hold replicas of its tables."
_OWN_TAGS: Final = "Tags that nodes must carry to hold replicas."
_SURVIVE: Final = "What may be lost without stopping anything"
_LEADERS: Final = "Labels of the nodes that should lead"
_REPLICAS: Final = "Copies of each partition of its tables that do not say otherwise"
Replicas = Annotated[int | None, As(integer(1, limits.REPLICAS_MAX))]
ReplicasOrNone = Annotated[int | None, As(integer(0, limits.REPLICAS_MAX))]
Tags = Annotated[list[Text], Field(max_length=limits.TAGS_MAX)]


class NewNamespace(Body):
    name: Text = Field(description="Name of the namespace.")
    replicas: Replicas = Field(None, description=f"{_REPLICAS}.")
    tags: Tags = Field([], description=_TABLES_TAGS)
    shard: Text = Field("", description=f"Storage shard of its tables: {SHARD_RULE}.")
    survive: Text = Field("", description=f"{_SURVIVE} of its tables: {SURVIVE_RULE}.")
    leaders: Text = Field("", description=f"{_LEADERS} them: {LEADERS_RULE}.")


class NamespaceChange(Body):
    replicas: ReplicasOrNone = Field(None, description=f"{_REPLICAS}; 0: one at every node.")
    tags: Tags = Field([], description=_TABLES_TAGS)
    shard: Text = Field("", description="Storage shard of its tables; empty: the default one.")
    survive: Text = Field("", description=f"{_SURVIVE} of its tables; empty: nothing.")
    leaders: Text = Field("", description=f"{_LEADERS} them; empty: any.")


class NewColumn(Body):
    name: Text = Field(description="Name of the column.")
    type: Text = Field(description="SQL type, such as bigint, text, double precision, timestamp.")
    nullable: BoolOrNone = Field(True, description="May hold nulls; true if left out.")


Columns = Annotated[list[NewColumn], Field(max_length=limits.COLUMNS_MAX)]


class NewTable(Body):
    name: Text = Field(description="Name of the table.")
    replicas: Replicas = Field(None, description="Copies of each partition.")
    tags: Tags = Field([], description=_OWN_TAGS)
    split_keys: Annotated[list[Data], Field(max_length=limits.SPLIT_KEYS_MAX)] = Field(
        [], description="Keys that cut the table into partitions, rising."
    )
    partition_bytes: Annotated[
        int | None, As(integer(limits.PARTITION_BYTES_MAX_MIN, limits.PARTITION_BYTES_MAX_MAX))
    ] = Field(None, description=f"{_PARTITION_BYTES}; the cluster's setting if left out.")
    shard: Text = Field("", description=f"Storage shard, else its namespace's: {SHARD_RULE}.")
    survive: Text = Field("", description=f"{_SURVIVE}, else its namespace's: {SURVIVE_RULE}.")
    leaders: Text = Field("", description=f"{_LEADERS} it: {LEADERS_RULE}.")
    columns: Columns = Field([], description="Columns of a SQL table.")
    primary_key: Annotated[list[Text], Field(max_length=limits.COLUMNS_MAX)] = Field(
        [], description="Columns of the primary key."
    )


class TableChange(Body):
    replicas: ReplicasOrNone = Field(
        None,
        description="Copies of each partition from now on; 0: as its namespace says, else at every "
        "node.",
    )
    partition_bytes: Annotated[int | None, As(integer(0, limits.PARTITION_BYTES_MAX_MAX))] = Field(
        None, description=f"{_PARTITION_BYTES}; 0: the cluster's setting."
    )
    tags: Tags = Field([], description=_OWN_TAGS)
    shard: Text = Field("", description="Storage shard; empty: its namespace's. Rows follow.")
    survive: Text = Field("", description=f"{_SURVIVE}; empty: its namespace's.")
    leaders: Text = Field("", description=f"{_LEADERS} it; empty: its namespace's.")
    add_columns: Columns = Field(
        [],
        description="New columns of a SQL table, after those that there are; they must be "
        "nullable.",
    )


@ROUTES.on("GET", "/v1/namespaces", READ_CLUSTER, items_of(_NAMESPACE))
async def list_namespaces(node: Node) -> Plain:
    """List namespaces

    By name.
    """
    return {"items": [one.to_plain() for one in await node.namespaces()]}


@ROUTES.on("POST", "/v1/namespaces", _DEFINE_NEW, _NAME, 409, ok=201)
async def create_namespace(node: Node, body: NewNamespace) -> Plain:
    """Create a namespace

    `replicas` and `tags` are its tables': a table may want another number of replicas, and more
    tags.
    """
    change = body.given()
    name = change.pop("name")
    await node.create_namespace(name, change)
    return {"name": name}


@ROUTES.on("GET", "/v1/namespaces/{ns}", _READ_IN, _NAMESPACE, 404)
async def look_at_namespace(node: Node, ns: str) -> Plain:
    """Look at a namespace"""
    for one in await node.namespaces():
        if one.name == ns:
            return one.to_plain()
    raise NotFound(
        f"there is no namespace {ns!r:.80}",
        code="NAMESPACE_NOT_FOUND",
        details={"namespace": ns[: limits.NAME_CHARS_MAX]},
    )


@ROUTES.on("PATCH", "/v1/namespaces/{ns}", _DEFINE_IN, _NAMESPACE, 404, 409)
async def modify_namespace(node: Node, ns: str, body: NamespaceChange) -> Plain:
    """Modify a namespace

    What is left out stays. In one transaction with what it means for its tables; their replicas
    follow by themselves.
    """
    return (await node.alter_namespace(ns, "modify", _placed(body.given()))).to_plain()


@ROUTES.on("POST", "/v1/namespaces/{ns}/disable", _DEFINE_IN, _NAMESPACE, 404, 409)
async def disable_namespace(node: Node, ns: str) -> Plain:
    """Disable a namespace

    All its tables (see there). No table is made or enabled in it then: 409 `NAMESPACE_DISABLED`.
    """
    return (await node.alter_namespace(ns, "disable", {})).to_plain()


@ROUTES.on("POST", "/v1/namespaces/{ns}/enable", _DEFINE_IN, _NAMESPACE, 404, 409)
async def enable_namespace(node: Node, ns: str) -> Plain:
    """Enable a namespace

    With all its tables.
    """
    return (await node.alter_namespace(ns, "enable", {})).to_plain()


@ROUTES.on("DELETE", "/v1/namespaces/{ns}", _DEFINE_IN, _NAME, 404, 409)
async def drop_namespace(node: Node, ns: str) -> Plain:
    """Drop a namespace

    It must have no tables.
    """
    await node.drop_namespace(ns)
    return {"name": ns}


@ROUTES.on("GET", "/v1/namespaces/{ns}/tables", _READ_IN, items_of(_TABLE), 404)
async def list_tables(node: Node, ns: str) -> Plain:
    """List tables

    By name.
    """
    return {"items": [_shown(table) for table in await node.tables(ns)]}


@ROUTES.on("POST", "/v1/namespaces/{ns}/tables", _DEFINE_IN, _TABLE, 404, 409, ok=201)
async def create_table(node: Node, ns: str, body: NewTable) -> Plain:
    """Create a table

    Without `columns` it is a plain key-value table. Waits until the table can be used.
    """
    spec = TableSpec(
        replicas=body.replicas,
        tags=tuple(body.tags),
        split_keys=tuple(body.split_keys),
        columns=tuple(Column(c.name, c.type, c.nullable is not False) for c in body.columns),
        primary_key=tuple(body.primary_key),
        partition_bytes=body.partition_bytes,
        shard=body.shard,
        survive=body.survive,
        leaders=body.leaders,
    )
    return _shown(await node.create_table(ns, body.name, spec))


@ROUTES.on("PATCH", "/v1/namespaces/{ns}/tables/{table}", _DEFINE, _TABLE, 404, 409)
async def modify_table(node: Node, ns: str, table: str, body: TableChange) -> Plain:
    """Modify a table

    What is left out stays. All of it or, if it is refused, nothing; replicas follow by themselves.
    """
    return _shown(await node.alter_table(ns, table, "modify", _placed(body.given())))


@ROUTES.on("POST", "/v1/namespaces/{ns}/tables/{table}/disable", _DEFINE, _TABLE, 404, 409)
async def disable_table(node: Node, ns: str, table: str) -> Plain:
    """Disable a table

    Its rows are kept; whoever reads or writes it by its name is refused (TABLE_DISABLED) once this
    has answered, which takes some seconds. It may be dropped or enabled.
    """
    return _shown(await node.alter_table(ns, table, "disable", {}))


@ROUTES.on("POST", "/v1/namespaces/{ns}/tables/{table}/enable", _DEFINE, _TABLE, 404, 409)
async def enable_table(node: Node, ns: str, table: str) -> Plain:
    """Enable a table

    Fine for one that is enabled.
    """
    return _shown(await node.alter_table(ns, table, "enable", {}))


@ROUTES.on("DELETE", "/v1/namespaces/{ns}/tables/{table}", _DEFINE, _DROPPED, 404)
async def drop_table(node: Node, ns: str, table: str) -> Plain:
    """Drop a table

    With all its records.
    """
    await node.drop_table(ns, table)
    return {"namespace": ns, "name": table}


def _placed(change: Plain) -> Plain:
    """With `replicas` as procedures take it."""
    return {**change, "replicas": change["replicas"] or None} if "replicas" in change else change


def _shown(table: TableInfo) -> Plain:
    return {
        "namespace": table.namespace,
        "name": table.name,
        "id": table.id,
        "columns": [column.to_plain() for column in table.columns],
        "primary_key": list(table.primary_key),
        "replicas": table.replicas,
        "tags": list(table.tags),
        "state": table.state,
        "partition_bytes": table.partition_bytes,
        "shard": table.shard,
        "survive": table.survive,
        "leaders": table.leaders,
    }

"""Namespaces and tables over HTTP."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from kv.base.errors import NotFound
from kv.base.limits import NAME_CHARS_MAX
from kvorum.api.backend import Backend
from kvorum.api.model import Column, TableInfo, TableSpec
from kvorum.http.routes.handlers import Handlers
from kvorum.http.wire import fields
from kvorum.http.wire import request as http
from kvorum.http.wire.codec import Query, Reply, reply


class TableApi:
    """The handlers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> Handlers:
        """Method, path and handler of each."""
        return (
            ("GET", "/v1/namespaces", self._namespaces),
            ("POST", "/v1/namespaces", self._create_namespace),
            ("GET", "/v1/namespaces/{ns}", self._namespace),
            ("PATCH", "/v1/namespaces/{ns}", self._modify_namespace),
            ("POST", "/v1/namespaces/{ns}/disable", self._disable_namespace),
            ("POST", "/v1/namespaces/{ns}/enable", self._enable_namespace),
            ("DELETE", "/v1/namespaces/{ns}", self._drop_namespace),
            ("GET", "/v1/namespaces/{ns}/tables", self._tables),
            ("POST", "/v1/namespaces/{ns}/tables", self._create_table),
            ("PATCH", "/v1/namespaces/{ns}/tables/{table}", self._modify_table),
            ("POST", "/v1/namespaces/{ns}/tables/{table}/disable", self._disable_table),
            ("POST", "/v1/namespaces/{ns}/tables/{table}/enable", self._enable_table),
            ("DELETE", "/v1/namespaces/{ns}/tables/{table}", self._drop_table),
        )

    async def _namespaces(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        found = await self._backend.namespaces()
        return reply({"items": [one.to_plain() for one in found]}, raw.formats.reply)

    async def _namespace(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        name = request.path_params["ns"]
        for one in await self._backend.namespaces():
            if one.name == name:
                return reply(one.to_plain(), raw.formats.reply)
        raise NotFound(
            f"there is no namespace {name!r:.80}",
            code="NAMESPACE_NOT_FOUND",
            details={"namespace": name[:NAME_CHARS_MAX]},
        )

    async def _modify_namespace(self, raw: http.Request, request: Request) -> Reply:
        change = await raw.fields(fields.MODIFY_NAMESPACE)
        return await self._switched(raw, request, "modify", _placed(change))

    async def _disable_namespace(self, raw: http.Request, request: Request) -> Reply:
        return await self._switched(raw, request, "disable", {})

    async def _enable_namespace(self, raw: http.Request, request: Request) -> Reply:
        return await self._switched(raw, request, "enable", {})

    async def _switched(
        self, raw: http.Request, request: Request, what: str, change: dict[str, Any]
    ) -> Reply:
        Query(raw.query_string).done()
        altered = await self._backend.alter_namespace(request.path_params["ns"], what, change)
        return reply(altered.to_plain(), raw.formats.reply)

    async def _create_namespace(self, raw: http.Request, request: Request) -> Reply:
        change = await raw.fields(fields.NAMESPACE)
        name = change.pop("name")
        await self._backend.create_namespace(name, change)
        return reply({"name": name}, raw.formats.reply, 201)

    async def _drop_namespace(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        await self._backend.drop_namespace(request.path_params["ns"])
        return reply({"name": request.path_params["ns"]}, raw.formats.reply)

    async def _tables(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        tables = await self._backend.tables(request.path_params["ns"])
        return reply({"items": [show_table(t) for t in tables]}, raw.formats.reply)

    async def _create_table(self, raw: http.Request, request: Request) -> Reply:
        body = await raw.fields(fields.NEW_TABLE)
        columns = tuple(
            Column(c["name"], c["type"], c.get("nullable", True)) for c in body.get("columns", ())
        )
        spec = TableSpec(
            replicas=body.get("replicas"),
            tags=tuple(body.get("tags", ())),
            split_keys=tuple(body.get("split_keys", ())),
            columns=columns,
            primary_key=tuple(body.get("primary_key", ())),
            partition_bytes=body.get("partition_bytes"),
        )
        table = await self._backend.create_table(request.path_params["ns"], body["name"], spec)
        return reply(show_table(table), raw.formats.reply, 201)

    async def _modify_table(self, raw: http.Request, request: Request) -> Reply:
        change = await raw.fields(fields.MODIFY_TABLE)
        return await self._altered(raw, request, "modify", _placed(change))

    async def _disable_table(self, raw: http.Request, request: Request) -> Reply:
        return await self._altered(raw, request, "disable", {})

    async def _enable_table(self, raw: http.Request, request: Request) -> Reply:
        return await self._altered(raw, request, "enable", {})

    async def _altered(
        self, raw: http.Request, request: Request, what: str, change: dict[str, Any]
    ) -> Reply:
        Query(raw.query_string).done()
        ns, table = request.path_params["ns"], request.path_params["table"]
        altered = await self._backend.alter_table(ns, table, what, change)
        return reply(show_table(altered), raw.formats.reply)

    async def _drop_table(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        ns, table = request.path_params["ns"], request.path_params["table"]
        await self._backend.drop_table(ns, table)
        return reply({"namespace": ns, "name": table}, raw.formats.reply)


def _placed(change: dict[str, Any]) -> dict[str, Any]:
    """With `replicas` as procedures take it."""
    return {**change, "replicas": change["replicas"] or None} if "replicas" in change else change


def show_table(table: TableInfo) -> dict[str, Any]:
    """A table as JSON has it."""
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
    }

"""The cluster over HTTP: its settings, nodes, partitions, and who waits for whom."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from kvorum.api.backend import Backend
from kvorum.http.routes.handlers import Handlers, number
from kvorum.http.wire import fields
from kvorum.http.wire import request as http
from kvorum.http.wire.codec import Query, Reply, plain, reply


class ClusterApi:
    """The handlers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> Handlers:
        """Method, path and handler of each."""
        return (
            ("GET", "/v1/cluster", self._cluster),
            ("POST", "/v1/cluster", self._set_settings),
            ("GET", "/v1/nodes", self._nodes),
            ("GET", "/v1/partitions", self._partitions),
            ("POST", "/v1/partitions/{id}/split", self._split),
            ("POST", "/v1/partitions/{id}/merge", self._merge),
            ("POST", "/v1/partitions/{id}/move", self._move),
            ("POST", "/v1/partitions/{id}/transfer", self._transfer),
            ("GET", "/v1/locks", self._locks),
        )

    async def _cluster(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        return reply(await self._backend.cluster(), raw.formats.reply)

    async def _set_settings(self, raw: http.Request, request: Request) -> Reply:
        values = (await raw.fields(fields.SETTINGS))["settings"]
        told = await self._backend.set_settings(values)
        return reply({"settings": told}, raw.formats.reply)

    async def _nodes(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        packed = raw.formats.reply
        return reply({"items": plain(await self._backend.nodes(), packed)}, packed)

    async def _partitions(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        packed = raw.formats.reply
        return reply({"items": plain(await self._backend.partitions(), packed)}, packed)

    async def _move(self, raw: http.Request, request: Request) -> Reply:
        args = {"partition": number(request, "partition"), **await raw.fields(fields.MOVE)}
        return await self._started(raw, "kvorum.move_replica", args)

    async def _transfer(self, raw: http.Request, request: Request) -> Reply:
        args = {"partition": number(request, "partition"), **await raw.fields(fields.TRANSFER)}
        return await self._started(raw, "kvorum.transfer_leader", args)

    async def _split(self, raw: http.Request, request: Request) -> Reply:
        args: dict[str, Any] = {"partition": number(request, "partition")}
        if (key := (await raw.fields(fields.SPLIT)).get("key")) is not None:
            args["at"] = key
        return await self._started(raw, "kvorum.split_partition", args)

    async def _merge(self, raw: http.Request, request: Request) -> Reply:
        right = (await raw.fields(fields.MERGE))["with"]
        args = {"left": number(request, "partition"), "right": right}
        return await self._started(raw, "kvorum.merge_partitions", args)

    async def _started(self, raw: http.Request, name: str, args: dict[str, Any]) -> Reply:
        procedure = await self._backend.submit(name, args, None)
        return reply({"id": str(procedure)}, raw.formats.reply, 202)

    async def _locks(self, raw: http.Request, request: Request) -> Reply:
        query = Query(raw.query_string)
        every = query.flag("all")
        query.done()
        return reply(plain(await self._backend.locks(every), raw.formats.reply), raw.formats.reply)

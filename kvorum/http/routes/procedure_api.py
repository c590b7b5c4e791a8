"""Procedures over HTTP: started, told things, looked at, operated on."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from kv.base.limits import (
    HTTP_BODY_BYTES_MAX,
    NONCE_CHARS_MAX,
    PROCEDURE_PAGE_MAX,
    PROCEDURE_PRIORITY_MAX,
    PROCEDURE_TIMEOUT_MS_MAX,
    WAIT_MS_MAX,
)
from kvorum.api.backend import Backend
from kvorum.api.model import ProcedureInfo
from kvorum.http.routes.handlers import Handlers, number
from kvorum.http.wire import fields
from kvorum.http.wire import request as http
from kvorum.http.wire.codec import Query, Reply, decode, plain, reply


class ProcedureApi:
    """The handlers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> Handlers:
        """Method, path and handler of each."""
        return (
            ("GET", "/v1/procedures", self._procedures),
            ("GET", "/v1/procedures/{id}", self._procedure),
            ("POST", "/v1/procedures/{name}", self._submit),
            ("POST", "/v1/procedures/{id}/abort", self._abort),
            ("POST", "/v1/procedures/{id}/bypass", self._bypass),
            ("POST", "/v1/procedures/{id}/retry", self._retry),
            ("GET", "/v1/procedures/{id}/explain", self._explain),
            ("POST", "/v1/locks/steal", self._steal),
            ("GET", "/v1/audit", self._audit),
            ("POST", "/v1/procedures/{id}/signals", self._signal),
            ("POST", "/v1/completions", self._complete),
            ("GET", "/v1/schedules", self._schedules),
            ("POST", "/v1/schedules", self._set_schedule),
            ("DELETE", "/v1/schedules/{name}", self._remove_schedule),
            ("GET", "/v1/queues", self._queues),
            ("POST", "/v1/queues", self._set_queue),
            ("GET", "/v1/workers", self._workers),
        )

    async def _control(self, raw: http.Request, what: str, args: dict[str, Any]) -> Reply:
        told = await self._backend.control(what, args)
        if what.endswith(".list"):
            told = {"items": told}
        return reply(plain(told, raw.formats.reply), raw.formats.reply)

    async def _signal(self, raw: http.Request, request: Request) -> Reply:
        body = await raw.fields(fields.SIGNAL)
        return await self._control(raw, "signal", {**body, "id": number(request, "procedure")})

    async def _complete(self, raw: http.Request, request: Request) -> Reply:
        return await self._control(raw, "complete", await raw.fields(fields.COMPLETION))

    async def _schedules(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        return await self._control(raw, "schedule.list", {})

    async def _set_schedule(self, raw: http.Request, request: Request) -> Reply:
        return await self._control(raw, "schedule.set", await raw.fields(fields.SCHEDULE))

    async def _remove_schedule(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        return await self._control(raw, "schedule.remove", {"name": request.path_params["name"]})

    async def _queues(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        return await self._control(raw, "queue.list", {})

    async def _set_queue(self, raw: http.Request, request: Request) -> Reply:
        return await self._control(raw, "queue.set", await raw.fields(fields.QUEUE))

    async def _submit(self, raw: http.Request, request: Request) -> Reply:
        query = Query(raw.query_string)
        most = PROCEDURE_TIMEOUT_MS_MAX
        high = PROCEDURE_PRIORITY_MAX
        options = {
            "queue": query.text("queue"),
            "pool": query.text("pool"),
            "delay_ms": query.integer("delay_ms", 0, most),
            "at_ms": query.integer("at_ms", 0, 1 << 53),
            "priority": query.integer("priority", -high, high),
        }
        query.done()
        options = {name: value for name, value in options.items() if value is not None}
        nonce = request.headers.get("idempotency-key")
        if nonce is not None and not 0 < len(nonce) <= NONCE_CHARS_MAX:
            raise fields.wrong("Idempotency-Key", f"1 to {NONCE_CHARS_MAX} characters", nonce)
        body = await raw.body(HTTP_BODY_BYTES_MAX)
        args = decode(body, raw.formats.body) if body else None
        name = request.path_params["name"]
        procedure = await self._backend.submit(name, args, nonce, options or None)
        return reply({"id": str(procedure)}, raw.formats.reply, 202)

    async def _procedure(self, raw: http.Request, request: Request) -> Reply:
        procedure = number(request, "procedure")
        query = Query(raw.query_string)
        wait_ms = query.integer("wait_ms", 0, WAIT_MS_MAX) or 0
        query.done()
        info = await self._backend.procedure(procedure, wait_ms)
        return reply(show_procedure(info, raw.formats.reply), raw.formats.reply)

    async def _procedures(self, raw: http.Request, request: Request) -> Reply:
        query = Query(raw.query_string)
        wanted = {name: query.text(name) for name in ("state", "owner", "name")}
        query.done()
        found = await self._backend.procedures(**wanted)
        packed = raw.formats.reply
        return reply({"items": [show_procedure(p, packed) for p in found]}, packed)

    async def _abort(self, raw: http.Request, request: Request) -> Reply:
        return await self._operate(raw, request, "abort", fields.ABORT)

    async def _bypass(self, raw: http.Request, request: Request) -> Reply:
        return await self._operate(raw, request, "bypass", fields.BYPASS)

    async def _retry(self, raw: http.Request, request: Request) -> Reply:
        return await self._operate(raw, request, "retry", fields.RETRY)

    async def _operate(
        self, raw: http.Request, request: Request, what: str, wanted: fields.Fields
    ) -> Reply:
        body = {"actor": "http", **await raw.fields(wanted), "id": number(request, "procedure")}
        told = await self._backend.control(what, body)
        return reply(plain(told, raw.formats.reply), raw.formats.reply, 202)

    async def _steal(self, raw: http.Request, request: Request) -> Reply:
        return await self._control(
            raw, "steal", {"actor": "http", **await raw.fields(fields.STEAL)}
        )

    async def _explain(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        return await self._control(raw, "explain", {"id": number(request, "procedure")})

    async def _audit(self, raw: http.Request, request: Request) -> Reply:
        query = Query(raw.query_string)
        told = {
            "id": query.text("id"),
            "limit": query.integer("limit", 1, PROCEDURE_PAGE_MAX),
            "before": query.integer("before", 1, 1 << 53),
        }
        query.done()
        return await self._control(raw, "audit.list", told)

    async def _workers(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        return reply({"items": await self._backend.workers()}, raw.formats.reply)


def show_procedure(info: ProcedureInfo, packed: bool) -> dict[str, Any]:
    """A procedure as docs/reference/http.md has it: `result` and `error` only when there is one."""
    shown: dict[str, Any] = {
        **plain(info.extra, packed),
        "id": str(info.id),
        "name": info.name,
        "state": info.state,
        "step": info.step,
        "locks": plain(info.locks, packed),
    }
    if info.steps is not None:
        shown["steps"] = plain(info.steps, packed)
    if info.state == "SUCCESS":
        shown["result"] = plain(info.result, packed)
    if info.error is not None:
        shown["error"] = plain(info.error, packed)
    return shown

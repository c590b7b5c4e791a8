"""The other routes, by FastAPI: namespaces, tables, timestamps, procedures, nodes, health, metrics
and /docs.

Bodies are read by the same codec and field tables as the hot routes', so that JSON, msgpack and
errors are alike everywhere; FastAPI routes, and its schema is the one of kvorum.http.routes.
Imported only when HTTP is switched on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from kv.base.errors import KvorumError, Unavailable
from kv.base.limits import (
    HTTP_BODY_BYTES_MAX,
    LEASE_TTL_MS_DEFAULT,
    NONCE_CHARS_MAX,
    PROCEDURE_PAGE_MAX,
    PROCEDURE_PRIORITY_MAX,
    PROCEDURE_TIMEOUT_MS_MAX,
    WAIT_MS_MAX,
)
from kvorum import logs
from kvorum.backend import Backend
from kvorum.http import fields
from kvorum.http import request as http
from kvorum.http.codec import Query, Reply, decode, plain, refusal, reply
from kvorum.http.metrics import CONTENT_TYPE, Metrics
from kvorum.http.page import docs_page
from kvorum.http.routes import openapi
from kvorum.model import Column, ProcedureInfo, TableInfo, TableSpec
from kvorum.snapshots import checked_owner


class Health(NamedTuple):
    """What the node says of itself: why it is not ready, or None."""

    not_ready: Callable[[], str | None]


Handler = Callable[[http.Request, Request], Awaitable[Reply]]


class ColdApi:
    """The handlers; `application` mounts them."""

    def __init__(
        self,
        backend: Backend,
        metrics: Metrics,
        health: Health,
        version: str,
        monotonic: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._monotonic = monotonic
        self._metrics = metrics
        self._health = health
        self._schema = openapi(version)

    def application(self) -> FastAPI:
        """The FastAPI application."""
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
        for method, path, handler in (
            ("GET", "/v1/namespaces", self._namespaces),
            ("POST", "/v1/namespaces", self._create_namespace),
            ("DELETE", "/v1/namespaces/{ns}", self._drop_namespace),
            ("GET", "/v1/namespaces/{ns}/tables", self._tables),
            ("POST", "/v1/namespaces/{ns}/tables", self._create_table),
            ("PATCH", "/v1/namespaces/{ns}/tables/{table}", self._modify_table),
            ("POST", "/v1/namespaces/{ns}/tables/{table}/disable", self._disable_table),
            ("POST", "/v1/namespaces/{ns}/tables/{table}/enable", self._enable_table),
            ("DELETE", "/v1/namespaces/{ns}/tables/{table}", self._drop_table),
            ("POST", "/v1/tso", self._tso),
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
            ("POST", "/v1/locks/{id}/heartbeat", self._beat_lock),
            ("DELETE", "/v1/locks/{id}", self._end_lock),
            ("GET", "/v1/snapshots", self._snapshots),
            ("POST", "/v1/snapshots", self._open_snapshot),
            ("POST", "/v1/snapshots/{id}/heartbeat", self._renew_snapshot),
            ("DELETE", "/v1/snapshots/{id}", self._release_snapshot),
            ("GET", "/v1/workers", self._workers),
            ("GET", "/v1/nodes", self._nodes),
            ("GET", "/v1/partitions", self._partitions),
            ("POST", "/v1/partitions/{id}/split", self._split),
            ("POST", "/v1/partitions/{id}/merge", self._merge),
            ("POST", "/v1/partitions/{id}/move", self._move),
            ("POST", "/v1/partitions/{id}/transfer", self._transfer),
            ("GET", "/v1/locks", self._locks),
            ("GET", "/healthz", self._healthz),
            ("GET", "/readyz", self._readyz),
            ("GET", "/metrics", self._metrics_page),
            ("GET", "/openapi.json", self._openapi),
            ("GET", "/docs", self._docs),
        ):
            methods = list(http.READING) if method == "GET" else [method]
            app.add_api_route(path, self._endpoint(path, handler), methods=methods)
        app.add_exception_handler(HTTPException, self._http_exception)
        return app

    def _endpoint(self, route: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            raw = http.Request(request.scope, request.receive)
            began = self._monotonic()
            try:
                answer = await handler(raw, request)
            except KvorumError as e:
                answer = refusal(e, raw.formats.reply)
            except http.Disconnected:
                return Response(status_code=499)
            except Exception as e:  # noqa: BLE001 - an application boundary: the node must stay up
                self._metrics.requests.failed(request.url.path, e)
                answer = refusal(http.internal(), raw.formats.reply)
            seconds = self._monotonic() - began
            self._metrics.requests.observe(route, answer.status, seconds)
            if logs.access.isEnabledFor(logging.DEBUG):
                logs.request(raw.method, raw.path, answer.status, seconds)
            return _response(answer)

        return endpoint

    async def _http_exception(self, request: Request, error: Exception) -> Response:
        """404 and 405 of the router, in our shape."""
        assert isinstance(error, HTTPException)
        raw = http.Request(request.scope, request.receive)
        if error.status_code == 405:
            allowed = _methods_of(request)
            return _response(refusal(http.wrong_method(raw.method, allowed), raw.formats.reply))
        return _response(refusal(http.no_such_route(raw.path), raw.formats.reply))

    # ------------------------------------------------------------------- namespaces and tables

    async def _namespaces(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        names = await self._backend.namespaces()
        return reply({"items": [{"name": n} for n in names]}, raw.formats.reply)

    async def _create_namespace(self, raw: http.Request, request: Request) -> Reply:
        name = (await raw.fields(fields.NAMESPACE))["name"]
        await self._backend.create_namespace(name)
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
        )
        table = await self._backend.create_table(request.path_params["ns"], body["name"], spec)
        return reply(show_table(table), raw.formats.reply, 201)

    async def _modify_table(self, raw: http.Request, request: Request) -> Reply:
        change = await raw.fields(fields.MODIFY_TABLE)
        if "replicas" in change:
            change["replicas"] = change["replicas"] or None
        return await self._altered(raw, request, "modify", change)

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

    async def _tso(self, raw: http.Request, request: Request) -> Reply:
        count = (await raw.fields(fields.TSO))["count"]
        first = await self._backend.timestamps(count)
        return reply({"first": str(first), "count": count}, raw.formats.reply)

    # ------------------------------------------------------------------------------- snapshots

    async def _snapshots(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        found = await self._backend.snapshots()
        return reply({"items": [one.to_plain() for one in found]}, raw.formats.reply)

    async def _open_snapshot(self, raw: http.Request, request: Request) -> Reply:
        body = await raw.fields(fields.OPEN_SNAPSHOT)
        snapshot = await self._backend.open_snapshot(
            body.get("at", 0),
            checked_owner(body.get("owner", "")),
            body.get("ttl_ms", LEASE_TTL_MS_DEFAULT),
        )
        return reply(snapshot.to_plain(), raw.formats.reply, 201)

    async def _renew_snapshot(self, raw: http.Request, request: Request) -> Reply:
        await raw.fields(())
        id = _number(request, "snapshot")
        await self._backend.renew_snapshot(id)
        return reply({"id": str(id)}, raw.formats.reply)

    async def _release_snapshot(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        id = _number(request, "snapshot")
        held = await self._backend.release_snapshot(id)
        return reply({"id": str(id), "held": held}, raw.formats.reply)

    # ----------------------------------------------------------------------------------- locks

    async def _beat_lock(self, raw: http.Request, request: Request) -> Reply:
        body = await raw.fields(fields.LOCK_BEAT)
        id = _number(request, "lock")
        state, token = await self._backend.beat_lock(id, body.get("wait_ms", 0))
        told = {"id": str(id), "state": state, "token": str(token)}
        return reply(told, raw.formats.reply)

    async def _end_lock(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        id = _number(request, "lock")
        await self._backend.end_lock(id)
        return reply({"id": str(id)}, raw.formats.reply)

    # ------------------------------------------------------------------------------ procedures

    async def _control(self, raw: http.Request, what: str, args: dict[str, Any]) -> Reply:
        told = await self._backend.control(what, args)
        if what.endswith(".list"):
            told = {"items": told}
        return reply(plain(told, raw.formats.reply), raw.formats.reply)

    async def _signal(self, raw: http.Request, request: Request) -> Reply:
        body = await raw.fields(fields.SIGNAL)
        return await self._control(raw, "signal", {**body, "id": _procedure_id(request)})

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
        procedure = _procedure_id(request)
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
        body = {"actor": "http", **await raw.fields(wanted), "id": _procedure_id(request)}
        told = await self._backend.control(what, body)
        return reply(plain(told, raw.formats.reply), raw.formats.reply, 202)

    async def _steal(self, raw: http.Request, request: Request) -> Reply:
        return await self._control(
            raw, "steal", {"actor": "http", **await raw.fields(fields.STEAL)}
        )

    async def _explain(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        return await self._control(raw, "explain", {"id": _procedure_id(request)})

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

    async def _nodes(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        packed = raw.formats.reply
        return reply({"items": plain(await self._backend.nodes(), packed)}, packed)

    async def _partitions(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        packed = raw.formats.reply
        return reply({"items": plain(await self._backend.partitions(), packed)}, packed)

    async def _move(self, raw: http.Request, request: Request) -> Reply:
        args = {"partition": _number(request, "partition"), **await raw.fields(fields.MOVE)}
        return await self._started(raw, "kvorum.move_replica", args)

    async def _transfer(self, raw: http.Request, request: Request) -> Reply:
        args = {"partition": _number(request, "partition"), **await raw.fields(fields.TRANSFER)}
        return await self._started(raw, "kvorum.transfer_leader", args)

    async def _split(self, raw: http.Request, request: Request) -> Reply:
        args: dict[str, Any] = {"partition": _number(request, "partition")}
        if (key := (await raw.fields(fields.SPLIT)).get("key")) is not None:
            args["at"] = key
        return await self._started(raw, "kvorum.split_partition", args)

    async def _merge(self, raw: http.Request, request: Request) -> Reply:
        right = (await raw.fields(fields.MERGE))["with"]
        args = {"left": _number(request, "partition"), "right": right}
        return await self._started(raw, "kvorum.merge_partitions", args)

    async def _started(self, raw: http.Request, name: str, args: dict[str, Any]) -> Reply:
        procedure = await self._backend.submit(name, args, None)
        return reply({"id": str(procedure)}, raw.formats.reply, 202)

    async def _locks(self, raw: http.Request, request: Request) -> Reply:
        query = Query(raw.query_string)
        every = query.flag("all")
        query.done()
        return reply(plain(await self._backend.locks(every), raw.formats.reply), raw.formats.reply)

    async def _healthz(self, raw: http.Request, request: Request) -> Reply:
        return reply({"status": "ok"}, raw.formats.reply)

    async def _readyz(self, raw: http.Request, request: Request) -> Reply:
        reason = self._health.not_ready()
        if reason is not None:
            raise Unavailable(f"not ready: {reason}")
        return reply({"status": "ready"}, raw.formats.reply)

    async def _metrics_page(self, raw: http.Request, request: Request) -> Reply:
        return Reply(200, self._metrics.text(), CONTENT_TYPE)

    async def _openapi(self, raw: http.Request, request: Request) -> Reply:
        return reply(self._schema, packed=False)

    async def _docs(self, raw: http.Request, request: Request) -> Reply:
        return Reply(200, docs_page(self._schema).encode(), b"text/html; charset=utf-8")


def _response(answer: Reply) -> Response:
    headers = {k.decode(): v.decode() for k, v in answer.headers}
    headers["content-type"] = answer.content_type.decode()
    return Response(answer.body, answer.status, headers)


def _methods_of(request: Request) -> list[str]:
    """All methods of a path; the router itself tells those of the first route that matches."""
    found: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods
    return sorted(found)


def _procedure_id(request: Request) -> int:
    return _number(request, "procedure")


def _number(request: Request, what: str) -> int:
    """The id in the path."""
    found: int = fields.VERSION.convert(request.path_params["id"], f"{what} id")
    return found


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
    }


def show_procedure(info: ProcedureInfo, packed: bool) -> dict[str, Any]:
    """A procedure as DESIGN 12 has it: `result` and `error` only when there is one."""
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

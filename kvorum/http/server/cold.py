"""The other routes, by FastAPI: namespaces and tables (table_api.py), procedures
(procedure_api.py), the cluster (cluster_api.py), and here timestamps, snapshots, locks, health,
metrics, /docs and /console.

Bodies are read by the same codec and field tables as the hot routes', so that JSON, msgpack and
errors are alike everywhere; FastAPI routes, and its schema is routes/openapi.py's.
Imported only when HTTP is switched on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from kv.base.errors import KvorumError, Unavailable
from kv.base.limits import (
    LEASE_TTL_MS_DEFAULT,
)
from kvorum.api.backend import Backend
from kvorum.http import console
from kvorum.http.metrics.metrics import CONTENT_TYPE, Metrics
from kvorum.http.routes.cluster_api import ClusterApi
from kvorum.http.routes.docs_page import docs_page
from kvorum.http.routes.handlers import Handler, number
from kvorum.http.routes.openapi import openapi
from kvorum.http.routes.procedure_api import ProcedureApi
from kvorum.http.routes.table_api import TableApi
from kvorum.http.wire import fields
from kvorum.http.wire import request as http
from kvorum.http.wire.codec import Query, Reply, path_text, refusal, reply
from kvorum.local import logs
from kvorum.sdk.snapshots import checked_owner


class Health(NamedTuple):
    """What the node says of itself: why it is not ready, or None."""

    not_ready: Callable[[], str | None]


class ColdApi:
    """Mounts all handlers, and is the boundary around them."""

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
            *TableApi(self._backend).routes(),
            *ProcedureApi(self._backend).routes(),
            *ClusterApi(self._backend).routes(),
            *console.routes(),
            ("POST", "/v1/tso", self._tso),
            ("POST", "/v1/locks/{id}/heartbeat", self._beat_lock),
            ("DELETE", "/v1/locks/{id}", self._end_lock),
            ("GET", "/v1/snapshots", self._snapshots),
            ("POST", "/v1/snapshots", self._open_snapshot),
            ("POST", "/v1/snapshots/{id}/heartbeat", self._renew_snapshot),
            ("DELETE", "/v1/snapshots/{id}", self._release_snapshot),
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
                raw.check_origin()
                for name, part in request.path_params.items():
                    request.path_params[name] = path_text(part.encode("latin-1"), name)
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
        id = number(request, "snapshot")
        await self._backend.renew_snapshot(id)
        return reply({"id": str(id)}, raw.formats.reply)

    async def _release_snapshot(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        id = number(request, "snapshot")
        held = await self._backend.release_snapshot(id)
        return reply({"id": str(id), "held": held}, raw.formats.reply)

    # ----------------------------------------------------------------------------------- locks

    async def _beat_lock(self, raw: http.Request, request: Request) -> Reply:
        body = await raw.fields(fields.LOCK_BEAT)
        id = number(request, "lock")
        state, token = await self._backend.beat_lock(id, body.get("wait_ms", 0))
        told = {"id": str(id), "state": state, "token": str(token)}
        return reply(told, raw.formats.reply)

    async def _end_lock(self, raw: http.Request, request: Request) -> Reply:
        Query(raw.query_string).done()
        id = number(request, "lock")
        await self._backend.end_lock(id)
        return reply({"id": str(id)}, raw.formats.reply)

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

"""The routes that are not hot, served by FastAPI: declared in kvorum/http/routes, each with what it
takes. Here is the boundary around them: bodies and replies in JSON or msgpack, errors as the hot
routes shape them, what was not asked for refused, requests counted.

Imported only when HTTP is switched on.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final, get_args, get_origin

from fastapi import FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, APIRouter
from starlette.exceptions import HTTPException
from starlette.routing import Match

from kv.base.errors import KvorumError
from kvorum.api.backend import Backend
from kvorum.audit.audited_backend import is_refused
from kvorum.http import console
from kvorum.http.console import oidc_routes
from kvorum.http.metrics.metrics import CONTENT_TYPE, Metrics
from kvorum.http.routes import console_routes
from kvorum.http.routes.declaring import ASKED, Declared, Endpoint, Services, refused
from kvorum.http.routes.docs_page import docs_page
from kvorum.http.routes.leases import Leases
from kvorum.http.routes.openapi import DECLARED, answers, openapi
from kvorum.http.server.authentication import Door
from kvorum.http.server.causal_tokens import CausalTokens
from kvorum.http.wire import request as http
from kvorum.http.wire.codec import Query, Reply, encode, path_text, plain, refusal, reply
from kvorum.http.wire.console_sessions import Visits
from kvorum.local import logs
from kvorum.security.oidc_login import Logins
from procedures.engine.plain_data import Plain
from sqlproxy.catalog.guard import Guard

Handler = Callable[[Request], Coroutine[object, None, Response]]
_ROUTES: Final = (
    *(*DECLARED, *console.ROUTES.declared, *console_routes.ROUTES.declared),
    *oidc_routes.ROUTES.declared,
)
_RIGHTS: Final = {(route.method, route.path): route.right for route in _ROUTES}


class ColdApi:
    """The FastAPI application over one backend, and the boundary around its handlers."""

    def __init__(
        self,
        backend: Backend,
        metrics: Metrics,
        not_ready: Callable[[], str | None],
        version: str,
        monotonic: Callable[[], float],
        door: Door,
        guard: Guard,
        visits: Visits,
        tokens: CausalTokens,
        logins: Logins | None = None,
        notice: str = "",
        leases: Leases | None = None,
        sql: Callable[..., Awaitable[Plain]] | None = None,
    ) -> None:
        self._metrics, self._monotonic, self.door = metrics, monotonic, door
        self._tokens = tokens
        self._turns = asyncio.Lock()  # to decode large bodies
        self.application = app = application()
        app.state.services = Services(
            backend,
            not_ready,
            lambda: Reply(200, metrics.text(), CONTENT_TYPE),
            Made(lambda: encode(document(version), packed=False)),
            Made(lambda: docs_page(document(version)).encode()),
            guard,
            visits,
            logins,
            notice,
            leases,
            sql,
        )
        app.state.boundary = self

    async def answer(self, route: APIRoute, handler: Handler, request: Request) -> Response:
        """What `handler` answers, or the refusal; counted."""
        raw = http.Request(request.scope, request.receive, self._turns)
        began = self._monotonic()
        try:
            raw.check_origin()
            for name, part in request.path_params.items():
                request.path_params[name] = path_text(part.encode("latin-1"), name)
            if route.path.startswith("/v1/"):  # probes and browsers add to others what they like
                parameters = dict(_parameters(route.dependant))
                query = Query(raw.query_string, [one for one, many in parameters.items() if many])
                for parameter in parameters:
                    query.text(parameter)
                query.done()
            right = _RIGHTS[raw.method, route.path]
            if right.action is None:
                await self.door.pass_stranger()
            else:
                raw.task = asyncio.current_task()
                await self.door.enter(raw)
                await self._tokens.hear(raw)
            decoded = await _Decoded.read(raw, request, route)
            await self.door.check(raw, right, request.path_params, decoded.data)
            decoded.scope[ASKED] = raw
            answer = _reply(await handler(decoded), raw, route)
            raw.check_right()  # it may have waited long
        except RequestValidationError as e:
            answer = refusal(refused(e.errors()), raw.formats.reply)
        except KvorumError as e:
            is_refused(e)
            answer = refusal(e, raw.formats.reply)
        except asyncio.CancelledError:
            if (lost := raw.cut()) is None:
                raise
            is_refused(lost)
            answer = refusal(lost, raw.formats.reply)
        except http.Disconnected:
            return Response(status_code=499)
        except Exception as e:  # noqa: BLE001 - an application boundary: the node must stay up
            self._metrics.requests.failed(request.url.path, e)
            answer = refusal(http.internal(), raw.formats.reply)
        finally:
            self.door.leave(raw)
        seconds = self._monotonic() - began
        self._metrics.requests.observe(route.path, answer.status, seconds)
        if logs.access.isEnabledFor(logging.DEBUG):
            logs.request(raw.method, raw.path, answer.status, seconds)
        return _response(self._tokens.tell(answer))


class _Route(APIRoute):
    """A route within the boundary of its application."""

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            boundary: ColdApi = request.app.state.boundary
            return await boundary.answer(self, handler, request)

        return answer


class _Decoded(Request):
    """A request whose body is plain data already."""

    data: Any = None

    @classmethod
    async def read(cls, raw: http.Request, request: Request, route: APIRoute) -> _Decoded:
        """Raises TooLarge, Disconnected, InvalidArgument."""
        headers = [(b"content-type", b"application/json"), *_but_type(raw.headers)]
        found = cls({**request.scope, "headers": headers}, request.receive)
        if route.body_field is not None:
            found.data = await raw.data(needed=route.body_field.field_info.is_required())
        return found

    async def body(self) -> bytes:
        return b"" if self.data is None else b"{}"  # FastAPI looks whether there is one

    async def json(self) -> Any:
        return self.data


class _Plain(Response):
    """Plain data, or a whole reply: bytes are made of it where the request is known."""

    def __init__(self, data: object) -> None:
        super().__init__()
        self.data = data


def application() -> FastAPI:
    """The application, without what its handlers need."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.router.routes += _router().routes
    app.add_exception_handler(HTTPException, _http_exception)
    return app


@functools.cache
def document(version: str) -> dict[str, object]:
    """The OpenAPI document of all routes, the hot ones too. It takes a tenth of a second: not
    everybody's start waits for what few ask for.
    """
    return openapi(version, application().openapi())


class Made:
    """A text that costs much: made in a thread when it is first wanted, once, since whoever finds
    the port may ask for it as often as he likes.
    """

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._made: list[bytes] = []
        self._making = asyncio.Lock()

    async def __call__(self) -> bytes:
        if not self._made:
            async with self._making:
                if not self._made:  # nor while this waited
                    self._made.append(await asyncio.to_thread(self._make))
        return self._made[0]


@functools.cache
def _router() -> APIRouter:
    """All routes, of every application of this process."""
    router = APIRouter()
    for route in _ROUTES:
        _add(router, route)
    return router


def _add(router: APIRouter, route: Declared) -> None:
    router.add_api_route(
        route.path,
        _answering(route.endpoint),
        methods=[route.method],
        tags=[route.tag],
        summary=route.summary,
        description=route.description,
        operation_id=f"{route.method.lower()} {route.path}",
        status_code=route.ok,
        response_model=None,
        response_class=Response,
        response_description="Done",
        responses=answers(route),
        include_in_schema=route.shown,
        route_class_override=_Route,
    )


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Those of a query string, with those of what a handler is given by others: the name, and
    whether it may be there several times.
    """
    for one in dependant.query_params:
        said = one.field_info.annotation
        yield one.alias, any(get_origin(kind) is list for kind in (said, *get_args(said)))
    for inner in dependant.dependencies:
        yield from _parameters(inner)


def _answering(endpoint: Endpoint) -> Callable[..., Awaitable[Response]]:
    @functools.wraps(endpoint)
    async def answer(**given: object) -> Response:
        return _Plain(await endpoint(**given))

    return answer


def _reply(response: Response, raw: http.Request, route: APIRoute) -> Reply:
    assert isinstance(response, _Plain)
    if isinstance(response.data, Reply):
        return response.data
    packed = raw.formats.reply
    return reply(plain(response.data, packed), packed, route.status_code or 200)


def _response(answer: Reply) -> Response:
    kind = {"content-type": answer.content_type.decode()}
    response = Response(answer.body, answer.status, kind)
    response.raw_headers += answer.headers  # may have one name twice: cookies
    return response


def _but_type(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [header for header in headers if header[0] != b"content-type"]


async def _http_exception(request: Request, error: Exception) -> Response:
    """404 and 405 of the router, in our shape."""
    assert isinstance(error, HTTPException)
    boundary: ColdApi = request.app.state.boundary
    await boundary.door.pass_stranger()
    raw = http.Request(request.scope, request.receive)
    if error.status_code == 405:
        return _response(
            refusal(http.wrong_method(raw.method, _methods_of(request)), raw.formats.reply)
        )
    return _response(refusal(http.no_such_route(raw.path), raw.formats.reply))


def _methods_of(request: Request) -> list[str]:
    """All methods of a path; the router itself tells those of the first route that matches."""
    found: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, APIRoute) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found | {"HEAD"} if "GET" in found else found)

"""GET /v1/watch/{ns}/{table}: a table's committed transactions as server-sent events
(kvorum/http/wire/sse.py), until the client goes away or the node stops. The same of the events of a
procedure, GET /v1/procedures/{id}/events, for clients that accept such a stream.

Bare ASGI routes, because they stream. What is wrong with the request is an ordinary error reply:
the first event is there before the headers are sent. Later errors are an event `error`, the last
one. More is asked for when the connection took what was sent, so a client that does not read holds
one look of its feed and a full socket, nothing else. `Last-Event-ID`, which browsers send when they
connect again, wins over `from`.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kv.base.errors import Busy, KvorumError, Unavailable
from kv.base.limits import FEED_HEARTBEAT_MS, PROCEDURE_EVENTS_WAIT_MS, WATCHERS_MAX
from kv.base.rights import Action, Kind
from kvorum.api.backend import Backend
from kvorum.api.watching import WatchSpec
from kvorum.audit.audited_backend import is_refused
from kvorum.http.routes.rights import Right
from kvorum.http.server.authentication import Door
from kvorum.http.server.causal_tokens import CausalTokens
from kvorum.http.wire import fields, sse
from kvorum.http.wire.codec import Query, Reply, path_text, refusal
from kvorum.http.wire.request import (
    READING,
    Receive,
    Request,
    Scope,
    Send,
    internal,
    no_such_route,
    send_reply,
    wrong_method,
)

READS: Final = frozenset({Action.READ})
_READ_ONE: Final = Right(Action.READ, Kind.PROCEDURE_TYPE, "{id}")
PATH: Final = b"/v1/watch/"
ROUTE: Final = "/v1/watch"
EMITTED: Final = "/v1/procedures/{id}/events"
_PROCEDURES: Final = b"/v1/procedures/"
_EVENTS: Final = b"/events"
_WRITE_BYTES: Final = 64 * 1024
_COMMENT_S: Final = 2 * FEED_HEARTBEAT_MS / 1000  # where not even a heartbeat comes
_HEADERS: Final = [
    (b"content-type", sse.CONTENT_TYPE),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects would hold events back
]


class Source(Protocol):
    """What a stream is made of. `next` gives None once it is over."""

    async def next(self) -> Any: ...

    def ready(self) -> object: ...

    async def close(self) -> None: ...


class Told(NamedTuple):
    """An event of a procedure, as it is sent."""

    data: bytes


class _Emitted:
    """The events of a procedure, until it ends."""

    def __init__(self, backend: Backend, procedure: int, after: int, name: str) -> None:
        self._backend, self._id, self._after, self._name = backend, procedure, after, name
        self._here: deque[Told] = deque()
        self._asked = self._over = False

    async def next(self) -> Told | None:
        """The first one comes at once: there may be nothing for long, and a client wants to know
        that it is connected.
        """
        if not self._here and not self._over:
            wait_ms = PROCEDURE_EVENTS_WAIT_MS if self._asked else 0
            self._asked = True
            asked = {"id": self._id, "after": self._after, "name": self._name, "wait_ms": wait_ms}
            found = await self._backend.control("events", asked)
            self._after = found["after"]
            self._here += [Told(sse.emitted_bytes(one)) for one in found["items"]]
            if found["ended"]:
                self._over = True
                self._here.append(Told(sse.END))
            elif not self._here:
                self._here.append(Told(sse.COMMENT))
        return self._here.popleft() if self._here else None

    def ready(self) -> Told | None:
        return self._here.popleft() if self._here else None

    async def close(self) -> None:
        pass


class Observer(Protocol):
    """Who counts requests (kvorum.http.metrics.metrics)."""

    def observe(self, route: str, status: int, seconds: float) -> None: ...

    def failed(self, route: str, error: BaseException) -> None: ...


class Watches:
    """The streams of one HTTP server."""

    def __init__(
        self,
        backend: Backend,
        observer: Observer,
        monotonic: Callable[[], float],
        door: Door,
        tokens: CausalTokens,
    ) -> None:
        self._backend, self._observer, self._monotonic = backend, observer, monotonic
        self._door, self._tokens = door, tokens
        self._stopping = asyncio.Event()
        self._open = 0

    def __len__(self) -> int:
        return self._open

    def close(self) -> None:
        """End all streams; clients go on elsewhere, from where they are."""
        self._stopping.set()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, from its first byte to its end."""
        await self._serve(ROUTE, self._watch, Request(scope, receive), receive, send)

    async def serve_emitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The same of the events of a procedure."""
        await self._serve(EMITTED, self._emitted, Request(scope, receive), receive, send)

    async def _watch(self, request: Request) -> Source:
        ns, table, spec = _asked(request)
        request.needs(READS, ns, table)
        request.still = functools.partial(request.needs, READS, ns, table)
        return await self._backend.watch(ns, table, spec)

    async def _emitted(self, request: Request) -> Source:
        id, after, name = _asked_emitted(request)
        await self._door.check(request, _READ_ONE, {"id": str(id)}, None)
        return _Emitted(self._backend, id, after, name)

    async def _serve(
        self,
        route: str,
        begin: Callable[[Request], Awaitable[Source]],
        request: Request,
        receive: Receive,
        send: Send,
    ) -> None:
        began = self._monotonic()
        self._open += 1
        source: Source | None = None
        try:
            if self._open > WATCHERS_MAX:
                raise Busy(
                    f"{self._open} watches are open at this node, the limit is {WATCHERS_MAX}; "
                    "use another node",
                    details={"limit": WATCHERS_MAX, "actual": self._open},
                )
            request.task = asyncio.current_task()  # until `left` is awaited
            await self._door.enter(request)
            await self._tokens.hear(request)
            source = await begin(request)
            first = await self._first(source, request)
            # How long until there was something to tell; how long it lasts is no latency.
            self._observer.observe(route, 200, self._monotonic() - began)
            if first is not None:
                await self._stream(route, source, first, request, send)
        except KvorumError as e:
            is_refused(e)
            await self._refuse(route, refusal(e, request.formats.reply), began, send)
        except asyncio.CancelledError:
            if (lost := request.cut()) is None:
                raise
            is_refused(lost)
            await self._refuse(route, refusal(lost, request.formats.reply), began, send)
        except Exception as e:  # noqa: BLE001 - an application boundary: the node must stay up
            self._observer.failed(route, e)
            await self._refuse(route, refusal(internal(), request.formats.reply), began, send)
        finally:
            self._open -= 1
            self._door.leave(request)
            if source is not None:
                await source.close()

    async def _refuse(self, route: str, answer: Reply, began: float, send: Send) -> None:
        await send_reply(send, answer)
        self._observer.observe(route, answer.status, self._monotonic() - began)

    async def _first(self, source: Source, request: Request) -> object:
        """None: the client went away, or the node stops, before there was anything."""
        async with _Ends(request, self._stopping) as ends:
            return await ends.before(source.next())

    async def _stream(
        self, route: str, source: Source, first: object, request: Request, send: Send
    ) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await _send_body(send, _bytes(first))
        try:
            async with _Ends(request, self._stopping) as ends:
                while (event := await ends.before(source.next(), send)) is not None:
                    self._door.check_still(request)
                    await _send_body(send, _with_ready(source, event))
            if self._stopping.is_set():
                raise Unavailable("the node stops: go on at another one", code="STOPPING")
        except KvorumError as e:
            await _send_body(send, sse.error_bytes(e))
        except Exception as e:  # noqa: BLE001 - the boundary: the reply has begun, so the error goes into it
            self._observer.failed(route, e)
            await _send_body(send, sse.error_bytes(internal()))
        await send({"type": "http.response.body", "body": b""})


def _asked(request: Request) -> tuple[str, str, WatchSpec]:
    """Namespace and table, and what of it."""
    parts = request.path[len(PATH) :].split(b"/")
    if len(parts) != 2 or not all(parts):
        raise no_such_route(request.path)
    if request.method != "GET":
        raise wrong_method(request.method, READING[:1])
    query = Query(request.query_string)
    b64 = query.encoded()
    above = query.version("from")
    prefix = query.data("prefix", b64) or b""
    query.done()
    for name, value in request.headers:
        if name == b"last-event-id" and value:
            above = fields.VERSION.convert(path_text(value, name.decode()), "Last-Event-ID")
    ns, table = path_text(parts[0], "namespace"), path_text(parts[1], "table")
    return ns, table, WatchSpec(above, prefix)


def is_of_procedure(path: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a request asks for a stream of a procedure's events."""
    if not (path.startswith(_PROCEDURES) and path.endswith(_EVENTS)):
        return False
    return any(name == b"accept" and sse.CONTENT_TYPE in value for name, value in headers)


def _asked_emitted(request: Request) -> tuple[int, int, str]:
    """Of which procedure, after which position, of which name."""
    if request.method != "GET":
        raise wrong_method(request.method, READING[:1])
    text = request.path[len(_PROCEDURES) : -len(_EVENTS)].decode("latin-1")
    id = int(fields.VERSION.convert(text, "id"))
    query = Query(request.query_string)
    after, name = query.version("after") or 0, query.text("name") or ""
    query.done()
    for header, value in request.headers:
        if header == b"last-event-id" and value:
            after = fields.VERSION.convert(path_text(value, header.decode()), "Last-Event-ID")
    return id, after, name


def _bytes(event: Any) -> bytes:
    return event.data if isinstance(event, Told) else sse.event_bytes(event)


def _with_ready(source: Source, event: object) -> bytes:
    """The event, and those after it that are there already: one write for many small ones."""
    data = [_bytes(event)]
    size = len(data[0])
    while size < _WRITE_BYTES and (more := source.ready()) is not None:
        data.append(_bytes(more))
        size += len(data[-1])
    return b"".join(data)


async def _send_body(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


class _Ends:
    """What ends a stream from outside: the client, the node, or who takes the credential away."""

    def __init__(self, request: Request, stopping: asyncio.Event) -> None:
        self._request, self._stopping = request, stopping
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> _Ends:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._request.left()),
            loop.create_task(self._stopping.wait()),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def before(
        self, work: Coroutine[object, None, object], send: Send | None = None
    ) -> object:
        """What `work` gives, None if the stream ends before. Meanwhile comments keep it alive.
        Raises why it may not go on.
        """
        task = asyncio.get_running_loop().create_task(work)
        try:
            while True:
                done, _ = await asyncio.wait(
                    [task, *self._tasks],
                    timeout=_COMMENT_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if any(end in done for end in self._tasks):
                    if self._request.lost is not None:
                        raise self._request.lost
                    return None
                if task in done:
                    return task.result()
                if send is not None:
                    await _send_body(send, sse.COMMENT)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

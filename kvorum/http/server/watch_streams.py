"""GET /v1/watch/{ns}/{table}: a table's committed transactions as server-sent events
(kvorum/http/wire/sse.py), until the client goes away or the node stops.

A bare ASGI route, because it streams. What is wrong with the request is an ordinary error reply:
the first event is there before the headers are sent. Later errors are an event `error`, the last
one. More is asked for when the connection took what was sent, so a client that does not read holds
one look of its feed and a full socket, nothing else. `Last-Event-ID`, which browsers send when they
connect again, wins over `from`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Protocol

from kv.base.errors import Busy, KvorumError, Unavailable
from kv.base.limits import FEED_HEARTBEAT_MS, WATCHERS_MAX
from kv.base.rights import Action
from kvorum.api.backend import Backend
from kvorum.api.watching import Event, Watcher, WatchSpec
from kvorum.audit.audited_backend import is_refused
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
PATH: Final = b"/v1/watch/"
ROUTE: Final = "/v1/watch"
_WRITE_BYTES: Final = 64 * 1024
_COMMENT_S: Final = 2 * FEED_HEARTBEAT_MS / 1000  # where not even a heartbeat comes
_HEADERS: Final = [
    (b"content-type", sse.CONTENT_TYPE),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects would hold events back
]


Still = Callable[[], Awaitable[None]]


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
        request = Request(scope, receive)
        began = self._monotonic()
        self._open += 1
        watcher: Watcher | None = None
        try:
            if self._open > WATCHERS_MAX:
                raise Busy(
                    f"{self._open} watches are open at this node, the limit is {WATCHERS_MAX}; "
                    "use another node",
                    details={"limit": WATCHERS_MAX, "actual": self._open},
                )
            await self._door.enter(request)
            await self._tokens.hear(request)
            ns, table, spec = _asked(request)
            request.needs(READS, ns, table)
            watcher = await self._backend.watch(ns, table, spec)
            first = await self._first(watcher, receive)
            # How long until there was something to tell; how long it lasts is no latency.
            self._observer.observe(ROUTE, 200, self._monotonic() - began)
            if first is not None:

                async def still() -> None:
                    await self._door.look_again(request)
                    request.needs(READS, ns, table)

                await self._stream(watcher, first, still, receive, send)
        except KvorumError as e:
            is_refused(e)
            await self._refuse(refusal(e, request.formats.reply), began, send)
        except Exception as e:  # noqa: BLE001 - an application boundary: the node must stay up
            self._observer.failed(ROUTE, e)
            await self._refuse(refusal(internal(), request.formats.reply), began, send)
        finally:
            self._open -= 1
            self._door.leave(request)
            if watcher is not None:
                await watcher.close()

    async def _refuse(self, answer: Reply, began: float, send: Send) -> None:
        await send_reply(send, answer)
        self._observer.observe(ROUTE, answer.status, self._monotonic() - began)

    async def _first(self, watcher: Watcher, receive: Receive) -> Event | None:
        """None: the client went away, or the node stops, before there was anything."""
        async with _Ends(receive, self._stopping) as ends:
            return await ends.before(watcher.next())

    async def _stream(
        self, watcher: Watcher, first: Event, still: Still, receive: Receive, send: Send
    ) -> None:
        """`still`: raises why it may not go on; asked before each event, and they do not stop."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await _send_body(send, sse.event_bytes(first))
        try:
            async with _Ends(receive, self._stopping) as ends:
                while (event := await ends.before(watcher.next(), send)) is not None:
                    await still()
                    await _send_body(send, _with_ready(watcher, event))
            if self._stopping.is_set():
                raise Unavailable("the node stops: go on at another one", code="STOPPING")
        except KvorumError as e:
            await _send_body(send, sse.error_bytes(e))
        except Exception as e:  # noqa: BLE001 - the boundary: the reply has begun, so the error goes into it
            self._observer.failed(ROUTE, e)
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


def _with_ready(watcher: Watcher, event: Event) -> bytes:
    """The event, and those after it that are there already: one write for many small ones."""
    data = [sse.event_bytes(event)]
    size = len(data[0])
    while size < _WRITE_BYTES and (more := watcher.ready()) is not None:
        data.append(sse.event_bytes(more))
        size += len(data[-1])
    return b"".join(data)


async def _send_body(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


class _Ends:
    """What ends a stream from outside: the client, or the node."""

    def __init__(self, receive: Receive, stopping: asyncio.Event) -> None:
        self._receive, self._stopping = receive, stopping
        self._tasks: list[asyncio.Task[object]] = []

    async def __aenter__(self) -> _Ends:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._gone()), loop.create_task(self._stopping.wait())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def before(
        self, work: Coroutine[object, None, Event], send: Send | None = None
    ) -> Event | None:
        """What `work` gives, None if the stream ends before. Meanwhile comments keep it alive."""
        task = asyncio.get_running_loop().create_task(work)
        try:
            while True:
                done, _ = await asyncio.wait(
                    [task, *self._tasks],
                    timeout=_COMMENT_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if any(end in done for end in self._tasks):
                    return None
                if task in done:
                    return task.result()
                if send is not None:
                    await _send_body(send, sse.COMMENT)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

"""A request of either application, the hot one and FastAPI's: its body within bounds, its fields,
its reply; and the refusals that belong to no handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, Protocol

from kv.base import decode_cost
from kv.base.accounts import Use
from kv.base.errors import KvorumError, NotFound, Rejected, UnknownOutcome
from kv.base.limits import HTTP_BODY_BYTES_MAX
from kv.base.rights import LOOPBACK, Action, Resource
from kv.base.tenants import Tenants
from kvorum.api.model import too_large
from kvorum.http.wire import fields
from kvorum.http.wire.codec import JSON, MSGPACK_NAMES, Formats, Query, Reply, decode, formats
from procedures.engine.plain_data import Plain

Message = MutableMapping[str, Any]
Scope = Message
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
READING: Final = ("GET", "HEAD")
"""Whatever can be read can be asked for its headers alone: probes and caches do."""
_SKIPPED_BYTES_MAX: Final = 2 * HTTP_BODY_BYTES_MAX
_ASKED_FIRST: Final = (JSON, *MSGPACK_NAMES)


class Disconnected(Exception):
    """The client went away before its request was complete: nothing was done, nobody is
    to be answered.
    """


class May(Protocol):
    """What raises whatever forbids something to who asks."""

    def __call__(self, actions: frozenset[Action], resource: Resource, /) -> None: ...

    def on_table(self, actions: frozenset[Action], ns: str, name: str, /) -> None: ...


class Request:
    """One request of a hot route."""

    __slots__ = (
        *("_leaving", "_receive", "_turns", "bytes", "changes", "doubted", "formats", "headers"),
        *("identity", "lost", "mark", "may", "method", "path", "query_string", "rows", "scope"),
        *("still", "task", "tenants", "use"),
    )

    def __init__(self, scope: Scope, receive: Receive, turns: asyncio.Lock | None = None) -> None:
        """`turns`: who decodes a large body has it; None: nobody sends one to this route."""
        self.scope = scope
        self.identity = LOOPBACK
        self.may: May | None = None
        """Raises what forbids it; None: everything is allowed. server/authentication.py sets both …
        """
        self.use: Use | None = None  # … and whom it counts for, None: nobody
        self.tenants: Tenants | None = None
        self.rows, self.bytes = 1, 0  # what it counts as
        self.lost: KvorumError | None = None
        """Why it may not go on: its credential has ended, or the right. `mark`, `still` and
        `doubted` are server/authentication.py's."""
        self.mark: str | None = None
        self.still: Callable[[], None] | None = None  # raises if the right was taken away
        self.doubted = False
        self.task: asyncio.Task[Any] | None = None  # is cancelled then; None: see `left`
        self._leaving: asyncio.Task[Any] | None = None
        self.method: str = scope["method"]
        self.changes = self.method not in READING
        """Whether it does something that may be done when it ends before its answer."""
        self.path: bytes = scope["raw_path"]
        self.query_string: bytes = scope["query_string"]
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.formats: Formats = formats(self.headers)
        self._receive = receive
        self._turns = turns

    def needs(self, actions: frozenset[Action], ns: str, name: str) -> None:
        """Raises Forbidden: not on this table; Busy: its namespace has had its share."""
        if self.may is not None:
            self.may.on_table(actions, ns, name)
        if self.use is not None and self.tenants is not None:
            self.use.join(self.tenants.namespace(ns))

    @property
    def address(self) -> str:
        """Whose it is, without the port."""
        return str((self.scope.get("client") or ("", 0))[0])

    async def body(self, limit: int, what: str = "request body") -> bytes:
        """The whole body. Raises TooLarge before more than `limit` bytes are kept, Disconnected,
        Rejected (FOREIGN_ORIGIN).
        """
        for name, value in self.headers:
            if name == b"content-length" and value.isdigit() and int(value) > limit:
                await self._skip(int(value))
                raise _body_too_large(what, limit, int(value))
            if name == b"origin" and self.method == "POST":
                self._check_origin(value)
        message = await self._receive()
        first: bytes = message.get("body", b"")
        size = len(first)
        parts = bytearray()  # a client may send it byte by byte
        while message.get("more_body"):
            message = await self._receive()
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise _body_too_large(what, limit, size)
            parts += part
        if message["type"] == "http.disconnect":
            raise Disconnected
        if size > limit:
            raise _body_too_large(what, limit, size)
        self.bytes += size
        return first + parts if parts else first

    async def left(self) -> KvorumError | None:
        """Until who asked hangs up: None, or may not go on: why. After the body has been read, in a
        task of its own; whoever awaits that ends the request himself.
        """
        self._leaving = task = asyncio.current_task()
        assert task is not None, "this runs in one"
        try:
            while self.lost is None and (await self._receive())["type"] != "http.disconnect":
                pass
        except asyncio.CancelledError:
            if self.lost is None:
                raise
            task.uncancel()
        return self.lost

    def check_right(self) -> None:
        """Raises Forbidden: the right was taken away while it lasted."""
        if self.still is not None:
            self.still()

    def lose(self, why: KvorumError) -> None:
        """It may not go on."""
        self.lost = why
        task = self.task if self._leaving is None else self._leaving
        if task is not None:
            task.cancel()

    def cut(self) -> KvorumError | None:
        """What to answer when its task was cancelled; None: that was for something else."""
        if self.lost is None or self.task is None:
            return None
        self.task.uncancel()
        if not self.changes:
            return self.lost
        return UnknownOutcome(f"{self.lost.message}. Whether this request was done is not known")

    def check_origin(self) -> None:
        """For a handler that reads no body (`body` does this, too). Raises Rejected."""
        if self.method == "POST":
            for name, value in self.headers:
                if name == b"origin":
                    self._check_origin(value)

    def _check_origin(self, origin: bytes) -> None:
        """A browser sends a page's POST to any host it likes, and asks us first only if the body
        says that it is JSON or msgpack (then it is refused: CORS is not spoken here). So what says
        neither comes from a page of ours, or from one that an operator merely looks at.
        """
        sent = dict(self.headers)
        kind = sent.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind not in _ASKED_FIRST and origin.partition(b"://")[2] != sent.get(b"host"):
            raise foreign_origin(origin)

    async def _skip(self, size: int) -> None:
        """Read a refused body past, if that is soon done: closing with unread data resets the
        connection, and many clients then never see the reply."""
        if size > _SKIPPED_BYTES_MAX or any(name == b"expect" for name, _ in self.headers):
            return
        while (await self._receive()).get("more_body"):
            pass

    async def fields(self, table: fields.Fields) -> Plain:
        """The checked fields of a JSON or msgpack body; the query string must be empty."""
        Query(self.query_string).done()
        raw = await self.body(HTTP_BODY_BYTES_MAX)
        await self._turn(raw)
        return fields.read(table, decode(raw, self.formats.body))

    async def data(self, *, needed: bool) -> Any:
        """The plain data of a body; None: there is none, and none is needed."""
        raw = await self.body(HTTP_BODY_BYTES_MAX)
        await self._turn(raw)
        return decode(raw, self.formats.body) if raw or needed else None

    async def _turn(self, raw: bytes) -> None:
        """It may be decoded now: in each pass of the loop one large body is. Raises TooLarge."""
        packed = self.formats.body
        if self._turns is None or decode_cost.is_light(raw, packed):
            return
        async with self._turns:
            await asyncio.sleep(0)
            if packed:
                decode_cost.weigh_packed(raw)
            else:
                for _ in decode_cost.weigh_json(raw):
                    await asyncio.sleep(0)


def _body_too_large(what: str, limit: int, actual: int) -> KvorumError:
    return too_large(what, limit, actual, "send it in several requests")


async def send_reply(send: Send, answer: Reply) -> None:
    """One response by ASGI."""
    headers = [
        (b"content-type", answer.content_type),
        (b"content-length", b"%d" % len(answer.body)),
        *answer.headers,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def no_such_route(path: bytes) -> NotFound:
    """404 for a path that is none of ours."""
    shown = path[:200].decode("ascii", "replace")
    return NotFound(f"there is no {shown}; /docs lists the routes", code="ROUTE_NOT_FOUND")


def wrong_method(method: str, allowed: Sequence[str]) -> Rejected:
    """405 with the methods that the path has."""
    shown = ", ".join(allowed)
    error = Rejected(
        f"{method} is not possible here, only {shown}",
        code="METHOD_NOT_ALLOWED",
        details={"allow": shown},
    )
    error.status = 405
    return error


def foreign_origin(origin: bytes) -> Rejected:
    """403 for what another site's page sends."""
    shown = origin[:200].decode("ascii", "replace")
    error = Rejected(
        f"a page of {shown} sent this without saying what it is; send Content-Type: "
        "application/json, from a page of this node or not from a browser",
        code="FOREIGN_ORIGIN",
    )
    error.status = 403
    return error


def internal() -> KvorumError:
    """500 for a bug of ours; what went wrong is in the node's log, not in the reply."""
    return KvorumError("an internal error; the node's log has the details")

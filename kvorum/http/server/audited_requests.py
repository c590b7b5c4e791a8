"""Requests over HTTP in the log of stamps: whose they are, and those that never reach the database:
what was refused early, what somebody asked of this node alone, and all that is no mere look, also
before the first user, when nobody has to say who he is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kv.base.ports import Rng
from kvorum.audit.audit_log import Stamp, StampLog
from kvorum.audit.audited_backend import Caller, caller_of_request
from kvorum.http.wire.request import READING, Asgi, Message, Receive, Scope, Send

_HEADER: Final = b"x-request-id"
_ID_BYTES: Final = 8
_SAID_MAX: Final = 100


class StampedHttp:
    """The ASGI application of an audited node: says whose request it is; one that is refused before
    it reached the database is logged here.
    """

    def __init__(self, app: Asgi, log: StampLog, monotonic: Callable[[], float], rng: Rng) -> None:
        self._app, self._log, self._monotonic, self._rng = app, log, monotonic, rng

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host, port = scope.get("client") or ("", 0)
        caller = Caller(f"{host}:{port}", self._rng.token(_ID_BYTES).hex(), _said(scope))
        token = caller_of_request.set(caller)
        began, status = self._monotonic(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                shown = (_HEADER, caller.request.encode())
                message = {**message, "headers": [*message["headers"], shown]}
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            caller_of_request.reset(token)
            asker = caller.asker()
            own = status >= 400 or asker.user or scope["method"] not in READING
            if asker.denied or (own and not caller.logged):
                method, took_s = (
                    f"{scope['method']} {scope['path'][:200]}",
                    self._monotonic() - began,
                )
                code = caller.error.code if asker.denied and caller.error else f"HTTP_{status}"
                common = ("http", caller.client, method)
                self._log.add(Stamp(*common, code=code, took_s=took_s, asker=asker))


def _said(scope: Scope) -> str:
    """What the client calls its request: printable ASCII, cut."""
    said = next((value for name, value in scope["headers"] if name == _HEADER), b"")
    return "".join(c for c in said[:_SAID_MAX].decode("ascii", "replace") if c.isprintable())

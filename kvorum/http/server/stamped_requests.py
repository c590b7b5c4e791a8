"""Requests over HTTP in the log of stamps: whose they are, and those that were refused early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvorum.audit.stamped import Caller, caller_of_request
from kvorum.audit.stamps import Stamp, StampLog
from kvorum.http.wire.request import Asgi, Receive, Scope, Send


class StampedHttp:
    """The ASGI application of an audited node: says whose request it is; one that is refused before
    it reached the database is told here.
    """

    def __init__(self, app: Asgi, log: StampLog, monotonic: Callable[[], float]) -> None:
        self._app, self._log, self._monotonic = app, log, monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host, port = scope.get("client") or ("", 0)
        caller = Caller(f"{host}:{port}")
        token = caller_of_request.set(caller)
        began, status = self._monotonic(), 0

        async def watched(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            caller_of_request.reset(token)
            if not caller.told and status >= 400:
                method, code = f"{scope['method']} {scope['path'][:200]}", f"HTTP_{status}"
                took_s = self._monotonic() - began
                self._log.add(Stamp("http", caller.client, method, code=code, took_s=took_s))

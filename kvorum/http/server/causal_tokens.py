"""Causal tokens over HTTP, where clocks are hybrid: a header both ways.

    request   Kvorum-Causal-Token: 123   what is done and answered lies above that
    reply     Kvorum-Causal-Token: 456   what to send with the next request, to whichever node

With an oracle replies have none, and what a request says is passed over: everybody sees everything
that was acknowledged.
"""

from __future__ import annotations

from typing import Final

from kvorum.api.backend import Backend
from kvorum.http.wire.codec import Reply
from kvorum.http.wire.fields import VERSION
from kvorum.http.wire.request import Request

HEADER: Final = b"kvorum-causal-token"


class CausalTokens:
    """Of one HTTP server. `on`: clocks may be hybrid."""

    def __init__(self, backend: Backend, *, on: bool) -> None:
        self.on = on
        self._backend = backend

    async def hear(self, request: Request) -> None:
        """After it is known who asks: a stranger moves no clock. Raises InvalidArgument,
        Unavailable.
        """
        for name, value in request.headers if self.on else ():
            if name == HEADER:
                token = VERSION.convert(value.decode("latin-1"), "Kvorum-Causal-Token")
                if token > self._backend.causal_token():
                    await self._backend.timestamps(1, token)

    def tell(self, answer: Reply) -> Reply:
        """The same answer, with the token if there is one."""
        if token := self._backend.causal_token():
            return answer._replace(headers=(*answer.headers, (HEADER, b"%d" % token)))
        return answer

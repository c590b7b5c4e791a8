"""Whom a request was meant for: a guard in front of every route, which refuses names in `Host` that
are not this node's.

A browser lets the page of evil.example talk to whatever address that name has at the moment (DNS
rebinding). If that becomes this node's, the node is the page's own site to the browser: no foreign
`Origin` tells, and every answer may be read. All that differs is the name that was asked for, which
a page cannot choose.

Taken are addresses, which nobody can make point elsewhere; localhost; the names that the node has
from its settings and its machine; and a request without `Host`, which no browser sends.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Iterable
from typing import Final

from kv.base.config_values import ANY_HOST
from kv.base.errors import Rejected
from kvorum.http.wire.codec import refusal
from kvorum.http.wire.request import Asgi, Receive, Request, Scope, Send, send_reply

_LOCAL: Final = "localhost"
_KNOWN_MAX: Final = 1_000
"""Values of `Host` that were looked at and are remembered as good; others are looked at each time.
"""
_KNOWN_BYTES_MAX: Final = 300  # of one: what a client calls a port may be 60 KiB


class HostGuard:
    """The ASGI application `app`, for those who ask for it by one of `names`: host names, `*.NAME`
    for all below one, `*` for any.
    """

    def __init__(self, app: Asgi, names: Iterable[str]) -> None:
        self._app = app
        lower = {name.lower().removesuffix(".") for name in names if name}
        self._any = ANY_HOST in lower
        self._below = tuple(name[1:] for name in {*lower, "*." + _LOCAL} if name.startswith("*."))
        self._names = lower | {_LOCAL}
        self._known: set[bytes] = set()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """No coroutine of its own: each costs every request half a microsecond."""
        if scope["type"] == "http" and not self._any:
            for name, value in scope["headers"]:
                if name == b"host" and value not in self._known and not self._ours(value):
                    return _refuse(value, scope, receive, send)
        return self._app(scope, receive, send)

    def _ours(self, value: bytes) -> bool:
        name = _name(value)
        if not (name in self._names or name.endswith(self._below) or _is_address(name)):
            return False
        if len(self._known) < _KNOWN_MAX and len(value) <= _KNOWN_BYTES_MAX:
            self._known.add(value)
        return True


def _name(value: bytes) -> str:
    """Without the port and the dot of the root, in lower case."""
    text = value.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _refuse(value: bytes, scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    await send_reply(send, refusal(foreign_host(_name(value)), request.formats.reply))


def foreign_host(name: str) -> Rejected:
    """403 for a name that is none of the node's."""
    shown = name[:200].encode("ascii", "replace").decode()
    error = Rejected(
        f"this node is not known as {shown or 'nothing'}: ask for it by its address, or, if that "
        f"name is yours, start it with --http-hosts {shown or 'NAME'} (http_hosts in its file)",
        code="FOREIGN_HOST",
        details={"setting": "http_hosts", "actual": shown},
    )
    error.status = 403
    return error

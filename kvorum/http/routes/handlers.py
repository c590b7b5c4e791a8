"""What the handlers of FastAPI's routes share (cold.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Request

from kvorum.http.wire import fields
from kvorum.http.wire import request as http
from kvorum.http.wire.codec import Reply

Handler = Callable[[http.Request, Request], Awaitable[Reply]]
Handlers = tuple[tuple[str, str, Handler], ...]
"""Method, path and handler of each."""


def number(request: Request, what: str) -> int:
    """The id in the path."""
    found: int = fields.VERSION.convert(request.path_params["id"], f"{what} id")
    return found

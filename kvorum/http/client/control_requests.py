"""The requests that stand for the actions of procedures/pools/control.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from kv.base.errors import InvalidArgument

_ROUTES: Final[Mapping[str, tuple[str, str]]] = {
    "signal": ("POST", "/v1/procedures/{id}/signals"),
    "complete": ("POST", "/v1/completions"),
    "abort": ("POST", "/v1/procedures/{id}/abort"),
    "bypass": ("POST", "/v1/procedures/{id}/bypass"),
    "retry": ("POST", "/v1/procedures/{id}/retry"),
    "steal": ("POST", "/v1/locks/steal"),
    "explain": ("GET", "/v1/procedures/{id}/explain"),
    "audit.list": ("GET", "/v1/audit"),
    "schedule.set": ("POST", "/v1/schedules"),
    "schedule.remove": ("DELETE", "/v1/schedules/{name}"),
    "schedule.list": ("GET", "/v1/schedules"),
    "queue.set": ("POST", "/v1/queues"),
    "queue.list": ("GET", "/v1/queues"),
}


def control_request(what: str, args: Mapping[str, Any]) -> tuple[str, str, dict[str, Any] | None]:
    """Method, target and body of the HTTP request that does it."""
    if what not in _ROUTES:
        raise InvalidArgument(f"{what} cannot be asked for over HTTP; use kvorum://HOST:PORT")
    method, path = _ROUTES[what]
    body = {name: value for name, value in args.items() if value is not None and value != ""}
    for name in ("id", "name"):
        if f"{{{name}}}" in path:
            body.pop(name, None)
            path = path.format(**{name: quote(str(args[name]), safe="")})
    if method == "POST":
        return method, path, body
    return method, f"{path}?{urlencode(body)}" if body else path, None

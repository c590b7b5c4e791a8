"""The requests that stand for the actions of procedures/pools/control.py and of
kvorum/native/access.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from kv.base.errors import InvalidArgument

_ROUTES: Final[Mapping[str, tuple[str, str]]] = {
    "signal": ("POST", "/v1/procedures/{id}/signals"),
    "complete": ("POST", "/v1/completions"),
    "query": ("POST", "/v1/procedures/{id}/queries/{name}"),
    "update": ("POST", "/v1/procedures/{id}/updates/{name}"),
    "events": ("GET", "/v1/procedures/{id}/events"),
    "abort": ("POST", "/v1/procedures/{id}/abort"),
    "bypass": ("POST", "/v1/procedures/{id}/bypass"),
    "retry": ("POST", "/v1/procedures/{id}/retry"),
    "steal": ("POST", "/v1/locks/steal"),
    "explain": ("GET", "/v1/procedures/{id}/explain"),
    "past": ("GET", "/v1/procedures/{id}"),
    "census": ("GET", "/v1/census"),
    "audit.page": ("GET", "/v1/audit"),
    "schedule.set": ("POST", "/v1/schedules"),
    "schedule.remove": ("DELETE", "/v1/schedules/{name}"),
    "schedule.list": ("GET", "/v1/schedules"),
    "schedule.times": ("GET", "/v1/schedules/{name}/times"),
    "schedule.trigger": ("POST", "/v1/schedules/{name}/trigger"),
    "schedule.backfill": ("POST", "/v1/schedules/{name}/backfill"),
    "pause.set": ("POST", "/v1/pauses"),
    "pause.end": ("DELETE", "/v1/pauses/{kind}/{name}"),
    "pause.list": ("GET", "/v1/pauses"),
    "reset": ("POST", "/v1/procedures/{id}/reset"),
    "fork": ("POST", "/v1/procedures/{id}/fork"),
    "bulk": ("POST", "/v1/bulk"),
    "retention.set": ("POST", "/v1/retention"),
    "retention.remove": ("DELETE", "/v1/retention"),
    "retention.list": ("GET", "/v1/retention"),
    "search": ("GET", "/v1/search"),
    "count": ("GET", "/v1/search/count"),
    "queue.set": ("POST", "/v1/queues"),
    "queue.list": ("GET", "/v1/queues"),
    "queue.show": ("GET", "/v1/queues/{name}"),
    "version.page": ("GET", "/v1/versions"),
    "version.set": ("POST", "/v1/versions/{name}"),
    "version.rollback": ("POST", "/v1/versions/{name}/rollback"),
    "version.move": ("POST", "/v1/versions/{name}/move"),
    "init": ("POST", "/v1/init"),
    "user.list": ("GET", "/v1/users"),
    "user.create": ("POST", "/v1/users"),
    "user.password": ("POST", "/v1/users/{name}/password"),
    "user.delete": ("DELETE", "/v1/users/{name}"),
    "role.grant": ("POST", "/v1/users/{user}/roles/{role}"),
    "role.revoke": ("DELETE", "/v1/users/{user}/roles/{role}"),
    "token.list": ("GET", "/v1/tokens"),
    "token.create": ("POST", "/v1/tokens"),
    "token.revoke": ("DELETE", "/v1/tokens/{user}/{name}"),
    "grant.list": ("GET", "/v1/grants"),
    "grant.give": ("POST", "/v1/grants"),
    "grant.take": ("POST", "/v1/grants/take"),
}


def control_request(
    what: str, args: Mapping[str, object]
) -> tuple[str, str, dict[str, object] | None]:
    """Method, target and body of the HTTP request that does it."""
    if what not in _ROUTES:
        raise InvalidArgument(f"{what} cannot be asked for over HTTP; use kvorum://HOST:PORT")
    method, path = _ROUTES[what]
    body = {name: value for name, value in args.items() if value is not None and value != ""}
    if named := re.findall(r"{(\w+)}", path):
        path = path.format(**{name: quote(str(args[name]), safe="") for name in named})
        body = {name: value for name, value in body.items() if name not in named}
    if method == "POST":
        return method, path, body
    return method, f"{path}?{urlencode(body, doseq=True)}" if body else path, None

"""What the surfaces share about procedures: options of a submission, and HTTP requests that stand
for the actions of procedures/pools/control.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from kv.base.errors import InvalidArgument
from procedures.engine.registry import declaration
from procedures.engine.typed import plain_of

OPTIONS: Final = ("queue", "priority", "delay_ms", "at_ms", "pool")


def start_options(
    queue: str, priority: int | None, delay_ms: int, at: datetime | int | None, pool: str
) -> dict[str, Any]:
    """Only what was given. `at`: a datetime with a time zone, or ms since 1970."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidArgument(f"at={at} has no time zone: give it one, such as UTC")
        at = int(at.timestamp() * 1000)
    found: dict[str, Any] = {"queue": queue, "delay_ms": delay_ms, "at_ms": at or 0, "pool": pool}
    found = {name: value for name, value in found.items() if value}
    return found if priority is None else {**found, "priority": priority}


def submitted(name: str | type, args: Any) -> Any:
    """Arguments as plain data; checked against their type, if the class is here."""
    if isinstance(name, str):
        return plain_of(args, f"arguments of {name}")
    declared = declaration(name)
    what = f"arguments of {declared.name}"
    args = plain_of(args, what)
    return args if declared.args is None else declared.args.plain(args, what)


def control_request(what: str, args: Mapping[str, Any]) -> tuple[str, str, dict[str, Any] | None]:
    """Method, path and body of the HTTP request that does it."""
    body = {name: value for name, value in args.items() if value is not None and value != ""}
    match what:
        case "signal":
            return "POST", f"/v1/procedures/{body.pop('id')}/signals", body
        case "complete":
            return "POST", "/v1/completions", body
        case "abort" | "bypass" | "retry":
            return "POST", f"/v1/procedures/{body.pop('id')}/{what}", body
        case "steal":
            return "POST", "/v1/locks/steal", body
        case "explain":
            return "GET", f"/v1/procedures/{body.pop('id')}/explain", None
        case "audit.list":
            return "GET", f"/v1/audit?{urlencode(body)}", None
        case "schedule.set":
            return "POST", "/v1/schedules", body
        case "schedule.remove":
            return "DELETE", f"/v1/schedules/{quote(args['name'], safe='')}", None
        case "schedule.list":
            return "GET", "/v1/schedules", None
        case "queue.set":
            return "POST", "/v1/queues", body
        case "queue.list":
            return "GET", "/v1/queues", None
        case _:
            raise InvalidArgument(f"{what} cannot be asked for over HTTP; use kvorum://HOST:PORT")

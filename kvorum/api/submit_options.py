"""What may be said when a procedure is submitted: its options and its arguments, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kv.base.errors import InvalidArgument
from procedures.engine.plain_data import Plain
from procedures.engine.registry import Declared, declaration
from procedures.engine.typed_values import plain_of


def start_options(
    queue: str,
    priority: int | None,
    delay_ms: int,
    at: datetime | int | None,
    pool: str,
    attributes: Mapping[str, object] | None = None,
) -> Plain:
    """Only what was given. `at`: a datetime with a time zone, or ms since 1970. Raises
    InvalidArgument.
    """
    if not isinstance(attributes, Mapping | None):
        raise InvalidArgument(f"attributes is a map of names to values, not {attributes!r:.60}")
    found: dict[str, object] = {
        "queue": queue,
        "delay_ms": delay_ms,
        "at_ms": moment_ms("at", at),
        "pool": pool,
        "attributes": {name: _said(name, one) for name, one in (attributes or {}).items()},
    }
    found = {name: value for name, value in found.items() if value}
    return found if priority is None else {**found, "priority": priority}


def moment_ms(what: str, at: datetime | int | None) -> int:
    """ms since 1970; 0 = no moment. Raises InvalidArgument."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidArgument(f"{what}={at} has no time zone: give it one, such as UTC")
        return int(at.timestamp() * 1000)
    return at or 0


def queue_options(
    *,
    key: str = "",
    dedup: str = "",
    dedup_ms: int = 0,
    debounce_ms: int = 0,
    debounce_max_ms: int = 0,
    debounce: str = "",
    needs: Mapping[str, float | str] | None = None,
) -> Plain:
    """Of them what was given."""
    found: dict[str, object] = {
        "key": key,
        "dedup": dedup,
        "dedup_ms": dedup_ms,
        "debounce_ms": debounce_ms,
        "debounce_max_ms": debounce_max_ms,
        "debounce": debounce,
        "needs": dict(needs or {}),
    }
    return {name: value for name, value in found.items() if value}


def _said(name: str, value: object) -> object:
    """A value of an attribute as plain data."""
    if isinstance(value, datetime):
        return moment_ms(name, value)
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else value


def submitted(name: str | Declared, args: object) -> Any:
    """Arguments as plain data; checked against their type, if the class is here."""
    if isinstance(name, str):
        return plain_of(args, f"arguments of {name}")
    declared = declaration(name)
    what = f"arguments of {declared.name}"
    args = plain_of(args, what)
    return args if declared.args is None else declared.args.plain(args, what)

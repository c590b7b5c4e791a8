"""Moments on the command line."""

from __future__ import annotations

from datetime import UTC, datetime

from kv.base.errors import InvalidArgument
from kvorum.cli import output


def moment(text: str, as_json: bool) -> datetime | None:
    """A moment with a zone; none of an empty text."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as e:
        output.die(InvalidArgument(f"{text!r:.60} is no moment: {e}"), as_json=as_json)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def time(ms: int) -> str:
    if not ms:
        return "never"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")

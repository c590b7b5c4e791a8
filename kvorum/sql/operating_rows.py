"""What operators of procedures look at, as rows of the kvorum views: queues, schedules, pauses,
workers, retention and versions. What the master says, as HTTP and the SDK have it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from kvorum.api.backend import Backend

Rows = Sequence[Mapping[str, Any]]


def providers(surface: Backend) -> dict[str, Callable[[], Awaitable[Rows]]]:
    """By name of the view."""

    async def queues() -> Rows:
        return list(await surface.control("queue.list", {}))

    async def schedules() -> Rows:
        found: list[dict[str, Any]] = []
        while page := await surface.control(
            "schedule.list", {"after": found[-1]["name"] if found else ""}
        ):
            found += page
        return [_schedule(one) for one in found]

    async def pauses() -> Rows:
        return list(await surface.control("pause.list", {}))

    async def workers() -> Rows:
        found = await surface.workers()
        return [{**one, "procedures": list(map(int, one["procedures"]))} for one in found]

    async def retention() -> Rows:
        return list(await surface.control("retention.list", {}))

    async def versions() -> Rows:
        page = await surface.control("version.page", {})
        return [{"name": one["name"], **v} for one in page["items"] for v in one["versions"]]

    return {
        "queues": queues,
        "schedules": schedules,
        "pauses": pauses,
        "workers": workers,
        "retention": retention,
        "versions": versions,
    }


def _schedule(said: Mapping[str, Any]) -> dict[str, Any]:
    crons = said["cron"]
    return {
        **said,
        "cron": [crons] if isinstance(crons, str) else crons,
        "next_ms": said["next_ms"] or None,
        "last_ms": said["last_ms"] or None,
        "paused": said["paused"] is not None,
    }

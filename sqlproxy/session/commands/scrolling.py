"""A cursor that goes back and forth over rows that are all in memory. Pure.

Its place is 0 before the first row, n on row n, one more than there are after the last one
(PostgreSQL's DoPortalRunFetch).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlproxy.front.bound.statements import Fetch
from sqlproxy.pg.answers import Row


def scrolled(rows: Sequence[Row], place: int, fetch: Fetch) -> tuple[list[Row], int]:
    """The rows that a FETCH gives, and the place then."""
    end = len(rows) + 1
    count = fetch.count
    match fetch.direction:
        case "forward" | "backward" as direction:
            back = (direction == "backward") != (count is not None and count < 0)
            steps = end if count is None else abs(count)
            if not steps:
                return _on(rows, place), place
            return _back(rows, place, steps) if back else _forth(rows, place, steps)
        case "absolute":
            assert count is not None
            target = count if count >= 0 else end + count
        case _:
            assert count is not None
            target = place + count
    target = max(0, min(end, target))
    return _on(rows, target), target


def _on(rows: Sequence[Row], place: int) -> list[Row]:
    return [rows[place - 1]] if 1 <= place <= len(rows) else []


def _forth(rows: Sequence[Row], place: int, steps: int) -> tuple[list[Row], int]:
    found = list(rows[place : place + steps])
    return found, min(place + steps, len(rows) + 1)


def _back(rows: Sequence[Row], place: int, steps: int) -> tuple[list[Row], int]:
    last = max(0, place - steps)
    return [rows[at - 1] for at in range(place - 1, max(last, 1) - 1, -1)], last

"""Portals: rows that were read and not fetched."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from sqlproxy.pg.answers import Row
from sqlproxy.session.state import portals
from sqlproxy.session.state.portals import Batches, Portal
from sqlproxy.values.errors import SqlError

pytestmark = pytest.mark.slow


async def unguarded(work: Awaitable[Any]) -> Any:
    return await work


async def pages(*found: Sequence[Row]) -> Batches:
    for one in found:
        yield one


def test_p11_a_cursor_that_cannot_be_kept_loses_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind ROLLBACK TO the cursor would go on with rows missing, and say nothing."""
    monkeypatch.setattr(portals, "SQL_HELD_ROWS_MAX", 3)

    async def start() -> Batches:
        return pages([(1,), (2,)], [(3,), (4,)], [(5,)])

    async def main() -> None:
        portal = Portal(start, str, guard=unguarded)
        assert await portal.fetch(1) == [(1,)]
        for _ in range(2):
            with pytest.raises(SqlError, match="at most 3 rows"):
                await portal.keep()
        assert list(await portal.fetch(9)) == [(2,), (3,), (4,), (5,)]

    asyncio.run(main())

"""Looks at the declarations that a statement asks for before it is told that something is not
there: as fresh as it needs, and one for all that wait.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from kv.base.adapters import LoopTimers
from sqlproxy.declared.catalogs import Catalogs, _Known
from sqlproxy.declared.database import Declared


class _Looked(Catalogs):
    """Looks take a while, and are counted."""

    looks = 0

    async def _look(self, database: str) -> Declared:
        self.looks += 1
        asked = self._now()
        await asyncio.sleep(0.01)
        found = cast("Declared", SimpleNamespace(database=database, version=self.looks))
        self._known[database] = _Known(found, asked, float("inf"))
        return found


def _catalogs() -> _Looked:
    role_rows: Any = None  # nobody asks for them
    return _Looked(role_rows, LoopTimers(asyncio.get_running_loop()), 1.0)


async def test_q2_who_waits_shares_a_look() -> None:
    """Clients that ask for a missing table in a loop send a look each, all at once."""
    catalogs = _catalogs()
    began = catalogs.moment()
    found = await asyncio.gather(*(catalogs.declared_since("d", began) for _ in range(50)))
    assert catalogs.looks == 1
    assert len(set(map(id, found))) == 1
    assert await catalogs.declared_since("d", began) is found[0]
    assert await catalogs.declared("d") is found[0]
    assert catalogs.looks == 1


async def test_q2_a_look_that_began_before_is_no_answer() -> None:
    """What was asked before the other process declared it is taken for what is there now."""
    catalogs = _catalogs()
    under_way = asyncio.create_task(catalogs.declared("d"))
    await asyncio.sleep(0.002)
    began = catalogs.moment()
    found = await asyncio.gather(*(catalogs.declared_since("d", began) for _ in range(50)))
    assert catalogs.looks == 2
    assert all(one.version == 2 for one in found)
    assert (await under_way).version == 1

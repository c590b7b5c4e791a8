"""Relations of which there may be very many rows: who may not see all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kv.base import limits
from sqlproxy.pgcatalog.catalog import SystemCatalog

_PAGE = 100


class _Kept:
    """So many procedures, the newest first; of each hundred the last is of type "mine"."""

    def __init__(self, count: int) -> None:
        self.count, self.asked = count, 0

    async def page(self, before: int) -> tuple[list[Mapping[str, Any]], int]:
        self.asked += 1
        top = before - 1 if before else self.count
        ids = range(top, max(0, top - _PAGE), -1)
        rows = [{"id": id, "name": "mine" if id % 100 == 1 else "other"} for id in ids]
        return rows, ids[-1] if ids and ids[-1] > 1 else 0


def _read(kept: _Kept, mine: bool) -> list[int]:
    def sees(_view: str, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return row if row["name"] == "mine" else None

    catalog = SystemCatalog("test", pages={"procedures": kept.page})
    session: Any = SimpleNamespace(own={}, sees=sees if mine else None)
    contents: Any = None
    try:
        read = catalog.reported("kvorum.procedures", contents, session)
        return [int(row[0]) for row in asyncio.run(_awaited(read))]  # type: ignore[call-overload]
    finally:
        catalog.close()


async def _awaited(work: Any) -> Any:
    return await work


def test_who_may_not_see_all_procedures_sees_his_own_behind_them() -> None:
    """The newest hundred of all were taken, and his were not among them."""
    assert _read(_Kept(1_000), mine=True) == list(range(901, 0, -100))
    assert _read(_Kept(1_000), mine=False) == list(range(1_000, 0, -1))


@pytest.mark.parametrize("mine", [True, False])
def test_so_many_are_looked_at_and_no_more(mine: bool) -> None:
    """A SELECT read everything that is kept."""
    kept = _Kept(100 * limits.PROCEDURE_PASSED_MAX)
    found = _read(kept, mine)
    looked = limits.PROCEDURE_PASSED_MAX if mine else limits.PROCEDURE_LOOKED_MAX
    assert kept.asked <= looked // (_PAGE - 1) + 1
    assert len(found) == (kept.asked if mine else limits.PROCEDURE_LOOKED_MAX)

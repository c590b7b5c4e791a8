"""Deferred foreign keys: what is noted, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kv.base.ids import TableId
from sqlproxy.rows.schema import Column, ForeignKey, Table
from sqlproxy.tables import referring
from sqlproxy.tables.deferring import Deferred, Noting
from sqlproxy.tables.referring import check_deferred
from sqlproxy.values.errors import SqlError

PARENT = Table(
    id=TableId(1001),
    namespace="shop",
    name="parent",
    columns=(Column(1, "id", "int4"),),
    primary_key=("id",),
)


def key(name: str, column: int) -> ForeignKey:
    return ForeignKey(name, (column,), TableId(1001), (1,), deferrable=True, deferred=True)


CHILD = Table(
    id=TableId(1002),
    namespace="shop",
    name="child",
    columns=(Column(1, "id", "int4"), Column(2, "p", "int4"), Column(3, "q", "int4")),
    primary_key=("id",),
    foreign_keys=(key("one", 2), key("two", 3)),
)
ONE = Noting.of(CHILD.id, CHILD.foreign_keys[0])


class Store:
    """A transaction that finds the parent, or does not; all children are there."""

    there = renews = False

    async def multi_get(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        return [(b"", 1) if self.there else None for _ in keys]

    def hold_key(self, key: bytes) -> None:
        """Nobody else is here."""


class Tables:
    """Of both."""

    def table_by_id(self, table: int) -> Table | None:
        return {1001: PARENT, 1002: CHILD}.get(table)

    def writer(self, table: Table) -> Any:
        return SimpleNamespace(
            rules=SimpleNamespace(key_detail=lambda words, *_: words.format("(p)=(5)"))
        )


def test_p5_a_check_that_a_savepoint_takes_back_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ROLLBACK TO behind SET CONSTRAINTS would commit a row without its parent; and SET CONSTRAINTS
    of one key would refuse what another one may still mend.
    """

    async def children(*_: Any) -> list[int]:
        return [1]

    monkeypatch.setattr(referring.Children, "referring", children)
    deferred, t = Deferred(), Store()
    for one in CHILD.foreign_keys:
        deferred.add(CHILD.id, one, (5,), gone=False)

    def checked(*, every: bool) -> Any:
        work = check_deferred(t, Tables(), None, deferred, every=every)  # type: ignore[arg-type]
        return asyncio.run(work)

    assert checked(every=False) == [], "both are deferred"
    deferred.say([CHILD], [(("public",), "one")], deferred=False)
    for every in (False, True):
        with pytest.raises(SqlError, match='"one"'):
            checked(every=every)
    t.there = True
    assert checked(every=False) == [ONE]
    t.there = False  # ROLLBACK TO took the parent back
    with pytest.raises(SqlError, match='"one"'):
        checked(every=True)
    deferred.forget([ONE])
    with pytest.raises(SqlError, match='"two"'):
        checked(every=True)
    deferred.end()
    assert not deferred
    assert checked(every=True) == []

"""What is remembered of statements stays within its bounds, and is bound anew as it was told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

from kv.base.ids import TableId
from sqlproxy.catalog.relations import Relations
from sqlproxy.declared.database import Declared
from sqlproxy.front import front
from sqlproxy.pg import oids
from sqlproxy.pg.style import Style
from sqlproxy.rows.schema import PUBLIC, Column, Table
from sqlproxy.session.preparing import current, prepare
from sqlproxy.session.shared.prepared import Plans


def test_the_least_used_plans_go_first() -> None:
    """A client that sends other texts all the time would fill the memory, or throw out the rest."""
    plans = Plans(3, 1_000)
    for name in "abc":
        plans.put(name, name.upper(), 10)
    assert plans.get("a") == "A"
    plans.put("d", "D", 10)
    assert [plans.get(name) for name in "abcd"] == ["A", None, "C", "D"]


def test_texts_of_plans_are_bounded_together() -> None:
    """Statements of a thousand rows are remembered, but not a thousand of them."""
    plans = Plans(100, 1_000)
    plans.put("small", 1, 10)
    plans.put("large", 2, 900)
    assert plans.get("small") == 1
    plans.put("larger", 3, 950)
    assert [plans.get(name) for name in ("small", "large", "larger")] == [1, None, 3]
    for _ in range(3):
        plans.put("larger", 3, 950)  # once more is not twice
    assert [plans.get(name) for name in ("small", "larger")] == [1, 3]
    plans.put("largest", 4, 1_001)
    assert plans.get("largest") is None


def test_p4_a_parameter_keeps_its_type_when_the_column_gets_another() -> None:
    """The client goes on sending what it was told: an integer would be looked for among texts, and
    never found.
    """
    now: list[Declared] = []

    async def declared() -> Declared:
        return now[-1]

    def change(kind: str) -> None:
        columns = (Column(1, "id", "int4", nullable=False), Column(2, "n", kind))
        table = Table(
            id=TableId(1001),
            namespace="d",
            name="t",
            state=PUBLIC,
            columns=columns,
            primary_key=("id",),
            next_column_id=3,
        )
        now.append(Declared(Relations("d", (table,), (), ()), len(now)))

    async def guard(work: Awaitable[Any], *, reads: bool = False) -> Any:
        return await work

    session: Any = SimpleNamespace(
        declared=declared,
        database="d",
        style=Style(),
        settings=SimpleNamespace(get=lambda _: "UTC"),
        plans=Plans(),
        temporary=None,
        path=("public",),
        block=SimpleNamespace(status="I"),
        interrupts=SimpleNamespace(guard=guard),
    )
    text = "INSERT INTO t VALUES ($1, $2)"
    change("int4")
    first = asyncio.run(prepare(session, text, front.parse(text), ()))
    change("text")
    again = asyncio.run(current(session, first))
    assert again.declared is now[-1]
    assert tuple(first.parameters) == tuple(again.parameters) == (oids.INT4, oids.INT4)

"""Descriptors for tests of the front, and what it answers differently on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kv.base.ids import TableId
from sqlproxy.front.functions.regclass import Relations
from sqlproxy.rows.schema import (
    Check,
    Column,
    Index,
    IndexColumn,
    Sequence,
    SqlFunction,
    Table,
    View,
)
from sqlproxy.values.enums import Enum


def known_differences() -> dict[str, list[Any]]:
    """expression → what we answer instead; the reasons are in docs/reference/sql.md."""
    path = Path(__file__).with_name("differences.json")
    found: dict[str, list[Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _table(number: int, name: str, columns: tuple[Column, ...], **more: Any) -> Table:
    return Table(
        id=TableId(number),
        namespace="postgres",
        name=name,
        state="public",
        columns=columns,
        primary_key=("a",),
        primary_key_name=f"{name}_pkey",
        **more,
    )


T = _table(
    5,
    "t",
    (
        Column(1, "a", "int4", nullable=False),
        Column(2, "b", "text"),
        Column(3, "c", "numeric(10,2)", default_sql="0"),
        Column(4, "d", "timestamptz", default_sql="now()"),
        Column(5, "g", "int4", generated="a + 1", uses=(1,)),
    ),
    indexes=(Index(TableId(9), "t_b_key", (IndexColumn(2),), unique=True, constraint=True),),
    checks=(Check("t_c_check", "c >= 0", (3,)),),
)
U = _table(
    6,
    "u",
    (
        Column(1, "a", "int4", nullable=False),
        Column(2, "x", "int8"),
        Column(3, "v", "varchar(10)"),
        Column(4, "arr", "int4[]"),
        Column(5, "j", "jsonb"),
    ),
)
W = View(7, "postgres", "w", "SELECT t.a AS a, t.b AS b FROM t", (("a", "int4"), ("b", "text")))
S = Sequence(8, "postgres", "s")


class FakeNames:
    """One database, `postgres`: tables t and u, the view w, the sequence s."""

    database = "postgres"
    path = ("public",)
    schemas: tuple[str, ...] = ()
    private = ""
    first: tuple[str, ...] = ()

    def __init__(self, *tables: Table) -> None:
        self.tables = {t.name: t for t in (T, U, *tables)}
        self.enums: list[Enum] = []
        self.made: list[SqlFunction] = []

    def table(self, name: str) -> Table | None:
        return self.tables.get(name)

    def searched(self, name: str) -> str:
        return name

    def along(self, path: tuple[str, ...]) -> FakeNames:
        return self

    def publicly(self) -> FakeNames:
        return self

    def view(self, name: str) -> View | None:
        return W if name == "w" else None

    def functions(self, title: str) -> list[SqlFunction]:
        return [one for one in self.made if one.title == title]

    def sequences_owned_by(self, table: int) -> list[Sequence]:
        return []

    def sequence(self, name: str) -> Sequence | None:
        return S if name == "s" else None

    def enum(self, name: str) -> Enum | None:
        return next((one for one in self.enums if one.name == name), None)

    def index(self, name: str) -> Table | None:
        return next((t for t in self.tables.values() for i in t.indexes if i.name == name), None)

    def table_by_id(self, table: int) -> Table | None:
        return next((t for t in self.tables.values() if t.id == table), None)

    def relation_oid(self, table: int) -> int:
        return 16_384 + table

    def system_columns(self, schema: str, name: str) -> None:
        return None

    system_view = system_columns

    def relations(self) -> Relations:
        listed = [("public", name, self.relation_oid(t.id)) for name, t in self.tables.items()]
        return Relations(self.database, [*listed, ("public", "w", 900), ("public", "s", 901)])

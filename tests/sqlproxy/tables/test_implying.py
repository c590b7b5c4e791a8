"""When a partial index may be used: only where a WHERE implies its predicate."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kv.base.checksum import seal
from kv.base.errors import Corruption
from kv.base.ids import TableId
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import conjuncts
from sqlproxy.front.closures.compiling import compile
from sqlproxy.pg.style import DEFAULT
from sqlproxy.rows import records
from sqlproxy.rows.schema import Column, Index, IndexColumn, Table
from sqlproxy.tables import predicates
from sqlproxy.tables.access import Ordering, choose
from sqlproxy.tables.compile_rules import bound_condition
from sqlproxy.tables.implied_predicates import usable
from tests.kit.each import each

T = Table(
    id=TableId(9),
    namespace="db",
    name="t",
    columns=(
        Column(1, "n", "int4"),
        Column(2, "m", "int4"),
        Column(3, "s", "text"),
        Column(4, "b", "bool"),
        Column(5, "d", "numeric"),
    ),
    primary_key=("n",),
)
USES = [
    ("n > 5", "n > 5", True),
    ("n > 5", "n > 7", True),
    ("n > 5", "n >= 5", False),
    ("n > 5", "n = 6", True),
    ("n > 5", "n = 5", False),
    ("n > 5", "n IN (6, 9)", True),
    ("n > 5", "n IN (5, 9)", False),
    ("n > 5", "true", False),
    ("n > 5", "n > 5 OR n < 2", False),
    ("n > 5 OR n < 2", "n < 1", True),
    ("n IS NOT NULL", "n = 3", True),
    ("n IS NOT NULL", "n < 3", True),
    ("n IS NOT NULL", "n IS DISTINCT FROM 3", False),
    ("n IS NOT NULL", "n IS NULL", False),
    ("n IS NULL", "n IS NULL", True),
    ("s IN ('x', 'y')", "s = 'y'", True),
    ("s IN ('x', 'y')", "s = 'z'", False),
    ("s <> 'x'", "s = 'y'", True),
    ("s <> 'x'", "s = 'x'", False),
    ("b", "b", True),
    ("b", "b = true", True),
    ("b = true", "b IS TRUE", True),
    ("b", "NOT b", False),
    ("NOT b", "b = false", True),
    ("b IS NOT NULL", "NOT b", True),
    ("n > 5 AND b", "b AND n > 5", True),
    ("n > 5 AND b", "n > 5", False),
    ("5 < n", "n > 5", True),
    ("n + m > 5", "n + m > 5", True),
    ("n + m > 5", "m + n > 5", False),
    ("lower(s) = 'x'", "lower(s) = 'x'", True),
    ("lower(s) = 'x'", "s = 'X'", True),
    ("d > 1.5", "d > 1.6", True),
    ("d > 1.5", "d > 1.50", True),
    ("d > 1.5", "d > 1", False),
    ("d::text = '1.5'", "d = 1.5", False),
    ("n > 5", "n > m", False),
    ("n <> 5", "n < 5", True),
    ("n <> 5", "n <= 5", False),
    ("n <= 5", "n < 6", False),
    ("n BETWEEN 2 AND 5", "n = 4", True),
    ("n BETWEEN 2 AND 5", "n > 2 AND n <= 5", True),
    ("m IS NULL OR b", "b", True),
    ("1 / n > 0", "n = 0", False),
]


def index(where: str) -> Index:
    return Index(TableId(10), "i", (IndexColumn(2),), where=where, where_columns=(1, 2, 3, 4, 5))


@each(("predicate", "where", "used"), USES)
def test_p8_what_a_where_implies(predicate: str, where: str, used: bool) -> None:
    """An index used without being implied misses rows; every row that the WHERE lets through must
    have an entry.
    """
    made = index(predicate)
    bound = bound_condition(T, predicates.OwnNames(T), DEFAULT, where)
    assert usable(T, made, conjuncts(bound)) is used
    if not used:
        return
    passes, holds, env = compile(bound).fn, predicates.holds(T, made), Env()
    values: list[tuple[Any, ...]] = [
        (None, 0, 1, 2, 3, 4, 5, 6, 7, 9),
        (None, 0, 2, 5),
        (None, "x", "X", "y", "z"),
        (None, True, False),
        (None,),
    ]
    rows = [row for row in itertools.product(*values) if passes(row, env) is True]
    assert all(holds(row) for row in rows)


def test_a_predicate_is_kept_and_an_older_program_refuses_the_table() -> None:
    """An index would be read as one of all rows."""
    table = Table(
        id=T.id,
        namespace="db",
        name="t",
        columns=T.columns,
        primary_key=("n",),
        indexes=(index("n > 5"), Index(TableId(11), "j", (IndexColumn(1),))),
    )
    row = records.encode_table(table)
    key, pack = b"key", msgspec.msgpack.encode
    assert records.decode_table(key, seal(key, pack(row))).indexes == table.indexes
    row[-1]["unknown"] = row[-1].pop("predicates")  # what it is to a program that knows none
    with pytest.raises(Corruption):
        records.decode_table(key, seal(key, pack(row)))


@pytest.mark.parametrize(
    ("predicate", "where", "by_index"),
    [
        ("s = 'x'", "s = 'x'", True),
        ("s IS NULL", "s IS NULL", False),
        ("b", "b", False),
        ("s <> 'x'", "s <> 'x'", False),
        ("s IS NULL", "s IS NULL AND m = 3", True),
        ("s IS NULL", "s IS NULL AND n = 3", False),
    ],
)
def test_p8_a_partial_index_is_read_whole_only_where_it_has_few_rows(
    predicate: str, where: str, by_index: bool
) -> None:
    """A count of nearly all rows would look each of them up by the index."""
    table = replace(T, indexes=(index(predicate),))
    bound = conjuncts(bound_condition(table, predicates.OwnNames(table), DEFAULT, where))
    access, _ = choose(table, bound)
    assert (access.index is not None) is by_index
    access, sorted_already = choose(table, conjuncts(bound[0]), [Ordering(2, nulls_first=False)])
    assert (access.index is not None, sorted_already) == (True, True), "for its order"


def test_p8_constants_of_other_types_are_not_compared() -> None:
    """A time with a zone cannot be compared with one without: the query would fail."""
    columns = (Column(1, "n", "int4"), Column(2, "at", "timestamp"))
    table = replace(T, columns=columns)
    names = predicates.OwnNames(table)
    made = replace(index("at > '2026-01-01'"), where_columns=(2,))
    for where, used in (
        ("at > '2026-01-02'", True),
        ("at > '2025-01-02'", False),
        ("at > '2026-01-02 00:00+00'::timestamptz", False),
        ("at > '2026-01-02'::date", False),
    ):
        bound = bound_condition(table, names, DEFAULT, where)
        assert usable(table, made, conjuncts(bound)) is used, where

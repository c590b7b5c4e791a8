"""Random expressions (made.py), printed for DuckDB: as PostgreSQL 15 answers them
(made.json, by scripts/record_sql_printing.py), as closures do, and as DuckDB's own parser reads
the same text with parentheses everywhere.

KVORUM_MADE=n makes n more of another seed, for what needs no recorded answer.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
from duckdb.func import FunctionNullHandling, PythonUDFType

from sqlproxy.analytic.forms import users
from sqlproxy.analytic.selects import Query, Selects
from sqlproxy.duck import ducktext
from sqlproxy.front import front
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.statements import Select, SelectItem
from sqlproxy.front.closures.compiling import compile
from sqlproxy.values.errors import SqlError
from tests.sqlproxy.analytic.made import ROWS, SEED, VALUES, made
from tests.sqlproxy.front.names import FakeNames

RECORDED: Final = json.loads(Path(__file__).with_name("made.json").read_text(encoding="utf-8"))
MORE: Final = int(os.environ.get("KVORUM_MADE", "0"))
_PARTS: Final = 4
_READ: Final = 200  # by DuckDB's parser, besides the longer run's


def _part(number: int) -> list[list[Any]]:
    found: list[list[Any]] = RECORDED[number::_PARTS]
    return found


@cache
def _link() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
    return made


def _bound(expression: str) -> Select:
    # what is sorted by is computed in DuckDB
    text = f"select ({expression})::text from {VALUES} order by m.id, 1"
    bound = front.bind(front.parse(text), FakeNames())
    assert isinstance(bound, Select)
    return bound


def _rendered(expression: str) -> tuple[Selects, Query]:
    selects = Selects(Env())
    return selects, selects.query(_bound(expression))


def _run(expression: str) -> list[str | None] | str:
    """The values, or the SQLSTATE."""
    selects, query = _rendered(expression)
    link = _link().cursor()
    functions = list(selects.functions.made.values())
    try:
        for one in functions:
            link.create_function(
                one.name,
                one.call,
                list(one.parameters),
                one.result,
                type=PythonUDFType.ARROW,
                null_handling=FunctionNullHandling.SPECIAL,
                side_effects=one.volatile,
            )
        column = link.sql(query.text).to_arrow_table().column(0).combine_chunks()
        return users(column, query.columns[0].oid, query.columns[0].held)
    except duckdb.Error as error:
        if selects.functions.failed is not None:
            return selects.functions.failed.sqlstate
        return "22012" if "Division by zero" in str(error) else str(error)
    finally:
        for one in functions:
            link.remove_function(one.name)
        link.close()


def _closure(expression: str) -> list[str | None] | str:
    """The same by closures."""
    bound = _bound(expression)
    (item,) = bound.items
    assert isinstance(item, SelectItem)
    assert item.select.values is not None
    fn = compile(bound.targets[0].expr).fn
    rows = [[compile(one).fn((), Env()) for one in row] for row in item.select.values]
    try:
        return [fn(row, Env()) for row in rows]
    except SqlError as error:
        return error.sqlstate


def _tree(text: str) -> Any:
    found = _link().execute("SELECT json_serialize_sql(?)", [text]).fetchone()
    assert found is not None
    tree = json.loads(found[0])
    assert not tree["error"], text
    return _without_places(tree)


def _without_places(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_places(one) for one in node]
    if isinstance(node, dict):
        return {k: _without_places(v) for k, v in node.items() if "location" not in k}
    return node


def _same(found: list[str | None] | str, wanted: list[str | None] | str) -> bool:
    """What PostgreSQL answers is answered; where it raises, to raise less is no fault."""
    return found == wanted or (isinstance(wanted, str) and isinstance(found, list))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
def test_an_expression_is_computed_as_postgresql_does(part: int) -> None:
    """An operator lost its operands' parentheses on the way to DuckDB, or ran before its guard."""
    for expression, wanted in _part(part):
        assert _same(_run(expression), wanted), expression


@pytest.mark.few(1)
@pytest.mark.parametrize("part", range(_PARTS))
def test_closures_compute_an_expression_as_postgresql_does(part: int) -> None:
    """The way without DuckDB computes in another order, or otherwise."""
    for expression, wanted in _part(part):
        assert _same(_closure(expression), wanted), expression


@pytest.mark.slow
def test_a_text_means_what_it_means_with_all_parentheses(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB's parser puts an operand elsewhere than the printer meant it."""
    some = [one[0] for one in RECORDED[:_READ]] + made(MORE, SEED + 1)
    plain = [_rendered(one)[1].text for one in some]
    with monkeypatch.context() as patch:
        patch.setattr(ducktext, "operand", lambda text, of: f"({text})")
        full = [_rendered(one)[1].text for one in some]
    for one, text, other in zip(some, plain, full, strict=True):
        if "kv_f" in text:  # functions have a new name each time
            text, other = _unnumbered(text), _unnumbered(other)
        assert _tree(text) == _tree(other), one


def _unnumbered(text: str) -> str:
    head, *rest = text.split("kv_f")
    return head + "".join("kv_f" + one.lstrip("0123456789") for one in rest)


def test_more_expressions_are_computed_alike() -> None:
    """DuckDB and closures differ on an expression of a longer run (KVORUM_MADE)."""
    for expression in made(MORE, SEED + 1):
        assert _same(_run(expression), _closure(expression)), expression


def test_what_is_recorded_is_what_is_made() -> None:
    """The generator was changed and nothing was recorded since."""
    assert [one[0] for one in RECORDED] == made(len(RECORDED))
    assert len(RECORDED) >= 480
    assert sum(isinstance(one[1], list) for one in RECORDED) > len(RECORDED) * 0.8
    assert all(len(one[1]) == len(ROWS) for one in RECORDED if isinstance(one[1], list))


@pytest.mark.parametrize(
    "constant",
    [
        "array_fill(1, array[100000])",
        "array_fill('x'::text, array[100000])",
        "repeat('x', 100000)",
        "repeat('x', 100000)::bytea",
        "array[repeat('x', 100000)]",
    ],
)
@pytest.mark.parametrize(
    "form", ["{}", "coalesce({}, {})", "case when m.i > 1 then {} end", "(m.t || {}::text) = 'x'"]
)
def test_a_large_constant_is_no_text(constant: str, form: str) -> None:
    """DuckDB reads 0.2 ms for each element of a list that is written out: minutes."""
    text = form.format(*([constant] * 2))
    bound = front.bind(front.parse(f"select {text} from {VALUES} order by 1"), FakeNames())
    assert isinstance(bound, Select)
    assert len(Selects(Env()).query(bound).text) < 10_000


@pytest.mark.parametrize(
    ("pattern", "native"),
    [
        ("%special%requests%", True),
        ("%a%a%a%a%b", True),
        ("a" * 32 + "%" + "_" * 32, True),
        ("%" + "a" * 33 + "b%", False),
        ("a" * 100_000 + "b%", False),
        ("%" + "_a" * 17 + "b", False),
        ("a%" * 40_000, True),
    ],
)
@pytest.mark.parametrize("negated", ["", "not "])
def test_a_pattern_that_compares_much_is_not_duckdbs(
    pattern: str, native: bool, negated: str
) -> None:
    """At each character of a text it compares the whole piece of the pattern: 16 MiB and 4,000
    characters were minutes, in which nothing ended the query.
    """
    text = f"select m.t from {VALUES} where m.t {negated}like '{pattern}' order by 1"
    bound = front.bind(front.parse(text), FakeNames())
    assert isinstance(bound, Select)
    assert (" LIKE " in Selects(Env()).query(bound).text) is native

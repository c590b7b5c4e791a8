"""Long lists of literals: read beside the parser they mean the same, and cost little."""

from __future__ import annotations

import asyncio
import sys
import threading
from decimal import Decimal
from typing import Any

import pytest

from kv.base.limits import SQL_TOKENS_MAX
from sqlproxy.analytic.selects import Selects
from sqlproxy.front import front
from sqlproxy.front.binding.binder import Binder
from sqlproxy.front.bound.env import Env
from sqlproxy.front.closures.compiling import compile
from sqlproxy.front.syntax import bulk_lists, syntax
from sqlproxy.front.syntax.syntax import parse, whole
from sqlproxy.loop.statement_threads import aside
from sqlproxy.values.errors import SqlError
from tests.sqlproxy.front.names import FakeNames

N = 3_000
INTS = ", ".join(map(str, range(-5, N)))
TEXTS = ",".join(f"'x{n}'" for n in range(N))
ROWS = ", ".join(f"({n}, '({n})', null)" for n in range(N))
PAIRS = ", ".join(f"({n}, 'x{n}')" for n in range(N))
NUMBERS = ", ".join(f"({n}, {n})" for n in range(N))
LISTS = {
    "decimals": f"select c in ({INTS}, 17.00, -9.0, 1e2, 2.5e-1) from t",
    "only decimals": "select c not in (" + ",".join(f"{n}.0" for n in range(N)) + ") from t",
    "decimals of int": f"select a in ({INTS}, 17.5, 1e2) from t",
    "doubled quote": f"select b in ({TEXTS}, 'it''s', '''', '') from t",
    "odd strings": f"select b in ({TEXTS}, 'a\\b', 'a\"b', '[--]', '/*') from t",
    "rows": f"select (a, b) in ({PAIRS}) from t",
    "no rows": f"select (a, b) not in ( {PAIRS} , (null, 'x-9'), (-9, null)) from t",
    "rows of numbers": f"select (c, a) in ({NUMBERS}, (17.0, 17)) from t",
    "rows in a change": f"update t set b = 'y' where (a, b) in ({PAIRS})",
    "decimal values": f"select * from (values {ROWS}, (1.50, 'it', 1e-3)) v (i, s, n)",
    "int4": f"select a in ({INTS}) from t",
    "not in": f"select a not in ({INTS}, null) from t",
    "int8": f"select a in ({INTS}, 5000000000, 7) from t",
    "numeric": f"select c in ({INTS}) from t",
    "large": f"select a in ({INTS}, 123456789012345678901234567890) from t",
    "text": f"select b in ({TEXTS}) from t",
    "quoted numbers": f"select a in ('1', {INTS}, '2') from t",
    "moments": "select d in ("
    + ",".join(f"'2024-01-{1 + n % 28:02} 12:{n % 60:02}:00+00'" for n in range(100))
    + ") from t",
    "update": f"update t set b = 'y' where a in ({INTS})",
    "two": f"select a from t where a in ({INTS}) and b not in ({TEXTS})",
    "values": f"select * from (values {ROWS}) v (i, s, n)",
    "upcase": f"SELECT a IN({INTS}) FROM t",
    "beside strings": f"select 'in (1)', \"b\", -- in (1)\n a in ({INTS}) from t",
}
LEFT_ALONE = {
    "expression": f"select a in ({INTS}, 1 + 1) from t",
    "decimal without a digit": f"select c in ({INTS}, .5) from t",
    "commented": f"select b in ({TEXTS}, -- 'x'\n 'y') from t",
    "two in one": f"select b in ({TEXTS}, 'a'\n'b') from t",
    "rows of expressions": f"select (a, b) in ({PAIRS}, (1 + 1, 'x')) from t",
    "booleans": f"select b in ({TEXTS}, true) from t",
    "escapes": f"select e'\\'', a in ({INTS}) from t",
    "dollars": f"select $$'$$, a in ({INTS}) from t",
    "comment": f"select /* ' */ a in ({INTS}) from t",
    "in a string": f"select 'a in ({INTS})' from t",
    "in a name": f'select a as "a in ({INTS})" from t',
    "in a comment": f"select a from t -- a in ({INTS})",
    "part of a name": f"select margin({INTS})",
    "insert": f"insert into u (a, v, x) values {ROWS}",
    "short": "select a in (1, 2, 3) from t",
    "ragged": f"select * from (values {ROWS}, (1)) v",
}


def _bound(parsed: Any) -> Any:
    return front.bind(parsed, FakeNames())


@pytest.mark.few(3)
@pytest.mark.parametrize("text", LISTS.values(), ids=LISTS)
def test_a_list_means_what_the_parser_says(text: str) -> None:
    """A value of a long list is lost, or read as another type than PostgreSQL's."""
    parsed = parse(text)
    assert parsed is not None
    assert parsed.lists
    short, long = _bound(parsed), _bound(whole(text))
    assert getattr(short, "fields", None) == getattr(long, "fields", None)
    if getattr(short, "values", None) or (short.items and not hasattr(short.items[0], "table")):
        assert short.items[0].select.values == long.items[0].select.values
        return
    row = (17, "x17", Decimal(17), None, 18)
    for one, other in zip(_tests(short), _tests(long), strict=True):
        for value in (17, -9, None):
            number = None if value is None else Decimal(value)
            seen = (value, None if value is None else f"x{value}", number, *row[3:])
            assert compile(one).fn(seen, Env()) is compile(other).fn(seen, Env())


def _tests(bound: Any) -> list[Any]:
    if bound.where is not None:
        return [bound.where]
    return [target.expr for target in bound.targets if target.expr.oid == 16]


@pytest.mark.parametrize("text", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_is_no_plain_list_is_the_parsers(text: str) -> None:
    """Text in a string, a name or a comment is taken for a list; or an expression for a literal."""
    found = bulk_lists.read(text)
    parsed = parse(text)
    assert parsed is not None
    assert not parsed.lists
    assert found is None or parsed.kind == "InsertStmt"


def test_an_error_is_told_as_of_the_whole_text() -> None:
    """Positions are those of the template, or a list that does not fit is another error."""
    for text in (
        f"select nothing, a in ({INTS}) from t",
        f"select a in ({INTS}), nothing from t",
        f"select a in ({TEXTS}) from t",
        f"select (a, b) in ({INTS}) from t",
    ):
        with pytest.raises(SqlError) as told:
            _bound(parse(text))
        with pytest.raises(SqlError) as expected:
            _bound(whole(text))
        assert (told.value.sqlstate, told.value.message, told.value.position) == (
            expected.value.sqlstate,
            expected.value.message,
            expected.value.position,
        )


@pytest.mark.parametrize("name", ["int4", "text", "values", "update"])
def test_a_list_costs_no_work_for_each_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each literal goes through the parser and the binder: 50,000 held the node for a minute."""
    parsed_chars, bound = 0, 0
    tree, expr = syntax._parsed, Binder.expr

    def reading(text: str) -> Any:
        nonlocal parsed_chars
        parsed_chars += len(text)
        return tree(text)

    def binding(self: Binder, *args: Any) -> Any:
        nonlocal bound
        bound += 1
        return expr(self, *args)

    monkeypatch.setattr(syntax, "_parsed", reading)
    monkeypatch.setattr(Binder, "expr", binding)
    (part,) = syntax.split(LISTS[name] + " ;")
    _bound(parse(part))
    assert parsed_chars < 200
    assert bound < 20


def test_a_list_of_parameters_costs_the_same_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Binding IN of parameters is quadratic in their number."""

    def steps(count: int) -> int:
        calls = 0

        def count_call(*args: Any) -> None:
            nonlocal calls
            calls += 1

        text = f"select a in ({', '.join(f'${n + 1}' for n in range(count))}) from t"
        parsed = whole(text)
        sys.setprofile(count_call)
        try:
            _bound(parsed)
        finally:
            sys.setprofile(None)
        return calls

    steps(50)
    assert steps(2_000) < 25 * steps(100)


@pytest.mark.slow
def test_known_rows_are_no_text_for_duckdb() -> None:
    """Values are written into DuckDB's text, which it reads for a second."""
    for name in ("int4", "text", "values"):
        parsed = parse(LISTS[name])
        selects = Selects(Env())
        query = selects.query(_bound(parsed))
        assert len(query.text) < 500
        assert next(len(rows.item.rows) for rows in selects.known.values()) >= N


async def test_a_long_statement_is_read_beside_the_loop() -> None:
    """A long statement holds the loop; or a short one pays for a thread."""
    here = threading.get_ident()
    assert await aside("select 1", threading.get_ident) == here
    assert await aside("select 1" + " " * 100_000, threading.get_ident) != here
    with pytest.raises(SqlError):
        await aside("x" * 100_000, front.split, "(" * 100_000)
    deep = "select " + "not " * 19_000 + "true" + " " * 100_000
    with pytest.raises(SqlError) as told:
        await asyncio.wait_for(aside(deep, whole, deep), 60)
    assert told.value.sqlstate == "54001"


@pytest.mark.few(1)
@pytest.mark.parametrize("text", ["SELECT {}1", "SELECT 1 WHERE 1 IN ({}1+1)", "SELECT array[{}1]"])
def test_what_is_no_plain_list_has_a_bound(text: str) -> None:
    """A tree of millions of nodes is read in one call, which holds the interpreter for seconds."""
    with pytest.raises(SqlError) as refused:
        front.parse(text.format("1," * SQL_TOKENS_MAX))
    assert refused.value.sqlstate == "54001"
    assert str(SQL_TOKENS_MAX) in refused.value.message


def test_plain_lists_and_rows_have_none() -> None:
    """A large INSERT that was taken is refused."""
    many = SQL_TOKENS_MAX
    rows = ",".join(f"({n},'it,s ({n}')" for n in range(many // 4))
    for text in (
        f"SELECT 1 WHERE 1 IN ({','.join(map(str, range(many)))})",
        "SELECT 1 WHERE 'a' IN ({})".format(",".join(f"'a,{n}'" for n in range(many))),
        f"SELECT * FROM (VALUES {rows}) v",
        f"INSERT INTO t VALUES {rows}",
    ):
        (parsed,) = [front.parse(one) for one in front.split(text)]
        assert parsed is not None
        read = parsed.rows.count if parsed.rows is not None else len(parsed.lists[0])
        assert read in (many, many // 4)

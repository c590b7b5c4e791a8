"""Functions in SQL, put where they are called: what a statement that calls one is bound to."""

from __future__ import annotations

from typing import Any

import pytest

from sqlproxy.front import front
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Column, walk
from sqlproxy.front.bound.statements import SelectItem, SubQuery
from sqlproxy.front.closures.compiling import compile
from sqlproxy.values.errors import SqlError
from tests.sqlproxy.front.names import FakeNames

MADE = (
    "create function add(a int, b int default 2) returns int language sql as 'select a + $2'",
    "create function add(a text) returns text language sql as $$ select a || add.a; $$",
    "create function lower(int) returns int return $1 * 10",
    "create function either_of(a int, b int) returns int language sql strict "
    "as 'select coalesce(a, b)'",
    "create function of_t(n bigint) returns text language sql as 'select b from t where a = n'",
    "create function count_t() returns bigint language sql stable as 'select count(*) from t'",
    "create function rows_of(n int) returns table(x int, y text) language sql "
    "as 'select a, c from t where a > n'",
    "create function many() returns setof int language sql as 'values (1), (2)'",
    "create function whole() returns setof t language sql as 'select * from t'",
    "create function outer_one(a int) returns int language sql as 'select add(a => a, b => 7)'",
)


def bind(text: str, names: FakeNames) -> Any:
    return front.bind(front.parse(text), names)


@pytest.fixture
def names() -> FakeNames:
    found = FakeNames()
    for text in MADE:
        made = bind(text, found)
        assert isinstance(made, d.CreateFunction)
        found.made.append(made.function)
    return found


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("add(1)", 3),
        ("add(1, 5)", 6),
        ("add(b => 5, a => 1)", 6),
        ("add(1, b => 5)", 6),
        ("public.add(1)", 3),
        ("add('x')", "xx"),
        ("add(2::smallint)", 4),
        ("lower('X')", "x"),
        ("lower(4)", 40),
        ("either_of(1, NULL)", None),
        ("either_of(1, 2)", 1),
        ("outer_one(add(1))", 10),
    ],
)
def test_a_value_is_what_the_body_computes(names: FakeNames, call: str, value: object) -> None:
    """Another function would be meant, an argument land at another place, or a default be lost."""
    (target,) = bind(f"select {call}", names).targets
    assert compile(target.expr).fn((), Env()) == value
    assert target.name == call.split("(")[0].split(".")[-1]


def test_columns_of_the_caller_are_seen_from_inside(names: FakeNames) -> None:
    """An argument would be read as a column of the function's own table."""
    (target,) = bind("select of_t(x) from u", names).targets
    assert isinstance(target.expr, SubQuery)
    where = target.expr.select.where
    assert where is not None
    found = [one for one in walk(where) if isinstance(one, Column)]
    assert sorted((one.level, one.relation, one.name) for one in found) == [
        (0, "t", "a"),
        (1, "u", "x"),
    ]
    limited = [
        one.expr.select.limit is not None
        for one in bind("select of_t(1), count_t()", names).targets
    ]
    assert limited == [True, False], "the first row is meant; of one row there is no other"


def test_rows_are_a_query_in_from(names: FakeNames) -> None:
    """Columns would have the names or types of the body, not the declared ones."""
    found = bind("select r.*, z, whole.b from u, rows_of(u.a) r, many() z, whole()", names)
    assert [(f.name, f.oid) for f in found.fields] == [("x", 23), ("y", 25), ("z", 23), ("b", 25)]
    assert sum(isinstance(item, SelectItem) and item.lateral for item in found.items) == 3


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("select add()", "42883"),
        ("select add(1, 2, 3)", "42883"),
        ("select add(nope => 1)", "42883"),
        ("select add(1, a => 1)", "42883"),
        ("select add(a => 1, a => 2)", "42601"),
        ("select add(1) over () from t", "42809"),
        ("select many()", "0A000"),
        ("select * from many() with ordinality", "0A000"),
        ("select either_of(random()::int, 1)", "0A000"),
        ("select of_t((select 1))", "0A000"),
        ("create table n (id int primary key, v int default add(1))", "0A000"),
        ("create table n (id int primary key, v int check (add(v) > 1))", "0A000"),
        ("create table n (id int primary key, v int generated always as (add(id)) stored)",
         "0A000"),
        ("create index on t (b) where add(a) > 1", "0A000"),
        ("create function f() returns int language plpgsql as 'begin end'", "0A000"),
        ("create function f() returns trigger language sql as 'select 1'", "0A000"),
        ("create function f() returns void language sql as 'select 1'", "0A000"),
        ("create procedure f() language sql as 'select 1'", "0A000"),
        ("create function f() returns int language sql as 'select 1; select 2'", "0A000"),
        ("create function f() returns int language sql as ''", "0A000"),
        ("create function f() returns int language sql as 'delete from t returning a'", "0A000"),
        ("create function f() returns int language sql as "
         "'with x as (delete from t returning a) select a from x'", "0A000"),
        ("create function f() returns int language sql as 'select a from t for update'", "0A000"),
        ("create function f() returns bigint language sql as $$select nextval('s')$$", "0A000"),
        ("create function f() returns bool language sql as "
         "'select pg_try_advisory_lock(1)'", "0A000"),
        ("create function f(a anyelement) returns int language sql as 'select 1'", "0A000"),
        ("create function f(variadic a int[]) returns int language sql as 'select 1'", "0A000"),
        ("create function f(out a int, out b int) language sql as 'select 1, 2'", "0A000"),
        ("create function f() returns int language sql security definer as 'select 1'", "0A000"),
        ("create function f() returns int as 'select 1'", "42P13"),
        ("create function f() returns int language sql as $$select 'x'::text$$", "42P13"),
        ("create function f() returns table(a int) language sql as 'select 1, 2'", "42P13"),
        ("create function f(a int, a int) returns int language sql as 'select 1'", "42P13"),
        ("create function f(a int default 1, b int) returns int language sql as 'select 1'",
         "42P13"),
        ("create function f() returns int language sql as 'select nope'", "42703"),
        ("create function f(a int) returns int language sql as 'select $2'", "42P02"),
        ("drop function add", "42725"),
        ("drop function add(bool)", "42883"),
        ("drop function nope", "42883"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(names: FakeNames, text: str, state: str) -> None:
    """Half of what a function says would be done, or a program be told something else."""
    with pytest.raises(SqlError) as caught:
        bind(text, names)
    assert caught.value.sqlstate == state, caught.value


def test_a_function_of_itself_ends(names: FakeNames) -> None:
    """A statement would take all memory, or for ever."""
    names.made = [one for one in names.made if one.title != "outer_one"]
    again = bind(
        "create function outer_one(a int) returns int language sql as 'select add(a)'", names
    ).function
    names.made.append(again)
    twice = bind(
        "create or replace function outer_one(a int) returns int language sql as "
        "'select outer_one(a) + outer_one(a)'",
        names,
    ).function
    names.made.remove(again)
    names.made.append(twice)
    with pytest.raises(SqlError) as caught:
        bind("select outer_one(1)", names)
    assert caught.value.sqlstate == "54001"
    assert caught.value.where == 'SQL function "outer_one" during inlining'


def test_a_drop_names_what_is_meant(names: FakeNames) -> None:
    """Another function of the same name would go."""
    found = bind("drop function if exists add(int, int), nope(int), many", names)
    assert found.names == ("add(23,23)", "many()")
    assert found.skipped == ("function nope(integer) does not exist, skipping",)

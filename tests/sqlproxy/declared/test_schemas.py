"""Names in several schemas of one database, and the paths on which they are found."""

from __future__ import annotations

import pytest

from kv.base.errors import InvalidArgument
from kv.base.ids import TableId
from sqlproxy.catalog.privileges import Place
from sqlproxy.catalog.relations import Relations
from sqlproxy.declared.database import Declared, name_of
from sqlproxy.front import front
from sqlproxy.front.types.quoting import held_relation, read_relation
from sqlproxy.rows.naming import (
    InSchema,
    bare,
    check_name,
    database_of,
    named,
    namespace_of,
    nextval_of,
    schema_in,
    schema_of,
)
from sqlproxy.rows.schema import Column, Table
from sqlproxy.session.state.settings import search_path
from sqlproxy.values.errors import SqlError


def _table(number: int, namespace: str, name: str, column: str) -> Table:
    return Table(
        id=TableId(number),
        namespace=namespace,
        name=name,
        state="public",
        columns=(Column(1, column, "int4"),),
        primary_key=(column,),
        primary_key_name=f"{name}_pkey",
    )


PUBLIC = _table(5, "shop", "orders", "a")
SALES = _table(6, "shop:sales", "orders", "b")
LONE = _table(7, "shop:sales", "lone", "c")
DECLARED = Declared(
    Relations("shop", (PUBLIC, SALES, LONE), (), ()),
    1,
    Place("shop"),
    {"sales": Place("shop:sales")},
)


def columns(text: str, declared: Declared = DECLARED) -> list[str]:
    """The names of what a query answers, bound."""
    bound = front.bind(front.parse(text), declared)
    assert isinstance(bound, front.s.Select)
    return [field.name for field in bound.fields]


def test_p4_a_name_in_a_schema_equals_no_other() -> None:
    """A table of one schema is taken for that of another."""
    name = named("sales", "orders")
    assert isinstance(name, InSchema)
    assert name != "orders"
    assert name != named("hr", "orders")
    assert name == named("sales", "orders")
    assert len({name, named("sales", "orders"), "orders"}) == 2
    assert f"{name}" == "orders"
    assert type(bare(name)) is str
    assert named("public", "orders") == "orders"
    assert (schema_in(name), schema_in("orders")) == ("sales", "public")


def test_p4_a_schema_is_a_namespace() -> None:
    """A schema's namespace could be that of another database, or be refused."""
    assert namespace_of("shop", "public") == "shop"
    assert namespace_of("shop", "s") == "shop:s"
    assert (database_of("shop:s"), schema_of("shop:s"), schema_of("shop")) == (
        "shop",
        "s",
        "public",
    )
    check_name("namespace", "shop:s-1")
    for wrong in ("shop:", ":s", "shop:s:t", "shop:a b", "shop:" + "x" * 65):
        with pytest.raises(InvalidArgument):
            check_name("namespace", wrong)
    with pytest.raises(InvalidArgument):
        check_name("tag", "shop:s")


def test_p4_names_are_found_along_the_path() -> None:
    """A statement is bound to the table of another schema."""
    assert columns("SELECT * FROM orders") == ["a"]
    assert columns("SELECT * FROM sales.orders") == ["b"]
    assert columns("SELECT * FROM public.orders o JOIN sales.orders s ON o.a = s.b") == ["a", "b"]
    along = DECLARED.along(("nobody", "sales", "public"))
    assert along.path == ("sales", "public")
    assert along is DECLARED.along(("sales", "public")), "one path is one object: plans have it"
    assert DECLARED.along(("public",)) is DECLARED
    assert along.along(("public",)) is DECLARED
    assert columns("SELECT * FROM orders", along) == ["b"]
    assert columns("SELECT * FROM lone", along) == ["c"]
    assert columns("SELECT * FROM public.orders", along) == ["a"]
    for text, sqlstate in (
        ("SELECT * FROM lone", "42P01"),
        ("SELECT * FROM hr.orders", "42P01"),
        ("CREATE TABLE hr.t (a int)", "3F000"),
        ("DROP TABLE hr.t", "3F000"),
    ):
        with pytest.raises(SqlError) as found:
            front.bind(front.parse(text), DECLARED)
        assert found.value.sqlstate == sqlstate, text
    for text, sqlstate in (
        ("SELECT * FROM orders", "42P01"),
        ("SELECT 'orders'::regclass", "42P01"),
        ("CREATE TABLE t (a int)", "3F000"),
        ("CREATE TYPE m AS ENUM ('a')", "3F000"),
        ("CREATE SEQUENCE q", "3F000"),
        ("CREATE VIEW v AS SELECT 1", "3F000"),
        ("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "3F000"),
    ):
        with pytest.raises(SqlError) as found:
            front.bind(front.parse(text), DECLARED.along(()))
        assert found.value.sqlstate == sqlstate, text
    assert columns("SELECT * FROM public.orders", DECLARED.along(())) == ["a"]
    assert [name_of(one) for one in (PUBLIC, SALES)] == ["orders", named("sales", "orders")]


def test_p4_texts_that_name_relations() -> None:
    """A default takes numbers from a sequence of another schema."""
    assert read_relation("sales.Orders") == named("sales", "orders")
    assert read_relation("public.orders") == read_relation("ORDERS") == "orders"
    assert held_relation('sales."A b"') == 'sales."A b"'
    assert held_relation("public.t") == "t"
    assert nextval_of("q", "sales") == "nextval('sales.q'::regclass)"
    found = DECLARED.along(("sales", "public")).relations()
    assert found.find("orders") == "sales.orders"
    assert found.find("public.orders") == "orders"
    assert DECLARED.relations().find("lone") is None


def test_p4_a_search_path_is_read_as_postgresql_reads_it() -> None:
    """A quoted name is folded, or the system's schemas hide the users'."""
    assert search_path('"$user", public') == ("$user", "public")
    assert search_path('Sales, "Big One",pg_catalog, sales') == ("sales", "Big One")
    assert search_path('""') == ()

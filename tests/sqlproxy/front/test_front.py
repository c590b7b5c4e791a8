"""Splitting, MySQL's words, AS OF, kinds, definitions, commands, and what protects the process."""

from __future__ import annotations

from typing import Any

import pytest

from sqlproxy.front import front
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.bound import statements as s
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Call, Column, Param
from sqlproxy.front.closures import compiling
from sqlproxy.front.syntax.syntax import parse, split
from sqlproxy.values.errors import SqlError
from tests.kit.each import each
from tests.sqlproxy.front.names import FakeNames


def bind(text: str) -> Any:
    return front.bind(parse(text), FakeNames())


def refused(text: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        bind(text)
    return caught.value


def test_p1_a_text_is_split_as_postgresql_does() -> None:
    """A semicolon in a literal, a comment or an empty part would make a statement of its own."""
    text = "select ';' as é; -- a;b\n begin;; select $$a;b$$ ;"
    assert split(text) == ["select ';' as é", "begin", "select $$a;b$$"]
    assert split(" ; ") == []
    assert isinstance(bind("  "), s.Empty)


def test_p1_a_syntax_error_counts_characters() -> None:
    """The caret of psql would stand bytes, not characters, to the right."""
    error = refused("select 'éé' frm x")
    assert (error.sqlstate, error.position) == ("42601", 17)
    assert error.message == 'syntax error at or near "x"'


@pytest.mark.few(2)
@pytest.mark.parametrize("link", ["+", "- -", " collate x + "])
def test_p1_a_deep_statement_does_not_end_the_process(link: str) -> None:
    """libpg_query recurses in C without looking at the stack: a chain this long killed the node."""
    assert refused("select 1" + f"{link}1" * 150_000).sqlstate == "54001"


def test_p1_nesting_beyond_ours_is_an_error() -> None:
    """A RecursionError would end the session instead of the statement."""
    assert refused("select " + "not " * 3_000 + "true").sqlstate == "54001"


def test_p13_mysqls_words_are_taken_out_of_create_table() -> None:
    """AUTO_INCREMENT, ON UPDATE CURRENT_TIMESTAMP and KEY fail, or change what literals hold."""
    made = bind(
        "create table z (id int auto_increment primary key, b text default 'auto_increment', "
        "at timestamp default now() on update current_timestamp, key (b), "
        "unique key zz (b, at desc))"
    )
    assert isinstance(made, d.CreateTable)
    identity, text, at = made.columns
    assert identity.identity == "by default"
    assert text.default == "auto_increment"
    assert at.on_update == "current_timestamp"
    assert [(k.name, k.unique, [(p.column, p.descending) for p in k.parts]) for k in made.keys] == [
        (None, True, [("id", False)]),
        (None, False, [("b", False)]),
        ("zz", True, [("b", False), ("at", True)]),
    ]
    assert [c.name for c in bind("create table z (key int primary key, index int)").columns] == [
        "key",
        "index",
    ]


def test_c3_as_of_system_time() -> None:
    """A read of the past would read the present, or its time would be taken from a literal."""
    assert bind("select * from t as of system time '-10s' where a = 1").as_of == "'-10s'"
    assert bind("select ' as of system time 1'").as_of is None
    asked = bind("select * from t as of system time $1")
    assert (asked.as_of, asked.parameters) == ("$1", (25,))
    newest = bind("select * from t as of system time follower_read_timestamp ( ) where a = 1")
    assert newest.as_of == "follower_read_timestamp()"
    bounded = bind("select * from t as of system time With_Max_Staleness('10s')")
    assert bounded.as_of == "with_max_staleness('10s')"
    for wrong in ("now()", "follower_read_timestamp", "with_max_staleness(10)"):
        assert refused(f"select * from t as of system time {wrong}").sqlstate == "42601"
    assert refused("select * from t as of system time 1, u as of system time 2").sqlstate == "42601"


def test_p1_what_must_be_looked_up() -> None:
    """A relation that a statement names would be missing when it is bound."""
    parsed = parse(
        "with q as (select * from a) select nextval('s1') from q, public.b join c using (x)"
    )
    assert parsed is not None
    assert {"a", "b", "c", "s1"} <= front.relations(parsed)


def test_p4_a_table_with_everything() -> None:
    """A constraint, a default or a generated column is lost or read wrongly."""
    made = bind(
        "create table z (id bigserial primary key, a int not null default 5 check (a > 0), "
        "b varchar(10), n numeric(8,3) default 1.5, at timestamptz default now(), "
        "g int generated always as (a * 2) stored, i int generated always as identity (start 5), "
        "constraint zu unique (a, b), foreign key (a) references t (a) on delete cascade "
        "deferrable initially deferred) with (replicas = 3, tags = 'ssd,eu')"
    )
    columns = {c.name: c for c in made.columns}
    assert columns["id"].serial
    assert (columns["a"].default, columns["a"].nullable) == (5, False)
    assert str(columns["n"].default) == "1.500"
    assert (columns["at"].default, columns["at"].default_sql) == (None, "now()")
    assert (columns["g"].generated, columns["g"].uses) == ("a * 2", ("a",))
    assert (columns["i"].identity, columns["i"].sequence) == ("always", {"start": 5})
    assert made.checks == (d.CheckDef(name=None, sql="a > 0", columns=("a",)),)
    assert (made.keys[1].name, made.keys[1].constraint) == ("zu", True)
    (foreign,) = made.foreign_keys
    assert (foreign.table, foreign.on_delete, foreign.deferred) == ("t", "cascade", True)
    assert made.options == {"replicas": 3, "tags": ("ssd", "eu")}


@each(
    ("text", "state"),
    [
        ("create table z (a int, a int)", "42701"),
        ("create table z (a nosuch)", "42704"),
        ("create table z (a int default 'x')", "22P02"),
        ("create table z (a int default true)", "42804"),
        ("create table z (a int default b)", "0A000"),
        ("create table z (a int check (b > 1))", "42703"),
        ("create table z (a int check (a + 1))", "42804"),
        ("create table z (a int check (count(*) > 1))", "42803"),
        ("create table z (a int primary key, b int primary key)", "42P16"),
        ("create table z (a int, primary key (b))", "42703"),
        ("create table z (a int, g text generated always as (now()::text) stored)", "42P17"),
        ("create table z (a int) with (nosuch = 1)", "22023"),
        ("create table z (a int) inherits (t)", "0A000"),
        ("create table z (like nosuch)", "42P01"),
        ("create table z (a int, like t)", "42701"),
        ("create temp table public.z (a int)", "42P16"),
        ("create table z (a int) on commit drop", "42P16"),
        ("create unlogged table z (a int)", "0A000"),
        ("declare c cursor for select 1 into temp z", "42601"),
        ("create table nosuch.z (a int)", "3F000"),
        ("create index on t (now())", "42P17"),
        ("create index on t ((1))", "0A000"),
        ("create index on t (a) include (lower(b))", "0A000"),
        ("create index on t (b) where now() > 'epoch'", "42P17"),
        ("create index on t (nocolumn)", "42703"),
        ("create index on t using gin (b)", "0A000"),
        ("create view v as select $1", "42P02"),
        ("create view v as select 1 as a, 2 as a", "42701"),
        ("create sequence q increment 0", "22023"),
        ("create schema other create table t (a int)", "0A000"),
        ("create schema pg_other", "42939"),
        ("create schema public", "42P06"),
        ("drop schema other", "3F000"),
        ("drop schema public", "0A000"),
        ("alter table nosuch add column a int", "42P01"),
        ("alter table t add column a int", "42701"),
        ("alter table t drop column nosuch", "42703"),
        ("alter table t alter column b type int", "42804"),
        ("alter table t drop constraint nosuch", "42704"),
        ("create function f() returns int as '' language sql", "0A000"),
        ("create trigger x before insert on t execute function f()", "0A000"),
        ("alter default privileges grant execute on functions to bob", "0A000"),
        ("comment on type t is 'x'", "0A000"),
        ("do 'x'", "0A000"),
        ("prepare transaction 'x'", "0A000"),
        ("copy t from '/etc/passwd'", "0A000"),
        ("copy t to program 'x'", "0A000"),
        ("copy t from stdin (format xml)", "22023"),
        ("copy t from stdin (delimiter 'ab')", "0A000"),
        ("copy t (g) from stdin", "42P10"),
        ("copy t (a) from stdin where g = 1", "42P10"),
        ("copy t (a) from stdin where a in (select 1)", "0A000"),
        ("copy t (a) from stdin where count(*) > 1", "42803"),
        ("copy t (a) from stdin where a", "42804"),
        ("explain (nosuch) select 1", "42601"),
        ("explain (format toml) select 1", "22023"),
    ],
)
def test_p4_refused(text: str, state: str) -> None:
    """What is not supported, or wrong, would be accepted silently."""
    assert refused(text).sqlstate == state


def test_p4_a_view_keeps_the_columns_that_it_was_made_with() -> None:
    """A column added to the table later would appear in the view, or break it."""
    made = bind("create view v as select x.*, 1 as one from t x")
    assert made.sql == "SELECT x.a AS a, x.b AS b, x.c AS c, x.d AS d, x.g AS g, 1 AS one FROM t x"
    assert made.columns[0] == ("a", "int4")
    assert made.uses == ((5, (1, 2, 3, 4, 5)),)


def test_p13_alterations() -> None:
    """ALTER TABLE would lose an action or read it wrongly."""
    made = bind(
        "alter table t add column q int default 3 not null unique, drop column b cascade, "
        "alter c type text using c::text, alter d drop default, alter c set not null"
    )
    drop, default, kind, add, unique, nullable = made.actions
    assert (add.column.name, add.column.default, add.column.nullable) == ("q", 3, False)
    assert unique.constraint.unique
    assert drop == d.DropColumn("b", False, True)
    assert kind == d.SetType("c", "text", "c::text", ("c",))
    assert default == d.SetDefault("d")
    assert nullable == d.SetNullable("c", False)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("begin isolation level serializable read only", s.Begin("serializable", True, None)),
        ("start transaction read write", s.Begin(None, False, None, start=True)),
        ("commit and chain", s.Commit(True)),
        ("rollback to savepoint a", s.RollbackTo("a")),
        ("release a", s.Release("a")),
        ("set local x.y to 1, 'b'", s.SetVariable("x.y", ("1", "b"), True)),
        ("set timezone to default", s.SetVariable("timezone", None)),
        ("reset all", s.Reset("all")),
        ("discard all", s.Discard("all")),
        ("deallocate p", s.Deallocate("p")),
        ("fetch backward 5 from c", s.Fetch("c", "backward", 5)),
        ("move all in c", s.Fetch("c", "forward", None, True)),
        ("close c", s.ClosePortal("c")),
        ("prepare p (int) as select $1", s.Prepare("p", (23,), "select $1")),
        ("set transaction read only", s.SetTransaction(s.Begin(None, True, None))),
        ("drop user if exists bob", s.DropRole(("bob",), True)),
        ("drop table if exists a, public.b cascade", d.Drop("table", ("a", "b"), True, True)),
        ("alter table t rename column a to z", d.Rename("column", "t", "z", "a")),
    ],
)
def test_p10_commands(text: str, wanted: Any) -> None:
    """A statement of the session would be read as another."""
    assert bind(text) == wanted


@pytest.mark.parametrize("option", ["force_not_null", "force_null"])
def test_p10_a_star_is_no_list_of_columns(option: str) -> None:
    """COPY would take it, and read the rows as if it were not there."""
    assert refused(f"copy t from stdin (format csv, {option} *)").sqlstate == "42P10"


def test_p1_a_password_is_not_shown() -> None:
    """A password would be in logs and tracebacks."""
    made = bind("create user bob password 'secret'")
    assert made.options.password == "secret"
    assert "secret" not in repr(made)


def test_p8_conjuncts_stay_readable() -> None:
    """The planner could not find column = parameter in what is bound."""
    made = bind("select * from t where a = $1 and b > 'x' and (c = 1 or c = 2)")
    first, second, third = made.conjuncts
    assert isinstance(first, Call)
    column, parameter = first.args
    assert isinstance(column, Column)
    assert isinstance(parameter, Param)
    assert (first.operator, column.name, column.attribute, parameter.oid) == ("=", "a", 1, 23)
    assert (second.operator, third.op) == (">", "or")
    assert made.table is made.items[0]


def test_p1_rows_and_parameters_in_closures() -> None:
    """Three-valued logic, or the order of a row's columns, is lost on the way to the closure."""
    made = bind("select a + $1, b || 'x', a in (1, 2, null), not (a = $1 and b = 'q') from t")
    fns = [compiling.compile(t.expr).fn for t in made.targets]
    env = Env(params=(10,))
    assert [f((1, "q", None, None, None), env) for f in fns] == [11, "qx", True, True]
    assert [f((3, None, None, None, None), env) for f in fns] == [13, None, None, True]
    assert [f((10, None, None, None, None), env) for f in fns] == [20, None, None, None]


@pytest.mark.parametrize(
    ("text", "taken", "perhaps", "unsure"),
    [
        ("nextval('s') + nextval('s')", ("s", "s"), (), False),
        ("case when nextval('s') > 1 then nextval('s') else 0 end", ("s",), ("s",), True),
        ("coalesce(nextval('s'), nextval('s'))", ("s",), ("s",), True),
        ("nextval('s') > 1 and nextval('s') > 2", ("s",), ("s",), True),
        ("nextval(a || 's')", (), (), True),
        ("setval('s', 1)", (), (), True),
        ("currval('s')", (), (), False),
    ],
)
def test_p13_numbers_that_may_not_be_taken_are_not_counted(
    text: str, taken: tuple[str, ...], perhaps: tuple[str, ...], unsure: bool
) -> None:
    """Numbers would be reserved for branches that nothing takes, or be missing where they are."""
    made = compiling.compile(bind(f"select {text} from t").targets[0].expr)
    assert (made.taken, made.perhaps, made.unsure) == (taken, perhaps, unsure)
    assert made.numbered == (bool(taken) or unsure)


def test_p13_a_null_beside_it_does_not_keep_a_number_from_being_taken() -> None:
    """PostgreSQL computes all arguments of a strict function before it looks for NULLs."""
    fn = compiling.compile(bind("select b || nextval('s') from t").targets[0].expr).fn
    taken: list[str] = []

    def nextval(name: str) -> int:
        taken.append(name)
        return len(taken)

    env = Env(nextval=nextval)
    assert fn((1, None, None, None, None), env) is None
    assert fn((1, "x", None, None, None), env) == "x2"


def test_p13_sequences_are_named_for_their_reservation() -> None:
    """nextval would have to wait inside an expression."""
    made = compiling.compile(bind("select nextval('public.s') + 1").targets[0].expr)
    assert (made.taken, made.perhaps, made.unsure) == (("s",), (), False)
    assert made.volatile
    assert made.fn((), Env(nextval=lambda name: 41)) == 42

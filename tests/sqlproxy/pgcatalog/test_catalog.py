"""The system catalog beside what PostgreSQL answers: changes, sessions, the views of kvorum,
errors.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kv.base.ids import TableId
from sqlproxy.front.syntax.syntax import parse
from sqlproxy.pg import oids
from sqlproxy.pgcatalog import oids as ours_oids
from sqlproxy.pgcatalog.catalog import Answer, SystemCatalog
from sqlproxy.pgcatalog.contents import Contents, Role, Session
from sqlproxy.pgcatalog.relations import FED
from sqlproxy.pgcatalog.views import VIEWS, Reported
from sqlproxy.rows.schema import PUBLIC, Column, Index, IndexColumn, Table
from sqlproxy.values.errors import SqlError
from sqlproxy.values.memory import Budget, Share, spending
from tests.sqlproxy.pgcatalog import sample
from tests.sqlproxy.pgcatalog.asking import DATABASE

PROCEDURES: list[Reported] = [
    {
        "id": "7",
        "name": "transfer",
        "state": "FAILED",
        "step": "deposit",
        "owner": "ann",
        "parent": None,
        "created_ms": 1_000,
        "updated_ms": 2_000,
        "attempt": 1,
        "locks": [{"mode": "x", "resource": "bank"}],
        "error": {"code": "NO_FUNDS", "message": "too little"},
    },
    {
        "id": "8",
        "name": "transfer",
        "state": "SUCCESS",
        "step": "",
        "owner": "bob",
        "parent": "7",
        "created_ms": 1_500,
        "updated_ms": 2_500,
        "attempt": 1,
        "locks": [],
        "result": {"ok": True},
    },
]


async def procedures() -> Sequence[Reported]:
    return PROCEDURES


async def tables() -> Sequence[Reported]:
    return [{"oid": ours_oids.relation(100), "size": 20_480, "name": "users"}]


class Asker:
    """The catalog, a session and a database, each to be changed by a test."""

    def __init__(self, catalog: SystemCatalog) -> None:
        self.catalog = catalog
        self.session = Session(user="postgres", database=DATABASE, pid=7, now_us=1_000_000)
        self.cluster, self.contents = sample.cluster(), sample.contents()

    def answer(self, text: str, *values: Any, declared: Sequence[int] = ()) -> Answer:
        parsed = parse(text)
        assert parsed is not None
        prepared = self.catalog.prepare(text, parsed.body, declared)
        return asyncio.run(
            self.catalog.execute(prepared, values, self.session, self.cluster, self.contents)
        )

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.answer(text, *values).rows]

    def change(self, *relations: Table, gone: Sequence[int] = ()) -> None:
        kept = {i: r for i, r in self.contents.relations.items() if i not in gone}
        self.contents = replace(self.contents, relations=kept | {r.id: r for r in relations})


@pytest.fixture(scope="module")
def catalog() -> Iterator[SystemCatalog]:
    made = SystemCatalog("PostgreSQL 15.0 (test)", {"procedures": procedures, "tables": tables})
    yield made
    made.close()


@pytest.fixture
def ask(catalog: SystemCatalog) -> Asker:
    return Asker(catalog)


def body(text: str) -> dict[str, Any]:
    parsed = parse(text)
    assert parsed is not None
    return parsed.body


def users(ask: Asker) -> Table:
    table = ask.contents.relations[100]
    assert isinstance(table, Table)
    return table


COLUMNS = (
    "SELECT attname FROM pg_attribute WHERE attrelid = 'users'::regclass AND attnum > 0 "
    "ORDER BY attnum"
)


@pytest.mark.slow
def test_a_changed_table_replaces_its_own_rows_only(ask: Asker) -> None:
    """A column that was added would not be seen, or the old rows would stay beside the new."""
    before = ask.rows("SELECT oid, relname FROM pg_class WHERE oid >= 16384 ORDER BY oid")
    table = users(ask)
    more = Column(4, "mail", "text")
    ask.change(replace(table, columns=(*table.columns, more), version=2))
    assert [name for (name,) in ask.rows(COLUMNS)] == ["id", "name", "created", "mail"]
    assert ask.rows("SELECT oid, relname FROM pg_class WHERE oid >= 16384 ORDER BY oid") == before


def test_a_renamed_table_is_renamed_where_others_refer_to_it(ask: Asker) -> None:
    """A foreign key would be shown with a table that is not there any more."""
    ask.change(replace(users(ask), name="people", version=2))
    (shown,) = ask.rows(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'addr_uid_fkey'"
    )
    assert shown == ("FOREIGN KEY (uid) REFERENCES people(id)",)
    with pytest.raises(SqlError) as refused:
        ask.rows("SELECT 'users'::regclass")
    assert refused.value.sqlstate == "42P01"


def test_a_dropped_table_leaves_nothing(ask: Asker) -> None:
    """A client would offer a table, an index or a type that cannot be used."""
    ask.rows(COLUMNS)
    ask.change(gone=[103, 104])
    assert ask.rows("SELECT 1 FROM pg_class WHERE relname ~ '^addr'") == []
    assert ask.rows("SELECT 1 FROM pg_type WHERE typname ~ '^_?addr'") == []
    assert ask.rows("SELECT 1 FROM pg_attribute WHERE attrelid = 16384 + 103") == []


def test_databases_do_not_see_each_other(ask: Asker) -> None:
    """A table of another database would be listed by \\d."""
    other = Asker(ask.catalog)
    other.contents = Contents("postgres", {})
    other.session = replace(other.session, database="postgres")
    mine = "SELECT count(*), current_database() FROM pg_class WHERE relkind = 'r' AND oid >= 16384"
    assert ask.rows(mine) == [(5, "sample")]
    assert other.rows(mine) == [(0, "postgres")]
    assert ask.rows(mine) == [(5, "sample")]


def test_q7_parts_that_are_not_public_are_not_shown(ask: Asker) -> None:
    """An index that is being built would be taken for one that can be read."""
    building = Index(TableId(900), "building", (IndexColumn(1),), state="write_only")
    hidden = Column(9, "coming", "text", state="delete_only")
    table = users(ask)
    ask.change(replace(table, indexes=(*table.indexes, building), columns=(*table.columns, hidden)))
    assert ask.rows("SELECT 1 FROM pg_class WHERE relname = 'building'") == []
    assert ("coming",) not in ask.rows(COLUMNS)


@pytest.mark.slow
def test_a_plain_table_has_a_key_and_a_value(ask: Asker) -> None:
    """Key-value tables would be without columns, which no client can show."""
    ask.change(Table(id=TableId(500), namespace="sample", name="kv", state=PUBLIC))
    found = ask.rows(
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns "
        "WHERE table_name = 'kv' ORDER BY ordinal_position"
    )
    assert found == [("key", "bytea", "NO"), ("value", "bytea", "NO")]
    assert ask.rows("SELECT pg_get_indexdef('kv_pkey'::regclass)") == [
        ("CREATE UNIQUE INDEX kv_pkey ON public.kv USING btree (key)",)
    ]


def test_roles_and_databases_follow_the_cluster(ask: Asker) -> None:
    """\\du and \\l would show what there was when the process began."""
    ask.cluster = replace(
        ask.cluster,
        databases=("postgres", "shop"),
        roles=(Role("root"), Role("ann", superuser=False, member_of=("root",))),
    )
    assert ask.rows("SELECT datname FROM pg_database ORDER BY 1") == [("postgres",), ("shop",)]
    assert ask.rows(
        "SELECT rolname, rolsuper FROM pg_roles WHERE rolname !~ '^pg_' ORDER BY 1"
    ) == [
        ("ann", False),
        ("root", True),
    ]
    assert ask.rows("SELECT tableowner FROM pg_tables WHERE tablename = 'users'") == [("root",)]


@pytest.mark.slow
def test_kvorum_views_are_tables(ask: Asker) -> None:
    """Operators could not filter, join or order what the cluster tells of itself."""
    assert ask.rows("SELECT id, error_code FROM kvorum.procedures WHERE state='FAILED'") == [
        (7, "NO_FUNDS")
    ]
    joined = ask.answer(
        "SELECT c.id, p.name, c.created, c.result FROM kvorum.procedures c "
        "JOIN kvorum.procedures p ON p.id = c.parent ORDER BY c.id"
    )
    assert [tuple(r) for r in joined.rows] == [
        (8, "transfer", datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC), '{"ok":true}')
    ]
    assert [f.oid for f in joined.fields] == [oids.INT8, oids.TEXT, oids.TIMESTAMPTZ, oids.JSONB]
    counted = ask.rows("SELECT state, count(*) FROM kvorum.procedures GROUP BY state ORDER BY 1")
    assert counted == [("FAILED", 1), ("SUCCESS", 1)]


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_every_kvorum_view_can_be_read_and_described(ask: Asker, name: str) -> None:
    """A view without a provider would fail instead of being empty; \\d would not know its
    columns.
    """
    answer = ask.answer(f"SELECT * FROM kvorum.{name}")
    shown = ask.rows(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) ORDER BY attnum",
        f"kvorum.{name}",
    )
    assert (
        [f.name for f in answer.fields]
        == [n for (n,) in shown]
        == [c.name for c in VIEWS[name].columns]
    )


@pytest.mark.few(10)
@pytest.mark.parametrize("name", FED)
def test_every_fed_relation_can_be_read(ask: Asker, name: str) -> None:
    """A dashboard's query over a view that nobody fills would fail instead of being empty."""
    if ("pg_catalog", name) in ask.catalog._relations.all:
        ask.answer(f"SELECT * FROM pg_catalog.{name}")


@pytest.mark.slow
def test_every_system_relation_can_be_read(ask: Asker) -> None:
    """A view of PostgreSQL whose text is not understood would be found by a user."""
    failed = []
    for schema, name in sorted(ask.catalog._relations.all):
        try:
            ask.answer(f'SELECT * FROM {schema}."{name}" LIMIT 1')
        except SqlError as error:
            failed.append((schema, name, error.sqlstate, error.message))
    assert failed == []


@pytest.mark.slow
def test_sizes_come_from_the_cluster(ask: Asker) -> None:
    """\\dt+ would tell that every table is empty."""
    text = (
        "SELECT pg_size_pretty(pg_total_relation_size('users'::regclass)), "
        "pg_table_size('addr'::regclass)"
    )
    assert ask.rows(text) == [("20 kB", 0)]


def test_set_config_tells_what_to_set(ask: Asker) -> None:
    """asyncpg and Django set the time zone and jit in this way; it would be lost."""
    ask.session = replace(ask.session, settings={"jit": "on"})
    answer = ask.answer(
        "SELECT current_setting('jit') AS cur, set_config('jit', $1, false) AS new", "off"
    )
    assert [tuple(r) for r in answer.rows] == [("on", "off")]
    assert [f.name for f in answer.fields] == ["cur", "new"]
    assert [(c.name, c.value, c.local) for c in answer.changes] == [("jit", "off", False)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT CASE WHEN pid = 0 THEN pg_terminate_backend(pid) END FROM pg_stat_activity",
        "SELECT pid FROM pg_stat_activity WHERE pid = 0 OR pg_cancel_backend(pid)",
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity",
        "VALUES (pg_terminate_backend(1))",
    ],
)
def test_p10_sessions_are_ended_by_what_is_a_column_only(ask: Asker, text: str) -> None:
    """It is done for every row that comes out: a CASE would end the sessions that it spares."""
    with pytest.raises(SqlError) as refused:
        ask.answer(text)
    assert refused.value.sqlstate == "0A000"
    answer = ask.answer("SELECT pid, pg_terminate_backend(pid) AS x FROM (SELECT 7 AS pid) q")
    assert [(c.value, c.local) for c in answer.changes] == [("7", True)]


@pytest.mark.slow
def test_the_search_path_decides_what_is_visible(ask: Asker) -> None:
    """Names would be shown without the schema that they need, or tables hidden that can be
    named.
    """
    text = "SELECT pg_table_is_visible('public.users'::regclass), 'public.users'::regclass::text"
    assert ask.rows(text) == [(True, "users")]
    ask.session = replace(ask.session, search_path=("kvorum",))
    assert ask.rows(text) == [(False, "public.users")]
    assert ask.rows("SELECT current_schema(), current_schemas(false)") == [("kvorum", ["kvorum"])]


def test_parameters_take_the_types_of_what_they_are_compared_with(ask: Asker) -> None:
    """A driver would send text where an OID or an array is meant."""
    text = (
        "SELECT relname FROM pg_class WHERE oid = $1 AND relkind = ANY($2) "
        "AND relname = $3::varchar LIMIT $4"
    )
    prepared = ask.catalog.prepare(text, body(text))
    assert prepared.parameters == (oids.OID, 1002, oids.VARCHAR, oids.INT8)
    declared = ask.catalog.prepare("SELECT $1", body("SELECT $1"), [oids.INT4])
    assert declared.parameters == (oids.INT4,)
    assert ask.rows(text, ours_oids.relation(100), ["r", "v"], "users", 5) == [("users",)]


def test_fields_name_the_column_that_they_come_from(ask: Asker) -> None:
    """psycopg and ODBC ask where a column comes from; PostgreSQL tells table and number."""
    fields = ask.answer("SELECT c.relname, upper(c.relname) FROM pg_class c LIMIT 1").fields
    assert [(f.table, f.column) for f in fields] == [(1259, 2), (0, 0)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT version()", True),
        ("SELECT current_schema()", True),
        ("SELECT current_user", True),
        ("SELECT 'users'::regclass", True),
        ("SELECT * FROM pg_class", True),
        ("SELECT * FROM kvorum.nodes n JOIN pg_class c ON true", True),
        ("WITH x AS (SELECT 1) SELECT * FROM x, information_schema.tables", True),
        ("SELECT 1", False),
        ("SELECT lower('A'), now()", False),
        ("SELECT * FROM users", False),
        ("SELECT * FROM users u JOIN pg_class c ON c.relname = u.name", False),
        ("SELECT nextval('s')", False),
    ],
)
def test_it_says_which_statements_are_its_own(ask: Asker, text: str, wanted: bool) -> None:
    """A statement over users' tables would be refused here, or one over the catalog elsewhere."""
    assert ask.catalog.answers(body(text)) is wanted


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("SELECT c FROM pg_class c", "0A000"),
        ("SELECT * FROM pg_class FOR UPDATE", "0A000"),
        ("SELECT relname FROM pg_class GROUP BY ROLLUP (relname)", "0A000"),
        ("SELECT read_csv('/etc/passwd')", "42883"),
        ("SELECT * FROM pg_class, (SELECT getvariable('x')) y", "42883"),
        ("SELECT * FROM duckdb_tables", "42P01"),
        ("SELECT relname FROM pg_class WHERE relname", "42804"),
        ("SELECT 1 FROM pg_class WHERE oid = (SELECT oid FROM pg_class)", "21000"),
        ("SELECT 1 / (relpages - relpages) FROM pg_class", "22012"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(ask: Asker, text: str, sqlstate: str) -> None:
    """Something else would be answered than was asked, or DuckDB's own functions could be
    reached.
    """
    with pytest.raises(SqlError) as refused:
        ask.rows(text)
    assert refused.value.sqlstate == sqlstate, refused.value.message


def test_a_cancelled_statement_ends(ask: Asker) -> None:
    """A cross join over the catalog would keep a thread for hours after its client has gone."""
    text = (
        "SELECT count(*) FROM pg_proc a, pg_proc b, pg_proc c "
        "WHERE a.proname || b.proname > c.proname"
    )
    prepared = ask.catalog.prepare(text, body(text))

    async def run() -> float:
        work = asyncio.ensure_future(
            ask.catalog.execute(prepared, [], ask.session, ask.cluster, ask.contents)
        )
        await asyncio.sleep(0.3)
        began = time.monotonic()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        return time.monotonic() - began

    assert asyncio.run(run()) < 5


@pytest.mark.slow
def test_stale_rows_do_not_pile_up(ask: Asker) -> None:
    """A table that is altered all day would make the catalog grow without end."""
    table = users(ask)
    for version in range(2, 330):
        ask.change(replace(table, version=version))
        ask.catalog._store.follow(ask.cluster, ask.contents)
    assert max(ask.catalog._store._stale.values()) < 1_100
    assert [name for (name,) in ask.rows(COLUMNS)] == ["id", "name", "created"]


_NESTED = {
    "quote_ident({})": "relname",
    "pg_size_pretty(length({})::bigint)": "relname",
    "obj_description(1, {}::name)": "'pg_class'",
    "pg_get_expr({}, 1::oid, true)": "relname",
    "pg_index_column_has_property(1::regclass, 1, {}::text)": "'asc'",
    "quote_literal({})": "relname",
    "repeat({}, 9)": "relname",
    "array_cat({0}, {0})": "array['a']",
}


@pytest.mark.parametrize("call", _NESTED)
def test_calls_inside_of_calls_do_not_grow_without_end(ask: Asker, call: str) -> None:
    """A text that doubles with each call takes all the memory, or DuckDB a day to bind."""
    value = _NESTED[call]
    for _ in range(30 if call.count("{0}") < 2 else 12):
        value = call.format(value)
    began = time.thread_time()
    with suppress(SqlError):
        ask.rows(f"SELECT length(({value})::text) FROM pg_class WHERE relname = 'pg_class'")
    assert time.thread_time() - began < 5


@pytest.mark.parametrize(
    "text",
    [
        "SELECT repeat(relname, 100000000) FROM pg_class",
        "SELECT md5(repeat(relname, 1000000)) FROM pg_class",
        "SELECT lpad(relname, 1000000) FROM pg_class",
        "SELECT replace(repeat(relname, 9999), 'p', repeat('x', 9999)) FROM pg_class",
    ],
)
def test_large_values_are_refused(ask: Asker, text: str) -> None:
    """DuckDB does not count the bytes of its texts: one statement takes all of a node's memory."""
    budget = Budget(Share(), 32 << 20)
    with spending(budget), pytest.raises(SqlError) as refused:
        ask.rows(text)
    assert refused.value.sqlstate in ("54000", "53200")
    assert budget.used == 0


@pytest.mark.parametrize("operator", ["LIKE", "ILIKE", "~"])
def test_patterns_over_the_catalog_do_not_backtrack(ask: Asker, operator: str) -> None:
    """A pattern holds one of the threads for hours, and nothing ends it."""
    pattern = "(a*)*b" if operator == "~" else "%a" * 20 + "b"
    text = f"SELECT count(*) FROM pg_class WHERE repeat('a', 20000) {operator} '{pattern}'"
    assert ask.rows(text) == [(0,)]


def test_like_over_the_catalog_means_what_it_means_elsewhere(ask: Asker) -> None:
    """A driver that looks for tables by a pattern finds others, or none."""
    for condition in (
        "relname LIKE 'pg\\_cl%'",
        "relname LIKE 'pg!_cl%' ESCAPE '!'",
        "relname ILIKE 'PG_CLASS'",
        "relname ~ '^pg_class$'",
        "relname ~* '^PG_CLASS$'",
    ):
        assert ("pg_class",) in ask.rows(f"SELECT relname FROM pg_class WHERE {condition}")
        negated = ask.rows(f"SELECT relname FROM pg_class WHERE NOT ({condition})")
        assert ("pg_class",) not in negated

"""The system catalog beside what PostgreSQL answers: changes, sessions, the views of kvorum,
errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kv.base.ids import TableId
from sqlproxy.pg import oids
from sqlproxy.pgcatalog import oids as ours_oids
from sqlproxy.pgcatalog.contents import Named, Role
from sqlproxy.pgcatalog.static import load
from sqlproxy.pgcatalog.views import VIEWS, Reported
from sqlproxy.rows.schema import PUBLIC, Column, Index, IndexColumn, Table
from sqlproxy.values.errors import SqlError
from tests.sqlproxy.pgcatalog import sample
from tests.sqlproxy.pgcatalog.asking import Ours

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


class Asker(Ours):
    """A database, to be changed by a test."""

    @property
    def relations(self) -> dict[int, Named]:
        return dict(self.declared.contents.relations)

    def change(self, *relations: Table, gone: Sequence[int] = ()) -> None:
        kept = {i: r for i, r in self.relations.items() if i not in gone}
        self.show((kept | {int(r.id): r for r in relations}).values())

    def fields(self, text: str) -> Any:
        bound: Any = self.bound(text).bound
        return bound.fields


@pytest.fixture(scope="module")
def made() -> Iterator[Asker]:
    found = Asker({"procedures": procedures, "tables": tables})
    yield found
    found.close()


@pytest.fixture
def ask(made: Asker) -> Asker:
    """As it was made."""
    made.user, made.settings, made.cluster = "postgres", {}, sample.cluster()
    made.show(sample.relations())
    return made


def users(ask: Asker) -> Table:
    table = ask.relations[100]
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
    mine = "SELECT count(*), current_database() FROM pg_class WHERE relkind = 'r' AND oid >= 16384"
    assert ask.rows(mine) == [(5, "sample")]
    ask.show((), "postgres")
    assert ask.rows(mine) == [(0, "postgres")]
    ask.show(sample.relations())
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
    text = (
        "SELECT c.id, p.name, c.created, c.result FROM kvorum.procedures c "
        "JOIN kvorum.procedures p ON p.id = c.parent ORDER BY c.id"
    )
    assert ask.rows(text) == [
        (8, "transfer", datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC), '{"ok":true}')
    ]
    assert [f.oid for f in ask.fields(text)] == [
        *(oids.INT8, oids.TEXT, oids.TIMESTAMPTZ, oids.JSONB)
    ]
    counted = ask.rows("SELECT state, count(*) FROM kvorum.procedures GROUP BY state ORDER BY 1")
    assert counted == [("FAILED", 1), ("SUCCESS", 1)]


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_every_kvorum_view_can_be_read_and_described(ask: Asker, name: str) -> None:
    """A view without a provider would fail instead of being empty; \\d would not know its
    columns.
    """
    text = f"SELECT * FROM kvorum.{name}"
    ask.rows(text)
    shown = ask.rows(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) ORDER BY attnum",
        f"kvorum.{name}",
    )
    assert (
        [f.name for f in ask.fields(text)]
        == [n for (n,) in shown]
        == [c.name for c in VIEWS[name].columns]
    )


@pytest.mark.few(5)
@pytest.mark.parametrize("path", sorted(f"{s}.{n}" for s, n in load().layouts))
def test_every_system_relation_can_be_read(ask: Asker, path: str) -> None:
    """A view of PostgreSQL whose text is not understood, or which nobody fills, would be found by a
    user.
    """
    schema, name = path.split(".")
    text = f'SELECT * FROM {schema}."{name}"'
    ask.rows(f"{text} LIMIT 1")
    shown = [(f.name, f.oid, f.typmod) for f in ask.fields(text)]
    assert shown == [(c.name, c.type, c.typmod) for c in load().layouts[schema, name]]


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
    ask.settings = {"jit": "on"}
    text = "SELECT current_setting('jit'), set_config('jit', $1, false)"
    assert ask.rows(text, "off") == [("on", "off")]
    assert ask.acted.pop() == ("set_config", "jit", "off", False)


def test_parameters_take_the_types_of_what_they_are_compared_with(ask: Asker) -> None:
    """A driver would send text where an OID or an array is meant."""
    text = (
        "SELECT relname FROM pg_class WHERE oid = $1 AND relkind = ANY($2) "
        "AND relname = $3::varchar LIMIT $4"
    )
    bound: Any = ask.bound(text).bound
    assert bound.parameters == (oids.OID, 1002, oids.VARCHAR, oids.INT8)
    assert ask.rows(text, ours_oids.relation(100), ["r", "v"], "users", 5) == [("users",)]


def test_fields_name_the_column_that_they_come_from(ask: Asker) -> None:
    """psycopg and ODBC ask where a column comes from; PostgreSQL tells table and number."""
    fields = ask.fields("SELECT c.relname, upper(c.relname) FROM pg_class c LIMIT 1")
    assert [(f.table, f.column) for f in fields] == [(1259, 2), (0, 0)]
    (field,) = ask.fields("SELECT viewname FROM pg_views")
    assert (field.table, field.column) == (ours_oids_of(ask, "pg_views"), 2)


def ours_oids_of(ask: Asker, name: str) -> int:
    return ask.declared.relations().oid(name)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT tableoid::regclass::text FROM pg_class WHERE oid = 1259", [("pg_class",)]),
        (
            "SELECT (x.k).n, (x.k).x FROM (SELECT information_schema._pg_expandarray(indkey) AS k "
            "FROM pg_index WHERE indexrelid = 'part_pkey'::regclass) x",
            [(1, 1)],
        ),
        (
            "SELECT pg_catalog.pg_class.relname, count(*) FROM pg_catalog.pg_class "
            "WHERE pg_class.oid = 1259 GROUP BY pg_catalog.pg_class.oid",
            [("pg_class", 1)],
        ),
        (
            "SELECT array_lower(indkey, 1), array_upper(indkey, 1), generate_subscripts(indkey, 1) "
            "FROM pg_index WHERE indexrelid = 'item_pkey'::regclass",
            [(0, 1, 0), (0, 1, 1)],
        ),
        ("SELECT word FROM pg_get_keywords() WHERE word = 'select'", [("select",)]),
        ("SELECT count(*) FROM pg_timezone_names() WHERE name = 'UTC'", [(1,)]),
        (
            "SELECT grantee, privilege_type, is_grantable FROM aclexplode(acldefault('s', 10))",
            [(10, "SELECT", False), (10, "UPDATE", False), (10, "USAGE", False)],
        ),
        ("SELECT acldefault('d', 10)", [(["=Tc/postgres", "postgres=CTc/postgres"],)]),
    ],
)
def test_what_only_the_catalog_has(ask: Asker, text: str, rows: list[Any]) -> None:
    """A tool that reads these as PostgreSQL's own do would be refused."""
    assert ask.rows(text) == rows


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("SELECT * FROM pg_class FOR UPDATE", "0A000"),
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

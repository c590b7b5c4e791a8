"""How often a function is computed: not for rows that nobody gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import psycopg
import pytest

import kvorum
from sqlproxy.front.functions.all_functions import FUNCTIONS
from tests.kit.machine import free_port_base

pytestmark = pytest.mark.cluster

_ROWS: Final = 3_000
_VALUES: Final = ", ".join(f"({i}, 'v{i}')" for i in range(1, 101))
# FROM items with columns i and v, of many rows
SOURCES: Final = {
    "a series": f"(select i, i::text as v from generate_series(1, {_ROWS}) i) s",
    "a table": "t s",
    "a query over a table": "(select i, v from t where i > 0) s",
    "a sorted query": "(select i, v from t order by v) s",
    "values": f"(values {_VALUES}) s(i, v)",
    "a join": "(t a join t b using (i, v)) s",
    "an outer join": "(select a.i, a.v from t a left join t b on a.i = b.i) s",
    "a union": "(select i, v from t union all select i, v from t) s",
    "groups": "(select i, max(v) as v from t group by i) s",
    "rows with numbers": "(select i, v, row_number() over (order by v) as n from t) s",
    "distinct rows": "(select distinct i, v from t) s",
    "an array": "(select i, i::text as v from unnest(array(select i from t)) i) s",
    "items beside each other": "(select a.i, b.v from t a, lateral (select a.v) b) s",
}
# {s}: the source; and how often md5 may be computed
FORMS: Final = {
    "select md5(v) from {s} limit 5": 5,
    "select md5(v) from {s} fetch first 5 rows only": 5,
    "select md5(v) from {s} limit 5 offset 3": 8,
    "select md5(v) from {s} limit 0": 0,
    "select i, md5(v) from {s} order by i desc limit 5": 5,
    "select md5(v), length(md5(v || i)) from {s} order by s.v, i limit 5": 10,
    "select m from (select md5(v) as m from {s} limit 5) x": 5,
    "select m from (select i, md5(v) as m from {s} order by i desc limit 5) x where i > 0": 5,
    "select count(*) from (select md5(v) as m from {s} order by i limit 5) x": 5,
    "with w as (select i, md5(v) as m from {s} order by i limit 5) select max(m) from w": 5,
    "(select md5(v) from {s} order by i limit 5) union all select 'x'": 5,
    "select exists (select md5(v) from {s})": 1,
    "select 1 where 'x' in (select md5(v) from {s} order by i limit 5)": 5,
    "select (select md5(v) from {s} order by i limit 1)": 1,
    "select array(select md5(v) from {s} order by i limit 5)": 5,
    "select i, md5(max(v)) from {s} group by i order by i limit 5": 5,
    "select md5(v), rank() over (order by i) from {s} order by i limit 5": 5,
}


class _Counted:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, value: str) -> str:
        self.calls += 1
        return f"<{value[:9]}>"


@pytest.fixture(scope="module")
def counted() -> Iterator[_Counted]:
    """md5, in this process."""
    counted, known = _Counted(), FUNCTIONS["md5_text"]
    FUNCTIONS["md5_text"] = replace(known, call=counted)
    yield counted
    FUNCTIONS["md5_text"] = known


@pytest.fixture(scope="module")
def link(
    counted: _Counted, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[psycopg.Connection]:
    """A node in this process, and a table."""
    base = free_port_base()
    with kvorum.open(tmp_path_factory.mktemp("counted") / "data", port=base):
        address = f"host=127.0.0.1 port={base + 3} user=kvorum dbname=postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("create table t (i int primary key, v text)")
            connection.execute(f"insert into t select i, i from generate_series(1, {_ROWS}) i")
            yield connection


@pytest.mark.few(1)
@pytest.mark.parametrize("source", SOURCES)
def test_what_a_bound_leaves_out_is_not_computed(
    link: psycopg.Connection, counted: _Counted, source: str
) -> None:
    """A function that takes milliseconds is computed for every row of a table, to give out five."""
    much = []
    for form, most in FORMS.items():
        counted.calls = 0
        link.execute(form.format(s=SOURCES[source]).encode()).fetchall()
        if counted.calls > most:
            much.append((form, counted.calls))
    assert not much


@pytest.mark.parametrize("source", SOURCES)
def test_a_cursor_computes_what_is_fetched(
    link: psycopg.Connection, counted: _Counted, source: str
) -> None:
    """The first row of a cursor waits until a thousand rows are computed."""
    for condition, more in (("", 1), ("where md5(v) <> ''", 2)):
        counted.calls = 0
        with link.transaction():
            text = f"declare c cursor for select md5(v) from {SOURCES[source]} {condition}"
            link.execute(text.encode())
            assert not counted.calls
            if condition and "t s" not in SOURCES[source] and "values" not in SOURCES[source]:
                continue  # DuckDB looks at 2,048 rows at once
            for fetched in (1, 2, 5, 20, 60):
                count = fetched // 2 or 1
                assert len(link.execute(f"fetch forward {count} from c").fetchall()) == count
                if source != "values":  # which are as many as the statement is long
                    assert counted.calls <= more * 2 * fetched


@pytest.mark.few(1)
@pytest.mark.parametrize("source", SOURCES)
def test_a_large_constant_is_computed_once(
    link: psycopg.Connection, counted: _Counted, source: str
) -> None:
    """What is too large for a plan is computed for each row: a thousand rows take minutes."""
    for text in (
        "select md5(repeat('x', 100000)), v from {s}",
        "select md5(repeat('x', 100000)) || v from {s}",
        "select i from {s} where md5(repeat('x', 100000)) <> v",
        "select i from {s} where length(md5(repeat('x', 100000)) || v) > 5 order by v",
        "select case when i > 1 then md5(repeat('x', 100000)) else v end from {s}",
        "select count(md5(repeat('x', 100000)) || v) from {s}",
    ):
        counted.calls = 0
        assert link.execute(text.format(s=SOURCES[source]).encode()).fetchall()
        assert counted.calls <= 4, text  # bound, planned, folded for DuckDB, computed

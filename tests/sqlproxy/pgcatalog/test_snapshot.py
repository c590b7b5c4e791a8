"""The snapshot that functions and statements over users' tables ask, beside the DuckDB that answers
queries over the system's relations.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sqlproxy.front.functions.object_names import HELD_AS_OIDS
from sqlproxy.front.functions.regclass import Relations
from sqlproxy.pg import oids
from sqlproxy.pgcatalog.catalog import SystemCatalog
from sqlproxy.pgcatalog.contents import Session
from sqlproxy.pgcatalog.fixed_rows import fixed
from sqlproxy.pgcatalog.row_bases import CHANGING
from sqlproxy.pgcatalog.row_cluster import SHARED
from sqlproxy.pgcatalog.snapshot import Asked, Snapshot
from sqlproxy.pgcatalog.static import CATALOG, load
from tests.sqlproxy.pgcatalog.asking import DATABASE, Ours

TABLES = sorted({n for n in (*fixed().names, *CHANGING, *SHARED) if "." not in n})


@pytest.fixture(scope="module")
def ours() -> Iterator[Ours]:
    catalog = SystemCatalog("PostgreSQL 15.0 (Kvorum)")
    yield Ours(catalog, Session(user="postgres", database=DATABASE, pid=7))
    catalog.close()


@pytest.mark.few(8)
@pytest.mark.parametrize("name", TABLES)
def test_both_have_the_same_rows(ours: Ours, name: str) -> None:
    """A join with a table would see other rows, or other values, than a query without one."""
    snapshot = Snapshot(ours.cluster, ours.contents)
    found = Asked(snapshot, Relations("", ()), {}).rows(f"{CATALOG}.{name}")
    assert found is not None
    layout = load().layouts[CATALOG, name]
    texts = {oids.REGTYPE, oids.ANYARRAY}
    listed = ", ".join(
        f'"{c.name}"{"::oid" if c.type in HELD_AS_OIDS else "::text" if c.type in texts else ""}'
        for c in layout
    )
    asked = ours.rows(f"SELECT {listed} FROM {CATALOG}.{name}")
    assert len(found) == len(asked)
    for place, column in enumerate(layout):
        mine = sorted(map(repr, found.column(place)))
        assert mine == sorted(repr(row[place]) for row in asked), column

"""What the catalog says may be changed is what can be changed."""

from __future__ import annotations

import psycopg
import pytest

from tests.clients.sql.conftest import Sql


@pytest.mark.slow
def test_b10_views_are_told_as_what_they_are(sql: Sql) -> None:
    """A tool offers to change a view, which is refused; or not to change a table."""
    with sql.connect(autocommit=True) as link:
        link.execute("create table t (a int primary key)")
        link.execute("create view v as select a from t")
        for name, allowed in (("t", "YES"), ("v", "NO")):
            (found,) = link.execute(
                "select is_insertable_into from information_schema.tables where table_name = %s",
                (name,),
            ).fetchall()
            assert found == (allowed,)
            (found,) = link.execute(
                "select is_updatable from information_schema.columns where table_name = %s", (name,)
            ).fetchall()
            assert found == (allowed,)
            (found,) = link.execute(
                "select pg_relation_is_updatable(%s::regclass, false)", (name,)
            ).fetchall()
            assert found == (28 if allowed == "YES" else 0,)
            change = f"insert into {name} values (1)".encode()
            if allowed == "YES":
                link.execute(change)
            else:
                with pytest.raises(psycopg.Error, match="cannot insert into view"):
                    link.execute(change)
        (found,) = link.execute(
            "select is_updatable, is_insertable_into from information_schema.views "
            "where table_name = 'v'"
        ).fetchall()
        assert found == ("NO", "NO")


@pytest.mark.slow
def test_b10_a_hint_is_whole(sql: Sql) -> None:
    """A hint ends in the middle of its sentence."""
    with sql.connect(autocommit=True) as link:
        for text in ("select 1 + 'a'::text", "select lower(1, 2)"):
            with pytest.raises(psycopg.Error) as told:
                link.execute(text.encode())
            assert (told.value.diag.message_hint or "").endswith("add explicit type casts.")

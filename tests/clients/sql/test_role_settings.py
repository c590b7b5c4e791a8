"""ALTER ROLE and ALTER DATABASE … SET: what sessions begin with."""

from __future__ import annotations

import psycopg
import pytest

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster


def _begins_with(sql: Sql, user: str, setting: str) -> object:
    dsn = sql.dsn.replace("user=kvorum", f"user={user}")
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute(f"SHOW {setting}").fetchone()
    return row and row[0]


def test_p10_settings_of_roles_and_databases(db: psycopg.Connection, sql: Sql) -> None:
    """A session begins without them, or with those of somebody else."""
    user = f"app_{sql.database}"
    db.execute(f"CREATE USER {user}")
    db.execute("CREATE SCHEMA sales")
    db.execute("CREATE TABLE sales.t (a int)")
    db.execute(f"GRANT USAGE ON SCHEMA sales TO {user}")
    usual = _begins_with(sql, user, "search_path")
    db.execute(f"ALTER ROLE {user} SET search_path = sales, public")
    assert _begins_with(sql, user, "search_path") == "sales, public"
    assert _begins_with(sql, "kvorum", "search_path") == usual
    db.execute(f"ALTER ROLE {user} IN DATABASE {sql.database} SET search_path TO sales")
    assert _begins_with(sql, user, "search_path") == "sales"
    dsn = sql.dsn.replace("user=kvorum", f"user={user}")
    with psycopg.connect(dsn, options="-c search_path=public") as conn:
        assert conn.execute("SHOW search_path").fetchone() == ("public",)
    db.execute(f"ALTER DATABASE {sql.database} SET timezone = 'Asia/Tokyo'")
    assert _begins_with(sql, user, "timezone") == "Asia/Tokyo"
    db.execute(f"ALTER ROLE {user} SET timezone = 'Europe/Berlin'")
    assert _begins_with(sql, user, "timezone") == "Europe/Berlin"
    shown = db.execute(
        "SELECT setconfig FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole "
        "WHERE rolname = %s AND setdatabase = 0",
        (user,),
    ).fetchall()
    lines = [sorted(map(str.lower, one)) for (one,) in shown]
    assert lines == [["search_path=sales, public", "timezone=europe/berlin"]]
    db.execute(f"ALTER ROLE {user} RESET timezone")
    assert _begins_with(sql, user, "timezone") == "Asia/Tokyo"
    db.execute(f"ALTER ROLE {user} IN DATABASE {sql.database} RESET ALL")
    assert _begins_with(sql, user, "search_path") == "sales, public"
    db.execute("DROP SCHEMA sales CASCADE")
    db.execute(f"DROP ROLE {user}")
    db.execute(f"CREATE USER {user}")
    assert _begins_with(sql, user, "search_path") == usual
    db.execute(f"DROP ROLE {user}")


def test_p10_who_may_change_them(db: psycopg.Connection, sql: Sql) -> None:
    """A role changes what others begin with, or a setting that is none is kept."""
    user, other = f"own_{sql.database}", f"oth_{sql.database}"
    db.execute(f"CREATE USER {user}")
    db.execute(f"CREATE USER {other}")
    with psycopg.connect(sql.dsn.replace("user=kvorum", f"user={user}"), autocommit=True) as conn:
        conn.execute(f"ALTER ROLE {user} SET work_mem = '8MB'")
        conn.execute("ALTER ROLE CURRENT_USER SET search_path = public")
        for statement in (
            f"ALTER ROLE {other} SET search_path = x",
            f"ALTER DATABASE {sql.database} SET search_path = x",
            "ALTER ROLE ALL SET search_path = x",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(statement)
    with pytest.raises(psycopg.errors.UndefinedObject):
        db.execute(f"ALTER ROLE {user} SET no_such_setting = 1")
    with pytest.raises(psycopg.Error) as caught:
        db.execute("ALTER ROLE nobody_at_all SET search_path = x")
    assert caught.value.sqlstate == "42704"
    with pytest.raises(psycopg.Error) as caught:
        db.execute("ALTER DATABASE nowhere SET search_path = x")
    assert caught.value.sqlstate == "3D000"
    db.execute(f"DROP ROLE {user}, {other}")


def test_p10_no_setting_locks_anybody_out(db: psycopg.Connection, sql: Sql) -> None:
    """A role that is gone, or that one may not be, or a token of another cluster's time refuses
    every session that begins with it.
    """
    user, gone = f"in_{sql.database}", f"gone_{sql.database}"
    db.execute(f"CREATE USER {user}")
    db.execute(f"CREATE ROLE {gone}")
    db.execute(f"ALTER DATABASE {sql.database} SET role = '{gone}'")
    assert _begins_with(sql, user, "role") == "none"
    assert _begins_with(sql, "kvorum", "role") == gone
    db.execute(f"GRANT {gone} TO {user}")
    assert _begins_with(sql, user, "role") == gone
    db.execute(f"DROP ROLE {gone}")
    for one in ("kvorum", user):
        assert _begins_with(sql, one, "role") == "none"
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            psycopg.connect(
                sql.dsn.replace("user=kvorum", f"user={one}"), options=f"-c role={gone}"
            )
    with pytest.raises(psycopg.Error, match="cannot be set for all sessions") as caught:
        db.execute(f"ALTER ROLE {user} SET kvorum.causal_token = '9000000000000000000'")
    assert caught.value.sqlstate == "55P02"
    db.execute(f"DROP ROLE {user}")

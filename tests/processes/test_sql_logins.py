"""Who logs in over SQL, and what a session from before the first user may do."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from kv.base.throttle import ADDRESS, FREE
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess


def test_sql_closes_with_the_first_password(tmp_path: Path) -> None:
    """A session that was let in while nobody could log in would own the cluster for ever, and a
    guesser could ask as fast as it likes, or find out who there is.
    """
    with NodeProcess(tmp_path / "data", free_port_base()) as node:
        node.start()
        url = f"host=127.0.0.1 port={node.base + 3} dbname=postgres"
        with (
            psycopg.connect(f"{url} user=kvorum", autocommit=True) as before,
            psycopg.connect(f"{url} user=anybody", autocommit=True) as stranger,
        ):
            stranger.execute("CREATE TABLE t (a int)")
            before.execute("CREATE USER ann SUPERUSER PASSWORD 'a good password'")
            with psycopg.connect(f"{url} user=ann password='a good password'") as conn:
                conn.execute("SELECT * FROM t")
            for session in (before, stranger):
                for statement in ("SELECT * FROM t", "DROP TABLE t", "CREATE USER eve SUPERUSER"):
                    with pytest.raises(psycopg.Error, match="before the cluster had users"):
                        session.execute(statement)
        said = [
            _refused(f"{url} user={user} password=wrong")
            for user in ("ann", "nobody", "kvorum", "ann")
        ]
        assert len({one.replace("nobody", "ann").replace("kvorum", "ann") for one in said[:3]}) == 1
        assert len(said) > FREE[ADDRESS]
        assert "too many failed logins" in said[-1]
        assert "a login of 'nobody' over SQL from 127.0.0.1 failed" in node.tail()


def _refused(url: str) -> str:
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(url)
    return str(caught.value)

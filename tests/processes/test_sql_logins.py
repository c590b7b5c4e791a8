"""Who logs in over SQL, and what a session from before the first user may do."""

from __future__ import annotations

import datetime
from pathlib import Path

import psycopg
import pytest

from kv.base.throttle import ADDRESS, FREE
from kv.base.tls import CA, NODE, client_files
from kvorum.security import certificates
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess

NOW = datetime.datetime.now(datetime.UTC)


@pytest.mark.slow
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
                    ended = session.closed
                    with pytest.raises(psycopg.Error) as caught:
                        session.execute(statement)
                    assert ended or "before the cluster had users" in str(caught.value)
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


@pytest.mark.slow
def test_a_certificate_is_a_login_of_a_role_alone(tmp_path: Path) -> None:
    """Whoever the authority has signed would be let in under a name that is no role, and do
    everything as one who came before the first user; or nodes' certificates would be a login.
    """
    ca = certificates.authority(NOW)
    certificates.save(tmp_path, certificates.AUTHORITY, ca)
    certificates.save(tmp_path, NODE, certificates.node(ca, ["localhost", "127.0.0.1"], NOW))
    for user in ("ann", "ghost"):
        certificates.save(tmp_path, client_files(user), certificates.client(ca, user, NOW))
    with NodeProcess(tmp_path / "data", free_port_base(), tls_dir=tmp_path) as node:
        node.start()
        url = f"host=localhost port={node.base + 3} dbname=postgres sslmode=verify-full"
        url += f" sslrootcert={tmp_path / CA}"
        with psycopg.connect(f"{url} user=kvorum", autocommit=True) as conn:
            with pytest.raises(psycopg.Error, match="reserved"):
                conn.execute("CREATE USER node")
            conn.execute("CREATE USER ann SUPERUSER PASSWORD 'a good password'")
        for name, names in (("ghost", client_files("ghost")), ("node", NODE)):
            shown = f" sslcert={tmp_path / names[0]} sslkey={tmp_path / names[1]}"
            assert "FATAL" in _refused(f"{url} user={name} password=x{shown}")
        cert, key = (tmp_path / name for name in client_files("ann"))
        with psycopg.connect(f"{url} user=ann sslcert={cert} sslkey={key}") as conn:
            assert conn.execute("SELECT current_user").fetchone() == ("ann",)
        assert "FATAL" in _refused(f"{url} user=kvorum password=x sslcert={cert} sslkey={key}")

"""POST /v1/sql: statements over HTTP, as who asks, bounded (kvorum/sql/http_statements.py)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

import kvorum
from kv.base.limits import SQL_HTTP_ROWS_MAX
from tests.kit.machine import free_port_base

pytestmark = pytest.mark.slow  # DuckDB and the parser are loaded


@dataclass
class Scene:
    url: str
    admin: str = ""

    def run(self, statement: str, *, token: str = "", **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {token or self.admin}"}
        body = {"statement": statement, **more}
        return httpx.post(f"{self.url}/v1/sql", headers=headers, json=body, timeout=60)

    def ok(self, statement: str, **more: Any) -> dict[str, Any]:
        answer = self.run(statement, **more)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def error(self, statement: str, **more: Any) -> dict[str, Any]:
        answer = self.run(statement, **more)
        assert answer.status_code >= 400, answer.text
        found: dict[str, Any] = answer.json()["error"]
        assert found["code"] == "SQL_ERROR"
        return {**found["details"], "message": found["message"], "status": answer.status_code}

    def ask(self, path: str, body: Any) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self.admin}"}
        answer = httpx.post(f"{self.url}{path}", headers=headers, json=body, timeout=20)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    base = free_port_base()
    with kvorum.open(tmp_path_factory.mktemp("sql") / "data", port=base):
        made = Scene(f"http://127.0.0.1:{base + 2}")
        made.admin = httpx.post(f"{made.url}/v1/init", timeout=20).json()["token"]
        made.ok("CREATE TABLE t (id int PRIMARY KEY, name text)", read_only=False)
        made.ok("INSERT INTO t VALUES (1, 'a'), (2, NULL)", read_only=False)
        yield made


def test_rows_are_postgresqls_text(scene: Scene) -> None:
    """A client that reads numbers, times and NULL must know what they are."""
    told = scene.ok(
        "SELECT id, name, 1.50::numeric(5, 2) AS n, '2026-01-02 03:04:05+00'::timestamptz AS at, "
        "ARRAY[1, NULL] AS list, id = 1 AS yes FROM t ORDER BY id"
    )
    assert told["columns"] == [
        *({"name": "id", "type": "integer"}, {"name": "name", "type": "text"}),
        *(
            {"name": "n", "type": "numeric(5,2)"},
            {"name": "at", "type": "timestamp with time zone"},
        ),
        *({"name": "list", "type": "integer[]"}, {"name": "yes", "type": "boolean"}),
    ]
    at = "2026-01-02 03:04:05+00"
    assert told["rows"] == [
        *(["1", "a", "1.50", at, "{1,NULL}", "t"], ["2", None, "1.50", at, "{1,NULL}", "f"])
    ]
    assert (told["tag"], told["more"]) == ("SELECT 2", False)


def test_nothing_is_written_unless_it_is_said(scene: Scene) -> None:
    """Whoever looks at data in a console would delete it by a slip."""
    refused = scene.error("DELETE FROM t")
    assert refused["sqlstate"] == "25006"
    assert scene.ok("SELECT count(*) FROM t")["rows"] == [["2"]]
    assert scene.ok("INSERT INTO t VALUES (3, 'c')", read_only=False)["tag"] == "INSERT 0 1"
    assert scene.ok("DELETE FROM t WHERE id = 3", read_only=False)["tag"] == "DELETE 1"


def test_no_statement_switches_it_off(scene: Scene) -> None:
    """A text that somebody pasted would make itself a way to write."""
    for first in (
        "SET default_transaction_read_only = off; COMMIT",
        "SELECT set_config('default_transaction_read_only', 'off', false); COMMIT",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE; COMMIT",
        "SET TRANSACTION READ WRITE",
        "SET transaction_read_only = off",
        "COMMIT; BEGIN READ WRITE",
        "SET kvorum.read_only = off; COMMIT",
        "RESET ALL; COMMIT",
    ):
        assert scene.error(f"{first}; DELETE FROM t")["sqlstate"] == "25006", first
    assert scene.ok("SELECT count(*) FROM t")["rows"] == [["2"]]
    switched = "SET default_transaction_read_only = off; SHOW default_transaction_read_only"
    assert scene.ok(switched, read_only=False)["rows"] == [["off"]]


def test_notices_of_many_statements_are_bounded(scene: Scene) -> None:
    """Seven bytes of text each made hundreds in the node's memory, and in its answer."""
    answer = scene.run("COMMIT;" * 5_000)
    assert answer.status_code == 200
    assert len(answer.content) < 200_000
    assert "notices more" in answer.json()["notices"][-1]["message"]


def test_several_are_one_transaction_and_the_last_answers(scene: Scene) -> None:
    """Half of what was sent would stay when the other half is refused."""
    error = scene.error(
        "INSERT INTO t VALUES (8, 'x');\nINSERT INTO t VALUES (8, 'y')", read_only=False
    )
    assert error["sqlstate"] == "23505"
    assert error["status"] == 409
    told = scene.ok("SELECT 1; SELECT count(*) FROM t WHERE id = 8")
    assert told["rows"] == [["0"]]
    left = scene.ok("BEGIN; INSERT INTO t VALUES (9, 'x')", read_only=False)
    assert "rolled back" in left["notices"][-1]["message"]
    assert scene.ok("SELECT count(*) FROM t WHERE id = 9")["rows"] == [["0"]]


def test_an_error_has_its_place_in_the_whole_text(scene: Scene) -> None:
    """An editor marks the wrong word, or none."""
    text = "SELECT 1;\nSELECT nam FROM t"
    error = scene.error(text)
    assert error["sqlstate"] == "42703"
    assert text[error["position"] - 1 :].startswith("nam")
    assert scene.error("SELECT * FORM t")["sqlstate"] == "42601"
    assert scene.error("SELECT $1")["sqlstate"] == "42P02"
    assert scene.error("COPY t TO STDOUT")["sqlstate"] == "0A000"
    assert scene.error("SELECT 1", database="nowhere")["sqlstate"] == "3D000"


def test_an_answer_is_bounded(scene: Scene) -> None:
    """SELECT * of a large table would fill the node and the browser."""
    told = scene.ok("SELECT * FROM generate_series(1, 5000) g(x)", rows_max=3)
    assert (told["rows"], told["more"]) == ([["1"], ["2"], ["3"]], True)
    assert told["tag"] == "SELECT 3"
    wide = scene.ok(
        "SELECT repeat('x', 1000000) FROM generate_series(1, 50)", rows_max=SQL_HTTP_ROWS_MAX
    )
    assert wide["more"]
    assert 1 < len(wide["rows"]) < 10
    assert scene.run("SELECT 1", rows_max=SQL_HTTP_ROWS_MAX + 1).status_code == 400
    assert scene.run("SELECT 1", timeout_ms=10_000_000).status_code == 400


def test_a_statement_has_its_time_and_ends_with_who_asked(scene: Scene) -> None:
    """A browser that was closed would leave its query running for ever."""
    error = scene.error("SELECT pg_sleep(30)", timeout_ms=300)
    assert (error["sqlstate"], error["status"]) == ("57014", 504)

    def running() -> list[list[str]]:
        rows = scene.ok("SELECT query FROM pg_stat_activity WHERE query LIKE '%pg_sleep(29)%'")
        return [row for row in rows["rows"] if "pg_stat_activity" not in row[0]]

    def give_up() -> None:
        headers = {"authorization": f"Bearer {scene.admin}"}
        body = {"statement": "SELECT pg_sleep(29)"}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{scene.url}/v1/sql", headers=headers, json=body, timeout=1.5)

    thread = threading.Thread(target=give_up)
    thread.start()
    thread.join()
    end = time.monotonic() + 20
    while running():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_rights_are_those_of_who_asks(scene: Scene) -> None:
    """A console would be a way around grants."""
    scene.ask("/v1/users", {"name": "eve"})
    token = scene.ask("/v1/tokens", {"user": "eve", "name": "t"})["token"]
    refused = scene.error("SELECT * FROM t", token=token)
    assert refused["sqlstate"] == "42501"
    assert scene.error("DROP TABLE t", token=token, read_only=False)["sqlstate"] == "42501"
    told = scene.ok("SELECT current_user", token=token)
    assert told["rows"] == [["eve"]]
    scene.ok("GRANT SELECT ON t TO eve", read_only=False)
    assert len(scene.ok("SELECT * FROM t", token=token)["rows"]) == 2
    nobody = httpx.post(f"{scene.url}/v1/sql", json={"statement": "SELECT 1"}, timeout=20)
    assert nobody.status_code == 401


def test_a_plan_comes_as_a_tree(scene: Scene) -> None:
    """The console draws it."""
    told = scene.ok("EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM t WHERE id = 1")
    assert told["columns"][0]["name"] == "QUERY PLAN"
    assert '"Node Type"' in "\n".join(row[0] for row in told["rows"])

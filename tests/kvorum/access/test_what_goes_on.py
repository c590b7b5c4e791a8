"""What goes on under a credential that is taken away ends with it, at every surface, though nothing
else happens.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import psycopg
import pytest

import kvorum
from tests.kit.machine import free_port_base

pytestmark = pytest.mark.slow  # SQL is loaded, and looks are a second apart
SOON_S = 40.0  # a look comes every second; machines are busy; what waits would wait for longer


@dataclass
class Scene:
    url: str
    native: str
    waiting: str
    admin: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = httpx.request(
            method, self.url + path, json=body, headers=self.admin, timeout=SOON_S
        )
        assert answer.is_success, answer.text
        return answer.json()

    def http(self, method: str, path: str, token: str, body: Any, accept: str) -> str:
        """What it told in the end."""
        headers = {"authorization": f"Bearer {token}", "accept": accept}
        with httpx.Client(timeout=90) as client:
            more = {} if body is None else {"json": body}
            return client.request(method, self.url + path, headers=headers, **more).text

    def over_native(self, token: str) -> str:
        with kvorum.connect(self.native, token=token) as db:
            try:
                db.wait(int(self.waiting), timeout_ms=50_000)
            except kvorum.KvorumError as error:
                return error.code
        return ""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    base = free_port_base()
    modules = ["tests.kvorum.surfaces.sample_procedures"]
    data = tmp_path_factory.mktemp("taken") / "data"
    with kvorum.open(data, port=base, procedure_modules=modules) as db:
        db.create_table("default", "t")
        waiting = str(db.submit("sample.wait", {}))
        made = Scene(f"http://127.0.0.1:{base + 2}", f"kvorum://127.0.0.1:{base}", waiting)
        init = httpx.post(f"{made.url}/v1/init", timeout=SOON_S).json()
        made.admin["authorization"] = f"Bearer {init['token']}"
        made.ask("POST", "/v1/users", {"name": "ann", "superuser": True})
        yield made


@pytest.mark.parametrize("ends", ["revoked", "expired"])
def test_it_ends_soon(scene: Scene, ends: str) -> None:
    """Statements ran, results were told and events streamed for up to a minute under a token that
    was revoked because somebody had stolen it.
    """
    ttl = {"ttl_ms": 4_000} if ends == "expired" else {}
    token = scene.ask("POST", "/v1/tokens", {"user": "ann", "name": ends, **ttl})["token"]
    one = f"/v1/procedures/{scene.waiting}"
    sql = {"statement": "SELECT pg_sleep(50)", "timeout_ms": 60_000}
    events, plain = "text/event-stream", "application/json"
    told: dict[str, tuple[float, str]] = {}

    def run(name: str, work: Callable[[], str]) -> threading.Thread:
        def told_of() -> None:
            found = work()
            told[name] = time.monotonic(), found

        thread = threading.Thread(target=told_of)
        thread.start()
        return thread

    def http(method: str, path: str, body: Any = None, accept: str = plain) -> Callable[[], str]:
        return lambda: scene.http(method, path, token, body, accept)

    threads = [
        run("sql", http("POST", "/v1/sql", sql)),
        run("sql, writing", http("POST", "/v1/sql", {**sql, "read_only": False})),
        run("result", http("GET", f"{one}?wait_ms=50000")),
        run("events", http("GET", f"{one}/events?wait_ms=50000")),
        run("stream of events", http("GET", f"{one}/events", accept=events)),
        run("watch", http("GET", "/v1/watch/default/t")),
        run("native", lambda: scene.over_native(token)),
    ]
    time.sleep(2.0)  # they are under way
    if ends == "revoked":
        assert not told
        scene.ask("DELETE", f"/v1/tokens/ann/{ends}")
    for thread in threads:
        thread.join(SOON_S)
        assert not thread.is_alive(), f"told of so far: {sorted(told)}"
    for name, (_, text) in told.items():
        may = ["UNAUTHENTICATED", "UNKNOWN_OUTCOME" if name == "sql, writing" else "-"]
        assert any(code in text for code in may), (name, text)


def test_a_transaction_over_http_ends_with_its_user(scene: Scene) -> None:
    """Its rows were locked for up to ten minutes, the time that he had wished for."""
    scene.ask("POST", "/v1/users", {"name": "carl", "superuser": True})
    token = scene.ask("POST", "/v1/tokens", {"user": "carl", "name": "t"})["token"]
    his = {"authorization": f"Bearer {token}"}

    def ask(path: str, body: Any) -> httpx.Response:
        return httpx.post(f"{scene.url}/v1/txn{path}", json=body, headers=his, timeout=SOON_S)

    txn = ask("", {"ttl_ms": 600_000}).json()["txn"]
    row = {"ns": "default", "table": "t", "key": "mine"}
    locked = ask(f"/{txn}/lock", row)
    assert locked.is_success, locked.text
    scene.ask("DELETE", "/v1/users/carl")
    till = time.monotonic() + SOON_S
    while scene.ask("GET", f"/v1/txn/{txn}")["status"] == "pending":
        assert time.monotonic() < till
        time.sleep(0.2)
    assert scene.ask("GET", f"/v1/txn/{txn}")["status"] == "aborted"


TAKEN_AWAY = ("ALTER ROLE {} NOLOGIN", "DROP ROLE {}")
DOING = ("runs", "waits", "holds", "hears", "copies", "locks")


@pytest.mark.parametrize("taken_away", TAKEN_AWAY)
def test_what_goes_on_over_sql_ends_with_the_login(scene: Scene, taken_away: str) -> None:
    """Who may not log in any more went on with what he had begun: his statement ran, his
    transaction kept others from its rows, he heard what was said; and one who merely rested kept
    his advisory locks until he said something.
    """
    url = f"host=127.0.0.1 port={int(scene.native.rpartition(':')[2]) + 3} dbname=default"
    user = "bob_" + taken_away.split()[0].lower()
    login = f"{url} user={user} password=its-own-password"
    token = scene.admin["authorization"].partition(" ")[2]
    with kvorum.connect(scene.native, token=token) as db:
        db.access("user.create", {"name": user, "superuser": True, "password": "its-own-password"})
        db.access(
            "user.create", {"name": f"root_{user}", "superuser": True, "password": "roots-password"}
        )
    told: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        root = f"{url} user=root_{user} password=roots-password"
        other = stack.enter_context(psycopg.connect(root, autocommit=True))
        other.execute(f"CREATE TABLE rows_{user} (a int PRIMARY KEY, b int)")
        other.execute(f"INSERT INTO rows_{user} VALUES (1, 0), (2, 0)")
        holder = stack.enter_context(psycopg.connect(root))
        holder.execute(f"UPDATE rows_{user} SET b = 1 WHERE a = 2")
        change = f"UPDATE rows_{user} SET b = 2 WHERE a = "

        def run(doing: str, conn: psycopg.Connection[Any]) -> None:
            try:
                if doing == "runs":
                    conn.execute("SELECT pg_sleep(90)")
                elif doing == "waits":
                    conn.execute(change + "2")
                elif doing == "hears":
                    conn.execute("LISTEN news")
                    conn.commit()
                    for _ in conn.notifies():
                        pass
                elif doing == "copies":
                    with conn.cursor().copy(f"COPY rows_{user} FROM STDIN") as copy:
                        for number in itertools.count(3, 10_000):
                            rows = range(number, number + 10_000)  # else psycopg keeps them
                            copy.write("".join(f"{n}\t0\n" for n in rows))
                            time.sleep(0.2)
                else:
                    rests = "SELECT pg_advisory_lock(7); COMMIT"
                    conn.execute(rests if doing == "locks" else change + "1")
                    done = select.select([conn.fileno()], [], [], 90)
                    conn.execute("SELECT 1" if done[0] else "SELECT 1 / 0")
            except psycopg.Error as error:
                told[doing] = str(error)

        conns = [stack.enter_context(psycopg.connect(login)) for _ in DOING]
        threads = [
            threading.Thread(target=run, args=pair) for pair in zip(DOING, conns, strict=True)
        ]
        for thread in threads:
            thread.start()
        time.sleep(2.0)  # they are under way
        assert not told
        other.execute(taken_away.format(user))
        for thread in threads:
            thread.join(SOON_S)
            assert not thread.is_alive(), f"told of so far: {told}"
        assert set(told) == set(DOING)
        for doing in ("runs", "locks"):
            assert "terminating connection" in told[doing]
            assert "not permitted to log in any more" in told[doing]
        other.execute("SET statement_timeout = '20s'")
        other.execute(change + "1")  # nobody holds it any more
        other.execute("SELECT pg_advisory_lock(7)")
        other.execute("SELECT pg_advisory_unlock(7)")

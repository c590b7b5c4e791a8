"""What goes on under a credential that is taken away ends with it, at every surface, though nothing
else happens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
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

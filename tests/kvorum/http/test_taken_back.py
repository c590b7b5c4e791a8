"""What goes on under a credential ends with it: every route, while it waits for the database."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

import kvorum
from kv.base.adapters import LoopTimers, SystemRng
from kvorum.api.backend import Backend
from kvorum.api.model import TxnState
from kvorum.http.metrics.metrics import Metrics
from kvorum.http.routes.declaring import Declared
from kvorum.http.routes.hot_routes import HOT_ROUTES
from kvorum.http.routes.openapi import DECLARED
from kvorum.http.routes.route import Route
from kvorum.http.server.authentication import Door
from kvorum.http.server.causal_tokens import CausalTokens
from kvorum.http.server.fastapi_app import ColdApi
from kvorum.http.server.hot_app import HotApi
from kvorum.http.server.http_sessions import Sessions
from kvorum.http.server.watch_streams import Watches
from kvorum.http.wire.console_sessions import Visits
from sqlproxy.catalog import users
from sqlproxy.catalog.guard import Guard
from tests.kvorum.access.test_http_matrix import BODIES, NAMES
from tests.sqlproxy.catalog.test_guard import HERE, Clock, Scene, at_once
from txn.client import TxnClient

CLOSED = [r for r in (*HOT_ROUTES, *DECLARED) if r.right.action is not None]
CALLED = {"/v1/sql": {"statement": "SELECT 1"}}
LONG = {
    *(("POST", "/v1/sql"), ("GET", "/v1/watch/{ns}/{table}"), ("GET", "/v1/procedures/{id}")),
    *(("GET", "/v1/procedures/{id}/events"), ("POST", "/v1/procedures/{id}/updates/{name}")),
    *(("PUT", "/v1/kv/{ns}/{table}/{key}"), ("POST", "/v1/txn/{id}/lock")),
}
READS_BY_POST = ("/v1/multi-get", "/v1/sql")


class Never:
    """A database that does not answer."""

    def causal_token(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **given: Any) -> None:
            left = given.get("left")
            if left is None:
                await asyncio.Event().wait()
            elif (why := await left()) is not None:
                raise why

        return call


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with await kvorum.aopen(tmp_path) as db:
        txn: TxnClient = db._backend.txn  # type: ignore[attr-defined]
        clock = Clock()
        yield Scene(txn, clock, Guard(txn, clock, at_once), SystemRng())


class Served:
    """The HTTP API without sockets, over a database that does not answer."""

    def __init__(self, scene: Scene, backend: object = None) -> None:
        guard, now = scene.guard, scene.clock.monotonic
        backend, metrics = cast(Backend, backend or Never()), Metrics()
        visits = Visits(guard, scene.rng, now)
        self.door = Door(guard, backend, visits)
        tokens = CausalTokens(backend, on=False)
        cold = ColdApi(
            *(backend, metrics, lambda: None, "0", now, self.door, guard, visits, tokens),
            sql=cast(Any, Never()).sql,
        )
        timers = LoopTimers(asyncio.get_running_loop())
        self.sessions = sessions = Sessions(backend, timers, asyncio.ensure_future)
        watches = Watches(backend, metrics.requests, now, self.door, tokens)
        rest = (cold.application, metrics.requests, now, watches, self.door, tokens)
        self.app = HotApi(backend, sessions, *rest)

    async def ask(self, route: Route | Declared, token: str) -> tuple[int, Any]:
        """Status and body."""
        given = {**NAMES, "user": "ghost", "role": "ghost", "ns": "shop", "id": "1"}
        path = re.sub(r"\{(\w+)\}", lambda part: given[part[1]], route.path)
        default = {} if route.method in ("POST", "PATCH") else None
        said = {**BODIES, **CALLED}.get(route.path, default)
        body = b"" if said is None else json.dumps(said).encode()
        if route.method == "PUT" and route.path.startswith("/v1/kv"):
            body = b"v"
        coming = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Any] = []

        async def receive() -> Any:
            if not coming:
                await asyncio.Event().wait()
            return coming.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"here"), (b"authorization", f"Bearer {token}".encode())]
        scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
            "method": route.method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
            "client": (HERE, 1),
        }
        await self.app(scope, receive, send)
        body = b"".join(one.get("body", b"") for one in sent)
        return sent[0]["status"], json.loads(body) if body[:1] == b"{" else body


async def passes() -> None:
    """Everything that can go on without the database has."""
    for _ in range(200):
        await asyncio.sleep(0)


@pytest.mark.parametrize("ends", ["token", "expiry", "user"])
async def test_a_request_that_waits_ends_with_its_credential(scene: Scene, ends: str) -> None:
    """Whoever had asked before his token was revoked got results, events and rows for a minute."""
    served = Served(scene)
    await scene.user("ann", "correct horse", superuser=True)
    token = await scene.token("ann", ttl_ms=1_000)
    await scene.guard.look()
    asked = [(route, asyncio.create_task(served.ask(route, token))) for route in CLOSED]
    await passes()
    waiting = [(route, task) for route, task in asked if not task.done()]
    waits = {(route.method, route.path) for route, _ in waiting}
    assert not LONG - waits
    assert len(waiting) > len(CLOSED) * 0.7, "the others need no database"
    served.door.review()
    await passes()
    assert not any(task.done() for _, task in waiting), "nothing has ended yet"
    if ends == "token":
        await scene.txn.run(lambda t: users.revoke_token(t, "ann", "t"))
    elif ends == "user":
        await scene.txn.run(lambda t: users.delete(t, "ann"))
    else:
        scene.clock.ms += 1_000
    await scene.guard.look()
    served.door.review()
    await passes()
    for route, task in waiting:
        reads = route.method == "GET" or route.path in READS_BY_POST
        assert task.done() or not reads, f"{route.method} {route.path} goes on"
    served.door.review()
    await passes()
    for route, task in waiting:
        assert task.done(), f"{route.method} {route.path} goes on"
        status, body = task.result()
        code = body["error"]["code"]
        reads = route.method == "GET" or route.path in READS_BY_POST
        told = (401, "UNAUTHENTICATED") if reads else (504, "UNKNOWN_OUTCOME")
        if route.right.action == "read":
            told = (401, "UNAUTHENTICATED")
        assert (status, code) == told, f"{route.method} {route.path}"
        assert "revoked or has expired" in body["error"]["message"]
    assert not served.door._under_way


class Transactions(Never):
    """A database that begins one, which nobody has committed."""

    id, start_ts = 1, 7

    def __init__(self) -> None:
        self.aborted = 0

    async def begin(self, **_: Any) -> Transactions:
        return self

    async def get(self, *_: Any) -> None:
        return None

    async def abort(self) -> None:
        self.aborted += 1

    async def status(self, _: int) -> TxnState:
        return TxnState("unknown")


@pytest.mark.parametrize("ends", ["token", "expiry", "user"])
async def test_a_transaction_ends_with_what_it_was_last_asked_with(scene: Scene, ends: str) -> None:
    """Whoever had begun one by a token that was revoked because somebody had stolen it kept others
    from its rows for ten minutes, the time that he had wished for; or a transaction ended under
    somebody whose token had been replaced meanwhile.
    """
    store = Transactions()
    served = Served(scene, store)
    begins, gets = (
        next(one for one in HOT_ROUTES if one.path == path)
        for path in ("/v1/txn", "/v1/txn/{id}/get")
    )
    await scene.user("ann", "correct horse", superuser=True)
    old = await scene.token("ann", ttl_ms=60_000)
    new = await scene.token("ann", name="new")
    await scene.guard.look()
    assert (await served.ask(begins, old))[0] == 200
    assert (await served.ask(gets, new))[0] == 200
    await scene.txn.run(lambda t: users.revoke_token(t, "ann", "t"))
    await scene.guard.look()
    served.sessions.review()
    assert len(served.sessions) == 1, "the new token stands"
    old = await scene.token("ann", ttl_ms=1_000)
    await scene.guard.look()
    assert (await served.ask(gets, old))[0] == 200
    served.sessions.review()
    assert len(served.sessions) == 1
    if ends == "token":
        await scene.txn.run(lambda t: users.revoke_token(t, "ann", "t"))
    elif ends == "user":
        await scene.txn.run(lambda t: users.delete(t, "ann"))
    else:
        scene.clock.ms += 1_000
    await scene.guard.look()
    served.sessions.review()
    await passes()
    assert (len(served.sessions), store.aborted) == (0, 1)
    if ends != "user":
        status, body = await served.ask(gets, new)
        assert (status, body["error"]["code"]) == (409, "TXN_ABORTED")
        assert "was revoked or has expired" in body["error"]["message"]


async def test_a_credential_that_breaks_keeps_no_other_transaction() -> None:
    """Whoever came behind it in the list went on, for as long as it did."""
    store = Transactions()
    timers = LoopTimers(asyncio.get_running_loop())
    sessions = Sessions(cast(Any, store), timers, asyncio.ensure_future)
    for stands in (lambda: False, lambda: bool(1 / 0), lambda: False, lambda: True):
        store.id += 1
        await sessions.begin("ann", stands, ttl_ms=60_000, isolation="snapshot")
    with pytest.raises(ZeroDivisionError):
        sessions.review()
    await passes()
    assert (len(sessions), store.aborted) == (2, 2)
    await sessions.close()

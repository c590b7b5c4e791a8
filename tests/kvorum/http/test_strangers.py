"""Who has no login costs others no more than one of them does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

import kvorum
from kv.base.adapters import SystemRng
from sqlproxy.catalog.guard import Guard
from tests.kvorum.http.test_taken_back import Served
from tests.sqlproxy.catalog.test_guard import Clock, Scene, at_once
from txn.client import TxnClient

MANY: Final = 60


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with await kvorum.aopen(tmp_path) as db:
        txn: TxnClient = db._backend.txn  # type: ignore[attr-defined]
        clock = Clock()
        yield Scene(txn, clock, Guard(txn, clock, at_once), SystemRng())


def route(method: str, path: str) -> Any:
    return cast(Any, SimpleNamespace(method=method, path=path))


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/console/console.js", 200),
        ("GET", "/console/session", 200),
        ("GET", "/nowhere", 404),
        ("DELETE", "/healthz", 405),
        ("GET", "/v1/kv/{ns}/{table}/k", 401),
        ("GET", "/v1/whoami", 401),
    ],
)
async def test_strangers_together_have_the_share_of_one_user(
    scene: Scene, method: str, path: str, answer: int
) -> None:
    """Whoever reached the port, with no login, had as many turns as he had connections: each of his
    requests came before those of users.
    """
    served = Served(scene)
    await scene.user("ann", "correct horse", superuser=True)
    token = await scene.token("ann")
    await scene.guard.look()
    mine = route("GET", "/v1/whoami")
    assert (await served.ask(mine, token))[0] == 200
    answers: list[int] = []

    async def strange() -> None:
        status, _ = await served.ask(route(method, path), "")
        answers.append(status)

    flood = [asyncio.create_task(strange()) for _ in range(MANY)]
    assert (await asyncio.create_task(served.ask(mine, token)))[0] == 200  # behind them
    assert len(answers) < MANY / 3
    await asyncio.gather(*flood)
    assert set(answers) <= {answer, 429}, "a guess too often is told so"
    assert answers.count(answer) > 0
    assert len(answers) == MANY, "nobody is forgotten"

"""What one user may use of a node over HTTP (user.requests_per_s, user.requests_max)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from kv.base.config import NodeConfig
from kvorum.local.ports import system_ports
from kvorum.node.node import build
from kvorum.sdk.portal import Portal
from tests.kit.machine import free_port_base

ROUTES = (
    ("GET", "/v1/kv/shop/orders/k"),
    ("GET", "/v1/cluster"),
    ("GET", "/v1/watch/shop/orders"),
    ("POST", "/v1/batch"),
    ("GET", "/v1/none"),
)


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[dict[str, httpx.Client]]:
    """Of a node's admin, and of two users."""
    base, portal = free_port_base(), Portal("shared")

    async def start() -> Any:
        config = NodeConfig(data=tmp_path / "data", port=base)
        node = await build(config, system_ports(asyncio.get_running_loop()))
        await node.start()
        return node

    node = portal.call(start())
    url = f"http://127.0.0.1:{base + 2}"
    with ExitStack() as stack:

        def client(token: str) -> httpx.Client:
            headers = {"authorization": f"Bearer {token}"}
            return stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=60))

        admin = client(httpx.post(f"{url}/v1/init").json()["token"])
        found = {"admin": admin}
        for user in ("ann", "bob"):
            assert admin.post("/v1/users", json={"name": user}).is_success
            made = admin.post("/v1/tokens", json={"user": user, "name": "t"}).json()
            found[user] = client(made["token"])
        yield found
    portal.call(node.stop())
    portal.close()


def set_(admin: httpx.Client, name: str, value: int) -> None:
    assert admin.post("/v1/cluster", json={"settings": {name: value}}).is_success


def test_a_user_that_floods_is_refused_and_nobody_else(clients: dict[str, httpx.Client]) -> None:
    """One user's flood would be everybody's; or a limit would keep the operator out, too."""
    admin, ann, bob = clients["admin"], clients["ann"], clients["bob"]
    set_(admin, "user.requests_per_s", 1)
    for method, path in ROUTES[:4]:
        answers = (ann.request(method, path) for _ in range(60))
        refused = next(answer for answer in answers if answer.status_code == 429)
        error = refused.json()["error"]
        assert error["code"] == "BUSY"
        assert error["details"]["limit"] == 1
        assert error["details"]["retry_after_ms"] <= 1_001
        assert refused.headers["retry-after"] in ("1", "2")
    assert bob.get("/v1/cluster").status_code != 429
    for _ in range(10):
        assert admin.get("/v1/cluster").is_success
    assert "kvorum_shares_requests_refused" in admin.get("/metrics").text
    set_(admin, "user.requests_per_s", 0)
    assert ann.get("/v1/cluster").status_code == 403


def test_a_request_that_has_ended_counts_no_more(clients: dict[str, httpx.Client]) -> None:
    """A share that is not given back on some way out would lock its user out for good."""
    set_(clients["admin"], "user.requests_max", 1)
    for method, path in ROUTES * 3:
        assert clients["ann"].request(method, path).status_code in (400, 403, 404, 405)

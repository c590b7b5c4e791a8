"""Users of an OIDC issuer over HTTP: known here by name, and nobody else."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from kv.base.config import NodeConfig
from kvorum.local.ports import system_ports
from kvorum.node.node import Node, build
from kvorum.sdk.portal import Portal
from tests.kit.machine import free_port_base

KEY = ECKey.generate_key("P-256", {"kid": "k1"})


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Of a node that believes an issuer."""
    base, keys = free_port_base(), tmp_path / "jwks.json"
    keys.write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    config = NodeConfig(
        data=tmp_path / "data",
        port=base,
        oidc_issuer="https://login.example",
        oidc_audience="kvorum",
        oidc_jwks=str(keys),
    )
    portal = Portal("oidc")

    async def start() -> Node:
        node = await build(config, system_ports(asyncio.get_running_loop()))
        await node.start()
        return node

    node = portal.call(start())
    try:
        yield f"http://127.0.0.1:{base + 2}"
    finally:
        portal.call(node.stop())
        portal.close()


def signed(user: str, **more: Any) -> dict[str, str]:
    claims: dict[str, Any] = {"iss": "https://login.example", "aud": "kvorum", "sub": user}
    claims |= {"exp": int(time.time()) + 600, **more}
    token = jwt.encode({"alg": "ES256", "kid": "k1"}, claims, KEY)
    return {"authorization": f"Bearer {token}"}


def test_a_user_of_the_issuer_has_the_rights_of_that_user_here(url: str) -> None:
    """Whoever the issuer knows would be let in, or be somebody else than he is."""
    admin = {"authorization": "Bearer " + httpx.post(f"{url}/v1/init").json()["token"]}
    assert httpx.post(f"{url}/v1/users", json={"name": "ann"}, headers=admin).is_success
    group = {"name": "readers", "login": False}
    assert httpx.post(f"{url}/v1/users", json=group, headers=admin).is_success
    me = httpx.get(f"{url}/v1/whoami", headers=signed("ann")).json()
    assert (me["user"], me["credential"]) == ("ann", "oidc")
    assert httpx.get(f"{url}/v1/cluster", headers=signed("ann")).status_code == 403
    for nobody in ("bob", "readers", "kvorum"):
        assert httpx.get(f"{url}/v1/whoami", headers=signed(nobody)).status_code in (401, 429)

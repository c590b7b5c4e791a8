"""What HTTP remembers of who has proved himself ends with the credential and with the right."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

import kvorum
from kv.base.adapters import SystemRng
from kv.base.errors import Forbidden, Unauthenticated
from kv.base.rights import PUT, Action, Grant, table
from kvorum.api.backend import Backend
from kvorum.http.server.authentication import Door
from kvorum.http.wire.console_sessions import Visits
from kvorum.http.wire.request import Request
from sqlproxy.catalog import users
from sqlproxy.catalog.guard import Guard
from tests.sqlproxy.catalog.test_guard import HERE, Clock, Scene, at_once
from txn.client import TxnClient

READ = frozenset({Action.READ})
ORDERS = table("shop", "orders")


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """A node of its own."""
    async with await kvorum.aopen(tmp_path) as db:
        txn: TxnClient = db._backend.txn  # type: ignore[attr-defined]
        clock = Clock()
        await db.create_namespace("shop")
        await db.create_table("shop", "orders")
        yield Scene(txn, clock, Guard(txn, clock, at_once), SystemRng())


def door_of(scene: Scene) -> Door:
    """It asks the backend for nothing here."""
    visits = Visits(scene.guard, scene.rng, scene.clock.monotonic)
    return Door(scene.guard, cast(Backend, None), visits)


def asking(said: str) -> Request:
    async def receive() -> dict[str, object]:
        return {}

    headers = [(b"host", b"here"), (b"authorization", said.encode())]
    scope = {"method": "GET", "raw_path": b"/", "query_string": b"", "headers": headers}
    return Request({**scope, "client": (HERE, 1)}, receive)


async def asked(door: Door, said: str) -> Request:
    """Twice, so that it is remembered if it is right."""
    for _ in range(2):
        request = asking(said)
        await door.enter(request)
        door.leave(request)
    return request


async def test_what_is_remembered_ends(scene: Scene) -> None:
    """A token that was revoked or has expired, or a right that was taken away, went on over HTTP
    for as long as nobody restarted the node.
    """
    guard, clock = scene.guard, scene.clock
    door = door_of(scene)
    await scene.user("ann", "correct horse")
    grant = Grant(READ, ORDERS)
    await scene.txn.run(lambda t: users.give(t, "ann", grant))
    token = f"Bearer {await scene.token('ann', ttl_ms=1_000)}"
    await guard.look()
    request = await asked(door, token)
    assert request.identity.name == "ann"
    for _ in range(2):
        request.needs(READ, "shop", "orders")
        for actions, name in ((PUT, "orders"), (READ, "others")):
            with pytest.raises(Forbidden):
                request.needs(actions, "shop", name)
    with pytest.raises(Unauthenticated):
        await asked(door, token + "x")
    await scene.txn.run(lambda t: users.take(t, "ann", grant))
    await guard.look()
    for one in (request, await asked(door, token)):
        with pytest.raises(Forbidden):
            one.needs(READ, "shop", "orders")
    clock.ms += 1_000
    with pytest.raises(Unauthenticated):
        await asked(door, token)


@pytest.mark.parametrize("ends", ["token", "user", "password"])
async def test_a_credential_that_was_taken_away_lets_nobody_in(scene: Scene, ends: str) -> None:
    """The same of whoever was dropped, and of a password, which is looked at each time."""
    guard = scene.guard
    door = door_of(scene)
    await scene.user("ann", "correct horse")
    said = f"Bearer {await scene.token('ann')}"
    if ends == "password":
        said = "Basic YW5uOmNvcnJlY3QgaG9yc2U="
    await guard.look()
    assert (await asked(door, said)).identity.name == "ann"
    if ends == "token":
        await scene.txn.run(lambda t: users.revoke_token(t, "ann", "t"))
    elif ends == "user":
        await scene.txn.run(lambda t: users.delete(t, "ann"))
    else:
        await scene.txn.run(lambda t: users.change_password(t, scene.rng, "ann", "battery staple"))
    await guard.look()
    with pytest.raises(Unauthenticated):
        await asked(door, said)


async def test_one_token_is_not_remembered_in_many_ways(scene: Scene) -> None:
    """Whoever has a token filled the node's memory with spaces before it."""
    door = door_of(scene)
    await scene.user("ann", "correct horse")
    token = await scene.token("ann")
    await scene.guard.look()
    for spaces in range(1_000, 1_010):
        assert (await asked(door, f"Bearer {' ' * spaces}{token}")).identity.name == "ann"
    assert len(door._permits) == 1

"""`kvorum node force-members`: the plan of one survivor, and its execution at those concerned."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import NamedTuple

from kv.base.adapters import LoopTimers, SystemRng
from kv.base.config import load, split_address
from kv.base.credentials import Credential
from kv.base.errors import InvalidArgument, KvorumError
from kv.client.client import KvClient
from kv.client.client import connect as connect_to
from kvorum.api.verbs import FORCE_MEMBERS
from kvorum.cli import output
from kvorum.cli.connection import DEFAULT
from kvorum.cluster.force_members import Plan, proof

_ASK_MS = 30_000


class Order(NamedTuple):
    """What the operator said."""

    connect: str | None
    voters: tuple[int, ...]
    reason: str
    config: Path | None


def force_members(order: Order, *, yes: bool, as_json: bool) -> list[Plan]:
    """The plan, executed if `yes`. Errors end the process."""
    try:
        secret = load({}, os.environ, config=order.config).cluster_secret
        return asyncio.run(_ask(order, secret, yes=yes))
    except KvorumError as error:
        output.die(error, as_json=as_json)


async def _ask(order: Order, secret: str, *, yes: bool) -> list[Plan]:
    address = (order.connect or DEFAULT).removeprefix("kvorum://")
    if "," in address or "://" in address:
        raise InvalidArgument("--connect must name one survivor alone, as HOST:BASE")
    timers = LoopTimers(asyncio.get_running_loop())
    # As a node: nobody can say who users are while the cluster has no majority.
    credential = Credential(secret=secret.encode()) if secret else None
    client = await connect_to(
        [split_address(address)], timers=timers, rng=SystemRng(), credential=credential
    )
    try:
        rows, ticket = await _call(client, order, secret, b"")
        if yes:
            await _call(client, order, secret, ticket)
    finally:
        client.close()
    return rows


async def _call(
    client: KvClient, order: Order, secret: str, ticket: bytes
) -> tuple[list[Plan], bytes]:
    proved = proof(secret, order.voters, order.reason, ticket)
    rows, ticket = await client.call_node(
        *(FORCE_MEMBERS, list(order.voters), order.reason, ticket, proved),
        budget_ms=_ASK_MS,
    )
    return [Plan.from_wire(row) for row in rows], ticket

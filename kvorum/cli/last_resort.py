"""`kvorum node force`: the call itself, to one node and no other."""

from __future__ import annotations

import asyncio
from typing import Any

from kv.base import methods
from kv.base.adapters import LoopTimers, SystemRng
from kv.base.config import split_address
from kv.base.errors import InvalidArgument, KvorumError
from kv.client.client import connect as connect_to
from kvorum.cli import output
from kvorum.cli.connection import DEFAULT

_ASK_MS = 30_000


def force_members(connect: str | None, node: int, reason: str, *, as_json: bool) -> list[list[Any]]:
    """Rows of kvorum/forcing.py. Errors end the process."""

    async def ask() -> list[list[Any]]:
        address = (connect or DEFAULT).removeprefix("kvorum://")
        if "," in address or "://" in address:
            raise InvalidArgument(f"--connect must name node {node} alone, as HOST:BASE")
        timers = LoopTimers(asyncio.get_running_loop())
        client = await connect_to([split_address(address)], timers=timers, rng=SystemRng())
        try:
            (rows,) = await client.call_node(methods.FORCE_MEMBERS, node, reason, budget_ms=_ASK_MS)
        finally:
            client.close()
        return [list(row) for row in rows]

    try:
        return asyncio.run(ask())
    except KvorumError as error:
        output.die(error, as_json=as_json)

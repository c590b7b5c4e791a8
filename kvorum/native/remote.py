"""A native backend in a process that is no node: over connections to the nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from kv.base.adapters import LoopTimers, SystemClock, SystemRng
from kv.base.credentials import Credential
from kv.base.limits import DEADLINE_MS_DEFAULT
from kv.base.spoken_time import Heard
from kv.base.tls import Tls
from kvorum.api.addresses import Address

if TYPE_CHECKING:
    from kvorum.native.native import NativeBackend


async def connect_backend(
    addresses: Sequence[Address],
    timeout_ms: int,
    tls: Tls | None = None,
    credential: Credential | None = None,
    near: tuple[str, str, str] | None = None,
) -> NativeBackend:
    """A backend over the native protocol; `credential` and what it raises:
    `kv.client.client.connect`. `near`: NativeBackend.read_past_near; None: leaders alone answer.
    """
    from kv.client.client import connect as connect_kv
    from kvorum.native.native import NativeBackend
    from sqlproxy.catalog.visible_catalog import RemoteCatalog
    from tso.client import remote_tso
    from txn.client import TxnClient

    loop = asyncio.get_running_loop()
    timers, rng = LoopTimers(loop), SystemRng()
    heard = Heard()
    reach = partial(
        connect_kv, addresses, timers=timers, rng=rng, budget_ms=timeout_ms, heard=heard
    )
    kv = await reach(tls=tls, credential=credential)
    # The oracle has a connection of its own, so that bulk data does not delay timestamps.
    tso_kv = await reach(tls=tls, credential=credential)
    oracle = remote_tso(tso_kv, timers, rng, budget_ms=min(timeout_ms, DEADLINE_MS_DEFAULT))
    txn = TxnClient(kv, oracle, SystemClock(), rng, timers, budget_ms=timeout_ms)

    async def close() -> None:
        await txn.close()
        tso_kv.close()
        kv.close()

    seen = RemoteCatalog(kv)
    backend = NativeBackend(kv, txn, oracle.take, timers, close=close, seen=seen)
    if near is not None:
        backend.read_past_near(near, rng)
    return backend

"""A client process: connects, says that it is ready, is given a window, runs, reports.

Messages over the pipe: "ready" → (begin, end) in seconds of the monotonic clock → (latencies as
bytes of doubles, errors, first error). A worker that cannot start sends ("failed", reason).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from multiprocessing.connection import Connection as Pipe
from random import Random
from time import monotonic
from typing import Any

import uvloop

from bench import native, pipelined, web
from bench.closed_loop import Connection, Tally
from bench.spec import MUX_CONNECTIONS, Spec, shares, user_key
from kv.base.keys import table_prefix

_GRACE_S = 15.0  # for what is under way when the window ends


def main(spec: Spec, clients: int, seed: int, pipe: Pipe) -> None:
    """The process's entry; `clients` is this process's share."""
    try:
        uvloop.run(_work(spec, clients, Random(seed), pipe))
    except Exception as error:  # noqa: BLE001  the parent must hear of everything
        pipe.send(("failed", f"{type(error).__name__}: {error}"))


async def _work(spec: Spec, clients: int, rng: Random, pipe: Pipe) -> None:
    tally = Tally()
    run = _through_sdk if spec.client == "sdk" else _lean
    await run(spec, clients, rng, tally, lambda: _handshake(pipe, tally))
    pipe.send((tally.latencies.tobytes(), tally.errors, tally.first_error))


async def _handshake(pipe: Pipe, tally: Tally) -> None:
    pipe.send("ready")
    begin, end = await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
    tally.window(begin, end)


async def _lean(
    spec: Spec, clients: int, rng: Random, tally: Tally, handshake: Callable[[], Any]
) -> None:
    loop = asyncio.get_running_loop()
    value = rng.randbytes(spec.size)
    port = spec.http_port if spec.transport == "http" else spec.native_port
    connections: list[Connection | pipelined.PipelinedConnection] = []
    for factory in _factories(spec, clients, rng, value, tally):
        connections.append((await loop.create_connection(factory, "127.0.0.1", port))[1])
    oracles = []
    if spec.op in native.ASKING and spec.transport == "native":
        for client in connections if spec.oracle_port not in (0, port) else ():
            assert isinstance(client, native.NativeConnection)
            factory = partial(native.Oracle, client, tally)
            oracles.append(
                (await loop.create_connection(factory, "127.0.0.1", spec.oracle_port))[1]
            )
            client.ask_at(oracles[-1])
    try:
        ready = asyncio.gather(*(c.ready for c in (*connections, *oracles)))
        await asyncio.wait_for(ready, _GRACE_S)
        await handshake()
        for connection in connections:
            connection.start()
        limit = tally.end - monotonic() + _GRACE_S
        await asyncio.wait_for(asyncio.gather(*(c.finished for c in connections)), limit)
    finally:
        for connection in (*oracles, *connections):
            connection.close()


def _factories(
    spec: Spec, clients: int, rng: Random, value: bytes, tally: Tally
) -> list[Callable[[], Any]]:
    """What makes each connection of this process."""
    names = [user_key(i) for i in range(spec.keys)]
    if spec.transport == "http":
        script = web.SCRIPTS[spec.op]
        return [
            lambda: web.HttpConnection(script(spec, names, rng, value), tally)
            for _ in range(clients)
        ]
    prefix = table_prefix(spec.table_id)
    keys = [prefix + name for name in names]
    if spec.transport == "mux":
        return [
            lambda window=window: pipelined.PipelinedConnection(  # type: ignore[misc]
                spec, keys, rng, value, window=window, tally=tally
            )
            for window in shares(clients, MUX_CONNECTIONS)
        ]
    script = native.SCRIPTS[spec.op]
    return [
        lambda: native.NativeConnection(script(spec, keys, rng, value), tally)
        for _ in range(clients)
    ]


async def _through_sdk(
    spec: Spec, clients: int, rng: Random, tally: Tally, handshake: Callable[[], Any]
) -> None:
    import kvorum  # only here: the lean clients start without it
    from bench import sdk

    value = rng.randbytes(spec.size)
    groups = shares(clients, MUX_CONNECTIONS if spec.transport == "mux" else clients)
    async with AsyncExitStack() as stack:
        work = []
        for tasks in groups:
            db = await kvorum.aconnect(spec.url)
            stack.push_async_callback(db.close)
            work += [sdk.operation(db, spec, rng, value) for _ in range(tasks)]
        await handshake()
        await asyncio.gather(*(sdk.client(one, tally) for one in work))

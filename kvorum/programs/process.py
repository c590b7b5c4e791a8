"""A process that is one node: signals, the end, and what is said about both.

SIGTERM and SIGINT stop it in order; a second one ends it at once. One of several stores of a
machine (kvorum/programs/stores.py) also stops when whoever started it is gone. A fatal failure (a
failed sync, damage) ends it at once too: nothing may be acknowledged any more, and an orderly stop
would want the disk that failed.

A database that met damage takes no writes until it is opened anew, and others have copies of what
is in it. Then the process hands over what it leads, and becomes its own successor (exec): the same
process to whoever supervises it, or nobody does, with the damaged directory put aside and what was
in it on its way from the others (docs/decisions/1412).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import uvloop

from kv.base.config import HTTP_OFFSET, SQL_OFFSET, SUPERVISED, NodeConfig
from kv.base.errors import KvorumError
from kv.storage.open_engine import EngineKind
from kvorum.local import cycles, descriptors, extras, logs
from kvorum.local.ports import Ports, system_ports
from kvorum.node.node import Node, build
from procedures.engine.runner import Runner

FAILED = 1
_STOP_S_MAX: Final = 25.0
_HAND_OVER_S_MAX: Final = 3.0
_TOO_LONG: Final = (
    f"it did not stop in order within {_STOP_S_MAX:.0f} s: ended as by kill -9; what was "
    "acknowledged is durable"
)


def run(config: NodeConfig, on_ready: Callable[[Node], None]) -> None:
    """Run a node until a signal. Raises KvorumError if it cannot start."""
    logs.configure(config.log_level)
    _bury()
    uvloop.run(_run(config, on_ready))


async def _run(config: NodeConfig, on_ready: Callable[[Node], None]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def stopped_by(number: int) -> None:
        if stop.is_set():
            _end_now(f"ended by a second signal {number}")
        stop.set()
        loop.call_later(_STOP_S_MAX, _end_now, _TOO_LONG)

    seats = descriptors.seats(descriptors.raise_limit())
    ports = replace(system_ports(loop, _engine(config)), seats=seats)
    if config.procedure_modules:
        ports = replace(ports, steps=_steps(ports, config))
    node = await build(config, ports)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped_by, number)
    if SUPERVISED in os.environ:
        _at_end_of_stdin(loop, lambda: None if stop.is_set() else stopped_by(signal.SIGTERM))
    node.fatal.add_done_callback(partial(_failed, node, stop))
    if not await _started(node, stop):
        return
    cycles.calm()
    on_ready(node)
    await stop.wait()
    await node.stop()
    cycles.release()


def _failed(node: Node, stop: asyncio.Event, fatal: asyncio.Future[BaseException]) -> None:
    """The end, or a new beginning."""
    why = _with_cause(fatal.result())
    if not node.store.mendable or stop.is_set():
        _end_now(f"fatal: {why}")
    sys.stderr.write(f"kvorum: it starts anew, without what is damaged: {' '.join(why.split())}\n")
    sys.stderr.flush()
    loop = asyncio.get_running_loop()
    giving = loop.create_task(node.store.hand_over())
    giving.add_done_callback(lambda _: _become_anew())
    loop.call_later(_HAND_OVER_S_MAX, _become_anew)


def _become_anew() -> None:
    """The same command from its beginning. That closes all files, locks and sockets; children end,
    because what connects them with this process is closed.
    """
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _bury() -> None:
    """Children of the process that this one was before."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _steps(ports: Ports, config: NodeConfig) -> Callable[[Sequence[str]], Runner]:
    """Users' code neither stops nor ends the node."""
    from kvorum.steps.step_processes import StepProcesses

    return partial(StepProcesses, timers=ports.timers, log_level=config.log_level)


def _at_end_of_stdin(loop: asyncio.AbstractEventLoop, then: Callable[[], object]) -> None:
    stdin = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(stdin, 1 << 10):
            loop.remove_reader(stdin)
            then()

    loop.add_reader(stdin, readable)


async def _started(node: Node, stop: asyncio.Event) -> bool:
    """Start it; False if a signal came before it was ready. Raises what kept it from starting."""
    loop = asyncio.get_running_loop()
    starting, stopped = loop.create_task(node.start()), loop.create_task(stop.wait())
    await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if starting.done():
        await starting
        return True
    with contextlib.suppress(KvorumError):  # that it was stopped before it was ready
        await node.stop()
    with contextlib.suppress(KvorumError):
        await starting
    return False


def _engine(config: NodeConfig) -> EngineKind:
    return "memory" if config.engine == "memory" else "rocks"


def _with_cause(error: BaseException) -> str:
    """What happened, and what the machine said: "no space left" is what the reader needs."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    return str(error) if root is error else f"{error} ({root})"


def _end_now(reason: str) -> None:
    """One line on stderr and exit code 1, without any clean-up."""
    sys.stderr.write(f"kvorum: {' '.join(reason.split())}\n")
    sys.stderr.flush()
    os._exit(FAILED)


def urls(config: NodeConfig) -> dict[str, str]:
    """Where a node can be reached."""
    if config.port is None:
        return {}
    host = config.reachable_at
    scheme = "https" if config.tls_dir else "http"
    found = {"native": f"kvorum{'s' if config.tls_dir else ''}://{host}:{config.port}"}
    if config.http:
        found["http"] = f"{scheme}://{host}:{config.port + HTTP_OFFSET}"
        found["console"] = f"{found['http']}/console"
        found["docs"] = f"{found['http']}/docs"
        found["metrics"] = f"{found['http']}/metrics"
    if config.sql and "sql" in config.roles:
        url = f"postgresql://kvorum@{host}:{config.port + SQL_OFFSET}/postgres"
        url += "?sslmode=verify-full" if config.tls_dir else ""
        found["sql"] = extras.lacking("sql") or url
    return found

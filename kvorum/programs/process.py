"""A process that is one node: signals, the end, and what is said about both.

SIGTERM and SIGINT stop it in order; a second one ends it at once. One of several stores of a
machine (kvorum/programs/stores.py) also stops when whoever started it is gone. A fatal failure (a
failed sync, damage) ends it at once too: nothing may be acknowledged any more, and an orderly stop
would want the disk that failed.

A database that met damage takes no writes until it is opened anew. If the others can do without
what is in it (kvorum/cluster/dispensable.py), the process hands over what it leads, and becomes its
own successor (exec): the same process to whoever supervises it, or nobody does, with the damaged
directory put aside and what was in it on its way from the others (docs/decisions/1412).
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
from pathlib import Path
from typing import Final, Protocol

import uvloop

from kv.base.config import HTTP_OFFSET, SQL_OFFSET, SUPERVISED, NodeConfig
from kv.base.errors import KvorumError
from kv.storage.open_engine import EngineKind
from kvorum import observability
from kvorum.local import cycles, descriptors, extras, logs
from kvorum.local.ports import Ports, system_ports
from kvorum.node.node import Node, build
from procedures.engine.runner import Runner

FAILED = 1
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
STOP_S_MAX: Final = 25.0
_HAND_OVER_S_MAX: Final = 3.0
_TOO_LONG: Final = (
    f"it did not stop in order within {STOP_S_MAX:.0f} s: ended as by kill -9; what was "
    "acknowledged is durable"
)


class Store(Protocol):
    """What a new beginning needs of kvorum.storage.store.Store."""

    async def needed(self) -> str | None: ...
    async def hand_over(self) -> None: ...


def run(config: NodeConfig, on_ready: Callable[[Node], None]) -> None:
    """Run a node until a signal. Raises KvorumError if it cannot start."""
    logs.configure(config.log_level)
    observability.start_if_asked()
    _bury()
    if _stopped_before():
        return
    uvloop.run(_run(config, on_ready, _children()))


async def _run(
    config: NodeConfig, on_ready: Callable[[Node], None], strangers: frozenset[int]
) -> None:
    """`strangers`: children of whatever this process was before, a shell perhaps."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def stopped_by(number: int) -> None:
        if stop.is_set():
            _end_now(f"ended by a second signal {number}")
        stop.set()
        loop.call_later(STOP_S_MAX, _end_now, _TOO_LONG)

    seats = descriptors.seats(descriptors.raise_limit())
    ports = replace(system_ports(loop, _engine(config)), seats=seats)
    if config.procedure_modules:
        ports = replace(ports, steps=_steps(ports, config))
    node = await build(config, ports)
    for number in _ENDING:
        loop.add_signal_handler(number, stopped_by, number)
    if SUPERVISED in os.environ:
        _at_end_of_stdin(loop, lambda: None if stop.is_set() else stopped_by(signal.SIGTERM))
    node.fatal.add_done_callback(partial(_failed, node, stop, strangers))
    if not await _started(node, stop):
        return
    cycles.calm()
    on_ready(node)
    await stop.wait()
    await node.stop()
    cycles.release()


def _failed(
    node: Node,
    stop: asyncio.Event,
    strangers: frozenset[int],
    fatal: asyncio.Future[BaseException],
) -> None:
    """The end, or a new beginning."""
    why = _with_cause(fatal.result())
    if not node.store.mendable or stop.is_set():
        _end_now(f"fatal: {why}")
    for number in _ENDING:  # at once: there is nothing to stop in order
        signal.signal(number, lambda *_: _end_now(f"fatal: {why}"))
    giving = asyncio.get_running_loop().create_task(_hand_over(node.store))
    giving.add_done_callback(partial(_handed_over, why, stop, strangers))


async def _hand_over(store: Store) -> str | None:
    """None, or why others need what is here."""
    needed = await store.needed()
    if needed is None:
        giving = asyncio.get_running_loop().create_task(store.hand_over())
        await asyncio.wait([giving], timeout=_HAND_OVER_S_MAX)
    return needed


def _handed_over(
    why: str, stop: asyncio.Event, strangers: frozenset[int], giving: asyncio.Task[str | None]
) -> None:
    if stop.is_set() or giving.cancelled():  # whoever wants it to end does not ask twice
        _end_now(f"fatal: {why}")
    needed = giving.exception() or giving.result()
    if needed is not None:
        _end_now(f"fatal: {why}; it does not start anew by itself: {needed}")
    sys.stderr.write(f"kvorum: it starts anew, without what is damaged: {' '.join(why.split())}\n")
    sys.stderr.flush()
    _become_anew(why, strangers)


def _become_anew(why: str, strangers: frozenset[int]) -> None:
    """The same command from its beginning. That closes all files, locks and sockets. To the kernel
    the parent of its children lives on: so a step that computes would go on, and is killed here.
    """
    for child in _children() - strangers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    # What comes from here on is to end the next one: it stays pending, or the system ends this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    except OSError as error:
        _end_now(f"fatal: {why}; it cannot start anew: {error}")


def _stopped_before() -> bool:
    """Whether a signal came while this process became another one (`_become_anew`)."""
    if signal.sigpending().intersection(_ENDING):
        return True
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    return False


def _children() -> frozenset[int]:
    """Of this process, by all its threads; none where the kernel does not tell."""
    found: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found.update(map(int, file.read_text().split()))
    return frozenset(found)


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

"""The doors of a node to the outside, as one value: what `build(config, ports)` takes.

Production passes `system_ports(loop)`; a simulation passes virtual time, a crash-able memory engine
and no network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kv.base.adapters import LoopTimers, SystemClock, SystemRng
from kv.base.ports import Clock, Rng, Timers
from kv.storage.engine import Engine, EngineKind, open_engine
from kv.storage.log import SyncDone, ThreadSyncer


class Syncer(Protocol):
    """raft.api.Syncer that can be ended."""

    def start(self, done: SyncDone) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything that a node does not decide itself."""

    clock: Clock
    timers: Timers
    rng: Rng
    open_engine: Callable[[Path, Sequence[str]], Engine]
    """The database in a directory, with these families. See kv.storage.engine.open_engine."""
    syncer: Callable[[Engine], Syncer]
    """Makes the log durable beside the loop."""
    in_thread: Callable[[Callable[[], None]], Awaitable[None]]
    """Runs a call that releases the GIL beside the loop."""


def system_ports(loop: asyncio.AbstractEventLoop, engine: EngineKind = "rocks") -> Ports:
    """The real machine; `engine` "memory" keeps nothing beyond the process."""
    return Ports(
        clock=SystemClock(),
        timers=LoopTimers(loop),
        rng=SystemRng(),
        open_engine=lambda path, families: open_engine(engine, path, families),
        syncer=lambda engine: ThreadSyncer(engine, loop),
        in_thread=asyncio.to_thread,
    )

"""The doors to the outside: clock, timers, randomness, ids. Disk is `kv.storage.engine`, network is
`kv.base.rpc`.

Production passes the adapters of `kv.base.adapters`; the simulator passes virtual ones. Nobody else
reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch; may jump in both directions."""
        ...

    def monotonic(self) -> float:
        """Seconds, never backwards; those in which the machine was suspended count."""
        ...


class Handle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """What the decision code needs of an event loop."""

    def monotonic(self) -> float: ...

    def call_soon(self, fn: Callable[..., object], *args: object) -> object: ...

    def call_later(self, delay_s: float, fn: Callable[..., object], *args: object) -> Handle: ...


class Rng(Protocol):
    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...

    def token(self, n_bytes: int) -> bytes:
        """Random bytes for ids and secrets."""
        ...

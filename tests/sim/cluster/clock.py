"""The clocks of one machine: they run a little fast or slow, and its wall clock may be wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.kit.simloop import _START


class Clock:
    """kv.base.ports.Clock: `rate` local seconds per true second; `skew_ms` of the wall clock may be
    set, to jump forth and back.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, rate: float) -> None:
        self.rate, self.skew_ms = rate, 0
        self._loop = loop

    def now_ms(self) -> int:
        return int((_START + self.monotonic()) * 1000) + self.skew_ms

    def monotonic(self) -> float:
        return self._loop.time() * self.rate


class Timers:
    """kv.base.ports.Timers by that clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop, self._clock = loop, clock
        self.call_soon = loop.call_soon
        self.monotonic = clock.monotonic

    def call_later(
        self, delay_s: float, fn: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s / self._clock.rate, fn, *args)

"""The real clock, timers, randomness and temporary files: the only place that touches them.

Time that passes is measured by CLOCK_BOOTTIME. CLOCK_MONOTONIC stands still while a virtual machine
is suspended: a leader that wakes would believe in its lease, and serve reads that others have
written over meanwhile. The timers of event loops count CLOCK_MONOTONIC, so after a suspension they
are late by it; what they were for looks at the time anyway.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import IO, Final

from kv.base import timestamps

monotonic = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds since the machine was started, also those in which it was suspended. Asked some ten times
per request: no frame for it.
"""
_ROUNDED_S: Final = 0.0015
"""uvloop's timers count whole milliseconds from one that has begun: by so much they would be due
before their time by the clock, and whoever looks at it would have to wait again.
"""


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def ago(text: str) -> int | None:
    """The timestamp of so long ago (-10s) by this machine's clock; None: that is no such text.
    Raises ValueError: before all timestamps.
    """
    ms = timestamps.ago_ms(text)
    if ms is None:
        return None
    at_ms = SystemClock().now_ms() - ms
    if at_ms <= 0:
        raise ValueError(f"{text[:40]!r} is before all timestamps")
    return timestamps.compose(at_ms)


def cpu_seconds() -> float:
    """What this process has used of the processors."""
    return time.process_time()


def thread_seconds() -> float:
    """What the calling thread has used of them: on a loop, what the loop has."""
    return time.thread_time()


class LoopTimers:
    """Timers of a running asyncio (or uvloop) event loop. A loop of virtual time has its own
    `monotonic`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.call_soon = loop.call_soon
        self.monotonic: Callable[[], float] = getattr(loop, "monotonic", monotonic)
        self._rounded_s = _ROUNDED_S if self.monotonic is monotonic else 0.0

    def call_later(
        self, delay_s: float, fn: Callable[..., object], *args: object
    ) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s + self._rounded_s, fn, *args)


class SystemRng:
    """Randomness of the operating system for tokens, a seeded generator for jitter."""

    def __init__(self) -> None:
        self.random = random.SystemRandom().random

    def token(self, n_bytes: int) -> bytes:
        return secrets.token_bytes(n_bytes)


class SeededRng:
    """The same choices for the same seed: for runs that are to be repeated, never for secrets."""

    def __init__(self, seed: str | int) -> None:
        generator = random.Random(seed)
        self.random = generator.random
        self.token = generator.randbytes


def temporary_file() -> IO[bytes]:
    """A file without a name that is gone when it is closed, or the process ends."""
    return tempfile.TemporaryFile(prefix="kvorum-")

"""Timers of a simulated loop."""

from __future__ import annotations

from tests.kit.simloop import SimLoop


class SimTimers:
    """kv.base.ports.Timers."""

    def __init__(self, loop: SimLoop) -> None:
        self.monotonic = loop.time
        self.call_soon = loop.call_soon
        self.call_later = loop.call_later

"""The time that frames of the native protocol carry where clocks are hybrid (tso/hybrid.py).

    frame of requests   [ts, row, …]     the client has heard of `ts`
    frame of replies    [ts, row, …]     the server's clock, above all that its replies tell of

A server with an oracle says none, so its clients do not either. This is how causes reach effects: a
client that read something, and writes elsewhere, is given a timestamp above what it read.
"""

from __future__ import annotations

from typing import Protocol

from kv.base.errors import KvorumError


class Time(Protocol):
    """A client's side."""

    at: int
    """The highest timestamp that it knows of; 0: clocks are not hybrid, as far as it knows."""

    def owe(self, ts: int) -> None:
        """A server knows of `ts`."""
        ...


class ServersTime(Time, Protocol):
    """A node's."""

    def hear(self, ts: int) -> KvorumError | None:
        """A client knows of `ts`; an error if what came with it must not be done."""
        ...


class Heard:
    """The `Time` of a session that is no node's; it may be handed on as a number."""

    __slots__ = ("at",)

    def __init__(self, at: int = 0) -> None:
        self.at = at

    def owe(self, ts: int) -> None:
        if ts > self.at:
            self.at = ts

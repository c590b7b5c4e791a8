"""Node methods as both sides see them, as protocols: how somebody calls one, and how it is served.
Arguments and results are lists, in the order that kv/base/verbs.py declares. Both raise
KvorumError.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from kv.base.rights import Kind, Resource
from kv.base.wire_row import WireRow


class Nodes(Protocol):
    """The node in use; a method of the master goes to the meta partition's leader
    (kv.client.client.KvClient).
    """

    async def call_node(self, method: int, *args: object, budget_ms: int = 0) -> WireRow: ...


class NodesAt(Nodes, Protocol):
    """The node at an address, too (kv.client.client.KvClient)."""

    async def call_at(
        self, address: tuple[str, int], method: int, *args: object, budget_ms: int = 0
    ) -> WireRow: ...


class NodesById(Protocol):
    """The node of an id (kvorum.cluster.links.NodeCalls)."""

    async def call_at(
        self, node: int, method: int, *args: object, budget_ms: int = 0
    ) -> WireRow: ...


class Caller(Protocol):
    """What a handler knows about its request (kv.server.dispatcher.Context)."""

    @property
    def deadline(self) -> float:
        """Seconds of timers.monotonic()."""
        ...

    @property
    def user(self) -> str:
        """Who asks; see kv.server.dispatcher.Connection."""
        ...

    def reads(self, resource: Resource) -> bool:
        """Whether who asks may read that."""
        ...

    def reads_some(self, kind: Kind) -> bool:
        """Whether who asks may read anything of that kind."""
        ...


Handler = Callable[[Caller, WireRow], Awaitable[WireRow] | WireRow]


class Methods(Protocol):
    """Where handlers are registered (kv.server.dispatcher.Dispatcher)."""

    def register(self, method: int, handler: Handler) -> None: ...

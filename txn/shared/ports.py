"""What the coordinator needs of the layers below, as protocols: any client of partitions and of the
oracle will do.

`Kv` is met by `kv.client.KvClient` (and by the fake of the tests), `Tso` by `tso.client`.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from kv.base.descriptors import PartitionDescriptor
from kv.client.calls import Started
from kv.client.links import Receiver


class Kv(Protocol):
    """Partition methods of `kv.base.methods`, routed by key. Errors are those of `kv.base.errors`.

    `call` raises Moved only when the arguments do not fit one partition any more, and
    UnknownOutcome only for methods that are not repeatable.
    """

    async def call(self, method: int, key: bytes, *args: object, budget_ms: int = 0) -> Any: ...

    async def call_node(self, method: int, *args: object, budget_ms: int = 0) -> object: ...

    async def find_txn(self, start_ts: int, *, budget_ms: int = 0) -> bytes | None:
        """The anchor key of a transaction, None if it has no record anywhere."""
        ...

    async def locate(self, key: bytes) -> PartitionDescriptor: ...


@runtime_checkable
class Quick(Protocol):
    """What a Kv may offer besides: the first attempt of a call without a task, and whose key it is
    without asking (kv.client.KvClient, which says how the reply ends).
    """

    def located(self, key: bytes) -> PartitionDescriptor | None: ...

    def start(
        self, method: int, key: bytes, args: tuple[object, ...], budget_ms: int
    ) -> Started | None: ...

    def start_for(
        self, waiter: Receiver, method: int, key: bytes, args: tuple[object, ...], budget_ms: int
    ) -> bool: ...

    async def go_on(self, first: Started, error: BaseException) -> object: ...


class Tso(Protocol):
    @property
    def hybrid(self) -> bool:
        """Whether timestamps come from many clocks: then one that this client has not heard of may
        have been given out all the same.
        """
        ...

    @property
    def causal_token(self) -> int:
        """With many clocks: what another client is to be above, so that it sees all that came over
        this one; 0: an oracle needs none, or no server has answered yet.
        """
        ...

    async def now(self) -> int:
        """A timestamp above every one that was handed out before this call."""
        ...

    async def above(self, at: int, /) -> int:
        """A fresh one; with many clocks above `at`, as all later ones here. Raises InvalidArgument
        for one that no node can have given out.
        """
        ...

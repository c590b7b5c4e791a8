"""Who waits for whom at one node: one registry for partitions, procedures and whatever else waits.

Nothing is stored twice: whoever lets others wait registers a *source*, and is asked when somebody
wants to know: people (`kvorum locks`, GET /v1/locks), the push service and the deadlock detector
(txn/intents/lock_waits.py, txn/intents/deadlock.py). Error texts take owners from here, too. All of
it is in memory: a wait ends with its node, and the waiter asks elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from heapq import nlargest
from itertools import chain
from typing import Final, Protocol

from kv.base.errors import KvorumError
from kv.base.intents import TxnId, txn_id
from kv.base.ports import Handle
from kv.base.wire_row import WireRow

INTENT: Final = "intent"  # a write waits for another transaction's intent …
GUARD: Final = "guard"  # … or for the guard of a serializable one
PROCEDURE: Final = "procedure"  # a procedure waits for an event or for its children
# Detail of a KeyLocked: the request waited so many ms in a queue, as long as it was to
WAITED: Final = "waited_ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One wait, for one thing."""

    node: int
    source: int  # who knows of it at this node: a partition's id; 0 = the procedures
    id: int  # unique and rising in its source
    kind: str
    resource: bytes | str  # the storage key, or what a procedure waits for
    waiter: int  # id of the transaction or procedure; 0 = a write without one
    waiter_owner: str
    holder: int  # the transaction that stands in the way; 0 = nobody any more, its turn comes
    holder_owner: str
    held: bytes  # the key that ends with the holder: the resource, or where its guard begins
    anchor: bytes  # of the holder: where its status record lies
    ttl_ms: int  # of the holder's intent, counted from the holder's start
    waited_ms: int
    priority: int  # 1 before 0 before -1
    holding: bool  # whether the waiter may hold something that others wait for
    waiter_user: str = ""  # whose the transactions are (kv/base/intents.py)
    holder_user: str = ""

    @property
    def waiter_id(self) -> TxnId:
        return txn_id(self.waiter, self.waiter_user)

    @property
    def holder_id(self) -> TxnId:
        return txn_id(self.holder, self.holder_user)

    @property
    def edge(self) -> tuple[int, int, int, int]:
        """What must be the same for it to be the same wait for the same holder."""
        return self.node, self.source, self.id, self.holder

    def to_wire(self) -> WireRow:
        return list(astuple(self))

    @staticmethod
    def from_wire(row: WireRow) -> Wait:
        return Wait(**dict(zip(_NAMES, row, strict=False)))


_NAMES: Final = tuple(field.name for field in fields(Wait))


@dataclass(frozen=True, slots=True)
class HeldUp:
    """A key that somebody waits for, and who holds it."""

    holder: int
    anchor: bytes
    ttl_ms: int
    key: bytes  # what ends with the holder
    user: str  # whose the intent or guard is


@dataclass(frozen=True, slots=True)
class Held:
    """An intent, or a guard."""

    node: int
    partition: int
    kind: str
    key: bytes  # of a chunk intent, one of its keys; of a guard, where it begins …
    end: bytes | None  # … and ends, None = the one key
    txn: int
    owner: str  # "" = not known at this node
    age_ms: int
    ttl_ms: int
    keys: int = 1  # of the same transaction in the same table, which this row stands for
    strength: str = ""  # of a row lock (kv.base.strengths); "" = of a write, or a read

    def to_wire(self) -> WireRow:
        return list(astuple(self))

    @staticmethod
    def from_wire(row: WireRow) -> Held:
        return Held(*row[: len(fields(Held))])


class Source(Protocol):
    """Somebody who lets others wait."""

    def waits(self, *, older_ms: int = 0, holding: bool = False) -> Iterable[Wait]:
        """Those that wait now, at least so long; `holding`: only of transactions that may hold
        something.
        """
        ...

    def held_up(self) -> Iterable[HeldUp]:
        """Each key once that somebody waits for."""
        ...

    def refuse_wait(self, id: int, holder: int, error: KvorumError) -> bool:
        """End a wait with an error, if it is still there and for the same holder."""
        ...


CallLater = Callable[[float, Callable[[], None]], Handle]


class Waits:
    """The registry of one node."""

    def __init__(self, node: int, call_later: CallLater) -> None:
        self.node = node
        self.call_later = call_later  # for sources that have no timers of their own
        self.owners: dict[int, str] = {}
        """Of transactions that somebody here waits for, as the push service learnt them."""
        self.owner_of: Callable[[bytes, int], str] = lambda _anchor, _start_ts: ""
        """(anchor, start_ts): the owner that a record at this node names. The node sets it."""
        self.on_wait: Callable[[], object] = lambda: None  # called for every new wait
        self._sources: dict[int, Source] = {}

    def add(self, number: int, source: Source) -> None:
        """`number`: what its waits have as `source`."""
        self._sources[number] = source

    def remove(self, number: int) -> None:
        self._sources.pop(number, None)

    def all(self, most: int, *, older_ms: int = 0, holding: bool = False) -> list[Wait]:
        """The `most` longest waits of this node, longest first."""
        found = chain.from_iterable(
            source.waits(older_ms=older_ms, holding=holding) for source in self._sources.values()
        )
        return nlargest(most, found, key=lambda wait: wait.waited_ms)

    def held_up(self) -> list[tuple[int, HeldUp]]:
        """Each key that somebody waits for, with the number of its source."""
        return [
            (number, held) for number, source in self._sources.items() for held in source.held_up()
        ]

    def refuse(self, edge: Sequence[int], error: KvorumError) -> bool:
        """End the wait with this `Wait.edge` with an error; False if there is none any more."""
        node, source, id_, holder = edge
        found = self._sources.get(source) if node == self.node else None
        return found is not None and found.refuse_wait(id_, holder, error)

"""What the machine needs of its surroundings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption, KvorumError
from kv.base.intents import Author
from kv.mvcc.guards import GuardTable
from kv.mvcc.records import TxnRecord
from kv.mvcc.view import ReadView
from kv.partition.entry import Entry
from kv.partition.locks import LockMirror
from kv.partition.sizes import SizeMap

Done = Callable[[KvorumError | None], None]
Taken = Callable[[int, KvorumError | None], None]
"""(first, None), or (0, why there are none)"""


class Timestamps(Protocol):
    """Where the commit timestamps come from: an oracle in this process, one behind a network, or
    this node's own clock (*hybrid*: tso/hybrid.py).
    """

    @property
    def known(self) -> int:
        """The highest timestamp that is known here to be handed out, or never to be any more."""
        ...

    @property
    def step(self) -> int:
        """How far apart those of one request are."""
        ...

    @property
    def hybrid(self) -> bool:
        """Whether it must hear what commands claim, and knows no order with other nodes'."""
        ...

    def hear(self, ts: int) -> KvorumError | None:
        """Of a hybrid one: a command claims `ts`; what is requested next lies above it. An error:
        the command is refused with it.
        """
        ...

    def floor(self, top_ts: int) -> int:
        """Of a hybrid one: what an earlier leader may have read at, at most, now that its time is
        over; `top_ts`: the highest that it committed at.
        """
        ...

    def request(self, n: int, done: Taken) -> None:
        """Take n consecutive timestamps that are handed out after this call, never ones that were
        fetched before it. `done` is called once: from within this call where the oracle is here,
        else later on the loop. An error is one of TryLater: nothing was handed out to anybody.
        """
        ...


class Connection(Protocol):
    """What a request answers to; sockets, HTTP and embedded alike. Hashable by identity."""

    @property
    def author(self) -> Author:
        """Whose commands it sends."""
        ...

    def stand_in(self, row: list[object]) -> None:
        """Answer a request about a transaction of somebody else than the author, who may end only
        his own.
        """
        ...

    def reply(self, row: list[object]) -> None:
        """`[rid, 0, *result]` or `[rid, 1, *error]`; queued."""
        ...

    def flush(self) -> None:
        """Send what was queued: once per drain."""
        ...

    def ready(self, wake: Callable[[], None]) -> bool:
        """Whether it can take large replies now. If not, it calls `wake` once it can, or is gone.
        Asked only of those whose reads did not fit a drain (`DRAIN_REPLY_BYTES`).
        """
        ...


class AppliedState(ReadView, Protocol):
    """The replica's part of the state DB."""

    locks: LockMirror
    guards: GuardTable
    descriptor: PartitionDescriptor
    frozen: tuple[int, int] | None
    """(index, term) of the entry since which nobody is served: another partition takes it over."""

    def is_empty(self, family: str, start: bytes, end: bytes) -> bool:
        """Whether there are certainly no rows in a range; see `kv.storage.engine`."""
        ...

    @property
    def index(self) -> int:
        """Up to where the log is applied."""
        ...

    @property
    def top_ts(self) -> int:
        """The highest commit timestamp that was applied."""
        ...

    @property
    def old_versions(self) -> int:
        """How many rows of hist are this partition's, about: a split divides it by bytes."""
        ...

    @property
    def live_bytes(self) -> int:
        """Of the newest records, about: a split divides them by bytes."""
        ...

    @property
    def sizes(self) -> SizeMap:
        """Where they lie."""
        ...

    def txn(self, anchor: bytes, start_ts: int) -> TxnRecord | None: ...

    def stored_lock(self, key: bytes) -> bytes | None:
        """The sealed intent, for values that the mirror left on disk."""
        ...


class ReplicaPort(Protocol):
    """The replicated log below a machine."""

    @property
    def state(self) -> AppliedState: ...

    def serving(self) -> bool:
        """May the applied state be read now as the newest, and commands be proposed?"""
        ...

    def readable(self) -> bool:
        """Is what is applied here a state of the partition, whole and undamaged?"""
        ...

    def leads(self) -> bool:
        """Does this replica lead? It may be without a lease: nobody used the partition for a while
        (Raft's groups sleep), or a transfer failed.
        """
        ...

    def confirm(self, then: Callable[[], None]) -> None:
        """Ask the others whether it leads; `then()` when that is known, perhaps at once. Then
        `serving` says the truth.
        """
        ...

    def leader_hint(self) -> int | None:
        """The node to ask instead, if known."""
        ...

    def refusal(self) -> KvorumError | None:
        """Why writes cannot be taken at the moment (the state DB refuses), None normally."""
        ...

    def damaged(self, error: Corruption) -> bool:
        """Somebody met stored data here that are not what was written. Whether another replica
        can answer instead, which is asked to lead: then no client sees the damage.
        """
        ...

    def no_room(self) -> KvorumError | None:
        """Why new writes (kv.base.methods.NEW_WRITES) cannot be taken: the disk is nearly full, or
        its table is being dropped.
        """
        ...

    def propose(self, command: bytes, entry: Entry) -> None:
        """Append to the log; `machine.applied(entry)` or `machine.dropped([entry], …)` follows,
        never from within.

        Raises NotLeader, TooLarge, Busy, Unavailable: then it was certainly not appended.
        """
        ...

    def prepare(self, entry: Entry) -> None:
        """Build what `entry` will write, now that the disk is busy with it anyway."""
        ...

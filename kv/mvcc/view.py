"""What a verb may read, and what it may change.

Two views of one partition, and a verb says in its signature which one it needs:
  * `View`: the *evaluated* state = applied + in flight. Writes decide on it, because evaluation
    order is log order;
  * `ReadView`: the *applied* state. Reads see nothing that a crash could take back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final, Protocol

from kv.base.intents import NOBODY, Author
from kv.base.methods import FENCED
from kv.mvcc.guards import At, Guard, GuardTable, encode_guard, guard_key
from kv.mvcc.packed_rows import PackedKeys
from kv.mvcc.records import (
    FENCE,
    Lock,
    Row,
    TxnRecord,
    encode_chunk,
    encode_lock,
    encode_packed,
    encode_txn,
    gcq_of,
    gcq_txn,
    txn_key,
)


class Versions(Protocol):
    """What both have: slices of the applied state."""

    @property
    def safepoint(self) -> int: ...

    def scan(
        self,
        family: str,
        start: bytes,
        end: bytes,
        *,
        reverse: bool = False,
        limit: int,
        bytes_max: int = 0,
    ) -> list[tuple[bytes, bytes]]: ...


class View(Versions, Protocol):
    """Evaluated state."""

    def cur(self, key: bytes) -> bytes | None:
        """The sealed newest record, its checksum verified. Raises Corruption."""
        ...

    def keep(self, key: bytes, record: bytes | None) -> None:
        """`cur` found this, and will be asked again soon: by whoever replaces it."""
        ...

    def many_cur(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """`cur` of each of the keys, which rise."""
        ...

    def lock(self, key: bytes) -> Lock | None: ...

    def intent(self, key: bytes) -> Lock:
        """The lock that `lock` found, with its payload."""
        ...

    def locked(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        """Those of `keys` that `lock` would find one on."""
        ...

    def chunk_values(self, lock: Lock) -> Sequence[bytes | None]:
        """The values of a chunk intent, in the order of its keys. Raises Corruption."""
        ...

    def txn(self, anchor: bytes, start_ts: int) -> TxnRecord | None: ...

    def holds(self, key: bytes) -> bool:
        """Whether the key lies in this partition's range."""
        ...

    @property
    def guards(self) -> GuardTable | None:
        """What serializable transactions guard; None if that is nothing."""
        ...

    # A range, as `validate` needs it: slices of the applied state, with what is in flight to be put
    # over them.

    def locked_keys(self, start: bytes, end: bytes) -> Iterable[bytes]:
        """Keys of `[start, end)` with an applied intent; `lock` says whether it is still there."""
        ...

    def records_in_flight(self, start: bytes, end: bytes) -> dict[bytes, bytes]:
        """Keys of `[start, end)` that were written, with their newest records; b"": there is none
        any more.
        """
        ...

    def locks_in_flight(self, start: bytes, end: bytes) -> Sequence[bytes]:
        """Keys of `[start, end)` whose intents were set or removed."""
        ...

    def look(self, rows: int) -> None:
        """So many rows were looked at in this step: it counts as work, whatever comes of it."""
        ...


class ReadView(Versions, Protocol):
    """Applied state. `cur` and `multi_cur` do not verify: the verbs do, because they look at every
    record anyway.
    """

    @property
    def retention_ms(self) -> int:
        """How long old versions are kept, as refusals tell it."""
        ...

    def cur(self, key: bytes) -> bytes | None: ...

    def multi_cur(self, keys: list[bytes]) -> Sequence[bytes | None]:
        """Sorted unique keys in, one answer per key out."""
        ...

    def lock(self, key: bytes) -> Lock | None: ...

    def locked_keys(self, start: bytes, end: bytes) -> Iterable[bytes]:
        """Keys with an intent in `[start, end)`, in order; end b"" = no bound."""
        ...


class GcView(View, Protocol):
    """Evaluated state, and slices of the applied one: what is looked for is older than anything in
    flight.
    """


_NONE: Final[dict[int, Lock]] = {}  # shared by all that drop no chunk: never changed


class Mutations:
    """The effects of one command, in order. `rows` are new versions, `others` plain puts and
    deletes (value None) by family. `user`: whose command it is, and so the records, intents and
    guards that it makes; `ends_others`: it may move on transactions that are not.
    """

    __slots__ = (  # not a dataclass: one is made for every command
        "bound_ts",
        "ends_others",
        "forgotten_bytes",
        "fresh",
        "fresh_bytes",
        "fresh_rows",
        "gone",
        "guards",
        "laid",
        "locks",
        "others",
        "rows",
        "safepoint",
        "top_ts",
        "txns",
        "user",
    )

    def __init__(self, author: Author = NOBODY) -> None:
        self.user, self.ends_others = author
        self.rows: list[Row] = []
        self.others: list[tuple[str, bytes, bytes | None]] = []
        self.locks: dict[bytes, Lock | None] = {}  # of single keys
        self.laid: Sequence[Lock] = ()  # chunk intents that are new …
        self.gone: dict[int, Lock] = _NONE  # … and those that are none any more, by their `id`
        self.txns: dict[tuple[bytes, int], TxnRecord | None] = {}
        self.guards: dict[At, Guard | None] = {}
        self.top_ts = 0  # the highest commit timestamp among the rows
        self.bound_ts = 0  # of a parallel commit: its new intents may become versions from here on
        self.safepoint = 0  # 0 = unchanged
        # Of the rows: those of keys without a version before, as whole columns, and what they are.
        self.fresh: Sequence[tuple[Sequence[bytes], list[bytes]]] = ()
        self.fresh_rows = self.fresh_bytes = 0
        self.forgotten_bytes = 0  # of cur records that are gone without a version in hist

    def version(self, row: Row, commit_ts: int) -> None:
        self.rows.append(row)
        if commit_ts > self.top_ts:
            self.top_ts = commit_ts

    def versions(self, keys: Sequence[bytes], records: list[bytes]) -> int:
        """First versions of many keys, sealed; their bytes. The caller sees to `top_ts`."""
        nothing = repeat(None)
        self.rows += zip(keys, records, nothing, nothing, strict=False)
        size = sum(map(len, keys)) + sum(map(len, records))
        self.fresh = (*self.fresh, (keys, records))
        self.fresh_rows += len(records)
        self.fresh_bytes += size
        return size

    def set_lock(self, key: bytes, lock: Lock) -> None:
        self.others.append(("lock", key, encode_lock(key, lock)))
        self.locks[key] = lock

    def drop_lock(self, key: bytes) -> None:
        self.others.append(("lock", key, None))
        self.locks[key] = None

    def set_chunk(self, lock: Lock, values: Sequence[bytes | None]) -> None:
        """One record for all keys of a chunk intent."""
        self.others.append(("lock", lock.chunk[0], encode_chunk(lock, values)))
        self.laid = (*self.laid, lock)

    def set_packed(self, lock: Lock, keys: PackedKeys, values: bytes) -> None:
        """`set_chunk` of rows as they were sent: `lock.chunk` are the keys."""
        self.others.append(("lock", keys.first, encode_packed(lock, keys, values)))
        self.laid = (*self.laid, lock)

    def drop_chunk(self, lock: Lock) -> None:
        self.others.append(("lock", lock.chunk[0], None))
        if not self.gone:
            self.gone = {}
        self.gone[id(lock)] = lock

    def set_guard(self, guard: Guard) -> None:
        at = (guard.start, guard.start_ts)
        self.others.append(("guard", guard_key(*at), encode_guard(guard)))
        self.guards[at] = guard

    def drop_guard(self, start: bytes, start_ts: int) -> None:
        self.others.append(("guard", guard_key(start, start_ts), None))
        self.guards[start, start_ts] = None

    def set_txn(self, anchor: bytes, start_ts: int, record: TxnRecord, *, new: bool) -> None:
        """Store the record; a `new` one also gets its row for the collector and for `find`."""
        key = txn_key(anchor, start_ts)
        self.others.append(("txn", key, encode_txn(key, record)))
        if new:
            self.others.append(("gcq", gcq_of(key, start_ts), b""))
        self.txns[anchor, start_ts] = record

    def set_fence(self, key: bytes, start_ts: int) -> None:
        """No prewrite of this transaction may lay an intent on `key` any more."""
        record = TxnRecord(status=FENCED)
        at = txn_key(key, start_ts)
        self.others.append(("txn", at, encode_txn(at, record)))
        self.others.append(("gcq", gcq_txn(key, start_ts, FENCE), b""))
        self.txns[key, start_ts] = record

    def drop_fence(self, key: bytes, start_ts: int) -> None:
        self.others.append(("txn", txn_key(key, start_ts), None))
        self.others.append(("gcq", gcq_txn(key, start_ts, FENCE), None))
        self.txns[key, start_ts] = None

    def drop_txn(self, anchor: bytes, start_ts: int) -> None:
        self.others.append(("txn", txn_key(anchor, start_ts), None))
        self.others.append(("gcq", gcq_txn(anchor, start_ts), None))
        self.txns[anchor, start_ts] = None

    @property
    def empty(self) -> bool:
        return not self.rows and not self.others and not self.safepoint

"""What is counted of a partition's rows while they are applied: in memory or in files alike.

A collector looks at the rows of every entry before it is written, and gets a call when it was. What
it knows is kept with the partition (`meta_key(partition, COLLECTED)`), in the batch of an entry
that has changed a thirty-second of it, follows splits (by the share of bytes) and merges, and is
counted anew from a snapshot. Estimates of this replica alone: nothing that must be exact or equal
at two replicas rests on them. Others are added to COLLECTORS.

    rows       keys that have a record: versions per row tell whether old ones are worth a walk (G3)
    expiries   when records expire: 256 points at most, each the records that expire up to it and
               after the one before. A point has a hundredth of them or so: the share that has
               expired by a moment is right to 5 % (G4)

Source: the table properties collectors of ByteKV (G1, G3, G4). Different here: RocksDB would call a
collector for each file that it writes, and has the values per file; its Python binding lets
nobody in, and a partition is what is decided about. Left out: old versions' expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from kv.mvcc.records import HAS_TTL
from kv.partition.sizes import Noted, Rows, SizeMap

_KEEP_SHARE: Final = 32
_FLAGS_AT: Final = 8
_EXPIRY: Final = slice(9, 17)  # of a record that has one, big-endian milliseconds
Cur = Callable[[bytes], bytes | None]


class RowCollector(Protocol):
    """See the module."""

    changed: float
    """Rows since it was kept."""

    def see(self, rows: Rows, cur: Cur) -> object:
        """The argument of `note` if the rows are written; `cur` reads what is there before."""
        ...

    def note(self, seen: Any) -> None: ...
    def total(self) -> float: ...
    def record(self) -> Any:
        """For msgpack."""
        ...

    def load(self, record: Any) -> None: ...
    def cut(self, share: float) -> RowCollector:
        """The collector of that share of the rows, which leave this one."""
        ...

    def join(self, other: RowCollector) -> None: ...


class RowCount:
    """Keys that have a record, tombstones among them."""

    def __init__(self) -> None:
        self.rows = 0
        self.changed = 0.0

    def see(self, rows: Rows, _cur: Cur) -> int:
        grown = 0
        for _, record, old_key, _ in rows:
            if record is None:
                grown -= 1
            elif old_key is None:
                grown += 1
        return grown

    def note(self, seen: int) -> None:
        self.rows = max(0, self.rows + seen)
        self.changed += abs(seen)

    def total(self) -> float:
        return self.rows

    def record(self) -> int:
        return self.rows

    def load(self, record: Any) -> None:
        self.rows = int(record)

    def cut(self, share: float) -> RowCount:
        other = RowCount()
        other.rows = round(self.rows * share)
        self.rows -= other.rows
        return other

    def join(self, other: RowCollector) -> None:
        assert isinstance(other, RowCount)
        self.rows += other.rows


class Expiries:
    """When the newest records expire."""

    def __init__(self) -> None:
        self.points = SizeMap()  # "keys" are moments, a weight is a number of records
        self.changed = 0.0

    def see(self, rows: Rows, cur: Cur) -> Noted:
        known = len(self.points) > 0
        seen: list[tuple[bytes, float]] = []
        for key, record, old_key, old in rows:
            if record is not None and record[_FLAGS_AT] & HAS_TTL:
                seen.append((record[_EXPIRY], 1.0))
            if known and (record is None or old_key is not None):
                gone = cur(key) if old is None else old
                if gone is not None and gone[_FLAGS_AT] & HAS_TTL:
                    seen.append((gone[_EXPIRY], -1.0))
        return seen

    def note(self, seen: Noted) -> None:
        if seen:
            self.points.note(seen)
            self.changed += len(seen)

    def total(self) -> float:
        return self.points.total

    def expired(self, now_ms: int) -> float:
        """How many records have expired by then."""
        return self.points.share_below((now_ms + 1).to_bytes(8, "big")) * self.points.total

    def record(self) -> bytes:
        return self.points.record()

    def load(self, record: Any) -> None:
        self.points = SizeMap.of(record)

    def cut(self, share: float) -> Expiries:
        other = Expiries()
        other.points = self.points.scaled(share)
        self.points = self.points.scaled(1 - share)
        return other

    def join(self, other: RowCollector) -> None:
        assert isinstance(other, Expiries)
        self.points.mix(other.points)


COLLECTORS: Final[dict[str, Callable[[], RowCollector]]] = {"rows": RowCount, "expiries": Expiries}


class Collected:
    """The collectors of one partition."""

    def __init__(self, record: bytes | None = None) -> None:
        """From what was kept; what cannot be read or is not known any more is counted anew."""
        self.by_name = {name: make() for name, make in COLLECTORS.items()}
        if record is None:
            return
        kept: Any = msgspec.msgpack.decode(record)
        for name, each in self.by_name.items():
            if name in kept:
                each.load(kept[name])

    @property
    def rows(self) -> int:
        return round(self.by_name["rows"].total())

    @property
    def expires(self) -> bool:
        """Whether anything has an end."""
        return self.by_name["expiries"].total() > 0

    def expired_share(self, now_ms: int) -> float:
        """Which part of the rows has expired by then, about."""
        expiries = self.by_name["expiries"]
        assert isinstance(expiries, Expiries)
        return min(1.0, expiries.expired(now_ms) / self.rows) if self.rows else 0.0

    def see(self, rows: Rows, cur: Cur) -> Sequence[object]:
        return [each.see(rows, cur) for each in self.by_name.values()]

    def note(self, seen: Sequence[object]) -> None:
        for each, what in zip(self.by_name.values(), seen, strict=True):
            each.note(what)

    def due(self) -> bool:
        """Whether the stored record is too old by now."""
        return any(
            each.changed and each.changed * _KEEP_SHARE >= each.total()
            for each in self.by_name.values()
        )

    def record(self) -> bytes:
        for each in self.by_name.values():
            each.changed = 0.0
        return msgspec.msgpack.encode({name: e.record() for name, e in self.by_name.items()})

    def cut(self, share: float) -> Collected:
        other = Collected()
        share = min(1.0, max(0.0, share))
        other.by_name = {name: each.cut(share) for name, each in self.by_name.items()}
        return other

    def join(self, other: Collected) -> None:
        for name, each in self.by_name.items():
            each.join(other.by_name[name])

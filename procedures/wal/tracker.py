"""Which cells a log wrote and which it deleted: one bit each. Pure.

A cell is anything that the store keeps: the record of procedure `p` is cell `2p`, row slot `s` is
cell `2s + 1`. Neither number is ever used again, so a deleted cell stays deleted.

The bitmap is partitioned: a node covers SPAN numbers from a multiple of SPAN on, exists only where
a bit is set, and grows with the highest one. So a million consecutive numbers cost some 150 KB, and
holes cost nothing. (HBase's BitSetNode was meant to be so and held a single word each.)

Source: HBase ProcedureStoreTracker. Left out here: the "partial" trackers that HBase keeps in the
trailers of logs; ours are built anew from the logs at every start (docs/decisions/0416).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

SPAN: Final = 4_096


class Bitmap:
    """A set of natural numbers, dense in places."""

    __slots__ = ("_nodes",)

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._nodes: dict[int, int] = {}
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> None:
        node, bit = divmod(number, SPAN)
        self._nodes[node] = self._nodes.get(node, 0) | 1 << bit

    def discard(self, number: int) -> None:
        node, bit = divmod(number, SPAN)
        bits = self._nodes.get(node)
        if bits is not None and bits >> bit & 1:
            self._put(node, bits ^ 1 << bit)

    def subtract(self, other: Bitmap) -> None:
        """Take out what is in `other`."""
        few, many = sorted((self._nodes, other._nodes), key=len)
        for node in [node for node in few if node in many]:
            self._put(node, self._nodes[node] & ~other._nodes[node])

    def copy(self) -> Bitmap:
        made = Bitmap()
        made._nodes = dict(self._nodes)
        return made

    def __contains__(self, number: int) -> bool:
        node, bit = divmod(number, SPAN)
        return bool(self._nodes.get(node, 0) >> bit & 1)

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self._nodes.values())

    def __iter__(self) -> Iterator[int]:
        """In rising order."""
        for node in sorted(self._nodes):
            bits = self._nodes.get(node, 0)
            while bits:
                lowest = bits & -bits
                yield node * SPAN + lowest.bit_length() - 1
                bits ^= lowest

    def _put(self, node: int, bits: int) -> None:
        if bits:
            self._nodes[node] = bits
        else:
            self._nodes.pop(node, None)


class Tracker:
    """What one log did to which cells."""

    __slots__ = ("deleted", "modified")

    def __init__(self) -> None:
        self.modified = Bitmap()
        self.deleted = Bitmap()

    def add(self, written: Iterable[int], deleted: Iterable[int]) -> None:
        for cell in written:
            self.modified.add(cell)
        for cell in deleted:
            self.deleted.add(cell)

    def live(self) -> Bitmap:
        """Written and not deleted, by this log alone."""
        found = self.modified.copy()
        found.subtract(self.deleted)
        return found


def cell_of_procedure(id: int) -> int:
    return 2 * id


def cell_of_row(slot: int) -> int:
    return 2 * slot + 1


def is_row(cell: int) -> bool:
    return bool(cell & 1)

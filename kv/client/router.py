"""Where keys live, as far as this client knows: partitions sorted by their start, with the node
that leads each.

Never a guess: a location came from a lookup, or from a node that said "moved" or "I do not lead".
It may be old; then the node that is asked says so, because every request carries the partition's id
and epoch. A partition whose leader is not known (its node is gone, or it is being elected) keeps
its range, so that who looks for the leader of one partition stops nobody who looks for another's.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from kv.base.descriptors import PartitionDescriptor
from kv.base.limits import LOCATIONS_MAX
from kv.base.members import Address as Address  # its home for users of this package

ANYWHERE: Final[Address] = ("", 0)  # the node that was asked


class Location(NamedTuple):
    """A partition and where its leader was when somebody said so, None if nobody knew."""

    descriptor: PartitionDescriptor
    address: Address | None


class Router:
    """The location cache. Entries never overlap."""

    def __init__(self, *, locations_max: int = LOCATIONS_MAX) -> None:
        self._starts: list[bytes] = []
        self._locations: list[Location] = []
        self._max = locations_max

    def __len__(self) -> int:
        return len(self._starts)

    def find(self, key: bytes) -> Location | None:
        i = bisect_right(self._starts, key) - 1
        if i < 0:
            return None
        location = self._locations[i]
        end = location.descriptor.end
        return location if not end or key < end else None

    def learn(self, descriptor: PartitionDescriptor, address: Address | None) -> bool:
        """Take what a node said, in place of all that overlaps it, unless the same partition is
        known at a later epoch. Whether it was taken.
        """
        first, behind = self._overlap(descriptor.start, descriptor.end)
        for known in self._locations[first:behind]:
            if known.descriptor.id == descriptor.id and known.descriptor.epoch > descriptor.epoch:
                return False
        if len(self._starts) - (behind - first) >= self._max:
            self.clear()  # simplest bound: what is still used is looked up again
            first = behind = 0
        self._starts[first:behind] = [descriptor.start]
        self._locations[first:behind] = [Location(descriptor, address)]
        return True

    def knows(self, location: Location) -> bool:
        """Whether this is what is known now."""
        return self.find(location.descriptor.start) == location

    def forget(self, location: Location) -> None:
        """Drop a location that proved wrong, if it is still the one that is known."""
        first, behind = self._overlap(location.descriptor.start, location.descriptor.end)
        if self._locations[first:behind] == [location]:
            del self._starts[first:behind]
            del self._locations[first:behind]

    def clear(self) -> None:
        self._starts.clear()
        self._locations.clear()

    def _overlap(self, start: bytes, end: bytes) -> tuple[int, int]:
        """The slice of entries whose ranges meet `[start, end)`."""
        first = max(0, bisect_right(self._starts, start) - 1)
        while first < len(self._starts):
            known_end = self._locations[first].descriptor.end
            if not known_end or known_end > start:
                break
            first += 1
        behind = first
        while behind < len(self._starts) and (not end or self._starts[behind] < end):
            behind += 1
        return first, behind

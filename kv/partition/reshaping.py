"""A change of what a partition is, on its way through the machine; and who may stay waiting.

Requests that wait while a partition is split were sent for the range that it had. Those whose keys
all lie in what is left of it are as good as new: they keep their place, under the new epoch.
All others that wait are answered that the keys moved, and nothing was done for him.
"""

from __future__ import annotations

from collections.abc import Callable

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError, Moved
from kv.partition.admission import check_range
from kv.partition.ports import Done
from kv.partition.requests import check_request
from kv.partition.shapes import Shape

MakeShape = Callable[[], Shape]
"""Called when nothing is in flight; made of the applied state. May raise KvorumError: then nothing
happens."""


class Shaping:
    """One change."""

    __slots__ = ("done", "flying", "make")

    def __init__(self, make: MakeShape, done: Done) -> None:
        self.make, self.done = make, done
        self.flying = False  # it was proposed


def stays(old: PartitionDescriptor, new: PartitionDescriptor, r: list[object]) -> bool:
    """Whether a request that was sent for `old` can be served by `new`; then it says so from now
    on. What is malformed, or was sent for something older, stays to be refused in its turn.
    """
    if r[4] != old.epoch:
        return True
    if type(r[1]) is int:
        try:
            check_range(new, r, check_request(r))
        except Moved:
            return False
        except KvorumError:
            return True
    r[4] = new.epoch
    return True

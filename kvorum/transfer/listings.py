"""What files an import found, kept by the process that runs its steps: a store with thousands of
files is listed when the import begins and when it ends, not for each of its pieces.

    one list per import, the TRANSFER_LISTINGS_MAX used last

It is no record: a process that has none lists again, and compares with the digest in the state.
"""

from __future__ import annotations

from collections import OrderedDict

from kv.base.limits import TRANSFER_LISTINGS_MAX
from kvorum.transfer.places import Found


class Listings:
    """By procedure."""

    def __init__(self, most: int = TRANSFER_LISTINGS_MAX) -> None:
        self._most = most
        self._kept: OrderedDict[int, tuple[str, list[Found]]] = OrderedDict()

    def get(self, id: int, digest: str) -> list[Found] | None:
        """The list with this digest."""
        known, files = self._kept.get(id, ("", None))
        if files is None or known != digest:
            return None
        self._kept.move_to_end(id)
        return files

    def keep(self, id: int, digest: str, files: list[Found]) -> None:
        self._kept[id] = digest, files
        self._kept.move_to_end(id)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def drop(self, id: int) -> None:
        self._kept.pop(id, None)

"""How far this cluster has taken over what another one committed: one row per link, written by
every transaction that takes something over.

So it is position and fence, and a mark: whoever finds a version of a key and looks at this row as
of that version knows whether that transaction was one of these (`Mark.taken`). The other cluster
watches the row with the tables: what comes with a new mark is not taken back.

    kvorum_sites.cursors      id of the other cluster → msgpack [at, since, doing, key, ours]

What people look at is in kvorum/api/site_links.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgpack

from kv.base.errors import Corruption
from kvorum.api.site_links import NAMESPACE

CURSORS: Final = "cursors"


class Mark(NamedTuple):
    """`at`: every transaction of the other cluster at or below was taken; 0 = its rows as of when
    its link began are not all copied yet. `since`: this cluster's history is held from here on.
    `doing`: the version of which everything up to the storage key `key` was taken, of a transaction
    that comes in several, or of the copy; 0 = none. `ours`: of keys that this very transaction
    wrote as a write of this cluster (`digest_of`).
    """

    at: int
    since: int
    doing: int = 0
    key: bytes = b""
    ours: tuple[bytes, ...] = ()

    def took(self, version: int, key: bytes) -> bool:
        """Whether this row of the other cluster's feed was taken."""
        return version <= self.at or (version == self.doing and key <= self.key)

    def encode(self) -> bytes:
        packed: bytes = msgpack.packb(list(self))
        return packed

    @staticmethod
    def decode(data: bytes) -> Mark:
        """Raises Corruption."""
        match msgpack.unpackb(data):
            case [int(at), int(since), int(doing), bytes(key), [*ours], *_]:
                return Mark(at, since, doing, key, tuple(ours))
            case _:
                raise Corruption(f"{NAMESPACE}.{CURSORS} has a row that is no mark")

"""What operators did to the members by force: kept for ever, beside the members table.

    CLUSTER    esc("forced") [ms u64] [node u64]   sealed msgpack [1, ms, node, voters, given up,
                                                   partitions, reason]

`ms` is the wall clock of the node where it was done, `node`. Written once the meta partition takes
writes again; until then, and over a restart, the node keeps it itself
(kvorum/cluster/forced_members.py).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, Final

import msgspec

from kv.base import system
from kv.base.checksum import CRC_BYTES, intact, seal
from kv.base.errors import Corruption
from kv.base.keys import escape, successor, table_prefix, u64
from kv.base.limits import NODES_MAX
from procedures.master.map.nodes import Txn
from procedures.master.map.partitions import Reader

_FORMAT: Final = 1
_FORCED: Final = table_prefix(system.CLUSTER) + escape(b"forced")
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


@dataclass(frozen=True, slots=True)
class Forced:
    """See the module."""

    at_ms: int
    node: int
    voters: tuple[int, ...]
    given_up: tuple[int, ...]
    partitions: tuple[int, ...]
    reason: str

    def encode(self, key: bytes) -> bytes:
        """Sealed for `key`."""
        return seal(key, _encode([_FORMAT, *astuple(self)]))

    @staticmethod
    def decode(key: bytes, value: bytes) -> Forced:
        """Raises Corruption."""
        try:
            if not intact(key, value):
                raise ValueError("its checksum is wrong")
            _, at_ms, node, voters, given_up, partitions, reason = _decode(value[:-CRC_BYTES])
        except (ValueError, msgspec.MsgspecError) as error:
            raise Corruption(
                f"the record of forced members is damaged: {error}", details={"key": key}
            ) from error
        return Forced(at_ms, node, tuple(voters), tuple(given_up), tuple(partitions), reason)


def put_forced(t: Txn, forced: Forced) -> None:
    """Written again it is the same row."""
    key = _FORCED + u64(forced.at_ms) + u64(forced.node)
    t.put(key, forced.encode(key))


async def all_forced(t: Reader) -> list[Forced]:
    """Everything that was ever forced, oldest first. Raises Corruption."""
    found: list[Forced] = []
    start: bytes | None = _FORCED
    while start is not None:
        page = await t.scan(start, successor(_FORCED), limit=NODES_MAX)
        found += [Forced.decode(key, value) for key, value, _ in page.items]
        start = page.resume
    return found

"""What partitions tell the transaction layer of intents that nobody cares for any more."""

from __future__ import annotations

from typing import NamedTuple


class Abandoned(NamedTuple):
    """Intents of one transaction in one partition that are older than their time to live: its
    record says whether it lives.
    """

    start_ts: int
    anchor: bytes
    ttl_ms: int
    keys: list[bytes]

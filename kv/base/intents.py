"""Whose transactions are, and what partitions tell the transaction layer of intents that nobody
cares for any more.

A transaction is told from others by its start_ts, which the oracle gave out, and by its user: a
start_ts can be guessed, so every record, intent and guard says whose command made it, and nobody
goes on with a transaction of somebody else.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kv.base.keys import from_u64, u64

TxnId = int | bytes
"""What is remembered of a transaction is remembered under this: start_ts, of a user's with who."""


class Author(NamedTuple):
    """Whose commands a connection sends."""

    user: str = ""  # empty: a node's, or whoever came while there were no users
    others: bool = True  # it may end transactions of others, as nodes and administrators do


NOBODY: Final = Author()


def txn_id(start_ts: int, user: str) -> TxnId:
    return u64(start_ts) + user.encode() if user else start_ts


def start_of(id_: TxnId) -> int:
    return id_ if isinstance(id_, int) else from_u64(id_)


class Abandoned(NamedTuple):
    """Intents of one transaction in one partition that are older than their time to live: its
    record says whether it lives.
    """

    start_ts: int
    anchor: bytes
    ttl_ms: int
    keys: list[bytes]
    user: str | None = ""  # None: not known

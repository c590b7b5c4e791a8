"""What NOTIFY said, as rows of its transaction: whoever listens follows them (the change feed), so
that it gets those of committed transactions, in the order of the commits.

    NOTIFICATIONS   esc(database) u64 txn u32 number    sealed [1, channel, payload, process]

`txn` is the transaction's id, `number` counts its notifications. Nobody reads a row but the feed;
it expires SQL_NOTIFICATION_TTL_MS later, and is collected with other garbage.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kv.base import system
from kv.base.keys import escape, successor, table_prefix
from sqlproxy.rows import records


class Notification(NamedTuple):
    channel: str
    payload: str
    process: int  # of the session that sent it


def span(database: str) -> tuple[bytes, bytes]:
    """The keys of a database's rows."""
    prefix = table_prefix(system.NOTIFICATIONS) + escape(database.encode())
    return prefix, successor(prefix)


def row_key(database: str, txn: int, number: int) -> bytes:
    return span(database)[0] + struct.pack(">QI", txn, number)


def encoded(key: bytes, one: Notification) -> bytes:
    """The stored value."""
    return records.sealed(key, [records.FORMAT, *one])


def decoded(key: bytes, value: bytes) -> Notification:
    """Raises Corruption."""
    _, channel, payload, process = records.opened(key, value)
    return Notification(str(channel), str(payload), int(process))

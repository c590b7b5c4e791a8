"""One write in a queue (kv.partition.waits), and what its request says about waiting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kv.base.limits import LOCK_WAIT_MARGIN_MS, LOCK_WAIT_SHARE
from kv.base.methods import DELETE, PARTITION_VERBS, PREWRITE, PREWRITE_ROWS, PUT, WRITE, WRITE_ROWS
from kv.base.options import NONE, Options, options_of
from kv.base.strengths import UPDATE
from kv.base.wire_row import WireRow
from kv.partition.admission import Item
from kv.partition.requests import weight

_OPTIONS_AT: Final = {
    one.number: one.at("options")
    for one in PARTITION_VERBS
    if one.fresh and "options" in one.fields
}
_TXN_AT: Final = {
    one.number: one.at("start_ts")
    for one in PARTITION_VERBS
    if one.fresh and "start_ts" in one.fields
}
LEAVES_INTENT: Final = frozenset({PREWRITE, PREWRITE_ROWS})


class Waiter:
    """A request in a queue."""

    __slots__ = (
        "item",
        "key",
        "met",
        "owner",
        "priority",
        "since_ms",
        "size",
        "ticket",
        "txn",
        "until_s",
        "user",
        "wait_ms",
        "woken",
    )

    def __init__(self, item: Item, ticket: int, now_ms: int, now_s: float) -> None:
        r = item[1]
        options = said(r)
        self.item: Item | None = item  # None once it has left
        self.ticket = ticket
        self.priority: int = options.get("priority", 0)
        self.owner: str = options.get("owner", "")
        self.txn = txn_of(r)
        self.user = item[0].author.user
        self.size = weight(r)
        self.since_ms = now_ms
        left_s = max(0.0, r[2] - now_s)
        until_s = r[2] - min(LOCK_WAIT_MARGIN_MS / 1000, left_s * (1 - LOCK_WAIT_SHARE))
        wait_ms = options.get("wait_ms")
        if wait_ms is not None:
            until_s = min(until_s, now_s + wait_ms / 1000)
        self.until_s = until_s
        self.key = b""
        self.met: dict[str, Any] = {}  # details of the KeyLocked that it met last
        self.woken = False  # it is in a list of the machine, to be evaluated

    @property
    def order(self) -> tuple[int, int]:
        return -self.priority, self.ticket

    @property
    def holding(self) -> bool:
        """Whether its transaction may hold intents elsewhere."""
        assert self.item is not None
        return self.item[1][1] in LEAVES_INTENT


def txn_of(r: WireRow) -> int:
    """The transaction of a write request, 0 if it is none's."""
    at = _TXN_AT.get(r[1])
    txn: int = 0 if at is None else r[at]
    return txn


def keys_of(r: WireRow) -> Iterable[bytes]:
    """The keys that a write request changes or checks."""
    method = r[1]
    if method in (PUT, DELETE):
        return (r[5],)
    if method == WRITE:
        return [op[1] for op in r[5]]
    if method == PREWRITE:
        return [op[1] for op in r[8]]
    keys: list[bytes] = r[5] if method == WRITE_ROWS else r[8]
    return keys


def wanted_of(r: list[object]) -> int:
    """How strong a lock it wants of its keys (kv.base.strengths)."""
    if r[1] != PREWRITE:
        return UPDATE
    strength: int = said(r).get("strength", UPDATE)
    return strength


def guarded_of(r: list[object], queued: Iterable[bytes]) -> list[bytes]:
    """The keys among `queued` that a prewrite would guard: guards let each other in, so without
    turns a stream of them would keep a waiting writer out for ever.
    """
    if r[1] != PREWRITE:
        return []
    options = said(r)
    keys, ranges = options.get("reads", ()), options.get("ranges", ())
    if not keys and not ranges:
        return []
    wanted = set(keys)
    return [
        key
        for key in queued
        if key in wanted or any(start <= key and (not end or key < end) for start, end in ranges)
    ]


def said(r: WireRow) -> Options:
    """The options of a write request."""
    at = _OPTIONS_AT.get(r[1])
    return NONE if at is None else options_of(r, at)

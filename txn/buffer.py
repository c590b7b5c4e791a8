"""The write buffer of one transaction: pure, no I/O.

Writes stay here until the commit; a delete is a tombstone, so that it hides the snapshot's row.
Reads of the transaction merge the buffer over the snapshot, point by point and, for scans of both
directions, page by page.

Conditions (`cond`: 0 = the key must be absent, v = its version must be v) speak about the store
*before* the transaction. The rules when one key is written more than once:

    first          then                     what is sent
    -              put/delete, any cond     as given
    write (cond c) write without cond       the new write, still with c
    put            write with cond          ConditionFailed now: the key is present, and its own
                                            write has no version yet
    delete         write with cond 0        the new write with the first condition: the key is
                                            absent because of the delete
    delete         write with cond v        ConditionFailed now
    check c        write without cond or c  the write with c
    check c        write with cond d ≠ c    ConditionFailed now: both can not hold
    any            check                    like a write with that condition, but changes nothing

Deliberately missing: savepoints.
"""

from __future__ import annotations

from bisect import bisect_left

from kv.base.errors import ConditionFailed, InvalidArgument, TooLarge
from kv.base.limits import (
    KEY_BYTES_MAX,
    TXN_BUFFER_BYTES_MAX,
    TXN_KEYS_MAX,
    VALUE_BYTES_MAX,
)
from kv.base.methods import OP_CHECK, OP_DELETE, OP_PUT
from kv.base.ops import Op
from txn.results import Row, ScanPage

STORAGE_KEY_BYTES_MAX = 4 + KEY_BYTES_MAX  # with the table prefix


def validate(op: Op) -> None:
    """Refuse an op that no partition would take, before anything is sent. Raises InvalidArgument or
    TooLarge.
    """
    kind, key, value, cond, ttl_ms = op
    if type(key) is not bytes or not key:
        raise InvalidArgument(f"a key is a non-empty bytes object, got {key!r:.60}")
    if len(key) > STORAGE_KEY_BYTES_MAX:
        raise TooLarge(
            f"key of {len(key)} bytes; the limit is {STORAGE_KEY_BYTES_MAX} with the table prefix; "
            "shorten it or move part of it into the value",
            details={"what": "key", "limit": STORAGE_KEY_BYTES_MAX, "actual": len(key)},
        )
    if kind == OP_PUT:
        if not isinstance(value, bytes):
            raise InvalidArgument(f"the value of a put is a bytes object, got {value!r:.60}")
        if len(value) > VALUE_BYTES_MAX:
            raise TooLarge(
                f"value of {len(value)} bytes for {key!r:.60}; the limit is {VALUE_BYTES_MAX}; "
                "cut it into several keys",
                details={"what": "value", "limit": VALUE_BYTES_MAX, "actual": len(value)},
            )
    elif kind not in (OP_DELETE, OP_CHECK):
        raise InvalidArgument(f"unknown kind of op: {kind!r}")
    elif kind == OP_CHECK and cond is None:
        raise InvalidArgument(f"a check of {key!r:.60} needs a condition")
    if cond is not None and cond < 0:
        raise InvalidArgument(f"a condition is 0 (absent) or a version, got {cond}")
    if ttl_ms < 0:
        raise InvalidArgument(f"ttl_ms is 0 (for ever) or positive, got {ttl_ms}")


class WriteBuffer:
    """At most one op per key; see the module for how several become one."""

    __slots__ = ("_bytes", "_bytes_max", "_keys_max", "_ops", "_sorted")

    def __init__(
        self, *, keys_max: int = TXN_KEYS_MAX, bytes_max: int = TXN_BUFFER_BYTES_MAX
    ) -> None:
        self._ops: dict[bytes, Op] = {}
        self._sorted: list[bytes] | None = []  # the written keys in order; None = to be sorted
        self._bytes = 0
        self._keys_max = keys_max
        self._bytes_max = bytes_max

    def __len__(self) -> int:
        return len(self._ops)

    @property
    def size_bytes(self) -> int:
        """Keys and values that wait for the commit."""
        return self._bytes

    def add(self, op: Op) -> None:
        """Buffer one op. Raises InvalidArgument, TooLarge or ConditionFailed and then changes
        nothing.
        """
        validate(op)
        old = self._ops.get(op.key)
        merged = op if old is None else _combine(old, op)
        size = self._bytes + _size(merged) - (0 if old is None else _size(old))
        keys = len(self._ops) + (old is None)
        if keys > self._keys_max:
            raise _too_large("keys", limit=self._keys_max, actual=keys)
        if size > self._bytes_max:
            raise _too_large("bytes", limit=self._bytes_max, actual=size)
        self._ops[op.key] = merged
        self._bytes = size
        if old is None or old.kind == OP_CHECK:
            self._sorted = None

    def written(self, key: bytes) -> Op | None:
        """The put or delete of this key, None if the snapshot answers."""
        op = self._ops.get(key)
        return None if op is None or op.kind == OP_CHECK else op

    def ops(self) -> list[Op]:
        """What to commit: the writes in the order of their first mention, then the bare checks."""
        ops = list(self._ops.values())
        writes = [op for op in ops if op.kind != OP_CHECK]
        return writes + [op for op in ops if op.kind == OP_CHECK] if len(writes) < len(ops) else ops

    def written_between(self, start: bytes, end: bytes) -> list[Op]:
        """The writes of `[start, end)` in key order; end b"" = no bound."""
        if self._sorted is None:
            self._sorted = sorted(k for k, op in self._ops.items() if op.kind != OP_CHECK)
        keys = self._sorted
        stop = bisect_left(keys, end) if end else len(keys)
        return [self._ops[k] for k in keys[bisect_left(keys, start) : stop]]

    def overlay(
        self, page: ScanPage, start: bytes, end: bytes, *, reverse: bool, limit: int
    ) -> ScanPage:
        """`page` (what the snapshot holds of `[start, end)` up to its resume key) as this
        transaction sees it.

        Only keys that the page covers are merged: what lies beyond its resume key belongs to the
        next page. At most `limit` rows come back; the resume key is then the first that was left
        out (last, in reverse).
        """
        if page.resume is not None:  # forward: the next start; reverse: the next end
            start, end = (page.resume, end) if reverse else (start, page.resume)
        mine = self.written_between(start, end)
        if not mine:
            return page
        rows: dict[bytes, Row] = {row[0]: row for row in page.items}
        for op in mine:
            if op.value is None:
                rows.pop(op.key, None)
            else:
                rows[op.key] = (op.key, op.value, 0)
        items = [rows[k] for k in sorted(rows, reverse=reverse)]
        if len(items) <= limit:
            return ScanPage(items, page.resume, page.at)
        # forward, the first key left out starts the next page; in reverse the last key given is its
        # exclusive end
        resume = items[limit - 1][0] if reverse else items[limit][0]
        return ScanPage(items[:limit], resume, page.at)


def _combine(old: Op, new: Op) -> Op:
    """One op that does what `old` and then `new` do (the table of the module)."""
    if old.kind == OP_CHECK:
        if new.cond is not None and new.cond != old.cond:
            raise _failed(new, f"the transaction already checks it for {_words(old.cond)}")
        return new if new.kind == OP_CHECK else new._replace(cond=old.cond)
    if new.cond is not None:
        if old.kind == OP_PUT:
            raise _failed(new, "the transaction itself wrote it, a value without a version yet")
        if new.cond != 0:
            raise _failed(new, "the transaction itself deleted it")
    return old if new.kind == OP_CHECK else new._replace(cond=old.cond)


def _words(cond: int | None) -> str:
    return "absence" if cond == 0 else f"version {cond}"


def _failed(op: Op, why: str) -> ConditionFailed:
    return ConditionFailed(
        f"{op.key!r:.60} must have {_words(op.cond)}, but {why}",
        details={"key": op.key, "version": None, "op": None},
    )


def _size(op: Op) -> int:
    return len(op.key) + (len(op.value) if op.value is not None else 0)


def _too_large(what: str, *, limit: int, actual: int) -> TooLarge:
    return TooLarge(
        f"the transaction would hold {actual} {what}; the limit is {limit}; "
        "commit in several transactions, or load bulk data with multi_write",
        details={"what": f"transaction {what}", "limit": limit, "actual": actual},
    )

"""The write buffer of one transaction.

Writes stay here until the commit; a delete is a tombstone, so that it hides the snapshot's row.
Reads of the transaction merge the buffer over the snapshot, point by point and, for scans of both
directions, page by page. What does not fit in memory is spilled to a file, if there is one
(txn/buffered/spill_file): then the commit streams it (txn/bulk/spilled_commit), and here are only
the newest writes.

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

`lend` gives the buffer as it is to who reads it later; the next write copies what is lent.

`mark` and `undo_to` are savepoints: while there is one, each op's predecessor is remembered, and
nothing more is spilled, so that what came after the mark is in memory and can be taken back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain
from typing import Final, TypeAlias

from kv.base.errors import ConditionFailed, InvalidArgument, TooLarge
from kv.base.limits import (
    KEY_BYTES_MAX,
    SCAN_PAGE_BYTES_MAX,
    TXN_BUFFER_BYTES_MAX,
    TXN_KEYS_MAX,
    TXN_MEMORY_BYTES_MAX,
    TXN_MEMORY_KEYS_MAX,
    TXN_SPILL_BYTES,
    VALUE_BYTES_MAX,
)
from kv.base.methods import OP_CHECK, OP_DELETE, OP_PUT, OP_TOMBSTONE
from kv.base.ops import Op, deletes, puts
from txn.buffered.spill_file import OpenFile, Spill
from txn.results import Row, ScanPage

STORAGE_KEY_BYTES_MAX = 4 + KEY_BYTES_MAX  # with the table prefix
_OVERHEAD: Final = 256  # bytes of memory that an op takes beside its key and value
_REMEMBERED: Final = 80  # … and that it can be taken back


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
    elif kind not in (OP_DELETE, OP_TOMBSTONE, OP_CHECK):
        raise InvalidArgument(f"unknown kind of op: {kind!r}")
    elif kind == OP_CHECK and cond is None:
        raise InvalidArgument(f"a check of {key!r:.60} needs a condition")
    if cond is not None and cond < 0:
        raise InvalidArgument(f"a condition is 0 (absent) or a version, got {cond}")
    if ttl_ms < 0:
        raise InvalidArgument(f"ttl_ms is 0 (for ever) or positive, got {ttl_ms}")


class WriteBuffer:
    """At most one op per key; see the module for how several become one."""

    __slots__ = (
        "_bytes",
        "_bytes_max",
        "_held",
        "_kept",
        "_keys",
        "_keys_max",
        "_lent",
        "_ops",
        "_sorted",
        "_spill",
        "_spill_bytes",
        "_undo",
    )

    def __init__(
        self,
        *,
        open_file: OpenFile | None = None,
        keys_max: int = 0,
        bytes_max: int = 0,
        spill_bytes: int = TXN_SPILL_BYTES,
    ) -> None:
        """`open_file`: makes the temporary file of what does not fit in `spill_bytes`; without it
        everything stays in memory, and less is allowed. 0 = the limits of the product.
        """
        self._ops: dict[bytes, Op] = {}
        self._sorted: list[bytes] | None = []  # the written keys in order; None = to be sorted
        self._bytes = self._keys = 0
        self._held = 0  # what is in memory, with what Python needs for it …
        self._kept = 0  # … beside what marks keep of it
        most = (TXN_KEYS_MAX, TXN_BUFFER_BYTES_MAX)
        if open_file is None:
            most = (TXN_MEMORY_KEYS_MAX, TXN_MEMORY_BYTES_MAX)
        self._keys_max, self._bytes_max = keys_max or most[0], bytes_max or most[1]
        self._spill = None if open_file is None else Spill(open_file, self._keys_max)
        self._spill_bytes = spill_bytes
        self._lent: list[WriteBuffer] = []  # that share `_ops`, and are still read
        # with a mark: of each op its key, what memory had of it, and what it replaced
        self._undo: list[tuple[bytes, Op | None, Op | None]] | None = None

    def __len__(self) -> int:
        return self._keys

    @property
    def size_bytes(self) -> int:
        """Keys and values that wait for the commit."""
        return self._bytes

    @property
    def memory_bytes(self) -> int:
        """What is not in the file, with what Python needs for it."""
        return self._held + self._kept

    @property
    def marked(self) -> bool:
        """Whether there is a mark to go back to."""
        return self._undo is not None

    @property
    def spilled(self) -> bool:
        """Whether some of it is in the file: `stream` has all, `ops` does not."""
        return bool(self._spill)

    def add(self, op: Op) -> None:
        """Buffer one op. Raises InvalidArgument, TooLarge or ConditionFailed and then changes
        nothing.
        """
        validate(op)
        here = self._ops.get(op.key)
        old = here
        if old is None and self._spill:
            old = self._spill.find(op.key)
        merged = op if old is None else _combine(old, op)
        size = self._bytes + _size(merged) - (0 if old is None else _size(old))
        keys = self._keys + (old is None)
        if keys > self._keys_max:
            raise _too_large("keys", limit=self._keys_max, actual=keys)
        if size > self._bytes_max:
            raise _too_large("bytes", limit=self._bytes_max, actual=size)
        if self._undo is not None:
            kept = _kept(here, old)
            self._check_marked(len(op.key) + len(op.value or b"") + kept)
            self._undo.append((op.key, here, old))
            self._kept += kept
        if self._lent:
            self._part()
        self._ops[op.key] = merged
        self._bytes, self._keys = size, keys
        self._held += _size(merged) + _OVERHEAD if here is None else _size(merged) - _size(here)
        if here is None or here.kind == OP_CHECK:
            self._sorted = None
        self._spill_large()

    def _spill_large(self) -> None:
        if self._held > self._spill_bytes and self._spill is not None and self._undo is None:
            self._spill.add([self._ops[key] for key in sorted(self._ops)])
            self._ops, self._sorted, self._held = {}, [], 0
            self._lent.clear()

    def add_rows(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None,
        cond: int | Sequence[int | None] | None = None,
        *,
        tombstone: bool = False,
    ) -> None:
        """`add` of a put for each row (`values` None: of a delete); `cond` as that of `puts`. All
        at once, if none of the keys was mentioned before. Raises what it raises; the rows before
        the one that was refused are buffered then.
        """
        if values is None:
            ops = deletes(keys, cond, tombstone=tombstone)
        else:
            ops = puts(keys, values, cond)
        given = list(ops)
        made = dict(zip(keys, given, strict=True))
        size = sum(map(len, keys)) + (0 if values is None else sum(map(len, values)))
        if len(made) < len(given) or not self._takes(made, values, size):
            for op in given:
                self.add(op)
            return
        if self._undo is not None:
            self._undo += [(key, None, None) for key in keys]
            self._kept += _REMEMBERED * len(keys)
        if self._lent:
            self._part()
        self._ops.update(made)
        self._bytes += size
        self._keys += len(made)
        self._held += size + _OVERHEAD * len(made)
        self._sorted = None
        self._spill_large()

    def _takes(self, made: dict[bytes, Op], values: Sequence[bytes] | None, size: int) -> bool:
        """Whether nothing can be said against these rows, none of which is twice among them."""
        if not self._ops.keys().isdisjoint(made):
            return False
        if self._spill is not None and self._spill and any(map(self._spill.find, made)):
            return False
        if self._undo is not None and (
            self.memory_bytes + size > TXN_MEMORY_BYTES_MAX
            or len(self._undo) + len(made) > TXN_MEMORY_KEYS_MAX
        ):
            return False
        return (
            self._keys + len(made) <= self._keys_max
            and self._bytes + size <= self._bytes_max
            and set(map(type, made)) == {bytes}
            and all(made)
            and max(map(len, made)) <= STORAGE_KEY_BYTES_MAX
            and (
                values is None
                or (set(map(type, values)) == {bytes} and max(map(len, values)) <= VALUE_BYTES_MAX)
            )
        )

    def keep_in_memory(self) -> None:
        """From now on nothing is spilled, and as much less is allowed. Raises TooLarge if something
        was.
        """
        if self.spilled:
            raise _too_large("bytes", limit=TXN_MEMORY_BYTES_MAX, actual=self._bytes)
        self._keys_max = min(self._keys_max, TXN_MEMORY_KEYS_MAX)
        self._bytes_max = min(self._bytes_max, TXN_MEMORY_BYTES_MAX)
        self._spill_bytes = self._bytes_max * 2 + _OVERHEAD * self._keys_max  # never reached

    def lend(self) -> WriteBuffer:
        """What is written now, for who reads it while more is written, until `give_back`."""
        lent = WriteBuffer()
        lent._ops, lent._sorted, lent._keys = self._ops, self._sorted, self._keys
        if self._spill is not None and self._spill:
            lent._spill = self._spill.lend()
        self._lent.append(lent)
        return lent

    def give_back(self, lent: WriteBuffer) -> None:
        """It is not read any more."""
        self._lent = [one for one in self._lent if one is not lent]

    def _part(self) -> None:
        """Who reads what is lent keeps it, and here goes on with a copy."""
        self._ops = self._ops.copy()
        self._lent.clear()

    def mark(self) -> int:
        """A place to which `undo_to` comes back."""
        if self._undo is None:
            self._undo = []
        return len(self._undo)

    def undo_to(self, mark: int) -> None:
        """Take back every op since `mark`, which stays valid; later marks do not."""
        assert self._undo is not None, "there is a mark"
        assert mark <= len(self._undo), "it was not taken back itself"
        if self._lent:
            self._part()
        while len(self._undo) > mark:
            key, here, old = self._undo.pop()
            self._kept -= _kept(here, old)
            now = self._ops[key]
            self._bytes += (0 if old is None else _size(old)) - _size(now)
            self._keys -= old is None
            if here is None:
                del self._ops[key]
                self._held -= _size(now) + _OVERHEAD
            else:
                self._ops[key] = here
                self._held += _size(here) - _size(now)
        self._sorted = None

    def forget_marks(self) -> None:
        """No mark is wanted any more: what is large may be spilled again."""
        self._undo, self._kept = None, 0

    def _check_marked(self, size: int) -> None:
        """What can be taken back is in memory twice over, the ops and their predecessors."""
        many = len(self._undo or ()) >= TXN_MEMORY_KEYS_MAX
        if many or self.memory_bytes + size > TXN_MEMORY_BYTES_MAX:
            raise TooLarge(
                f"the transaction has a savepoint and would hold more than {TXN_MEMORY_BYTES_MAX} "
                f"bytes or {TXN_MEMORY_KEYS_MAX} changes in memory; release the savepoint before "
                "the bulk of the changes (limits.TXN_MEMORY_BYTES_MAX, TXN_MEMORY_KEYS_MAX)",
                details={"what": "changes after a savepoint", "limit": TXN_MEMORY_KEYS_MAX},
            )

    def op(self, key: bytes) -> Op | None:
        """What is to be sent for this key, a bare check included."""
        op = self._ops.get(key)
        return self._spill.find(key) if op is None and self._spill else op

    def written(self, key: bytes) -> Op | None:
        """The put or delete of this key, None if the snapshot answers."""
        op = self.op(key)
        return None if op is None or op.kind == OP_CHECK else op

    def ops(self) -> list[Op]:
        """What to commit: the writes in the order of their first mention, then the bare checks. Of
        one that is not spilled.
        """
        assert not self.spilled, "streamed"
        ops = list(self._ops.values())
        writes = [op for op in ops if op.kind != OP_CHECK]
        return writes + [op for op in ops if op.kind == OP_CHECK] if len(writes) < len(ops) else ops

    def stream(self) -> Iterator[Op]:
        """All ops in key order, a bounded part of them in memory."""
        newest = [self._ops[key] for key in sorted(self._ops)]
        return self._spill.between(b"", b"", newest) if self._spill else iter(newest)

    def close(self) -> None:
        """Forget everything; the file is gone."""
        self._ops, self._sorted, self._bytes, self._keys, self._held = {}, [], 0, 0, 0
        self._undo, self._kept = None, 0
        if self._spill is not None:
            self._spill.close()

    def written_between(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Op]:
        """The writes of `[start, end)` in (reversed) key order; end b"" = no bound."""
        if self._sorted is None:
            self._sorted = sorted(k for k, op in self._ops.items() if op.kind != OP_CHECK)
        keys = self._sorted
        stop = bisect_left(keys, end) if end else len(keys)
        mine = keys[bisect_left(keys, start) : stop]
        newest = [self._ops[key] for key in (reversed(mine) if reverse else mine)]
        if not self._spill:
            return iter(newest)
        found = self._spill.between(start, end, newest, reverse=reverse)
        # a check in memory hides nothing: what was spilled of its key has been combined into it
        return (op for op in found if op.kind != OP_CHECK)

    def overlay(
        self, page: ScanPage, start: bytes, end: bytes, *, reverse: bool, limit: int
    ) -> ScanPage:
        """`page` (what the snapshot holds of `[start, end)` up to its resume key) as this
        transaction sees it.

        Only keys that the page covers are merged: what lies beyond its resume key belongs to the
        next page. At most `limit` rows come back, and not many more bytes of own writes than a page
        may have; the resume key is then the first that was left out (last, in reverse).
        """
        if page.resume is not None:  # forward: the next start; reverse: the next end
            start, end = (page.resume, end) if reverse else (start, page.resume)
        written = self.written_between(start, end, reverse=reverse)
        first = next(written, None)
        if first is None and len(page.items) <= limit:
            return page
        rows = iter(page.items)
        row = next(rows, None)
        items: list[Row] = []
        size = 0
        for op in () if first is None else chain((first,), written):
            while row is not None and (row[0] > op.key if reverse else row[0] < op.key):
                items.append(row)
                row = next(rows, None)
            if row is not None and row[0] == op.key:
                row = next(rows, None)
            if op.value is not None:
                items.append((op.key, op.value, 0))
                size += len(op.value)
            if len(items) > limit or (size > SCAN_PAGE_BYTES_MAX and len(items) > 1):
                break
        else:
            while row is not None:
                items.append(row)
                row = next(rows, None)
            if len(items) <= limit:
                return ScanPage(items, page.resume, page.at)
        limit = min(limit, len(items) - 1)
        # forward, the first key left out starts the next page; in reverse the last key given is its
        # exclusive end
        resume = items[limit - 1][0] if reverse else items[limit][0]
        return ScanPage(items[:limit], resume, page.at)


# start, end, rows at most → a page of the snapshot
Pages: TypeAlias = Callable[[bytes, bytes, int], Awaitable[ScanPage]]


async def merged(
    buffer: WriteBuffer, read: Pages, start: bytes, end: bytes, *, reverse: bool, limit: int
) -> ScanPage:
    """A page of `[start, end)` as the transaction sees it. Rows that it deleted itself make a page
    of the snapshot shorter, or empty, though more follow: so what is missing is read, until there
    are `limit` rows, or as many bytes as a page has, or no more.
    """
    items: list[Row] = []
    while True:
        wanted = limit - len(items)
        stored = await read(start, end, wanted)
        page = buffer.overlay(stored, start, end, reverse=reverse, limit=wanted)
        if (
            page.resume is None
            or len(page.items) == wanted
            or (page.items and len(stored.items) < wanted)
        ):  # the end, or full, or cut by its bytes
            page.items = items + page.items if items else page.items
            return page
        items += page.items
        if items and sum(len(row[1]) for row in items) >= SCAN_PAGE_BYTES_MAX:
            return ScanPage(items, page.resume, page.at)
        start, end = (start, page.resume) if reverse else (page.resume, end)


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


def _kept(here: Op | None, old: Op | None) -> int:
    """What a mark keeps of an op that was replaced: `here` in memory, or else `old` in the file."""
    before = old if here is None else here
    return _REMEMBERED if before is None else _REMEMBERED + _OVERHEAD + _size(before)


def _too_large(what: str, *, limit: int, actual: int) -> TooLarge:
    return TooLarge(
        f"the transaction would hold {actual} {what}; the limit is {limit}; "
        "commit in several transactions, or load bulk data with multi_write (limits.TXN_KEYS_MAX, "
        "TXN_BUFFER_BYTES_MAX; TXN_MEMORY_… where nothing is spilled)",
        details={"what": f"transaction {what}", "limit": limit, "actual": actual},
    )

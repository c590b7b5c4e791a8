"""Evaluates the commands of one partition, one after the other, against applied + in flight; their
rows go into the open entry.

Rules
  * evaluation order = log order; the latches of a command are the step in which it is evaluated;
  * the reply of a command leaves when everything that it saw is applied, also if it is a refusal:
    it hangs on the open entry, or on the one in flight;
  * a write that meets another transaction's intent waits in the key's queue (waits.py);
  * what does not fit the open entry is handed back, with nothing done.

The verbs are kv.mvcc's, by way of writes.py. Facts on the hot path are in docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Callable

from kv.base.errors import KeyLocked, KvorumError
from kv.base.limits import ENTRY_BYTES_MAX, ENTRY_TARGET_BYTES, SHIP_OLD_BYTES_MAX, KiB
from kv.base.methods import (
    ABORTED,
    FINISH,
    NEEDS_TIMESTAMP,
    PREWRITE,
    PREWRITE_ROWS,
    PUT,
    RESOLVE,
    ROLLBACK,
)
from kv.base.wire_row import WireRow
from kv.mvcc.refusals import OfAnother
from kv.mvcc.view import Mutations
from kv.mvcc.write import put_plain
from kv.partition import internal_commands
from kv.partition.admission import Item
from kv.partition.answers import entry_too_large, future_claim
from kv.partition.counters import PartitionCounters
from kv.partition.entry import ROW_OVERHEAD, size_of
from kv.partition.evaluated_state import Evaluated
from kv.partition.ports import Connection
from kv.partition.replies import Replies
from kv.partition.scheduler import Scheduler
from kv.partition.waiter import said
from kv.partition.waits import Waiting
from kv.partition.writes import HANDLERS

ENTRY_ROOM = ENTRY_BYTES_MAX - 256 * KiB
_PREWRITES = frozenset({PREWRITE, PREWRITE_ROWS})
_EXACT = [True]  # second field of the answer to a prewrite whose bound lies in its intents


class Evaluator:
    """See the module. `waits` is set once, by the machine that makes both."""

    waits: Waiting

    def __init__(
        self,
        view: Evaluated,
        replies: Replies,
        *,
        top_ts: int,
        seal: Callable[[], None],
        counters: PartitionCounters,
        scheduler: Scheduler,
        step: int,
    ) -> None:
        """`seal`: propose the open entry, if none is in flight. `step`: how far apart timestamps
        are.
        """
        self.view, self._replies = view, replies
        self.top_ts = top_ts  # the highest commit timestamp ever evaluated
        self._seal, self._counters, self._scheduler = seal, counters, scheduler
        self._step = step
        self.left: list[Item] = []  # of an `evaluate` that broke: first what it broke at

    def evaluate(
        self, items: list[Item], ts: int, unavailable: KvorumError | None, now_ms: int
    ) -> list[Item]:
        """Commands in this order; those that need a timestamp get `ts` and the following ones, or
        are refused with `unavailable`. The rest, for which there was no room.
        """
        parked = self.waits.by_key  # empty: nobody waits for a key
        between, step = self._scheduler.between, self._step
        i = 0
        try:
            for i, item in enumerate(items):
                if not i & 7:
                    between()
                if self.view.open.size >= ENTRY_TARGET_BYTES:
                    self._seal()
                    if self.view.open.size >= ENTRY_TARGET_BYTES:
                        return items[i:]
                conn, r = item
                if r[1] in NEEDS_TIMESTAMP:
                    if unavailable is not None:
                        self._replies.refuse(item, unavailable)
                        continue
                    mine, ts = ts, ts + step
                    if parked:
                        if self._among_waiters(item, mine, now_ms):
                            continue
                        return items[i:]
                    if r[1] == PUT and not r[8] and self._put_plain(conn, r, mine, now_ms):
                        continue
                else:
                    mine = 0
                if not self._command(item, mine, now_ms):
                    return items[i:]
        except Exception:
            self.left = items[i:]
            raise
        return []

    def _put_plain(self, conn: Connection, r: WireRow, ts: int, now_ms: int) -> bool:
        """The hot path of PUT. False: the old record has a time to live or is a tombstone, take the
        long way.
        """
        rid, _, _, _, _, key, value, cond, _ = r
        try:
            row = put_plain(self.view, key, value, cond, ts, now_ms)
        except KvorumError as error:
            self._refuse_seen((conn, r), error)
            return True
        except Exception as error:  # noqa: BLE001 - the boundary: nothing was added
            self.after_seen(conn, self._broken(r, error))
            return True
        if row is None:
            return False
        entry = self.view.open
        entry.rows.append(row)
        entry.pending[key] = row[1]
        entry.size += len(value) + 2 * len(key) + ROW_OVERHEAD
        if row[3] is not None and len(row[3]) > SHIP_OLD_BYTES_MAX:
            entry.size += len(row[3])
        entry.top_ts = self.top_ts = ts
        if ts < entry.low_ts:
            entry.low_ts = ts
        entry.replies.append((conn, [rid, 0, ts]))
        return True

    def _among_waiters(self, item: Item, ts: int, now_ms: int) -> bool:
        """One write while others wait for keys: after them, or else in its turn. False: it does
        not fit the open entry, nothing was done.
        """
        if self.waits.joins(item):
            return True
        conn, r = item
        plain_put = r[1] == PUT and not r[8] and self._put_plain(conn, r, ts, now_ms)
        if not plain_put and not self._command(item, ts, now_ms):
            return False
        self.waits.evaluated(r)
        return True

    def _command(self, item: Item, ts: int, now_ms: int) -> bool:
        """Run one command against the evaluated state. False: it does not fit the open entry,
        nothing was done.
        """
        conn, r = item
        m = Mutations(conn.author)
        try:
            if type(r[1]) is int:
                arguments, handler, claims = HANDLERS[r[1]]
                if ts:
                    for at in claims:
                        if r[at] >= ts:
                            raise future_claim(r[at], ts)
                result = handler(self.view, arguments(*r[5:]), ts, now_ms, m)
            else:
                result = internal_commands.execute(self.view, self.view.descriptor, r, m)
            size = size_of(m)
            if size > ENTRY_ROOM:
                raise entry_too_large(size, ENTRY_ROOM)
        except KvorumError as error:
            self._refuse_seen(item, error)
            return True
        except OfAnother:
            conn.stand_in(r)
            return True
        except Exception as error:  # noqa: BLE001 - the boundary: what it added goes with `m`
            self.after_seen(conn, self._broken(r, error))
            return True
        row = [r[0], 0, *result]
        if m.empty:
            again = r[1] in _PREWRITES and row[3:4] != _EXACT
            self.after_seen(conn, row, prewrite=again)
        elif self.view.open.size + size > ENTRY_ROOM:
            return False
        else:
            self._accept(conn, r, row, m, size)
        if self.waits.by_key:
            self._wake(r, result, m)
        return True

    def _wake(self, r: WireRow, result: list[object], m: Mutations) -> None:
        """Whose turn a command has brought."""
        if r[1] == RESOLVE:
            whose = r[9] if len(r) > 9 else None
            if whose is None and not m.ends_others:
                whose = m.user
            self.waits.resolved(r[5], r[6], m, whose)
        elif r[1] == FINISH:
            self.waits.finished([row[0] for row in r[5]], m)
        elif r[1] == PREWRITE and "unlock" in said(r):
            self.waits.finished((r[5],), m)
        elif r[1] == ROLLBACK and result[0] == ABORTED:
            record = m.txns.get((r[5], r[6])) or self.view.txn(r[5], r[6])
            self.waits.end(r[6], None if record is None else record.user)

    def _accept(
        self, conn: Connection, r: list[object], row: list[object], m: Mutations, size: int
    ) -> None:
        entry = self.view.open
        entry.add(m, size)
        if m.txns:
            self.view.recorded.add(m.txns)
        if m.guards:
            self.view.add_guards(m.guards)
        self.top_ts = max(self.top_ts, m.top_ts)
        if r[1] in _PREWRITES and row[3:4] != _EXACT:
            entry.prewrites.append(row)
        entry.replies.append((conn, row))

    def _broken(self, r: list[object], error: Exception) -> list[object]:
        """The reply to a command that met a bug before anything of it was in the open entry."""
        faults = self._scheduler.faults
        return [r[0], 1, *self._replies.error_fields(faults.answer(error, f"method {r[1]!r:.40}"))]

    def _refuse_seen(self, item: Item, error: KvorumError) -> None:
        """Answer a command that was refused; a write that met another transaction waits first."""
        conn, r = item
        if isinstance(error, KeyLocked) and r[1] in NEEDS_TIMESTAMP:
            refusal = self.waits.park(item, error)
            if refusal is None:
                self._counters.writes -= 1  # counted when its turn comes
                return
            error = refusal
        self.after_seen(conn, [r[0], 1, *self._replies.error_fields(error)])

    def after_seen(self, conn: Connection, row: list[object], *, prewrite: bool = False) -> None:
        """Answer a command without effect when everything that it may have seen is applied."""
        view = self.view
        entry = view.flying if view.open.empty else view.open
        if entry is None:
            self._replies.answer(conn, row)
            return
        entry.quiet.append((conn, row))
        if prewrite:  # sent again while its intents are in flight: the same bound holds
            entry.prewrites.append(row)

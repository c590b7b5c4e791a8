"""Writes that met another transaction's intent wait here, first come first served (D8).

A request waits at one key at a time, in the key's queue: priority first, then arrival. When the key
is released in the evaluated state, those at the head go back to the partition's input, as many as
can run one after the other, and stay in the queue until they were evaluated, later in the drain or
in another one, with new timestamps. A newcomer that wants a key with a queue, to write or to guard
it, joins it, so nobody overtakes. What meets the next key moves to that queue, at the place that
its arrival gives it: among requests of one partition, the older never waits for the younger *in a
queue*, so queues alone make no circle. Circles of intents and guards are found elsewhere
(txn/intents/deadlock.py), who asks about holders: txn/intents/lock_waits.py.

Invariants
  * a request is in at most one queue; one that was woken is also in a list of the machine, which
    alone answers it, and tells `forget` if it did so without evaluating it;
  * a key has a queue only while somebody is in it, so an empty `by_key` says that nobody waits;
  * every wait ends: by its turn, its time, the end of its transaction, or of the leadership.

Source: the lock wait-queues of CockroachDB's concurrency control, without its lock table: here the
intents are one. Deliberately missing: reservations (who was woken may be overtaken by a higher
priority), and ageing of priorities: a stream of high ones starves the low.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any, Final

from kv.base.errors import Busy, KeyLocked, KvorumError, to_wire
from kv.base.limits import (
    WAITERS_BYTES_MAX,
    WAITERS_MAX,
    WAITERS_PER_KEY_MAX,
)
from kv.base.ports import Handle
from kv.base.strengths import EXCLUDED, UPDATE
from kv.base.waits import INTENT, WAITED, HeldUp, Wait, Waits
from kv.mvcc.refusals import aborted, key_guarded, key_locked, shown
from kv.mvcc.view import Mutations
from kv.partition.admission import Item
from kv.partition.evaluated_state import Evaluated
from kv.partition.scheduler import Scheduler
from kv.partition.waiter import (
    LEAVES_INTENT,
    Waiter,
    guarded_of,
    keys_of,
    said,
    txn_of,
    wanted_of,
)

_COMPACT_FROM: Final = 64
RETRY_AFTER_MS: Final = 50


class Waiting:
    """The queues of one partition. All on the loop; the machine is the only caller but for
    `waits` and `refuse_wait`, which the registry's users call.
    """

    def __init__(
        self,
        view: Evaluated,
        scheduler: Scheduler,
        registry: Waits,
        *,
        resume: Callable[[list[Item]], None],
        answer: Callable[[Any, list[object]], None],
    ) -> None:
        """`resume(items)`: evaluate them in the next drain, before what came meanwhile.
        `answer(conn, row)`: reply once everything that was seen is applied.
        """
        self.by_key: dict[bytes, list[Waiter]] = {}
        self._view, self._scheduler, self._registry = view, scheduler, registry
        self._resume, self._answer = resume, answer
        self._by_request: dict[int, Waiter] = {}  # by id of the request's list
        self._by_txn: dict[int, list[Waiter]] = {}
        self._expiries: list[tuple[float, int, Waiter]] = []
        self._timer: Handle | None = None
        self._timer_at = 0.0
        self._ticket = 0
        self._bytes = 0
        self.counters = WaitCounters()

    def __len__(self) -> int:
        return len(self._by_request)

    # ------------------------------------------------------------------ coming

    def park(self, item: Item, met: KeyLocked) -> KvorumError | None:
        """A write met another transaction: queue it. None if it waits now, else what to answer: it
        was not to wait, or too many wait.
        """
        waiter = self._by_request.get(id(item[1]))
        key: bytes = met.details["key"]
        if waiter is None:
            waiter = self._newcomer(item)
            refusal = self._bounded(key, waiter) or self._no_time(waiter, met)
            if refusal is not None:
                return refusal
            self._enter(waiter)
        elif (late := self._no_time(waiter, met)) is not None:
            self._leave(waiter)  # its time passed while its turn came, in vain
            return late
        elif waiter.key != key:
            self._unlink(waiter)
        waiter.met = met.details
        waiter.woken = False
        self._link(waiter, key)
        return None

    def joins(self, item: Item) -> bool:
        """Whether somebody who is ahead waits for one of the keys that a write wants, or would
        guard: it was queued after. Only while somebody waits at all.
        """
        r = item[1]
        mine = self._by_request.get(id(r))
        order = None if mine is None else mine.order
        by_key = self.by_key
        for key in chain(keys_of(r), guarded_of(r, by_key)):
            queue = by_key.get(key)
            if queue is None or queue[0] is mine:
                continue
            if order is None:
                order = (-said(r).get("priority", 0), self._ticket + 1)
            if queue[0].order > order or self._owns(item, key) or _beside(r, queue):
                continue
            return self._behind(item, key, queue[0])
        return False

    def _owns(self, item: Item, key: bytes) -> bool:
        """Whether the request's own transaction holds the key: it must not wait for those who wait
        for itself.
        """
        conn, r = item
        lock, guards = self._view.lock(key), self._view.guards
        txn, user = txn_of(r), conn.author.user
        if lock is not None and lock.start_ts == txn and lock.user == user:
            return True
        return guards is not None and guards.holds(key, txn, user)

    def _behind(self, item: Item, key: bytes, head: Waiter) -> bool:
        lock = self._view.lock(key)
        if lock is None:
            met = KeyLocked(f"others wait for key {shown(key)}", details={**head.met, "key": key})
        else:
            met = key_locked(key, lock, self._scheduler.clock.now_ms())
        refusal = self.park(item, met)
        if refusal is not None:
            conn, r = item
            self._answer(conn, [r[0], 1, *to_wire(refusal)])
        return True

    def _newcomer(self, item: Item) -> Waiter:
        clock = self._scheduler.clock
        if not self._ticket:
            self._ticket = clock.now_ms() << 20  # not those of a run before this one
        self._ticket += 1
        return Waiter(item, self._ticket, clock.now_ms(), clock.monotonic())

    def _bounded(self, key: bytes, waiter: Waiter) -> Busy | None:
        at_key = len(self.by_key.get(key, ()))
        for what, actual, limit in (
            ("writes waiting for one key", at_key, WAITERS_PER_KEY_MAX),
            ("writes waiting in one partition", len(self._by_request), WAITERS_MAX),
            ("bytes of waiting writes", self._bytes + waiter.size, WAITERS_BYTES_MAX),
        ):
            if actual >= limit:
                return Busy(
                    f"key {shown(key)}: {actual} {what}, at most {limit}; nothing was done. "
                    "Send again a little later",
                    details={
                        "what": what,
                        "limit": limit,
                        "actual": actual,
                        "retry_after_ms": RETRY_AFTER_MS,
                    },
                )
        return None

    def _no_time(self, waiter: Waiter, met: KeyLocked) -> KeyLocked | None:
        if waiter.until_s > self._scheduler.clock.monotonic():
            return None
        return self._locked(waiter, met.details)

    def _enter(self, waiter: Waiter) -> None:
        assert waiter.item is not None
        self._by_request[id(waiter.item[1])] = waiter
        if waiter.txn:
            self._by_txn.setdefault(waiter.txn, []).append(waiter)
        self._bytes += waiter.size
        heappush(self._expiries, (waiter.until_s, waiter.ticket, waiter))
        self._compact()
        if self._timer is None or waiter.until_s < self._timer_at:
            self._arm(waiter.until_s)
        self.counters.parked += 1
        self._registry.on_wait()

    # ------------------------------------------------------------------ going

    def released(self, keys: Iterable[bytes]) -> None:
        """Nobody holds these keys any more, in the evaluated state. Whose turn comes with them is
        evaluated in the order of all, whichever key it waited for.
        """
        woken = [waiter for key in keys if key in self.by_key for waiter in self._turns(key)]
        woken.sort(key=_order)
        self._resume([waiter.item for waiter in woken if waiter.item is not None])

    def resolved(self, start_ts: int, commit_ts: int, m: Mutations, user: str | None) -> None:
        """A RESOLVE was evaluated: its keys are free; if it rolled a transaction back, what that
        still waits for ends, too.
        """
        if not commit_ts:
            self.end(start_ts, user)
        self.finished((start_ts,), m)

    def finished(self, ended: Container[int], m: Mutations) -> None:
        """What these transactions held here is free."""
        free = dict.fromkeys(key for key, lock in m.locks.items() if lock is None)
        for chunk in m.gone.values():
            free.update(dict.fromkeys(chunk.chunk))
        if m.guards:
            for key, queue in self.by_key.items():
                if any(waiter.met["txn"] in ended for waiter in queue):
                    free[key] = None
        self.released(free)

    def evaluated(self, r: list[object]) -> None:
        """A write was evaluated: if it waited, and does not wait again, it leaves its queue."""
        waiter = self._by_request.get(id(r))
        if waiter is not None and waiter.woken:
            self._leave(waiter)

    def forget(self, item: Item) -> None:
        """The machine refused it without evaluating it."""
        waiter = self._by_request.get(id(item[1]))
        if waiter is not None:
            self._leave(waiter)

    def wake_all(self) -> None:
        """What was evaluated is lost: nobody knows who holds what before trying."""
        self.released(self.by_key)

    def clear(self) -> list[Item]:
        """Forget everybody; those whom the machine does not have in its lists."""
        left = [w.item for w in self._by_request.values() if not w.woken and w.item is not None]
        self.by_key.clear()
        self._by_request.clear()
        self._by_txn.clear()
        self._expiries.clear()
        self._bytes = 0
        self._disarm()
        return left

    def leave(self, stay: Callable[[list[object]], bool]) -> list[Item]:
        """Forget those whose requests do not stay; of them, those that the machine does not have
        in its lists. The partition does not have their keys any more.
        """
        left: list[Item] = []
        for waiter in list(self._by_request.values()):
            item = waiter.item
            if item is None or stay(item[1]):
                continue
            if not waiter.woken:
                left.append(item)
            self._leave(waiter)
        return left

    def dismiss(self, error: KvorumError) -> None:
        """Answer everybody who waits: the node stops."""
        for waiter in list(self._by_request.values()):
            if not waiter.woken:
                self._refuse(waiter, error)

    def _turns(self, key: bytes) -> list[Waiter]:
        """Those at the head who can run one after the other: up to the first that leaves an
        intent. They are woken now.
        """
        woken: list[Waiter] = []
        queue = self.by_key[key]
        if self._view.guards is not None or self._view.lock(key) is not None:
            # Who has the key, and wants more of it, goes before those who wait for him.
            for waiter in queue:
                if not waiter.woken and waiter.item is not None and self._owns(waiter.item, key):
                    waiter.woken = True
                    woken.append(waiter)
        for waiter in queue:
            assert waiter.item is not None
            if not waiter.woken:
                waiter.woken = True
                woken.append(waiter)
            if waiter.item[1][1] in LEAVES_INTENT:
                break
        return woken

    def _link(self, waiter: Waiter, key: bytes) -> None:
        if waiter.key == key and key:
            return
        waiter.key = key
        insort(self.by_key.setdefault(key, []), waiter, key=_order)

    def _unlink(self, waiter: Waiter) -> None:
        """Out of its queue; the next has its turn if nobody holds the key."""
        key = waiter.key
        queue = self.by_key[key]
        queue.remove(waiter)
        waiter.key = b""
        if not queue:
            del self.by_key[key]
            return
        lock = self._view.lock(key)
        if lock is None:
            self.released((key,))
        elif lock.start_ts in self._by_txn:  # sent again while the first of it waited
            mine = [w for w in self._by_txn[lock.start_ts] if w.user == lock.user]
            again = [w for w in mine if w.key == key and not w.woken]
            for one in again:
                one.woken = True
            self._resume([one.item for one in again if one.item is not None])

    def _leave(self, waiter: Waiter) -> None:
        assert waiter.item is not None
        del self._by_request[id(waiter.item[1])]
        waiter.item = None
        if waiter.txn:
            mine = self._by_txn[waiter.txn]
            mine.remove(waiter)
            if not mine:
                del self._by_txn[waiter.txn]
        self._bytes -= waiter.size
        self._unlink(waiter)
        if not self._by_request:
            self._expiries.clear()
            self._disarm()

    def end(self, start_ts: int, user: str | None) -> None:
        """The transaction was rolled back: what it still waits for ends. `user`: whose it is (None:
        that does not matter).
        """
        for waiter in list(self._by_txn.get(start_ts, ())):
            if not waiter.woken and user in (None, waiter.user):
                self._refuse(waiter, aborted(start_ts, "while it waited for a key"))

    def _refuse(self, waiter: Waiter, error: KvorumError) -> None:
        assert waiter.item is not None
        conn, r = waiter.item
        self._leave(waiter)
        self._answer(conn, [r[0], 1, *to_wire(error)])

    # ------------------------------------------------------------------ time

    def _arm(self, at_s: float) -> None:
        self._disarm()
        self._timer_at = at_s
        delay_s = max(0.0, at_s - self._scheduler.clock.monotonic())
        self._timer = self._registry.call_later(delay_s, self._expire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """The time of some is over: their error names who stands in their way."""
        self._timer = None
        now_s = self._scheduler.clock.monotonic()
        heap = self._expiries
        while heap and (heap[0][2].item is None or heap[0][0] <= now_s):
            _, _, waiter = heappop(heap)
            if waiter.item is not None and not waiter.woken:
                self.counters.timed_out += 1
                met = self._met(waiter)
                details = waiter.met if met is None else met.details
                self._refuse(waiter, self._locked(waiter, details))
        if heap:
            self._arm(heap[0][0])

    def _compact(self) -> None:
        """Drop those who left: one who stays long must not keep all who came and went since."""
        heap = self._expiries
        if len(heap) > _COMPACT_FROM and len(heap) > 2 * len(self._by_request):
            heap[:] = [e for e in heap if e[2].item is not None]
            heapify(heap)

    # ------------------------------------------------------------------ telling

    def _met(self, waiter: Waiter) -> KeyLocked | None:
        """Who holds its key now; None if its turn comes."""
        view, now_ms = self._view, self._scheduler.clock.now_ms()
        lock, guards, met = view.lock(waiter.key), view.guards, waiter.met
        if lock is not None and (lock.start_ts, lock.user) != (waiter.txn, waiter.user):
            return key_locked(waiter.key, lock, now_ms)
        if guards is None:
            return None
        guard = guards.by_at.get((met["keys"][0], met["txn"]))  # others there may let it pass
        guard = guard or guards.meets(waiter.key, waiter.txn, waiter.user)
        return None if guard is None else key_guarded(waiter.key, guard, now_ms)

    def _locked(self, waiter: Waiter, met: dict[str, Any]) -> KeyLocked:
        waited_ms = max(0, self._scheduler.clock.now_ms() - waiter.since_ms)
        owner = self._owner(met)
        details = {**met, WAITED: waited_ms}
        if owner:
            details["owner"] = owner
        return KeyLocked(
            f"key {shown(met['key'])} is held by transaction {met['txn']}"
            f"{' of ' + owner if owner else ''}, {met['age_ms']} ms old, and the request waited "
            f"{waited_ms} ms, as long as it may; nothing was written. Try again, wait longer "
            "(lock_wait_ms or deadline), or abort that one (it ends "
            f"{met['ttl_ms']} ms after its last heartbeat)",
            details=details,
        )

    def _owner(self, met: dict[str, Any]) -> str:
        """Of a transaction that was met, as far as this node knows."""
        txn, anchor = met["txn"], met["anchor"]
        known = self._registry.owners.get(txn)
        return known or self._registry.owner_of(anchor, txn)

    def waits(self, *, older_ms: int = 0, holding: bool = False) -> Iterator[Wait]:
        """kv.base.waits.Source."""
        registry, now_ms = self._registry, self._scheduler.clock.now_ms()
        for waiter in self._by_request.values():
            old = now_ms - waiter.since_ms >= older_ms
            if old and (waiter.holding or not holding):
                yield self._wait_of(waiter, registry, now_ms)

    def held_up(self) -> Iterator[HeldUp]:
        """kv.base.waits.Source."""
        for queue in self.by_key.values():
            met = self._met(queue[0])
            if met is not None:
                d = met.details
                yield HeldUp(d["txn"], d["anchor"], d["ttl_ms"], d["keys"][0], d.get("user", ""))

    def _wait_of(self, waiter: Waiter, registry: Waits, now_ms: int) -> Wait:
        met = self._met(waiter)
        details = waiter.met if met is None else met.details
        holder: int = 0 if met is None else details["txn"]
        return Wait(
            node=registry.node,
            source=self._view.descriptor.id,
            id=waiter.ticket,
            kind=details.get("kind", INTENT),
            resource=waiter.key,
            waiter=waiter.txn,
            waiter_user=waiter.user,
            waiter_owner=waiter.owner,
            holder=holder,
            holder_user=details.get("user", "") if holder else "",
            holder_owner=self._owner(details) if holder else "",
            held=details["keys"][0],
            anchor=details["anchor"],
            ttl_ms=details["ttl_ms"],
            waited_ms=max(0, now_ms - waiter.since_ms),
            priority=waiter.priority,
            holding=waiter.holding,
        )

    def refuse_wait(self, id: int, holder: int, error: KvorumError) -> bool:
        """kv.base.waits.Source."""
        for waiter in self._by_request.values():
            if waiter.ticket == id:
                met = self._met(waiter)
                if waiter.woken or met is None or met.details["txn"] != holder:
                    return False
                self.counters.deadlocks += 1
                self._refuse(waiter, error)
                return True
        return False


class WaitCounters:
    """Figures since the start."""

    __slots__ = ("deadlocks", "parked", "timed_out")

    def __init__(self) -> None:
        self.parked = 0
        self.timed_out = 0
        self.deadlocks = 0


def _beside(r: list[object], queue: list[Waiter]) -> bool:
    """Whether a weak lock excludes nobody who waits: it need not come after them."""
    wanted = wanted_of(r)
    if wanted == UPDATE:
        return False
    theirs = {wanted_of(waiter.item[1]) for waiter in queue if waiter.item is not None}
    return EXCLUDED[wanted].isdisjoint(theirs)


def _order(waiter: Waiter) -> tuple[int, int]:
    return waiter.order

"""Who is given what: procedures that may run go to workers with a free slot, and are taken back
from those that are silent.

A *lane* is what workers differ in: pool, type and version. A procedure that a worker holds keeps
its IdLock; so nobody else decides about it meanwhile, and who wants to (an abort) recalls it.

Whoever takes a procedure away from a worker first writes its row anew (`_regain`): from then on the
other's commit is refused. Whether it had committed before is read from the store, never assumed
(docs/decisions/0413). What needs none of its code (to fail it, to grant its locks) is decided here,
also when nobody serves its pool.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import Final

from msgspec.structs import replace

from kv.base import limits
from kv.base.errors import (
    ConditionFailed,
    KvorumError,
    UnknownOutcome,
)
from kv.base.ops import check, put
from kv.base.ports import Clock, Rng, Timers
from procedures.engine import core, records
from procedures.engine.core import RESTART, Change, Flow, failure
from procedures.engine.grants import REIGN
from procedures.engine.idlock import IdLock
from procedures.engine.needs import Needs, lacking, used
from procedures.engine.procedure import State
from procedures.engine.queues import Place
from procedures.engine.records import (
    FORMAT_MORE,
    Record,
    lane_of,
    parts_of,
    uses_more,
    without_needs,
)
from procedures.engine.registry import Registry
from procedures.engine.roster import Live, Roster
from procedures.engine.store import Fenced, ProcedureStore
from procedures.engine.turn import Turns
from procedures.pools import messages, rows
from procedures.pools.describe import remote_type
from procedures.pools.messages import (
    Drop,
    Entry,
    Looked,
    Order,
    Recall,
    Run,
)
from procedures.pools.rows import Rows
from procedures.pools.start_limits import Bucketed, Gate, Kept

log = logging.getLogger(__name__)

_AGAIN_S: Final = 0.1
_TAKEN: Final = 64  # far more than a worker has polls under way
_IDS: Final = 64  # blocks of ids for children; far more than a worker has commits under way


class Hand:
    """A worker, as the master sees it."""

    def __init__(self, name: str, entry: Entry, epoch: int, now: float) -> None:
        self.name = name
        self.entry = entry
        self.epoch = epoch
        self.heard = now  # monotonic
        self.held: dict[int, int] = {}  # procedure → number of signals when it was given out
        self.outbox: deque[Order] = deque()  # not seen yet
        self.number = 0  # of the last order
        self.sent = 0  # of the last order that some answer had
        self.taken: deque[int] = deque(maxlen=_TAKEN)  # numbers of the last reports
        self.waiting: asyncio.Future[None] | None = None
        self.ids: deque[range] = deque(maxlen=_IDS)  # given out for children; older are used up
        self.burdens: dict[int, Needs] = {}  # of what is held
        self.slow: set[int] = set()  # held, and stuck: others get a slot more for each
        self.types = Registry()  # what it can run
        for description in entry.types:
            self.types.put(remote_type(description))

    @property
    def free(self) -> int:
        more = min(len(self.slow), limits.PROCEDURE_STUCK_HIRED_MAX)
        return self.entry.slots + more - len(self.held)

    def lacks(self, wanted: Needs) -> str:
        """What of it is not free here, "" = it is."""
        return lacking(wanted, dict(self.entry.capacity), self.used_up()) if wanted else ""

    def used_up(self) -> dict[str, float]:
        """What of its capacity is taken."""
        for id in [id for id in self.burdens if id not in self.held]:
            del self.burdens[id]
        return used(self.burdens.values())

    def keeps(self, record: Record) -> bool:
        """Whether nothing of the record is lost by its commits: it may be of an older version."""
        return self.entry.format >= FORMAT_MORE or not uses_more(record)

    def wake(self) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)


def lanes_of(entry: Entry) -> list[str]:
    """Everything that a worker can run: each type with its own and the versions that it accepts."""
    return [
        lane_of(description.pool, description.name, version)
        for description in entry.types
        for version in (description.version, *description.accepts)
    ]


def own_lanes(entry: Entry) -> list[str]:
    """Of them those of the versions that it declares."""
    return [lane_of(one.pool, one.name, one.version) for one in entry.types]


class Dealing:
    """The base of Crew: its state, and what is said above."""

    def __init__(
        self,
        *,
        store: ProcedureStore,
        rows: Rows,
        types: Registry,
        roster: Roster,
        turns: Turns,
        locks: IdLock,
        clock: Clock,
        timers: Timers,
        rng: Rng,
        spawn: Callable[[Coroutine[object, None, None]], object],
        refusal: Callable[[], KvorumError],
    ) -> None:
        """`spawn` runs a task of the executor; `refusal`: why it does not serve any more."""
        self._store = store
        self._rows = rows
        self._types = types
        self._roster = roster
        self._turns = turns
        self._locks = locks
        self._clock = clock
        self._timers = timers
        self._spawn = spawn
        self._refusal = refusal
        self.gate = Gate(timers, clock, self._opened, self._keep)
        self.gate.shut = True  # until everything that was under way is known
        self._epoch = int.from_bytes(rng.token(6), "big")
        self.hands: dict[str, Hand] = {}
        self._by_lane: dict[str, list[Hand]] = {}
        # not heard of in this reign: until when they may come, and who they are
        self._expected: dict[str, tuple[float, Entry]] = {}
        self._doubtful: set[int] = set()  # may still be held by a worker that did not come back
        self._questions: dict[tuple[str, int], asyncio.Future[Looked]] = {}
        """By the worker that was asked: nobody else answers."""
        self._asked = 0
        self._dirty: set[str] = set()
        self._dealt = 0
        self._served: dict[str, int] = {}  # lane → `_dealt` when something of it was given out
        self._dealing = False
        self._closed = False
        self.taken_back = 0
        self._losses: dict[int, int] = {}  # procedure → taken from silent workers since it moved
        self._postponed: dict[str, set[int]] = {}  # lane → who can be run by busy workers only
        self._with_needs: dict[str, dict[str, None]] = {}  # lane → the same with needs, that wait
        self.deduplicated: Counter[str] = Counter()  # owner → keys for which an earlier one stands
        self._sweeping = False
        self._away: dict[
            tuple[str, int], float
        ] = {}  # version by code → when somebody came or went
        self._care_at = inf  # a look at these
        self._coming: list[Entry] = []  # who enters at this moment
        self._sizes: dict[tuple[str, int], tuple[str, int]] = {}
        """Of types that workers have declared: whose each is, and the bytes of its description."""
        self._declaring = asyncio.Lock()  # rows of types, and what is known of them, move together
        self._untold: Counter[int] = Counter()  # procedure → rows of an index without its record

    @property
    def settled(self) -> bool:
        """Whether everybody who may hold something is known."""
        return not self._expected

    def settle(self) -> None:
        """If everybody is known, who waited for that may begin."""
        if self.gate.shut and self.settled:
            self.gate.open()

    def _keep(self, id: int, buckets: dict[Bucketed, Kept]) -> None:
        self._spawn(self._keeping(id, buckets))

    async def _keeping(self, id: int, buckets: dict[Bucketed, Kept]) -> None:
        """Write down what a slow rate let begin: the next master goes on from that. Nobody begins
        by the word of one that was deposed.
        """
        ops = [put(rows.rate(*at), messages.encode(kept)) for at, kept in buckets.items()]
        while not self._closed:
            try:
                await self._rows.write([*ops, check(REIGN, self._turns.reign)])
                break
            except ConditionFailed:
                return
            except KvorumError as error:
                log.warning("procedure %d does not begin yet: %s", id, error)
            await asyncio.sleep(_AGAIN_S)
        self.gate.kept(id)

    def _opened(self, id: int) -> None:
        """The gate lets it begin."""
        live = self._roster.get(id)
        if live is not None:
            live.begun = not self._roster.pause_over(live)
            if not live.begun:
                self.gate.left(id)  # it was paused at the last moment
            self._roster.enqueue(live)

    # ------------------------------------------------------------------------------ taking back
    def _doubt(self) -> None:
        held = {id for hand in self.hands.values() for id in hand.held}
        self._doubtful |= {live.id for live in self._roster.all() if live.lane} - held

    async def _regain(self, id: int, silent: str = "") -> None:
        """Write its row anew, so that whoever had it cannot commit; then go on from what the store
        says. Its IdLock is held, and released here. `silent`: the worker that had it and fell
        silent; from the second time on it pauses, so that one that blocks its worker does not take
        the others' turns with it for ever.
        """
        live = self._roster.get(id)
        try:
            while live is not None and not self._closed:
                try:
                    await self._fence(live, silent=bool(silent))
                    break
                except KvorumError as error:
                    log.warning("procedure %d is not taken back yet: %s", id, error)
                await asyncio.sleep(_AGAIN_S)
        finally:
            self._let_go(id)
        live = self._roster.get(id)
        if live is None:
            self._losses.pop(id, None)
            return
        if self._closed:
            return
        if silent and not live.children:
            times = self._losses[id] = self._losses.get(id, 0) + 1
            if times > 1:
                self._rest(live, silent, times)
                return
        self._replace(live)

    def _rest(self, live: Live, silent: str, times: int) -> None:
        why = f"taken back {times} times from silent worker {silent}: does its step block?"
        if live.record is not None and live.record.state is State.WAITING and live.record.event:
            live.wake = RESTART
        pause_ms = limits.WORKER_SILENT_MS_FIRST << min(times - 2, 10)
        pause_ms = min(limits.WORKER_SILENT_MS_MAX, pause_ms)
        self._roster.rest(live, failure("WORKER_SILENT", why), pause_ms)

    async def _fence(self, live: Live, *, silent: bool) -> None:
        while True:
            stored = await self._store.load(live.id)
            moved = stored is None or stored.version != live.version
            if stored is None or stored.record.ended:
                break
            record = stored.record  # from `attempt` the step knows that it was under way before
            record = replace(record, lost=record.lost + 1) if silent else record
            try:
                await self._store.update(stored.version, Change(record, Flow.MORE))
            except (Fenced, UnknownOutcome):
                continue
            break
        if moved:  # it committed, and its signals may be lost with its report
            self._losses.pop(live.id, None)
            self._roster.wake_waiting()
        self._doubtful.discard(live.id)
        live.version = 0  # whatever is there is news
        await self._turns.reload(live)

    def _replace(self, live: Live) -> None:
        """Back among those that wait or may run, with the wake-up that may have been lost."""
        record = live.record
        if record is None:
            self._roster.enqueue(live)
            return
        self._roster.doubt(live, record)
        self._roster.place(live, record)

    def _back(self, id: int) -> None:
        """An order for it never arrived."""
        self._let_go(id)
        live = self._roster.get(id)
        if live is not None:
            self._roster.enqueue(live)

    def _let_go(self, id: int) -> None:
        live = self._roster.get(id)
        if live is not None:
            live.running = False
            live.worker = ""
            live.progress = None
            live.slow_ms = 0
        self._locks.release(id)

    # ------------------------------------------------------------------------------ dealing
    def offer(self, live: Live) -> None:
        """It may run (Roster.enqueue). One that a worker has is called back instead: something
        changed that its worker does not know.
        """
        if live.worker:
            self.recall(live)
            return
        if self._turns.home(live):  # not queued: nobody serves its lane
            self._spawn(self._decided(live))
            return
        self._roster.push(live)
        if (lane := without_needs(live.lane)) != live.lane:
            self._with_needs.setdefault(lane, {})[live.lane] = None
        self._kick((live.lane,))
        if self._turns.decides(live):
            self._spawn(self._decided(live))

    def recall(self, live: Live) -> None:
        """Have its worker give it back when the step under way has ended."""
        hand = self.hands.get(live.worker)
        if hand is not None and live.id in hand.held:
            self._tell(hand, Recall(0, live.id))

    def recall_paused(self, id: int = 0) -> None:
        """Have workers give back what is paused now: this one, or (0) all; and keep nobody's
        place.
        """
        self._roster.step_aside([id] if id else self.gate.waiting())
        for hand in self.hands.values():
            for id in list(hand.held):
                live = self._roster.get(id)
                if live is not None and self._roster.pause_over(live):
                    self.recall(live)

    def forsake(self, live: Live) -> None:
        """It ended while its worker was at it (a bypass): the worker stops, and is free."""
        hand = self.hands.get(live.worker)
        if hand is not None and hand.held.pop(live.id, None) is not None:
            hand.slow.discard(live.id)
            self._tell(hand, Drop(0, live.id))
            self._locks.release(live.id)
            self._again(lanes_of(hand.entry))
            self._kick(lanes_of(hand.entry))

    def kick(self, lane: str) -> None:
        """Something of this lane may run now (its locks are free)."""
        self._kick((lane,))

    def _kick(self, lanes: Iterable[str]) -> None:
        self._dirty.update(lanes)
        for lane in lanes if self._with_needs else ():
            self._dirty.update(self._with_needs.get(lane, ()))
        if not self._dealing and self._dirty:
            self._dealing = True
            asyncio.get_running_loop().call_soon(self._deal)

    def _deal(self) -> None:
        """Give out what may run: the highest priority first, whatever its lane, and of one priority
        queues take turns, as they do for the master's own workers. Of a queue that is in several
        lanes these take turns.
        """
        self._dealing = False
        dirty, self._dirty = self._dirty, set()
        if self._closed or not self.settled:
            return
        order = [turn for lane in dirty if (turn := self._turn_of(lane)) is not None]
        heapify(order)
        while order:
            lane = order[0][-1]
            hand = self._free_hand(lane)
            turn = self._turn_of(lane)
            if hand is None or hand.free <= 0 or turn is None:
                heappop(order)  # it waits, and says so (`why_waits`)
                continue
            if turn != order[0]:  # its queue had its turn in another lane: only ever later
                heapreplace(order, turn)
                continue
            live = self._roster.take(lane)
            self._dealt += 1
            self._served[lane] = self._dealt
            if live is not None:
                self._give(hand, live)

    def _free_hand(self, lane: str) -> Hand | None:
        """The worker that the next one of a lane is for, if there is one."""
        hands = self._by_lane.get(lane)
        if hands is None and (base := without_needs(lane)) != lane:
            wanted = parts_of(lane)[3]
            hands = [hand for hand in self._by_lane.get(base, ()) if not hand.lacks(wanted)]
            if not self._roster.waits_in(lane) and lane not in self._postponed:
                self._with_needs.get(base, {}).pop(lane, None)
        return max(hands, key=most_free) if hands else None

    def _turn_of(self, lane: str) -> tuple[Place, int, str] | None:
        place = self._roster.order_in(lane)
        return None if place is None else (place, self._served.get(lane, 0), lane)

    async def _decided(self, live: Live) -> None:
        async with self._locks(live.id):
            if self._roster.get(live.id) is not live or live.worker:
                return
            if self._turns.decides(live):
                await self._turns.turn(live, lambda _: False)
            else:
                self._roster.enqueue(live)

    def _give(self, hand: Hand, live: Live) -> None:
        if not self._locks.try_acquire(live.id):
            self._spawn(self._later(live))  # somebody decides about it now
        elif live.id in self._doubtful:
            self._spawn(self._regain(live.id))
        elif self._turns.decides(live):
            self._locks.release(live.id)
            self._spawn(self._decided(live))
        elif live.record is not None and not self._roster.ripe(live, live.record):
            self._locks.release(live.id)  # it was queued before its last step: it waits since then
            self._roster.place(live, live.record)
        elif (able := self._able(hand, live)) is None or self._busy(able, live):
            self._locks.release(live.id)
            if able is not None:
                self._postponed.setdefault(live.lane, set()).add(live.id)
        else:  # and now `live.wake` says why it runs
            hand = able
            self._hold(hand, live)
            record = live.record
            doom = self._roster.doom(live.parent)
            data = b"" if record is None else records.encode(record)
            alive = len(self._roster)
            tried = live.wake, live.tries
            run = Run(0, live.id, live.version, data, *tried, doom is not None, alive, doom or "")
            self._tell(hand, run)

    def _able(self, hand: Hand, live: Live) -> Hand | None:
        """The worker that gets it: this one, if it has what it needs, else the most free one that
        has, perhaps a busy one. Workers of one version may have different steps: old and new code
        side by side. None: nobody has, and it is parked until somebody who has comes.
        """
        record = live.record or live.needs
        if record is None:
            return hand
        why = core.missing(record, hand.types)
        if not why and hand.keeps(record):
            return hand
        pool, _, _, wanted = parts_of(live.lane)
        hands = self._by_lane.get(without_needs(live.lane), ())
        able = [h for h in hands if not core.missing(record, h.types) and h.keeps(record)]
        if able:
            return max(able, key=lambda h: (not h.lacks(wanted), *most_free(h)))
        why = why or "they are of an older version of Kvorum, which would lose a part of it"
        live.parked = f"no worker of pool {pool} can run it: {why}"
        return None

    @staticmethod
    def _busy(hand: Hand, live: Live) -> bool:
        return hand.free <= 0 or bool(hand.lacks(parts_of(live.lane)[3]))

    async def _left(self, hand: Hand, live: Live, why: str) -> None:
        """A worker left it alone: its code lacks what it needs, so others may have it; or something
        is wrong with it, or with us.
        """
        async with self._locks(live.id):
            try:
                if live.record is None:
                    await self._turns.reload(live)
            except KvorumError as error:
                log.warning("procedure %d was left alone and cannot be read: %s", live.id, error)
        if self._roster.get(live.id) is not live or live.worker:
            return
        record = live.record
        if record is not None and core.missing(record, hand.types):
            self._roster.place(live, record)  # who gets it next is chosen by what it needs
        else:
            live.parked = why

    def _again(self, lanes: Iterable[str]) -> None:
        """A worker is free, or gone: who was postponed is looked at again."""
        if not self._postponed:
            return
        for base in lanes:
            self._again_in(base, *self._with_needs.get(base, ()))

    def _again_in(self, *lanes: str) -> None:
        for lane in lanes:
            for id in sorted(self._postponed.pop(lane, ())):
                live = self._roster.get(id)
                if live is not None and not live.worker:
                    self._roster.enqueue(live)

    def _unpark(self, entry: Entry) -> None:
        """Somebody who runs these types has come: what was parked for want of that goes on. (What
        is left alone for another reason is tried once more.)
        """
        for name in {description.name for description in entry.types}:
            for live in self._roster.named(name):
                if live.parked and not live.running:
                    live.parked = ""
                    if live.record is None:
                        self._roster.enqueue(live)
                    else:
                        self._roster.place(live, live.record)

    async def _later(self, live: Live) -> None:
        async with self._locks(live.id):
            pass
        if self._roster.get(live.id) is live:
            self._roster.enqueue(live)

    def _hold(self, hand: Hand, live: Live) -> None:
        hand.held[live.id] = self._roster.signals
        if wanted := parts_of(live.lane)[3]:
            hand.burdens[live.id] = wanted
        live.worker = hand.name
        live.running = True
        live.queued = False
        live.parked = ""
        live.retry_ms = 0

    def _tell(self, hand: Hand, order: Order) -> None:
        hand.number += 1
        hand.outbox.append(messages.numbered(order, hand.number))
        hand.wake()


def most_free(hand: Hand) -> tuple[int, int]:
    """Of equals the one that can run less else."""
    return hand.free, -len(hand.entry.types)

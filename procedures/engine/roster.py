"""What is live: every procedure that has not ended, what it waits for, and the queue of what may
run.

All of it is derived from the store and can be thrown away. Waking is in memory only: a waiting
record stays WAITING in the store until its next step commits, and a restart wakes everything that
waits for an event. So no wake-up can be lost with a process; spurious ones happen, and steps look
again.

A procedure waits while it has live children: a child leaves the roster after its end is durable,
and the last one to leave queues the parent (J14).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import merge
from sys import intern
from typing import Final

from msgspec.structs import replace

from kv.base import limits
from kv.base.ops import Op
from kv.base.ports import Clock, Rng, Timers
from procedures.engine import core
from procedures.engine.core import RESTART, limit_ms, needs
from procedures.engine.due_times import Due
from procedures.engine.figures import Figures
from procedures.engine.locks import Link, circle_text
from procedures.engine.ordered_ids import OrderedIds
from procedures.engine.procedure import State, events_of
from procedures.engine.queues import Place
from procedures.engine.records import Failure, Record
from procedures.engine.resources import Locks, queue_of
from procedures.engine.row_watch import RowWatch
from procedures.engine.scheduler import Entry, Scheduler
from procedures.engine.store import Stored
from procedures.engine.submission import begun
from procedures.pools import inbox
from procedures.pools.pauses import Pauses
from procedures.pools.start_limits import Gate

_EVENTS_REMEMBERED: Final = 10_000
_NOBODY: Final[frozenset[int]] = frozenset()


class Live:
    """One procedure that has not ended. `record` None: too large to keep, a turn loads it.

    There may be very many, and Python's collector looks at all of them in one go, while the loop
    stands still. So this is all that it finds of one: no set without children, records and entries
    that it need not look at (`gc=False`).
    """

    __slots__ = (
        "beats",
        "begun",
        "bound",
        "children",
        "deadline_ms",
        "doomed",
        "entry",
        "event",
        "final",
        "granted",
        "id",
        "key",
        "lane",
        "limits",
        "minded_ms",
        "name",
        "needs",
        "orphan",
        "owner",
        "parent",
        "parked",
        "progress",
        "queued",
        "record",
        "release",
        "retry",
        "retry_ms",
        "rolling",
        "running",
        "since_ms",
        "slow_ms",
        "starter",
        "step_began",
        "tells",
        "tries",
        "version",
        "wake",
        "worker",
        "writing",
    )

    def __init__(self, stored: Stored) -> None:
        record = stored.record
        self.id = record.id
        self.name = intern(record.name)
        self.owner = intern(record.owner)
        self.release = record.version  # of its type
        self.parent = record.parent
        self.starter = record.starter
        self.tells = record.tells
        self.bound = record.bound
        self.orphan = False  # bound to a starter that has ended: it fails
        self.entry = entry_of(record)
        self.granted = record.grant != 0  # the store knows that it holds its locks
        self.record: Record | None = record
        self.needs: Record | None = None  # of one that is not kept: what says who can run it
        self.version = stored.version
        self.final = record.final
        self.lane = record.lane  # "" = run here, else by workers
        self.worker = ""  # the one that has it
        self.begun = begun(record)
        self.beats: Mapping[str, bytes] | None = None  # what its steps said; None: not read yet
        self.limits = limits_of(record)
        self.key = record.key  # … and of which key of its queue it is
        self.since_ms = max(record.created_ms, 0 if self.begun else record.due_ms)
        self.progress: tuple[float, str] | None = None  # what its step said last
        self.step_began = (0, 0, "")  # of the step under way: when, its deadline in ms, its name
        self.slow_ms = 0  # its worker says that the step runs so long already
        self.deadline_ms = limit_ms(record)  # it fails then by itself
        self.minded_ms = 0  # … the one that there is a timer for
        self.children: set[int] | frozenset[int] = _NOBODY  # the live ones
        self.doomed = record.error is not None  # it fails: its children fail at their next turn
        self.rolling = record.state is State.ROLLING_BACK
        self.event = ""  # under which it stands in the table of events
        self.queued = False
        self.running = False
        self.wake = ""
        self.tries = 0  # retries of the current step since this process has it
        self.retry: Failure | None = None
        self.retry_ms = 0  # it pauses until then, in ms of the monotonic clock
        self.writing: Sequence[Op] = ()  # of its step, on their way to the store
        self.parked = ""  # why this program cannot run it

    def bore(self, child: int) -> None:
        """One more is live."""
        if isinstance(self.children, frozenset):
            self.children = set()
        self.children.add(child)


class Roster:
    """The live procedures of one executor."""

    def __init__(self, clock: Clock, timers: Timers, rng: Rng, queue: Scheduler) -> None:
        self._clock = clock
        self._rng = rng
        self._queue = queue
        queue.on_ready = self._ready
        self.offer: Callable[[Live], None] | None = None  # takes what workers run (pools/crew.py)
        self.lane_ready: Callable[[str], None] | None = None
        self.gate: Gate | None = None
        self.pauses: Pauses | None = None
        self._kept_back: set[int] = set()  # of what is paused, those that could run
        self.look: Callable[[Live, str], None] | None = None  # for what is kept (inbox.kept)
        self.row_watch: RowWatch | None = None  # for rows that somebody waits for
        self._live: dict[int, Live] = {}
        # Of them, so that who cares for the cluster need not look at all of a user's:
        self._named: dict[str, set[int]] = {}  # by type
        self._ids = OrderedIds(self._live)
        self._ids_of: dict[str, OrderedIds] = {}
        self._locked: dict[int, Live] = {}  # with locks, had or wanted
        self._idle: deque[asyncio.Future[None]] = deque()
        self._due = Due(clock, timers, self._at_due)
        self._elapsed = _Monotonic(timers)
        self._pauses = Due(self._elapsed, timers, self._at_pause)
        self._bound: dict[int, set[int]] = {}  # starter → those that are cancelled when it ends
        self._waiting: dict[str, set[int]] = {}  # event → procedures suspended on it
        self._listeners: dict[int, list[asyncio.Future[None]]] = {}  # id → who waits outside
        self._signalled: OrderedDict[str, int] = OrderedDict()  # event → number of its last signal
        self._forgotten = 0  # signals up to this number are no longer in _signalled
        self.signals = 0  # number of the last signal
        self.retries = 0
        self.figures = Figures()

    def __len__(self) -> int:
        return len(self._live)

    def doom(self, id: int) -> str | None:
        """Why this one fails, if it does: so do its children. None: it does not."""
        live = self.get(id)
        if live is None or not live.doomed:
            return None
        record = live.record
        return "" if record is None or record.error is None else record.error.message

    def get(self, id: int) -> Live | None:
        return self._live.get(id)

    def all(self) -> list[Live]:
        """In the order of their ids."""
        return [self._live[id] for id in sorted(self._live)]

    def locked(self) -> list[Live]:
        """Those with locks, had or wanted, in the order of their ids."""
        return [self._locked[id] for id in sorted(self._locked)]

    def names(self) -> list[str]:
        """The types of all."""
        return sorted(self._named)

    def named(self, name: str) -> list[Live]:
        """Those of one type, in the order of their ids."""
        return [self._live[id] for id in sorted(self._named.get(name, ()))]

    def newest(self, names: Sequence[str] = (), before: int = 0) -> Iterator[int]:
        """Ids of these types (none = of all) below `before` (0 = all), the newest first."""
        if not names:
            return self._ids.newest(before)
        listed = [self._ids_of[name].newest(before) for name in names if name in self._ids_of]
        return merge(*listed, reverse=True)

    def waits(self) -> dict[str, tuple[int, int]]:
        """Queue → how many of it could run and wait, and since when the next one does: for turns,
        and for limits.
        """
        found: dict[str, tuple[int, int]] = {}
        heads = [*self._queue.heads(), *(() if self.gate is None else self.gate.heads())]
        for queue, count, id in heads:
            live = self._live.get(id)
            record = None if live is None else live.record or live.needs
            since = self._clock.now_ms() if record is None else record.updated_ms
            n, oldest = found.get(queue, (0, since))
            found[queue] = n + count, min(oldest, since)
        return found

    def close(self) -> None:
        self._due.close()
        self._pauses.close()
        self.tell_all()

    @property
    def next_due_ms(self) -> int:
        """When the next of those that wait is due; 0 = none is."""
        return self._due.next_ms

    def look_at_the_clock(self) -> None:
        """It was set."""
        self._due.look()

    # ---------------------------------------------------------------------- coming and going
    def adopt(self, stored: Stored) -> Live:
        """Take in a procedure that the store holds; one that is here already stays as it is.
        Parents come first: their ids are smaller.
        """
        record = stored.record
        if (known := self._live.get(record.id)) is not None:
            return known
        live = self._live[record.id] = Live(stored)
        alike = self._named.setdefault(live.name, set())
        alike.add(live.id)
        self._ids.add(live.id)
        if (ids := self._ids_of.get(live.name)) is None:
            ids = self._ids_of[live.name] = OrderedIds(alike)
        ids.add(live.id)
        if live.entry.locks:
            self._locked[live.id] = live
        self._slim(live)
        if record.parent:
            self._queue.introduce(record.id, record.parent)
        if live.granted:
            self._queue.restore(live.entry)
        parent = self._live.get(record.parent)
        if parent is not None:
            parent.bore(record.id)
        if live.bound:
            self._bound.setdefault(live.starter, set()).add(live.id)
        if live.deadline_ms:
            self._mind(live)
        return live

    def bereave(self, unread: Collection[int]) -> None:
        """All that lives is here, but for those that cannot be read: whose starter is none of them
        has lost it.
        """
        for starter, ids in self._bound.items():
            if starter not in self._live and starter not in unread:
                for id in ids:
                    self._live[id].orphan = True

    def moved(self, live: Live, record: Record, version: int) -> None:
        """Its record is now this one."""
        record = record.settled(version)
        if self._listeners:
            self.tell(live.id)
        self.figures.moved(live.record, record)
        live.record = record
        live.needs = None
        live.version = version
        live.release = record.version
        live.wake = ""
        live.tries = 0
        live.retry = None
        live.retry_ms = 0
        live.deadline_ms = limit_ms(record) if record.deadline_ms or record.step_due_ms else 0
        live.rolling = record.state is State.ROLLING_BACK
        live.granted = record.grant != 0
        live.final = record.final
        live.begun = live.begun or begun(record)
        if not live.begun:
            live.since_ms = max(record.created_ms, record.due_ms)
        if record.locks != live.entry.locks or record.lane != live.lane:
            live.lane = record.lane
            live.entry = entry_of(record)
            if live.entry.locks:
                self._locked[live.id] = live
            else:
                self._locked.pop(live.id, None)
        self._unlist(live)
        if record.error is None:
            live.doomed = False
        elif not live.doomed:
            live.doomed = True
            self._poke_children(live)

    def drop(self, live: Live) -> None:
        """It ended; the last child to leave queues its parent."""
        if self._listeners:
            self.tell(live.id)
        self._kept_back.discard(live.id)
        if self._live.pop(live.id, None) is not None:
            self._locked.pop(live.id, None)
            alike = self._named[live.name]
            alike.discard(live.id)
            self._ids.discard()
            self._ids_of[live.name].discard()
            if not alike:
                del self._named[live.name], self._ids_of[live.name]
        self._unlist(live)
        if self.gate is not None:
            self.gate.left(live.id)
        if live.entry.locks or live.parent:
            self._queue.release(live.id)
        if live.bound and (others := self._bound.get(live.starter)) is not None:
            others.discard(live.id)
        for id in sorted(self._bound.pop(live.id, ())):
            if (left := self._live.get(id)) is not None:
                left.orphan = True
                self.enqueue(left)
        if live.tells:
            self.signal(inbox.done_event(live.tells))
        parent = self._live.get(live.parent)
        if parent is not None:
            parent.children -= {live.id}
            if not parent.children:
                self.enqueue(parent, front=True)

    # ---------------------------------------------------------------------- waiting and waking
    def place(self, live: Live, record: Record) -> None:
        """Queue it if it may run, else remember what wakes it."""
        if live.children:
            if live.doomed:
                self._poke_children(live)
        elif live.orphan and self.fails(live):
            self.enqueue(live)
        elif record.trying is not None:
            self._due.add(record.trying.due_ms, record.id)
            if live.deadline_ms:
                self._mind(live)
        elif record.state is not State.WAITING or record.waits_for or live.wake:
            self.enqueue(live)
        else:
            if record.due_ms and not live.begun and record.due_ms <= self._clock.now_ms():
                self.enqueue(live)  # at once: its place in its queue counts
            elif record.due_ms:
                self._due.add(record.due_ms, record.id)
            if record.event:
                live.event = record.event
                for event in events_of(record.event):
                    if self.row_watch is not None and event not in self._waiting:
                        self.row_watch.begin(event)
                    self._waiting.setdefault(event, set()).add(record.id)
        self._slim(live)

    def wake(self, live: Live, why: str) -> None:
        live.wake = why
        self.enqueue(live)

    def ripe(self, live: Live, record: Record) -> bool:
        """Whether a record that waits may run now; then `live.wake` says why."""
        why = core.ripe(record, live.wake, self._clock.now_ms())
        if why is not None:
            live.wake = why
        return why is not None

    def signal(self, event: str) -> None:
        """Wake everything that is suspended on `event`, or is about to be."""
        self.signals += 1
        self._signalled[event] = self.signals
        self._signalled.move_to_end(event)
        if len(self._signalled) > _EVENTS_REMEMBERED:
            self._forgotten = self._signalled.popitem(last=False)[1]
        waiting = self._waiting.pop(event, ())
        if waiting and self.row_watch is not None:
            self.row_watch.end(event)
        for id in sorted(waiting):
            live = self._live.get(id)
            if live is not None:
                self._unlist(live)
                if not live.wake:
                    self.wake(live, "event")

    @contextmanager
    def listening(self, id: int) -> Iterator[asyncio.Future[None]]:
        """What is done once something of this procedure has been stored, or it has ended, from now
        on: who looks inside of it, and then waits, misses nothing.
        """
        listener: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listeners.setdefault(id, []).append(listener)
        try:
            yield listener
        finally:
            others = self._listeners.get(id)
            if others is not None and listener in others:
                others.remove(listener)
                if not others:
                    del self._listeners[id]

    def tell(self, id: int) -> None:
        for listener in self._listeners.pop(id, ()):
            if not listener.done():
                listener.set_result(None)

    def tell_all(self) -> None:
        """Nobody is told anything any more: let those who wait look who is master now."""
        for id in list(self._listeners):
            self.tell(id)

    def wake_waiting(self) -> None:
        """Some signal may be lost: wake everything that waits for an event of which nothing is
        kept.
        """
        for event, ids in list(self._waiting.items()):
            for id in sorted(ids):
                live = self._live.get(id)
                if live is not None and not live.wake and not self._kept(live, event):
                    self.wake(live, RESTART)

    def doubt(self, live: Live, record: Record) -> None:
        """To be said before `place` of one that may have missed what it waits for: a restart, or a
        report that was lost. If such things are kept it is looked for them, and their absence is
        no reason to run a step; else its step looks.
        """
        if record.state is not State.WAITING or not record.event or live.wake or record.trying:
            return
        if 0 < record.due_ms <= self._clock.now_ms():
            return  # it runs anyway
        events = events_of(record.event)
        if self.look is not None and all(self._kept(live, event) for event in events):
            for event in events:
                self.look(live, event)
        else:
            live.wake = RESTART

    def _kept(self, live: Live, event: str) -> bool:
        return self.look is not None and inbox.kept(live.id, event) is not None

    def found(self, live: Live, event: str) -> None:
        """What it waits for is there."""
        if self._live.get(live.id) is live and event in events_of(live.event) and not live.wake:
            self.wake(live, "event")

    def pause_left_ms(self, live: Live) -> int:
        """How long it still pauses; 0 = not at all."""
        return max(0, live.retry_ms - self._elapsed.now_ms()) if live.retry_ms else 0

    def waits_in(self, pool: str) -> bool:
        """Whether `take` may have something of this pool."""
        return self._queue.waiting(pool)

    def order_in(self, pool: str) -> Place | None:
        """When it is this pool's turn to be taken from, compared with others; None: it has nothing
        that may run.
        """
        return self._queue.order(pool)

    def missed(self, live: Live, event: str, since: int) -> None:
        """Wake it if `event`, or one of them, was signalled while the step that suspends on it was
        under way.
        """
        last = max(self._signalled.get(one, 0) for one in events_of(event))
        if last > since or self._forgotten > since:
            self.wake(live, "event")

    def pause(self, live: Live, error: Failure, ms_max: int) -> None:
        """Run its step again after a while: doubled each time, half of it by chance."""
        live.tries += 1
        pause = min(ms_max, limits.PROCEDURE_RETRY_MS_FIRST << min(live.tries - 1, 20))
        self.rest(live, error, pause)

    def rest(self, live: Live, error: Failure, pause: int) -> None:
        """Queue it after `pause` ms, half of them by chance; `error` is shown as the reason."""
        self.retries += 1
        live.retry = error
        pause_ms = max(1, int(pause * (0.5 + self._rng.random() / 2)))
        live.retry_ms = self._elapsed.now_ms() + pause_ms
        self._pauses.add(live.retry_ms, live.id)
        if live.deadline_ms:
            self._mind(live)

    # ------------------------------------------------------------------------------ the queue
    def enqueue(self, live: Live, *, front: bool = False) -> None:
        """At the tail (or front) of its queue, unless it is there already. One that waits for locks
        stays where it is, unless it is to fail: that needs none.
        """
        if live.deadline_ms:
            self._mind(live)
        if self.pause_over(live) and not live.worker:  # else its worker gives it back
            self._kept_back.add(live.id)
            return
        if not live.begun and self._limited(live) and not self.fails(live):
            assert self.gate is not None
            key = "" if live.key and self._in_family(live) else live.key
            if not self.gate.enter(live.id, live.limits, live.entry.priority, key, live.since_ms):
                return
            live.begun = True
        if live.lane and self.offer is not None:
            self.offer(live)
        else:
            self.push(live, front=front)

    def pause_over(self, live: Live) -> str:
        """What keeps its steps from running (pools/pauses.py); "" = nothing."""
        if self.pauses is None or not (why := self.pauses.over(live.id, live.limits)):
            return ""
        return "" if live.rolling or live.doomed or self.fails(live) else why

    def step_aside(self, ids: Iterable[int]) -> None:
        """Of these who wait at the gate and are paused wait aside: they take nobody's place."""
        for id in ids:
            live = self._live.get(id)
            if live is not None and not live.begun and self.pause_over(live):
                assert self.gate is not None
                self.gate.left(id)
                self._kept_back.add(id)

    def go_on(self) -> None:
        """Something is paused no more."""
        for id in sorted(self._kept_back):
            live = self._live.get(id)
            if live is None or not self.pause_over(live):
                self._kept_back.discard(id)
                if live is not None:
                    self.enqueue(live)

    def push(self, live: Live, *, front: bool = False) -> None:
        """`enqueue` where the scheduler decides."""
        entry = live.entry
        if entry.locks and self.fails(live):
            if live.queued and not self._queue.blocked(live.id):
                return
            entry = replace(entry, locks=())
        elif live.queued:
            return
        live.queued = True
        self._queue.push(entry, front=front)
        self._ready(entry.pool)

    def fails(self, live: Live) -> bool:
        """Whether it is to fail for what happened outside of it."""
        if live.rolling or live.final:
            return False
        parent = self._live.get(live.parent)
        if live.orphan or (parent is not None and parent.doomed):
            return True
        return 0 < live.deadline_ms <= self._clock.now_ms()

    def _ready(self, pool: str) -> None:
        """Somebody of this pool may run."""
        if pool:
            if self.lane_ready is not None:
                self.lane_ready(pool)
            return
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return

    def take(self, pool: str = "") -> Live | None:
        """The next one to run, None = nothing to do. It has its locks, or `barred` says why not."""
        while (id := self._queue.pop(pool)) is not None:
            live = self._live.get(id)
            if live is None:
                continue
            live.queued = False
            if not self.pause_over(live):
                return live
            if live.entry.locks and not live.granted:
                self._queue.withdraw(id)  # others need not wait for it
            self._kept_back.add(id)
        return None

    # ---------------------------------------------------------------------------- locks
    def barred(self, live: Live) -> str:
        """Why it may not go on: "" it may; "wait": it has to queue up for its locks (again); else
        the circle that waiting would close.
        """
        if not live.entry.locks or self._queue.holds(live.id):
            return ""
        circle = self._queue.circle(live.id)
        return circle_text(circle) if circle else "wait"

    def blocked(self, live: Live) -> list[Link]:
        """What it waits for, if it waits for locks."""
        return self._queue.blocked(live.id) if live.queued and live.entry.locks else []

    def grab(self, record: Record) -> bool:
        """Take the locks of a procedure that is not here yet, if that is possible now."""
        if not record.locks or self.held_up(record):
            return False
        return self._queue.grab(entry_of(record))

    def guarded(self, live: Live) -> bool:
        """Whether its beginning counts for a limit: no master that was deposed may commit it."""
        gate = self.gate
        return gate is not None and self._limited(live) and gate.holds_up(live.limits, live.key)

    def held_up(self, record: Record) -> bool:
        """Whether it may have to wait before it begins: for a limit, others of its key, or the end
        of a pause.
        """
        gate = self.gate
        limited = gate is not None and gate.holds_up(limits_of(record), record.key)
        return limited or self.stopped(record)

    def stopped(self, record: Record) -> bool:
        """Whether one that is not here yet is of something that is paused."""
        return self.pauses is not None and bool(self.pauses.over(record.id, limits_of(record)))

    def heir(self, live: Live) -> Live | None:
        """Who can be given the locks of this one with its end; None: nobody waits for just these,
        or there is more to say about who does.
        """
        heir = self._live.get(self._queue.heir(live.id))
        if heir is None or heir.record is None or heir.record.pending or self.fails(heir):
            return None
        if self.pause_over(heir):
            return None
        if heir.granted or heir.lane or heir.parked or heir.retry_ms or heir.doomed:
            return None
        return None if heir.children else heir

    def inherit(self, heir: Live) -> None:
        """The store says that it has its locks, and who had them is gone."""
        self._queue.restore(heir.entry)

    def keep(self, id: int, locks: Locks) -> None:
        """One that cannot be run holds these locks."""
        self._queue.restore(Entry(id, 0, locks))

    def let_go(self, id: int) -> None:
        """Take its locks away; it lives on, or never came."""
        self._queue.withdraw(id)

    def holders(self, resource: str) -> dict[int, str]:
        return self._queue.holders(resource)

    # ---------------------------------------------------------------------------- workers
    async def idle(self) -> None:
        """Wait until there may be something to take, or until `dismiss`."""
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        await idle

    def dismiss(self) -> None:
        """Let everybody who is idle look around."""
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)

    # ------------------------------------------------------------------------------ details
    def _limited(self, live: Live) -> bool:
        return self.gate is not None and (self.gate.active or bool(live.key))

    def _in_family(self, live: Live) -> bool:
        """Whether one that it is a child of has the same key of the same queue: that waits for it,
        and must not be waited for.
        """
        parent = self._live.get(live.parent)
        while parent is not None:
            if parent.key == live.key and parent.limits[0] == live.limits[0]:
                return True
            parent = self._live.get(parent.parent)
        return False

    def _mind(self, live: Live) -> None:
        """It is here, and may have to fail before anybody runs it. (Of a step that is under way,
        whoever runs it sees to its deadline: most steps end long before, and need no timer.)
        """
        if live.deadline_ms != live.minded_ms:
            live.minded_ms = live.deadline_ms
            self._due.add(live.deadline_ms, live.id)

    def _at_due(self, id: int) -> None:
        """Some time has come: a delay, a timeout. Its turn finds out which."""
        live = self._live.get(id)
        if live is None:
            return
        early = not live.begun and self._clock.now_ms() < live.since_ms
        if early and not self.fails(live):
            self._due.add(live.since_ms, id)  # it was put off
        else:
            pausing = live.retry_ms > self._elapsed.now_ms()
            if not pausing or 0 < live.deadline_ms <= self._clock.now_ms():
                self.enqueue(live)

    def _at_pause(self, id: int) -> None:
        live = self._live.get(id)
        if live is not None and 0 < live.retry_ms <= self._elapsed.now_ms():
            self.enqueue(live)

    def _poke_children(self, live: Live) -> None:
        for id in sorted(live.children):
            self.enqueue(self._live[id])

    def _unlist(self, live: Live) -> None:
        for event in events_of(live.event):
            others = self._waiting.get(event)
            if others is not None:
                others.discard(live.id)
                if not others:
                    del self._waiting[event]
                    if self.row_watch is not None:
                        self.row_watch.end(event)
        live.event = ""

    @staticmethod
    def _slim(live: Live) -> None:
        if live.record is not None and not small(live.record):
            live.needs = needs(live.record)
            live.record = None


def entry_of(record: Record) -> Entry:
    """A procedure as the scheduler sees it. Without a queue its type is one, as for limits."""
    queue = queue_of(record.locks) or record.queue or intern(record.name)
    return Entry(record.id, record.parent, record.locks, record.lane, record.priority, None, queue)


def limits_of(record: Record) -> tuple[str, ...]:
    """Whose limits it obeys before it begins; those of its queue first."""
    keys = (f"queue:{record.queue or record.name}", f"type:{record.name}")
    return (*keys, f"pool:{record.pool}") if record.pool else keys


def small(record: Record) -> bool:
    """Whether a record may be kept in memory; there may be very many."""
    size = len(record.args) + len(record.data) + len(record.result)
    return (
        size <= limits.PROCEDURE_RECORD_CACHED_BYTES_MAX
        and len(record.undo) <= limits.PROCEDURE_HISTORY_INLINE_MAX
    )


def brief(record: Record) -> Record:
    """Enough of it for `Roster.place`."""
    return replace(record, args=b"", data=b"", result=b"", undo=(), history=(), rounds=())


class _Monotonic:
    """A clock for times that nobody keeps: it is never set."""

    def __init__(self, timers: Timers) -> None:
        self.monotonic = timers.monotonic

    def now_ms(self) -> int:
        return int(self.monotonic() * 1000)

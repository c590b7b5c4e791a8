"""Locks for code outside of procedures (K9): one holds the lock, a heartbeat keeps it alive.

    PROC_SUBMIT kvorum.lock {resource, exclusive, ttl_ms, owner, session}  → id
    LOCK_BEAT  id, wait_ms   → state, token     "waiting" | "held" | "ended"; answers when that
                                                changes, or in time. The caller is alive
    LOCK_END   id            → true             give it back, or wait for it no more

The lock stands until LOCK_END, or until nobody has sent a heartbeat for ttl_ms by the clock of the
master (which is never set). A new master gives everybody ttl_ms anew, for it cannot know who was
heard last; so heartbeats cost nothing durable, and a lock survives its master. Who waits sends
heartbeats, too: a lock is never given to somebody who has gone.

Several locks with one `session` are of somebody who holds some while waiting for others (SQL's
advisory locks, docs/decisions/1066). Such can wait for each other in a circle; who is about to
close one is refused (DEADLOCK), at once, for all that holds and waits is known here. Of a new
master, as soon as it has heard of all of them again.

Whoever holds a lock must stop by himself when he could not send a heartbeat for ttl_ms; the fencing
token is for those who do not notice. A lock that was stolen ends, and the heartbeat says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, NotFound, Refused, TxnAborted
from kv.base.node_methods import Methods
from kv.base.ports import Timers
from kv.base.wire_row import WireRow
from procedures.engine import plain_data
from procedures.engine.context import StepContext
from procedures.engine.core import STOLEN
from procedures.engine.procedure import Lock, Outcome, done, exclusive, shared, suspend
from procedures.engine.records import Record
from procedures.engine.registry import procedure, step
from procedures.engine.resources import check_resource
from procedures.verbs import LOCK_BEAT, LOCK_END
from txn.intents.deadlock import DEADLOCK

LOCK: Final = "kvorum.lock"
WAITING, HELD, ENDED = "waiting", "held", "ended"
_FIELDS: Final = frozenset({"resource", "exclusive", "ttl_ms", "owner", "session"})
_RELEASE_MS: Final = 5_000
_POLL_MS: Final = 1_000  # a lock may be lost while somebody waits for news of it


class Keeper:
    """What the master knows of the holders of one reign: when it heard of them. Not durable."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._heard: dict[int, float] = {}
        self._released: set[int] = set()
        self._news: dict[int, asyncio.Event] = {}
        self._sessions: dict[int, str] = {}  # of locks that were heard of and have one …
        self._waiting: dict[str, set[int]] = {}  # … and those that wait, by session

    def clear(self) -> None:
        """A reign begins: what was heard before it says nothing."""
        self._heard.clear()
        self._released.clear()
        self._sessions.clear()
        self._waiting.clear()

    def heard_of(self, id: int, session: str, *, waits: bool) -> None:
        """A lock of a session."""
        self._sessions[id] = session
        if waits:
            self._waiting.setdefault(session, set()).add(id)
        else:
            self._waits_no_more(id)

    def circle(self, id: int, in_the_way: Callable[[int], Iterable[int]]) -> list[int]:
        """The locks that wait in a circle of sessions through this one, each for one of the next
        one's; empty: there is none. `in_the_way`: whom one that waits waits for.
        """
        mine = self._sessions[id]
        came: dict[int, int] = {id: 0}
        todo = [id]
        while todo:
            waiter = todo.pop()
            for other in in_the_way(waiter):
                session = self._sessions.get(other, "")
                if session == mine:
                    path = [waiter]
                    while came[path[-1]]:
                        path.append(came[path[-1]])
                    return path[::-1]
                for one in sorted(self._waiting.get(session, ())):
                    if one not in came:
                        came[one] = waiter
                        todo.append(one)
        return []

    def _waits_no_more(self, id: int) -> None:
        session = self._sessions.get(id, "")
        waiting = self._waiting.get(session)
        if waiting is not None:
            waiting.discard(id)
            if not waiting:
                del self._waiting[session]

    def beat(self, id: int) -> None:
        self._heard[id] = self._timers.monotonic()

    def left_ms(self, id: int, ttl_ms: int) -> int:
        """How long it lives without a heartbeat; one that was never heard of counts from now."""
        if id in self._released:
            return 0
        now = self._timers.monotonic()
        return ttl_ms - int((now - self._heard.setdefault(id, now)) * 1000)

    def release(self, id: int) -> None:
        self._released.add(id)

    def released(self, id: int) -> bool:
        return id in self._released

    def tell(self, id: int) -> None:
        """It has its lock now, or has ended."""
        news = self._news.pop(id, None)
        if news is not None:
            news.set()

    def forget(self, id: int) -> None:
        self._heard.pop(id, None)
        self._released.discard(id)
        self._waits_no_more(id)
        self._sessions.pop(id, None)
        self.tell(id)

    async def news(self, id: int, wait_ms: int) -> None:
        """Wait for `tell`."""
        event = self._news.setdefault(id, asyncio.Event())
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await event.wait()
        except TimeoutError:
            pass


def _locks(args: object) -> list[Lock]:
    """Raises InvalidArgument, TooLarge."""
    if not isinstance(args, Mapping) or not set(args) <= _FIELDS:
        raise InvalidArgument(
            f"the arguments of {LOCK} are resource, exclusive, ttl_ms and owner, got {args!r:.80}"
        )
    check_resource(args.get("resource"), LOCK)
    ttl_ms, most = args.get("ttl_ms"), limits.LOCK_TTL_MS_MAX
    if type(ttl_ms) is not int or not limits.LOCK_TTL_MS_MIN <= ttl_ms <= most:
        raise InvalidArgument(
            f"ttl_ms must be {limits.LOCK_TTL_MS_MIN} to {most}, got {ttl_ms!r:.40}"
        )
    if type(args.get("exclusive")) is not bool:
        raise InvalidArgument(f"exclusive must be a boolean, got {args.get('exclusive')!r:.40}")
    session, most = args.get("session", ""), limits.NAME_CHARS_MAX
    if not isinstance(session, str) or len(session) > most:
        raise InvalidArgument(f"session must be a text of up to {most} characters")
    return [(exclusive if args["exclusive"] else shared)(args["resource"])]


@procedure(LOCK, locks=_locks, retention_ms=limits.LOCK_RETENTION_MS)
class LockProcedure:
    """One step, again and again, while there are heartbeats."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    @step(first=True)
    async def hold(self, ctx: StepContext) -> Outcome:
        token = ctx.fence(ctx.args["resource"])
        why = ""
        if ctx.state.setdefault("token", token) != token:
            why = "stolen"  # and granted again: to nobody who knows of it
        elif self._keeper.released(ctx.id):
            why = "released"
        elif (left_ms := self._keeper.left_ms(ctx.id, ctx.args["ttl_ms"])) <= 0:
            why = "expired"
        else:
            self._keeper.tell(ctx.id)
            return suspend(event=event_of(ctx.id), timeout_ms=left_ms, then="hold")
        self._keeper.forget(ctx.id)
        return done({"ended": why})


def event_of(id: int) -> str:
    """What wakes the procedure early: its holder gives the lock back."""
    return f"{LOCK}/{id}"


class Locks(Protocol):
    """What the service needs of an executor."""

    async def find(self, id: int) -> Record: ...

    async def wait(self, id: int, wait_ms: int) -> Record: ...

    async def abort(self, id: int, reason: str) -> None: ...

    def signal(self, event: str) -> None: ...

    def in_the_way(self, id: int) -> list[int]: ...


class LockService:
    """LOCK_BEAT and LOCK_END for one executor."""

    def __init__(self, executor: Locks, keeper: Keeper, timers: Timers) -> None:
        self._executor, self._keeper, self._timers = executor, keeper, timers

    def register(self, dispatcher: Methods) -> None:
        async def beat(_caller: object, args: WireRow) -> list[object]:
            return list(await self.beat(*args))

        async def end(_caller: object, args: WireRow) -> list[Any]:
            await self.end(args[0])
            return [True]

        dispatcher.register(LOCK_BEAT, beat)
        dispatcher.register(LOCK_END, end)

    async def beat(self, id: int, wait_ms: int) -> tuple[str, int]:
        """State and fencing token (0 unless held). Raises NotFound (PROCEDURE_NOT_FOUND), Refused
        (NOT_A_LOCK), TxnAborted (DEADLOCK): it waits no more.
        """
        until = self._timers.monotonic() + min(wait_ms, limits.WAIT_MS_MAX) / 1000
        while True:
            record = await self._lock(id)
            if record.ended:
                self._keeper.forget(id)
                return ENDED, 0
            if self._keeper.released(id):
                return ENDED, 0
            if any(entry.outcome.startswith(STOLEN) for entry in record.history):
                await self._end_quietly(id, "its lock was stolen")
                return ENDED, 0
            self._keeper.beat(id)
            if session := plain_data.decode(record.args).get("session"):
                self._keeper.heard_of(id, session, waits=not record.grant)
            if record.grant:
                return HELD, record.grant
            if session:
                await self._check_circle(id)
            left_ms = int((until - self._timers.monotonic()) * 1000)
            if left_ms <= 0:
                return WAITING, 0
            await self._keeper.news(id, min(left_ms, _POLL_MS))

    async def _check_circle(self, id: int) -> None:
        """Raises TxnAborted (DEADLOCK). It waits no more before anything else is awaited: others of
        the circle who look meanwhile would fall, too.
        """
        circle = self._keeper.circle(id, self._executor.in_the_way)
        if not circle:
            return
        self._keeper.forget(id)
        parts = []
        for one in circle:
            try:
                record = await self._executor.find(one)
            except NotFound:  # it has just ended: it is not named
                continue
            resource = ", ".join(name for _, name in record.locks)
            parts.append(f"{record.owner} waits for {resource}")
        await self._end_quietly(id, "it would have waited in a circle")
        raise TxnAborted(
            "locks are waited for in a circle: "
            + ", which is held by one of which ".join(parts)
            + ", which is held by the first. Give back what you hold, then try again",
            code=DEADLOCK,
            details={"reason": "deadlock"},
        )

    async def end(self, id: int) -> None:
        """Give it back. When this returns, others have it or may have it. Fine for one that has
        ended. Raises NotFound, Refused (NOT_A_LOCK).
        """
        record = await self._lock(id)
        if record.ended:
            return
        self._keeper.release(id)
        if not record.grant:
            await self._end_quietly(id, "nobody waits for it any more")
        self._executor.signal(event_of(id))
        if (await self._executor.wait(id, _RELEASE_MS)).ended:
            self._keeper.forget(id)

    async def _end_quietly(self, id: int, why: str) -> None:
        try:
            await self._executor.abort(id, why)
        except KvorumError:
            return  # it has just ended, or gets its lock and looks then

    async def _lock(self, id: int) -> Record:
        record = await self._executor.find(id)
        if record.name != LOCK:
            raise Refused(
                f"procedure {id} is a {record.name}, not a lock: abort it instead",
                code="NOT_A_LOCK",
            )
        return record

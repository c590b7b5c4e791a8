"""What to do about an intent of another transaction (Percolator section 2.2, pushing after
CockroachDB).

A reader never waits for a living writer. It asks the status record at the anchor and, in the same
message, pushes the writer's commit timestamp above its own: whatever comes of the writer, it is not
part of the reader's snapshot, so the reader may step over the intent (`ignore`). A writer waits,
since two writers can not both be right: in a queue at the partition (kv/partition/waits.py), which
answers KEY_LOCKED only when its time is over. Where it was refused without such a wait, it looks
again at growing distances, and the first look after the holder's ttl finds it rolled back.

Outcomes are final and timestamps only rise, so what was learned once stays true; a bounded cache of
it saves questions. Crossing commits wait for each other until one of them is named a victim
(txn/intents/deadlock.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from kv.base.errors import DeadlineExceeded, KeyLocked, KvorumError, Moved, Unavailable
from kv.base.intents import Abandoned, TxnId, start_of, txn_id
from kv.base.limits import (
    LOCK_WAIT_MS_FIRST,
    LOCK_WAIT_MS_MAX,
    OUTCOMES_CACHED_MAX,
    RECOVERY_GRACE_MS,
    RESOLVES_IN_FLIGHT_MAX,
    THROUGH_MS,
    THROUGH_TXNS_MAX,
)
from kv.base.methods import ABORTED, CHECK, COMMITTED, PENDING, RESOLVE, ROLLBACK, STAGING
from kv.base.ports import Rng, Timers
from kv.base.waits import WAITED
from kv.client.calls import NO_PARTITION
from txn.intents.recovery import recover
from txn.shared.deadlines import Background, Backoff, Deadline
from txn.shared.grouping import by_partition
from txn.shared.ports import Kv

_CUTS_MAX = 16  # times that the keys of one resolve are grouped anew
_RESOLVE_BUDGET_MS = 2_000  # of one background resolve; lost ones are done by the next to come
_LOOKS_BEFORE_RECOVERY = 2  # of a reader at a parallel commit: its flip is usually under way


class Outcome(Struct, frozen=True):
    """What is known of a transaction: final, or (PENDING) that it will not commit below
    `min_commit_ts`.
    """

    status: int
    commit_ts: int = 0
    min_commit_ts: int = 0

    def invisible_at(self, read_ts: int) -> bool:
        """Whether a snapshot at `read_ts` certainly does not contain it."""
        if self.status == COMMITTED:
            return self.commit_ts > read_ts
        return self.status == ABORTED or self.min_commit_ts > read_ts


class StepOver(NamedTuple):
    """A transaction whose intents a read may ignore. Of a finished one they are being removed: the
    next request should not ignore it, so that it meets, and removes, the rest of them.
    """

    id: TxnId
    finished: bool


class Resolver:
    """What one client knows of other transactions, and does about their intents."""

    def __init__(self, kv: Kv, timers: Timers, rng: Rng, background: Background) -> None:
        self._kv = kv
        self._background = background
        self._backoff = Backoff(timers, rng, first_ms=LOCK_WAIT_MS_FIRST, max_ms=LOCK_WAIT_MS_MAX)
        self._known: dict[TxnId, Outcome] = {}  # oldest first
        # this client's commits that were acknowledged and whose flip is under way
        self.flipping: dict[int, asyncio.Future[None]] = {}
        self._timers = timers
        # committed loads that scans met lately: their versions, and when that will be long ago
        self._through: dict[TxnId, tuple[int, float]] = {}
        self.pages_through = 0  # that scans asked for while there were such
        # whether the table of an anchor was dropped; None: it is not known here
        self.gone: Callable[[bytes], Awaitable[bool]] | None = None
        self.owners: dict[int, str] = {}  # of transactions that were asked about, for messages

    def learn(self, id_: TxnId, outcome: Outcome) -> None:
        """Remember what is true for ever. A late answer does not replace a final one."""
        old = self._known.pop(id_, outcome)
        if outcome.status == PENDING and old.status != PENDING:
            outcome = old
        self._known[id_] = outcome
        if len(self._known) > OUTCOMES_CACHED_MAX:
            del self._known[next(iter(self._known))]

    async def met_by_read(
        self,
        met: KeyLocked,
        read_ts: int,
        attempt: int,
        deadline: Deadline,
        *,
        reads_through: bool = False,
    ) -> StepOver | None:
        """A read at `read_ts` met an intent: step over it, or (None) it is gone, or may be read
        through (`loads`), if the read `reads_through` chunks: read again.

        Raises `met`, with what is known of the blocker, when the deadline passes first.
        """
        keys, start_ts, id_ = _keys(met), met.details["txn"], _id(met)
        if deadline.passed:
            raise self._blocked(met, "it was still there at the deadline")
        await self._flipped(start_ts, deadline)
        outcome = self._known.get(id_)
        if outcome is None or (outcome.status == PENDING and not outcome.invisible_at(read_ts)):
            looks = attempt >= _LOOKS_BEFORE_RECOVERY
            outcome = await self._ask(met, push_above=read_ts, deadline=deadline, recovers=looks)
        if outcome.invisible_at(read_ts):
            if outcome.status != PENDING and len(self._background) < RESOLVES_IN_FLIGHT_MAX:
                self._background.spawn(
                    self._resolve_quietly(start_ts, outcome, keys, _user(met)),
                    name=f"resolve-{start_ts}",
                )
            return StepOver(id_, outcome.status != PENDING)
        if outcome.status == COMMITTED:
            if reads_through and met.details.get("chunk") and id_ not in self._through:
                self.learn_load(id_, outcome.commit_ts)
                return None
            await self._resolve(start_ts, outcome, keys, _user(met), deadline.budget_ms())
            return None
        await self._wait(met, attempt, deadline)
        return None

    def learn_load(self, id_: TxnId, commit_ts: int) -> None:
        """Its chunks of intents may be read through (kv/mvcc/scan_through_intents.py), until they
        are resolved: scans that look for them after that cost more. Whose load it is knows when
        (`forget_load`); others try without it now and then, and learn of it again where there are
        some left.
        """
        self._through[id_] = commit_ts, self._timers.monotonic() + THROUGH_MS / 1000
        if len(self._through) > THROUGH_TXNS_MAX:
            del self._through[next(iter(self._through))]

    def forget_load(self, start_ts: int) -> None:
        """One of this client is resolved."""
        for id_ in [one for one in self._through if start_of(one) == start_ts]:
            del self._through[id_]

    def loads(self, read_ts: int) -> list[list[TxnId]]:
        """Those whose chunks a scan at this snapshot may read through, with their versions."""
        if not self._through:
            return []
        self.pages_through += 1
        now = self._timers.monotonic()
        for id_ in [one for one, (_, until) in self._through.items() if until <= now]:
            del self._through[id_]
        known = self._through.items()
        return [[one, version] for one, (version, _) in known if version <= read_ts]

    async def met_beside(
        self, met: KeyLocked, read_ts: int, deadline: Deadline
    ) -> Sequence[StepOver]:
        """The other transactions that a read met at once: those to step over. What is not known
        of one now is found out when it is met again.
        """
        others = met.details.pop("others", ())
        if not others:
            return ()
        found = await asyncio.gather(
            *(self._beside(Abandoned(*other), read_ts, deadline) for other in others)
        )
        return [over for over in found if over is not None]

    async def _beside(self, other: Abandoned, read_ts: int, deadline: Deadline) -> StepOver | None:
        start_ts, id_ = other.start_ts, txn_id(other.start_ts, other.user or "")
        try:
            outcome = self._known.get(id_)
            if outcome is None or (outcome.status == PENDING and not outcome.invisible_at(read_ts)):
                outcome, _ = await self.check(
                    start_ts,
                    other.anchor,
                    ttl_ms=other.ttl_ms,
                    push_above=read_ts,
                    budget_ms=deadline.budget_ms(),
                    recovers=False,
                    met=other.keys[0],
                    user=other.user,
                )
            if outcome.status != PENDING and len(self._background) < RESOLVES_IN_FLIGHT_MAX:
                resolving = self._resolve_quietly(start_ts, outcome, other.keys, other.user)
                if outcome.invisible_at(read_ts):
                    self._background.spawn(resolving, name=f"resolve-{start_ts}")
                else:
                    await resolving
        except KvorumError:
            return None
        over = outcome.invisible_at(read_ts)
        return StepOver(id_, outcome.status != PENDING) if over else None

    async def met_by_write(self, met: KeyLocked, attempt: int, deadline: Deadline) -> None:
        """A write met an intent: returns when it is worth trying again.

        Raises KeyLocked naming the blocker at the deadline, or if the partition had it wait as long
        as it was to (`waited_ms`).
        """
        if WAITED in met.details:
            raise met
        keys, start_ts = _keys(met), met.details["txn"]
        await self._flipped(start_ts, deadline)
        outcome = self._known.get(_id(met))
        if outcome is None or outcome.status == PENDING:
            looks = attempt >= _LOOKS_BEFORE_RECOVERY
            outcome = await self._ask(met, push_above=0, deadline=deadline, recovers=looks)
        if outcome.status != PENDING:
            await self._resolve(start_ts, outcome, keys, _user(met), deadline.budget_ms())
            return
        await self._wait(met, attempt, deadline)

    async def lives(self, met: KeyLocked, deadline: Deadline) -> bool:
        """Whether the transaction that was met is still to be decided."""
        outcome = self._known.get(_id(met))
        if outcome is None or outcome.status == PENDING:
            outcome = await self._ask(met, push_above=0, deadline=deadline, recovers=True)
        return outcome.status == PENDING

    async def finish(self, intents: Abandoned) -> int:
        """Intents that nobody met: remove them if their transaction is over or is dead now; how
        many.
        """
        start_ts = intents.start_ts
        outcome = self._known.get(txn_id(start_ts, intents.user or ""))
        if outcome is None or outcome.status == PENDING:
            try:
                outcome, _ = await self.check(
                    start_ts,
                    intents.anchor,
                    ttl_ms=intents.ttl_ms,
                    budget_ms=_RESOLVE_BUDGET_MS,
                    met=intents.keys[0],
                    user=intents.user,
                )
            except DeadlineExceeded:  # a node that is down may have the anchor, or nobody
                if not await self.dropped(intents.anchor):
                    raise
                outcome = Outcome(ABORTED)
        if outcome.status == PENDING:
            return 0
        return await self._resolve(
            start_ts, outcome, intents.keys, intents.user, _RESOLVE_BUDGET_MS
        )

    async def end(self, intents: Abandoned, *, budget_ms: int) -> None:
        """Roll a transaction back unless it has committed, and remove these intents of it. One that
        may be committed by its intents alone is left until that is certain: ask again.
        """
        start_ts, anchor = intents.start_ts, intents.anchor
        await self._kv.call(ROLLBACK, anchor, anchor, start_ts, budget_ms=budget_ms)
        outcome, _ = await self.check(  # it says whose record that was
            start_ts,
            anchor,
            ttl_ms=intents.ttl_ms,
            budget_ms=budget_ms,
            met=intents.keys[0],
            user=intents.user,
        )
        if outcome.status != PENDING:
            await self._resolve(start_ts, outcome, intents.keys, intents.user, budget_ms)

    async def decide(self, intents: Abandoned, *, budget_ms: int) -> bool:
        """Whether the record at the anchor says by itself what becomes of the transaction, or will:
        one that may be committed by its intents alone is decided if it is, or if its coordinator
        had time enough. Else ask again.
        """
        start_ts, anchor = intents.start_ts, intents.anchor
        status, _, _, age_ms, *more = await self._kv.call(
            CHECK, anchor, anchor, start_ts, 0, intents.ttl_ms, budget_ms=budget_ms
        )
        if status == STAGING:
            status, _ = await recover(
                self._kv,
                start_ts,
                anchor,
                more[1],
                fence=age_ms >= RECOVERY_GRACE_MS,
                budget_ms=budget_ms,
                dropped=self.dropped,
                user=more[2] if more[2:] else "",
            )
            return bool(status != PENDING)
        return True

    async def pause(self, attempt: int, deadline: Deadline) -> None:
        """Wait before looking again. Raises DeadlineExceeded when there is no time left."""
        if deadline.passed:
            raise DeadlineExceeded(
                "the partitions of these keys were still moving at the deadline; try again"
            )
        await self._backoff.wait(attempt, deadline)

    async def _wait(self, met: KeyLocked, attempt: int, deadline: Deadline) -> None:
        delay_ms = self._backoff.delay_ms(attempt)
        if delay_ms + LOCK_WAIT_MS_FIRST >= deadline.left_ms():
            raise self._blocked(met, "it would still be there at the deadline")
        await self._backoff.sleep(delay_ms)

    async def _flipped(self, start_ts: int, deadline: Deadline) -> None:
        """Wait for the flip of a commit of this very client: the next answer will say so."""
        flipping = self.flipping.get(start_ts)
        if flipping is not None:
            await asyncio.wait([flipping], timeout=deadline.left_ms() / 1000)

    async def _ask(
        self, met: KeyLocked, *, push_above: int, deadline: Deadline, recovers: bool
    ) -> Outcome:
        d = met.details
        try:
            outcome, d["age_ms"] = await self.check(
                d["txn"],
                d["anchor"],
                push_above=push_above,
                ttl_ms=d["ttl_ms"],
                budget_ms=deadline.budget_ms(),
                recovers=recovers,
                met=_keys(met)[0],
                user=_user(met),
            )
        except DeadlineExceeded as error:
            why = "its status could not be learned before the deadline"
            raise self._blocked(met, why) from error
        return outcome

    async def check(
        self,
        start_ts: int,
        anchor: bytes,
        *,
        ttl_ms: int,
        budget_ms: int,
        push_above: int = 0,
        recovers: bool = True,
        met: bytes | None = None,
        user: str | None = None,
    ) -> tuple[Outcome, int]:
        """What the record says, and how long ago its owner was heard of, in ms. `met`: where its
        intent was; empty: nowhere. `user`: whose that is (None: not known).

        A parallel commit is committed here and now if all its intents are there (only if
        `recovers`), and aborted if one is missing and its coordinator had time enough.
        """
        try:
            status, commit_ts, min_commit_ts, age_ms, *more = await self._kv.call(
                CHECK,
                anchor,
                anchor,
                start_ts,
                push_above,
                ttl_ms,
                *_said(met, user),
                budget_ms=budget_ms,
            )
        except Unavailable as error:
            if error.code != NO_PARTITION or not await self.dropped(anchor):
                raise
            if user is not None:
                self.learn(txn_id(start_ts, user), Outcome(ABORTED))
            return Outcome(ABORTED), 0
        self._learn_owner(start_ts, more)
        if status == STAGING:
            status, late = PENDING, age_ms >= RECOVERY_GRACE_MS
            if recovers or late:
                status, commit_ts = await recover(
                    self._kv,
                    start_ts,
                    anchor,
                    more[1],
                    fence=late,
                    budget_ms=budget_ms,
                    dropped=self.dropped,
                    user=more[2] if more[2:] else "",
                )
        outcome = Outcome(status, commit_ts, min_commit_ts)
        if user is not None:
            self.learn(txn_id(start_ts, user), outcome)
        return outcome, int(age_ms)

    async def dropped(self, key: bytes) -> bool:
        """Whether the table of this key certainly was dropped. A record there went with it: nobody
        can say any more what became of its transaction, so that is rolled back
        (kvorum/storage/drop_transactions.py). Raises KvorumError.
        """
        return self.gone is not None and await self.gone(key)

    def _learn_owner(self, start_ts: int, more: Sequence[Any]) -> None:
        """`more`: what CHECK answers after the age; older nodes say no owner."""
        if more and more[0]:
            self.owners[start_ts] = more[0]
            if len(self.owners) > OUTCOMES_CACHED_MAX:
                del self.owners[next(iter(self.owners))]

    async def _resolve(
        self,
        start_ts: int,
        outcome: Outcome,
        keys: Sequence[bytes],
        user: str | None,
        budget_ms: int,
    ) -> int:
        """How many of the intents were still there."""
        return await resolve(
            self._kv, keys, start_ts, outcome.commit_ts, budget_ms=budget_ms, user=user
        )

    async def _resolve_quietly(
        self, start_ts: int, outcome: Outcome, keys: Sequence[bytes], user: str | None
    ) -> None:
        try:
            await self._resolve(start_ts, outcome, keys, user, _RESOLVE_BUDGET_MS)
        except KvorumError:
            return  # the next one who meets it resolves it

    def _blocked(self, met: KeyLocked, why: str) -> KeyLocked:
        """`met` for people: who blocks, since when, and what can be done."""
        d = met.details
        name = self.owners.get(d["txn"])
        owner = f" of {name}" if name else ""
        if name:
            d["owner"] = name
        return KeyLocked(
            f"{d['key']!r:.80} is held by transaction {d['txn']}{owner}, {d['age_ms']} ms old; "
            f"{why}; try again, or abort it (it ends {d['ttl_ms']} ms after its last heartbeat)",
            details=d,
        )


async def resolve(
    kv: Kv,
    keys: Sequence[bytes],
    start_ts: int,
    commit_ts: int,
    *,
    budget_ms: int,
    anchor: bytes | None = None,
    user: str | None = None,
) -> int:
    """End the intents of `start_ts` on keys that were met in one partition, which may have been
    split since (commit_ts 0: remove them); how many were still there. As many requests as their
    sizes and partitions need, `budget_ms` for each. `user`: whose they are, `anchor`:
    where their record is (None: not known).
    """
    said = () if anchor is None and user is None else (anchor, user)
    resolved, cuts = 0, 0
    todo = [list(keys)]
    while todo:
        part = todo.pop()
        try:
            some, left = await kv.call(
                RESOLVE, part[0], start_ts, commit_ts, part, *said, budget_ms=budget_ms
            )
        except Moved:
            cuts += 1
            if cuts > _CUTS_MAX:
                raise
            groups = await by_partition(kv, part, range(len(part)))
            todo += [[part[i] for i in group] for group in groups]
            continue
        resolved += int(some)
        if left:
            todo.append(part)
    return resolved


def _said(met: bytes | None, user: str | None) -> tuple[object, ...]:
    """The last arguments of a CHECK."""
    if user is not None:
        return met, user
    return () if met is None else (met,)


def _id(met: KeyLocked) -> TxnId:
    """Of the transaction that was met."""
    return txn_id(met.details["txn"], _user(met))


def _user(met: KeyLocked) -> str:
    user: str = met.details.get("user", "")
    return user


def _keys(met: KeyLocked) -> Sequence[bytes]:
    """The keys of one partition and transaction that the request met."""
    keys: Sequence[bytes] = met.details.get("keys") or [met.details["key"]]
    return keys

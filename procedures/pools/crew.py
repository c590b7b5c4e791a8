"""The master's side of pools: who is there, who holds which procedure, who is next.

    roster ── offer ──▶ scheduler (a queue per lane) ── deal ──▶ order ──▶ worker
      ▲                                                                      │ runs, commits
      └── moved, placed, paused, ended ◀── report ◀──────────────────────────┘

Giving out and taking back is in assignment.py; here are their comings and goings, what they say,
and what is shown of them.

What makes it safe (docs/decisions/0413):
- a worker commits by the version of the record's row, like everybody. Whoever takes a procedure
  away from a worker first writes the row anew (`_regain`): from then on the other's commit is
  refused. Whether it had committed before is read from the store, never assumed;
- a worker that may hold something has a durable row. A new master gives nothing out before each of
  them has come back and said what it holds, or its lease is over; in the second case everything is
  written anew before it is given out;
- orders and reports arrive once, in order (messages.py), while a reign lasts.

Left out here: a worker that lives and never ends its step keeps it (it is shown as stuck).
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from math import inf
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from kv.base import limits
from kv.base.errors import (
    Busy,
    InvalidArgument,
    KvorumError,
    Refused,
    TooLarge,
    Unavailable,
    from_wire,
)
from kv.base.ops import delete, put
from procedures.engine import attributes, records, search_rows
from procedures.engine.deploys import BY_CODE, in_order
from procedures.engine.deploys import NONE as NO_DEPLOY
from procedures.engine.needs import lacking
from procedures.engine.procedure import BACK
from procedures.engine.records import FORMAT_MORE, Record, lane_of, parts_of, without_needs
from procedures.engine.registry import ProcedureType
from procedures.engine.roster import Live, limits_of
from procedures.engine.store import Stored
from procedures.engine.submission import Admitted
from procedures.pools import inbox, messages, queue_settings, rows, windows
from procedures.pools.assignment import Dealing, Hand, lanes_of, most_free, own_lanes
from procedures.pools.describe import described, remote_type
from procedures.pools.messages import (
    Description,
    Entry,
    Look,
    Looked,
    Order,
    Progress,
    Run,
    Slow,
    Turned,
    Types,
)
from procedures.pools.pauses import words
from procedures.pools.start_limits import NONE, Kept, Limit

log = logging.getLogger(__name__)

_LOOK_S: Final = 0.1
_SWEEP_S: Final = 60.0
_UNTOLD_MAX: Final = 10_000  # procedures whose rows are counted
_AGAIN_S: Final = 0.1
_AWAY_S: Final = 10.0  # a version that nobody has for so long may be passed by an older one
_PASSED: Final = 1  # as if it had been declared long ago


class _Full(NamedTuple):
    """More than may be known of what workers declare; of a user, "" = of all."""

    what: str
    user: str
    limit: int
    actual: int


def _size(one: Description) -> int:
    """Without what the master adds: that may be said later, or anew."""
    return len(messages.encode(structs.replace(one, since_ms=0, user="")))


class Crew(Dealing):
    """The workers of one executor."""

    # ------------------------------------------------------------------------------ life
    async def resume(self) -> None:
        """What the store knows: types, limits, and workers that may still hold something."""
        async for _key, value, _ in rows.every(self._rows, rows.ALL_TYPES):
            known = messages.description(value)
            self._types.learn(remote_type(known))
            self._sizes[known.name, known.version] = known.user, _size(known)
        async for key, value, _ in rows.every(self._rows, rows.ALL_DEPLOYS):
            self._types.deploys[rows.name_in(key)] = messages.deploy(value)
        for declared in self._types.types():
            self._limit_type(declared)
        self.gate.restore({rows.rate_of(key): kept async for key, kept, _ in self._kept_rates()})
        found = {
            rows.name_in(key): queue_settings.stored(value)
            async for key, value, _ in rows.every(self._rows, rows.ALL_QUEUES)
        }
        async for key, value, _ in rows.every(self._rows, rows.ALL_SETTINGS):
            name = rows.name_in(key)
            found[name] = queue_settings.with_more(found.get(name, NONE), value)
        for name, limit in found.items():
            self.gate.limit(name, limit)
        until = self._timers.monotonic() + limits.WORKER_LEASE_MS / 1000
        async for key, value, _ in rows.every(self._rows, rows.ALL_WORKERS):
            name = rows.name_in(key)
            self._expected[name] = (until, messages.entry(value))

    async def run(self) -> None:
        """Look after the leases, until cancelled."""
        swept = self._timers.monotonic()
        while True:
            await asyncio.sleep(_LOOK_S)
            now = self._timers.monotonic()
            if self._sweeping:
                swept = now  # the next one begins a while after its end
            elif now - swept > _SWEEP_S:
                self._sweeping, swept = True, now
                self._spawn(self._sweep())
            if now >= self._care_at:
                self._care_at = inf
                self._spawn(self._versions_left())
            lease = limits.WORKER_LEASE_MS / 1000
            for hand in [h for h in self.hands.values() if now - h.heard > lease]:
                log.warning(
                    "worker %s is silent: its %d procedures go to others", hand.name, len(hand.held)
                )
                self._spawn(self._bury(hand, silent=hand.name))
            missing = [name for name, (until, _) in self._expected.items() if now > until]
            if missing:
                log.warning("workers did not come back: %s", ", ".join(missing[:10]))
                self._doubt()
                for name in missing:
                    del self._expected[name]
                    self._spawn(self._forget(name))
                self.settle()
                self._kick(self._by_lane)

    async def _sweep(self) -> None:
        """Signals and completions of procedures that were forgotten."""
        try:
            async for id in inbox.owners(self._rows):
                if self._roster.get(id) is None and await self._store.load(id) is None:
                    await inbox.forget(self._rows, id)
            pauses = self._roster.pauses
            for id in () if pauses is None else pauses.procedures():
                stored = None if self._roster.get(id) else await self._store.load(id)
                if pauses and not self._roster.get(id) and (not stored or stored.record.ended):
                    await pauses.end(f"procedure:{id}", ())
            now_ms = self._clock.now_ms()
            async for key, (_, _, full_ms), version in self._kept_rates():
                if full_ms < now_ms:
                    await self._rows.write([delete(key, cond=version)])
            lives = self._roster.get
            kept = await windows.sweep(self._rows, now_ms, lambda id: lives(id) is not None)
            self.deduplicated.clear()
            self.deduplicated.update(kept)
            await self._care_for_versions()
        except KvorumError as error:
            log.warning("what forgotten procedures left stays for now: %s", error)
        finally:
            self._sweeping = False

    async def _kept_rates(self) -> AsyncIterator[tuple[bytes, Kept, int]]:
        async for key, value, version in rows.every(self._rows, rows.ALL_RATES):
            yield key, msgspec.msgpack.decode(value, type=Kept), version

    def close(self) -> None:
        """Nobody is given anything any more; whoever waits hears who leads now."""
        self._closed = True
        self.gate.close()
        for hand in self.hands.values():
            if hand.waiting is not None and not hand.waiting.done():
                hand.waiting.set_exception(self._refusal())
        for question in self._questions.values():
            if not question.done():
                question.set_exception(self._refusal())

    @property
    def stuck(self) -> int:
        """Steps that run longer than they may, at workers."""
        return sum(len(hand.slow) for hand in self.hands.values())

    # ------------------------------------------------------------------------------ coming, going
    async def enter(self, name: str, entry: Entry, user: str = "") -> tuple[int, list[int], bytes]:
        """A worker comes, or comes back: its epoch, what it must drop, all types. `user`: who it
        has proved to be; from now on only he speaks for it.
        """
        entry = structs.replace(entry, user=user)
        self._check(name, entry)
        self._coming.append(entry)
        try:
            return await self._let_in(name, entry)
        finally:
            self._coming.remove(entry)

    async def _let_in(self, name: str, entry: Entry) -> tuple[int, list[int], bytes]:
        await self._declare(entry)
        known = self.hands.get(name)
        if known is None or known.entry.pool != entry.pool:
            if known is not None:
                await self._bury(known)
            await self._rows.write([put(rows.worker(name), messages.encode(entry))])
        self._epoch += 1
        hand = Hand(name, entry, self._epoch, self._timers.monotonic())
        back = self._expected.pop(name, None) is not None
        known = self.hands.get(name)
        mine = {} if known is None else known.held
        if known is not None:
            known.wake()
            hand.ids = known.ids
        dropped: list[int] = []
        for id, version in entry.held:
            if id in mine:
                hand.held[id] = mine.pop(id)
                if (live := self._roster.get(id)) and (wanted := parts_of(live.lane)[3]):
                    hand.burdens[id] = wanted
            elif not (back and self._claim(hand, id, version)):
                dropped.append(id)
        self._unlane(known)
        self.hands[name] = hand
        if self._types.deploys:
            self._tell(hand, Types(0, messages.encode([]), self._types.deploys))
        for lane in self._lanes(entry):
            self._by_lane.setdefault(lane, []).append(hand)
        for id in list(mine):  # given out, never arrived
            self._back(id)
        self._watch_versions(entry)
        self.recall_paused()
        self.settle()
        self._unpark(entry)
        self._kick(self._by_lane)
        log.info("worker %s serves pool %s with %d slots", name, entry.pool, entry.slots)
        return hand.epoch, dropped, self._all_types()

    def _check(self, name: str, entry: Entry) -> None:
        hand, (_, row) = self.hands.get(name), self._expected.get(name, (0, None))
        other = hand.entry if hand is not None else row
        mine = (entry.host, entry.pid, entry.user)
        if other is not None and (other.host, other.pid, other.user) != mine:
            raise Refused(  # perhaps it is dead; then its lease ends
                f"the name {name} belongs to process {other.pid} on {other.host or '?'}"
                f"{f' of {other.user!r}' if other.user else ''}; end that one, or take another "
                "name",
                code="NAME_TAKEN",
            )
        if name not in self.hands:
            of_user = sum(one.entry.user == entry.user for one in self.hands.values())
            for actual, limit, whose in (
                (len(self.hands), limits.WORKERS_MAX, ""),
                (of_user if entry.user else 0, limits.WORKERS_OF_USER_MAX, f" of {entry.user!r}"),
            ):
                if actual >= limit:
                    raise Busy(
                        f"{actual} workers{whose} are here, the limit is {limit}",
                        details={"limit": limit, "actual": actual},
                    )
        if not 0 < entry.slots <= limits.WORKER_SLOTS_MAX:
            raise InvalidArgument(
                f"slots must be 1 to {limits.WORKER_SLOTS_MAX}, got {entry.slots}"
            )
        if not 0 < len(entry.types) <= limits.WORKER_TYPES_MAX:
            raise InvalidArgument(
                f"a worker declares 1 to {limits.WORKER_TYPES_MAX} types, got {len(entry.types)}"
            )
        for description in entry.types:
            here = self._types.find(description.name)
            if here is not None and not here.remote:
                advice = (
                    "start the nodes without that module (--procedure-modules), or this worker"
                    if here.origin == description.origin
                    else "give the worker's procedure another name"
                )
                raise Refused(
                    f"procedure {description.name}: the nodes run one of this name themselves "
                    f"({here.origin}; the worker's is {description.origin}); {advice}",
                    code="ALREADY_SERVED",
                )

    async def _declare(self, entry: Entry) -> None:
        """Make its types known for good, so that they can be submitted while nobody serves them."""
        async with self._declaring:
            news = []
            for description in entry.types:
                known = self._types.exact(description.name, description.version)
                since_ms = 0 if known is None or known.since_ms == _PASSED else known.since_ms
                user = (known.user if known is not None else "") or entry.user
                news.append((known, structs.replace(description, since_ms=since_ms, user=user)))
            await self._keep_types(news, entry.user)

    async def _keep_types(
        self, said: Sequence[tuple[ProcedureType | None, Description]], user: str = ""
    ) -> None:
        """Those that say another thing than what is known. `since_ms` 0: it is declared now.
        `user`: who declares them. Raises TooLarge, Refused (TYPES_FULL): nothing is kept.
        """
        news = []
        for known, description in said:
            since_ms = description.since_ms or self._clock.now_ms()
            description = structs.replace(description, since_ms=since_ms)
            description = described(self._types.beside(remote_type(description)), description.pool)
            if known is None or described(known, description.pool) != description:
                news.append(description)
        ops = [put(rows.type_(one.name, one.version), messages.encode(one)) for one in news]
        sizes = {(one.name, one.version): (one.user, _size(one)) for one in news}
        await self._make_room(user, sizes)
        for at in range(0, len(ops), 100):
            await self._rows.write(ops[at : at + 100])
        self._sizes |= sizes
        for description in news:
            declared = remote_type(description)
            self._types.learn(declared)
            self._limit_type(declared)
        if news:
            told = _told(news)
            for hand in self.hands.values():
                self._tell(hand, Types(0, told))

    async def _make_room(self, user: str, sizes: dict[tuple[str, int], tuple[str, int]]) -> None:
        """For descriptions of so many bytes: what nobody needs is forgotten, if there are too many;
        whoever has it declares it when he comes again. What is larger by now than may be stays, and
        does not grow: it was declared before there was a limit. Raises TooLarge, Refused
        (TYPES_FULL).
        """
        for (name, version), (_, size) in sizes.items():
            limit = limits.WORKER_TYPE_BYTES_MAX
            _, had = self._sizes.get((name, version), ("", 0))
            if size > max(limit, had):
                raise TooLarge(
                    f"procedure {name}, version {version}: its description, with all steps and "
                    f"undo methods that this version ever had, has {size} bytes, the limit is "
                    f"{limit}; "
                    "declare fewer or shorter ones, or give it another version",
                    details={"what": "description of a type", "limit": limit, "actual": size},
                )
        if (full := self._full(user, sizes)) is None:
            return
        entries = [*self._coming, *(hand.entry for hand in self.hands.values())]
        entries += [entry for _, entry in self._expected.values()]
        there = {(one.name, one.version) for entry in entries for one in entry.types}
        mine = {key for key, (of, _) in self._sizes.items() if of == full.user or not full.user}
        for name, version in sorted(mine - there - sizes.keys()):
            if version not in self._needed(name):  # now, not when others were forgotten
                await self._forget_type(name, version)
        if (full := self._full(user, sizes)) is not None:
            of_user = f" of {full.user!r}" if full.user else ""
            raise Refused(
                f"{full.actual} {full.what}{of_user} would be known, the limit is {full.limit}, "
                "and all others are served, run or named by settings: declare fewer types, "
                "shorter ones, or fewer versions of them",
                code="TYPES_FULL",
                details={"what": full.what, "limit": full.limit, "actual": full.actual},
            )

    def _full(self, user: str, sizes: dict[tuple[str, int], tuple[str, int]]) -> _Full | None:
        """What there would be too much of, with these, that there is not so much of now. What was
        declared before it was said by whom becomes somebody's, and is no more than before.
        """
        then = self._sizes | sizes
        now = {key: (whose or then[key][0], size) for key, (whose, size) in self._sizes.items()}
        bounds = [("", limits.TYPES_KNOWN_MAX, limits.TYPES_KNOWN_BYTES_MAX)]
        if user:
            bounds.append((user, limits.TYPES_OF_USER_MAX, limits.TYPES_OF_USER_BYTES_MAX))
        for of, *most in bounds:
            before = [size for whose, size in now.values() if whose == of or not of]
            after = [size for whose, size in then.values() if whose == of or not of]
            counted = (len(before), len(after)), (sum(before), sum(after))
            whats = ("types and versions of workers", "bytes of types of workers")
            for what, limit, (had, has) in zip(whats, most, counted, strict=True):
                if has > max(limit, had):
                    return _Full(what, of, limit, has)
        return None

    async def _forget_type(self, name: str, version: int) -> None:
        declared = self._types.exact(name, version)
        self._types.forget(name, version)  # first: nobody submits it while its row goes
        try:
            await self._rows.write([delete(rows.type_(name, version))])
        except BaseException:
            if declared is not None and declared.remote:
                self._types.learn(declared)
            raise
        self._sizes.pop((name, version), None)
        self._away.pop((name, version), None)

    async def _care_for_versions(self) -> None:
        """Of a type with versions by code: the newest that somebody has is the newest; what was
        declared after it, and was left by all for a while, is declared anew when somebody has it
        again. And only the last VERSIONS_BY_CODE_KEPT are kept that nobody needs.
        """
        async with self._declaring:
            if self._expected:
                return  # who may have them has not said so yet
            entries = [*self._coming, *(hand.entry for hand in self.hands.values())]
            there = {(one.name, one.version) for entry in entries for one in entry.types}
            latest = self._timers.monotonic() - _AWAY_S
            passed: list[tuple[ProcedureType | None, Description]] = []
            gone: list[tuple[str, int]] = []
            for name in self._types.names():
                since = self._types.since(name)
                order = in_order(since, since)
                by_code = [version for version in order if version >= BY_CODE]
                if not by_code:
                    continue
                mine = [at for at, version in enumerate(order) if (name, version) in there]
                for version in order[mine[-1] + 1 :] if mine else ():
                    declared, left = self._types.exact(name, version), (name, version)
                    if declared and declared.remote and self._away.get(left, -inf) <= latest:
                        told = described(declared, declared.pool)
                        passed.append((declared, structs.replace(told, since_ms=_PASSED)))
                old = by_code[: -limits.VERSIONS_BY_CODE_KEPT]
                gone += [(name, version) for version in old if (name, version) not in there]
            await self._keep_types(passed)
            for name, version in gone:
                if version not in self._needed(name):
                    await self._forget_type(name, version)

    def _watch_versions(self, entry: Entry) -> None:
        """Somebody has come or gone who had these."""
        now = self._timers.monotonic()
        beside = [
            (one.name, one.version)
            for one in entry.types
            if any(version >= BY_CODE for version in (one.version, *self._types.since(one.name)))
        ]
        if beside:
            self._away |= dict.fromkeys(beside, now)
            self._care_at = now + _AWAY_S

    async def _versions_left(self) -> None:
        try:
            await self._care_for_versions()
        except KvorumError as error:
            log.warning("which versions are there is told later: %s", error)  # by the next sweep

    def _needed(self, name: str) -> set[int]:
        """Versions of a type that live ones run with, or settings name."""
        deploy = self._types.deploys.get(name, NO_DEPLOY)
        live = {one.release for one in self._roster.named(name)}
        return live | {deploy.default, deploy.ramp, deploy.previous, *deploy.drained}

    def _lanes(self, entry: Entry) -> list[str]:
        """What a worker may run: of what it accepts nothing that is pinned to its own version."""
        return [
            lane
            for lane in lanes_of(entry)
            if not self._pinned(lane) or any(lane == own for own in own_lanes(entry))
        ]

    def _pinned(self, lane: str) -> bool:
        _, name, version, _ = parts_of(lane)
        declared = self._types.exact(name, int(version))
        return declared is not None and declared.pinned

    def tell_deploys(self, name: str) -> None:
        """Workers begin procedures, too."""
        changed = {name: self._types.deploys[name]}
        for hand in self.hands.values():
            self._tell(hand, Types(0, messages.encode([]), changed))

    def _limit_type(self, declared: ProcedureType) -> None:
        """The limits of the newest version count."""
        newest = self._types.find(declared.name)
        key = f"type:{declared.name}"
        limit = Limit(declared.max_concurrent, declared.rate_per_s)
        if newest is declared and self.gate.limits.get(key, Limit()) != limit:
            self.limit(key, limit)

    def limit(self, key: str, limit: Limit) -> None:
        """Set a limit, and count what has begun under it."""
        all_ = self._roster.all()
        for one in all_:
            one.begun = one.begun or one.running or bool(one.worker)  # its first step is under way
        self.gate.count([(one.id, one.limits, one.key) for one in all_ if one.begun])
        self.gate.limit(key, limit)

    def _all_types(self) -> bytes:
        return _told([described(t, t.pool) for t in self._types.types()])

    def _claim(self, hand: Hand, id: int, version: int) -> bool:
        """Whether it goes on with a procedure that it held under the master before."""
        live = self._roster.get(id)
        if live is None or live.worker or without_needs(live.lane) not in self._lanes(hand.entry):
            return False
        if not self._locks.try_acquire(id):
            return False
        if not live.begun:  # its first step is under way there: it counts, and waits for nobody
            live.begun = True
            self.gate.count([(id, live.limits, live.key)])
        self._hold(hand, live)
        hand.held[id] = -1  # signals that the master before heard of are before all that we heard
        return True

    async def ids(self, name: str, epoch: int, count: int, user: str = "") -> int:
        """The first of so many ids, by which it begins children. Raises Refused (WORKER_UNKNOWN),
        and what the store raises.
        """
        hand = self.hands.get(name)
        if hand is None or hand.epoch != epoch or user not in ("", hand.entry.user):
            raise self._unknown(name)
        first = await self._store.take_ids(count)
        hand.ids.append(range(first, first + count))
        return first

    async def leave(self, name: str, epoch: int, user: str = "") -> None:
        """It goes, and holds nothing any more."""
        hand = self.hands.get(name)
        if hand is not None and hand.epoch == epoch and user in ("", hand.entry.user):
            await self._bury(hand)

    def pool_of(self, user: str, first: int, last: int, *, kin: bool = True) -> str | None:
        """That of a worker of this user which has all these procedures now, or (`kin`) whose
        procedure has them as children. None: there is none.
        """
        live = self._roster.get(first)
        hand = None if live is None else self.hands.get(live.worker)
        if first == last and hand is not None and hand.entry.user == user and first in hand.held:
            return hand.entry.pool
        for hand in self.hands.values() if kin else ():
            if hand.entry.user != user:
                continue
            for id in hand.held:
                live = self._roster.get(id)
                record = None if live is None else live.record or live.needs
                rounds = () if record is None else record.rounds
                if any(at <= first and last < at + count for at, count in rounds):
                    return hand.entry.pool
        return None

    def pool_telling(self, user: str, key: bytes) -> str | None:
        """That of a worker of this user which has a procedure whose end is told by this row."""
        for hand in self.hands.values():
            if hand.entry.user != user:
                continue
            for id in hand.held:
                live = self._roster.get(id)
                if live is not None and live.tells and key == rows.done(live.starter, live.tells):
                    return hand.entry.pool
        return None

    def same_kin(self, record: Record, user: str) -> bool:
        """Whether it has the type, the owner, the parent and the starter that it had, and its key
        of its queue, if it is there, and as new children only such by whose ids a worker of this
        user may begin some; a new one has the owner of who has begun it, and no children.
        """
        live = self._roster.get(record.id)
        if live is None:
            kin = self._roster.get(record.parent or record.starter)
            fresh = not record.rounds or record.state in BACK
            return fresh and (kin is None or record.owner == kin.owner)
        known = live.record or live.needs  # neither: a master that has just come has not heard
        had = record.rounds if known is None else known.rounds
        if record.rounds != had and not self._may_begin(user, {*record.rounds}.difference(had)):
            return False
        if (record.name, record.owner) != (live.name, live.owner):
            return False
        now = (record.parent, record.starter, record.tells, record.bound)
        waits = (limits_of(record)[0], record.key)  # in a queue of its own it would pass others
        return (*now, *waits) == (
            *(live.parent, live.starter, live.tells, live.bound),
            *(live.limits[0], live.key),
        )

    def may_be_found_by(self, id: int, key: bytes) -> bool:
        """Whether a row of an index may be of a procedure whose record is not told with it: it is
        of its type, and there are not more than one has.
        """
        live = self._roster.get(id)
        if live is None:
            return False
        if key[:5] == search_rows.ENDED:
            return key.startswith(search_rows.of_type(live.name))
        names = {a for one in self._types.types() if one.name == live.name for a in one.attributes}
        if not any(key.startswith(attributes.prefix(name)) for name in names):
            return False
        if len(self._untold) > _UNTOLD_MAX:
            self._untold = Counter({k: n for k, n in self._untold.items() if self._roster.get(k)})
        self._untold[id] += 1
        return self._untold[id] <= 2 * limits.ATTRIBUTES_MAX * limits.ATTRIBUTE_KEYWORDS_MAX

    def _may_begin(self, user: str, rounds: Collection[tuple[int, int]]) -> bool:
        """Whether workers of this user were given all ids of these: (first, count), …"""
        given = (ids for one in self.hands.values() if one.entry.user == user for ids in one.ids)
        starts: list[int] = []
        stops: list[int] = []
        for ids in sorted(given, key=lambda ids: ids.start):
            if stops and stops[-1] == ids.start:
                stops[-1] = ids.stop  # a worker takes blocks that follow each other as one
            else:
                starts.append(ids.start)
                stops.append(ids.stop)
        for first, count in rounds:
            at = bisect_right(starts, first) - 1
            if at < 0 or count < 0 or first + count > stops[at]:
                return False
        return True

    def pool_of_new(self, user: str, id: int) -> str | None:
        """That of a worker of this user that may begin a procedure by this id, as a child."""
        for hand in self.hands.values():
            if hand.entry.user == user and any(id in given for given in hand.ids):
                return hand.entry.pool
        return None

    def lives(self, id: int) -> bool:
        """Whether it is there, and has not ended."""
        return self._roster.get(id) is not None

    def pool_serving(self, user: str, name: str) -> str | None:
        """That of a worker of this user that runs this type. None: there is none."""
        for hand in self.hands.values():
            if hand.entry.user == user and any(one.name == name for one in hand.entry.types):
                return hand.entry.pool
        return None

    def pools_named(self, entry: Entry) -> set[str]:
        """Those whose work a worker gets that comes so: its own, those of its types, and those that
        these types are run by until now.
        """
        names = {one.name for one in entry.types}
        known = {one.pool for one in self._types.types() if one.name in names and one.remote}
        return {entry.pool, *known, *(one.pool for one in entry.types)}

    async def _bury(self, hand: Hand, silent: str = "") -> None:
        """It has lost what it held; fenced first, then forgotten."""
        if self.hands.get(hand.name) is not hand:
            return
        del self.hands[hand.name]
        self._unlane(hand)
        self._watch_versions(hand.entry)
        hand.epoch = 0
        hand.wake()
        held, hand.held = list(hand.held), {}
        self.taken_back += len(held)
        async with asyncio.TaskGroup() as group:
            for id in held:
                group.create_task(self._regain(id, silent))
        if hand.name not in self.hands:
            await self._forget(hand.name)

    async def _forget(self, name: str) -> None:
        while not self._closed:
            try:
                if name not in self.hands:
                    await self._rows.write([delete(rows.worker(name))])
                return
            except KvorumError as error:
                log.warning("the row of worker %s stays for now: %s", name, error)
            await asyncio.sleep(_AGAIN_S)

    def _unlane(self, hand: Hand | None) -> None:
        if hand is None:
            return
        for lane in lanes_of(hand.entry):  # also those that it was not given
            left = [h for h in self._by_lane.get(lane, ()) if h is not hand]
            if left:
                self._by_lane[lane] = left
            else:
                self._by_lane.pop(lane, None)
        self._again(lanes_of(hand.entry))

    # ------------------------------------------------------------------------------ polls
    async def poll(
        self,
        name: str,
        epoch: int,
        seq: int,
        seen: int,
        again: bool,
        wait_ms: int,
        said: bytes,
        user: str = "",
    ) -> bytes:
        """Take what it says, and answer with its orders, as soon as there are some."""
        hand = self.hands.get(name)
        if hand is None or hand.epoch != epoch or user not in ("", hand.entry.user):
            raise self._unknown(name)
        hand.heard = self._timers.monotonic()
        hand.wake()  # the poll before this one
        while hand.outbox and hand.outbox[0].number <= seen:
            hand.outbox.popleft()
        if seq not in hand.taken:  # polls may overtake each other
            hand.taken.append(seq)
            self._take(hand, messages.reports(said) if said else ())
        else:
            again = True
        if again:
            hand.sent = seen
        if hand.sent >= hand.number and wait_ms:
            hand.waiting = waiting = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(min(wait_ms, limits.WORKER_POLL_MS) / 1000):
                    await waiting
            except TimeoutError:
                pass
            finally:
                if hand.waiting is waiting:
                    hand.waiting = None
            if hand.epoch != epoch:
                raise self._unknown(name)
        return messages.encode(self._unsent(hand))

    @staticmethod
    def _unknown(name: str) -> Refused:
        return Refused(
            f"worker {name} is not known here (any more): enter again", code="WORKER_UNKNOWN"
        )

    @staticmethod
    def _unsent(hand: Hand) -> list[Order]:
        found: list[Order] = []
        size = 0
        for order in hand.outbox:
            if order.number <= hand.sent:
                continue
            size += len(order.record) if isinstance(order, Run) else 64
            if found and (
                size > limits.WORKER_BATCH_BYTES or len(found) >= limits.WORKER_BATCH_MAX
            ):
                break
            found.append(order)
        if found:
            hand.sent = found[-1].number
        return found

    def _take(self, hand: Hand, reports: Sequence[messages.Report]) -> None:
        for report in reports:
            match report:
                case Turned():
                    if report.id not in hand.held:
                        continue
                    about = f"{report.id} as reported"
                    said = records.decode(report.record, about) if report.record else None
                    if report.created and hand.entry.user:
                        ids = [records.decode(data, about).id for _, data in report.created]
                        self._spawn(self._read_created(hand, report, said, ids))
                    else:
                        self._turned(hand, report, said)
                case Looked():
                    question = self._questions.get((hand.name, report.question))
                    if question is not None and not question.done():
                        question.set_result(report)
                case Progress():
                    live = self._roster.get(report.id) if report.id in hand.held else None
                    if live is not None:
                        live.progress = (report.part, report.text)
                case Slow():
                    live = self._roster.get(report.id) if report.id in hand.held else None
                    if live is not None:
                        live.slow_ms = report.since_ms
                        (hand.slow.add if report.since_ms else hand.slow.discard)(report.id)
                        self._roster.tell(report.id)
        if reports:
            self._again(lanes_of(hand.entry))
            self._kick(lanes_of(hand.entry))

    async def _read_created(
        self, hand: Hand, report: Turned, said: Record | None, ids: Sequence[int]
    ) -> None:
        """Of a turn that has begun these at a worker with rights: what it was let write counts, not
        what it tells. The turn is over when that is known.
        """
        while report.id in hand.held and not self._closed:
            try:
                found = await self._store.load_many(ids)
            except KvorumError as error:
                log.warning("the children of %d are not read yet: %s", report.id, error)
                await asyncio.sleep(_AGAIN_S)
                continue
            if report.id in hand.held:
                there = [one for one in found if not one.record.ended]
                created = tuple((one.version, records.encode(one.record)) for one in there)
                self._turned(hand, structs.replace(report, created=created), said)
                self._again(lanes_of(hand.entry))
                self._kick(lanes_of(hand.entry))
            return

    def _turned(self, hand: Hand, report: Turned, said: Record | None) -> None:
        """A turn is over. `said`: the record, as it is reported."""
        since = hand.held.pop(report.id)
        hand.slow.discard(report.id)
        self._turns.commits += report.commits
        live = self._roster.get(report.id)
        if live is None:
            self._locks.release(report.id)
            self._losses.pop(report.id, None)
            return
        forged = said is not None and (
            said.id != live.id or (hand.entry.user and not self.same_kin(said, hand.entry.user))
        )
        if report.lost or forged:
            self._spawn(self._regain(report.id))
            return
        self._losses.pop(report.id, None)
        record = live.record
        if said is not None:
            record = said
            self._roster.moved(live, record, report.version)
            live.wake = report.wake
        for version, data in report.created:
            child = records.decode(data, f"the children of procedure {report.id}")
            mine = live.id in (child.parent, child.starter)
            if self._roster.get(child.id) is not None or not mine:
                continue
            self._roster.place(self._roster.adopt(Stored(child, version)), child)
        self._let_go(live.id)
        for event in report.events:
            self._roster.signal(event)
        if record is not None and record.ended:
            self._turns.end(live, record)
            return
        if report.parked:
            self._spawn(self._left(hand, live, report.parked))
            return
        live.parked = ""
        if report.retry is not None:
            self._roster.pause(live, report.retry, report.retry_ms_max)
        elif record is None:
            self._roster.enqueue(live)
        else:
            self._roster.place(live, record)
            if record.event and record.trying is None:
                self._roster.missed(live, record.event, since)

    # ------------------------------------------------------------------------------ questions
    async def looked_at(self, ok: Admitted) -> Admitted:
        """A submission with what only its workers can tell of it; as it is, if none is here: then
        they look before its first step. Raises what is wrong with its arguments.
        """
        looked = await self.look(ok.type, ok.args)
        return ok if looked is None else replace(ok, locks=looked.locks, pending=False)

    async def canonical(self, declared: ProcedureType, args: bytes) -> bytes | None:
        """Arguments as its workers read them, so that the same ones are equal however they are
        written. None: they do not fit, or have no type. Raises Unavailable if nobody is here to
        tell: to refuse them for good might be wrong.
        """
        try:
            looked = await self.look(declared, args)
        except KvorumError as error:
            if error.disposition == "no":
                return None
            raise
        if looked is None:
            raise Unavailable(
                f"these arguments of {declared.name} are written otherwise than those that the "
                "nonce was used with; whether they are the same only a worker of it can tell, and "
                "none answers: ask again when one is there, or submit exactly the same"
            )
        return looked.args or None

    async def ask(self, declared: ProcedureType, query: str, record: Record, args: bytes) -> bytes:
        """What a query gives, by a worker that has the type. Raises what that refuses, Unavailable:
        nobody answers.
        """
        needed = records.encode(records.needed(record))
        looked = await self.look(declared, args, query, needed, limits.WORKER_QUERY_MS)
        if looked is None:
            raise Unavailable(f"no worker of pool {declared.pool} answers for {declared.name}")
        return looked.args

    async def look(
        self,
        declared: ProcedureType,
        args: bytes,
        query: str = "",
        record: bytes = b"",
        patience_ms: int = limits.WORKER_ASK_MS,
    ) -> Looked | None:
        """What a worker that has the type says of these arguments; None if nobody answers soon.

        Raises what is wrong with them.
        """
        lane = lane_of(declared.pool, declared.name, declared.version)
        hands = [
            h for h in self._by_lane.get(lane, ()) if not query or h.entry.format >= FORMAT_MORE
        ]
        if not hands:
            return None
        self._asked += 1
        number = self._asked
        hand = max(hands, key=most_free)  # nobody else answers it
        answer = self._questions[hand.name, number] = asyncio.get_running_loop().create_future()
        self._tell(hand, Look(0, number, declared.name, declared.version, args, query, record))
        try:
            async with asyncio.timeout(patience_ms / 1000):
                looked: Looked = await answer
        except TimeoutError:
            return None
        finally:
            del self._questions[hand.name, number]
        if looked.error is not None:
            raise from_wire(looked.error)
        return looked

    # ------------------------------------------------------------------------------ for people
    def _why_paused(self, live: Live) -> str:
        key, pauses = self._roster.pause_over(live), self._roster.pauses
        pause = None if pauses is None else pauses.get(key)
        return "" if pause is None else words(key, pause)

    def why_waits(self, live: Live) -> str:
        """Why one that may run does not, as far as workers are concerned."""
        if (why := self._why_paused(live)) or (
            not live.begun and (why := self.gate.waits(live.id))
        ):
            return why
        if not live.lane or live.worker:
            return ""
        pool, name, version, wanted = parts_of(live.lane)
        if live.id in self._postponed.get(live.lane, ()):
            return f"all workers of pool {pool} that have what it needs are busy"
        if not live.queued:
            return ""
        if hands := self._by_lane.get(without_needs(live.lane)):
            lacks = [lacking(wanted, dict(hand.entry.capacity), {}) for hand in hands]
            if all(lacks):
                missed = " or ".join(sorted(set(lacks)))
                return f"no worker of pool {pool} has what it needs: {missed}"
            free = any(h.free > 0 and not h.lacks(wanted) for h in hands)
            return "" if free else f"all workers of pool {pool} that could run it are busy"
        if self._expected:
            return "the workers are asked what they run"
        if any(h.entry.pool == pool for h in self.hands.values()):
            return f"no worker of pool {pool} serves {name} of version {version}"
        return f"no worker serves pool {pool}"

    def workers(self) -> list[dict[str, object]]:
        """Everybody who is here."""
        now = self._timers.monotonic()
        return [
            {
                "worker": hand.name,
                "pool": hand.entry.pool,
                "slots": hand.entry.slots,
                "running": len(hand.held),
                "capacity": dict(hand.entry.capacity),
                "used": hand.used_up(),
                "procedures": [str(id) for id in sorted(hand.held)[:100]],
                "types": sorted({f"{t.name}@{t.version}" for t in hand.entry.types}),
                "host": hand.entry.host,
                "pid": hand.entry.pid,
                "silent_ms": max(0, int((now - hand.heard) * 1000)),
            }
            for _, hand in sorted(self.hands.items())
        ]


def _told(types: Sequence[Description]) -> bytes:
    """As workers are told of them: whose they are is nobody else's business."""
    return messages.encode([structs.replace(one, user="") for one in types])

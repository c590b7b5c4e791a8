"""The row locks of one transaction: intents of checks, laid before the commit
(docs/decisions/1530).

Whoever writes a locked key waits, in the queues in which writes wait for any intent, and a circle
of waits is found as any other (txn/intents/deadlock.py). Readers pass. The locks are in the log, so
they outlive leaders and moves of partitions; they end with the transaction's record, which a
heartbeat keeps alive from the first lock until the commit begins (`stop`).

Each lock is answered with the newest version of its key, and with its value if that is asked for:
nobody has to read it then. The commit takes those as conditions, so
it is right even if a lock was lost. The first key that is locked is the transaction's anchor.

A shared lock is a guard (docs/decisions/1560): it protects what it holds until the record is final,
so the commit names these keys as reads, and asks for no version of them. No shared key is an
anchor, since nothing of it is prewritten: who shares first locks a key of his own beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple

from kv.base.errors import (
    ConditionFailed,
    KeyLocked,
    KvorumError,
    Moved,
    Reroute,
    TooLarge,
    TryLater,
    TxnAborted,
    UnknownOutcome,
)
from kv.base.fields import STORAGE_KEY_BYTES_MAX
from kv.base.keys import u64
from kv.base.limits import (
    DEADLINE_MS_DEFAULT,
    DEADLINE_MS_MAX,
    LOCK_WAIT_MARGIN_MS,
    PREWRITE_BYTES_MAX,
    PREWRITE_KEYS_MAX,
    TXN_LIFETIME_MS_MAX,
    TXN_LOCKS_MAX,
)
from kv.base.methods import ABORTED, BLIND, HEARTBEAT, OP_CHECK, PREWRITE, ROLLBACK
from kv.base.ops import Op
from kv.base.ports import Handle
from kv.base.strengths import UPDATE, is_shared
from kv.base.waits import WAITED
from txn.commit.sending import Shared, prewrite_args
from txn.intents.resolver import Outcome, resolve
from txn.shared.deadlines import Deadline
from txn.shared.grouping import by_partition
from txn.shared.refusals import expired
from txn.shared.together import together
from txn.shared.wait_terms import Terms

Values = dict[bytes, bytes | None]
"""Of keys; None: it is absent."""
Flags = dict[str, int]


class _Held(NamedTuple):
    strength: int
    version: int


class RowLocks:
    """See the module. `versions`: of the keys that are locked so that nobody else writes them, the
    newest when they were.
    """

    def __init__(
        self,
        shared: Shared,
        start_ts: int,
        *,
        ttl_ms: int,
        terms: Terms,
        blind: bool,
    ) -> None:
        """`blind`: keys may be newer than `start_ts`; otherwise that is a conflict."""
        self.beside = False
        """All that is locked from now on may be given up (`undo_to`): if there is no anchor yet, it
        is a key of its own.
        """
        self._shared, self._start_ts = shared, start_ts
        self._ttl_ms, self._terms, self._blind = ttl_ms, terms, blind
        self.anchor = b""
        self.versions: dict[bytes, int] = {}
        self.beaten = False  # a heartbeat was sent: it may arrive late
        self._held: dict[bytes, _Held] = {}  # in the order in which they were first locked
        self._asked: dict[bytes, None] = {}  # keys that may be locked
        self._going: set[bytes] = set()  # … and whose rows are about to go
        self._ends = Deadline(shared.timers, TXN_LIFETIME_MS_MAX)
        self._beat: Handle | None = None
        self._lost = False
        self._unanswered = 0  # messages that may arrive late

    async def lay(
        self,
        keys: Sequence[bytes],
        wait_ms: int,
        values: Values | None = None,
        *,
        strength: int = UPDATE,
        going: bool = False,
    ) -> list[int]:
        """Lock the keys, waiting so long for others (0: not at all), and their newest versions; 0:
        it is absent. After an error some of them may be locked. `values`: gets those that came
        with the locks. `strength`: of kv.base.strengths. `going`: what is there is about to go.

        Raises KeyLocked: it would have to wait longer; WriteConflict: one is newer than the
        snapshot; TxnAborted: a deadlock, or the transaction is over; TooLarge.
        """
        todo = [key for key in dict.fromkeys(keys) if self._lacks(key, strength, going)]
        if todo and (self.beside or is_shared(strength)) and not self.anchor:
            todo.insert(0, _beside(todo[0], self._start_ts))
        self._begin(todo)
        wait = Deadline(self._shared.timers, wait_ms)
        flags: Flags = {} if values is None else {"values": True}
        if strength != UPDATE:
            flags["strength"] = strength
        if going:
            flags["going"] = True
        while todo:
            await self._each(todo, partial(self._lay, wait, values, flags))
            todo = [key for key in todo if self._lacks(key, strength, going)]
        return [self._held[key].version for key in keys]

    def holds(self, key: bytes, strength: int) -> bool:
        """Whether it is locked so, or more strongly."""
        held = self._held.get(key)
        return held is not None and held.strength <= strength

    def _lacks(self, key: bytes, strength: int, going: bool) -> bool:
        return not self.holds(key, strength) or (going and key not in self._going)

    def has(self, key: bytes) -> bool:
        """Whether it is locked at all."""
        return key in self._held

    def shares(self, key: bytes) -> bool:
        """Whether what is at the key stays, though its version is no condition of the commit."""
        return key in self._held and key not in self.versions

    @property
    def shared(self) -> list[bytes]:
        """The keys that the commit has to say that it has read."""
        return [key for key in self._held if key not in self.versions]

    async def lay_present(
        self, key: bytes, wait_ms: int, *, strength: int = UPDATE
    ) -> tuple[bytes, int] | None:
        """Lock a key, which is not locked so yet, if it is there, so that nobody else writes it:
        its newest value and version; None: it is absent, and not locked. Raises as `lay`.
        """
        assert not is_shared(strength)
        values: Values = {}
        if self.beside and not self.anchor:
            await self.lay([key], wait_ms, values, strength=strength)
            found = values[key]
            return None if found is None else (found, self.versions[key])
        self._begin([key])
        wait = Deadline(self._shared.timers, wait_ms)
        flags: Flags = {"values": True, "present": True}
        if strength != UPDATE:
            flags["strength"] = strength
        lay = partial(self._lay, wait, values, flags)
        try:
            while key not in values:
                await self._each([key], lay)
        finally:
            if not (self._held or self._unanswered or self.beaten):
                # Nothing is there: what is locked next is the anchor.
                self.stop()
                self.anchor = b""
                self._asked.clear()
        value = values[key]
        return None if value is None else (value, self.versions[key])

    def _begin(self, todo: Sequence[bytes]) -> None:
        """These are about to be locked. Raises TxnAborted, TooLarge."""
        self.check()
        if len(self._asked) + len(todo) > TXN_LOCKS_MAX:
            raise TooLarge(
                f"the transaction would lock {len(self._asked) + len(todo)} keys; the limit is "
                f"{TXN_LOCKS_MAX}; lock and change them in several transactions",
                details={"what": "row locks", "limit": TXN_LOCKS_MAX},
            )
        if todo and not self.anchor:
            self.anchor = todo[0]
            self._arm()
        self._asked.update(dict.fromkeys(todo))

    async def _lay(
        self, wait: Deadline, values: Values | None, flags: Flags, keys: list[bytes]
    ) -> None:
        """One message. If its partition was cut meanwhile, nothing is done."""
        shared, attempt = self._shared, 0
        ends = Deadline(shared.timers, wait.left_ms() + DEADLINE_MS_DEFAULT)
        rows = ([Op(OP_CHECK, key) for key in keys], BLIND if self._blind else 0)
        said = {**self._terms.options, "lock": True, **flags}
        while True:
            wait_ms = min(wait.left_ms(), DEADLINE_MS_MAX - LOCK_WAIT_MARGIN_MS)
            options = {**said, "wait_ms": wait_ms}
            self._unanswered += 1
            args = prewrite_args(self._start_ts, self.anchor, self._ttl_ms, rows, options)
            budget_ms = wait_ms + min(ends.budget_ms(), LOCK_WAIT_MARGIN_MS)
            try:
                _, versions, *more = await shared.kv.call(
                    PREWRITE, keys[0], *args, budget_ms=budget_ms
                )
            except KeyLocked as met:
                self._unanswered -= 1
                met.details.pop(WAITED, None)
                if not await shared.resolver.lives(met, ends):
                    await shared.resolver.met_by_write(met, attempt, ends)
                elif wait.passed:
                    raise
                else:
                    await shared.backoff.wait(attempt, wait)
            except Moved:
                return
            except (Reroute, TryLater, UnknownOutcome):
                if ends.passed:
                    raise
                await shared.backoff.wait(attempt, ends)
            else:
                self._unanswered -= 1
                if "present" in flags and not versions[0]:
                    del self._asked[keys[0]]
                else:
                    self._laid(flags.get("strength", UPDATE), zip(keys, versions, strict=True))
                    if "going" in flags:
                        self._going.update(keys)
                if values is not None:
                    values.update(zip(keys, *more, strict=False))  # of a page
                return
            attempt += 1

    def _laid(self, strength: int, found: Iterable[tuple[bytes, int]]) -> None:
        for key, version in found:
            mine = UPDATE if key == self.anchor and is_shared(strength) else strength
            old = self._held.get(key)
            self._held[key] = _Held(mine if old is None else min(mine, old.strength), version)
            if not is_shared(mine):
                self.versions[key] = version

    def check(self) -> None:
        """Raises TxnAborted if somebody else has ended the transaction."""
        if self._lost:
            raise expired(self._start_ts)

    @property
    def unsure(self) -> bool:
        """Whether more may be locked than is known."""
        return len(self._asked) > len(self._held)

    def conditions(self, ops: Sequence[Op]) -> list[Op]:
        """What to commit: the ops, each on a locked key with its version as the condition, if it
        has no other, and checks of what is locked and not written; the anchor's first.
        """
        left = dict(self.versions)
        made = []
        for op in ops:
            version = left.pop(op.key, None)
            made.append(op if version is None or op.cond is not None else op._replace(cond=version))
        made += [Op(OP_CHECK, key, None, version, 0) for key, version in left.items()]
        made.sort(key=lambda op: op.key != self.anchor)  # stable
        return made

    def implied(self, error: ConditionFailed, given: Sequence[Op]) -> bool:
        """Whether the condition that failed was that of a lock."""
        key = error.details.get("key")
        return key in self.versions and all(op.key != key or op.cond is None for op in given)

    # -- its life

    def _arm(self) -> None:
        self._beat = self._shared.timers.call_later(self._ttl_ms / 3000, self._beats)

    def _beats(self) -> None:
        self._beat = None
        if self._shared.background.closed or self._ends.passed or self._lost:
            return
        self.beaten = True
        self._shared.background.spawn(self._say_alive(), f"locks-{self._start_ts}")
        self._arm()

    async def _say_alive(self) -> None:
        said = {"ttl_ms": self._ttl_ms, "owner": self._terms.owner}
        try:
            (status,) = await self._shared.kv.call(
                HEARTBEAT,
                self.anchor,
                self.anchor,
                self._start_ts,
                said,
                budget_ms=max(1, self._ttl_ms // 3),
            )
        except TxnAborted:
            status = ABORTED
        except KvorumError:
            return  # the next one says it
        self._lost = self._lost or status == ABORTED

    def stop(self) -> None:
        """From here on somebody else says that the owner lives, or it is over."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    @property
    def count(self) -> int:
        """How many keys are locked: a mark for `undo_to`."""
        return len(self._held)

    async def undo_to(self, mark: int, *, budget_ms: int) -> None:
        """End the locks since, but that of the anchor, where the record lies."""
        await self.give_up(list(islice(self._held, mark, None)), budget_ms=budget_ms)

    async def give_up(self, keys: Sequence[bytes], *, budget_ms: int) -> None:
        """End these locks, but that of the anchor. What fails here stays locked until the end."""
        keys = [one for one in dict.fromkeys(keys) if one != self.anchor and one in self._held]
        for key in keys:
            del self._asked[key], self._held[key]
            self.versions.pop(key, None)
            self._going.discard(key)

        async def unlock(part: list[bytes]) -> None:
            rows = ([Op(OP_CHECK, key) for key in part], 0)
            said = {"unlock": True}
            args = prewrite_args(self._start_ts, self.anchor, self._ttl_ms, rows, said)
            await self._shared.kv.call(PREWRITE, part[0], *args, budget_ms=budget_ms)

        with suppress(KvorumError):
            await self._each(keys, unlock, [])

    async def release(self, *, budget_ms: int) -> None:
        """The transaction is over, and wrote nothing: its record says so, and the locks go. What
        fails here is left to whoever meets them.
        """
        self.stop()
        shared = self._shared
        if not self.anchor:
            return
        try:
            await shared.kv.call(
                ROLLBACK, self.anchor, self.anchor, self._start_ts, budget_ms=budget_ms
            )
        except KvorumError:
            return
        shared.resolver.learn(self._start_ts, Outcome(ABORTED))
        await self.remove(0, budget_ms=budget_ms)

    async def remove(self, version: int, *, budget_ms: int) -> None:
        """End what may be left of them when the transaction has ended (0: without a version)."""

        async def end(part: list[bytes]) -> None:
            kv = self._shared.kv
            await resolve(kv, part, self._start_ts, version, budget_ms=budget_ms)

        with suppress(KvorumError):
            await self._each(list(self._asked), end, [])

    async def _each(
        self,
        keys: list[bytes],
        send: Callable[[list[bytes]], Coroutine[object, None, None]],
        unknown: list[int] | None = None,
    ) -> None:
        """A message for each part of the keys that lies in one partition. `unknown`: as that of
        `by_partition`.
        """
        groups = await by_partition(self._shared.kv, keys, range(len(keys)), unknown)
        async with together() as tasks:
            for group in groups:
                for part in _messages([keys[i] for i in group]):
                    tasks.create_task(send(part))


def _beside(key: bytes, start_ts: int) -> bytes:
    """A key that nobody else locks, mostly in the same partition."""
    own = u64(start_ts)
    return key[: STORAGE_KEY_BYTES_MAX - len(own) - 1] + b"\x00" + own


def _messages(keys: list[bytes]) -> list[list[bytes]]:
    """Keys of one partition as requests of a legal size."""
    most = min(PREWRITE_KEYS_MAX, max(1, PREWRITE_BYTES_MAX // max(map(len, keys))))
    return [keys[at : at + most] for at in range(0, len(keys), most)]

"""Advisory locks of one session: what it holds, how often, and until when.

PostgreSQL counts: a lock that is taken twice is given back twice; those of the session stay until
it ends, those of the transaction (…_xact_…) until that ends or what took them is rolled back. Here
the cluster holds a lock once for the session (sqlproxy.session.shared.advisory_locks), and the
counts are this file's.

Expressions never wait themselves. So a SELECT without FROM is evaluated until it asks for a lock
whose answer is not there (`Unanswered`), the answer is got, and it is evaluated again with it.

Deliberately missing: a lock that is held shared cannot become exclusive; rows of tables cannot be
locks (SELECT pg_try_advisory_lock(id) FROM t). Both say so (0A000).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kv.base.limits import ADVISORY_LOCKS_MAX
from sqlproxy.session.shared.advisory_locks import (
    EXCLUSIVE,
    SHARE,
    AdvisoryLocks,
    Held,
    Key,
    resource_of,
)
from sqlproxy.session.state.block import Block
from sqlproxy.session.state.settings import Settings
from sqlproxy.values.errors import ADMIN_SHUTDOWN, SqlError, unsupported
from sqlproxy.wire.codec import Fatal

_SESSION: Final = -1  # instead of a depth of savepoints: not the transaction's
_TOKEN_BYTES: Final = 4
_NONCE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Request:
    """One call of a function."""

    verb: str  # "lock", "try", "unlock", "unlock_all"
    key: Key | None = None
    exclusive: bool = True
    transaction: bool = False


class Unanswered(Exception):
    """An expression asks for a lock; `request` is to be answered first."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.request = request


@dataclass(slots=True)
class _Lock:
    """`taken`: (exclusive, depth of savepoints or _SESSION) of each time."""

    held: Held
    exclusive: bool
    taken: list[tuple[bool, int]] = field(default_factory=list)


class Advising:
    """See the module. Of one session."""

    __slots__ = (
        "_advisory",
        "_answers",
        "_at",
        "_block",
        "_database",
        "_locks",
        "_name",
        "_owner",
        "_settings",
        "_token",
        "_warn",
    )

    def __init__(
        self,
        advisory: AdvisoryLocks | None,
        token: Callable[[int], bytes],
        database: str,
        block: Block,
        settings: Settings,
        *,
        owner: Callable[[], str],
        warn: Callable[[str], None],
    ) -> None:
        """`advisory`: the process's; None: it has none. `token`: so many random bytes. `owner`: who
        this is, for people. `warn`: tells the client.
        """
        self._advisory, self._token, self._database = advisory, token, database
        self._block, self._settings = block, settings
        self._owner, self._warn = owner, warn
        self._locks: dict[Key, _Lock] = {}
        self._name = ""
        self._answers: list[bool] | None = None  # None: locks cannot be asked for
        self._at = 0

    # -- what expressions ask

    def answer(self, request: Request) -> bool:
        """Raises Unanswered, SqlError (0A000)."""
        if self._answers is None:
            raise unsupported(
                "an advisory lock in a statement that reads or writes tables",
                hint="Take it by a SELECT without FROM.",
            )
        if self._at == len(self._answers):
            raise Unanswered(request)
        self._at += 1
        return self._answers[self._at - 1]

    def begin(self, answers: list[bool] | None) -> None:
        """A statement is evaluated with what was answered so far; None: it has been."""
        self._answers, self._at = answers, 0

    async def carry_out(self, request: Request) -> bool:
        """Its answer. Raises SqlError, KvorumError."""
        if request.verb == "unlock_all":
            await self.unlock_all()
            return True
        assert request.key is not None
        if request.verb == "unlock":
            return await self._unlock(request.key, request.exclusive)
        return await self._take(request, request.key)

    # -- taking

    async def _take(self, request: Request, key: Key) -> bool:
        self.check()
        depth = self._block.depth if request.transaction else _SESSION
        lock = self._locks.get(key)
        if lock is None:
            if len(self._locks) >= ADVISORY_LOCKS_MAX:
                raise SqlError(
                    "53200",
                    f"a session has at most {ADVISORY_LOCKS_MAX} advisory locks",
                    hint="Give some back, or take one that stands for many.",
                )
            held = await self._in_time(request, key)
            if held is None:
                return False
            lock = self._locks[key] = _Lock(held, request.exclusive)
        elif request.exclusive and not lock.exclusive:
            raise unsupported(
                "an exclusive advisory lock of what the session has locked shared",
                hint="Give the shared lock back first.",
            )
        lock.taken.append((request.exclusive, depth))
        return True

    async def _in_time(self, request: Request, key: Key) -> Held | None:
        wait = request.verb == "lock"
        ms = self._settings.ms("lock_timeout") if wait else 0
        try:
            async with asyncio.timeout(ms / 1000 if ms else None) as limit:
                return await self._hold(key, exclusive=request.exclusive, wait=wait)
        except TimeoutError:
            if limit.expired():
                raise SqlError("55P03", "canceling statement due to lock timeout") from None
            raise

    async def _hold(self, key: Key, *, exclusive: bool, wait: bool) -> Held | None:
        if self._advisory is None:
            raise unsupported("advisory locks", are=True)
        self._name = self._name or self._token(_TOKEN_BYTES).hex()
        while True:
            held = await self._advisory.take(
                resource_of(self._database, key),
                exclusive=exclusive,
                session=self._name,
                owner=self._owner(),
                nonce=self._token(_NONCE_BYTES).hex(),
                wait=wait,
            )
            if held is not None or not wait:
                return held

    # -- giving back

    async def _unlock(self, key: Key, exclusive: bool) -> bool:
        lock = self._locks.get(key)
        if lock is None or (exclusive, _SESSION) not in lock.taken:
            mode = EXCLUSIVE if exclusive else SHARE
            self._warn(f"you don't own a lock of type {mode}")
            return False
        lock.taken.remove((exclusive, _SESSION))
        await self._end_unused()
        return True

    async def unlock_all(self) -> None:
        """Those of the session."""
        for lock in self._locks.values():
            lock.taken = [one for one in lock.taken if one[1] != _SESSION]
        await self._end_unused()

    async def end_transaction(self) -> None:
        """Those of the transaction."""
        await self.end_deeper(0)

    async def end_deeper(self, depth: int) -> None:
        """Those of the transaction that were taken with at least so many savepoints."""
        for lock in self._locks.values():
            lock.taken = [one for one in lock.taken if one[1] == _SESSION or one[1] < depth]
        await self._end_unused()

    def released(self, depth: int) -> None:
        """Only so many savepoints are left; what was taken after others belongs to the last."""
        for lock in self._locks.values():
            lock.taken = [(how, min(at, depth)) for how, at in lock.taken]

    async def _end_unused(self) -> None:
        for key in [key for key, lock in self._locks.items() if not lock.taken]:
            held = self._locks.pop(key).held
            if self._advisory is not None:
                await self._advisory.give_back(held)

    def close(self) -> None:
        """The session is over."""
        locks, self._locks = self._locks, {}
        for lock in locks.values():
            if self._advisory is not None:
                self._advisory.give_back_soon(lock.held)

    # -- what may have been lost

    @property
    def any(self) -> bool:
        """Whether the session has some."""
        return bool(self._locks)

    def check(self) -> None:
        """Raises Fatal (57P01): who thinks that it has a lock must not go on without it."""
        if self._locks and any(lock.held.lost for lock in self._locks.values()):
            raise Fatal(
                ADMIN_SHUTDOWN,
                "terminating connection because an advisory lock was lost",
                detail="The cluster did not hear of this process for too long, or the lock was "
                "taken away; others may have it now.",
                hint="Connect again, take the lock, and look at what is there.",
            )

"""Transactions that HTTP clients hold open at this node.

A transaction's buffer and snapshot live here between requests, under its id. Each request of it
renews its time; one that is silent for its ttl_ms is aborted and forgotten, so that clients that
vanish leave nothing behind. The id outlives the session: its end is recorded whatever it did, so
`status` answers from the store, and a repeated commit gets the same answer as the first.

Another node's transactions are not taken over: a client that asks the wrong node learns which one
holds its transaction (REROUTE).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from kv.base.errors import Busy, KvorumError, Reroute
from kv.base.limits import INTERACTIVE_TXNS_MAX
from kv.base.ports import Handle, Timers
from kvorum.api.backend import Backend, Session
from kvorum.api.model import TxnState
from txn.shared.refusals import BY_OWNER, is_committed, is_over
from txn.shared.wait_terms import USUAL, Terms

_SWEEP_S = 0.25
_REASONS_REMEMBERED = 10_000
_SILENT = "it was silent for its ttl_ms"
_LOGGED_OUT = "what it was last asked with does not count any more: it was revoked or has expired"
_SOMEHOW = "it was aborted, was silent for its ttl_ms, or its node has restarted"
_ELSEWHERE = "it is not open at this node"


@dataclass(slots=True)
class _Open:
    session: Session
    owner: str
    ttl_s: float
    dies_at: float
    stands: Callable[[], bool]
    """Whether the credential that it was last asked with counts still."""
    ending: asyncio.Future[int] | None = field(default=None)
    """Set while a commit is under way: a second commit waits for the same answer."""
    waiting: int = 0
    """So many of its requests wait for others: it is not silent."""


class Sessions:
    """The open transactions of one node."""

    def __init__(
        self,
        backend: Backend,
        timers: Timers,
        spawn: Callable[..., object],
        holder: Callable[[int], Awaitable[str | None]] | None = None,
    ) -> None:
        """`spawn(coroutine)` runs one in the background, owned by the node. `holder(txn)`:
        HOST:PORT of another node where a transaction is open, None if there is none.
        """
        self._backend = backend
        self._timers = timers
        self._spawn = spawn
        self._holder = holder
        self._open: dict[int, _Open] = {}
        self._why: OrderedDict[int, str] = OrderedDict()  # of those that ended here uncommitted
        self._sweep: Handle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def owner(self, txn: int) -> str | None:
        """Who began a transaction that is open here."""
        entry = self._open.get(txn)
        return None if entry is None else entry.owner

    async def begin(
        self,
        owner: str,
        stands: Callable[[], bool],
        *,
        ttl_ms: int,
        isolation: str,
        terms: Terms = USUAL,
    ) -> Session:
        """Open a transaction of that user, for as long as his credential `stands`. Raises Busy when
        too many are open.
        """
        if len(self._open) >= INTERACTIVE_TXNS_MAX:
            raise Busy(
                f"{len(self._open)} transactions are open at this node, the limit is "
                f"{INTERACTIVE_TXNS_MAX}; commit or abort some, or use a shorter ttl_ms",
                details={"limit": INTERACTIVE_TXNS_MAX, "actual": len(self._open)},
            )
        # Its id is known outside, so that its end must be known whatever becomes of this node.
        session = await self._backend.begin(
            ttl_ms=ttl_ms, isolation=isolation, terms=terms, recorded=True
        )
        ttl_s = ttl_ms / 1000
        dies_at = self._timers.monotonic() + ttl_s
        self._open[session.id] = _Open(session, owner, ttl_s, dies_at, stands)
        if self._sweep is None:
            self._sweep = self._timers.call_later(_SWEEP_S, self._expire)
        return session

    def _find(self, txn: int) -> _Open | None:
        """The entry of a transaction whose time is not over."""
        entry = self._open.get(txn)
        if entry is None or entry.ending is not None or entry.waiting:
            return entry
        if entry.dies_at > self._timers.monotonic():
            return entry
        self._bury(txn)
        return None

    def review(self) -> None:
        """Who may not go on keeps nobody waiting for what his transactions hold."""
        with ExitStack() as reviews:  # one that breaks keeps no other from its end
            for txn, entry in self._open.items():
                reviews.callback(self._review, txn, entry)

    def _review(self, txn: int, entry: _Open) -> None:
        if entry.ending is None and not entry.waiting and not entry.stands():
            self._bury(txn, _LOGGED_OUT)

    def _bury(self, txn: int, why: str = _SILENT) -> None:
        self._ended(txn, why)
        self._spawn(_quietly_abort(self._open.pop(txn).session))

    def _ended(self, txn: int, why: str) -> None:
        self._why[txn] = why
        if len(self._why) > _REASONS_REMEMBERED:
            self._why.popitem(last=False)

    async def get(self, txn: int, stands: Callable[[], bool]) -> Session:
        """The session of an open transaction, its time renewed by this credential. Raises
        TxnAborted, or Refused if it has committed.
        """
        entry = self._find(txn)
        if entry is None or entry.ending is not None:
            raise await self._gone(txn)
        entry.dies_at = self._timers.monotonic() + entry.ttl_s
        entry.stands = stands
        return entry.session

    @contextmanager
    def waiting(self, txn: int) -> Iterator[None]:
        """A request of an open transaction, which may take longer than its ttl_ms."""
        entry = self._open[txn]
        entry.waiting += 1
        try:
            yield
        finally:
            entry.waiting -= 1
            entry.dies_at = self._timers.monotonic() + entry.ttl_s

    async def commit(self, txn: int) -> int:
        """The commit version; the same when asked again."""
        entry = self._find(txn)
        if entry is None:
            state = await self._backend.status(txn)
            if state.status == "committed" and state.commit_ts:
                return state.commit_ts
            raise await self._not_here(txn, state)
        if entry.ending is None:
            entry.ending = asyncio.get_running_loop().create_future()
            self._spawn(self._commit(txn, entry, entry.ending))
        return await asyncio.shield(entry.ending)

    async def _commit(self, txn: int, entry: _Open, ending: asyncio.Future[int]) -> None:
        """Runs to its end even if the client that asked hangs up."""
        try:
            version = await entry.session.commit()
        except KvorumError as e:
            if e.disposition != "unknown_outcome":
                self._ended(txn, f"its commit failed: {e}")
            ending.set_exception(e)
            ending.exception()  # raised to callers that still wait; there may be none
        except asyncio.CancelledError:
            ending.cancel()
            raise
        else:
            ending.set_result(version)
        finally:
            self._open.pop(txn, None)

    async def abort(self, txn: int) -> None:
        """End a transaction, whoever began it, wherever; fine if it was aborted already. Raises
        Refused if it has committed, NotFound if nothing is known of it.
        """
        entry = self._find(txn)
        if entry is not None and entry.ending is None:
            del self._open[txn]
            self._ended(txn, BY_OWNER)
            await entry.session.abort()
        elif entry is not None or txn not in self._why:
            await self._backend.abort_transaction(txn)

    async def status(self, txn: int) -> TxnState:
        """What became of a transaction; one that is open here or at another node is pending."""
        entry = self._find(txn)
        if entry is not None and entry.ending is None:
            return TxnState("pending")
        state = await self._backend.status(txn)
        if state.status != "unknown":
            return state
        if entry is not None or (self._holder and await self._holder(txn)):
            return TxnState("pending")  # its commit has just begun, or it is open elsewhere
        return state

    async def _gone(self, txn: int) -> KvorumError:
        """Why a transaction takes no more requests."""
        state = await self._backend.status(txn)
        if state.status == "committed":
            return is_committed(txn, state.commit_ts or 0)
        return await self._not_here(txn, state)

    async def _not_here(self, txn: int, state: TxnState) -> KvorumError:
        """What to tell about a transaction that has not committed and is not open here."""
        if state.status in ("pending", "unknown") and self._holder is not None:
            address = await self._holder(txn)
            if address is not None:
                return Reroute(
                    f"transaction {txn} is open at another node: send its requests to {address}",
                    details={"txn": str(txn), "address": address},
                )
        known = self._why.get(txn)
        lost = _ELSEWHERE if state.status in ("pending", "unknown") else _SOMEHOW
        return is_over(txn, known or lost)

    def holds(self, txn: int) -> bool:
        """Whether a transaction is open here."""
        return self._find(txn) is not None

    def _expire(self) -> None:
        """Abort what was silent for its ttl; the timer runs only while something is open."""
        now = self._timers.monotonic()
        silent = [(t, e) for t, e in self._open.items() if e.dies_at <= now and not e.waiting]
        dead = [t for t, e in silent if e.ending is None]
        try:
            for txn in dead:
                self._bury(txn)
        finally:
            again = bool(self._open)
            self._sweep = self._timers.call_later(_SWEEP_S, self._expire) if again else None

    async def close(self) -> None:
        """Abort what is still open: the node is stopping."""
        if self._sweep is not None:
            self._sweep.cancel()
        entries, self._open = list(self._open.values()), {}
        async with asyncio.TaskGroup() as group:  # each is a write: together they share syncs
            for entry in entries:
                if entry.ending is None:
                    group.create_task(_quietly_abort(entry.session))


async def _quietly_abort(session: Session) -> None:
    try:
        await session.abort()
    except KvorumError:
        return  # it will expire by itself, and no client is left

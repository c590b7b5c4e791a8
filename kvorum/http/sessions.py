"""Transactions that HTTP clients hold open at this node.

A transaction's buffer and snapshot live here between requests, under its id. Each request of it
renews its time; one that is silent for its ttl_ms is aborted and forgotten, so that clients that
vanish leave nothing behind. The id outlives the session: its end is recorded whatever it did, so
`status` answers from the store, and a repeated commit gets the same answer as the first.

Another node's transactions are not taken over: a client that asks the wrong node is told which one
holds its transaction (REROUTE).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from kv.base.errors import Busy, KvorumError, Refused, Reroute, TxnAborted
from kv.base.limits import INTERACTIVE_TXNS_MAX
from kv.base.ports import Handle, Timers
from kvorum.backend import Backend, Session
from kvorum.model import TxnState
from txn.terms import USUAL, Terms

_SWEEP_S = 0.25


@dataclass(slots=True)
class _Open:
    session: Session
    ttl_s: float
    dies_at: float
    ending: asyncio.Future[int] | None = field(default=None)
    """Set while a commit is under way: a second commit waits for the same answer."""


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
        self._sweep: Handle | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def begin(self, *, ttl_ms: int, isolation: str, terms: Terms = USUAL) -> Session:
        """Open a transaction. Raises Busy when too many are open."""
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
        self._open[session.id] = _Open(session, ttl_s, dies_at)
        if self._sweep is None:
            self._sweep = self._timers.call_later(_SWEEP_S, self._expire)
        return session

    def _find(self, txn: int) -> _Open | None:
        """The entry of a transaction whose time is not over."""
        entry = self._open.get(txn)
        if entry is None or entry.ending is not None or entry.dies_at > self._timers.monotonic():
            return entry
        self._bury(txn)
        return None

    def _bury(self, txn: int) -> None:
        self._spawn(_quietly_abort(self._open.pop(txn).session))

    async def get(self, txn: int) -> Session:
        """The session of an open transaction, its time renewed. Raises TxnAborted, or
        Refused if it has committed.
        """
        entry = self._find(txn)
        if entry is None or entry.ending is not None:
            raise await self._gone(txn)
        entry.dies_at = self._timers.monotonic() + entry.ttl_s
        return entry.session

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
            ending.set_exception(e)
            ending.exception()  # told to whoever still waits; nobody may
        except asyncio.CancelledError:
            ending.cancel()
            raise
        else:
            ending.set_result(version)
        finally:
            self._open.pop(txn, None)

    async def abort(self, txn: int) -> None:
        """Forget a transaction; fine if it was aborted already. Raises Refused if it
        has committed.
        """
        entry = self._find(txn)
        if entry is not None and entry.ending is None:
            del self._open[txn]
            await entry.session.abort()
            return
        gone = await self._gone(txn)
        if not isinstance(gone, TxnAborted):
            raise gone

    async def status(self, txn: int) -> TxnState:
        """What became of a transaction; one that is open here or at another node is pending."""
        entry = self._find(txn)
        if entry is not None and entry.ending is None:
            return TxnState("pending")
        state = await self._backend.status(txn)
        if state.status == "unknown" and self._holder and await self._holder(txn):
            return TxnState("pending")
        return state

    async def _gone(self, txn: int) -> KvorumError:
        """Why a transaction takes no more requests."""
        state = await self._backend.status(txn)
        if state.status == "committed":
            return Refused(
                f"transaction {txn} has committed at {state.commit_ts}; begin a new one",
                code="TXN_COMMITTED",
                details={"txn": str(txn), "commit_ts": str(state.commit_ts)},
            )
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
        return _aborted(txn, state)

    def holds(self, txn: int) -> bool:
        """Whether a transaction is open here."""
        return self._find(txn) is not None

    def _expire(self) -> None:
        """Abort what was silent for its ttl; the timer runs only while something is open."""
        now = self._timers.monotonic()
        dead = [t for t, e in self._open.items() if e.dies_at <= now and e.ending is None]
        for txn in dead:
            self._bury(txn)
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
        return  # it will expire by itself, and nobody is there to be told


def _aborted(txn: int, state: TxnState) -> TxnAborted:
    reason = "it was aborted, it was silent for its ttl_ms, or its node has restarted"
    if state.status in ("pending", "unknown"):
        reason = "it is not open at this node"
    return TxnAborted(
        f"transaction {txn} takes no more requests: {reason}; run the work again in a new one",
        details={"txn": str(txn), "reason": reason},
    )

"""The transaction block of one session: BEGIN to COMMIT, or one statement by itself.

    I idle ──statement──▶ I with an implicit transaction ──sync──▶ commit, I
      │ BEGIN
      ▼
    T in a block ──error──▶ E failed ──ROLLBACK, COMMIT──▶ rolled back, I
      │ COMMIT → commit, I        └ROLLBACK TO──▶ T

The store's transaction begins with the first statement that needs it, so that BEGIN is not the
moment of the snapshot, as in PostgreSQL. A failed block keeps its store transaction while it has a
savepoint to go back to; else it is aborted at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kv.base.errors import KvorumError
from kv.base.limits import SQL_SAVEPOINTS_MAX
from sqlproxy.answers import Status
from sqlproxy.change.fence import Fence
from sqlproxy.errors import (
    ACTIVE_TRANSACTION,
    LIMIT_EXCEEDED,
    NO_ACTIVE_TRANSACTION,
    UNDEFINED_SAVEPOINT,
    SqlError,
)
from sqlproxy.fast.deferring import Deferred
from sqlproxy.session.settings import Marked
from txn.client import TxnClient
from txn.terms import USUAL, Terms
from txn.transaction import Transaction, TxnState

SERIALIZABLE: Final = "serializable"


@dataclass(frozen=True, slots=True)
class Modes:
    """How a transaction reads and waits. `isolation`: as it was asked for; what is not serializable
    is repeatable read. `at`: a timestamp of the past, 0 = its own begin.
    """

    isolation: str = "repeatable read"
    read_only: bool = False
    at: int = 0
    terms: Terms = USUAL


@dataclass(slots=True)
class _Savepoint:
    name: str
    mark: int | None  # None: nothing was read or written yet
    settings: Marked


class Block:
    """See the module. `status` is what the client is told."""

    def __init__(self, client: TxnClient, fence: Fence) -> None:
        self._client = client
        self.fence = fence
        self.status: Status = "I"
        self.modes = Modes()
        self._t: Transaction | None = None
        self._savepoints: list[_Savepoint] = []
        self.deferred = Deferred()  # constraints that are checked at the commit
        self.statements = 0  # run in the store's transaction
        self.wrote = False

    @property
    def transaction(self) -> Transaction | None:
        """The store's, if a statement needed one."""
        return self._t

    @property
    def at_rest(self) -> bool:
        """Whether the next statement is a transaction by itself."""
        return self.status == "I" and self._t is None

    @property
    def explicit(self) -> bool:
        return self.status != "I"

    @property
    def has_savepoints(self) -> bool:
        """Whether ROLLBACK TO may take back what was done."""
        return bool(self._savepoints)

    @property
    def depth(self) -> int:
        """How many savepoints there are."""
        return len(self._savepoints)

    async def work(self, modes: Modes) -> Transaction:
        """The store's transaction; begun now if there is none. `modes` are those of an implicit
        one.
        """
        if self._t is None:
            if not self.explicit:
                self.modes = modes
            isolation = "serializable" if self.modes.isolation == SERIALIZABLE else "snapshot"
            self._t = await self._client.begin(isolation=isolation, terms=self.modes.terms)
            for one in self._savepoints:
                one.mark = self._t.mark()
        return self._t

    # -- BEGIN, COMMIT, ROLLBACK

    def begin(self, modes: Modes) -> None:
        """Open a block. An implicit transaction that is under way becomes its beginning."""
        assert not self.explicit
        if self._t is None:
            self.modes = modes
        self.status = "T"

    def change(self, modes: Modes) -> None:
        """SET TRANSACTION. Raises SqlError behind the first statement."""
        was, told = self.modes.isolation == SERIALIZABLE, modes.isolation == SERIALIZABLE
        if was != told and self._t is not None:
            raise SqlError(
                ACTIVE_TRANSACTION,
                "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            )
        if self.modes.read_only and not modes.read_only and self._t is not None:
            raise SqlError(
                ACTIVE_TRANSACTION,
                "transaction read-write mode must be set before any query",
            )
        self.modes = modes

    async def commit(self) -> None:
        """End the transaction, explicit or not; it is over whatever this raises (KvorumError)."""
        t, self._t = self._t, None
        try:
            if t is not None:
                await self.fence.hold(t)
                await t.commit()
        finally:
            self._end(unknown=t is not None and t.state in (TxnState.COMMITTING, TxnState.UNKNOWN))
            if t is not None and t.state is TxnState.OPEN:
                await t.abort()

    async def roll_back(self) -> None:
        """End the transaction; nothing of it stays."""
        t, self._t = self._t, None
        self._end()
        if t is not None and t.state is TxnState.OPEN:
            await t.abort()

    async def fail(self) -> None:
        """A statement failed: a block fails, an implicit transaction is gone."""
        if not self.explicit:
            await self.roll_back()
            return
        self.status = "E"
        if not self._savepoints and self._t is not None:
            t, self._t = self._t, None
            if t.state is TxnState.OPEN:
                await t.abort()

    def _end(self, *, unknown: bool = False) -> None:
        self.status = "I"
        self._savepoints.clear()
        self.modes = Modes()
        self.statements = 0
        self.wrote = False
        self.fence.forget(unknown=unknown)
        self.deferred.end()

    async def renew(self) -> None:
        """Go on with a new snapshot: what was declared since is to be seen. Nothing was written."""
        assert not self.wrote
        t, self._t = self._t, None
        if t is not None:
            await t.abort()
        for one in self._savepoints:
            one.mark = None

    # -- savepoints

    def savepoint(self, name: str, settings: Marked) -> None:
        """`settings`: what `roll_back_to` is to answer."""
        if len(self._savepoints) >= SQL_SAVEPOINTS_MAX:
            raise SqlError(
                LIMIT_EXCEEDED, f"more than {SQL_SAVEPOINTS_MAX} savepoints in one transaction"
            )
        mark = None if self._t is None else self._t.mark()
        self._savepoints.append(_Savepoint(name, mark, settings))

    def release(self, name: str) -> None:
        """Raises SqlError (3B001)."""
        at = self._find(name)
        del self._savepoints[at:]
        if not self._savepoints and self._t is not None:
            self._t.forget_marks()

    async def roll_back_to(self, name: str) -> Marked:
        """Raises SqlError (3B001), and 40001 when the store's transaction is over by itself."""
        at = self._find(name)
        del self._savepoints[at + 1 :]
        mark = self._savepoints[at].mark
        if self._t is not None:
            if mark is None:
                t, self._t = self._t, None
                await t.abort()
            else:
                self._t.undo_to(mark)
        self.status = "T"
        return self._savepoints[at].settings

    def _find(self, name: str) -> int:
        if not self.explicit:
            raise SqlError(
                NO_ACTIVE_TRANSACTION, "SAVEPOINT can only be used in transaction blocks"
            )
        for at in range(len(self._savepoints) - 1, -1, -1):
            if self._savepoints[at].name == name:
                return at
        raise SqlError(UNDEFINED_SAVEPOINT, f'savepoint "{name}" does not exist')


def with_changes(
    modes: Modes, isolation: str | None = None, read_only: bool | None = None
) -> Modes:
    """The modes that BEGIN or SET TRANSACTION asks for. READ COMMITTED and below keep their names
    and behave as repeatable read, which keeps all that they promise.
    """
    if isolation is not None:
        modes = replace(modes, isolation=isolation)
    if read_only is not None:
        modes = replace(modes, read_only=read_only)
    return modes


def is_conflict(error: KvorumError) -> bool:
    """Whether the same statement may simply run again: nothing of it was written."""
    return error.disposition == "restart_txn"

"""The transaction block of one session: BEGIN to COMMIT, or what comes between two syncs.

    I idle ──statement──▶ I with an implicit transaction ──sync, COMMIT──▶ commit, I
      │ BEGIN             │ BEGIN: it goes on as a block ──▶ T
      ▼                   └ROLLBACK, error──▶ gone, I
    T in a block ──error──▶ E failed ──ROLLBACK, COMMIT──▶ rolled back, I
      │ COMMIT → commit, I        └ROLLBACK TO──▶ T

The store's transaction begins with the first statement that needs it, so that BEGIN is not the
moment of the snapshot, as in PostgreSQL; its modes are settled before, when something depends on
them. What the session has for itself (temporary tables: `txn.private`) is the block's, not that of
the store's transaction: it needs no snapshot, and goes on where a definition renews that. The
statements of one message are a block that nobody opened (`implicit`): what only makes
sense in a block is taken there, but savepoints. A failed block keeps its store transaction while it
has a savepoint to go back to; else it is aborted at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from kv.base.errors import KvorumError
from kv.base.limits import SQL_SAVEPOINTS_MAX
from sqlproxy.catalog.fence import Fence
from sqlproxy.front.bound import statements as s
from sqlproxy.session.state.notes import NoteMark, Notes
from sqlproxy.session.state.settings import READ_COMMITTED, Marked, only_reads
from sqlproxy.tables.deferring import Deferred, Said
from sqlproxy.tables.writing import Outcome
from sqlproxy.values.errors import (
    ACTIVE_TRANSACTION,
    LIMIT_EXCEEDED,
    NO_ACTIVE_TRANSACTION,
    UNDEFINED_SAVEPOINT,
    SqlError,
)
from sqlproxy.wire.seam import Status
from txn.client import TxnClient
from txn.private import PrivateMark, PrivateRows, PrivateWrites
from txn.shared.wait_terms import USUAL, Terms
from txn.transaction import Mark, Transaction, TxnState

SERIALIZABLE: Final = "serializable"
RENEWING: Final = (READ_COMMITTED, "read uncommitted")
_CONTROL: Final = frozenset({s.Begin, s.Commit, s.Rollback, s.Savepoint, s.Release, s.RollbackTo})
_SETTINGS: Final = frozenset({s.SetTransaction, s.SetVariable, s.Reset, s.Show})
_OTHERS: Final = frozenset(
    {s.LockTable, s.SetConstraints, s.Fetch, s.Notify, s.Listen, s.Empty, s.Ignored}
)
_BLIND: Final = _CONTROL | _SETTINGS | _OTHERS
"""What sees nothing of the database, so that it may come before SET TRANSACTION."""


@dataclass(frozen=True, slots=True)
class Modes:
    """How a transaction reads and waits. `isolation`: as it was asked for; READ UNCOMMITTED is READ
    COMMITTED. `at`: a timestamp of the past, 0 = its own begin. `sealed`: read-only, whatever is
    asked for.
    """

    isolation: str = READ_COMMITTED
    read_only: bool = False
    deferrable: bool = False
    at: int = 0
    terms: Terms = USUAL
    sealed: bool = False


@dataclass(slots=True)
class _Savepoint:
    name: str
    mark: Mark | None  # None: nothing was read or written yet
    private: PrivateMark | None  # None: nothing was private yet
    settings: Marked
    modes: Modes
    notes: NoteMark
    constraints: Said


@dataclass(slots=True)
class Sole:
    """The one statement of an implicit transaction, in case that it has to run again. `told`: its
    outcome may have gone out.
    """

    again: Callable[[], Awaitable[Outcome]]
    outcome: Outcome
    told: bool = True


class Block:
    """See the module. `status` is that of ReadyForQuery."""

    def __init__(self, client: TxnClient, fence: Fence) -> None:
        self._client = client
        self.fence = fence
        self.status: Status = "I"
        self.implicit = False  # several statements came in one message
        self.queried = False  # some statement has seen the database: it has a snapshot
        self.after_another = False  # another statement came before the one under way, …
        self._came = False  # … or will have come before the next
        self._modes: Modes | None = None  # None: nothing depends on them yet
        self._t: Transaction | None = None
        self.rows: PrivateRows | None = None  # what the session has for itself, …
        self._beside: PrivateWrites | None = None  # … as the transaction sees and writes it
        self._savepoints: list[_Savepoint] = []
        self.deferred = Deferred()  # constraints that are checked at the commit
        self.notes = Notes()  # what is said to others at the commit
        self.statements = 0  # run in the store's transaction
        self.wrote = False
        self.outcomes: list[Outcome] = []  # of its changes: what a refused condition may mean
        self.sole: Sole | None = None
        self.lone = False  # a Sync follows the statement: see `sqlproxy.wire.seam.Session`

    @property
    def transaction(self) -> Transaction | None:
        """The store's, if a statement needed one."""
        return self._t

    @property
    def modes(self) -> Modes:
        """Of the transaction; those of the next one are not settled."""
        return self._modes or Modes()

    @property
    def at_rest(self) -> bool:
        """Whether the next statement is a transaction by itself."""
        idle = self.status == "I" and self._t is None and self._modes is None
        return idle and not self.notes and self._beside is None

    @property
    def busy(self) -> bool:
        """Whether there is something to commit, or to let go."""
        return self._t is not None or bool(self.notes) or self._beside is not None

    @property
    def beside(self) -> PrivateWrites | None:
        """What the session has for itself, if the transaction has used it."""
        return self._beside

    def private(self) -> PrivateWrites:
        """The same, from now on. Raises Unavailable: it is in doubt."""
        assert self.rows is not None
        if self._beside is None:
            self._beside = PrivateWrites(self.rows)
            for one in self._savepoints:
                one.private = self._beside.mark()
            self._join()
        return self._beside

    def _join(self) -> None:
        if self._t is not None and self._beside is not None:
            self._beside.ts, self._t.beside = self._t.start_ts, self._beside

    @property
    def explicit(self) -> bool:
        return self.status != "I"

    @property
    def open(self) -> bool:
        """Whether a block is open, with BEGIN or without."""
        return self.status != "I" or self.implicit

    @property
    def settled(self) -> bool:
        """Whether the modes of the transaction are."""
        return self._modes is not None

    @property
    def has_savepoints(self) -> bool:
        """Whether ROLLBACK TO may take back what was done."""
        return bool(self._savepoints)

    @property
    def depth(self) -> int:
        """How many savepoints there are."""
        return len(self._savepoints)

    def wait(self, lock_wait_ms: int | None) -> None:
        """From now on its statements wait so long for locks; None: as long as it takes."""
        if self._modes is None or self._modes.terms.lock_wait_ms == lock_wait_ms:
            return
        terms = replace(self._modes.terms, lock_wait_ms=lock_wait_ms)
        self._modes = replace(self._modes, terms=terms)
        if self._t is not None:
            self._t.wait(terms)

    def comes(self, kind: type) -> None:
        """A statement of the transaction, which those after it cannot do without."""
        self.after_another = self._came
        self._came = self._came or kind not in _CONTROL
        self.queried = self.queried or kind not in _BLIND

    def settle(self, modes: Modes) -> None:
        """These are the transaction's modes, if it has none."""
        if self._modes is None:
            self._modes = modes

    async def work(self, modes: Modes, *, locks: bool = False) -> Transaction:
        """The store's transaction; begun now if there is none. `modes`: see `settle`. `locks`: for
        a query that locks rows.
        """
        if self._t is None:
            self.settle(modes)
            isolation = "serializable" if self.modes.isolation == SERIALIZABLE else "snapshot"
            # A change by itself is run again after a conflict, and locks nothing; a query by
            # itself that locks may see what it has waited for.
            alone = self.lone and not self.explicit
            renews = locks if alone else self.modes.isolation in RENEWING
            self._t = await self._client.begin(
                isolation=isolation, terms=self.modes.terms, renews=renews
            )
            for one in self._savepoints:
                one.mark = self._t.mark()
            if self.rows is not None:
                self.private()
            self._join()
        return self._t

    def renews_for(self, kind: type) -> bool:
        """Whether a statement is to have a snapshot of its own, and others had one before it."""
        return self._t is not None and self._t.renews and kind not in _BLIND

    async def renew_snapshot(self) -> None:
        """At READ COMMITTED each statement sees what is committed when it begins."""
        assert self._t is not None
        await self._t.renew()

    # -- BEGIN, COMMIT, ROLLBACK

    def rest(self) -> None:
        """An implicit transaction that did nothing is over."""
        self._modes = None
        self.queried = self._came = False

    def begin(self) -> None:
        """Open a block. An implicit transaction that is under way becomes its beginning."""
        assert not self.explicit
        assert self.settled
        self.status = "T"

    def change(self, wanted: s.Begin) -> None:
        """Of BEGIN and SET TRANSACTION: what is said there changes. Raises SqlError (25001): it is
        too late for that.
        """
        modes = self.modes
        late = self.queried or self._t is not None
        inside = self.has_savepoints
        if wanted.isolation not in (None, modes.isolation):
            if late:
                raise _late("SET TRANSACTION ISOLATION LEVEL must be called before any query")
            if inside:
                raise _late(
                    "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction"
                )
        if wanted.read_only is False and modes.read_only:
            if modes.sealed:
                raise only_reads()
            if inside:
                raise _late("cannot set transaction read-write mode inside a read-only transaction")
            if late:
                raise _late("transaction read-write mode must be set before any query")
        if wanted.deferrable is not None:
            if inside:
                raise _late(
                    "SET TRANSACTION [NOT] DEFERRABLE cannot be called within a subtransaction"
                )
            if late:
                raise _late("SET TRANSACTION [NOT] DEFERRABLE must be called before any query")
        self._modes = with_changes(modes, wanted)

    async def commit(self) -> None:
        """End the transaction, explicit or not; it is over whatever this raises (KvorumError)."""
        t, self._t = self._t, None
        try:
            if t is not None:
                await self.fence.hold(t, self._client.get)
                await t.commit()
            elif self._beside is not None:
                await self._beside.check()
                await self._beside.commit()
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
        if self._savepoints:
            return
        self._beside = None
        if self._t is not None:
            t, self._t = self._t, None
            if t.state is TxnState.OPEN:
                await t.abort()

    def _end(self, *, unknown: bool = False) -> None:
        self.status = "I"
        self._savepoints.clear()
        self._beside = None
        self._modes = None
        self.queried = self._came = False
        self.statements = 0
        self.wrote = False
        self.fence.forget(unknown=unknown)
        self.deferred.end()
        if self.notes:
            self.notes = Notes()

    async def renew(self, *, keep: bool) -> None:
        """Go on with a new snapshot: what was declared since is to be seen. Nothing was written.
        `keep`: rows that READ COMMITTED has locked stay so. (What changes a table that is there
        would wait for them.)
        """
        assert not self.wrote
        if keep and self._t is not None and self._t.renews:
            await self._t.renew()
            return
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
        notes = self.notes.mark()
        private = None if self._beside is None else self._beside.mark()
        said = self.deferred.said
        self._savepoints.append(_Savepoint(name, mark, private, settings, self.modes, notes, said))

    def release_from(self, at: int) -> None:
        """Savepoints from this number on are no more; what was done after them stays."""
        self._modes = self._savepoints[at].modes  # PostgreSQL's READ ONLY ends with it, too
        del self._savepoints[at:]
        if self._savepoints:
            return
        t = self._t
        if t is not None and t.state is TxnState.OPEN:
            t.forget_marks()
        if self._beside is not None:
            self._beside.forget_marks()

    async def roll_back_to(self, at: int) -> Marked:
        """What was done since the savepoint of this number is taken back. Raises SqlError (40001)
        when the store's transaction is over by itself.
        """
        del self._savepoints[at + 1 :]
        mark = self._savepoints[at].mark
        self.notes.undo_to(self._savepoints[at].notes)
        if self._beside is not None:
            self._beside.undo_to(self._savepoints[at].private)
        if self._t is not None:
            if mark is None:
                t, self._t = self._t, None
                await t.abort()
            else:
                self._t.undo_to(mark)
                await self._t.unlock_to(mark)
        if self.explicit:
            self.status = "T"
        self._modes = self._savepoints[at].modes
        self.deferred.said = self._savepoints[at].constraints
        return self._savepoints[at].settings

    def find(self, name: str) -> int:
        """The number of the last savepoint with this name. Raises SqlError (3B001)."""
        if not self.explicit:
            raise SqlError(
                NO_ACTIVE_TRANSACTION, "SAVEPOINT can only be used in transaction blocks"
            )
        for at in range(len(self._savepoints) - 1, -1, -1):
            if self._savepoints[at].name == name:
                return at
        raise SqlError(UNDEFINED_SAVEPOINT, f'savepoint "{name}" does not exist')


def with_changes(modes: Modes, wanted: s.Begin) -> Modes:
    """The modes that BEGIN or SET TRANSACTION asks for."""
    said = {name: getattr(wanted, name) for name in ("isolation", "read_only", "deferrable")}
    return replace(modes, **{name: value for name, value in said.items() if value is not None})


def _late(message: str) -> SqlError:
    return SqlError(ACTIVE_TRANSACTION, message)


def is_conflict(error: KvorumError) -> bool:
    """Whether the same statement may simply run again: nothing of it was written."""
    return error.disposition == "restart_txn"

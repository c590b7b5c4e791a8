"""A client of a workload: it does one thing after the other and remembers the answers.

The rule that all checkers lean on is here: what a refusal *promises* is recorded. An error whose
disposition is not `unknown_outcome` promises that nothing was done and nothing will be; a write
that appears after all is then an anomaly. An unknown outcome promises nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kv.base.errors import ConditionFailed, KvorumError, TxnAborted
from kvorum.api.model import TxnState
from kvorum.sdk.database import AsyncDatabase
from kvorum.sdk.tables import AsyncTable, AsyncTransaction
from kvorum.verify.history import Recorder, outcome_of
from kvorum.verify.random_choices import Chance

T = TypeVar("T")

NAMESPACE: Final = "verify"
ASK_STATUS: Final = 0.5
"""How often an unknown commit is asked about; else it stays unknown, as after a crash."""


class Client:
    """One process of a workload. `process` is its number in the history: a new one after an unknown
    outcome, which its old request may still bring about.
    """

    def __init__(
        self,
        db: AsyncDatabase,
        recorder: Recorder,
        chance: Chance,
        *,
        number: int,
        clients: int,
        table: str,
        isolation: str = "snapshot",
    ) -> None:
        """`number` of `clients`, of which the last one only reads the end; `table` is the
        workload's, in namespace `verify`.
        """
        self.db = db
        self.recorder = recorder
        self.chance = chance
        self.number = number
        self.process = number
        self.isolation = isolation
        self.table_name = table
        self.clients = clients
        self.refusals = 0
        """How many operations in a row were not acknowledged: reason to pause."""

    @property
    def table(self) -> AsyncTable:
        return self.db.table(NAMESPACE, self.table_name)

    # ------------------------------------------------------------------------------- recording

    def invoke(self, f: str, args: object = None) -> int:
        """An operation begins; what its end takes."""
        return self.recorder.invoke(self.process, f, args)

    def ok(self, op: int, result: object = None, **info: object) -> None:
        self.refusals = 0
        self.recorder.ok(op, result, **info)

    def failed(self, op: int, error: KvorumError, **info: object) -> None:
        """It certainly did nothing: it only reads, or the error says so."""
        self.refusals += 1
        self.recorder.fail(op, error.code, **info, **_wrong(error))

    def refused(self, op: int, error: KvorumError, **info: object) -> None:
        """The end of a write that was not acknowledged: what the error says that it is."""
        if outcome_of(error) == "unknown":
            self.refusals += 1
            self.recorder.unknown(op, error.code, **info, **_wrong(error))
            self.process += self.clients
        else:
            self.failed(op, error, **info)

    # ------------------------------------------------------------------------------ operations

    async def read(self, f: str, args: object, call: Callable[[], Awaitable[object]]) -> bool:
        """Record `call()`, which changes nothing: an error is a `fail`. True if it was answered."""
        op = self.invoke(f, args)
        try:
            result = await call()
        except KvorumError as e:
            self.failed(op, e)
            return False
        self.ok(op, result)
        return True

    async def write(self, f: str, args: object, call: Callable[[], Awaitable[int]]) -> int | None:
        """Record `call()`, which writes and returns a version; the version if it was acknowledged.

        Raises nothing but what is no answer of the database.
        """
        op = self.invoke(f, args)
        try:
            version = await call()
        except KvorumError as e:
            self.refused(op, e)
            return None
        self.ok(op, None, version=version)
        return version

    async def transact(
        self,
        f: str,
        args: object,
        body: Callable[[AsyncTransaction], Awaitable[object]],
        *,
        isolation: str = "",
    ) -> bool:
        """Record a transaction; its result is what `body` returns. True if it was acknowledged.

        Until the commit is asked for nothing can happen, so every error before it is a `fail`.
        """
        op = self.invoke(f, args)
        try:
            t = await self.db.transaction(isolation=isolation or self.isolation)
            try:
                result = await body(t)
            except BaseException as e:
                await t.__aexit__(type(e), e, None)
                raise
        except KvorumError as e:
            self.failed(op, e)
            return False
        try:
            version = await t.commit()
        except KvorumError as e:
            return await self._commit_failed(op, t, e, result)
        self.ok(op, result, txn=t.id, version=version)
        return True

    async def _commit_failed(
        self, op: int, t: AsyncTransaction, error: KvorumError, result: object
    ) -> bool:
        if outcome_of(error) != "unknown" or not self.chance.happens(ASK_STATUS):
            self.refused(op, error, txn=t.id)
            return False
        try:
            state: TxnState = await self.db.status(t.id)
        except KvorumError as e:
            self.refused(op, error, txn=t.id, status=e.code)
            return False
        if state.status == "committed":
            self.ok(op, result, txn=t.id, version=state.commit_ts, asked=True)
            return True
        if state.status == "aborted":
            self.failed(op, TxnAborted("asked"), txn=t.id, asked=True)
            return False
        self.refused(op, error, txn=t.id, status=state.status)
        return False


def _wrong(error: KvorumError) -> dict[str, str]:
    """The text of an error that no workload should ever meet; checkers/refusals.py reports it."""
    meant = error.disposition != "no" or isinstance(error, ConditionFailed)
    return {} if meant else {"wrong": error.message}

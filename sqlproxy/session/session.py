"""One client's session as the wire calls it (`sqlproxy.wire.seam.Session`).

    parse ─▶ Prepared (bound statement + what was compiled for it; remembered for all sessions)
    bind  ─▶ Portal   ─ fetch ─▶ `dispatch` says what it runs
    sync  ─▶ an implicit transaction is committed

Errors leave as SqlError; what the store refuses is translated in one place (`outcomes`).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import partial
from typing import Final

from kv.base.errors import KvorumError
from sqlproxy.front import front
from sqlproxy.loop.statement_threads import aside, is_long
from sqlproxy.pg.answers import Values
from sqlproxy.session import preparing
from sqlproxy.session.dispatch import bind
from sqlproxy.session.running import short_requests, transactions
from sqlproxy.session.shared.prepared import Prepared, described_alike
from sqlproxy.session.state.state import State
from sqlproxy.values.enums import Unfit
from sqlproxy.values.errors import Detail, SqlError
from sqlproxy.values.memory import Budget
from sqlproxy.wire.seam import Channel, Done, Portal, Statement, Status

SHORT_US: Final = 100
"""What a statement of one row computes, about: to measure each would cost a tenth of it."""


class SqlSession:
    """See the module."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._monotonic = state.services.client.timers.monotonic
        self.channel: Channel = state.channel
        self.budget: Budget = state.budget
        self.use = state.use
        self.statements: MutableMapping[str, Statement] = state.statements
        self.portals: MutableMapping[str, Portal] = state.cursors.portals
        # These are called as they are: each statement of a block would pay for a frame more.
        self.known = partial(preparing.known, state)
        self.parse = partial(preparing.parse, state)
        self.sync = partial(transactions.sync, state)
        self.guard = state.interrupts.guard
        self.cancel = state.interrupts.cancel

    @property
    def lone(self) -> bool:
        return self._state.block.lone

    @lone.setter
    def lone(self, lone: bool) -> None:
        self._state.block.lone = lone

    @property
    def status(self) -> Status:
        return self._state.block.status

    @property
    def idle_ms_max(self) -> int:
        settings = self._state.settings
        if self._state.block.status == "I":
            return settings.ms("idle_session_timeout")
        return settings.ms("idle_in_transaction_session_timeout")

    async def split(self, text: str) -> list[str]:
        state = self._state
        if is_long(text):
            parts = await self.guard(aside(text, front.split, text), reads=True)
        else:
            parts = front.split(text)
        state.block.lone = len(parts) == 1
        state.block.implicit = len(parts) > 1
        state.activity.message = text
        return parts

    async def look_again(self) -> None:
        state = self._state
        state.services.catalogs.forget(state.database)
        await state.declared()

    async def bind(self, statement: Statement, values: Values) -> Portal:
        assert isinstance(statement, Prepared)
        return await bind(self._state, statement, values)

    def start(self, statement: Statement, values: Values, done: Done) -> bool:
        assert isinstance(statement, Prepared)
        state = self._state
        declared = state.services.catalogs.fresh(state.database)
        if declared is not None:
            declared = state.along(declared)
        if declared is not None and statement.declared is not declared:  # see `preparing.current`
            oids = tuple(statement.parameters)
            again = preparing.remembered(state, statement.text, oids, declared)
            if again is None or not described_alike(again, statement):
                return False
            statement = again
        if declared is None or state.advising.any or not state.permits.holds(statement):
            return False
        if state.tenant.limited or state.place.limited:
            return False  # the usual way asks
        if state.services.audit is not None:
            return False  # the usual way tells it
        activity = state.activity
        activity.query, activity.started_s = statement.text, self._monotonic()
        if not short_requests.start(state, declared, statement, values, done):
            return False
        for account in state.use.accounts:
            account.requests += 1
            account.rows += 1
            account.sql_us += SHORT_US
        return True

    async def failed(self, error: BaseException) -> None:
        try:
            await self.word(error)  # before the end of a transaction takes SET LOCAL ROLE back
        finally:
            await transactions.failed(self._state)

    async def word(self, error: BaseException) -> None:
        """What it tells of a row without the columns that the user may not read, and of a type with
        the schema that the path does not lead to.
        """
        permits = self._state.permits
        detail = error.detail if isinstance(error, SqlError) and not permits.free else None
        if not isinstance(detail, Detail) and not isinstance(error, Unfit):
            return
        assert isinstance(error, SqlError)
        if isinstance(detail, Detail):
            error.detail = ""
        try:
            declared = await self._state.declared()
        except KvorumError:
            return  # who may read what cannot be asked now
        if isinstance(error, Unfit):
            error.say(declared.schema_said(error.enum))
        if not isinstance(detail, Detail):
            return
        rights, user = permits.rights(declared), permits.acting
        error.detail = detail.readable(
            lambda table, columns: (
                rights.allows_columns(user, table, "r", columns)
                if columns
                else rights.allows(user, table, "r")
            )
        )

    async def close(self) -> None:
        state = self._state
        state.services.roster.remove(state)
        state.advising.close()
        state.listening.close()
        await state.cursors.close_all()
        await state.block.roll_back()
        for account in state.use.accounts:
            account.disconnect()
        state.statements.clear()
        state.budget.end()

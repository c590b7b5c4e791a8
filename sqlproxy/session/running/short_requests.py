"""Runs what `sqlproxy.tables.short_statements` asks: one request, or two, each sent at once and
answered by a call, so that a statement that is a transaction by itself costs no task and no
transaction.

    start ─▶ False: the usual way                     (the session is in something else, a lock
         └▶ request ─reply─▶ done(Answered | error)    timeout is set, the schema is not fresh, …)
                        └─▶ done(None): the usual way  (it was refused, and nothing was written)

It promises what the usual way does. The fence of schema changes is looked at where the write is
sent (sqlproxy.catalog.fence): what was not looked up just now is not sent from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from kv.base.errors import UnknownOutcome
from kv.base.limits import SQL_COMMIT_MS_MAX, SQL_FENCE_MS, SQL_SHORT_CALLS_MAX
from kv.base.ops import Op, delete
from kv.base.wire_row import WireRow
from kv.client.links import LinkExpired, LinkLost, Receiver
from sqlproxy.catalog.declaration_users import Use
from sqlproxy.declared.database import Declared
from sqlproxy.pg.answers import Answered, Values
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.session.running.environment import SessionEnv
from sqlproxy.session.running.numbers import Numbers
from sqlproxy.session.shared.prepared import Prepared
from sqlproxy.session.state.activity import moment
from sqlproxy.session.state.state import State
from sqlproxy.tables.short_statements import ShortChange, ShortInsert, ShortSelect, short_of
from sqlproxy.values.breaks import BREAKS, NO_BREAKS
from sqlproxy.values.errors import SqlError, from_store
from sqlproxy.wire.seam import Done

Then = Callable[["_Run", list[Any]], Answered | None]


def start(
    session: State, declared: Declared, prepared: Prepared, values: Values, done: Done
) -> bool:
    """See `sqlproxy.wire.seam.Session`. `declared`: what is known to hold now."""
    if not (session.block.at_rest and session.settings.plain):
        return False
    if declared is not prepared.declared:
        return False
    short = prepared.short
    if session.setvals:
        session.setvals.clear()
    try:
        if short is True:
            short = prepared.short = short_of(prepared.plan, declared)
        begin = _BEGIN.get(type(short))
        if begin is None:
            return False
        run = _Run(session, declared, short, values, done)
        BREAKS.set(run)
        return begin(run)
    except Exception:  # noqa: BLE001 - the usual way meets it again, and says so to the client
        return False
    finally:
        BREAKS.set(NO_BREAKS)
        session.activity.transaction_us = 0  # of now(): each is a transaction of its own


class Declined(Exception):
    """It has to go the usual way."""


class _Env(SessionEnv):
    """Nearly no statement of one row asks for the time, and one that does is a transaction by
    itself: it is what it is when it is asked for first.
    """

    __slots__ = ()

    def __init__(self, session: State, values: Values) -> None:
        self.params = values
        self.slept = 0.0
        self.memo = None
        self._session, self.numbers = session, Numbers(session.currvals)
        self._began_us = 0

    def transaction_time(self) -> datetime:
        if not self._began_us:
            self._began_us = self._session.services.clock.now_ms() * 1000
        return moment(self._began_us)

    def statement_time(self) -> datetime:
        return self.transaction_time()

    def notify(self, channel: str, payload: str) -> None:
        """Raises Declined."""
        raise Declined


class _Run(Use, Receiver):
    """One statement under way: it waits for its replies itself, and while it lives a schema change
    waits for it. `then`: of a read that was sent; it answers, or has sent something (None), or
    raises. Else `answer` is called when the write is done.
    """

    __slots__ = (
        *("answer", "calls", "declared", "env", "finish", "key", "session", "short", "then"),
        *("table", "wrote"),
    )

    def __init__(
        self, session: State, declared: Declared, short: Any, values: Values, done: Done
    ) -> None:
        presence = session.services.catalogs.presence
        Use.__init__(self, presence, declared.database, declared.version)
        self.session, self.declared, self.short, self.finish = session, declared, short, done
        self.env = _Env(session, values)
        self.key = b""  # that it reads
        self.calls = 0
        self.then: Then | None = None
        self.answer: Answered | None = None
        self.table, self.wrote = b"", 1  # how many rows of which table

    def take(self) -> None:
        """There are no breaks on this way: what may compute long goes the usual one. Raises
        Declined.
        """
        raise Declined

    def hasten(self) -> None:
        """What is short may be there, but not often. Raises Declined."""
        self.calls += 1
        if self.calls > SQL_SHORT_CALLS_MAX:
            raise Declined

    def send(self, ops: list[Op], answer: Answered) -> bool:
        """Write, and answer so when it is done; whether that could be sent."""
        if not self._may_send():
            return False
        self.answer, self.table = answer, ops[0].key[:4]
        client = self.session.services.client
        return client.start_write(self, ops, budget_ms=SQL_COMMIT_MS_MAX)

    def send_put(self, key: bytes, value: bytes, cond: int, answer: Answered) -> bool:
        """`send` of one row that has this version now, 0: is new."""
        if not self._may_send():
            return False
        self.answer, self.table = answer, key[:4]
        client = self.session.services.client
        return client.start_put(self, key, value, cond, budget_ms=SQL_COMMIT_MS_MAX)

    def send_rows(self, keys: list[bytes], values: list[bytes], answer: Answered) -> bool:
        """`send` of rows that must be new; their keys rise."""
        if not self._may_send():
            return False
        self.answer, self.table, self.wrote = answer, keys[0][:4], len(keys)
        client = self.session.services.client
        return client.start_rows(self, keys, values, absent=True, budget_ms=SQL_COMMIT_MS_MAX)

    def _may_send(self) -> bool:
        """Not when what it was bound to was looked up long ago: then the commit has to hold the
        schema's row. Nor if setval() was called: that is done after the statement.
        """
        session = self.session
        if session.setvals:
            return False
        services = session.services
        looked = services.catalogs.looked(self.declared)
        return (services.client.timers.monotonic() - looked) * 1000 <= SQL_FENCE_MS

    def read(self, key: bytes, then: Then) -> bool:
        """Go on with what this key has now; what failed is read again the usual way."""
        self.key, self.then = key, then
        return self.session.services.client.start_get(self, key)

    # -- Receiver

    def set_result(self, result: list[object], /) -> None:
        then, self.then = self.then, None
        answer = self.answer
        if then is not None:
            try:
                BREAKS.set(self)
                answer = then(self, result)
            except Exception:  # noqa: BLE001 - the usual way meets it again, and says so
                self._over(None)
                return
            finally:
                BREAKS.set(NO_BREAKS)
            if answer is None:
                return
        elif (statistics := self.session.services.statistics) is not None:
            statistics.changed[int.from_bytes(self.table)] += self.wrote
        self._over(answer)

    def set_exception(self, error: Exception, /) -> None:
        then, self.then = self.then, None
        if then is not None:
            self._over(None)
            return
        if isinstance(error, UnknownOutcome):
            self.end(unknown=True)
            self._over(from_store(error))
        elif isinstance(error, LinkLost | LinkExpired) and error.sent:
            self.end(unknown=True)
            self._over(_unknown(str(error)))
        else:
            self.end()
            self._over(None)

    def _over(self, answer: Answered | SqlError | None) -> None:
        try:
            self.finish(answer)
        except Exception as error:  # noqa: BLE001 - one client's end is nobody else's
            asyncio.get_running_loop().call_exception_handler(
                {"message": "the answer to a statement could not be given", "exception": error}
            )


def _unknown(why: str) -> SqlError:
    return from_store(
        UnknownOutcome(f"the reply to the write was lost, it may or may not have been done: {why}")
    )


def _select(run: _Run) -> bool:
    key = run.short.key(run.env)
    return key is not None and run.read(key, _selected)


def _selected(run: _Run, reply: WireRow) -> Answered:
    rows = run.short.rows(run.key, reply[0], run.env)
    if run.session.setvals:
        raise Declined
    return Answered("SELECT 1" if rows else "SELECT 0", rows)


def _insert(run: _Run) -> bool:
    short: ShortInsert = run.short
    session, env = run.session, run.env
    wanted = short.numberings
    if wanted is None:
        declared = run.declared
        wanted = [(name, declared.numbering(name), count) for name, count in short.sequences]
        short.numberings = wanted
    pool = session.numbers
    taken: list[tuple[SequenceRow, list[int]]] = []
    for name, sequence, count in wanted:
        numbers = pool.at_once(sequence, count)
        if numbers is None:
            break
        taken.append((sequence, numbers))
        env.numbers.add(name, sequence, numbers, 0)
    sent = False
    try:
        sent = len(taken) == len(wanted) and _inserted(run, short, env)
    finally:
        if not sent:  # the usual way takes them anew
            for sequence, numbers in taken:
                pool.take_back(sequence, numbers)
    return sent


def _inserted(run: _Run, short: ShortInsert, env: _Env) -> bool:
    """Whether the rows could be sent."""
    if short.single is not None:
        made = short.single(env)
        return made is not None and run.send_put(*made, 0, short.done)
    rows = short.many(env)
    if rows is not None:
        return run.send_rows(*rows, short.done)
    ops, result = short.ops(env)
    if ops is None:
        return False
    return run.send(ops, Answered(short.done.tag, result))


def _change(run: _Run) -> bool:
    key = run.short.key(run.env)
    return key is not None and run.read(key, _changed)


def _changed(run: _Run, reply: WireRow) -> Answered | None:
    short: ShortChange = run.short
    found, version = reply[0], reply[1]
    changed = short.change(run.key, found, version, run.env)
    if changed is None:
        return Answered("DELETE 0" if short.removes else "UPDATE 0")
    value, result = changed
    if value is None:
        sent = run.send([delete(run.key, version)], Answered("DELETE 1", result))
    else:
        sent = run.send_put(run.key, value, version, Answered("UPDATE 1", result))
    if not sent:
        raise Declined
    return None


_BEGIN: Final[dict[type, Callable[[_Run], bool]]] = {
    ShortSelect: _select,
    ShortInsert: _insert,
    ShortChange: _change,
}

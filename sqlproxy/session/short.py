"""Runs what `sqlproxy.fast.short` asks: one request, or two, each sent at once and answered by a
call, so that a statement that is a transaction by itself costs no task and no transaction.

    start ─▶ False: the usual way                     (the session is in something else, a lock
         └▶ request ─reply─▶ done(Answered | error)    timeout is set, the schema is not fresh, …)
                        └─▶ done(None): the usual way  (it was refused, and nothing was written)

It promises what the usual way does. The fence of schema changes is looked at where the write is
sent (sqlproxy.change.fence): what was not looked up just now is not sent from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kv.base.errors import KvorumError, UnknownOutcome
from kv.base.limits import SQL_COMMIT_MS_MAX, SQL_FENCE_MS
from kv.base.ops import Op
from kv.client.calls import Started
from kv.client.links import LinkExpired, LinkLost
from sqlproxy.answers import Answered, Done
from sqlproxy.errors import SqlError, from_store
from sqlproxy.fast.short import ShortChange, ShortInsert, ShortSelect, short_of
from sqlproxy.fast.writing import DeletePlan
from sqlproxy.session.environment import environment

if TYPE_CHECKING:
    from sqlproxy.session.prepared import Prepared
    from sqlproxy.session.session import SqlSession


def start(session: SqlSession, prepared: Prepared, values: Sequence[Any], done: Done) -> bool:
    """See `sqlproxy.answers.Session`."""
    block = session.block
    if block.explicit or block.transaction is not None or not session.settings.plain:
        return False
    declared = session.services.catalogs.fresh(session.database)
    if declared is None or declared is not prepared.declared:
        return False
    short = prepared.short
    session.setvals.clear()
    try:
        if short is True:
            short = prepared.short = short_of(prepared.plan, declared)
        match short:
            case ShortSelect():
                return _select(_Run(session, prepared, values, done), short)
            case ShortInsert():
                return _insert(_Run(session, prepared, values, done), short)
            case ShortChange():
                return _change(_Run(session, prepared, values, done), short)
            case _:
                return False
    except Exception:  # noqa: BLE001 - the usual way meets it again, and says so to the client
        return False
    finally:
        session.transaction_us = 0  # of now(): each is a transaction of its own


class Declined(Exception):
    """It has to go the usual way."""


class _Run:
    """One statement under way."""

    __slots__ = ("done", "env", "numbers", "prepared", "session", "use")

    def __init__(
        self, session: SqlSession, prepared: Prepared, values: Sequence[Any], done: Done
    ) -> None:
        assert prepared.declared is not None
        self.session, self.prepared, self.done = session, prepared, done
        # A schema change waits for it; it ends with this object.
        self.use = session.services.catalogs.use(prepared.declared)
        self.env, self.numbers = environment(session, values)

    def send(self, ops: list[Op], answer: Answered) -> bool:
        """Write, and answer so when it is done; whether that could be sent."""
        if not self._may_send():
            return False
        client = self.session.services.client
        return self._sent(client.start_write(ops, budget_ms=SQL_COMMIT_MS_MAX), answer)

    def send_rows(self, keys: list[bytes], values: list[bytes], answer: Answered) -> bool:
        """`send` of rows that must be new; their keys rise."""
        if not self._may_send():
            return False
        first = self.session.services.client.start_rows(
            keys, values, absent=True, budget_ms=SQL_COMMIT_MS_MAX
        )
        return self._sent(first, answer)

    def _may_send(self) -> bool:
        """Not when what it was bound to was looked up long ago: then the commit has to hold the
        schema's row. Nor if setval() was called: that is done behind the statement.
        """
        session = self.session
        assert self.prepared.declared is not None
        if session.setvals:
            return False
        looked = session.services.catalogs.looked(self.prepared.declared)
        now = session.services.client.timers.monotonic()
        return (now - looked) * 1000 <= SQL_FENCE_MS

    def _sent(self, first: Started | None, answer: Answered) -> bool:
        if first is None:
            return False
        first.reply.add_done_callback(partial(self._written, answer))
        return True

    def _written(self, answer: Answered, reply: asyncio.Future[list[Any]]) -> None:
        if reply.cancelled():
            self.use.end(unknown=True)
            self.done(_unknown("it was not waited for"))
            return
        error = reply.exception()
        lost = isinstance(error, LinkLost | LinkExpired) and error.sent
        if error is None:
            self.done(answer)
        elif lost or isinstance(error, UnknownOutcome):
            self.use.end(unknown=True)
            self.done(from_store(error) if isinstance(error, KvorumError) else _unknown(str(error)))
        else:
            self.use.end()
            self.done(None)

    def read(self, first: Started, then: Callable[[list[Any]], Answered | None]) -> bool:
        """Go on with the answer of a read; what failed is read again the usual way. `then` answers,
        or has sent something (None), or raises Declined.
        """
        first.reply.add_done_callback(partial(self._read, then))
        return True

    def _read(
        self, then: Callable[[list[Any]], Answered | None], reply: asyncio.Future[list[Any]]
    ) -> None:
        if reply.cancelled() or reply.exception() is not None:
            self.done(None)
            return
        try:
            answer = then(reply.result())
        except Exception:  # noqa: BLE001 - the usual way meets it again, and says so to the client
            self.done(None)
            return
        if answer is not None:
            self.done(answer)


def _unknown(why: str) -> SqlError:
    return from_store(
        UnknownOutcome(f"the reply to the write was lost, it may or may not have been done: {why}")
    )


def _select(run: _Run, short: ShortSelect) -> bool:
    env = run.env
    key = short.key(env)
    if key is None:
        return False
    first = run.session.services.client.start_get(key)
    if first is None:
        return False

    def found(reply: list[Any]) -> Answered:
        rows = short.rows(key, reply[0], reply[1], env)
        if run.session.setvals:
            raise Declined
        return Answered(f"SELECT {len(rows)}", rows)

    return run.read(first, found)


def _insert(run: _Run, short: ShortInsert) -> bool:
    session, prepared = run.session, run.prepared
    assert prepared.declared is not None
    for name, count in short.sequences:
        numbers = session.services.numbers.at_once(prepared.declared.numbering(name), count)
        if numbers is None:
            return False
        run.numbers.add(name, numbers)
    rows = short.many(run.env)
    if rows is not None:
        return run.send_rows(*rows, Answered(f"INSERT 0 {short.count}"))
    ops, told = short.ops(run.env)
    if ops is None:
        return False
    return run.send(ops, Answered(f"INSERT 0 {short.count}", told))


def _change(run: _Run, short: ShortChange) -> bool:
    env, word = run.env, "DELETE" if isinstance(run.prepared.plan, DeletePlan) else "UPDATE"
    key = short.key(env)
    if key is None:
        return False
    first = run.session.services.client.start_get(key)
    if first is None:
        return False

    def found(reply: list[Any]) -> Answered | None:
        op, told = short.op(key, reply[0], reply[1], env)
        if op is None:
            return Answered(f"{word} 0")
        if not run.send([op], Answered(f"{word} 1", told)):
            raise Declined
        return None

    return run.read(first, found)

"""The end of a transaction: checks, the commit, a statement that runs again, what goes with it.

A change that is a transaction by itself is committed before anything of it goes out, and run again
when its commit met a conflict, with the same values, until it fits or SQL_RUNS_MAX is reached; at
READ COMMITTED it locks its rows the second time that it runs again, and waits instead. What was
sent without saying that nothing follows has told its rows already, so it may only end as it ended
before: otherwise the client gets the conflict (40001), as inside a block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kv.base.errors import KeyLocked, KvorumError, WriteConflict
from kv.base.limits import RETRY_WAIT_MS_FIRST, RETRY_WAIT_MS_MAX, SQL_RUNS_MAX
from sqlproxy.session.running.environment import environment
from sqlproxy.session.state.block import RENEWING, Sole, is_conflict
from sqlproxy.session.state.notes import Notes
from sqlproxy.session.state.outcomes import refused, runs_again, violated
from sqlproxy.session.state.state import State
from sqlproxy.tables.referring import check_deferred
from sqlproxy.tables.row_locking import lock_timed_out
from sqlproxy.tables.writing import Outcome, settle
from sqlproxy.values.errors import SqlError
from txn.transaction import Transaction


async def commit_sole(session: State, sole: Sole) -> Outcome:
    """Commit what is all that its transaction does, before its rows go out; what came of it in the
    end. Raises SqlError.
    """
    sole.told = False
    await commit(session)
    return sole.outcome


async def commit(session: State) -> None:
    """Commit the transaction, explicit or not. Raises SqlError; it is over anyway."""
    block = session.block
    sole, outcomes = block.sole, block.outcomes
    block.sole, block.outcomes = None, []
    try:
        session.advising.check()
        if block.deferred and block.beside is not None:
            await session.interrupts.guard(session.work())
        if block.deferred and block.transaction is not None:
            await session.interrupts.guard(check_constraints(session, every=True))
        if session.temporary is not None:
            await session.interrupts.guard(session.temporary.settle())
        if block.notes.wishes:
            await session.interrupts.guard(session.listening.join(block.notes.wishes))
        notes, version = await session.interrupts.undisturbed(_commit(session, sole, outcomes))
    except BaseException:
        session.listening.failed()
        # What ran again after a conflict, and failed then, has begun a transaction: what it wrote
        # there must not be committed with the next statement.
        await block.roll_back()
        raise
    if notes:
        await session.listening.committed(notes, version)


async def check_constraints(session: State, *, every: bool) -> None:
    """Those that were deferred, as things are now; `every`: also those that still are. Raises
    SqlError (23503, 23505), KvorumError.
    """
    block = session.block
    if block.deferred and block.transaction is not None:
        env, _ = environment(session, ())
        declared = await session.declared()
        deferred = block.deferred
        spots, still = deferred.spots, None if every else deferred
        if block.has_savepoints:
            spots.kept |= spots.noted.keys()
        await settle(block.transaction, declared, spots, still)
        done = await check_deferred(block.transaction, declared, env, deferred, every=every)
        if not block.has_savepoints:
            deferred.forget(done)


async def _commit(
    session: State, sole: Sole | None, outcomes: Sequence[Outcome]
) -> tuple[Notes, int]:
    """What it said and wishes to hear, and at which version that was committed."""
    block, runs = session.block, 1
    began_s = asyncio.get_running_loop().time()
    while True:
        notes = block.notes
        if notes.said:
            session.listening.write(notes, await session.work())
        modes, t = block.modes, block.transaction
        try:
            await block.commit()
            return notes, await t.commit() if notes.said and t is not None else 0
        except KvorumError as error:
            conflict = is_conflict(error) or runs_again(error, outcomes)
            if isinstance(error, KeyLocked) and modes.terms.lock_wait_ms:
                raise lock_timed_out(error) from error
            if isinstance(error, KeyLocked) and sole is not None:
                # A lock is held as long as its block is open.
                session.interrupts.listen(asyncio.get_running_loop().time() - began_s)
                conflict, runs = True, 0
            if sole is None or not conflict or runs >= SQL_RUNS_MAX:
                duplicate = None if t is None else await _duplicate(session, t, error, outcomes)
                raise duplicate or refused(error, outcomes) from error
        most = min(RETRY_WAIT_MS_MAX, RETRY_WAIT_MS_FIRST << runs)
        await asyncio.sleep(most * session.services.random() / 1000)
        runs += 1
        await block.work(modes, locks=runs > 2 and modes.isolation in RENEWING)
        before = sole.outcome
        outcome = sole.outcome = await session.interrupts.attempt(sole.again)
        await check_constraints(session, every=True)
        if sole.told and (outcome.count, outcome.rows) != (before.count, before.rows):
            await block.roll_back()
            raise SqlError(
                "40001",
                "could not serialize access due to concurrent update",
                hint="Run the statement again.",
            )
        outcomes = [outcome]


async def _duplicate(
    session: State, t: Transaction, error: KvorumError, outcomes: Sequence[Outcome]
) -> SqlError | None:
    """A conflict at a key that was to be new is a duplicate, if the key is there by now: to run the
    transaction again would not help.
    """
    key = error.details.get("key")
    if not isinstance(error, WriteConflict) or not isinstance(key, bytes):
        return None
    if not t.creates(key) or (found := violated(key, outcomes)) is None:
        return None
    try:
        value, _ = await session.services.client.get(key)
    except KvorumError:
        return None  # the conflict is true, too
    return found if value is not None else None


async def ended(session: State, *, committed: bool) -> None:
    """A block is over."""
    if session.advising.any:
        await session.advising.end_transaction()
    session.variables.report(session.settings.end(committed=committed))
    session.activity.transaction_us = 0
    session.block.sole = None
    session.block.outcomes.clear()
    session.cursors.settle(committed=committed)
    await session.cursors.close_transaction()


async def failed(session: State) -> None:
    """A statement failed: a block fails, an implicit transaction is gone."""
    block = session.block
    block.sole = None
    explicit = block.explicit
    await block.fail()
    if session.advising.any and not block.has_savepoints:
        await session.advising.end_transaction()
    if block.transaction is None:  # else ROLLBACK TO may go on, with what was written
        block.outcomes.clear()
    if not explicit:
        session.variables.report(session.settings.end(committed=False))
        session.cursors.settle(committed=False)
        await session.cursors.close_transaction()


async def sync(session: State) -> None:
    """What was implicit is committed. Raises SqlError, KvorumError: the transaction is over."""
    block, cursors = session.block, session.cursors
    block.lone = block.implicit = False
    session.interrupts.until_s = 0.0
    session.activity.message = ""
    if block.explicit:
        session.rests()
        session.activity.rests()
        return
    committed = False
    try:
        if cursors.held_now:
            await _hold(session)
        if block.busy:
            await commit(session)
        else:
            block.rest()
        committed = True
    finally:
        session.variables.report(session.settings.end(committed=committed))
        session.activity.transaction_us = 0
        if cursors.held_now:
            cursors.settle(committed=committed)
        if cursors.portals.keys() - cursors.held:
            await cursors.close_transaction()
        session.activity.rests()
        session.rests()
        if session.advising.any:
            await session.advising.end_transaction()


async def _hold(session: State) -> None:
    """Raises SqlError, KvorumError: the transaction is over, and its cursors with it."""
    try:
        await session.cursors.hold()
    except BaseException:
        session.cursors.settle(committed=False)
        await session.block.roll_back()
        raise

"""Queries and changes, run: which way each goes, what it reads, what it leaves in the block."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from typing import TypeVar

from kv.base.keys import PRIVATE
from kv.base.limits import SQL_COPY_BATCH_ROWS
from kv.base.timestamps import physical_ms
from sqlproxy.declared.database import Declared
from sqlproxy.front.bound import statements as s
from sqlproxy.front.bound.env import Env, Wanting
from sqlproxy.pg.answers import Row, Values
from sqlproxy.session.running import numbered_queries
from sqlproxy.session.running.as_of import at_replicas, bounded, is_relative, timestamp_of
from sqlproxy.session.running.ask_catalog import PROCEDURES, bring_catalog, keep_catalog
from sqlproxy.session.running.changes_in_with import carried_out, changes_in
from sqlproxy.session.running.environment import environment
from sqlproxy.session.running.first_keys import leading
from sqlproxy.session.running.first_values import first_queries, with_values
from sqlproxy.session.running.known_rows import with_stands
from sqlproxy.session.running.numbers import Numbers
from sqlproxy.session.running.reserving import each, reserve, supply
from sqlproxy.session.shared.prepared import Prepared, plan_of
from sqlproxy.session.state.block import RENEWING, Sole
from sqlproxy.session.state.portal_view import Sight
from sqlproxy.session.state.portals import Batches, at_once, given_up
from sqlproxy.session.state.session_locks import Unanswered
from sqlproxy.session.state.state import State
from sqlproxy.tables.deferring import Deferred, Spots, Together
from sqlproxy.tables.ends import EndsPlan
from sqlproxy.tables.reading import Reads, Touched
from sqlproxy.tables.referring import check_deferred
from sqlproxy.tables.row_locking import Stale
from sqlproxy.tables.select_values import ListingPlan
from sqlproxy.tables.selecting import ConstantPlan, SelectPlan, TooManyRows
from sqlproxy.tables.writing import DeletePlan, InsertPlan, Outcome, UpdatePlan, in_parts, settle
from sqlproxy.values.errors import INVALID_PARAMETER, SqlError, unsupported
from sqlproxy.values.memory import Held
from txn.client import TxnClient
from txn.results import ScanPage, Tally
from txn.transaction import Transaction, TxnReads

T = TypeVar("T")
R = TypeVar("R")


class ReadsAt:
    """Reads of one moment without a transaction; `at` 0: each read has its own, the newest."""

    def __init__(self, client: TxnClient, at: int = 0) -> None:
        self._client, self._at = client, at
        self.read_ts = at

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        _check_past(key)
        return await self._client.get(key, self._at, replicas=True)

    async def multi_get(
        self, keys: Sequence[bytes], *, tally: Tally | None = None
    ) -> list[tuple[bytes, int] | None]:
        if keys:
            _check_past(keys[0])
        return (await self._client.multi_get(keys, self._at, replicas=True, tally=tally))[0]

    async def scan(
        self,
        start: bytes,
        end: bytes,
        *,
        limit: int,
        reverse: bool = False,
        tally: Tally | None = None,
    ) -> ScanPage:
        _check_past(start)
        return await self._client.scan(
            start, end, limit=limit, reverse=reverse, at=self._at, replicas=True, tally=tally
        )

    async def scan_values(
        self, start: bytes, end: bytes, *, limit: int, tally: Tally | None = None
    ) -> tuple[list[bytes], bytes | None] | None:
        return None  # the past is read with what was there then

    async def scan_sealed(
        self, start: bytes, end: bytes, *, limit: int
    ) -> tuple[bytes, bytes, bytes | None] | None:
        return None


def _deferred(session: State) -> Deferred | None:
    """What waits for the commit: a statement that is a transaction by itself ends with its
    checks.
    """
    block = session.block
    return None if block.lone and not block.explicit else block.deferred


def _check_past(key: bytes) -> None:
    """Raises SqlError (0A000)."""
    if key >= PRIVATE:
        raise unsupported("reading the past of a temporary table")


@dataclass(slots=True)
class Job:
    """One run of one change (`sqlproxy.tables.writing.Work`)."""

    session: State
    t: Transaction
    env: Env
    numbers: Numbers
    tables: Declared
    touched: Touched
    alone: bool
    together: Together | None = None  # of several changes of a statement

    @property
    def deferred(self) -> Deferred | None:
        return _deferred(self.session) if self.together is None else self.together

    @property
    def spots(self) -> Spots:
        return self.session.block.deferred.spots

    @property
    def held(self) -> Held:
        return self.session.held

    async def reserve(self, numbers: Mapping[str, int]) -> bool:
        there = True
        for name, count in sorted(numbers.items()):
            there &= await reserve(self.session, self.tables, self.numbers, name, count)
        return there

    async def each(self, make: Callable[[T], R], rows: Iterable[T]) -> list[R]:
        return await each(self.session, self.tables, self.env, self.numbers, make, rows)


async def query(
    session: State,
    prepared: Prepared,
    values: Values,
    touched: Touched,
    sight: Sight | None = None,
) -> Batches:
    """The rows of a SELECT, in batches. `sight`: what it reads if others write meanwhile; None: the
    block as it is. Raises SqlError, KvorumError.
    """
    then = await _catalog_then(session, prepared, values, sight)
    if changes_in(prepared.bound):
        together = Together(_deferred(session))
        part = _part(session, values, touched, together)
        prepared = await carried_out(session, prepared, part)
        await _all_made(session, values, together)
    if prepared.plan is None:
        prepared = await with_stands(session, prepared)
        prepared = await _with_values(session, prepared, values, touched, sight)
    if prepared.plan is None:
        led = await _with_first_keys(session, prepared, values, touched, sight)
        if not isinstance(led, Prepared):
            return at_once(led)
        prepared = led
    select, plan = prepared.bound, prepared.plan
    assert prepared.declared is not None
    if select.numbers and not isinstance(plan, ConstantPlan | ListingPlan):
        return await numbered_queries.query(
            _asking(session, prepared, values, touched, sight), select
        )
    env, numbers = environment(session, values)
    if isinstance(plan, ConstantPlan | ListingPlan):
        rows = await _constant(session, prepared, plan, env, numbers)
        if env.slept:  # pg_sleep: expressions never wait themselves
            await asyncio.sleep(env.slept)
        return at_once(rows)
    at = then or await moment_of(session, select, values, sight)
    if select.locking:
        await session.block.work(session.modes(), locks=True)
    if isinstance(plan, SelectPlan | EndsPlan):
        found = await _of_one_table(session, plan, at, env, touched, sight)
        if found is not None:
            return found
    reads: Reads = ReadsAt(session.services.client)
    if prepared.reads_tables:
        reads = await reads_of(session, at, sight)
    return await _analytic(session, prepared, reads, env, touched)


async def _analytic(
    session: State, prepared: Prepared, reads: Reads, env: Env, touched: Touched
) -> Batches:
    """Rows by way of DuckDB. At READ COMMITTED those that are locked are all found before the first
    goes out, since they may have to be found again. That ends: what was locked stays so.
    """
    analytic, select = session.services.analytic, prepared.bound
    if analytic is None:
        raise unsupported("this query: it needs joins, aggregates or a large sort")
    said = session.block.notes.mark()
    while True:
        found = analytic.rows(select, reads, env, touched, prepared.text, prepared.kept)
        if not (select.locking and isinstance(reads, TxnReads) and reads.renews):
            return found
        rows: list[Row] = []
        try:
            async for batch in found:
                session.held.rows(batch)
                rows += batch
        except Stale:
            session.block.notes.undo_to(said)
            session.held.end()
            await reads.renew()
        else:
            return at_once(rows)


async def _with_values(
    session: State,
    prepared: Prepared,
    values: Values,
    touched: Touched,
    sight: Sight | None = None,
) -> Prepared:
    """The statement with the values of the queries that run first; itself, if there are none."""
    if not first_queries(prepared.bound):
        return prepared
    await session.work()  # one snapshot for all of it

    async def ask(select: s.Select) -> object:
        part = prepared.part(select, select.fields)
        found: list[Row] = []
        async for batch in await query(session, part, values, touched, sight):
            found += batch
        return numbered_queries.only(found)

    bound = await with_values(prepared.bound, ask)
    return replace(prepared, bound=bound, plan=plan_of(bound))


async def _with_first_keys(
    session: State, prepared: Prepared, values: Values, touched: Touched, sight: Sight | None
) -> Prepared | list[Row]:
    """The statement about the rows with which it begins, if these are few; or its answer, if that
    had to be looked at.
    """
    if getattr(prepared.bound, "limit", None) is None:
        return prepared
    env, _ = environment(session, values)
    led = leading(prepared.bound, env)
    if led is None:
        return prepared
    await session.work()  # one snapshot for all of it
    count = led.count
    while count:
        part, keys = prepared.part(led.first(count), ()), list[Row]()
        async for batch in await query(session, part, values, touched, sight):
            keys += batch
        if not keys:
            return []
        found = replace(prepared, bound=led.filled(keys))
        if led.sure:
            return found
        at = await moment_of(session, found.bound, values, sight)
        rows: list[Row] = []
        reads = await reads_of(session, at, sight)
        async for batch in await _analytic(session, found, reads, env, touched):
            rows += batch
        if len(rows) >= led.keep or len(keys) < count:
            return rows
        count = led.more(count)
    return prepared


async def _of_one_table(
    session: State,
    plan: SelectPlan | EndsPlan,
    at: int,
    env: Env,
    touched: Touched,
    sight: Sight | None,
) -> Batches | None:
    """The rows of a plan without DuckDB; None: they are too many to be sorted so."""
    if isinstance(plan, EndsPlan):
        return plan.batches(await reads_of(session, at, sight), env, touched)
    block = session.block
    alone = block.lone and not (block.explicit or block.transaction)
    alone = alone and not plan.table.private
    if plan.point and alone and not at and not plan.select.locking:
        # One read is a snapshot by itself, if no other statement belongs to its transaction.
        found = await plan.point_rows(ReadsAt(session.services.client), env, touched)
        return at_once(found)
    batches = plan.batches(await reads_of(session, at, sight), env, touched)
    if not plan.sort:
        return batches
    try:
        first = await anext(batches, None)  # CPython's anext fails at a tuple as the default
    except TooManyRows:
        return None
    return _resumed(first or (), batches)


def _asking(
    session: State,
    prepared: Prepared,
    values: Values,
    touched: Touched,
    sight: Sight | None = None,
) -> numbered_queries.Numbered:
    async def ask(inner: Prepared, sight: Sight | None) -> Batches:
        return await query(session, inner, values, touched, sight)

    return numbered_queries.Numbered(session, prepared, values, ask, sight=sight)


async def _constant(
    session: State, prepared: Prepared, plan: ConstantPlan | ListingPlan, env: Env, numbers: Numbers
) -> Sequence[Row]:
    """Rows that need no table; what they wait for is got first."""
    assert prepared.declared is not None
    answers: list[bool] = []
    said = session.block.notes.mark()
    numbers.begin()
    try:
        for name, count in sorted(plan.sequences.items()):
            await reserve(session, prepared.declared, numbers, name, count)
        while True:
            session.advising.begin(answers)
            session.block.notes.undo_to(said)
            env.slept = 0.0
            try:
                return plan.rows(env)
            except Unanswered as asked:
                answers.append(await session.advising.carry_out(asked.request))
                numbers.again()
            except Wanting as wanting:
                await supply(session, prepared.declared, numbers, wanting, plan.count)
    finally:
        session.advising.begin(None)
        numbers.end()
        numbers.give_back(session.numbers)


async def _resumed(first: Sequence[Row], rest: Batches) -> Batches:
    try:
        if first:
            yield first
        async for batch in rest:
            yield batch
    finally:
        await given_up(rest)


async def reads_of(session: State, at: int, sight: Sight | None = None) -> Reads:
    """The snapshot that a query reads: of the past, or of the block."""
    if at:
        return ReadsAt(session.services.client, at)
    session.block.statements += 1
    session.block.sole = None  # what was read would not be true of another run
    if sight is not None:
        return await sight.view()
    return await session.work()


async def _catalog_then(
    session: State, prepared: Prepared, values: Values, sight: Sight | None
) -> int:
    """Bring what it asks of the system's relations; the moment of the past that it reads, if they
    have one then: it is the tables', too. 0: now, or whichever.
    """
    if PROCEDURES in prepared.asks:
        then = await moment_of(session, prepared.bound, values, sight)
        if then:
            await bring_catalog(session, prepared.asks, then)
            return then
    await keep_catalog(session, prepared.asks)
    return 0


async def moment_of(
    session: State, select: s.Select, values: Values, sight: Sight | None = None
) -> int:
    """The timestamp that AS OF SYSTEM TIME or kvorum.as_of says; 0: now."""
    if sight is not None and sight.at is not None:
        return sight.at
    result = select.as_of or session.settings.get("kvorum.as_of")
    if not result:
        if select.locking:
            session.check_writable("SELECT FOR " + select.locking[0].strength.upper())
        return session.block.modes.at
    if select.locking:
        raise SqlError(INVALID_PARAMETER, "FOR UPDATE cannot read the past")
    if result.startswith("$"):
        result = str(values[int(result[1:]) - 1])
    result, services = bounded(result.strip("'")), session.services
    now_ms = services.clock.now_ms()
    if (at := at_replicas(result, now_ms, services.client.replica_age_ms)) is not None:
        return at
    if is_relative(result):
        now_ms = physical_ms(await services.client.now())
    return timestamp_of(result, now_ms)


async def change(session: State, prepared: Prepared, values: Values, touched: Touched) -> Outcome:
    """Run an INSERT, UPDATE, DELETE or MERGE; its changes are in the block's transaction."""
    bound = prepared.bound
    block = session.block
    if changes_in(bound) or not bound.target.table.private:
        session.check_writable(type(bound).__name__.upper())
    if changes_in(bound):
        together = Together(_deferred(session))
        part = _part(session, values, touched, together)
        outcome = await part(await carried_out(session, prepared, part))
        await _all_made(session, values, together)
        return outcome
    first = not block.explicit and block.statements == 0
    alone = first and block.lone  # what is only refused at its commit nobody has seen

    async def once() -> Outcome:
        outcome = await _changed(session, prepared, values, touched, alone=alone)
        await settled(session)
        return outcome

    outcome = await once()
    if (statistics := session.services.statistics) is not None:
        statistics.changed[bound.target.table.id] += outcome.count
    block.outcomes.append(outcome.without_rows())
    block.wrote = block.wrote or not bound.target.table.private
    if first:
        block.sole = Sole(once, outcome)
    else:
        block.sole = None
    return outcome


async def settled(session: State) -> None:
    """A statement has ended: deferrable constraints hold, but for those that are deferred. Raises
    SqlError (23505), KvorumError.
    """
    block = session.block
    spots, t = block.deferred.spots, block.transaction
    if spots.noted and t is not None:
        await settle(t, await session.declared(), spots, _deferred(session))


async def _all_made(session: State, values: Values, together: Together) -> None:
    """All changes of a statement are made. Raises SqlError (23503, 23505), KvorumError."""
    await settled(session)
    env, _ = environment(session, values)
    t, tables = await session.work(), await session.declared()
    await check_deferred(t, tables, env, together, every=True)


def _part(
    session: State, values: Values, touched: Touched, together: Together
) -> Callable[[Prepared], Awaitable[Outcome]]:
    """Makes one change of several in a statement."""

    async def run(prepared: Prepared) -> Outcome:
        modes = session.modes()  # it is not run again, so it waits
        await session.block.work(modes, locks=modes.isolation in RENEWING)
        outcome = await _changed(session, prepared, values, touched, alone=False, together=together)
        session.block.outcomes.append(outcome.without_rows())
        session.block.wrote = session.block.wrote or not prepared.bound.target.table.private
        session.block.sole = None
        return outcome

    return run


async def _changed(
    session: State,
    prepared: Prepared,
    values: Values,
    touched: Touched,
    *,
    alone: bool,
    together: Together | None = None,
) -> Outcome:
    block = session.block
    assert prepared.declared is not None
    await keep_catalog(session, prepared.asks)
    if prepared.plan is None:
        prepared = await with_stands(session, prepared)
        prepared = await _with_values(session, prepared, values, touched)
    assert prepared.declared is not None
    t = await session.work()
    plan = prepared.plan
    adds = isinstance(plan, InsertPlan) and plan.insert.conflict is None
    if not prepared.bound.target.table.private:
        session.bound(prepared.declared, adds=adds)
    block.statements += 1
    env, numbers = environment(session, values)
    job = Job(session, t, env, numbers, prepared.declared, touched, alone, together)
    said = block.notes.mark()
    try:
        while True:
            try:
                outcome = await _done(job, prepared, values)
                break
            except Stale:  # READ COMMITTED: nothing is written yet
                block.notes.undo_to(said)
                await t.renew()
        session.written()
        return outcome
    finally:
        numbers.give_back(session.numbers)


async def _done(job: Job, prepared: Prepared, values: Values) -> Outcome:
    if prepared.plan is None or getattr(prepared.bound, "select", None) is not None:
        asking = _asking(job.session, prepared, values, job.touched)
        prepared = await numbered_queries.change(asking, prepared)
    plan, bound = prepared.plan, prepared.bound
    if isinstance(plan, InsertPlan) and bound.select is not None:
        job.alone = False
        return await _insert_select(job, prepared, values, plan)
    if isinstance(plan, InsertPlan | UpdatePlan | DeletePlan):
        return await plan.run(job)
    analytic = job.session.services.analytic
    if analytic is None:
        raise unsupported("a change that joins tables or has subqueries")
    job.alone = False
    return await analytic.change(job, bound, prepared.text)


async def _insert_select(job: Job, prepared: Prepared, values: Values, plan: InsertPlan) -> Outcome:
    """Many rows are written while others are read: the query, which may read the table itself, sees
    it as it was before.
    """
    select = prepared.bound.select
    inner = prepared.part(select, select.fields)
    total = Outcome()
    sight = Sight.until(job.t)
    batches = await query(job.session, inner, values, job.touched, sight)
    try:
        async for rows in in_parts(batches, lambda row: row, sight.part):
            for at in range(0, len(rows), SQL_COPY_BATCH_ROWS):
                part = await plan.run(job, rows[at : at + SQL_COPY_BATCH_ROWS])
                job.held.rows(part.rows)
                total.add(part)
                job.session.written()
    finally:
        await given_up(batches)
        sight.end()
    return total


async def in_pieces(rows: Sequence[Row]) -> AsyncIterator[Sequence[Row]]:
    """The rows of RETURNING."""
    if rows:
        yield rows

"""Binds a statement to its values: which portal it gets, and what that runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlproxy.catalog.declaration_users import Use
from sqlproxy.front import front
from sqlproxy.front.bound import statements as s
from sqlproxy.front.closures.compiling import compile
from sqlproxy.front.closures.lengths import fitter
from sqlproxy.front.ddl import ddl_granting as g
from sqlproxy.front.front import coerce_to
from sqlproxy.front.types.registry import element_of
from sqlproxy.loop.statement_threads import aside
from sqlproxy.pg import oids
from sqlproxy.pg.answers import Field, Fit, Row, Values
from sqlproxy.rows.naming import schema_of
from sqlproxy.session.commands import run_commands
from sqlproxy.session.commands.analyzing import analyze
from sqlproxy.session.commands.do_blocks import do
from sqlproxy.session.definitions.run_definitions import DEFINITIONS
from sqlproxy.session.explain import explaining
from sqlproxy.session.preparing import allowed, current, frozen, parse, prepare, thawed
from sqlproxy.session.running import run_statements, transactions
from sqlproxy.session.running.ask_catalog import bring_catalog, with_names
from sqlproxy.session.running.changes_in_with import changes_in
from sqlproxy.session.running.environment import environment
from sqlproxy.session.running.loading import Loader
from sqlproxy.session.running.numbers import Numbers
from sqlproxy.session.running.reserving import numbering
from sqlproxy.session.shared.prepared import Prepared
from sqlproxy.session.state.portal_view import Sight
from sqlproxy.session.state.portals import Batches, CopyIn, Portal, at_once, given_up
from sqlproxy.session.state.state import State
from sqlproxy.tables.reading import Touched
from sqlproxy.values.errors import UNDEFINED_PREPARED, SqlError, in_failed_transaction, unsupported
from sqlproxy.wire.seam import Portal as AnyPortal

_EXITS = (s.Commit, s.Rollback, s.RollbackTo)
_OF_ROLES = (s.CreateRole, s.AlterRole, s.DropRole, g.GrantRole)
_TAGS = {s.Insert: "INSERT 0 {}", s.Update: "UPDATE {}", s.Delete: "DELETE {}", s.Merge: "MERGE {}"}


async def bind(session: State, statement: Prepared, values: Values) -> AnyPortal:
    """A statement, as it is bound to what is declared now, with its values. Raises SqlError."""
    session.activity.begins(statement.text)
    session.bounded()
    session.advising.check()
    if session.block.status == "E" and not isinstance(statement.bound, _EXITS):
        raise in_failed_transaction()
    session.asks(statement.bound)
    session.block.comes(type(statement.bound))
    now = await current(session, statement)
    if (table := frozen(now.bound)) is not None:
        now = await session.interrupts.guard(thawed(session, table, statement))
    session.check(now)
    if now.asks:
        await session.interrupts.guard(bring_catalog(session, now.asks))
    if session.block.renews_for(type(now.bound)) and not _locks_first(now):
        await session.interrupts.guard(session.block.renew_snapshot())
    found = await _portal(session, now, tuple(values))
    if isinstance(found, Portal):
        session.cursors.mark(found, now.text)
        if values:
            try:
                found.hold(values)
            except SqlError:
                await found.close()
                raise
    return found


def _locks_first(prepared: Prepared) -> bool:
    """Whether a statement reads nothing but what it has locked; if it has to, it renews by
    itself.
    """
    plan = prepared.plan
    return getattr(plan, "locks_first", False) and not changes_in(prepared.bound)


async def _portal(session: State, prepared: Prepared, values: Values) -> AnyPortal:
    """Raises SqlError."""
    bound = prepared.bound
    match bound:
        case s.Select():
            return query_portal(session, prepared, values)
        case s.Insert() | s.Update() | s.Delete() | s.Merge():
            return _change(session, prepared, values)
        case s.Execute():
            return await _execute(session, bound)
        case s.Copy():
            return await _copy(session, prepared, values)
        case s.DeclareCursor():
            return _declare(session, prepared, bound, values)
        case s.Explain():
            return Portal(
                lambda: explained(session, prepared, values),
                lambda n: "EXPLAIN",
                prepared.fields,
                guard=session.interrupts.guard,
                use=_use(session, prepared),
            )
        case s.Show():
            return _rows(session, prepared, lambda: run_commands.show_rows(session, bound), "SHOW")
        case s.Fetch():
            return _fetch(session, bound)
        case s.Empty():
            found = _command(session, bound, _nothing)
            found.ends = True  # nothing is run, so a failed transaction lets it through, too
            return found
        case s.Do():
            return _command(session, bound, partial(do, bind))
        case s.Analyze():
            return _command(session, bound, _analyze)
        case _:
            found = _command(session, bound, _run_of(prepared))
            found.ends = isinstance(bound, _EXITS)
            return found


def _run_of(prepared: Prepared) -> Callable[[State, object], Awaitable[str]]:
    """Raises SqlError (0A000)."""
    kind = type(prepared.bound)
    run = run_commands.COMMANDS.get(kind) or DEFINITIONS.get(kind)
    if run is None:
        raise unsupported(kind.__name__)
    if kind in DEFINITIONS or kind in _OF_ROLES:
        return partial(_confirmed, prepared, run)
    return run


async def _confirmed(
    prepared: Prepared,
    run: Callable[[State, object], Awaitable[str]],
    session: State,
    bound: object,
) -> str:
    """Bound to what is declared now, and asked again whether it may: it goes by names, which can be
    somebody else's by the time that a portal runs, or have come at another node just now.
    """
    catalogs = session.services.catalogs
    if not session.permits.free:
        catalogs.roles.forget()
    now = await catalogs.declared_since(session.database, catalogs.moment())
    now = session.along(now)
    if now is not prepared.declared:
        parsed = await aside(prepared.text, front.parse, prepared.text)
        prepared = await prepare(session, prepared.text, parsed, prepared.oids)
        bound = prepared.bound
    session.check(prepared)
    return await run(session, bound)


async def _nothing(session: State, bound: object) -> str:
    return ""


async def _analyze(session: State, bound: s.Analyze) -> str:
    if bound.vacuum:
        run_commands.check_outside(session, "VACUUM")
    if bound.analyze:
        await analyze(session, bound)
    return "VACUUM" if bound.vacuum else "ANALYZE"


def _touched(session: State) -> Touched:
    estimates = session.services.statistics
    return Touched(turn=session.turn, use=session.use, estimates=estimates)


def query_portal(
    session: State, prepared: Prepared, values: Values, sight: Sight | None = None
) -> Portal:
    """Rows out. `sight`: what it reads; None: the transaction as it is now."""
    if sight is None and prepared.reads_tables:
        sight = Sight.now(session.block, session.work)

    async def start() -> Batches:
        session.setvals.clear()
        touched = _touched(session)
        return _numbered(
            session, prepared, await run_statements.query(session, prepared, values, touched, sight)
        )

    return Portal(
        start,
        _selected,
        prepared.fields or (),
        guard=session.interrupts.guard,
        use=_use(session, prepared),
        sight=sight,
    )


def _selected(count: int) -> str:
    return f"SELECT {count}"


def _numbered(session: State, prepared: Prepared, rows: Batches) -> Batches:
    """The rows; after them what setval() asked for is done. A view that is read may call it."""
    rows = with_names(session, prepared, rows)
    called = any(need.any_of == "w" for need in prepared.needs)
    return _then_set(session, prepared, rows) if called or _names_it(prepared) else rows


def _names_it(prepared: Prepared) -> bool:
    return "setval" in prepared.text.lower()  # also of a sequence that is not there


async def _then_set(session: State, prepared: Prepared, rows: Batches) -> Batches:
    try:
        async for batch in rows:
            yield batch
    finally:
        await given_up(rows)
    await _set_numbers(session, prepared)


async def _set_numbers(session: State, prepared: Prepared) -> None:
    assert prepared.declared is not None
    for name, value, called in session.setvals:
        sequence = await numbering(session, prepared.declared, name)
        await session.numbers.set_value(sequence, value, called)
        Numbers(session.currvals).set(sequence, value, called)
    session.setvals.clear()


def _use(session: State, prepared: Prepared) -> Use | None:
    """A schema change waits until the statement has begun; one that reads no table needs none."""
    if prepared.declared is None or not prepared.reads_tables:
        return None
    return session.services.catalogs.use(prepared.declared)


def _change(session: State, prepared: Prepared, values: Values) -> Portal:
    tag = _TAGS[type(prepared.bound)]
    count = 0

    async def start() -> Batches | None:
        nonlocal count
        session.setvals.clear()
        outcome = await run_statements.change(session, prepared, values, _touched(session))
        await _set_numbers(session, prepared)
        block = session.block
        if block.lone and block.sole is not None and not session.cursors.held_now:
            outcome = await transactions.commit_sole(session, block.sole)
        count = outcome.count
        session.use.spend(count)
        return with_names(session, prepared, run_statements.in_pieces(outcome.rows))

    use = _use(session, prepared)
    return Portal(
        start, lambda n: tag.format(count), prepared.fields, guard=session.interrupts.guard, use=use
    )


def _command(session: State, bound: object, run: Callable[[State, Any], Awaitable[str]]) -> Portal:
    tag = ""

    async def start() -> None:
        nonlocal tag
        tag = await run(session, bound)

    return Portal(start, lambda n: tag, guard=session.interrupts.guard)


def _rows(
    session: State, prepared: Prepared, rows: Callable[[], Sequence[Row]], tag: str
) -> Portal:
    async def start() -> Batches:
        return at_once(rows())

    return Portal(start, lambda n: tag, prepared.fields, guard=session.interrupts.guard)


async def _execute(session: State, bound: s.Execute) -> AnyPortal:
    if bound.name not in session.statements:
        return _command(session, bound, _missing)  # it is an error when it runs
    return await bind(session, *executed(session, bound))


async def _missing(session: State, bound: s.Execute) -> str:
    executed(session, bound)
    return "EXECUTE"


async def explained(session: State, prepared: Prepared, values: Values) -> Batches:
    """EXPLAIN, of EXECUTE: of the statement that it names."""
    inner = prepared.bound.statement
    if not isinstance(inner, s.Execute):
        return await explaining.explained(session, prepared, values)
    found, given = executed(session, inner)
    found = await allowed(session, found)
    asked = replace(prepared.bound, statement=found.bound)
    return await explaining.explained(
        session, replace(found, bound=asked, fields=prepared.fields, plan=None), given
    )


def executed(session: State, bound: s.Execute) -> tuple[Prepared, Values]:
    """The prepared statement and its values. Raises SqlError."""
    found = session.statements.get(bound.name)
    if not isinstance(found, Prepared):
        raise SqlError(UNDEFINED_PREPARED, f'prepared statement "{bound.name}" does not exist')
    types = found.parameters
    if len(types) != len(bound.arguments):
        raise SqlError(
            "42601",
            f'wrong number of parameters for prepared statement "{bound.name}"',
            detail=f"Expected {len(types)} parameters but got {len(bound.arguments)}.",
        )
    env, _ = environment(session, ())
    values = [
        compile(coerce_to(expr, oid, n, session.style)).fn((), env)
        for n, (expr, oid) in enumerate(zip(bound.arguments, types, strict=True), 1)
    ]
    return found, values


def _fit(field: Field) -> Fit | None:
    """What a value of COPY has to fit into; of times, the column rounds them."""
    if field.typmod < 0 or (element_of(field.oid) or field.oid) not in (
        oids.VARCHAR,
        oids.BPCHAR,
        oids.NUMERIC,
    ):
        return None
    return fitter(field.oid, field.typmod, False)


async def _copy(session: State, prepared: Prepared, values: Values) -> AnyPortal:
    copy: s.Copy = prepared.bound
    if copy.source:
        loader = Loader(session, prepared)
        assert copy.target is not None
        fits = tuple(_fit(one) for one in copy.fields)
        form = replace(copy.format, table=copy.target.table.name, fits=fits)
        return CopyIn(loader, copy.fields, form, guard=session.interrupts.guard)
    if copy.query is not None:
        inner = _inner(prepared, copy.query)
    else:
        assert copy.target is not None
        columns = ", ".join(_quoted(column.name) for column in copy.columns)
        table = copy.target.table
        text = f"SELECT {columns} FROM {_quoted(schema_of(table.namespace))}.{_quoted(table.name)}"
        inner = await parse(session, text, ())

    async def start() -> Batches:
        if isinstance(inner.bound, s.Select):
            session.setvals.clear()
            found = await run_statements.query(session, inner, values, _touched(session))
            return _numbered(session, inner, found)
        outcome = await run_statements.change(session, inner, values, _touched(session))
        return at_once(outcome.rows)

    return Portal(
        start,
        lambda n: f"COPY {n}",
        copy.fields,
        guard=session.interrupts.guard,
        copy_out=copy.format,
        use=_use(session, inner),
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _inner(prepared: Prepared, bound: object) -> Prepared:
    """A statement inside another one."""
    return prepared.part(bound, getattr(bound, "fields", None), prepared.needs)


def _declare(session: State, prepared: Prepared, bound: s.DeclareCursor, values: Values) -> Portal:
    inner = _inner(prepared, bound.query)

    async def run(session: State, bound: s.DeclareCursor) -> str:
        run_commands.check_cursor(session, bound)
        portal = await _cursor(session, inner, values)
        portal.binary, portal.scrolls = bound.binary, bool(bound.scroll)
        session.cursors.declare(
            bound.name, portal, session.activity.message or prepared.text, hold=bound.hold
        )
        return "DECLARE CURSOR"

    return _command(session, bound, run)


async def _cursor(session: State, prepared: Prepared, values: Values) -> Portal:
    """A query whose rows are fetched later, as they are now."""
    sight = None
    if prepared.reads_tables:
        sight = Sight.now(session.block, session.work)
        sight.at = await run_statements.moment_of(session, prepared.bound, values)
        if not sight.at:
            await sight.view()  # nor are others' commits after this seen
    return query_portal(session, prepared, values, sight)


def _fetch(session: State, bound: s.Fetch) -> Portal:
    """FETCH is described before it runs: its fields are the cursor's, if there is one."""
    cursor = session.cursors.portals.get(bound.cursor)
    count = 0

    async def start() -> Batches | None:
        nonlocal count
        rows = await run_commands.fetched(session, bound)
        count = len(rows)
        return None if bound.move else at_once(rows)

    word = "MOVE" if bound.move else "FETCH"
    fields = None if bound.move or cursor is None else cursor.fields
    return Portal(start, lambda n: f"{word} {count}", fields, guard=session.interrupts.guard)

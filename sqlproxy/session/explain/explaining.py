"""EXPLAIN: how a statement reaches its rows, and with ANALYZE what that took.

Index Scan using t_a_idx on t  (cost=0.00..1.35 rows=3 width=8)    (the words are PostgreSQL's)
  Key Range: [2000…, 2000…)             one line per range of keys; a Seq Scan has all of them
  Filter: the whole WHERE                its words are: Index Only Scan, where no row is looked up;
                                         Append, of several ways a row comes by the first; Unique,
                                         what is like the row before is skipped
  Or, with fewer entries: Index Scan …  a key that is as good, until both are looked at
Rows: 12                                with ANALYZE: what came out,
Read: 3 gets, 12 rows in 1 pages, 15 versions     what was read of all tables and indexes,
Partitions: 7, 9 of t_a_idx             where the ranges and keys lie, by their ids; the rows that
Execution Time: 1.234 ms                an index leads to are not shown

Where DuckDB runs a statement, ANALYZE tells of each scan the same line `Read`, and its time.
Versions are the records that the store looked at: those of deleted rows, too, and older ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kv.base.keys import table_prefix, table_range
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.bound import statements as s
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Const
from sqlproxy.front.stages.sequence_stages import inside, unnumbered
from sqlproxy.pg.answers import Values
from sqlproxy.rows.schema import Table
from sqlproxy.session.explain.figures import NOTHING, Figure, Figures
from sqlproxy.session.explain.plan_trees import written
from sqlproxy.session.running import run_statements
from sqlproxy.session.running.environment import environment
from sqlproxy.session.running.first_keys import leading
from sqlproxy.session.running.first_values import first_queries, unknown
from sqlproxy.session.running.known_rows import with_stands
from sqlproxy.session.shared.prepared import Plan, Prepared, plan_of
from sqlproxy.session.state.portals import Batches, at_once
from sqlproxy.session.state.state import State
from sqlproxy.tables.ends import EndsPlan
from sqlproxy.tables.reading import Counted, Described, Scanned, TableReader, Touched
from sqlproxy.tables.select_values import ListingPlan
from sqlproxy.tables.selecting import ConstantPlan, SelectPlan
from sqlproxy.tables.writing import DeletePlan, InsertPlan, UpdatePlan
from sqlproxy.values.errors import unsupported

_RANGES_SHOWN = 8
_PARTITIONS_SHOWN = 32
_DUCKDB = "DuckDB ("
_OFF = ("off", "false", "no", "0")


async def explained(session: State, prepared: Prepared, values: Values) -> Batches:
    """The lines of a plan, as rows. Raises SqlError."""
    explain: s.Explain = prepared.bound
    analyze = explain.options.get("analyze") in ("on", "true", "1", "")
    query = _query_of(explain.statement, analyze=analyze)
    bound = unnumbered(query) if _numbered(query) else query
    if (plan := plan_of(bound)) is None:
        result = await with_stands(session, replace(prepared, bound=bound, plan=None))
        bound, plan = result.bound, result.plan
    env, _ = environment(session, values)
    shown = explain.options.get("costs", "on") not in _OFF
    figures = Figures(session.services.statistics, env, shown=shown)
    first = first_queries(bound)
    if first:  # as it will be with their values
        bound = unknown(bound)
        plan = plan_of(bound)
    before = [one.select for one in first]
    if plan is None and (led := leading(bound, env)) is not None:
        before.append(led.first(led.count))
        bound = led.unknown
    await _bring(session, bound, plan, env)
    lines = _planned(session, bound, plan, figures)
    for select in before:
        inner = _planned(session, select, plan_of(select), figures)
        lines = [line for line in lines if line.strip() != "Keys: 0"]
        lines += _under("  InitPlan", [f"  {line}" for line in inner])
    analyzed: list[str] = []
    if analyze:
        touched = Counted(session.services.clock.monotonic)
        touched.estimates = session.services.statistics
        run = replace(
            prepared,
            bound=query,
            fields=getattr(query, "fields", None),
            plan=plan if bound is query else plan_of(query),
        )
        actual, analyzed = await _analyzed(session, run, bound, plan, values, touched)
        lines = _with_scans(lines, touched.scans, figures)
        lines[:1] = [line + actual for line in lines[:1]]
    if (form := explain.options.get("format", "text")) != "text":
        return at_once([(written(form, lines, analyzed),)])
    return at_once([(line,) for line in (*lines, *analyzed)])


def _numbered(query: object) -> bool:
    """Whether rows are taken numbers for, after what is explained or inside of it."""
    select = query.select if isinstance(query, s.Insert) else query
    return bool(inside(query)) or (isinstance(select, s.Select) and select.numbers)


def _query_of(statement: object, *, analyze: bool) -> object:
    """What reads rows in a statement that is explained. Raises SqlError."""
    match statement:
        case s.DeclareCursor():
            statement = statement.query
        case d.CreateTableAs():
            if analyze:
                raise unsupported("EXPLAIN ANALYZE of CREATE TABLE AS", hint="Leave ANALYZE away.")
            statement = statement.select
        case _:
            pass
    if isinstance(statement, s.Select | s.Insert | s.Update | s.Delete | s.Merge):
        return statement
    raise unsupported("EXPLAIN of this statement")


async def _bring(session: State, bound: object, plan: Plan, env: Env) -> None:
    """What is known of the tables that a statement reads, as it is now."""
    statistics = session.services.statistics
    if statistics is not None:
        tables = {table.id: table for table, _ in _scans(session, bound, plan, env)}
        await statistics.bring(tables.values())


def _planned(session: State, bound: Any, plan: Plan, figures: Figures) -> list[str]:
    written = isinstance(bound, s.Insert) and bound.subqueries and not bound.ctes
    if plan is None and not written:
        return _joined(session, bound, figures)
    lines = [_insert(bound.target.table)] if written else describe(bound, plan, figures)
    if isinstance(bound, s.Insert) and bound.select is not None:
        inner = _planned(session, bound.select, plan_of(bound.select), figures)
        lines += [f"  {line}" for line in inner]
    return lines


def _insert(table: Table) -> str:
    return f"Insert on {table.name}"


def describe(bound: Any, plan: Plan, figures: Figures) -> list[str]:
    """What a plan would do."""
    match plan:
        case ConstantPlan():
            return ["Result" + figures.said(NOTHING)]
        case ListingPlan():
            return [f"Values Scan: {plan.count} rows"]
        case SelectPlan():
            return _selected(plan, figures)
        case EndsPlan():
            ends = [line for one in plan.ends for line in describe(None, one, figures)]
            return _under("Result" + figures.said(NOTHING), ends)
        case InsertPlan():
            return [_insert(plan.table)]
        case UpdatePlan() | DeletePlan():
            verb = "Update" if isinstance(plan, UpdatePlan) else "Delete"
            assert plan.meant is not None
            reader = figures.chosen(plan.meant.reader)
            figure = figures.scan(reader, bound.conjuncts)
            inner = _scan(reader, figures, figure, filtered=bound.where is not None)
            return _under(f"{verb} on {plan.table.name}" + figures.said(figure.written()), inner)
        case _:
            return []


def _selected(plan: SelectPlan, figures: Figures) -> list[str]:
    reader = figures.chosen(plan.reader) if plan.any_order else plan.reader
    figure = figures.scan(reader, plan.select.conjuncts)
    lines = _scan(reader, figures, figure, filtered=plan.select.where is not None)
    if plan.reader.distinct:
        lines = _under("Unique" + figures.said(figure), lines)
    if plan.sort:
        figure = figure.sorted()
        lines = _under("Sort (in memory)" + figures.said(figure), lines)
    if plan.select.limit is None:
        return lines
    limit = plan.select.limit
    most = limit.value if isinstance(limit, Const) and isinstance(limit.value, int) else None
    return _under("Limit" + figures.said(figure.limited(most)), lines)


def _under(head: str, lines: Sequence[str]) -> list[str]:
    return [head, *(f"  {line}" for line in lines)]


def _joined(session: State, bound: object, figures: Figures) -> list[str]:
    """What DuckDB does, and how each table that it reads is scanned."""
    analytic = session.services.analytic
    if analytic is None:
        raise unsupported("this statement: it needs joins, aggregates or a large sort")
    lines = [f"{_DUCKDB}{type(bound).__name__})"]
    whole = NOTHING
    for scan in analytic.describe(bound, figures.env, session.services.statistics):
        if scan.reader is not None:
            figure = figures.scan(scan.reader)
            total = whole.total + figure.total
            whole = Figure(total, total, max(whole.rows, figure.rows), whole.width + figure.width)
        lines += _source(scan, figures)
    if isinstance(bound, s.Select) and bound.aggregates and not bound.group:
        whole = replace(whole, rows=1.0)
    lines[0] += figures.said(whole)
    return lines


def _source(scan: Described, figures: Figures, actual: str = "") -> list[str]:
    """One scan for DuckDB."""
    if scan.reader is None:
        return [f"  Seq Scan on {scan.table.name}{actual}"]
    lines = _scan(scan.reader, figures, figures.scan(scan.reader), filtered=False)
    lines[0] += actual
    if scan.origin:  # their rows say what the keys are
        lines = [line for line in lines if not line.lstrip().startswith(("Key", "…"))]
        lines.append(f"  Keys: of {', '.join(scan.origin)}")
    return [f"  {line}" for line in lines]


def _with_scans(lines: list[str], scans: Sequence[Scanned], figures: Figures) -> list[str]:
    """A plan with what each scan for DuckDB read."""
    if not scans:
        return lines
    at = next((i for i, line in enumerate(lines) if line.lstrip().startswith(_DUCKDB)), None)
    if at is None:  # more rows than are sorted in memory
        lines, at = [f"{_DUCKDB}Select)"], 0
    margin = " " * lines[at].index(_DUCKDB)
    found = lines[: at + 1]
    for scan in scans:
        result = f"    Read: {_read(scan.touched)}, {scan.seconds * 1000:.3f} ms"
        said = _actual(scan.touched.scanned + scan.touched.gets, scan.seconds * 1000)
        source = _source(Described(scan.table, scan.reader, scan.origin), figures, said)
        found += [margin + line for line in (*source, result)]
    return found


def _actual(rows: int, ms: float) -> str:
    return f" (actual time=0.000..{ms:.3f} rows={rows} loops=1)"


def _read(touched: Touched) -> str:
    versions = 0 if touched.tally is None else touched.tally.versions
    return (
        f"{touched.gets} gets, {touched.scanned} rows in {touched.pages} pages, {versions} versions"
    )


def _scan(reader: TableReader, figures: Figures, figure: Figure, *, filtered: bool) -> list[str]:
    if len(reader.ways) > 1:
        ways = [_way(one, figures.env, figures.said(figures.way(one))) for one in reader.ways]
        lines = _under("Append" + figures.said(figure), [line for way in ways for line in way])
    else:
        lines = _way(reader, figures.env, figures.said(figure))
    lines += [f"  Or, with fewer entries: {_way(one, figures.env)[0]}" for one in reader.rivals]
    if filtered:
        lines.append("  Filter: the whole WHERE")
    return lines


def _way(reader: TableReader, env: Env, said: str = "") -> list[str]:
    """A scan and where it looks."""
    access, table = reader.access, reader.table
    whole = all(one.whole for one in access.stretches)
    kind = "Seq Scan" if whole and access.index is None else "Index Scan"
    if reader.covered:
        kind = "Index Only Scan"
    backward = " Backward" if access.reverse else ""
    name = table.primary_key_name or "key" if access.index is None else access.index.name
    using = "" if kind == "Seq Scan" else f" using {name}"
    lines = [f"{kind}{backward}{using} on {table.name}{said}"]
    if whole:
        return lines
    spans = reader.spans(env)
    if spans.points:
        lines.append(f"  Keys: {len(spans.points)}")
        return lines
    for span in spans.ranges[:_RANGES_SHOWN]:
        lines.append(f"  Key Range: [{span.start.hex()}, {span.end.hex() or '…'})")
    if len(spans.ranges) > _RANGES_SHOWN:
        lines.append(f"  … {len(spans.ranges) - _RANGES_SHOWN} more ranges")
    if not spans.ranges:
        lines.append("  Keys: 0")
    return lines


async def _analyzed(
    session: State, run: Prepared, bound: object, plan: Plan, values: Values, touched: Counted
) -> tuple[str, list[str]]:
    """What came out, for the first line, and the lines behind the plan. `run`: what is run; `bound`
    and `plan`: how its rows are reached.
    """
    clock = session.services.clock
    began = clock.monotonic()
    if isinstance(bound, s.Select):
        count = 0
        async for batch in await run_statements.query(session, run, values, touched):
            count += len(batch)
    else:
        count = (await run_statements.change(session, run, values, touched)).count
    ms = (clock.monotonic() - began) * 1000
    env, _ = environment(session, values)
    return _actual(count, ms), [
        f"Rows: {count}",
        f"Read: {_read(touched)}",
        *await _partitions(session, _scans(session, bound, plan, env), env),
        f"Execution Time: {ms:.3f} ms",
    ]


def _scans(
    session: State, bound: object, plan: Plan, env: Env
) -> list[tuple[Table, TableReader | None]]:
    """What a statement reads: tables with their ways; None: a plain table, whole."""
    match plan:
        case SelectPlan():
            return [(plan.reader.table, way) for way in plan.reader.ways]
        case EndsPlan():
            return [scan for one in plan.ends for scan in _scans(session, bound, one, env)]
        case UpdatePlan() | DeletePlan():
            assert plan.meant is not None
            return [(plan.table, way) for way in plan.meant.reader.ways]
        case _ if isinstance(bound, s.Insert) and bound.select is not None:
            return _scans(session, bound.select, plan_of(bound.select), env)
        case None if session.services.analytic is not None:
            estimates = session.services.statistics
            return [
                (table, way)
                for table, reader, _ in session.services.analytic.describe(bound, env, estimates)
                for way in ([None] if reader is None else reader.ways)
            ]
        case _:
            return []


async def _partitions(
    session: State, scans: Sequence[tuple[Table, TableReader | None]], env: Env
) -> list[str]:
    """Where the scans looked, a line for each table or index: the client knows the partitions, as
    it has just read them.
    """
    looked: dict[str, dict[int, None]] = {}
    for table, reader in scans:
        index = reader.access.index if reader is not None else None
        found = looked.setdefault((index or table).name, {})
        await _looked(session, table, reader, env, found)
    return [_line(name, list(found)) for name, found in looked.items()]


def _line(name: str, found: Sequence[int]) -> str:
    shown = [str(number) for number in found[:_PARTITIONS_SHOWN]]
    more = ", …" if len(found) > _PARTITIONS_SHOWN else ""
    return f"Partitions: {', '.join(shown) or 'none'}{more} of {name}"


async def _looked(
    session: State, table: Table, reader: TableReader | None, env: Env, found: dict[int, None]
) -> None:
    if table.private:
        return  # it is in memory
    index = reader.access.index if reader is not None else None
    prefix, (start, last) = table_prefix((index or table).id), table_range((index or table).id)
    ranges = [(start, last)]
    if reader is not None:
        spans = reader.spans(env)
        ranges = [(prefix + key, prefix + key + b"\0") for key in spans.points]
        ranges += [(prefix + r.start, prefix + r.end if r.end else last) for r in spans.ranges]
    for start, end in ranges:
        if len(found) > _PARTITIONS_SHOWN:
            break
        ids = await session.services.client.partitions_in(start, end, _PARTITIONS_SHOWN + 1)
        found.update(dict.fromkeys(ids))

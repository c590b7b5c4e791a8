"""Values of a column for the rows that were there before it: one chunk per transaction.

Every writer is at write-only or beyond by then, so a row that comes after the cursor has its
value, and one that is changed meanwhile makes the chunk run again (docs/decisions/1014). Nobody has
seen the column yet: a NULL in it means that the value is still to be computed. So a row that is
written by somebody who read it before that is filled all the same, and one that has a value keeps
it.

A generated column is computed anew in every row; that is what its writers do, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kv.base.keys import table_prefix
from kv.base.ports import Rng
from procedures.engine.context import StepContext
from sqlproxy.catalog import relations
from sqlproxy.ddl.steps import CatalogTxn
from sqlproxy.rows import rows
from sqlproxy.rows.schema import Table
from sqlproxy.values.refusals import invalid

if TYPE_CHECKING:
    from sqlproxy.front.bound.env import Env

_PREFIX: Final = 4  # bytes of a table's id in front of its user keys
Found = Sequence[tuple[bytes, bytes, int]]


async def fill(
    t: CatalogTxn,
    ctx: StepContext,
    table: Table,
    number: int,
    found: Found,
    *,
    rng: Rng | None,
    shown: str = "",
) -> None:
    """Give the column with this id its value in these rows, as `ctx.txn` reads them. `shown`: its
    name for users. Raises InvalidArgument with the SQLSTATE of what an expression failed with.
    """
    # Reading SQL costs 60 MB and a moment, so a master that computes nothing never loads it.
    from sqlproxy.declared.database import Declared, name_of
    from sqlproxy.pg.style import Style
    from sqlproxy.tables.compile_rules import rules_of
    from sqlproxy.values.errors import SqlError

    there = await relations.list_database(t, table.namespace)
    declared = Declared(there, 0)
    place = next(at for at, column in enumerate(table.columns) if column.id == number)
    column = table.columns[place]
    owned = {
        one.owned_by[1]: name_of(one)
        for one in there.sequences
        if one.owned_by and one.owned_by[0] == table.id
    }
    try:
        rules = rules_of(alone(table, number), declared, Style(), owned)
        generated = column.generated is not None
        fn = dict(rules.generated)[place] if generated else rules.defaults[place]
        codec = rows.codec(table)
        wanted = []
        for key, value, _ in found:
            row = codec.decode_row(key[_PREFIX:], value)
            if generated or row[place] is None:
                wanted.append(row)
        env = await _env(t, ctx, declared, rules.numbers(most=True), len(wanted), rng)
        for row in wanted:
            value = fn(row, env)
            if value is None and not column.nullable:
                raise SqlError(
                    "23502",
                    f'column "{shown or column.name}" of relation "{table.name}" contains null '
                    "values",
                )
            if value != row[place]:
                at, stored = codec.encode_row((*row[:place], value, *row[place + 1 :]))
                ctx.txn.put(table_prefix(table.id) + at, stored)
    except SqlError as error:
        raise invalid(error.sqlstate, error.message, detail=error.detail) from error


def alone(table: Table, number: int | None) -> Table:
    """The table without expressions but those of this column: the others need not be compiled."""
    columns = tuple(
        column if column.id == number else column.without_expressions(default=None, hidden=False)
        for column in table.columns
    )
    return replace(table, columns=columns, checks=())


async def _env(
    t: CatalogTxn,
    ctx: StepContext,
    declared: Any,
    sequences: Mapping[str, int],
    rows: int,
    rng: Rng | None,
) -> Env:
    """What the expressions may ask; numbers are taken with the chunk."""
    from sqlproxy.catalog.sequences import take
    from sqlproxy.front.bound.env import Env

    left: dict[str, list[int]] = {}
    for name, each in sorted(sequences.items()):
        numbers, count = left.setdefault(name, []), each * rows
        while len(numbers) < count:
            run = await take(t, declared.numbering(name), count - len(numbers))
            numbers += range(run.first, run.first + run.size * run.step, run.step)
        numbers.reverse()
    now = datetime.fromtimestamp(ctx.now_ms / 1000, UTC)
    env = Env(
        now=now,
        statement_now=now,
        clock=lambda: now,
        session={"user": "kvorum", "session_user": "kvorum", "database": declared.database},
        nextval=lambda name: left[name].pop(),
    )
    if rng is not None:
        env.random, env.uuid = rng.random, lambda: _uuid(rng)
    return env


def _uuid(rng: Rng) -> Any:
    from uuid import UUID

    return UUID(bytes=rng.token(16), version=4)

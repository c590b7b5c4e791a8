"""ALTER TABLE, one action after the other: each is a procedure of its own.

What needs rows to be looked at or written (types, constraints, indexes) goes through the online
schema change; it is refused by name where that does not offer it yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlproxy.errors import DUPLICATE_COLUMN, SqlError, unsupported
from sqlproxy.front import definitions as d
from sqlproxy.session.definitions import column_args, run

if TYPE_CHECKING:
    from sqlproxy.session.session import SqlSession


async def apply(session: SqlSession, table: str, action: d.Action) -> None:
    """Raises SqlError, KvorumError."""
    match action:
        case d.AddColumn():
            await _add_column(session, table, action)
        case d.SetOptions():
            options: dict[str, Any] = dict(action.options)
            await run(session, "ModifyTable", {"name": table, **options})
        case _:
            raise unsupported(
                f"ALTER TABLE … {_words(action)}", hint="Create a new table and copy the rows."
            )


async def _add_column(session: SqlSession, table: str, action: d.AddColumn) -> None:
    column = action.column
    declared = await session.declared()
    there = declared.table(table)
    if there is not None and any(c.name == column.name for c in there.columns):
        if action.if_not_exists:
            session.notice(f'column "{column.name}" of relation "{table}" already exists, skipping')
            return
        raise SqlError(
            DUPLICATE_COLUMN, f'column "{column.name}" of relation "{table}" already exists'
        )
    if column.identity or column.serial or column.generated is not None:
        raise unsupported("adding a column that is numbered or generated")
    if column.default_sql is not None and column.default is None and column.default_sql != "NULL":
        raise unsupported("adding a column with a default that is no constant")
    await run(session, "ModifyTable", {"name": table, "add_columns": [column_args(column)]})


def _words(action: d.Action) -> str:
    """What a user wrote, nearly."""
    name = type(action).__name__
    return "".join(f" {c}" if c.isupper() else c.upper() for c in name).strip().upper()

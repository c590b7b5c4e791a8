"""One table for exports and imports: its columns, its rows in user form, and what writes rows.

A row is what its visible columns hold; of a plain table, `key` and `value` as bytes. SQL's
machinery (60 MB) is imported when a declared table needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from kv.base.errors import InvalidArgument, KvorumError
from sqlproxy.catalog import catalog, relations
from sqlproxy.catalog.catalog import Reader
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import Column, Table

if TYPE_CHECKING:
    from sqlproxy.declared.database import Declared
    from sqlproxy.front.bound.env import Env

PLAIN: Final = ("key", "value")
_PREFIX: Final = 4
Row = tuple[object, ...]


class Shape(NamedTuple):
    """The columns of a file: name, canonical type, OID of PostgreSQL."""

    name: str
    type: str
    oid: int


def shapes_of(table: Table, names: Sequence[str] = ()) -> list[Shape]:
    """All visible columns, or these. Raises InvalidArgument."""
    from sqlproxy.pg.oids import BYTEA, by_name

    if table.plain:
        for name in names:
            if name not in PLAIN:
                table.column(name)  # says what there is
        return [Shape(name, "bytea", BYTEA) for name in names or PLAIN]
    columns = [table.column(name) for name in names] if names else list(table.visible)
    return [Shape(c.name, c.type, by_name(c.type)[0].oid) for c in columns]


def decoder(table: Table, shapes: Sequence[Shape]) -> Callable[[bytes, bytes], Row]:
    """From storage key and value to the columns of these shapes."""
    if table.plain:
        at = [PLAIN.index(shape.name) for shape in shapes]
        return lambda key, value: tuple((key[_PREFIX:], value)[place] for place in at)
    rows = codec(table)
    places = [_place(table, shape.name) for shape in shapes]

    def decode(key: bytes, value: bytes) -> Row:
        row = rows.decode_row(key[_PREFIX:], value)
        return tuple(row[place] for place in places)

    return decode


def _place(table: Table, name: str) -> int:
    return next(at for at, column in enumerate(table.columns) if column.name == name)


async def declared(t: Reader, table: Table) -> Declared:
    """What the table's database declares."""
    from sqlproxy.declared.database import Declared

    found = await relations.list_database(t, table.namespace)
    return Declared(found, await catalog.schema_version(t, table.namespace))


def environment(table: Table, now_ms: int, nextval: Callable[[str], int] | None = None) -> Env:
    """What expressions may ask."""
    from sqlproxy.front.bound.env import Env

    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    session = {"user": "kvorum", "session_user": "kvorum", "database": table.namespace}
    env = Env(now=now, statement_now=now, session=session, clock=lambda: now)
    if nextval is not None:
        env.nextval = nextval
    return env


async def condition(
    t: Reader, table: Table, sql: str, now_ms: int
) -> Callable[[bytes, bytes], bool]:
    """Whether a stored row meets a SQL condition on the table's columns, NULL being no. Raises
    InvalidArgument.
    """
    if table.plain:
        raise InvalidArgument(
            f"table {table.path} has no columns that a condition could name; use --prefix"
        )
    from sqlproxy.pg.style import Style
    from sqlproxy.tables.compile_rules import condition_of
    from sqlproxy.values.errors import SqlError

    try:
        holds = condition_of(table, await declared(t, table), Style(), sql)
    except SqlError as error:
        raise InvalidArgument(
            f"the condition {sql!r:.200}: {error.message}", details={"sqlstate": error.sqlstate}
        ) from error
    rows, env = codec(table), environment(table, now_ms)

    def meets(key: bytes, value: bytes) -> bool:
        try:
            return holds(rows.decode_row(key[_PREFIX:], value), env) is True
        except SqlError as error:
            raise InvalidArgument(f"the condition {sql!r:.200}: {error.message}") from error

    return meets


def given(table: Table, names: Sequence[str]) -> list[Column | None]:
    """The column of each name of a file's header. Raises InvalidArgument: unknown, twice, or one
    that nobody may give.
    """
    seen: set[str] = set()
    found: list[Column | None] = []
    for name in names:
        if name in seen:
            raise InvalidArgument(f"the header names column {name!r} twice")
        seen.add(name)
        if table.plain:
            if name not in PLAIN:
                table.column(name)
            found.append(None)
            continue
        column = table.column(name)
        if column not in table.visible or column.generated is not None:
            raise InvalidArgument(
                f"column {name} of {table.path} is computed: leave it out", details={"column": name}
            )
        found.append(column)
    if table.plain and seen != set(PLAIN):
        raise InvalidArgument(f"a plain table has the columns key and value, not {', '.join(seen)}")
    return found


def problem(error: Exception) -> tuple[str, str]:
    """(code, message) of what is wrong with a row. Raises it again if it is not about the row."""
    from sqlproxy.values.errors import SqlError

    if isinstance(error, SqlError):
        detail = f" ({error.detail})" if error.detail else ""
        return error.sqlstate, f"{error.message}{detail}"
    if isinstance(error, KvorumError) and error.disposition == "no":
        return error.code, error.message
    if isinstance(error, ValueError | TypeError):
        return "INVALID_VALUE", str(error)
    raise error

"""Conditions on the rows of one table that users give as text where no session is: what Spark reads
(`where`), what an overwrite replaces (`replaceWhere`). Both are bound and evaluated here, so the
same text means the same rows; who replaces what they read deletes nothing that they did not see.

They are SQL's own expressions, with the usual settings and the zone UTC, and two courtesies to who
writes them in Spark: X'…' is bytes (SQL has a bit string there), and a name that no column has is
looked for without regard to case. A plain key-value table has the columns `key` and `value`, bytes.

What a condition says of a row is a function of the row alone: the time of day, chance, sequences
and who asks are refused. A read and the overwrite after it happen at two moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sqlproxy.front.binding.casting import is_moment
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Call, Cast, Column, Const, Expr, Named, walk
from sqlproxy.front.bound.statements import SubQuery
from sqlproxy.front.closures.compiling import compile
from sqlproxy.front.syntax.syntax import Node, parse_expression
from sqlproxy.pg.style import DEFAULT
from sqlproxy.rows.rows import PLAIN_COLUMNS
from sqlproxy.rows.schema import Column as TableColumn
from sqlproxy.rows.schema import Table
from sqlproxy.tables.compile_rules import bound_condition
from sqlproxy.tables.predicates import Holds, OwnNames
from sqlproxy.values.errors import UNSUPPORTED, SqlError

ASK_THE_TIME: Final = frozenset({"now", "statement_timestamp", "age(1184)", "age(1114)"})
"""Sources of functions that are stable because they ask what time it is."""


def shaped(table: Table) -> Table:
    """The table as conditions see it: a plain one has two columns."""
    if not table.plain:
        return table
    columns = tuple(
        TableColumn(id, name, "bytea", nullable=False) for id, name in enumerate(PLAIN_COLUMNS, 1)
    )
    return replace(table, columns=columns, primary_key=PLAIN_COLUMNS[:1])


def bound(table: Table, text: str) -> Expr:
    """Raises SqlError that says what is wrong with it."""
    table = shaped(table)
    tree = _as_meant(parse_expression(text), tuple(c.name for c in table.visible))
    found = bound_condition(table, OwnNames(table), DEFAULT, tree)
    shown = {c.id for c in table.visible}
    for one in walk(found):
        match one:
            case SubQuery():
                raise SqlError(UNSUPPORTED, "a subquery in a condition on rows is not supported")
            case Column(attribute=attribute) if attribute not in shown:
                raise SqlError("42703", f'column "{one.name}" does not exist')
            case Call(proc=proc) if proc.volatile == "v" or proc.source in ASK_THE_TIME:
                raise _of_the_moment(f"{proc.name}()")
            case Cast(how="text", arg=Const(value=str(value))) if is_moment(value, one.oid):
                raise _of_the_moment(repr(value))
            case Named():
                raise _of_the_moment(one.name)
            case _:
                pass
    compile(found)  # what no closure can do is an error now, not at the first row
    return found


def holds(expr: Expr) -> Holds:
    """Whether a row is meant, in user form: all columns of the descriptor, or key and value. It
    raises SqlError, as the expression does.
    """
    fn, env = compile(expr).fn, Env()
    return lambda row: fn(row, env) is True


def _of_the_moment(what: str) -> SqlError:
    return SqlError(
        UNSUPPORTED,
        f"{what} in a condition on rows is not supported: it says another thing each time it is"
        " asked; write the value itself",
    )


def _as_meant(node: Any, names: Sequence[str]) -> Any:
    """The tree with the two courtesies."""
    match node:
        case {"A_Const": {"bsval": {"bsval": str(bits)}, **rest}} if bits[:1] in "xX":
            return _bytes_of(bits[1:], int(str(rest.get("location", -1))))
        case {"ColumnRef": {"fields": [{"String": {"sval": str(name)}}]}} if name not in names:
            alike = [one for one in names if one.lower() == name.lower()]
            if len(alike) != 1:
                return node
            field = {"String": {"sval": alike[0]}}
            return {"ColumnRef": node["ColumnRef"] | {"fields": [field]}}
        case dict():
            return {key: _as_meant(value, names) for key, value in node.items()}
        case list():
            return [_as_meant(one, names) for one in node]
        case _:
            return node


def _bytes_of(digits: str, location: int) -> Node:
    """`'\\x…'::bytea`; what is no whole number of bytes is refused there."""
    of = {"names": [{"String": {"sval": "bytea"}}], "typemod": -1, "location": location}
    text = {"A_Const": {"sval": {"sval": f"\\x{digits}"}, "location": location}}
    return {"TypeCast": {"arg": text, "typeName": of, "location": location}}

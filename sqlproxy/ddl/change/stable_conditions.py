"""Whether the conditions of a table (predicates of partial indexes, checks) say the same of every
row when a column becomes wider: int2, int4, int8, or varchar(n) and text.

They are kept as text and bound by the column's type. A function of the narrow type may not be there
for the wide one (chr, repeat, make_date), and a few answer otherwise by the width (<<, to_hex):
then entries that are there, and rows that were checked, would be wrong. Whole numbers compare, add
and so on alike in every width, but where the narrow one overflows, which no row has.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from sqlproxy.front.bound.exprs import Call, walk
from sqlproxy.front.types.registry import Proc
from sqlproxy.pg.style import DEFAULT
from sqlproxy.rows.schema import Column, Table
from sqlproxy.tables.compile_rules import bound_condition
from sqlproxy.tables.predicates import OwnNames
from sqlproxy.values.errors import SqlError
from sqlproxy.values.refusals import invalid

_ALIKE: Final = frozenset(("=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "&", "|", "#"))
_ALIKE_UNARY: Final = frozenset(("+", "-", "~", "@"))
_FUNCTIONS: Final = frozenset(("abs", "mod", "gcd", "lcm", "div", "sign"))


def check_meaning(table: Table, altered: Table, column: Column) -> None:
    """Raises Refused: 0A000, or what binding says. `altered`: the table with the new type."""
    conditions = [
        (f"index {index.name}", index.where)
        for index in table.indexes
        if index.where and column.id in index.used_ids
    ]
    conditions += [
        (f"constraint {check.name}", check.sql)
        for check in table.checks
        if column.id in check.columns
    ]
    for what, sql in conditions:
        if not _same(table, altered, sql):
            raise invalid(
                "0A000",
                f'changing the type of column "{column.name}" is not supported while '
                f"{what} uses it: its condition may say something else of the new type",
                hint="Drop what uses it, change the type, and make it again.",
                users=[what],
            )


def _same(table: Table, altered: Table, sql: str) -> bool:
    try:
        before = _calls(table, sql)
    except SqlError:  # it names what is not the table's own
        return False
    try:
        behind = _calls(altered, sql)
    except SqlError as error:
        raise invalid(error.sqlstate, error.message, hint=error.hint) from error
    return all(_alike(call) for call in (behind - before))


_Called = tuple[str, str, int, Proc]  # operator, name, how many arguments


def _calls(table: Table, sql: str) -> Counter[_Called]:
    condition = bound_condition(table, OwnNames(table), DEFAULT, sql)
    return Counter(
        (one.operator, one.cast or one.proc.name, len(one.args), one.proc)
        for one in walk(condition)
        if isinstance(one, Call)
    )


def _alike(call: _Called) -> bool:
    operator, name, count, _ = call
    if operator:
        return operator in (_ALIKE if count == 2 else _ALIKE_UNARY)
    return name in _FUNCTIONS or name in ("implicit", "explicit")

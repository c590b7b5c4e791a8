"""Which columns of its tables a bound statement reads and writes, for the privileges of columns.

Only asked where a table has any (`Column.acl`): what a whole table allows needs no columns. A
column that is named twice, in a view and by who reads it, counts for each: `Need.owner`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kv.base.rights import OWNER
from sqlproxy.catalog.privileges import Need
from sqlproxy.front.binding.scope import Names
from sqlproxy.front.bound import statements as s
from sqlproxy.front.bound.exprs import Column
from sqlproxy.front.bound.trees import looked_into, parts
from sqlproxy.rows.schema import Table

_Of = tuple[int, str | None]  # a table, and whose privileges count: Need.owner


def with_columns(needs: tuple[Need, ...], bound: object, names: Names) -> tuple[Need, ...]:
    """The needs, with the columns that they are about where a table has privileges of columns."""

    def has_some(need: Need) -> bool:
        table = names.table_by_id(need.relation)
        return table is not None and any(column.acl for column in table.columns)

    if not any(map(has_some, needs)):
        return needs
    read: dict[_Of, set[int]] = {}
    for table, owner, column in _read(bound, None):
        read.setdefault((table, owner), set()).add(column)
    written: dict[tuple[int, str], set[int]] = {}
    for table, letter, columns in _written(bound):
        written.setdefault((table, letter), set()).update(columns)

    def about(need: Need) -> set[int]:
        if need.any_of in "aw":
            return written.get((need.relation, need.any_of), set())
        found = read.get((need.relation, need.owner))
        if found is not None:
            return found
        return {one for (table, _), ids in read.items() if table == need.relation for one in ids}

    return tuple(
        replace(need, columns=tuple(sorted(about(need))))
        if len(need.any_of) == 1 and need.any_of in "raw" and has_some(need)
        else need
        for need in needs
    )


def _read(node: object, owner: str | None) -> Iterator[tuple[int, str | None, int]]:
    """Columns of tables, and whose privileges count there."""
    if isinstance(node, Column):
        if node.table > 0:
            yield int(node.table), owner, node.attribute
        return
    if isinstance(node, tuple):
        for one in node:
            yield from _read(one, owner)
    elif isinstance(node, s.Copy) and node.target is not None and not node.source:
        for column in node.columns:
            yield int(node.target.table.id), owner, column.id
    elif looked_into(node):
        if isinstance(node, s.SelectItem) and node.view is not None:
            owner = node.view.owner or OWNER
        if isinstance(node, s.Insert) and node.conflict is not None:
            wanted, table = node.conflict, node.target.table
            for number in wanted.columns or _constrained(table, wanted.constraint):
                yield int(table.id), owner, number
        for _, part in parts(node):
            yield from _read(part, owner)


def _constrained(table: Table, name: str | None) -> Iterable[int]:
    """The columns of the constraint that ON CONFLICT names, if it does."""
    if name is None:
        return ()
    index = table.index(name)
    return [one.id for one in table.key_columns] if index is None else index.column_ids


def _written(node: object) -> Iterator[tuple[int, str, Iterable[int]]]:
    """Columns that changes give values to: "a" those of new rows, "w" those of rows that are
    there.
    """
    if isinstance(node, tuple):
        for one in node:
            yield from _written(one)
        return
    match node:
        case s.Insert():
            table = int(node.target.table.id)
            yield table, "a", [column.id for column in node.columns]
            if node.conflict is not None:
                yield table, "w", [one.column.id for one in node.conflict.assignments or ()]
        case s.Update():
            table = int(node.target.table.id)
            yield table, "w", [one.column.id for one in node.assignments]
        case s.Merge():
            table = int(node.target.table.id)
            for when in node.whens:
                letter = {"insert": "a", "update": "w"}.get(when.action)
                if letter is not None:
                    yield table, letter, [one.column.id for one in when.assignments]
        case s.Copy() if node.target is not None and node.source:
            yield int(node.target.table.id), "a", [column.id for column in node.columns]
        case _:
            pass
    if looked_into(node):
        for _, part in parts(node):
            yield from _written(part)

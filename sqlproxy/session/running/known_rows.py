"""What a query reads of sequences, as rows.

They belong to no transaction: the row, where a sequence stands, is of the moment in which the
statement begins, also in a block, or with AS OF. It stands in the statement instead of the
sequence, as VALUES.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sqlproxy.front.bound.exprs import Column, Const
from sqlproxy.front.bound.statements import ItemColumn, Select, SelectItem, SequenceItem, Target
from sqlproxy.front.bound.trees import looked_into, parts, replaced
from sqlproxy.pg.answers import Row
from sqlproxy.rows.schema import Sequence
from sqlproxy.session.shared.prepared import Prepared, plan_of
from sqlproxy.session.state.state import State


async def with_stands(session: State, prepared: Prepared) -> Prepared:
    """The statement with the rows of the sequences that it reads; itself, if it reads none. Raises
    KvorumError.
    """
    if not _may_read(prepared):
        return prepared
    sequences = {int(one.sequence.id): one.sequence for one in _read(prepared.bound)}
    if not sequences:
        return prepared
    numbers = session.numbers
    stands = {number: await numbers.stand(one) for number, one in sorted(sequences.items())}
    bound = _filled(prepared.bound, stands)
    return replace(prepared, bound=bound, plan=plan_of(bound))


def _may_read(prepared: Prepared) -> bool:
    """Whether the tree is worth a walk: what it reads was noted when it was bound."""
    if not prepared.noted or prepared.declared is None:
        return True
    there = prepared.declared.contents.relations
    return any(isinstance(there.get(need.relation), Sequence) for need in prepared.needs)


def _read(node: object) -> Iterator[SequenceItem]:
    if isinstance(node, SequenceItem):
        yield node
    elif isinstance(node, tuple):
        for one in node:
            yield from _read(one)
    elif looked_into(node):
        for _, part in parts(node):
            yield from _read(part)


def _filled(node: object, stands: dict[int, tuple[int, int, bool]]) -> object:
    """The tree with rows for sequences."""

    def row(part: object) -> SelectItem | None:
        return _row(part, stands[int(part.sequence.id)]) if isinstance(part, SequenceItem) else None

    return replaced(node, row)


def _row(item: SequenceItem, stand: tuple[int, int, bool]) -> SelectItem:
    select = values_of(item.columns, [stand])
    return SelectItem(
        alias=item.alias,
        columns=item.columns,
        offset=item.offset,
        lateral=item.lateral,
        select=select,
    )


def values_of(columns: Iterable[ItemColumn], rows: Iterable[Row]) -> Select:
    """VALUES: rows that are known, of these columns."""
    there = tuple(columns)
    constants = tuple(
        tuple(
            Const(oid=column.oid, typmod=column.typmod, value=value)
            for column, value in zip(there, row, strict=True)
        )
        for row in rows
    )
    targets = tuple(
        Target(Column(oid=one.oid, typmod=one.typmod, index=i, name=one.name), one.name)
        for i, one in enumerate(there)
    )
    return Select(text="", tree={}, targets=targets, fields=(), values=constants)

"""SELECT … FROM a sequence: where it stands, as the one row that it is in PostgreSQL.

Sequences belong to no transaction: the row is of the moment in which the statement begins, also in
a block, or with AS OF. It stands in the statement instead of the sequence, as VALUES.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlproxy.front.exprs import Column, Const
from sqlproxy.front.statements import Select, SelectItem, SequenceItem, Target
from sqlproxy.front.trees import looked_into, parts, replaced
from sqlproxy.schema import Sequence
from sqlproxy.session.prepared import Prepared, plan_of

if TYPE_CHECKING:
    from sqlproxy.session.session import SqlSession


async def with_stands(session: SqlSession, prepared: Prepared) -> Prepared:
    """The statement with the rows of the sequences that it reads; itself, if it reads none. Raises
    KvorumError.
    """
    if not _may_read(prepared):
        return prepared
    read = {int(one.id): one for one in _read(prepared.bound)}
    if not read:
        return prepared
    numbers = session.services.numbers
    stands = {number: await numbers.stand(one) for number, one in sorted(read.items())}
    bound = _filled(prepared.bound, stands)
    return replace(prepared, bound=bound, plan=plan_of(bound))


def _may_read(prepared: Prepared) -> bool:
    """Whether the tree is worth a walk: what it reads was noted when it was bound; a part of a
    statement has no notes of its own.
    """
    if not prepared.needs or prepared.declared is None:
        return True
    there = prepared.declared.contents.relations
    return any(isinstance(there.get(need.relation), Sequence) for need in prepared.needs)


def _read(node: Any) -> Iterator[Sequence]:
    if isinstance(node, SequenceItem):
        yield node.sequence
    elif isinstance(node, tuple):
        for one in node:
            yield from _read(one)
    elif looked_into(node):
        for _, part in parts(node):
            yield from _read(part)


def _filled(node: Any, stands: dict[int, tuple[int, int, bool]]) -> Any:
    """The tree with rows for sequences."""

    def row(part: Any) -> SelectItem | None:
        if isinstance(part, SequenceItem):
            return _row(part, stands[int(part.sequence.id)])
        return None

    return replaced(node, row)


def _row(item: SequenceItem, stand: tuple[int, int, bool]) -> SelectItem:
    row = tuple(
        Const(oid=column.oid, typmod=column.typmod, value=value)
        for column, value in zip(item.columns, stand, strict=True)
    )
    targets = tuple(
        Target(Column(oid=one.oid, typmod=one.typmod, index=i, name=one.name), one.name)
        for i, one in enumerate(item.columns)
    )
    select = Select(text="", tree={}, targets=targets, fields=(), values=(row,))
    return SelectItem(
        alias=item.alias,
        columns=item.columns,
        offset=item.offset,
        lateral=item.lateral,
        select=select,
    )

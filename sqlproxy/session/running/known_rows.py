"""What a query reads beside users' tables, as rows: sequences, and relations of the system.

Sequences belong to no transaction: the row, where it stands, is of the moment in which the
statement begins, also in a block, or with AS OF. It stands in the statement instead of the
sequence, as VALUES. What the system's relations have is asked for then, too, and stands there as
rows that are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Sequence_
from dataclasses import replace

from sqlproxy.front.bound.exprs import Column, Const
from sqlproxy.front.bound.statements import (
    ItemColumn,
    KnownItem,
    Select,
    SelectItem,
    SequenceItem,
    SystemItem,
    Target,
)
from sqlproxy.front.bound.trees import looked_into, parts, replaced
from sqlproxy.front.functions.f_catalog import RELATIONS
from sqlproxy.front.syntax import syntax
from sqlproxy.pg.answers import Row
from sqlproxy.rows.schema import Sequence
from sqlproxy.session.running.ask_catalog import ask_catalog
from sqlproxy.session.shared.prepared import Prepared, plan_of
from sqlproxy.session.state.state import State


async def with_stands(session: State, prepared: Prepared) -> Prepared:
    """The statement with the rows of the sequences that it reads; itself, if it reads none. Raises
    KvorumError.
    """
    if not _may_read(prepared):
        return prepared
    read = list(_read(prepared.bound))
    if not read:
        return prepared
    sequences = {int(s.sequence.id): s.sequence for s in read if isinstance(s, SequenceItem)}
    numbers = session.services.numbers
    stands = {number: await numbers.stand(one) for number, one in sorted(sequences.items())}
    asked = {one.text: one for one in read if isinstance(one, SystemItem)}
    rows = {text: await _asked(session, one) for text, one in asked.items()}
    bound = _filled(prepared.bound, stands, rows)
    return replace(prepared, bound=bound, plan=plan_of(bound))


def _may_read(prepared: Prepared) -> bool:
    """Whether the tree is worth a walk: what it reads was noted when it was bound; a part of a
    statement has no notes of its own.
    """
    if not prepared.needs or prepared.declared is None:
        return True
    if RELATIONS in prepared.asks:
        return True
    there = prepared.declared.contents.relations
    return any(isinstance(there.get(need.relation), Sequence) for need in prepared.needs)


async def _asked(session: State, item: SystemItem) -> Sequence_[Sequence_[object]]:
    """The rows of a relation of the system. Raises SqlError."""
    if (known := session.catalog.rows(item.relation)) is not None:
        return known
    parsed = syntax.parse(item.text)
    assert parsed is not None
    system = session.services.system.prepare(item.text, parsed.body, ())
    return await ask_catalog(session, system, ())


def _read(node: object) -> Iterator[SequenceItem | SystemItem]:
    if isinstance(node, SequenceItem | SystemItem):
        yield node
    elif isinstance(node, tuple):
        for one in node:
            yield from _read(one)
    elif looked_into(node):
        for _, part in parts(node):
            yield from _read(part)


def _filled(
    node: object,
    stands: dict[int, tuple[int, int, bool]],
    asked: Mapping[str, Sequence_[Sequence_[object]]],
) -> object:
    """The tree with rows for sequences and relations of the system."""

    def row(part: object) -> SelectItem | KnownItem | None:
        if isinstance(part, SequenceItem):
            return _row(part, stands[int(part.sequence.id)])
        if isinstance(part, SystemItem):
            return KnownItem(
                alias=part.alias,
                columns=part.columns,
                offset=part.offset,
                lateral=part.lateral,
                rows=asked[part.text],
            )
        return None

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

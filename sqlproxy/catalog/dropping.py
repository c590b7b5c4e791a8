"""Who depends on whom, and what a DROP takes along. Pure: functions of what a database has
(`sqlproxy.catalog.relations.Relations`).

    a view        on what it reads                            CASCADE drops it
    a foreign key on the table that it refers to              CASCADE drops the constraint
    a default     on the sequence whose nextval it is         CASCADE drops the default
    an identity   on its sequence                             which cannot be dropped alone
    a sequence    on the column that owns it                  goes with the table, without a word

With RESTRICT a DROP is refused (2BP01) while something that is not dropped itself depends on what
it drops; DETAIL names all that do, also at second hand, as PostgreSQL's does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field, replace
from typing import Final

from kv.base.errors import KvorumError
from sqlproxy.catalog.relations import Relations
from sqlproxy.rows.naming import PUBLIC, schema_of, shown_name
from sqlproxy.rows.schema import Column, EnumType, Relation, Sequence, Table, View
from sqlproxy.values import enums
from sqlproxy.values.refusals import dependents, refusal

_KINDS: Final = {"table": "table", "view": "view", "sequence": "sequence"}


@dataclass
class Plan:
    """What a DROP does. `notices`: what goes along by CASCADE, in PostgreSQL's words."""

    tables: list[Table] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)
    changed: dict[int, Table] = field(default_factory=dict)  # by id: without a key or a default
    notices: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # what depends on what


def plan_drop(there: Relations, targets: Items[Relation], *, cascade: bool) -> Plan:
    """Raises Refused (2BP01)."""
    plan = Plan()
    gone: dict[int, Relation] = {}
    lines = plan.lines
    queue: list[Relation] = list(targets)
    asked = {target.id for target in targets}
    while queue:
        one = queue.pop(0)
        if one.id in gone:
            continue
        gone[one.id] = one
        if isinstance(one, Table):
            queue += [s for s in there.sequences if s.owned_by and s.owned_by[0] == one.id]
            asked |= {s.id for s in there.sequences if s.owned_by and s.owned_by[0] == one.id}
        for view in there.views:
            if any(number == one.id for number, _ in view.uses) and view.id not in asked:
                if view.id not in gone and view not in queue:
                    plan.notices.append(described(view))
                    queue.append(view)
                lines.append(f"{described(view)} depends on {described(one)}")
    _constraints(there, gone, plan, lines)
    _defaults(there, gone, plan, lines)
    if lines and not cascade:
        raise dependents(described(targets[0]), lines)
    for one in gone.values():
        match one:
            case Table():
                plan.tables.append(one)
            case View():
                plan.views.append(one)
            case Sequence():
                plan.sequences.append(one)
    return plan


def described(one: Relation) -> str:
    return f"{_KINDS[one.kind]} {shown_name(one.namespace, one.name)}"


def _constraints(there: Relations, gone: dict[int, Relation], plan: Plan, lines: list[str]) -> None:
    for table in there.tables:
        if table.id in gone:
            continue
        now = plan.changed.get(table.id, table)
        for key in table.foreign_keys:
            if key.table in gone:
                what = f"constraint {key.name} on {described(table)}"
                plan.notices.append(what)
                lines.append(f"{what} depends on {described(gone[key.table])}")
                left = tuple(other for other in now.foreign_keys if other.name != key.name)
                now = plan.changed[table.id] = replace(now, foreign_keys=left)


def _defaults(there: Relations, gone: dict[int, Relation], plan: Plan, lines: list[str]) -> None:
    """Raises Refused for the sequence of an identity."""
    for table in there.tables:
        if table.id in gone:
            continue
        now = plan.changed.get(table.id, table)
        for column in now.columns:
            sequence = gone.get(column.sequence) if column.sequence else None
            if sequence is None:
                continue
            if column.identity:
                raise required(described(sequence), f"column {column.name} of {described(table)}")
            what = f"default value for column {column.name} of {described(table)}"
            plan.notices.append(what)
            lines.append(f"{what} depends on {described(sequence)}")
            bare = replace(column, sequence=0, default_sql=None, default=None)
            columns = tuple(bare if c.id == column.id else c for c in now.columns)
            now = plan.changed[table.id] = replace(now, columns=columns)


def required(what: str, by: str) -> KvorumError:
    """2BP01: a part of something that only goes with it."""
    return refusal(
        "2BP01",
        f"cannot drop {what} because {by} requires it",
        hint=f"You can drop {by} instead.",
        code="HAS_DEPENDENTS",
    )


def referring(there: Relations, targets: Items[Table]) -> list[tuple[Table, str]]:
    """Tables with a foreign key to one of these that are none of them, and the name of that one."""
    names = {table.id: table.name for table in targets}
    return [
        (table, names[key.table])
        for table in there.tables
        for key in table.foreign_keys
        if key.table in names and table.id not in names
    ]


def views_over(there: Relations, relation: int, column: int) -> list[View]:
    """Views that read this column of a relation."""
    return [
        view
        for view in there.views
        if any(number == relation and column in columns for number, columns in view.uses)
    ]


# -- types, and what names them in texts


def users_of(tables: tuple[Table, ...], oid: int) -> Iterator[tuple[Table, Column]]:
    """The columns that have the type, or arrays of it."""
    for table in tables:
        for column in table.columns:
            if enums.oid_in(column.type) == oid:
                yield table, column


def texts_of(there: Relations) -> Iterator[tuple[str, str]]:
    """What is kept as SQL, and whose it is: but what functions do is read when they are called."""
    yield from expressions_of(there)
    for view in there.views:
        yield described(view), view.sql


def expressions_of(there: Relations) -> Iterator[tuple[str, str]]:
    """Those of them that are no queries."""
    for table in there.tables:
        for check in table.checks:
            yield f"constraint {check.name} on {described(table)}", check.sql
        for index in table.indexes:
            if index.where:
                yield f"index {index.name}", index.where
        for column in table.columns:
            for sql in (column.default_sql, column.generated, column.on_update):
                if sql:
                    yield f"column {column.name} of {described(table)}", sql
    for one in there.functions:
        for argument in one.arguments:
            if argument.default is not None:
                yield f"function {shown_name(one.namespace, one.title)}", argument.default


def says(sql: str, word: str) -> bool:
    """Whether a text may name this: rather once too often."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", sql, re.IGNORECASE) is not None


def says_type(sql: str, one: EnumType) -> bool:
    """The same of a type. In a text that is kept, one of another schema than public has it."""
    schema, name = schema_of(one.namespace), one.enum.name
    if schema == PUBLIC:
        return says(sql, name)
    return says(re.sub(r'["\s]', "", sql), re.sub(r'["\s]', "", f"{schema}.{name}"))


def described_type(one: EnumType) -> str:
    return f"type {shown_name(one.namespace, enums.quoted(one.enum.name))}"


def check_unused(there: Relations, one: EnumType, *, cascade: bool = False) -> None:
    """Raises Refused: something of `there` uses the type."""
    enum, shown = one.enum, described_type(one)
    lines = [
        f"column {column.name} of {described(table)} depends on {shown}"
        for table, column in users_of(there.tables, enum.oid)
    ]
    for by in there.functions:
        types = [*(arg.oid for arg in by.arguments), by.result, *(of for _, of in by.columns)]
        if not {enum.oid, enums.array_oid(enum.oid)}.isdisjoint(types):
            lines.append(f"function {shown_name(by.namespace, by.title)} depends on {shown}")
    for view in there.views:
        lines += [
            f"{described(view)} depends on {shown}"
            for _, kind in view.columns[:1]
            if any(enums.oid_in(of) == enum.oid for _, of in view.columns)
        ]
    if not lines:
        lines += [
            f"{whose} depends on {shown}" for whose, sql in texts_of(there) if says_type(sql, one)
        ]
    if lines and cascade:
        raise refusal(
            "0A000",
            f"DROP TYPE … CASCADE is not supported while {lines[0]}",
            detail="\n".join(lines),
            hint="Drop the columns first.",
            code="HAS_DEPENDENTS",
        )
    if lines:
        raise dependents(shown, lines)

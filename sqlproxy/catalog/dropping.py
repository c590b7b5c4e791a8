"""Who depends on whom, and what a DROP takes along. Pure: functions of what a namespace has
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

from collections.abc import Sequence as Items
from dataclasses import dataclass, field, replace
from typing import Final

from kv.base.errors import KvorumError
from sqlproxy.catalog.relations import Relations
from sqlproxy.rows.schema import Relation, Sequence, Table, View
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


def plan_drop(there: Relations, targets: Items[Relation], *, cascade: bool) -> Plan:
    """Raises Refused (2BP01)."""
    plan = Plan()
    gone: dict[int, Relation] = {}
    lines: list[str] = []
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
                    plan.notices.append(f"view {view.name}")
                    queue.append(view)
                lines.append(f"view {view.name} depends on {described(one)}")
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
    return f"{_KINDS[one.kind]} {one.name}"


def _constraints(there: Relations, gone: dict[int, Relation], plan: Plan, lines: list[str]) -> None:
    for table in there.tables:
        if table.id in gone:
            continue
        now = plan.changed.get(table.id, table)
        for key in table.foreign_keys:
            if key.table in gone:
                what = f"constraint {key.name} on table {table.name}"
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
                raise required(described(sequence), f"column {column.name} of table {table.name}")
            what = f"default value for column {column.name} of table {table.name}"
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

"""ALTER … RENAME: the procedure changes names; what is kept as SQL text and would say the old one
is written anew here, where SQL is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlproxy.catalog.dropping import expressions_of, says
from sqlproxy.catalog.relations import Relations
from sqlproxy.declared.database import Declared
from sqlproxy.front import text_renaming as renaming
from sqlproxy.front.bound import declarations as d
from sqlproxy.rows.naming import bare, named, namespace_of, schema_in
from sqlproxy.rows.schema import Sequence, Table, View
from sqlproxy.session.definitions.definition_arguments import Arguments
from sqlproxy.session.definitions.definition_jobs import run, table_now
from sqlproxy.session.state.state import State


async def rename(session: State, bound: d.Rename) -> str:
    """Raises SqlError, KvorumError."""
    if bound.kind == "schema":
        await _schema(session, bound.relation, bound.new_name)
        return "ALTER SCHEMA"
    if bound.kind == "type":
        await run(session, "RenameEnum", {"name": bound.relation, "to": bound.new_name})
        return "ALTER TYPE"
    if bound.kind == "column":
        declared = await session.declared()
        args = {"name": bound.relation, "column": bound.part, "to": bound.new_name}
        await run(session, "RenameColumn", {**args, **_texts_of_column(declared, bound)})
        return "ALTER TABLE"
    if bound.kind == "constraint":
        await _constraint(session, bound.relation, bound.part, bound.new_name)
        return "ALTER TABLE"
    result = await run(
        session,
        "RenameTable",
        {
            "name": bound.relation,
            "to": bound.new_name,
            "if_exists": bound.missing_ok,
            "views": _texts_of_relation(
                await session.declared(),
                bound.relation,
                named(schema_in(bound.relation), bound.new_name),
            ),
        },
    )
    if result.get("missing"):
        session.notice(f'relation "{bound.relation}" does not exist, skipping')
    return f"ALTER {bound.kind.upper()}"


async def set_schema(session: State, bound: d.SetSchema) -> str:
    """Raises SqlError, KvorumError."""
    tag = f"ALTER {bound.kind.upper()}"
    if bound.name is None:
        session.notice("relation does not exist, skipping")
        return tag
    to = namespace_of(session.database, bound.schema)
    views = _texts_of_relation(
        await session.declared(), bound.name, named(bound.schema, bound.name)
    )
    await run(session, "SetSchema", {"name": bound.name, "to": to, "views": views})
    return tag


async def _schema(session: State, old: str, new: str) -> None:
    """All texts that may say the old name are written anew. Raises SqlError, KvorumError."""
    declared = await session.declared()
    found, space = declared.found, namespace_of(session.database, old)
    to = namespace_of(session.database, new)
    texts = {
        sql: renaming.of_schema(sql, old, new) for _, sql in expressions_of(found) if says(sql, old)
    }
    views = [view for view in found.views if says(view.sql, old)]
    texts |= {view.sql: renaming.view_of_schema(view, old, new) for view in views}
    after = Declared(_in_schema(found, space, to, texts), declared.version, declared.place)
    for view in views:
        renaming.check_answer(view, texts[view.sql], declared, after)
    await run(session, "RenameSchema", {"namespace": space, "to": to, "texts": texts})


def _in_schema(found: Relations, space: str, to: str, texts: Mapping[str, str]) -> Relations:
    """What there is when a schema has another name."""

    def at(namespace: str) -> str:
        return to if namespace == space else namespace

    return Relations(
        found.namespace,
        tuple(replace(one, namespace=at(one.namespace)) for one in found.tables),
        tuple(
            replace(one, namespace=at(one.namespace), sql=texts.get(one.sql, one.sql))
            for one in found.views
        ),
        tuple(replace(one, namespace=at(one.namespace)) for one in found.sequences),
        tuple(replace(one, namespace=at(one.namespace)) for one in found.types),
        tuple(replace(one, namespace=at(one.namespace)) for one in found.functions),
        tuple(replace(one, name=at(one.name)) for one in found.spaces),
    )


async def _constraint(session: State, table: str, name: str, to: str) -> None:
    """A unique constraint, or a primary key, is renamed as its index."""
    there = await table_now(session, table)
    if name == there.primary_key_name or there.index(name) is not None:
        await run(session, "RenameTable", {"name": named(schema_in(table), name), "to": to})
        return
    action = {"kind": "rename_constraint", "constraint": name, "to": to}
    await run(session, "AlterTable", {"name": table, "action": action})


def _texts_of_column(declared: Declared, bound: d.Rename) -> Arguments:
    """Of checks, generated columns, predicates of indexes and views. Nothing if there is no such
    column: the procedure says so.
    """
    table, old, new = declared.table(bound.relation), bound.part, bound.new_name
    column = None
    if table is not None:
        column = next((c for c in table.visible if c.name == old), None)
    if table is None or column is None or any(c.name == new for c in table.columns):
        return {}
    number = column.id
    renamed = replace(
        table,
        columns=tuple(replace(c, name=new) if c.id == number else c for c in table.columns),
        primary_key=tuple(new if name == old else name for name in table.primary_key),
    )
    after = _with(declared, table, renamed)
    reading = [
        view
        for view in _views(declared)
        if any(relation == table.id and number in columns for relation, columns in view.uses)
    ]
    return {
        "checks": {
            check.name: renaming.expression(check.sql, old, new)
            for check in table.checks
            if number in check.columns
        },
        "generated": {
            c.name: renaming.expression(c.generated, old, new)
            for c in table.columns
            if c.generated is not None and number in c.uses
        },
        "predicates": {
            index.name: renaming.expression(index.where, old, new)
            for index in table.indexes
            if number in index.where_columns
        },
        "views": {
            view.path: renaming.view_of_column(view, declared, after, table, old, new)
            for view in reading
        },
    }


def _texts_of_relation(declared: Declared, old: str, new: str) -> dict[str, str]:
    """Of the views that read it; both names with their schemas."""
    one = declared.table(old) or declared.view(old) or declared.sequence(old)
    if one is None:
        return {}
    space = namespace_of(declared.database, schema_in(new))
    after = _with(declared, one, replace(one, namespace=space, name=bare(new)))
    return {
        view.path: renaming.view_of_relation(view, declared, after, old, new)
        for view in _views(declared)
        if any(relation == one.id for relation, _ in view.uses)
    }


def _views(declared: Declared) -> list[View]:
    return [one for one in declared.contents.relations.values() if isinstance(one, View)]


def _with(
    declared: Declared, old: Table | View | Sequence, new: Table | View | Sequence
) -> Declared:
    """What is declared when this one is another."""
    every = [new if one is old else one for one in declared.contents.relations.values()]
    found = Relations(
        declared.database,
        tuple(one for one in every if isinstance(one, Table)),
        tuple(one for one in every if isinstance(one, View)),
        tuple(one for one in every if isinstance(one, Sequence)),
        tuple(declared.contents.types.values()),
        tuple(declared.contents.functions.values()),
    )
    return Declared(found, declared.version, declared.place, declared.schemas)

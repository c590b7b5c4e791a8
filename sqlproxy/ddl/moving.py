"""ALTER TABLE, VIEW, SEQUENCE … SET SCHEMA as a procedure of one transaction.

    SetSchema  {namespace, name, to: namespace, if_exists?}      → {name, namespace, kind}

A table takes along the names of its indexes and of its primary key, and the sequences that its
columns own; its rows stay where they are, placed as the other namespace says. What depends on
something is in the same schema, so what other things depend on is refused (0A000), with what they
are: foreign keys from and to others, views, defaults, enums.

The old name is kept until every cache has forgotten it, as that of a table that was renamed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, Final

from kv.base.errors import KvorumError
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, again, done, exclusive
from procedures.engine.registry import Registry, procedure, step
from sqlproxy.catalog import catalog, relations
from sqlproxy.catalog.relations import IndexName, Relations
from sqlproxy.ddl.ddl_objects import Changed, usable
from sqlproxy.ddl.placing import placed_anew
from sqlproxy.ddl.steps import CatalogTxn, known_fields, name_in
from sqlproxy.ddl.switching import SETTLE_MS
from sqlproxy.rows import records
from sqlproxy.rows.naming import nextval_of, schema_of
from sqlproxy.rows.schema import Sequence, Table, View
from sqlproxy.values import enums
from sqlproxy.values.refusals import invalid, refusal

_FIELDS: Final = frozenset({"namespace", "name", "to", "if_exists"})


def register(registry: Registry, changed: Changed) -> None:
    """Serve the procedure of this module."""
    registry.add(SetSchema, make=lambda: SetSchema(changed))


def _locks(args: object) -> list[Lock]:
    name = name_in(args, "name")
    spaces = dict.fromkeys(name_in(args, field) for field in ("namespace", "to"))
    return [exclusive(f"table/{space}/{name}") for space in spaces]


@procedure("SetSchema", locks=_locks)
class SetSchema:
    """See the module. `changed` is called for tables: a hint to caches, before the commit."""

    def __init__(self, changed: Changed) -> None:
        self.changed = changed

    @step(first=True)
    async def move(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, AlreadyExists, Refused (something depends on it)."""
        args = known_fields(ctx.args, _FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace, name, to = (name_in(args, field) for field in ("namespace", "name", "to"))
        result = {"name": name, "namespace": to}
        if args.get("if_exists") and not await relations.find_relation(t, namespace, name):
            return done({**result, "missing": [name]})
        there = await usable(t, namespace, name)
        await catalog.hold_namespace(t, to)
        if isinstance(there, IndexName):
            raise invalid("42809", f'cannot move index "{name}": it goes with its table')
        if namespace == to:
            return done({**result, "kind": there.kind})
        wait_ms = await relations.gone_until(t, to, name) - ctx.now_ms
        if wait_ms > 0 and isinstance(there, Table):
            return again(delay_ms=wait_ms)
        await self._check_free(t, to, name)
        every = await relations.list_relations(t, namespace, creating=True)
        _check_alone(there, every)
        match there:
            case Table():
                await self._table(t, ctx, there, every, to)
            case View():
                await relations.drop_name(t, namespace, name)
                moved = replace(there, namespace=to, version=there.version + 1)
                await relations.put_view(t, moved)
            case Sequence():
                await _sequence(t, there, to)
        return done({**result, "kind": there.kind})

    @staticmethod
    async def _check_free(t: CatalogTxn, namespace: str, name: str) -> None:
        """Raises AlreadyExists (42P07)."""
        if (there := await relations.find_relation(t, namespace, name)) is not None:
            raise refusal(
                "42P07",
                f'relation "{name}" already exists in schema "{schema_of(namespace)}"',
                being=there.kind,
            )

    async def _table(
        self, t: CatalogTxn, ctx: StepContext, table: Table, every: Relations, to: str
    ) -> None:
        catalog.check_unlinked([table], "be moved to another schema")
        space, schema = await catalog.lookup_namespace(t, to), schema_of(to)
        owned = {one.id: one for one in every.sequences if _owns(table, one)}
        names = [index.name for index in table.indexes]
        if table.primary_key_name and not table.hidden_key:
            names.append(table.primary_key_name)
        for name in (*names, *(one.name for one in owned.values())):
            await self._check_free(t, to, name)
        await relations.drop_index_names(t, table)
        await catalog.remove(t, table)
        columns = tuple(
            replace(c, default_sql=nextval_of(owned[c.sequence].name, schema))
            if c.sequence in owned and c.default_sql
            else c
            for c in table.columns
        )
        moved = replace(table, namespace=to, columns=columns, version=table.version + 1)
        await catalog.write(t, moved)
        for number in moved.storage_ids:
            catalog.put_id(t, number, moved)
        await relations.put_index_names(t, moved)
        for sequence in owned.values():
            await _sequence(t, sequence, to)
        await placed_anew(ctx, space, moved)
        row = [records.FORMAT, relations.GONE, ctx.now_ms + SETTLE_MS]
        await relations.put_name(t, table.namespace, table.name, row)
        for namespace in (table.namespace, to):
            self.changed(namespace, table.name)


async def _sequence(t: CatalogTxn, sequence: Sequence, to: str) -> None:
    await relations.drop_name(t, sequence.namespace, sequence.name)
    await relations.put_sequence(t, replace(sequence, namespace=to, version=sequence.version + 1))


def _owns(table: Table, sequence: Sequence) -> bool:
    return sequence.owned_by is not None and sequence.owned_by[0] == table.id


def _check_alone(one: Table | View | Sequence | Any, every: Relations) -> None:
    """Raises Refused (0A000): something of the schema depends on it, or it on something."""
    if isinstance(one, Sequence) and one.owned_by is not None:
        owner = every.by_id(one.owned_by[0])
        raise refusal(
            "0A000",
            "cannot move an owned sequence into another schema",
            detail=f'Sequence "{one.name}" is linked to table "{owner and owner.name}".',
        )
    if other := next(_linked(one, every), None):
        raise _needed(one, other)


def _linked(one: Table | View | Sequence | Any, every: Relations) -> Iterator[str]:
    """What it depends on, and what depends on it."""
    if isinstance(one, View):
        for number, _ in one.uses:
            read = every.by_id(number)
            yield "what it reads" if read is None else f"{read.kind} {read.name}"
    for view in every.views:
        if any(number == one.id for number, _ in view.uses):
            yield f"view {view.name}"
    numbering = {one.id}
    if isinstance(one, Table):
        numbering = {sequence.id for sequence in every.sequences if _owns(one, sequence)}
        yield from _of_columns(one, numbering)
        for table in every.tables:
            for key in table.foreign_keys:
                if (table.id == one.id) != (key.table == one.id):
                    yield f"constraint {key.name} of table {table.name}"
    for table in every.tables:
        if table.id != one.id and any(column.sequence in numbering for column in table.columns):
            yield f"a default of table {table.name}"


def _of_columns(table: Table, owned: Collection[int]) -> Iterator[str]:
    for column in table.columns:
        if enums.oid_in(column.type):
            yield f"the type of its column {column.name}"
        if column.sequence and column.sequence not in owned:
            yield f"the sequence of its column {column.name}"


def _needed(one: Any, other: str) -> KvorumError:
    return refusal(
        "0A000",
        f"moving {one.kind} {one.name} to another schema is not supported: {other} has to be in "
        "the same schema",
        hint="Drop what depends on it, move it, and make the rest again in the other schema.",
        code="HAS_DEPENDENTS",
    )

"""ALTER TABLE, VIEW, SEQUENCE … SET SCHEMA, and ALTER SCHEMA … RENAME TO, as procedures of one
transaction each.

    SetSchema     {namespace, name, to: namespace, views?: {path: sql}, if_exists?}
                                                                  → {name, namespace, kind}
    RenameSchema  {namespace, to: namespace, texts?: {sql: sql}}  → {namespace, tables}

A table takes along the names of its indexes and of its primary key, and the sequences that its
columns own; its rows stay where they are, placed as the other namespace says. What refers to
something does so by its id, so it goes on doing so; what is kept as SQL text and names a schema
must be given anew by who can read SQL (`views` by their paths, `texts` by what they were), else it
is refused and nothing is changed. What functions do is read when they are called, so it stays.

The old name of a table is kept until every cache has forgotten it, as that of one that was renamed;
that of a schema with tables, or with a name that is kept, too (`relations.space_gone_until`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kv.base.errors import InvalidArgument
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, again, done, exclusive
from procedures.engine.registry import Registry, procedure, step
from sqlproxy.catalog import catalog, grants, relations, roles
from sqlproxy.catalog.dropping import described, says
from sqlproxy.catalog.relations import IndexName, Relations
from sqlproxy.ddl.ddl_objects import (
    Changed,
    sequence_renamed,
    unreadable,
    usable,
    views_anew,
)
from sqlproxy.ddl.placing import placed_anew
from sqlproxy.ddl.steps import CatalogTxn, known_fields, name_in
from sqlproxy.ddl.switching import SETTLE_MS
from sqlproxy.rows import records
from sqlproxy.rows.naming import check_name, database_of, nextval_of, schema_of
from sqlproxy.rows.schema import Sequence, Table, View
from sqlproxy.values.refusals import invalid, refusal

_FIELDS: Final = frozenset({"namespace", "name", "to", "views", "if_exists"})
_SCHEMA_FIELDS: Final = frozenset({"namespace", "to", "texts"})


def register(registry: Registry, changed: Changed) -> None:
    """Serve the procedure of this module."""
    registry.add(SetSchema, make=lambda: SetSchema(changed))
    registry.add(RenameSchema, make=lambda: RenameSchema(changed))


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
        every = await relations.list_database(t, namespace, creating=True)
        _check_alone(there, every)
        await views_anew(t, namespace, int(there.id), args.get("views") or {})
        match there:
            case Table():
                await self._table(t, ctx, there, every, to)
            case View():
                await relations.drop_name(t, namespace, name)
                moved = replace(there, namespace=to, version=there.version + 1)
                await relations.put_view(t, moved)
            case Sequence():
                await _sequence(t, there, to)
                await sequence_renamed(t, there, named_by(there, to), self.changed)
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
        space = await catalog.lookup_namespace(t, to)
        owned = {one.id: one for one in every.sequences if _owns(table, one)}
        names = [index.name for index in table.indexes]
        if table.primary_key_name and not table.hidden_key:
            names.append(table.primary_key_name)
        for name in (*names, *(one.name for one in owned.values())):
            await self._check_free(t, to, name)
        await relations.drop_index_names(t, table)
        await catalog.remove(t, table)
        moved = replace(table, namespace=to, version=table.version + 1)
        await catalog.write(t, moved)
        for number in moved.storage_ids:
            catalog.put_id(t, number, moved)
        await relations.put_index_names(t, moved)
        for sequence in owned.values():
            await _sequence(t, sequence, to)
            await sequence_renamed(t, sequence, named_by(sequence, to), self.changed)
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


def _check_alone(one: Table | View | Sequence, every: Relations) -> None:
    """Raises Refused (0A000): it goes with a table, or its name would be said in a text that is
    not given anew.
    """
    if isinstance(one, Sequence) and one.owned_by is not None:
        owner = every.by_id(one.owned_by[0])
        raise refusal(
            "0A000",
            "cannot move an owned sequence into another schema",
            detail=f'Sequence "{one.name}" is linked to table "{owner and owner.name}".',
        )
    owned = {int(own.id) for own in every.sequences if isinstance(one, Table) and _owns(one, own)}
    for view in every.views:
        if any(number in owned for number, _ in view.uses):
            raise refusal(
                "0A000",
                f"moving {described(one)} to another schema is not supported while "
                f"{described(view)} reads its sequence",
                hint="Drop the view, and make it again afterwards.",
                code="HAS_DEPENDENTS",
            )


def named_by(sequence: Sequence, namespace: str) -> str:
    """The default that takes its numbers when it is in that namespace."""
    return nextval_of(sequence.name, schema_of(namespace))


# -- schemas


def _schema_locks(args: object) -> list[Lock]:
    names = dict.fromkeys(name_in(args, field) for field in ("namespace", "to"))
    return [exclusive(f"namespace/{name}") for name in names]


@procedure("RenameSchema", locks=_schema_locks)
class RenameSchema:
    """See the module. `changed` is called for tables: a hint to caches, before the commit."""

    def __init__(self, changed: Changed) -> None:
        self.changed = changed

    @step(first=True)
    async def rename(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, AlreadyExists (42P06), InvalidArgument, Refused (a text that says the
        old name was not given anew).
        """
        args = known_fields(ctx.args, _SCHEMA_FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace, to = name_in(args, "namespace"), name_in(args, "to")
        texts = args.get("texts") or {}
        _check_schemas(namespace, to)
        wait_ms = await relations.space_gone_until(t, to) - ctx.now_ms
        if wait_ms > 0:
            return again(delay_ms=wait_ms)
        every = await relations.list_database(t, namespace, creating=True)
        tables = await catalog.list_tables(t, namespace)
        catalog.check_unlinked(tables, "be in a schema that is renamed")
        await catalog.rename_namespace(t, namespace, to)
        until_ms = ctx.now_ms + SETTLE_MS if tables else 0
        await relations.move_names(t, namespace, to, until_ms=until_ms)
        retold = _Retold(schema_of(namespace), texts)
        for table in (*tables, *every.of(namespace, others=True).tables):
            await self._table(t, retold, table, namespace, to)
        for view in every.views:
            space = to if view.namespace == namespace else view.namespace
            sql = retold.text(view.sql, described(view))
            if sql != view.sql:
                anew = replace(view, namespace=space, sql=sql, version=view.version + 1)
                await relations.put_view(t, anew)
        for one in every.functions:
            space = to if one.namespace == namespace else one.namespace
            arguments = tuple(
                a._replace(default=retold.given(a.default, f"function {one.title}"))
                for a in one.arguments
            )
            if arguments != one.arguments:
                anew_one = replace(
                    one, namespace=space, arguments=arguments, version=one.version + 1
                )
                await relations.put_function(t, anew_one)
        if await grants.moved(t, namespace, to):
            await roles.touch(t)
        return done({"namespace": to, "tables": len(tables)})

    async def _table(
        self, t: CatalogTxn, retold: _Retold, table: Table, namespace: str, to: str
    ) -> None:
        anew = retold.table(table)
        if table.namespace == namespace:
            catalog.put_moved(t, table, replace(anew, namespace=to, version=table.version + 1))
            self.changed(to, table.name)
        elif anew != table:
            await catalog.write(t, replace(anew, version=table.version + 1))
        else:
            return
        self.changed(table.namespace, table.name)


class _Retold:
    """What is kept as SQL, where a schema has another name."""

    def __init__(self, schema: str, texts: object) -> None:
        if not isinstance(texts, Mapping):
            raise InvalidArgument(f"the argument 'texts' must be a map, got {texts!r:.80}")
        self._schema, self._texts = schema, texts

    def text(self, sql: str, whose: str) -> str:
        """Raises Refused: it may say the old name, and was not given anew."""
        if not says(sql, self._schema):
            return sql
        found = self._texts.get(sql)
        if not isinstance(found, str):
            raise unreadable(whose)
        return found

    def given(self, sql: str | None, whose: str) -> str | None:
        return None if sql is None else self.text(sql, whose)

    def table(self, table: Table) -> Table:
        of = described(table)
        return replace(
            table,
            columns=tuple(
                replace(
                    c,
                    default_sql=self.given(c.default_sql, f"column {c.name} of {of}"),
                    generated=self.given(c.generated, f"column {c.name} of {of}"),
                    on_update=self.given(c.on_update, f"column {c.name} of {of}"),
                )
                for c in table.columns
            ),
            checks=tuple(
                replace(c, sql=self.text(c.sql, f"constraint {c.name} on {of}"))
                for c in table.checks
            ),
            indexes=tuple(
                replace(i, where=self.text(i.where, f"index {i.name}")) for i in table.indexes
            ),
        )


def _check_schemas(namespace: str, to: str) -> None:
    """Raises InvalidArgument: these are no two schemas of one database."""
    for name in (namespace, to):
        check_name("namespace", name)
        if name == database_of(name):
            raise InvalidArgument(f"{name} is a database: only its other schemas are renamed")
    if database_of(namespace) != database_of(to):
        raise InvalidArgument(f"{namespace} and {to} are schemas of two databases")

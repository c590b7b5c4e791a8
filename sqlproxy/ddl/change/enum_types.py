"""CREATE, ALTER and DROP TYPE of enums (`sqlproxy.values.enums`, docs/decisions/1076).

    CreateEnum   {namespace, name, labels, owner?}                       → {id, oid, name}
    DropEnum     {namespace, names, if_exists?, cascade?}                → {dropped, missing}
    RenameEnum   {namespace, name, to}, or {namespace, name, label, to}  → {name, version}
    AddLabel     {namespace, name, label, before? | after?, if_not_exists?}   → {name, version}

The first three are one transaction each: a position means the same before and after. Behind a new
name for a label all processes are waited for: the old name may be given to another label next, and
who knows only the version before would write the position that it had. AddLabel has two versions,
as a new column has: who knows the older one would meet a position without a label.

    rename  ─▶ known ─(wait)─▶ done        only a label's: `back` undoes it

    declare ─▶ taken ─(wait)─▶ done        declare: the label is read by all, and not yet written
        │undo: withdraw                    taken: every process reads it; it may be written

Where no table has the type there is nothing to wait for. Each column says all of its type, so every
table with it is written anew, its version with it; what a column says is brought up to date by
`catalog.write` in the same transaction.

Expressions that are kept as SQL (defaults, checks, generated columns, views) name types and labels
by their texts. A rename is refused while one says the old one, but for a default that is the label;
so is a DROP of a type that only a text names.

Deliberately missing: DROP … CASCADE of a type that is in use (0A000).

ctx.state: tables (ids that the label was declared to, or renamed in), told (RenameEnum's result).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kv.base.errors import AlreadyExists, InvalidArgument, KvorumError, NotFound
from kv.base.ids import TableId
from kv.base.limits import ENUM_LABELS_MAX
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, done
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from sqlproxy.catalog import catalog, relations
from sqlproxy.catalog.dropping import check_unused, says, says_type, texts_of, users_of
from sqlproxy.catalog.relations import Relations
from sqlproxy.ddl.change.states import Change, ChangeServices
from sqlproxy.ddl.ddl_objects import rename_locks
from sqlproxy.ddl.steps import (
    CatalogTxn,
    drop_locks,
    known_fields,
    name_in,
    names_in,
    names_to_drop,
    table_locks,
)
from sqlproxy.rows.naming import check_sql_name
from sqlproxy.rows.schema import DROPPING, EnumType
from sqlproxy.values import enums
from sqlproxy.values.enums import Enum
from sqlproxy.values.errors import SqlError
from sqlproxy.values.refusals import invalid, refusal

_CREATE_FIELDS: Final = frozenset({"namespace", "name", "labels", "owner"})
_DROP_FIELDS: Final = frozenset({"namespace", "name", "names", "if_exists", "cascade"})
_RENAME_FIELDS: Final = frozenset({"namespace", "name", "label", "to"})
_ADD_FIELDS: Final = frozenset({"namespace", "name", "label", "before", "after", "if_not_exists"})


def register(registry: Registry, services: ChangeServices) -> None:
    """Serve the procedures of this module."""
    registry.add(CreateEnum)
    registry.add(DropEnum)
    registry.add(RenameEnum, make=lambda: RenameEnum(services))
    registry.add(AddLabel, make=lambda: AddLabel(services))


def _rename_locks(args: object) -> list[Lock]:
    """The old name and the new one; for a label the type's."""
    own = isinstance(args, Mapping) and "label" in args
    return table_locks(args) if own else rename_locks(args)


def refused(error: SqlError, kind: type[KvorumError] = InvalidArgument) -> KvorumError:
    """An error of SQL as one that a procedure carries."""
    return refusal(error.sqlstate, error.message, detail=error.detail, hint=error.hint, kind=kind)


def no_type(name: str) -> KvorumError:
    return refusal("42704", f'type "{name}" does not exist', kind=NotFound, name=name)


async def found_type(t: CatalogTxn, namespace: str, name: str) -> EnumType:
    """Raises NotFound (42704)."""
    there = await relations.find_relation(t, namespace, name)
    if isinstance(there, EnumType):
        return there
    await catalog.lookup_namespace(t, namespace)
    raise no_type(name)


@procedure("CreateEnum", locks=table_locks)
class CreateEnum:
    """See the module."""

    @step(first=True)
    async def create(self, ctx: StepContext) -> Outcome:
        """Raises AlreadyExists (42710), InvalidArgument (labels)."""
        args = known_fields(ctx.args, _CREATE_FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace, name = name_in(args, "namespace"), name_in(args, "name")
        check_sql_name("type", name)
        await relations.check_free_type(t, namespace, name)
        labels = tuple(names_in(args, "labels"))
        try:
            placed = enums.first_labels(labels)
        except SqlError as error:
            raise refused(error) from error
        number = await catalog.next_table_id(t)
        used = await relations.enum_oids(t)
        oid = enums.chosen_oid(name, f"{namespace}.{number}.{t.start_ts}.{labels}", used)
        role = name_in(args, "owner") if "owner" in args else ""
        one = EnumType(number, namespace, Enum(oid, t.start_ts, 1, name, placed), owner=role)
        await relations.put_type(t, one)
        return done({"id": one.id, "oid": oid, "namespace": namespace, "name": name})


@procedure("DropEnum", locks=drop_locks)
class DropEnum:
    """See the module."""

    @step(first=True)
    async def drop(self, ctx: StepContext) -> Outcome:
        """Raises NotFound (42704), Refused (2BP01; 0A000 with `cascade`)."""
        args = known_fields(ctx.args, _DROP_FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace = name_in(args, "namespace")
        await catalog.hold_namespace(t, namespace)
        found, missing = [], []
        for name in names_to_drop(args):
            one = await relations.find_relation(t, namespace, name)
            if isinstance(one, EnumType):
                found.append(one)
            elif args.get("if_exists"):
                missing.append(name)
            else:
                raise no_type(name)
        there = await relations.list_database(t, namespace, creating=True)
        for one in found:
            check_unused(there, one, cascade=bool(args.get("cascade")))
            await relations.drop_name(t, namespace, one.name)
        names = [one.name for one in found]
        return done({"namespace": namespace, "dropped": names, "missing": missing})


class _Changes(Change):
    """What procedures share that change a type which stays."""

    async def put(self, t: CatalogTxn, one: EnumType, *, awaited: bool = False) -> list[TableId]:
        """This version of a type, and all tables with it. Their ids."""
        await relations.put_type(t, one)
        found = []
        spaces = await catalog.list_schemas(t, one.namespace)
        every = [table for s in spaces for table in await catalog.list_tables(t, s.name)]
        for table in every:
            if table.state != DROPPING and any(True for _ in users_of((table,), one.enum.oid)):
                changed = replace(table, version=table.version + 1)
                await catalog.write(t, changed, awaited=awaited)
                self.services.changed(table.namespace, table.name)
                found.append(table.id)
        return found


@procedure("RenameEnum", locks=_rename_locks)
class RenameEnum(_Changes):
    """See the module."""

    @step(first=True, undo="back")
    async def rename(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, AlreadyExists (42710), InvalidArgument (22023: no such label), Refused
        (0A000: a text says the old name).
        """
        args = known_fields(ctx.args, _RENAME_FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace, to = name_in(args, "namespace"), name_in(args, "to")
        one = await found_type(t, namespace, name_in(args, "name"))
        there = await relations.list_database(t, namespace, creating=True)
        enum = one.enum
        if "label" in args:
            changed = self._labelled(enum, name_in(args, "label"), to)
            there = await self._defaults(t, there, enum, {args["label"]: to})
            _check_texts(_with_type(there, enum.oid), label=args["label"])
        else:
            check_sql_name("type", to)
            await relations.check_free_type(t, namespace, to)
            there = await self._defaults(t, there, enum, {})
            _check_texts(there, one)
            await relations.drop_name(t, namespace, one.name)
            changed = replace(enum, name=to, version=enum.version + 1)
        renamed = "label" in args
        tables = await self.put(t, replace(one, enum=changed), awaited=renamed)
        result = {"namespace": namespace, "name": changed.name, "version": changed.version}
        if not (renamed and tables):
            return done(result)
        ctx.state["told"] = result
        ctx.state["tables"] = [int(table) for table in tables]
        return go_on("known")

    @step
    async def known(self, ctx: StepContext) -> Outcome:
        """Nobody takes the old label any more, which may become another one's name next."""
        await self.settle(ctx)
        for number in ctx.state["tables"]:
            await self.services.settled.native_writers(TableId(number))
        return done(ctx.state["told"])

    @undo
    async def back(self, ctx: StepContext) -> None:
        """A label has its name of before; who waits for nobody is done with its first step."""
        if "told" not in ctx.state:
            return
        t = await CatalogTxn.of(ctx)
        one = await found_type(t, ctx.args["namespace"], ctx.args["name"])
        was, to = ctx.args["label"], ctx.args["to"]
        there = await relations.list_database(t, one.namespace, creating=True)
        await self._defaults(t, there, one.enum, {to: was})
        await self.put(t, replace(one, enum=self._labelled(one.enum, to, was)), awaited=True)

    @staticmethod
    def _labelled(enum: Enum, old: str, new: str) -> Enum:
        try:
            enums.check_label(new)
        except SqlError as error:
            raise refused(error) from error
        if old not in enum.names:
            raise invalid("22023", f'"{old}" is not an existing enum label')
        if new in enum.names:
            raise refusal("42710", f'enum label "{new}" already exists', kind=AlreadyExists)
        return enums.renamed(enum, old, new)

    @staticmethod
    async def _defaults(
        t: CatalogTxn, there: Relations, enum: Enum, now: Mapping[str, str]
    ) -> Relations:
        """A default that is a label is stored as its position; its text says the label alone, in
        new words.
        """
        tables = []
        for table in there.tables:
            columns = []
            for column in table.columns:
                had = column.default
                if enums.oid_in(column.type) == enum.oid and isinstance(had, str):
                    text = "'" + now.get(had, had).replace("'", "''") + "'"
                    column = replace(column, default_sql=text)
                columns.append(column)
            if tuple(columns) != table.columns:
                table = replace(table, columns=tuple(columns))
                await catalog.write(t, table)
            tables.append(table)
        return replace(there, tables=tuple(tables))


def _with_type(there: Relations, oid: int) -> Relations:
    """The tables that have the type, and all views, if there are some."""
    tables = tuple(table for table in there.tables if any(True for _ in users_of((table,), oid)))
    return replace(there, tables=tables, views=there.views if tables else ())


def _labels_in(sql: str, label: str) -> bool:
    """Whether a string in a text is the label, or an array with it: rather once too often. Stored
    texts have no other form of strings.
    """
    if "'" + label.replace("'", "''") + "'" in sql:
        return True
    for literal in re.findall(r"'((?:[^']|'')*)'", sql):
        text = literal.replace("''", "'")
        if text.lstrip().startswith("{"):
            plain = re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
            if f'"{label}"' in plain or (label and says(plain, label)):
                return True
    return False


def _check_texts(there: Relations, one: EnumType | None = None, *, label: str = "") -> None:
    """No text that is kept may say the type's old name, or the old label of a type that is used;
    but for defaults that are the label itself, which were written anew. Raises Refused.
    """
    for whose, sql in texts_of(there):
        if says_type(sql, one) if one is not None else _labels_in(sql, label):
            raise refusal(
                "0A000",
                f"{whose} says the old name, and its text is not written anew",
                hint="Drop it first and make it again afterwards.",
                code="HAS_DEPENDENTS",
            )


@procedure("AddLabel", locks=table_locks)
class AddLabel(_Changes):
    """See the module."""

    @step(first=True, undo="withdraw")
    async def declare(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, AlreadyExists (42710), InvalidArgument (22023: no such neighbour;
        42602), TooLarge (54000).
        """
        args = known_fields(ctx.args, _ADD_FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace, label = name_in(args, "namespace"), name_in(args, "label")
        one = await found_type(t, namespace, name_in(args, "name"))
        if label in one.enum.names:
            if args.get("if_not_exists"):
                return done({"name": one.name, "version": one.version, "exists": label})
            raise refusal("42710", f'enum label "{label}" already exists', kind=AlreadyExists)
        enum = self._wider(one.enum, label, args)
        tables = await self.put(
            t, replace(one, enum=replace(enum, pending=(*enum.pending, label))), awaited=True
        )
        ctx.state["declared"] = True
        ctx.state["tables"] = [int(table) for table in tables]
        return go_on("taken")

    @staticmethod
    def _wider(enum: Enum, label: str, args: Any) -> Enum:
        beside = {
            where: name_in(args, where)
            for where in ("before", "after")
            if args.get(where) is not None
        }
        for neighbour in beside.values():
            if neighbour not in enum.names:
                raise invalid("22023", f'"{neighbour}" is not an existing enum label')
        try:
            enums.check_label(label)
            if len(enum.labels) >= ENUM_LABELS_MAX:
                raise enums.too_many(len(enum.labels) + 1)
            labels = enums.added(enum.labels, label, **beside)
        except SqlError as error:
            raise refused(error) from error
        return replace(enum, labels=labels, version=enum.version + 1)

    @step
    async def taken(self, ctx: StepContext) -> Outcome:
        """Every process reads it."""
        if ctx.state["tables"]:
            await self.settle(ctx)
            for number in ctx.state["tables"]:
                await self.services.settled.native_writers(TableId(number))
        t = await CatalogTxn.of(ctx)
        one = await found_type(t, ctx.args["namespace"], ctx.args["name"])
        pending = tuple(label for label in one.enum.pending if label != ctx.args["label"])
        enum = replace(one.enum, pending=pending, version=one.enum.version + 1)
        await self.put(t, replace(one, enum=enum))
        return done({"name": one.name, "version": enum.version})

    @undo
    async def withdraw(self, ctx: StepContext) -> None:
        """Nobody has written the label."""
        if "declared" not in ctx.state:
            return
        t = await CatalogTxn.of(ctx)
        there = await relations.find_relation(t, ctx.args["namespace"], ctx.args["name"])
        label = ctx.args["label"]
        if not isinstance(there, EnumType) or label not in there.enum.pending:
            return
        enum = there.enum
        labels = tuple(pair for pair in enum.labels if pair[0] != label)
        pending = tuple(one for one in enum.pending if one != label)
        changed = replace(enum, labels=labels, pending=pending, version=enum.version + 1)
        await self.put(t, replace(there, enum=changed))

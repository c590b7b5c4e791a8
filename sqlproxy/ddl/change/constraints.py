"""Constraints of tables that have rows already: enforced first, then looked for in what is there.

    AddConstraint  {namespace, name, check: {…}, | foreign_key: {…}, | not_null: column,
                    | validate: constraint,  not_valid?}          → {table_id, constraint, rows}

    declare ─▶ settled ─(wait)─▶ look… ─▶ publish
     │undo: withdraw                       │undo: doubt

From `declare` on whoever hears of a constraint enforces it (`write_only`: new rows obey it, users
do not see it). When nobody is left who does not, the rows are read in chunks; each chunk is a
snapshot of its own: a row that is after the cursor was written by somebody who obeys. One that
breaks it takes the constraint back. NOT VALID ends before the look, VALIDATE begins there.

NOT NULL is a check meanwhile: a column is only called not nullable when it has no NULL.

ctx.state: table (id), constraint (name), parent (id of the table that a foreign key refers to, 0),
validate, at (key), rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.ids import TableId
from kv.base.keys import table_prefix, table_range
from kv.base.limits import CHECKS_MAX, FOREIGN_KEYS_MAX, SQL_FILL_ROWS
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, again, done, exclusive
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from sqlproxy.catalog import catalog, relations
from sqlproxy.ddl import resolve_declaration
from sqlproxy.ddl.change.altering import column_of, no_constraint, with_column
from sqlproxy.ddl.change.backfill import shown_values
from sqlproxy.ddl.change.states import Change, ChangeServices
from sqlproxy.ddl.declaring import with_parts
from sqlproxy.ddl.steps import CatalogTxn, name_in
from sqlproxy.rows import rows
from sqlproxy.rows.naming import first_free, located
from sqlproxy.rows.schema import PUBLIC, WRITE_ONLY, Check, Column, ForeignKey, Table
from sqlproxy.tables.entries import index_codec
from sqlproxy.values.refusals import invalid

_FIELDS: Final = frozenset(
    {"namespace", "name", "check", "foreign_key", "not_null", "validate", "not_valid"}
)
_PREFIX: Final = 4  # bytes of a table's id in front of its user keys
Found = Sequence[tuple[bytes, bytes, int]]


def register(registry: Registry, services: ChangeServices) -> None:
    """Serve the procedure of this module."""
    registry.add(AddConstraint, make=lambda: AddConstraint(services))


def locks(args: Any) -> list[Lock]:
    """The table, and the one that it shall refer to."""
    namespace = name_in(args, "namespace")
    places = [(namespace, name_in(args, "name"))]
    if isinstance(key := args.get("foreign_key"), Mapping):
        places.append(located(namespace, key.get("table")))
    return [exclusive(f"table/{space}/{one}") for space, one in dict.fromkeys(places)]


@procedure("AddConstraint", locks=locks)
class AddConstraint(Change):
    """See the module."""

    @step(first=True, undo="withdraw")
    async def declare(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, AlreadyExists, InvalidArgument in PostgreSQL's words."""
        args, t, table = await self.named(ctx, _FIELDS)
        ctx.state["table"] = table.id
        if "validate" in args:
            one = part_of(table, str(args["validate"]))
            ctx.state.update(constraint=one.name, validate=True, parent=_parent_of(one))
            return done(self._result(ctx, 0)) if one.state == PUBLIC else go_on("settled")
        if "not_null" in args:
            column = column_of(table, {"column": args["not_null"]})
            if not column.nullable:
                return done(self._result(ctx, 0))
            taken = {c.name for c in table.checks} | {k.name for k in table.foreign_keys}
            name = first_free(table.name, column.name, "not_null", taken)
            quoted = '"' + column.name.replace('"', '""') + '"'
            check = Check(name, f"{quoted} IS NOT NULL", (column.id,))
            changed = replace(table, checks=(*table.checks, check))
        else:
            changed = await self._declared(t, table, args)
        names = [check.name for check in changed.checks[len(table.checks) :]]
        names += [key.name for key in changed.foreign_keys[len(table.foreign_keys) :]]
        if any(index.constraint and index.name == names[0] for index in table.indexes):
            raise resolve_declaration.constraint_exists(table, names[0])
        (ctx.state["constraint"],) = names
        ctx.state["parent"] = _parent_of(part_of(changed, names[0]))
        await self.write(t, with_state(changed, names[0], WRITE_ONLY))
        return done(self._result(ctx, 0)) if args.get("not_valid") else go_on("settled")

    async def _declared(self, t: CatalogTxn, table: Table, args: Any) -> Table:
        """The table with the check, or the foreign key, after its own."""
        bare = replace(table, indexes=(), checks=(), foreign_keys=())
        if args.get("check"):
            if len(table.checks) >= CHECKS_MAX:
                raise InvalidArgument(f"{table.path}: more than {CHECKS_MAX} checks")
            (check,) = with_parts(bare, {"checks": [args["check"]]}).table.checks
            if any(check.name == key.name for key in table.foreign_keys):
                raise resolve_declaration.constraint_exists(table, check.name)
            return resolve_declaration.with_check_names(
                replace(table, checks=(*table.checks, check))
            )
        if args.get("foreign_key"):
            if len(table.foreign_keys) >= FOREIGN_KEYS_MAX:
                raise InvalidArgument(f"{table.path}: more than {FOREIGN_KEYS_MAX} foreign keys")
            draft = with_parts(bare, {"foreign_keys": [args["foreign_key"]]})
            return await resolve_declaration.with_foreign_keys(t, table, draft.foreign_keys)
        raise InvalidArgument("give 'check', 'foreign_key', 'not_null' or 'validate'")

    @undo
    async def withdraw(self, ctx: StepContext) -> None:
        """It binds nobody any more. One that was there before, not validated, stays."""
        if "constraint" not in ctx.state or ctx.state.get("validate"):
            return
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        name = ctx.state["constraint"]
        gone = [key for key in table.foreign_keys if key.name == name]
        left = tuple(key for key in table.foreign_keys if key.name != name)
        checks = tuple(check for check in table.checks if check.name != name)
        changed = await self.write(t, table, checks=checks, foreign_keys=left)
        if gone and not any(key.table == gone[0].table for key in left):
            await resolve_declaration.unrefer(t, changed, gone[0].table)

    @step
    async def settled(self, ctx: StepContext) -> Outcome:
        """Whoever writes obeys."""
        await self.settle(ctx, native=True)
        if parent := ctx.state.get("parent"):  # nobody removes its rows without looking
            await self.services.settled.native_writers(TableId(parent))
        t = await CatalogTxn.of(ctx)
        await catalog.touch(t, ctx.args["namespace"])
        ctx.state["at"], ctx.state["rows"] = table_range(ctx.state["table"])[0], 0
        return go_on("look")

    @step
    async def look(self, ctx: StepContext) -> Outcome:
        """A chunk of rows. Raises InvalidArgument (23502, 23503, 23514)."""
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        one = part_of(table, ctx.state["constraint"])
        page = await ctx.txn.scan(ctx.state["at"], table_range(table.id)[1], limit=SQL_FILL_ROWS)
        if isinstance(one, ForeignKey):
            await look_for_parents(t, ctx, table, one, page.items)
        elif "not_null" in ctx.args:
            look_for_nulls(table, ctx.args["not_null"], page.items)
        else:
            await look_for_breaches(t, table, one, page.items)
        ctx.state["rows"] += len(page.items)
        ctx.progress(0, f"{ctx.state['rows']} rows")
        if page.resume is None:
            return go_on("publish")
        ctx.state["at"] = page.resume
        return again()

    @step(undo="doubt")
    async def publish(self, ctx: StepContext) -> Outcome:
        """Every row obeys it."""
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        name = ctx.state["constraint"]
        if "not_null" in ctx.args:
            column = column_of(table, {"column": ctx.args["not_null"]})
            checks = tuple(check for check in table.checks if check.name != name)
            table = replace(with_column(table, replace(column, nullable=False)), checks=checks)
        else:
            table = with_state(table, name, PUBLIC)
        await self.write(t, table)
        return done(self._result(ctx, ctx.state["rows"]))

    @undo
    async def doubt(self, ctx: StepContext) -> None:
        """It is not said of the rows any more, as before. The check that NOT NULL was is gone."""
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        if "not_null" in ctx.args:
            column = column_of(table, {"column": ctx.args["not_null"]})
            table = with_column(table, replace(column, nullable=True))
        else:
            table = with_state(table, ctx.state["constraint"], WRITE_ONLY)
        await self.write(t, table)

    @staticmethod
    def _result(ctx: StepContext, count: int) -> dict[str, Any]:
        name = ctx.state.get("constraint", "")
        return {"table_id": ctx.state["table"], "constraint": name, "rows": count}


def part_of(table: Table, name: str) -> Check | ForeignKey:
    """The check or foreign key of this name. Raises NotFound (42704)."""
    parts: list[Check | ForeignKey] = [*table.checks, *table.foreign_keys]
    for one in parts:
        if one.name == name:
            return one
    raise no_constraint(table, name)


def _parent_of(part: Check | ForeignKey) -> int:
    """The table that it refers to; 0: none."""
    return int(part.table) if isinstance(part, ForeignKey) else 0


def with_state(table: Table, name: str, state: str) -> Table:
    """The table with this check, or foreign key, in this state."""
    checks = tuple(replace(c, state=state) if c.name == name else c for c in table.checks)
    keys = tuple(replace(k, state=state) if k.name == name else k for k in table.foreign_keys)
    return replace(table, checks=checks, foreign_keys=keys)


# -- what is looked for


def look_for_nulls(table: Table, name: str, found: Found) -> None:
    """Raises InvalidArgument (23502)."""
    number, codec = table.column(name).id, rows.codec(table)
    for key, value, _ in found:
        if codec.decode_slots(key[_PREFIX:], value)[number] is None:
            raise invalid(
                "23502", f'column "{name}" of relation "{table.name}" contains null values'
            )


async def look_for_breaches(t: CatalogTxn, table: Table, check: Check, found: Found) -> None:
    """Raises InvalidArgument (23514, or what the expression itself fails with)."""
    # Reading SQL costs 60 MB and a moment, so a master that validates nothing never loads it.
    from sqlproxy.declared.database import Declared
    from sqlproxy.front.bound.env import Env
    from sqlproxy.pg.style import Style
    from sqlproxy.tables.compile_rules import rules_of
    from sqlproxy.values.errors import SqlError

    there = await relations.list_database(t, table.namespace)
    alone = replace(table, checks=(check,), columns=_plain_columns(table))
    rules = rules_of(alone, Declared(there, 0), Style())
    codec, (_, holds), env = rows.codec(table), rules.checks[0], Env()
    for key, value, _ in found:
        try:
            broken = holds(codec.decode_row(key[_PREFIX:], value), env) is False
        except SqlError as error:
            raise invalid(error.sqlstate, error.message) from error
        if broken:
            raise invalid(
                "23514",
                f'check constraint "{check.name}" of relation "{table.name}" is violated by some '
                "row",
            )


def _plain_columns(table: Table) -> tuple[Column, ...]:
    """Without defaults and the like, which need not be compiled."""
    return tuple(c.without_expressions() for c in table.columns)


async def look_for_parents(
    t: CatalogTxn, ctx: StepContext, table: Table, key: ForeignKey, found: Found
) -> None:
    """Raises InvalidArgument (23503)."""
    parent = await catalog.find_by_id(t, key.table)
    assert parent is not None, "its lock is held, or a foreign key refers to it"
    codec = rows.codec(table)
    at = {column.id: place for place, column in enumerate(table.columns)}
    wanted: dict[bytes, list[object]] = {}
    for where, value, _ in found:
        row = codec.decode_row(where[_PREFIX:], value)
        values = [row[at[number]] for number in key.columns]
        if None not in values:
            wanted.setdefault(parent_key(parent, key, values), values)
    for place, row in zip(wanted, await ctx.txn.multi_get(list(wanted)), strict=True):
        if row is None:
            raise _no_parent(table, parent, key, wanted[place])


def parent_key(parent: Table, key: ForeignKey, values: Sequence[object]) -> bytes:
    """The storage key that is there if and only if the row that is referred to is."""
    given = dict(zip(key.referenced, values, strict=True))
    primary = [column.id for column in parent.key_columns]
    if set(primary) == set(key.referenced):
        encoded = rows.codec(parent).encode_key([given[number] for number in primary])
        return table_prefix(parent.id) + encoded
    for index in parent.indexes:
        usable = index.immediate and index.state == PUBLIC and not index.where
        if usable and set(index.column_ids) == set(key.referenced):
            codec = index_codec(parent, index)
            return table_prefix(index.id) + codec.prefix([given[n] for n in index.column_ids])
    raise AssertionError("what a foreign key refers to is unique")


def _no_parent(
    table: Table, parent: Table, key: ForeignKey, values: Sequence[object]
) -> KvorumError:
    columns = [table.by_id(number) for number in key.columns]
    return invalid(
        "23503",
        f'insert or update on table "{table.name}" violates foreign key constraint "{key.name}"',
        detail=f'Key {shown_values(columns, values)} is not present in table "{parent.name}".',
    )

"""CREATE and DROP FUNCTION of those in SQL (docs/decisions/1546), one transaction each.

    CreateFunction   {namespace, name, title, arguments: [[name, oid, default | null], …], result,
                      columns: [[name, oid], …], sql, strict, volatile, replace?, owner?}
                     → {id, name, version}
    DropFunction     {namespace, names, if_exists?, cascade?}            → {dropped, missing}

`name` is that of the catalog (`sqlproxy.rows.schema.function_name`): the types of the arguments
belong to it. What is kept as SQL (views, other functions) names a function by its text; a DROP is
refused while one does.

Deliberately missing: DROP … CASCADE of a function that is in use (0A000).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from kv.base.errors import AlreadyExists, InvalidArgument, NotFound
from kv.base.limits import SQL_FUNCTION_ARGUMENTS_MAX, SQL_FUNCTION_CHARS_MAX
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, done
from procedures.engine.registry import Registry, procedure, step
from sqlproxy.catalog import catalog, relations
from sqlproxy.catalog.dropping import texts_of
from sqlproxy.catalog.relations import Relations
from sqlproxy.ddl.steps import (
    CatalogTxn,
    drop_locks,
    known_fields,
    name_in,
    places_to_drop,
    table_locks,
)
from sqlproxy.front.types.registry import format_type
from sqlproxy.rows.naming import PUBLIC, check_sql_name, schema_of, shown_name
from sqlproxy.rows.schema import FunctionArgument, SqlFunction
from sqlproxy.values.refusals import dependents, invalid, refusal

_CREATE_FIELDS: Final = frozenset(
    {
        "namespace",
        "name",
        "title",
        "arguments",
        "result",
        "columns",
        "sql",
        "strict",
        "volatile",
        "replace",
        "owner",
    }
)
_DROP_FIELDS: Final = frozenset({"namespace", "name", "names", "if_exists", "cascade"})


def register(registry: Registry) -> None:
    """Serve the procedures of this module."""
    registry.add(CreateFunction)
    registry.add(DropFunction)


@procedure("CreateFunction", locks=table_locks)
class CreateFunction:
    """See the module."""

    @step(first=True)
    async def create(self, ctx: StepContext) -> Outcome:
        """Raises AlreadyExists (42723), InvalidArgument (42P13: not as a replacement)."""
        args = known_fields(ctx.args, _CREATE_FIELDS)
        t = await CatalogTxn.of(ctx)
        one = _function(args)
        await catalog.hold_namespace(t, one.namespace)
        there = await relations.find_function(t, one.namespace, one.name)
        if there is None:
            await relations.check_free(t, one.namespace, one.name)
            one = replace(one, id=await catalog.next_table_id(t))
        elif not args.get("replace"):
            raise refusal(
                "42723",
                f'function "{one.title}" already exists with same argument types',
                kind=AlreadyExists,
                namespace=one.namespace,
                name=one.name,
            )
        else:
            _check_replaced(there, one)
            one = replace(one, id=there.id, version=there.version + 1, owner=there.owner)
        await relations.put_function(t, one)
        return done({"id": one.id, "namespace": one.namespace, "name": one.name})


def _function(args: Mapping[str, Any]) -> SqlFunction:
    """Raises InvalidArgument."""
    title, sql = name_in(args, "title"), name_in(args, "sql")
    check_sql_name("function", title)
    if len(sql) > SQL_FUNCTION_CHARS_MAX:
        raise invalid("54000", f"a function has at most {SQL_FUNCTION_CHARS_MAX} characters")
    try:
        arguments = tuple(FunctionArgument(n, int(oid), d) for n, oid, d in args["arguments"])
        columns = tuple((str(n), int(oid)) for n, oid in args.get("columns") or ())
        result = int(args["result"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(f"function {title}: its types are not understood: {error}") from error
    if len(arguments) > SQL_FUNCTION_ARGUMENTS_MAX:
        raise invalid(
            "54023", f"functions cannot have more than {SQL_FUNCTION_ARGUMENTS_MAX} arguments"
        )
    one = SqlFunction(
        id=0,
        namespace=name_in(args, "namespace"),
        title=title,
        arguments=arguments,
        result=result,
        columns=columns,
        sql=sql,
        strict=bool(args.get("strict")),
        volatile=name_in(args, "volatile"),
        owner=name_in(args, "owner") if "owner" in args else "",
    )
    if one.name != name_in(args, "name"):
        raise InvalidArgument(f"function {title}: its name in the catalog is {one.name!r}")
    return one


def _check_replaced(old: SqlFunction, new: SqlFunction) -> None:
    """Who calls it goes on as before."""
    if (old.result, old.columns) != (new.result, new.columns):
        raise invalid(
            "42P13",
            "cannot change return type of existing function",
            hint=f"Use DROP FUNCTION {shown_function(old)} first.",
        )
    for had, has in zip(old.arguments, new.arguments, strict=True):
        if had.name and had.name != has.name:
            raise invalid(
                "42P13",
                f'cannot change name of input parameter "{had.name}"',
                hint=f"Use DROP FUNCTION {shown_function(old)} first.",
            )
        if had.default is not None and has.default is None:
            raise invalid(
                "42P13",
                "cannot remove parameter defaults from existing function",
                hint=f"Use DROP FUNCTION {shown_function(old)} first.",
            )


def shown_function(one: SqlFunction) -> str:
    shown = ",".join(format_type(argument.oid) for argument in one.arguments)
    return f"{shown_name(one.namespace, one.title)}({shown})"


def check_uncalled(
    there: Relations, one: SqlFunction, gone: Container[int], *, cascade: bool = False
) -> None:
    """Raises Refused (2BP01; 0A000 with `cascade`): something that stays names the function."""
    lines = list(_users_of(there, one, gone))
    if lines and cascade:
        raise refusal(
            "0A000",
            f"DROP FUNCTION … CASCADE is not supported while {lines[0]}",
            detail="\n".join(lines),
            hint="Drop what uses it first.",
            code="HAS_DEPENDENTS",
        )
    if lines:
        raise dependents(f"function {shown_function(one)}", lines)


@procedure("DropFunction", locks=drop_locks)
class DropFunction:
    """See the module."""

    @step(first=True)
    async def drop(self, ctx: StepContext) -> Outcome:
        """Raises NotFound (42883), Refused (2BP01; 0A000 with `cascade`)."""
        args = known_fields(ctx.args, _DROP_FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace = name_in(args, "namespace")
        await catalog.hold_namespace(t, namespace)
        found: list[SqlFunction] = []
        missing = []
        for space, name in places_to_drop(args):
            one = await relations.find_function(t, space, name)
            if one is not None:
                found.append(one)
            elif args.get("if_exists"):
                missing.append(name)
            else:
                raise refusal("42883", f"function {name} does not exist", kind=NotFound, name=name)
        there = await relations.list_database(t, namespace, creating=True)
        gone = {one.id for one in found}
        for one in found:
            check_uncalled(there, one, gone, cascade=bool(args.get("cascade")))
            await relations.drop_name(t, one.namespace, one.name)
        names = [one.name for one in found]
        return done({"namespace": namespace, "dropped": names, "missing": missing})


def _users_of(there: Relations, one: SqlFunction, gone: Container[int]) -> Iterator[str]:
    """What names it, unless another function of its schema has the same name."""
    left = [other for other in there.functions if other.id not in gone]
    if any((other.namespace, other.title) == (one.namespace, one.title) for other in left):
        return
    for whose, sql in texts_of(there):
        if _calls(sql, one, schema_of(one.namespace) == PUBLIC):
            yield f"{whose} depends on function {shown_function(one)}"
    for other in left:
        if _calls(other.sql, one, True):
            yield f"function {shown_function(other)} depends on function {shown_function(one)}"


def _calls(sql: str, one: SqlFunction, bare: bool) -> bool:
    """Whether a text may call it: rather once too often. `bare`: also where it says no schema."""
    word = r'"(?:[^"]|"")+"|\w+'
    found = re.finditer(
        rf'(?<![\w"])(?:({word})\s*\.\s*)?"?{re.escape(one.title)}"?\s*\(', sql, re.IGNORECASE
    )
    schemas = {(call[1] or "").strip('"').lower() for call in found}
    return schema_of(one.namespace).lower() in schemas or (bare and "" in schemas)

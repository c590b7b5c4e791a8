"""CREATE and DROP FUNCTION of those whose language is SQL: one query, which is put where the
function is called (sqlproxy.front.binding.inlining).

Not here: PL/pgSQL and other languages, triggers, several statements, changes of rows, what has an
effect besides its value, INOUT and VARIADIC arguments, polymorphic types, SECURITY DEFINER; each is
refused with what there is instead (0A000).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlproxy.front.binding.fromitems import check_schema, reference
from sqlproxy.front.binding.inlining import called
from sqlproxy.front.binding.query import Queries
from sqlproxy.front.binding.scope import Names
from sqlproxy.front.binding.typenames import type_of
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.bound.statements import Ignored, shown
from sqlproxy.front.ddl.ddl_texts import text_of
from sqlproxy.front.syntax.syntax import Node, find, split, strings, whole
from sqlproxy.front.types.registry import format_type
from sqlproxy.front.types.resolve import ASSIGNMENT
from sqlproxy.pg import oids
from sqlproxy.pg.oids import by_name
from sqlproxy.rows.naming import (
    bare,
    is_temporary,
    named,
    namespace_of,
    schema_in,
    schema_of,
)
from sqlproxy.rows.schema import FunctionArgument, SqlFunction, Table
from sqlproxy.rows.schema import function_name as catalog_name
from sqlproxy.values.errors import (
    AMBIGUOUS_FUNCTION,
    UNDEFINED_FUNCTION,
    UNDEFINED_SCHEMA,
    SqlError,
    unsupported,
)
from sqlproxy.values.words import words

_INVALID: Final = "42P13"
_INSTEAD: Final = (
    "A function is one query in SQL. What needs more is a procedure, or the program's; what "
    "happens when rows change, the change feed tells."
)
_VOLATILE: Final = {"immutable": "i", "stable": "s", "volatile": "v"}
_HINTS: Final = frozenset(("cost", "rows", "parallel", "leakproof"))
"""What it costs, and where it may run: nothing that changes an answer."""
_EFFECTS: Final = words(
    """
    nextval setval pg_notify set_config pg_sleep pg_cancel_backend pg_terminate_backend
    """
)


def create(body: Node, queries: Queries) -> d.CreateFunction:
    """Raises SqlError."""
    if body.get("is_procedure"):
        raise unsupported("CREATE PROCEDURE", hint=_INSTEAD)
    names = queries.binder.names
    name = _title(strings(body["funcname"]), names)
    title = bare(name)
    options = _options(body)
    returns = body.get("returnType", {})
    if strings(returns.get("names"))[-1:] in (["trigger"], ["event_trigger"]):
        raise unsupported("a trigger function", hint=_INSTEAD)
    arguments, out, table = _parameters(body, queries)
    result, columns = _result(title, returns, out, names, table=table)
    one = SqlFunction(
        id=0,
        namespace=namespace_of(names.database, schema_in(name)),
        title=title,
        arguments=arguments,
        result=result,
        columns=columns,
        sql=_query(body, options),
        strict=bool(options.get("strict")),
        volatile=_VOLATILE[options.get("volatility", "volatile")],
    )
    if one.strict and columns:
        raise unsupported("STRICT of a function that returns rows", hint="Say it in its WHERE.")
    inlining = queries.binder.calls.inlining
    if columns:
        inlining.rows(called(one), queries.select, queries.with_targets)
    else:
        inlining.value(called(one))
    queries.binder.needs.clear()  # it is asked for when it is called
    return d.CreateFunction(one, bool(body.get("replace")))


def _title(given: list[str], names: Names) -> str:
    """The name of one that is made. Raises SqlError (3F000)."""
    found = check_schema(reference(given), names, made=True)
    if is_temporary(schema_in(found)):
        raise unsupported("a temporary function")
    return found


def _options(body: Node) -> dict[str, Any]:
    found: dict[str, object] = {}
    for node in body.get("options", ()):
        part = node["DefElem"]
        name, arg = part["defname"], part.get("arg", {})
        if "String" in arg:
            found[name] = arg["String"].get("sval", "")
        elif "Boolean" in arg:
            found[name] = bool(arg["Boolean"].get("boolval"))
        elif "List" in arg:
            found[name] = strings(arg["List"]["items"])
        else:
            found[name] = None
    language = str(found.get("language", "sql" if "sql_body" in body else "")).lower()
    if not language:
        raise SqlError(_INVALID, "no language specified")
    if language != "sql":
        raise unsupported(f"CREATE FUNCTION in the language {language}", hint=_INSTEAD)
    if found.get("security"):
        raise unsupported("SECURITY DEFINER", hint="A view asks for its owner's privileges.")
    known = {"language", "as", "volatility", "strict", "security", *_HINTS}
    for name in found.keys() - known:
        raise unsupported(f"CREATE FUNCTION … {name.upper()}")
    return found


def _parameters(
    body: Node, queries: Queries
) -> tuple[tuple[FunctionArgument, ...], list[tuple[str, int]], bool]:
    """Arguments, columns of what is returned, and whether TABLE said these."""
    arguments: list[FunctionArgument] = []
    out: list[tuple[str, int]] = []
    table = False
    seen = set[str]()
    for node in body.get("parameters", ()):
        part = node["FunctionParameter"]
        name, mode = part.get("name", ""), part.get("mode", "FUNC_PARAM_DEFAULT")
        if name and name in seen:
            raise SqlError(_INVALID, f'parameter name "{name}" used more than once')
        seen.add(name)
        oid, _ = type_of(part["argType"], queries.binder.names)
        if mode in ("FUNC_PARAM_OUT", "FUNC_PARAM_TABLE"):
            out.append((name, oid))
            table = table or mode == "FUNC_PARAM_TABLE"
            continue
        if mode not in ("FUNC_PARAM_IN", "FUNC_PARAM_DEFAULT"):
            raise unsupported(f"{mode.removeprefix('FUNC_PARAM_')} arguments", are=True)
        default = None
        if "defexpr" in part:
            default = _default(part["defexpr"], oid, queries)
        elif arguments and arguments[-1].default is not None:
            raise SqlError(
                _INVALID, "input parameters after one with a default value must also have defaults"
            )
        arguments.append(FunctionArgument(name, oid, default))
    return tuple(arguments), out, table


def _default(node: Node, oid: int, queries: Queries) -> str:
    bound = queries.constant(node, "DEFAULT expressions")
    if queries.binder.casts.coerce(bound, oid, ASSIGNMENT, 0) is None:
        raise SqlError(
            "42804",
            f"argument of DEFAULT must be type {format_type(oid)}, not type "
            f"{format_type(bound.oid)}",
        )
    return text_of(queries.binder.kept(node))


def _result(
    title: str, returns: Node, out: list[tuple[str, int]], names: Names, *, table: bool
) -> tuple[int, tuple[tuple[str, int], ...]]:
    """The type of a value, or the columns of rows."""
    rows = bool(returns.get("setof"))
    if out:
        if not (rows or table):
            if len(out) == 1:
                return out[0][1], ()
            raise unsupported(
                "a function with several OUT arguments",
                hint="RETURNS TABLE (…) is called in FROM.",
            )
        return oids.RECORD, tuple(
            (name or f"column{n}", oid) for n, (name, oid) in enumerate(out, 1)
        )
    given = strings(returns.get("names"))
    if given[-1:] == ["void"]:
        raise unsupported("a function that returns nothing", hint=_INSTEAD)
    if rows and (of := _table(given, names)) is not None:
        return oids.RECORD, tuple((c.name, by_name(c.type)[0].oid) for c in shown(of))
    oid, _ = type_of(returns, names)
    return (oid, ((title, oid),)) if rows else (oid, ())


def _table(given: list[str], names: Names) -> Table | None:
    """The table whose rows have the type of that name."""
    *schema, name = given
    return names.table(named(schema[-1], name) if schema else names.searched(name))


def _query(body: Node, options: dict[str, Any]) -> str:
    """Its text, of one statement."""
    if "sql_body" in body:
        value = body["sql_body"].get("ReturnStmt", {}).get("returnval")
        if value is None:
            raise unsupported("BEGIN ATOMIC", hint="Write AS $$ SELECT … $$.")
        return f"SELECT {text_of(value)}"
    texts = options.get("as")
    if not texts:
        raise SqlError(_INVALID, "no function body specified")
    parts = split(texts[0])
    if len(parts) != 1:
        raise unsupported("a function of no or of several statements", hint=_INSTEAD)
    parsed = whole(parts[0])
    assert parsed is not None
    if parsed.kind != "SelectStmt":
        raise unsupported("a function that is more than a query", hint=_INSTEAD)
    if "lockingClause" in parsed.body or "intoClause" in parsed.body:
        raise unsupported("a function that locks rows or makes tables", hint=_INSTEAD)
    if parsed.extras.as_of is not None:
        raise unsupported("AS OF SYSTEM TIME in a function", hint="Say it in the statement.")
    for cte in find(parsed.body, "CommonTableExpr"):
        if "SelectStmt" not in cte["ctequery"]:
            raise unsupported("a function that changes rows", hint=_INSTEAD)
    for call in find(parsed.body, "FuncCall"):
        name = strings(call.get("funcname"))[-1]
        if name in _EFFECTS or "advisory" in name:
            raise unsupported(f"{name}() in a function", hint=_INSTEAD)
    return parts[0]


# -- DROP, and what else names one


def named_function(part: Node, names: Names) -> SqlFunction:
    """What an ObjectWithArgs names. Raises 42883, 42725."""
    given, types = _meant(part, names)
    title = ".".join(given[-2:])
    own = [
        one
        for schema in (given[-2:-1] or names.path)
        for one in names.functions(named(schema, given[-1]))
    ]
    if types is not None:
        wanted = catalog_name(given[-1], types)
        found = next((one for one in own if one.name == wanted), None)
        if found is None:
            raise SqlError(UNDEFINED_FUNCTION, f"function {_shown(title, types)} does not exist")
        return found
    if not own:
        raise SqlError(UNDEFINED_FUNCTION, f'could not find a function named "{title}"')
    if len(own) > 1:
        raise SqlError(
            AMBIGUOUS_FUNCTION,
            f'function name "{title}" is not unique',
            hint="Specify the argument list to select the function unambiguously.",
        )
    return own[0]


def _meant(part: Node, names: Names) -> tuple[list[str], list[int] | None]:
    """The words of the name, and the types of the arguments; None: they are not said. Raises
    3F000.
    """
    given = strings(part["objname"])
    if len(given) > 1:
        _title(given, names)
    if part.get("args_unspecified"):
        return given, None
    return given, [type_of(one["TypeName"], names)[0] for one in part.get("objargs", ())]


def _shown(title: str, types: Sequence[int]) -> str:
    return f"{title}({','.join(map(format_type, types))})"


def drop(body: Node, names: Names) -> d.DropFunctions | Ignored:
    """Raises 42883, 42725."""
    found: list[str] = []
    skipped: list[str] = []
    for node in body["objects"]:
        try:
            one = named_function(node["ObjectWithArgs"], names)
            found.append(named(schema_of(one.namespace), one.name))
        except SqlError as error:
            absent = error.sqlstate in (UNDEFINED_FUNCTION, UNDEFINED_SCHEMA)
            if not (absent and body.get("missing_ok")):
                raise
            if error.sqlstate == UNDEFINED_SCHEMA:
                skipped.append(f"{error.message}, skipping")
                continue
            given, types = _meant(node["ObjectWithArgs"], names)
            title = _shown(".".join(given), types or ())
            skipped.append(f"function {title} does not exist, skipping")
    if not found:
        return Ignored("DROP FUNCTION", skipped[0], tuple(skipped[1:]))
    cascade = body.get("behavior") == "DROP_CASCADE"
    return d.DropFunctions(tuple(dict.fromkeys(found)), cascade, tuple(skipped))

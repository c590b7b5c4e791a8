"""The front door: a text becomes a bound statement.

    split(text)                       the statements of a simple query
    parse(text)                       its tree; None for an empty one
    relations(parsed)                 the relations that it names, to be looked up before it is
                                      bound
    bind(parsed, names, types, style)  the bound statement, with its parameters' types

`bind` is pure: for the same text, descriptors, declared types and style it answers the same, so
what it answers may be kept under (text, types, schema version, style).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from sqlproxy.catalog.privileges import Need
from sqlproxy.front import blocks
from sqlproxy.front import session_commands as commands
from sqlproxy.front.binding import bulk
from sqlproxy.front.binding.binder import Binder
from sqlproxy.front.binding.casting import Coercer
from sqlproxy.front.binding.column_privileges import with_columns
from sqlproxy.front.binding.dml import Writes
from sqlproxy.front.binding.query import Queries
from sqlproxy.front.binding.scope import Names, Parameters, Scope
from sqlproxy.front.bound import statements as s
from sqlproxy.front.bound.exprs import Expr
from sqlproxy.front.ddl import ddl_extensions, ddl_functions, ddl_types
from sqlproxy.front.ddl import ddl_granting as granting
from sqlproxy.front.ddl.ddl_altering import Alterations
from sqlproxy.front.ddl.ddl_creating import Definitions
from sqlproxy.front.functions.system_columns import mentioned
from sqlproxy.front.session_commands import Commands
from sqlproxy.front.syntax.syntax import (
    Node,
    Parsed,
    find,
    in_characters,
    parse,
    split,
    strings,
    unwrap,
    whole,
    without_void,
)
from sqlproxy.front.types.quoting import read_relation
from sqlproxy.front.types.registry import format_type
from sqlproxy.front.types.resolve import ASSIGNMENT
from sqlproxy.pg import oids
from sqlproxy.pg.answers import Field
from sqlproxy.pg.style import DEFAULT as DEFAULT_STYLE
from sqlproxy.pg.style import Style
from sqlproxy.rows.naming import TEMPORARY
from sqlproxy.values.errors import SqlError, too_deep, unsupported
from sqlproxy.values.words import words

_SHOW_JOBS: Final = "SELECT * FROM kvorum.jobs ORDER BY id DESC"
_QUERIES: Final = frozenset(("SelectStmt",))
_APART: Final = (
    (0x02, 0x04, "SCROLL and NO SCROLL"),
    (0x10, 0x08, "ASENSITIVE and INSENSITIVE"),
)  # options of a cursor
_READ_ONLY: Final = (
    (0x20, "0A000", "DECLARE CURSOR WITH HOLD ... {} is not supported", "Holdable"),
    (0x02, "0A000", "DECLARE SCROLL CURSOR ... {} is not supported", "Scrollable"),
    (0x08, "42P11", "DECLARE INSENSITIVE CURSOR ... {} is not valid", "Insensitive"),
)
_WITH_PARAMETERS: Final = (s.Statement, s.DeclareCursor, s.Explain)
_WRITES: Final = frozenset(("InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt"))
_DEFINES: Final = words(
    """
    CreateStmt CreateTableAsStmt IndexStmt ViewStmt CreateSeqStmt AlterSeqStmt AlterTableStmt
    AlterObjectSchemaStmt CommentStmt DropStmt RenameStmt CreatedbStmt DropdbStmt CreateSchemaStmt
    CreateEnumStmt AlterEnumStmt CreateFunctionStmt
    """
)
_REFUSED: Final = {
    "CreateTrigStmt": "CREATE TRIGGER",
    "CallStmt": "CALL",
    "CompositeTypeStmt": "CREATE TYPE",
    "CreateRangeStmt": "CREATE TYPE",
    "CreateDomainStmt": "CREATE DOMAIN",
    "RuleStmt": "CREATE RULE",
    "CreatePolicyStmt": "CREATE POLICY",
    "RefreshMatViewStmt": "REFRESH MATERIALIZED VIEW",
    "ClusterStmt": "CLUSTER",
    "ReindexStmt": "REINDEX",
    "CheckPointStmt": "CHECKPOINT",
    "LoadStmt": "LOAD",
    "AlterSystemStmt": "ALTER SYSTEM",
    "SecLabelStmt": "SECURITY LABEL",
    "AlterDatabaseStmt": "ALTER DATABASE",
    "CreatePublicationStmt": "CREATE PUBLICATION",
    "CreateSubscriptionStmt": "CREATE SUBSCRIPTION",
    "CreateStatsStmt": "CREATE STATISTICS",
    "CreateForeignTableStmt": "CREATE FOREIGN TABLE",
    "CreateTableSpaceStmt": "CREATE TABLESPACE",
    "DropOwnedStmt": "DROP OWNED",
    "CreateCastStmt": "CREATE CAST",
    "CreateEventTrigStmt": "CREATE EVENT TRIGGER",
    "AlterEventTrigStmt": "ALTER EVENT TRIGGER",
    "CreateForeignServerStmt": "CREATE SERVER",
    "AlterForeignServerStmt": "ALTER SERVER",
    "CreateFdwStmt": "CREATE FOREIGN DATA WRAPPER",
    "AlterFdwStmt": "ALTER FOREIGN DATA WRAPPER",
    "CreateUserMappingStmt": "CREATE USER MAPPING",
    "AlterUserMappingStmt": "ALTER USER MAPPING",
    "DropUserMappingStmt": "DROP USER MAPPING",
    "ImportForeignSchemaStmt": "IMPORT FOREIGN SCHEMA",
    "CreateAmStmt": "CREATE ACCESS METHOD",
    "CreateTransformStmt": "CREATE TRANSFORM",
    "CreatePLangStmt": "CREATE LANGUAGE",
    "CreateConversionStmt": "CREATE CONVERSION",
    "CreateOpClassStmt": "CREATE OPERATOR CLASS",
    "CreateOpFamilyStmt": "CREATE OPERATOR FAMILY",
    "AlterOpFamilyStmt": "ALTER OPERATOR FAMILY",
    "AlterOperatorStmt": "ALTER OPERATOR",
    "AlterTypeStmt": "ALTER TYPE … SET",
    "AlterDomainStmt": "ALTER DOMAIN",
    "AlterExtensionStmt": "ALTER EXTENSION",
    "AlterFunctionStmt": "ALTER FUNCTION",
    "AlterExtensionContentsStmt": "ALTER EXTENSION",
    "AlterPolicyStmt": "ALTER POLICY",
    "AlterCollationStmt": "ALTER COLLATION",
    "AlterStatsStmt": "ALTER STATISTICS",
    "AlterPublicationStmt": "ALTER PUBLICATION",
    "AlterSubscriptionStmt": "ALTER SUBSCRIPTION",
    "DropSubscriptionStmt": "DROP SUBSCRIPTION",
    "DropTableSpaceStmt": "DROP TABLESPACE",
    "AlterTableSpaceOptionsStmt": "ALTER TABLESPACE",
    "AlterTableMoveAllStmt": "ALTER … ALL IN TABLESPACE",
    "AlterTSDictionaryStmt": "ALTER TEXT SEARCH DICTIONARY",
    "AlterTSConfigurationStmt": "ALTER TEXT SEARCH CONFIGURATION",
    "AlterObjectDependsStmt": "ALTER … DEPENDS ON EXTENSION",
    "AlterDatabaseRefreshCollStmt": "ALTER DATABASE … REFRESH COLLATION VERSION",
}


def makes_temporary(parsed: Parsed) -> bool:
    """Whether it makes something that only the session has."""
    body = parsed.body
    if parsed.kind == "SelectStmt":
        body = {"into": _into(body)}
    target: Node = body.get(_MADE.get(parsed.kind, ""), {})
    target = target.get("rel", target)
    return target.get("relpersistence") == "t" or target.get("schemaname") == TEMPORARY


_MADE: Final = {
    "CreateStmt": "relation",
    "CreateTableAsStmt": "into",
    "SelectStmt": "into",
    "ViewStmt": "view",
    "CreateSeqStmt": "sequence",
}


def _into(body: Node) -> Node:
    """INTO of a query, or of the first one of several that are put together; {}: it has none."""
    while "intoClause" not in body and "larg" in body:
        body = body["larg"]
    found: Node = body.get("intoClause", {})
    return found


def _without_into(body: Node) -> Node:
    """The query alone."""
    if "intoClause" in body:
        return {name: part for name, part in body.items() if name != "intoClause"}
    return {**body, "larg": _without_into(body["larg"])}


def relations(parsed: Parsed) -> frozenset[str]:
    """The relations in schema public that a statement may mean. Views name further ones."""
    found = {
        r["relname"]
        for r in find(parsed.body, "RangeVar")
        if r.get("schemaname") in (None, "public") and "relname" in r
    }
    for node in parsed.body.get("objects", ()):
        _, body = unwrap(node)
        found.update(strings(body.get("items"))[-1:])
    for call in find(parsed.body, "FuncCall"):
        # nextval('s'): the sequence is named by a literal.
        for arg in call.get("args", ()):
            for constant in find(arg, "A_Const"):
                if "sval" in constant:
                    found.add(read_relation(constant["sval"].get("sval", "")))
    return frozenset(found)


def bind(
    parsed: Parsed | None, names: Names, declared: Sequence[int] = (), style: Style = DEFAULT_STYLE
) -> object:
    """The bound statement (`statements`, `definitions`). Raises SqlError with the position in
    characters.
    """
    return bind_with_needs(parsed, names, declared, style)[0]


class BoundWith(NamedTuple):
    """A bound statement, what who runs it must be allowed, and what it wants of the system's
    relations before it runs: `f_catalog.ASKS`, and "relations" if it reads them.
    """

    bound: object
    needs: tuple[Need, ...] = ()
    asks: frozenset[str] = frozenset()


def bind_with_needs(
    parsed: Parsed | None,
    names: Names,
    declared: Sequence[int] = (),
    style: Style = DEFAULT_STYLE,
) -> BoundWith:
    """The same, with what it needs."""
    if parsed is None:
        return BoundWith(s.Empty())
    if oids.VOID in declared:
        parsed = replace(parsed, body=without_void(parsed.body, declared))
    if not parsed.whole:
        with suppress(bulk.Unfit, SqlError, ValueError):
            return _Bind(names, declared, style).with_needs(parsed)
        parsed = whole(parsed.text)
        assert parsed is not None
    try:
        bind = _Bind(names, declared, style)
        bind.binder.system_columns = mentioned(parsed.text)
        return bind.with_needs(parsed)
    except SqlError as error:
        raise in_characters(error, parsed.text) from None
    except RecursionError:
        raise too_deep() from None


def coerce_to(expr: Expr, oid: int, number: int, style: Style = DEFAULT_STYLE) -> Expr:
    """An argument of EXECUTE as its parameter's type. Raises 42804."""
    found = Coercer(Parameters(), style).coerce(expr, oid, ASSIGNMENT, expr.pos + 1)
    if found is None:
        raise SqlError(
            "42804",
            f"parameter ${number} of type {format_type(oid)} cannot be coerced to the expected "
            f"type "
            f"{format_type(expr.oid)}",
            hint="You will need to rewrite or cast the expression.",
            position=expr.pos + 1,
        )
    return found


class _Bind:
    def __init__(self, names: Names, declared: Sequence[int], style: Style) -> None:
        self.names = names
        self.declared = declared
        self.parameters = Parameters([0 if o == 705 else o for o in declared])
        self.binder = Binder(names, self.parameters, style)
        self.queries = Queries(self.binder)
        self.writes = Writes(self.queries)

    def with_needs(self, parsed: Parsed) -> BoundWith:
        """Raises SqlError."""
        self.binder.known_relations = self.binder.casts.known_relations = True
        bound = self.statement(parsed)
        needs = with_columns(self.binder.needs.all(), bound, self.names)
        return BoundWith(bound, needs, frozenset(self.binder.casts.asked))

    def statement(self, parsed: Parsed) -> object:
        self.binder.lists = parsed.lists
        if parsed.kind == "SelectStmt" and (into := _into(parsed.body)):
            query = {"SelectStmt": _without_into(parsed.body)}
            body = {"into": into, "query": query, "objtype": "OBJECT_TABLE"}
            return Definitions(self.queries).create_table_as(body)
        bound = self._plain(parsed.kind, parsed.body, parsed)
        if parsed.rows is not None:
            assert isinstance(bound, s.Insert)
            given, types = bulk.filled(parsed.rows, bound.columns, self.writes, self.declared)
            self.parameters.types = list(types)
            bound = replace(bound, given=given)
        if parsed.extras.as_of is not None:
            if not isinstance(bound, s.Select):
                raise unsupported("AS OF SYSTEM TIME in this statement", hint="SELECT has it.")
            self._as_of_parameter(parsed.extras.as_of)
            bound = replace(bound, as_of=parsed.extras.as_of)
        if isinstance(bound, _WITH_PARAMETERS):
            return replace(bound, parameters=self.parameters.final())
        self.parameters.final()
        return bound

    def _as_of_parameter(self, token: str) -> None:
        if token.startswith("$"):
            param = self.parameters.get(int(token[1:]), 0)
            if param.oid == 705:
                self.parameters.decide(param, oids.TEXT, 0)

    def _plain(self, kind: str, body: Node, parsed: Parsed) -> object:
        if kind in _QUERIES:
            return self._query(body, parsed)
        if kind in _WRITES:
            return self._write(kind, body, parsed.text)
        if kind in _DEFINES:
            return self._define(kind, body, parsed)
        return self._command(kind, body, parsed)

    def _query(self, body: Node, parsed: Parsed) -> s.Select:
        return self.queries.select(body, None, text=parsed.text, tree={"SelectStmt": body})

    def _write(self, kind: str, body: Node, text: str) -> object:
        match kind:
            case "InsertStmt":
                return self.writes.insert(body, text=text)
            case "UpdateStmt":
                return self.writes.update(body, text=text)
            case "DeleteStmt":
                return self.writes.delete(body, text=text)
            case _:
                return self.writes.merge(body, text)

    def _define(self, kind: str, body: Node, parsed: Parsed) -> object:
        ddl = Definitions(self.queries)
        simple: dict[str, Callable[[Node], object]] = {
            "CreateTableAsStmt": ddl.create_table_as,
            "IndexStmt": ddl.create_index,
            "ViewStmt": ddl.create_view,
            "CreateSeqStmt": ddl.create_sequence,
            "AlterSeqStmt": ddl.alter_sequence,
            "AlterTableStmt": Alterations(ddl).bind,
            "DropStmt": ddl.drop,
            "CommentStmt": ddl.comment,
            "RenameStmt": ddl.rename,
            "AlterObjectSchemaStmt": ddl.set_schema,
            "CreatedbStmt": ddl.create_database,
            "DropdbStmt": ddl.drop_database,
            "CreateSchemaStmt": ddl.create_schema,
            "CreateFunctionStmt": lambda body: ddl_functions.create(body, self.queries),
            "CreateEnumStmt": lambda body: ddl_types.create_enum(body, self.names),
            "AlterEnumStmt": lambda body: ddl_types.alter_enum(body, self.names),
        }
        if kind == "CreateStmt":
            return ddl.create_table(body, parsed.extras)
        bound = ddl.passed_over(body) or simple[kind](body)
        if kind == "ViewStmt":
            self.binder.needs.clear()  # its query is asked for when the view is read
        return bound

    def _command(self, kind: str, body: Node, parsed: Parsed) -> object:
        if kind == "VariableShowStmt" and body["name"].lower() == "jobs":
            jobs = parse(_SHOW_JOBS)
            assert jobs is not None
            return self._query(jobs.body, parsed)
        plain = _COMMANDS.get(kind)
        if plain is not None:
            return plain(body)
        if (of_names := _OF_NAMES.get(kind)) is not None:
            return of_names(body, self.names)
        others = Commands(self.queries)
        match kind:
            case "TruncateStmt":
                return others.truncate(body)
            case "VacuumStmt":
                return others.analyze(body)
            case "LockStmt":
                return others.lock(body)
            case "PrepareStmt":
                return others.prepare(body, parsed.text)
            case "ExecuteStmt":
                return s.Execute(body["name"], others.arguments(body.get("params", ())))
            case "CopyStmt":
                query = self._inside(body["query"], parsed) if "query" in body else None
                assert query is None or isinstance(query, s.Select | s.Change)
                return others.copy(body, query)
            case "DeclareCursorStmt":
                return self._cursor(body, parsed)
            case "ExplainStmt":
                options = commands.explain_options(body)
                kind_of_plan = 114 if options.get("format") == "json" else oids.TEXT
                inner = self._inside(body["query"], parsed)
                return s.Explain(inner, options, (Field("QUERY PLAN", kind_of_plan),))
            case _:
                raise unsupported(_refused(kind, body))

    def _inside(self, node: Node, parsed: Parsed) -> object:
        kind, body = unwrap(node)
        return self._plain(kind, body, replace(parsed, kind=kind, body=body))

    def _cursor(self, body: Node, parsed: Parsed) -> s.DeclareCursor:
        options = body.get("options", 0)
        query = self._inside(body["query"], parsed)
        assert isinstance(query, s.Select)
        if any(not isinstance(cte.statement, s.Select) for cte in query.ctes):
            raise SqlError(
                "0A000", "DECLARE CURSOR must not contain data-modifying statements in WITH"
            )
        for one, other, both in _APART:
            if options & one and options & other:
                raise SqlError("42P11", f"cannot specify both {both}")
        for bit, state, refusal, kind in _READ_ONLY if query.locking and query.items else ():
            if options & bit:
                raise SqlError(
                    state,
                    refusal.format(f"FOR {query.locking[0].strength.upper()}"),
                    detail=f"{kind} cursors must be READ ONLY.",
                )
        scroll = True if options & 0x2 else False if options & 0x4 else None
        return s.DeclareCursor(
            body["portalname"], query, bool(options & 0x20), scroll, bool(options & 0x1)
        )


def _refused(kind: str, body: Node) -> str:
    if kind == "DefineStmt":
        word: str = body["kind"].removeprefix("OBJECT_").replace("_", " ")
        return "CREATE " + word.replace("TS", "TEXT SEARCH")
    return _REFUSED.get(kind, kind.removesuffix("Stmt"))


def _set_constraints(body: Node) -> s.SetConstraints:
    named = [node["RangeVar"] for node in body.get("constraints", ())]
    names = tuple((one.get("schemaname"), one["relname"]) for one in named)
    return s.SetConstraints(bool(body.get("deferred")), names)


def _deallocate(body: Node) -> s.Deallocate:
    return s.Deallocate(body.get("name"))


def _close(body: Node) -> s.ClosePortal:
    return s.ClosePortal(body.get("portalname"))


_OF_NAMES: Final[dict[str, Callable[[Node, Names], object]]] = {
    "GrantStmt": granting.grant,
    "AlterOwnerStmt": granting.owner,
}
_COMMANDS: Final[dict[str, Callable[[Node], object]]] = {
    "DoStmt": blocks.do,
    "TransactionStmt": commands.transaction,
    "VariableSetStmt": commands.set_variable,
    "VariableShowStmt": commands.show,
    "DiscardStmt": commands.discard,
    "DeallocateStmt": _deallocate,
    "ListenStmt": lambda body: s.Listen(body["conditionname"]),
    "UnlistenStmt": lambda body: s.Listen(body.get("conditionname"), listens=False),
    "NotifyStmt": lambda body: s.Notify(body["conditionname"], body.get("payload", "")),
    "ClosePortalStmt": _close,
    "FetchStmt": commands.fetch,
    "ConstraintsSetStmt": _set_constraints,
    "CreateRoleStmt": commands.create_role,
    "AlterRoleStmt": commands.alter_role,
    "AlterRoleSetStmt": commands.change_defaults,
    "AlterDatabaseSetStmt": commands.change_defaults,
    "DropRoleStmt": commands.drop_role,
    "GrantRoleStmt": granting.grant_role,
    "AlterDefaultPrivilegesStmt": granting.defaults,
    "CreateExtensionStmt": ddl_extensions.create,
    "ReassignOwnedStmt": granting.reassign,
}
__all__ = [
    "Scope",
    "bind",
    "bind_with_needs",
    "coerce_to",
    "parse",
    "relations",
    "split",
]

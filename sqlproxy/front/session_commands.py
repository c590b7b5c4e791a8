"""Statements of the session: transactions, settings, prepared statements, cursors, COPY, roles,
maintenance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlproxy.front.binding.dml import find_column
from sqlproxy.front.binding.fromitems import table_columns
from sqlproxy.front.binding.query import Queries
from sqlproxy.front.binding.scope import Scope
from sqlproxy.front.binding.typenames import type_of
from sqlproxy.front.bound import statements as s
from sqlproxy.front.bound.exprs import Column, Expr, walk
from sqlproxy.front.closures.lengths import fitter
from sqlproxy.front.ddl.ddl_granting import role_name, role_names, role_options
from sqlproxy.front.ddl.ddl_options import option_value
from sqlproxy.front.syntax.syntax import Node, at, strings, unwrap
from sqlproxy.front.types.quoting import quote_ident
from sqlproxy.pg import oids
from sqlproxy.pg.answers import CopyFormat, Field
from sqlproxy.pg.intervals import reader_of, write_interval
from sqlproxy.pg.oids import by_name
from sqlproxy.rows.schema import Column as TableColumn
from sqlproxy.rows.schema import Table
from sqlproxy.values.errors import (
    INVALID_PARAMETER,
    SYNTAX_ERROR,
    UNSUPPORTED,
    SqlError,
    unsupported,
)
from sqlproxy.values.interval import Interval
from sqlproxy.values.words import words

_LOCK_MODES: Final = (
    "",
    "access share",
    "row share",
    "row exclusive",
    "share update exclusive",
    "share",
    "share row exclusive",
    "exclusive",
    "access exclusive",
)
_VACUUM: Final = (
    words("verbose skip_locked"),
    words(
        """
        full freeze verbose analyze disable_page_skipping skip_locked index_cleanup process_toast
        truncate parallel
        """
    ),
)
"""Options of ANALYZE and of VACUUM, which decide nothing here but ANALYZE itself."""
_ALL: Final = 0x7FFF_FFFF_FFFF_FFFF  # FETCH ALL's count in PostgreSQL's tree


def transaction(body: Node) -> object:
    """BEGIN, COMMIT, SAVEPOINT and their like."""
    name = body.get("savepoint_name", "")
    chain = bool(body.get("chain"))
    match body["kind"]:
        case "TRANS_STMT_BEGIN":
            return modes(body.get("options", ()))
        case "TRANS_STMT_START":
            return replace(modes(body.get("options", ())), start=True)
        case "TRANS_STMT_COMMIT":
            return s.Commit(chain)
        case "TRANS_STMT_ROLLBACK":
            return s.Rollback(chain)
        case "TRANS_STMT_SAVEPOINT":
            return s.Savepoint(name)
        case "TRANS_STMT_RELEASE":
            return s.Release(name)
        case "TRANS_STMT_ROLLBACK_TO":
            return s.RollbackTo(name)
        case _:
            raise unsupported("two-phase commit by statements (PREPARE TRANSACTION)")


def modes(nodes: Sequence[Node]) -> s.Begin:
    isolation: str | None = None
    read_only: bool | None = None
    deferrable: bool | None = None
    for node in nodes:
        part = node["DefElem"]
        value = option_value(part)
        match part["defname"]:
            case "transaction_isolation":
                isolation = str(value)
            case "transaction_read_only":
                read_only = bool(value)
            case "transaction_deferrable":
                deferrable = bool(value)
            case _:
                pass
    return s.Begin(isolation, read_only, deferrable)


_OF_NAMES: Final = frozenset({"search_path"})
"""Settings that are a list of names: SHOW quotes what needs it, and SET takes that again."""


def set_variable(body: Node) -> object:
    name = body.get("name", "").lower()
    local = bool(body.get("is_local"))
    match body.get("kind", "VAR_SET_VALUE"):
        case "VAR_SET_VALUE":
            values = tuple(_setting(a) for a in body["args"])
            if name in _OF_NAMES:
                values = tuple(map(quote_ident, values))
            return s.SetVariable(name, values, local)
        case "VAR_SET_DEFAULT":
            return s.SetVariable(name, None, local)
        case "VAR_RESET":
            return s.Reset(name)
        case "VAR_RESET_ALL":
            return s.Reset("all")
        case "VAR_SET_MULTI":
            if name == "transaction snapshot":
                raise unsupported(
                    "SET TRANSACTION SNAPSHOT", hint="SET kvorum.as_of reads a past moment."
                )
            return s.SetTransaction(modes(body["args"]), session=name.startswith("session"))
        case _:
            raise unsupported("SET … FROM CURRENT")


def _setting(node: Node) -> str:
    """A value of SET as text: numbers as they are, interval '…' of TIME ZONE by its literal."""
    kind, body = unwrap(node)
    if kind == "TypeCast":  # an interval's fields count: INTERVAL '10' MINUTE
        return f"INTERVAL '{write_interval(_interval(body))}'"
    if kind != "A_Const":
        raise SqlError(SYNTAX_ERROR, "a setting takes constants only", position=at(body))
    if "sval" in body:
        return str(body["sval"].get("sval", ""))
    if "ival" in body:
        return str(body["ival"].get("ival", 0))
    if "fval" in body:
        return str(body["fval"].get("fval", ""))
    return "on" if body.get("boolval", {}).get("boolval") else "off"


def _interval(cast: Node) -> Interval:
    """INTERVAL '…' with its fields, as the cast of a literal that it is."""
    oid, typmod = type_of(cast["typeName"])
    kind, body = unwrap(cast["arg"])
    if oid != oids.INTERVAL or kind != "A_Const" or "sval" not in body:
        raise SqlError(SYNTAX_ERROR, "a setting takes constants only", position=at(cast))
    value: Interval = reader_of(typmod)(str(body["sval"].get("sval", "")))
    return value if typmod < 0 else fitter(oids.INTERVAL, typmod, True)(value)


def show(body: Node) -> s.Show:
    name = body["name"].lower()
    if name == "all":
        columns = ("name", "setting", "description")
        return s.Show("all", tuple(Field(c, oids.TEXT) for c in columns))
    return s.Show(name, (Field(body["name"], oids.TEXT),))


def discard(body: Node) -> s.Discard:
    return s.Discard(body.get("target", "DISCARD_ALL").removeprefix("DISCARD_").lower())


def fetch(body: Node) -> s.Fetch:
    direction = body.get("direction", "FETCH_FORWARD").removeprefix("FETCH_").lower()
    count = body.get("howMany", 0)
    # libpg_query writes FETCH ALL as the largest long, in JSON possibly as text.
    every = abs(int(count)) >= _ALL
    return s.Fetch(
        body["portalname"], direction, None if every else int(count), bool(body.get("ismove"))
    )


def explain_options(body: Node) -> dict[str, str]:
    found = {}
    for node in body.get("options", ()):
        part = node["DefElem"]
        value = option_value(part)
        name = part["defname"].lower()
        if name not in (
            "analyze",
            "verbose",
            "costs",
            "buffers",
            "timing",
            "summary",
            "format",
            "settings",
            "wal",
        ):
            raise SqlError(SYNTAX_ERROR, f'unrecognized EXPLAIN option "{name}"', position=at(part))
        found[name] = (
            "on" if value in (None, True) else "off" if value is False else str(value).lower()
        )
        if name == "format" and found[name] not in ("text", "json", "xml", "yaml"):
            raise SqlError(
                INVALID_PARAMETER,
                f'unrecognized value for EXPLAIN option "format": "{found[name]}"',
                position=at(part),
            )
    return found


def create_role(body: Node) -> s.CreateRole:
    options = role_options(body.get("options", ()))
    if body.get("stmt_type") == "ROLESTMT_USER":
        options = replace(options, given={"login": True, **options.given})
    return s.CreateRole(body["role"], options)


def alter_role(body: Node) -> s.AlterRole:
    options = role_options(body.get("options", ()))
    return s.AlterRole(role_name(body["role"]), options, adds=body.get("action", 1) > 0)


def change_defaults(body: Node) -> s.ChangeDefaults:
    """ALTER ROLE and ALTER DATABASE … SET and RESET."""
    change = set_variable(body["setstmt"])
    if not isinstance(change, s.SetVariable | s.Reset):
        raise unsupported("SET TRANSACTION of a role", hint="Set default_transaction_isolation.")
    role = role_name(body["role"]) if "role" in body else None
    return s.ChangeDefaults(role, body.get("dbname") or body.get("database"), change)


def drop_role(body: Node) -> s.DropRole:
    return s.DropRole(role_names(body["roles"]), bool(body.get("missing_ok")))


class Commands:
    """Those that name relations or hold statements."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries

    def truncate(self, body: Node) -> s.Truncate:
        tables = tuple(
            self.queries.items.table(n["RangeVar"], "truncate") for n in body["relations"]
        )
        for table in tables:
            self.queries.binder.needs.on(table.id, "D")
        return s.Truncate(
            tables, bool(body.get("restart_seqs")), body.get("behavior") == "DROP_CASCADE"
        )

    def analyze(self, body: Node) -> s.Analyze:
        vacuum = bool(body.get("is_vacuumcmd"))
        asked = not vacuum
        for node in body.get("options", ()):
            asked = asked or node["DefElem"]["defname"].lower() == "analyze"
            if (name := node["DefElem"]["defname"].lower()) not in _VACUUM[vacuum]:
                word = "VACUUM" if vacuum else "ANALYZE"
                message = f'unrecognized {word} option "{name}"'
                raise SqlError(SYNTAX_ERROR, message, position=at(node["DefElem"]))
        tables: list[Table] = []
        only: list[frozenset[int]] = []
        for node in body.get("rels", ()):
            part = node["VacuumRelation"]
            table = self.queries.items.table(part["relation"], "analyze")
            names = strings(part.get("va_cols"))
            only.append(frozenset(find_column(table, name, 0).id for name in names))
            tables.append(table)
        return s.Analyze(tuple(tables), tuple(only), vacuum, asked)

    def lock(self, body: Node) -> s.LockTable:
        tables = tuple(self.queries.items.table(n["RangeVar"], "lock") for n in body["relations"])
        mode = _LOCK_MODES[body.get("mode", 8)]
        any_of = {"access share": "rawdD", "row exclusive": "awdD"}.get(mode, "wdD")
        for table in tables:
            self.queries.binder.needs.on(table.id, any_of)
        return s.LockTable(tables, mode, bool(body.get("nowait")))

    def arguments(self, nodes: Sequence[Node]) -> tuple[Expr, ...]:
        """Of EXECUTE: literals stay open until the parameters' types are known."""
        with self.queries.within("EXECUTE parameters"):
            return tuple(self.queries.binder.expr(n, Scope()) for n in nodes)

    def prepare(self, body: Node, text: str) -> s.Prepare:
        types = []
        for node in body.get("argtypes", ()):
            part = node["TypeName"]
            unknown = strings(part["names"])[-1] == "unknown"
            types.append(0 if unknown else type_of(part, self.queries.binder.names)[0])
        return s.Prepare(body["name"], tuple(types), inner_text(text, "prepare"))

    # -- COPY

    def copy(self, body: Node, query: s.Select | s.Change | None) -> s.Copy:
        if body.get("is_program"):
            raise unsupported("COPY … PROGRAM")
        if "filename" in body:
            raise unsupported(
                "COPY with a file of the server", hint="Use STDIN, STDOUT or psql's \\copy."
            )
        source = bool(body.get("is_from"))
        given, freeze = copy_options(body.get("options", ()))
        if "query" in body:
            if source:
                raise SqlError(SYNTAX_ERROR, "COPY (query) FROM is not possible")
            fields = getattr(query, "fields", ()) or ()
            chosen = copy_format(given, [f.name for f in fields], source)
            return s.Copy(source=source, format=chosen, query=query, fields=tuple(fields))
        scope = Scope()
        target = self.queries.items.target(body["relation"], scope, "copy")
        columns = self._copied(body, target.table)
        needs = self.queries.binder.needs
        needs.on(target.table.id, "a" if source else "r")
        if source:
            needs.numbers(target.table, columns)
        chosen = copy_format(given, [c.name for c in columns], source)
        where = None
        if "whereClause" in body:
            if not source:
                raise SqlError(SYNTAX_ERROR, "WHERE clause not allowed with COPY TO")
            with self.queries.within("COPY FROM WHERE conditions"):
                where = self.queries.binder.condition(body["whereClause"], scope, "WHERE")
            if self.queries.binder.system_columns:
                raise unsupported("a system column in COPY … WHERE")
            _check_chosen(where, target.table, columns)
        fields = tuple(_field(c, target.table, self.queries) for c in columns)
        return s.Copy(
            source=source,
            format=chosen,
            target=target,
            columns=columns,
            where=where,
            freeze=freeze,
            fields=fields,
        )

    @staticmethod
    def _copied(body: Node, table: Table) -> tuple[TableColumn, ...]:
        names = strings(body.get("attlist"))
        if not names:
            return tuple(c for c in table_columns(table) if c.generated is None)
        found: list[TableColumn] = []
        for name in names:
            column = find_column(table, name, 0)
            if column.generated is not None:
                raise SqlError(
                    "42P10",
                    f'column "{name}" is a generated column',
                    detail="Generated columns cannot be used in COPY.",
                )
            if column in found:
                raise SqlError("42701", f'column "{name}" specified more than once')
            found.append(column)
        return tuple(found)


def _check_chosen(where: Expr, table: Table, columns: Sequence[TableColumn]) -> None:
    """WHERE of COPY FROM asks of each row what the client has sent. Raises SqlError."""
    known = table_columns(table)
    for part in walk(where):
        if isinstance(part, s.SubQuery):
            message = "cannot use subquery in COPY FROM WHERE condition"
            raise SqlError(UNSUPPORTED, message, position=part.pos + 1)
        if not isinstance(part, Column):
            continue
        column = known[part.index]
        if column.generated is not None:
            raise SqlError(
                "42P10",
                "generated columns are not supported in COPY FROM WHERE conditions",
                detail=f'Column "{column.name}" is a generated column.',
            )
        if column not in columns and (column.default_sql or column.sequence):
            raise unsupported(f'COPY … WHERE over the default of column "{column.name}"')


def _field(column: TableColumn, table: Table, queries: Queries) -> Field:
    of, typmod = by_name(column.type)
    return Field(
        column.name, of.oid, typmod, queries.binder.names.relation_oid(int(table.id)), column.id
    )


def inner_text(text: str, command: str) -> str:
    """The statement inside PREPARE name (…) AS statement: what follows its AS."""
    import postgast

    raw = text.encode()
    depth = 0
    for token in postgast.scan(text).tokens:
        word = raw[token.start : token.end].decode().lower()
        depth += (word == "(") - (word == ")")
        if word == "as" and depth == 0:
            return raw[token.end :].decode().strip()
    raise SqlError(SYNTAX_ERROR, f"{command.upper()} without AS")


def copy_options(nodes: Sequence[Node]) -> tuple[dict[str, object], bool]:
    given: dict[str, object] = {}
    freeze = False
    for node in nodes:
        part = node["DefElem"]
        name = part["defname"]
        if name in given:
            raise SqlError(SYNTAX_ERROR, "conflicting or redundant options", position=at(part))
        value = option_value(part)
        if "arg" in part and "A_Star" in part["arg"]:
            value = "*"
        given[name] = True if value is None else value
        if name == "freeze":
            freeze = value is not False
    return given, freeze


def copy_format(given: Mapping[str, Any], columns: Sequence[str], source: bool) -> CopyFormat:
    """The options, checked as PostgreSQL checks them (ProcessCopyOptions)."""
    kind = given.get("format", "text")
    header = given.get("header", False)
    quote = given.get("quote", '"')
    forced = given.get("force_quote", ())
    found = CopyFormat(
        kind=kind,
        delimiter=given.get("delimiter", "," if kind == "csv" else "\t"),
        null=given.get("null", "" if kind == "csv" else "\\N"),
        header=header in ("match", True, "true", "on", 1, "1"),
        header_match=header == "match",
        quote=quote,
        escape=given.get("escape", quote),
        force_quote=frozenset(() if forced == "*" else forced),
        force_quote_all=forced == "*",
        force_not_null=frozenset(given.get("force_not_null", ())),
        force_null=frozenset(given.get("force_null", ())),
        encoding="UTF8",
    )
    for wrong, state, message in _copy_faults(given, found, columns, source):
        if wrong:
            raise SqlError(state, message)
    return found


_COPY_OPTIONS: Final = words(
    """
    format freeze delimiter null header quote escape force_quote force_not_null force_null encoding
    """
)


def _copy_faults(
    given: Mapping[str, Any],
    found: CopyFormat,
    columns: Sequence[str],
    source: bool,
) -> Iterator[tuple[bool, str, str]]:
    """In PostgreSQL's order: whether it is so, and the error that it is then."""
    for name in given:
        yield name not in _COPY_OPTIONS, SYNTAX_ERROR, f'option "{name}" not recognized'
    kind, delimiter, null = found.kind, found.delimiter, found.null
    csv, binary = kind == "csv", kind == "binary"
    known = kind in ("text", "csv", "binary")
    yield not known, INVALID_PARAMETER, f'COPY format "{kind}" not recognized'
    for name in ("delimiter", "null"):
        refused = f"cannot specify {name.upper()} in BINARY mode"
        yield binary and name in given, SYNTAX_ERROR, refused
    yield binary and found.header, SYNTAX_ERROR, "cannot specify HEADER in BINARY mode"
    only_read = 'cannot use "match" with HEADER in COPY TO'
    yield found.header_match and not source, UNSUPPORTED, only_read
    for name in ("quote", "escape", "force_quote", "force_not_null", "force_null"):
        word = name if name in ("quote", "escape") else name.replace("_", " ")
        yield name in given and not csv, UNSUPPORTED, f"COPY {word} available only in CSV mode"
    for word in ("delimiter", "quote", "escape"):
        long = len(str(getattr(found, word)).encode()) != 1 and (csv or word == "delimiter")
        yield long, UNSUPPORTED, f"COPY {word} must be a single one-byte character"
        if word == "delimiter":
            ends = "COPY delimiter cannot be newline or carriage return"
            yield delimiter in "\r\n", INVALID_PARAMETER, ends
            meant = not csv and delimiter in "\\.abcdefghijklmnopqrstuvwxyz0123456789"
            yield meant, INVALID_PARAMETER, f'COPY delimiter cannot be "{delimiter}"'
    same = "COPY delimiter and quote must be different"
    yield csv and delimiter == found.quote, INVALID_PARAMETER, same
    ends = "COPY null representation cannot use newline or carriage return"
    yield "\r" in null or "\n" in null, INVALID_PARAMETER, ends
    inside = "COPY delimiter must not appear in the NULL specification"
    yield delimiter in null, UNSUPPORTED, inside
    encoding = str(given.get("encoding", "UTF8")).upper().replace("-", "")
    foreign = f"COPY in the encoding {encoding} is not supported"
    yield encoding not in ("UTF8", "UNICODE", "SQL_ASCII"), UNSUPPORTED, foreign
    for option in ("force_quote", "force_not_null", "force_null"):
        all_of_them = option == "force_quote" and found.force_quote_all
        for name in () if all_of_them else given.get(option, ()):
            unknown = f'{option.upper()} column "{name}" not referenced by COPY'
            yield name not in columns, "42P10", unknown

"""CREATE TABLE under way: columns first, then what is said about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlproxy.front.binding.fromitems import table_columns
from sqlproxy.front.binding.typenames import SERIALS, check_collation, type_of
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.bound.immutability import immutable
from sqlproxy.front.bound.statements import ItemColumn
from sqlproxy.front.ddl.ddl_clauses import Clauses
from sqlproxy.front.ddl.ddl_options import (
    check_index_options,
    check_tablespace,
    sequence_options,
)
from sqlproxy.front.ddl.ddl_texts import text_of, unqualified
from sqlproxy.front.functions.system_columns import check_no_system_column
from sqlproxy.front.syntax.dialect import Extras
from sqlproxy.front.syntax.syntax import Node, at, parse_expression, strings
from sqlproxy.pg.oids import by_name, canonical
from sqlproxy.rows.naming import bare, is_temporary, schema_in
from sqlproxy.rows.schema import COLUMN, CONSTRAINT, PUBLIC, Column, Table, View
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.values.errors import (
    DUPLICATE_COLUMN,
    INVALID_PARAMETER,
    INVALID_TABLE_DEFINITION,
    SYNTAX_ERROR,
    UNDEFINED_COLUMN,
    SqlError,
    unsupported,
)


class Draft:
    """A CREATE TABLE under way, or the columns that ALTER TABLE adds."""

    def __init__(self, clauses: Clauses, name: str) -> None:
        self.clauses = clauses
        self.name = name
        self.columns: list[d.ColumnDef] = []
        self.items: list[ItemColumn] = []
        self.keys: list[d.KeyDef] = []
        self.checks: list[d.CheckDef] = []
        self.foreign_keys: list[d.ForeignKeyDef] = []
        self.notes: list[tuple[str, str, str]] = []  # COMMENT ON what LIKE has copied
        # Constraints and generated columns are bound when all columns are known.
        self.later: list[tuple[Node, str | None]] = []

    def column(self, body: Node, extras: Extras) -> None:
        name = body["colname"]
        if any(c.name == name for c in self.columns):
            raise twice(name, at(body))
        check_no_system_column(name)
        type_body = body["typeName"]
        words = strings(type_body["names"])
        serial = words[-1] in SERIALS and len(words) == 1
        if serial:
            if type_body.get("arrayBounds"):
                raise unsupported("an array of serial", position=at(type_body))
            type_body = {**type_body, "names": [{"String": {"sval": SERIALS[words[-1]]}}]}
        oid, typmod = type_of(type_body, self.clauses.names)
        made = d.ColumnDef(
            name=name, type=canonical(oid, typmod), serial=serial, nullable=not serial
        )
        for key, word in (("storage_name", "STORAGE"), ("compression", "COMPRESSION")):
            if body.get(key):
                raise unsupported(f"{word} of a column", position=at(body))
        if clause := body.get("collClause"):
            check_collation(strings(clause["collname"]), oid, at(clause))
        if name in extras.auto_increment:
            made = replace(made, identity="by default", nullable=False)
        if name in extras.on_update:
            made = replace(
                made, on_update=self._on_update(extras.on_update[name], name, oid, typmod)
            )
        self.items.append(ItemColumn(name, oid, typmod))
        self.columns.append(made)
        for constraint in _with_attributes(body.get("constraints", ())):
            self._of_column(constraint, len(self.columns) - 1, oid, typmod)

    def _on_update(self, text: str, name: str, oid: int, typmod: int) -> str:
        return self.clauses.default(parse_expression(text), name, oid, typmod)[1]

    def _of_column(self, body: Node, place: int, oid: int, typmod: int) -> None:
        column = self.columns[place]
        kind = body["contype"]
        if kind == "CONSTR_NOTNULL":
            column = replace(column, nullable=False)
        elif kind == "CONSTR_DEFAULT":
            if column.default_sql is not None or column.serial:
                raise SqlError(
                    SYNTAX_ERROR,
                    f'multiple default values specified for column "{column.name}" of table '
                    f'"{self.name}"',
                    position=at(body),
                )
            value, sql = self.clauses.default(body["raw_expr"], column.name, oid, typmod)
            column = replace(column, default=value, default_sql=sql)
        elif kind == "CONSTR_IDENTITY":
            column = self._identity(column, body, oid)
        elif kind == "CONSTR_NULL":
            if not column.nullable:
                raise SqlError(
                    SYNTAX_ERROR,
                    f'conflicting NULL/NOT NULL declarations for column "{column.name}" of '
                    f'table "{self.name}"',
                    position=at(body),
                )
        else:
            self.later.append((dict(body), column.name))
        self.columns[place] = column

    def _identity(self, column: d.ColumnDef, body: Node, oid: int) -> d.ColumnDef:
        if column.type not in ("int2", "int4", "int8"):
            raise SqlError(
                INVALID_PARAMETER, "identity column type must be smallint, integer, or bigint"
            )
        when = "always" if body.get("generated_when") == "a" else "by default"
        options = sequence_options(body.get("options", ()))
        return replace(column, identity=when, sequence=options, nullable=False)

    def known(self, name: str, pos: int) -> None:
        if not any(i.name == name for i in self.items):
            raise SqlError(
                UNDEFINED_COLUMN, f'column "{name}" named in key does not exist', position=pos
            )

    def like(self, body: Node) -> None:
        """LIKE: the columns of a relation, and what INCLUDING says besides. Raises SqlError."""
        queries, options = self.clauses.queries, int(body.get("options", 0))
        found = queries.items.find(body["relation"])
        queries.binder.needs.on(found.id, "r")
        if isinstance(found, View):
            for name, kind in found.columns:
                self._liked(d.ColumnDef(name=name, type=kind), at(body["relation"]))
            return
        if found.plain:
            raise unsupported("LIKE of a key-value table", position=at(body["relation"]))
        numbering = {
            one.owned_by[1]: one
            for one in self.clauses.names.sequences_owned_by(found.id)
            if one.owned_by is not None
        }
        for column in table_columns(found):
            made = _like(found, column, numbering.get(column.id), options)
            self._liked(made, at(body["relation"]))
            if column.comment and options & _COMMENTS:
                self.notes.append((COLUMN, column.name, column.comment))
        if options & _CONSTRAINTS:
            for check in found.checks:
                used = tuple(found.by_id(number).name for number in check.columns)
                self.checks.append(d.CheckDef(name=check.name, sql=check.sql, columns=used))
                self.notes += [
                    note
                    for note in found.notes
                    if options & _COMMENTS and note[:2] == (CONSTRAINT, check.name)
                ]
        if options & _INDEXES:
            self.keys += _keys_of(found)

    def _liked(self, column: d.ColumnDef, pos: int) -> None:
        if any(c.name == column.name for c in self.columns):
            raise twice(column.name, pos)
        of, typmod = by_name(column.type)
        self.items.append(ItemColumn(column.name, of.oid, typmod))
        self.columns.append(column)

    def finish(self) -> None:
        for body, column in self.later:
            self._constraint(body, column)

    def _constraint(self, body: Node, column: str | None) -> None:
        own = (column,) if column is not None else ()
        match body["contype"]:
            case "CONSTR_PRIMARY" | "CONSTR_UNIQUE" as kind:
                self._key(body, own, kind == "CONSTR_PRIMARY")
            case "CONSTR_CHECK":
                self.checks.append(self.clauses.check(body, self.items, self.name))
            case "CONSTR_FOREIGN":
                key = self.clauses.foreign_key(body, own)
                if "schemaname" not in body["pktable"] and self._is_made(key.table):
                    key = replace(key, table=self.name)
                for name in key.columns:
                    if not any(i.name == name for i in self.items):
                        raise SqlError(
                            UNDEFINED_COLUMN,
                            f'column "{name}" referenced in foreign key constraint does not exist',
                        )
                self.foreign_keys.append(key)
            case "CONSTR_GENERATED":
                assert column is not None
                self._generated(body, column)
            case "CONSTR_NOTNULL":
                for name in strings(body.get("keys")):
                    self.known(name, at(body))
                    place = next(i for i, c in enumerate(self.columns) if c.name == name)
                    self.columns[place] = replace(self.columns[place], nullable=False)
            case "CONSTR_EXCLUSION":
                raise unsupported("an exclusion constraint", position=at(body))
            case other:
                raise unsupported(other, position=at(body))

    def _is_made(self, found: str) -> bool:
        """Whether a name without a schema means the table that is made, which is not there yet.
        `found`: what the path leads to so far.
        """
        names, own = self.clauses.names, schema_in(self.name)
        if bare(found) != bare(self.name) or names.table(self.name) is not None:
            return False
        if names.table(found) is None or is_temporary(own):
            return True
        order = (*names.first, *names.path)
        return own in order and order.index(own) < order.index(schema_in(found))

    def _key(self, body: Node, own: tuple[str, ...], primary: bool) -> None:
        names = strings(body.get("keys")) or list(own)
        check_tablespace(body.get("indexspace", ""))
        check_index_options(body.get("options", ()))
        if primary and any(k.primary for k in self.keys):
            raise SqlError(
                INVALID_TABLE_DEFINITION,
                f'multiple primary keys for table "{self.name}" are not allowed',
                position=at(body),
            )
        for i, name in enumerate(names):
            self.known(name, at(body))
            if name in names[:i]:
                word = "primary key" if primary else "unique"
                raise SqlError(
                    DUPLICATE_COLUMN,
                    f'column "{name}" appears twice in {word} constraint',
                    position=at(body),
                )
        if body.get("nulls_not_distinct"):
            raise unsupported("NULLS NOT DISTINCT", position=at(body))
        include = tuple(strings(body.get("including")))
        parts = tuple(d.KeyPart(name) for name in names)
        self.keys.append(
            d.KeyDef(
                name=body.get("conname"),
                parts=parts,
                unique=True,
                primary=primary,
                constraint=True,
                include=include,
                deferrable=bool(body.get("deferrable") or body.get("initdeferred")),
                deferred=bool(body.get("initdeferred")),
            )
        )
        if primary:
            self.columns = [
                replace(c, nullable=False) if c.name in names else c for c in self.columns
            ]

    def _generated(self, body: Node, column: str) -> None:
        if body.get("generated_kind", "s") == "v":
            raise unsupported("a virtual generated column", hint="Say STORED.", position=at(body))
        place = next(i for i, c in enumerate(self.columns) if c.name == column)
        item = self.items[place]
        expr, used = self.clauses.over_columns(
            body["raw_expr"], self.items, self.name, "column generation expressions"
        )
        others = {c.name for c in self.columns if c.generated is not None} | {
            n for b, n in self.later if b["contype"] == "CONSTR_GENERATED" and n is not None
        }
        for name in used:
            if name in others:
                raise SqlError(
                    "42P17",
                    f'cannot use generated column "{name}" in column generation expression',
                    detail="A generated column cannot reference another generated column.",
                )
        expr = self.clauses.binder.casts.assign(expr, item.oid, item.typmod, column, expr.pos + 1)
        if not immutable(expr):
            raise SqlError("42P17", "generation expression is not immutable")
        text = text_of(unqualified(self.clauses.binder.kept(body["raw_expr"])))
        made = replace(self.columns[place], generated=text, uses=used)
        if made.default_sql is not None or made.identity or made.serial:
            raise SqlError(
                SYNTAX_ERROR,
                f'both default and generation expression specified for column "{column}" of '
                f'table "{self.name}"',
                position=at(body),
            )
        self.columns[place] = made


_COMMENTS, _CONSTRAINTS, _DEFAULTS, _GENERATED, _IDENTITY, _INDEXES = 1, 4, 8, 16, 32, 64
"""What INCLUDING says, as PostgreSQL's parser counts it."""


def _like(table: Table, column: Column, own: SequenceRow | None, options: int) -> d.ColumnDef:
    """A column of another table; `own`: the sequence that it owns."""
    made = d.ColumnDef(name=column.name, type=column.type, nullable=column.nullable)
    if column.on_update is not None and options & _DEFAULTS:
        made = replace(made, on_update=column.on_update)
    if column.generated is not None and options & _GENERATED:
        uses = tuple(table.by_id(number).name for number in column.uses)
        return replace(made, generated=column.generated, uses=uses)
    if column.identity and own is not None and options & _IDENTITY:
        return replace(made, identity=column.identity, sequence=_options_of(own))
    if not column.identity and options & _DEFAULTS:
        return replace(made, default=column.default, default_sql=column.default_sql)
    return made


def _options_of(sequence: SequenceRow) -> dict[str, object]:
    return {
        "start": sequence.start,
        "increment": sequence.increment,
        "minvalue": sequence.minimum,
        "maxvalue": sequence.maximum,
        "cycle": sequence.cycle,
        "cache": sequence.cache,
    }


def _keys_of(table: Table) -> list[d.KeyDef]:
    """The primary key and the indexes of a table, with names to be made."""

    def named(columns: Iterable[int]) -> tuple[str, ...]:
        return tuple(table.by_id(number).name for number in columns)

    found = []
    if not table.hidden_key:
        parts = tuple(d.KeyPart(name) for name in table.primary_key)
        found.append(d.KeyDef(name=None, parts=parts, unique=True, primary=True, constraint=True))
    for index in table.indexes:
        if index.state != PUBLIC:
            continue
        if any(table.by_id(number).derived for number in index.column_ids):
            raise unsupported(
                "LIKE … INCLUDING INDEXES of a table with an index over an expression",
                hint="Make that index by CREATE INDEX afterwards.",
            )
        parts = tuple(
            d.KeyPart(table.by_id(one.column).name, one.descending, one.nulls_first)
            for one in index.columns
        )
        found.append(
            d.KeyDef(
                name=None,
                parts=parts,
                unique=index.unique,
                primary=index.primary,
                constraint=index.constraint,
                include=named(index.include),
                where=index.where,
                where_columns=named(index.where_columns),
                deferrable=index.deferrable,
                deferred=index.deferred,
            )
        )
    return found


_ATTRIBUTES = {
    "CONSTR_ATTR_DEFERRABLE": ("deferrable", True, "DEFERRABLE"),
    "CONSTR_ATTR_NOT_DEFERRABLE": ("deferrable", False, "NOT DEFERRABLE"),
    "CONSTR_ATTR_DEFERRED": ("initdeferred", True, "INITIALLY DEFERRED"),
    "CONSTR_ATTR_IMMEDIATE": ("initdeferred", False, "INITIALLY IMMEDIATE"),
}
_DEFERRABLE = ("CONSTR_PRIMARY", "CONSTR_UNIQUE", "CONSTR_EXCLUSION", "CONSTR_FOREIGN")
_TWICE = {
    "deferrable": "multiple DEFERRABLE/NOT DEFERRABLE clauses not allowed",
    "initdeferred": "multiple INITIALLY IMMEDIATE/DEFERRED clauses not allowed",
}


def _with_attributes(nodes: Iterable[Node]) -> list[Node]:
    """A column's constraints, each with what the clauses after it say of it. Raises SqlError."""
    found: list[Node] = []
    for node in nodes:
        body = node["Constraint"]
        if body["contype"] not in _ATTRIBUTES:
            found.append(body)
            continue
        field, value, words = _ATTRIBUTES[body["contype"]]
        last = found[-1] if found else {"contype": ""}
        if last["contype"] not in _DEFERRABLE:
            raise SqlError(SYNTAX_ERROR, f"misplaced {words} clause", position=at(body))
        if field in last:
            raise SqlError(SYNTAX_ERROR, _TWICE[field], position=at(body))
        last = found[-1] = {**last, field: value}
        if last.get("initdeferred") and not last.get("deferrable", True):
            raise SqlError(
                SYNTAX_ERROR,
                "constraint declared INITIALLY DEFERRED must be DEFERRABLE",
                position=at(body),
            )
    return found


def twice(name: str, pos: int = 0) -> SqlError:
    return SqlError(DUPLICATE_COLUMN, f'column "{name}" specified more than once', position=pos)

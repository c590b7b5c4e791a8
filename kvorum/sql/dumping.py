"""A database, or a table of it, as a script of SQL: what pg_dump writes, for psql, `kvorum sql` and
PostgreSQL 15.

    with psycopg.connect(…) as connection:
        dump(connection, write, table="", schema="public")

Declarations are read from the system catalog, rows in one read-only transaction, so that all are of
one moment. What another process declares meanwhile is found at the end: then the script is not what
the database was at any time, and `Changed` is raised.

What is in another schema than public is named with it. Order (as pg_dump's): schemas, types,
sequences, tables with what their rows must meet, rows, the numbers of sequences, indexes, unique
and foreign keys, views and functions, comments, privileges. Foreign keys come last, so that tables
may refer to each other. What PostgreSQL has no words for (ON UPDATE CURRENT_TIMESTAMP, the number
of replicas) is left out; owners are, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import psycopg

from sqlproxy.rows.naming import PUBLIC

Write = Callable[[bytes], object]
Row = tuple[Any, ...]

_HEAD: Final = """--
-- {what} of Kvorum, database {database}
--

SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;

"""
_TYPES: Final = """
    SELECT n.nspname, t.typname, array_agg(e.enumlabel ORDER BY e.enumsortorder)
    FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
    LEFT JOIN pg_enum e ON e.enumtypid = t.oid
    WHERE t.typtype = 'e' GROUP BY t.oid, n.nspname, t.typname ORDER BY t.oid"""
_SCHEMAS: Final = "SELECT nspname FROM pg_namespace WHERE oid > 16384 ORDER BY 1"
_TABLES: Final = """
    SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND (n.nspname = 'public' OR n.oid > 16384) ORDER BY c.oid"""
_COLUMNS: Final = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
           a.attgenerated, pg_get_expr(d.adbin, d.adrelid)
    FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_CONSTRAINTS: Final = """
    SELECT c.conname, c.contype, pg_get_constraintdef(c.oid)
    FROM pg_constraint c WHERE c.conrelid = %s::oid ORDER BY c.oid"""
_INDEXES: Final = """
    SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i
    WHERE i.indrelid = %s::oid
    AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = i.indexrelid
                    AND c.contype IN ('p', 'u'))
    ORDER BY i.indexrelid"""
_SEQUENCES: Final = """
    SELECT c.relname, format_type(s.seqtypid, NULL), s.seqstart, s.seqincrement, s.seqmin, s.seqmax,
           s.seqcache, s.seqcycle, t.relname, a.attname, coalesce(a.attidentity, ''), n.nspname
    FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_depend d ON d.objid = c.oid AND d.deptype IN ('a', 'i')
                         AND d.refobjsubid > 0
    LEFT JOIN pg_class t ON t.oid = d.refobjid
    LEFT JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
    ORDER BY c.oid"""
_VIEWS: Final = """
    SELECT c.oid, n.nspname, c.relname, pg_get_viewdef(c.oid) FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'v' AND (n.nspname = 'public' OR n.oid > 16384)"""
_FUNCTIONS: Final = """
    SELECT p.oid, n.nspname, p.proname, pg_get_function_arguments(p.oid),
           pg_get_function_result(p.oid), p.provolatile, p.proisstrict, p.prosrc
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = 'public' OR n.oid > 16384"""
_COMMENTS: Final = """
    SELECT c.relkind, n.nspname, c.relname, a.attname, d.description,
           coalesce(t.relname, c.relname)
    FROM pg_description d
    JOIN pg_class c ON c.oid = d.objoid JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.objsubid AND d.objsubid > 0
    LEFT JOIN pg_index i ON i.indexrelid = c.oid LEFT JOIN pg_class t ON t.oid = i.indrelid
    WHERE n.nspname = 'public' OR n.oid > 16384 ORDER BY c.oid, d.objsubid"""
_COMMENTS_ON_CONSTRAINTS: Final = """
    SELECT k.conname, n.nspname, c.relname, d.description FROM pg_description d
    JOIN pg_constraint k ON k.oid = d.objoid JOIN pg_class c ON c.oid = k.conrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE d.classoid = 'pg_constraint'::regclass ORDER BY c.oid, k.conname"""
_GRANTS: Final = """
    SELECT table_schema, table_name, grantee, privilege_type
    FROM information_schema.role_table_grants
    WHERE table_schema NOT IN ('pg_catalog', 'information_schema', 'kvorum')
    AND grantor <> grantee ORDER BY 1, 2, 3, 4"""
_GRANTS_ON_SCHEMAS: Final = """
    SELECT n.nspname, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE r.rolname END, a.privilege_type
    FROM pg_namespace n, aclexplode(n.nspacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
    WHERE n.oid > 16384 AND a.grantee <> n.nspowner ORDER BY 1, 2, 3"""
_GRANTS_ON_SEQUENCES: Final = """
    SELECT n.nspname, c.relname, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE r.rolname END,
           a.privilege_type
    FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid, aclexplode(c.relacl) a
    LEFT JOIN pg_roles r ON r.oid = a.grantee
    WHERE c.relkind = 'S' AND a.grantee <> c.relowner ORDER BY 1, 2, 3, 4"""
_KINDS: Final = {"r": "TABLE", "v": "VIEW", "S": "SEQUENCE", "i": "INDEX"}


class Changed(Exception):
    """Something was declared, altered or dropped while the script was written."""


class NoTable(Exception):
    """There is none of this name."""


def dump(
    connection: psycopg.Connection, write: Write, *, table: str = "", schema: str = PUBLIC
) -> int:
    """Write the script, whole or of one table without what others need of it; how many rows it has.
    `connection` is idle and is in a transaction of ours meanwhile. Raises Changed, NoTable, what
    `write` raises, and psycopg.Error.
    """
    of = _at(schema, table) if table else ""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        before = _Declared(connection, of)
        write(before.head.encode())
        for statement in before.first:
            write(f"{statement};\n\n".encode())
        rows = sum(_rows(connection, name, columns, write) for name, columns in before.tables)
        for statement in [*_numbers(connection, before.sequences), *before.last]:
            write(f"{statement};\n\n".encode())
    if _Declared(connection, of) != before:
        raise Changed
    return rows


class _Declared:
    """What is declared, as statements before and after the rows. Relations are named as they are
    written: `table`, too.
    """

    def __init__(self, connection: psycopg.Connection, table: str) -> None:
        self._ask = connection
        ((database,),) = self._rows("SELECT current_database()")
        what = f"Table {table}" if table else "All tables"
        self.head = _HEAD.format(what=what.replace("\n", " "), database=database)
        self.first: list[str] = []
        self.last: list[str] = []
        self.tables: list[tuple[str, list[str]]] = []
        every = [(oid, _at(schema, name)) for oid, schema, name in self._rows(_TABLES)]
        named = [(oid, name) for oid, name in every if table in ("", name)]
        if table and not named:
            raise NoTable(table)
        sequences = map(_placed_sequence, self._rows(_SEQUENCES))
        self.sequences = [one for one in sequences if table in ("", one[8])]
        if not table:
            self.first += [f"CREATE SCHEMA {_name(name)}" for (name,) in self._rows(_SCHEMAS)]
            self.first += [
                f"CREATE TYPE {_at(schema, name)} AS ENUM "
                f"({', '.join(map(_text, _labels(labels)))})"
                for schema, name, labels in self._rows(_TYPES)
            ]
        self.first += [_sequence(one) for one in self.sequences if not one[10]]
        keys: list[str] = []
        for oid, name in named:
            self._table(oid, name, keys)
        self.last += [
            f"ALTER SEQUENCE {one[0]} OWNED BY {one[8]}.{_name(one[9])}"
            for one in self.sequences
            if one[8] is not None and not one[10]
        ]
        self.last += keys
        if not table:
            made = {
                oid: f"CREATE VIEW {_at(schema, name)} AS\n{query.rstrip().rstrip(';')}"
                for oid, schema, name, query in self._rows(_VIEWS)
            }
            made |= {one[0]: _function(one) for one in self._rows(_FUNCTIONS)}
            self.last += [statement for _, statement in sorted(made.items())]
        self.last += self._comments(table)
        if not table:
            self.last += [
                f"GRANT {privilege} ON SCHEMA {_name(name)} TO {_grantee(role)}"
                for name, role, privilege in self._rows(_GRANTS_ON_SCHEMAS)
            ]
        self.last += [
            f"GRANT {privilege} ON {_at(schema, name)} TO {_grantee(role)}"
            for schema, name, role, privilege in self._rows(_GRANTS)
            if table in ("", _at(schema, name))
        ]
        names = {one[0] for one in self.sequences}
        self.last += [
            f"GRANT {privilege} ON SEQUENCE {_at(schema, name)} TO {_grantee(role)}"
            for schema, name, role, privilege in self._rows(_GRANTS_ON_SEQUENCES)
            if _at(schema, name) in names
        ]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Declared) and (self.first, self.last, self.tables) == (
            other.first,
            other.last,
            other.tables,
        )

    def _rows(self, query: str, *values: object) -> list[Row]:
        return self._ask.execute(query.encode(), values or None).fetchall()

    def _table(self, oid: int, name: str, keys: list[str]) -> None:
        parts, kept = [], []
        for column, kind, required, identity, generated, default in self._rows(_COLUMNS, oid):
            said = f"{_name(column)} {kind}"
            if generated:
                said += f" GENERATED ALWAYS AS ({default}) STORED"
            elif identity:
                said += f" GENERATED {'ALWAYS' if identity == 'a' else 'BY DEFAULT'} AS IDENTITY"
                said += self._identity(name, column)
            elif default is not None:
                said += f" DEFAULT {default}"
            parts.append(said + (" NOT NULL" if required else ""))
            if not generated:
                kept.append(column)
        self.tables.append((name, kept))
        for constraint, kind, definition in self._rows(_CONSTRAINTS, oid):
            said = f"CONSTRAINT {_name(constraint)} {definition}"
            if kind in "pc":
                parts.append(said)
            elif kind == "u":
                self.last.append(f"ALTER TABLE {name} ADD {said}")
            else:
                keys.append(f"ALTER TABLE {name} ADD {said}")
        listed = ",\n    ".join(parts)
        self.first.append(f"CREATE TABLE {name} (\n    {listed}\n)")
        self.last += [definition for (definition,) in self._rows(_INDEXES, oid)]

    def _identity(self, table: str, column: str) -> str:
        """The options of the column's own sequence."""
        for one in self.sequences:
            if (one[8], one[9]) == (table, column) and one[10]:
                return f" (SEQUENCE NAME {one[0]} {_options(one)})"
        return ""

    def _comments(self, table: str) -> Iterator[str]:
        tables = {name for name, _ in self.tables}
        for kind, schema, name, column, text, of in self._rows(_COMMENTS):
            if kind not in _KINDS or (table and _at(schema, of) not in tables):
                continue
            path = _at(schema, name)
            what = f"COLUMN {path}.{_name(column)}" if column else f"{_KINDS[kind]} {path}"
            yield f"COMMENT ON {what} IS {_text(text)}"
        for name, schema, of, text in self._rows(_COMMENTS_ON_CONSTRAINTS):
            if (path := _at(schema, of)) in tables:
                yield f"COMMENT ON CONSTRAINT {_name(name)} ON {path} IS {_text(text)}"


def _rows(connection: psycopg.Connection, table: str, columns: Sequence[str], write: Write) -> int:
    """The rows of a table as COPY writes them; how many."""
    listed = f" ({', '.join(map(_name, columns))})" if columns else ""
    write(f"COPY {table}{listed} FROM stdin;\n".encode())
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY {table}{listed} TO STDOUT".encode()) as copy:
            for piece in copy:
                write(bytes(piece))
        count = cursor.rowcount
    write(b"\\.\n\n")
    return count


def _numbers(connection: psycopg.Connection, sequences: Sequence[Row]) -> Iterator[str]:
    """Where sequences stand. They are not of the transaction: never after its rows."""
    for one in sequences:
        query = f"SELECT last_value, is_called FROM {one[0]}"
        found = connection.execute(query.encode()).fetchone()
        assert found is not None
        value, called = found
        yield f"SELECT setval({_text(one[0])}, {value}, {str(called).lower()})"


def _function(one: Row) -> str:
    _, schema, name, arguments, result, volatile, strict, body = one
    said = {"i": " IMMUTABLE", "s": " STABLE"}.get(volatile, "") + (" STRICT" if strict else "")
    head = f"CREATE FUNCTION {_at(schema, name)}({arguments}) RETURNS {result} LANGUAGE sql{said}"
    return f"{head} AS {_text(body)}"


def _sequence(one: Row) -> str:
    return f"CREATE SEQUENCE {one[0]} AS {one[1]} {_options(one)}"


def _placed_sequence(one: Row) -> Row:
    """With its name and its table's as they are written; both are in one schema."""
    *rest, schema = one
    of = None if rest[8] is None else _at(schema, rest[8])
    return (_at(schema, rest[0]), *rest[1:8], of, *rest[9:])


def _at(schema: str, name: str) -> str:
    """A name as it is written."""
    return _name(name) if schema == PUBLIC else f"{_name(schema)}.{_name(name)}"


def _options(one: Row) -> str:
    _, _, start, step, low, high, cache, cycle, *_ = one
    said = f"START WITH {start} INCREMENT BY {step} MINVALUE {low} MAXVALUE {high} CACHE {cache}"
    return said + (" CYCLE" if cycle else "")


def _labels(labels: Sequence[str | None] | None) -> list[str]:
    return [label for label in labels or () if label is not None]


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _text(text: str) -> str:
    quoted = "'" + text.replace("'", "''") + "'"
    return "E" + quoted.replace("\\", "\\\\") if "\\" in quoted else quoted


def _grantee(role: str) -> str:
    return "PUBLIC" if role == "PUBLIC" else _name(role)

"""Descriptors → rows of the system tables that depend on them. Pure.

Each relation makes its rows alone (and with the names of what it refers to), so that a change of
one replaces only its own: `_owner` in every row is the relation's id. Columns of a row that are not
given are NULL; columns whose name begins with `_` are for our own functions and never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from sqlproxy.front.types.registry import format_type
from sqlproxy.pg import oids as types
from sqlproxy.pgcatalog import definitions, oids, rights
from sqlproxy.pgcatalog.contents import Contents, Named
from sqlproxy.pgcatalog.definitions import quoted
from sqlproxy.pgcatalog.row_bases import (
    ARRAY_TYPE,
    ATTRIBUTE,
    CHANGING,
    CONSTRAINT,
    HEAP,
    PATH,
    TYPE,
    Facts,
    Row,
    Rows,
    attnums,
    class_row,
    depends,
)
from sqlproxy.pgcatalog.row_functions import of_function
from sqlproxy.pgcatalog.row_indexes import index_entry, key_rows, reference_rows
from sqlproxy.pgcatalog.row_types import of_type
from sqlproxy.rows.naming import PUBLIC as PUBLIC_SCHEMA
from sqlproxy.rows.naming import is_temporary, schema_of
from sqlproxy.rows.schema import (
    BY_DEFAULT,
    INDEX,
    PUBLIC,
    WRITE_ONLY,
    Column,
    EnumType,
    Sequence,
    SqlFunction,
    Table,
    View,
)
from sqlproxy.values import enums

_STRING: Final = re.compile(r"'(?:[^']|'')*'")
_CAST: Final = re.compile(r"('(?:[^']|'')*')::([a-z]+)((?:\[\])?)")
_LONG: Final = {  # as the parser writes types, and as PostgreSQL does
    "bool": "boolean",
    "char": "character",
    "int": "integer",
    "time": "time without time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "varchar": "character varying",
}
_NEGATIVE: Final = re.compile(r"-\s*[\d.]+")
_NOW: Final = {
    "current_timestamp",
    "current_date",
    "current_time",
    "localtimestamp",
    "current_user",
}
_SYSTEM: Final = (
    ("ctid", -1, types.TID),
    ("xmin", -2, types.XID),
    ("cmin", -3, types.CID),
    ("xmax", -4, types.XID),
    ("cmax", -5, types.CID),
    ("tableoid", -6, types.OID),
)


def of_relation(facts: Facts, contents: Contents, one: Named | EnumType | SqlFunction) -> Rows:
    """All rows that are there because of this relation, type or function."""
    rows: Rows = {name: [] for name in CHANGING}
    if isinstance(one, EnumType):
        of_type(one, rows)
        return _owned(_in_schema(rows, one.namespace), one.id)
    if isinstance(one, SqlFunction):
        of_function(one, rows, lambda oid: _shown_type(contents, oid, format_type(oid)))
        return _owned(_in_schema(rows, one.namespace), one.id)
    if isinstance(one, Table):
        _table(facts, contents, one, rows)
    elif isinstance(one, View):
        _view(facts, one, rows)
    else:
        _sequence(contents, one, rows)
    for (id, column), text in contents.comments.items():
        if id == one.id:
            number = attnums(one).get(column, 0) if isinstance(one, Table) else column
            rows["pg_description"].append(
                {
                    "objoid": oids.relation(id),
                    "classoid": oids.PG_CLASS,
                    "objsubid": number,
                    "description": text,
                }
            )
    if isinstance(one, Table):
        rows["pg_description"] += _notes(one, rows)
    held = rights.of_relation(contents, one)
    for row in rows["pg_class"]:
        row |= held if row["oid"] == oids.relation(one.id) else {"relowner": held["relowner"]}
    for row in rows["pg_constraint"]:
        row.setdefault("_short", row["_def"])
    return _owned(_in_schema(rows, one.namespace), one.id)


def _in_schema(rows: Rows, namespace: str) -> Rows:
    """They were made as those of public."""
    schema = schema_of(namespace)
    if schema == PUBLIC_SCHEMA:
        return rows
    oid, shown = oids.schema(schema), quoted(schema)
    for row in rows["pg_class"]:
        row["relnamespace"] = oid
        row["_qname"] = f"{shown}.{row['_name']}"
        row["_path"] = f"{schema}{PATH}{row['relname']}"
        if is_temporary(schema):
            row["relpersistence"] = "t"
    for row in rows["pg_type"]:
        row["typnamespace"], row["_text"] = oid, f"{shown}.{row['_text']}"
    for row in rows["pg_constraint"]:
        row["connamespace"] = oid
    for row in rows["pg_proc"]:
        row["pronamespace"] = oid
    for row in rows["pg_index"]:
        row["_def"] = row["_def"].replace(" ON public.", f" ON {shown}.", 1)
    return rows


def of_schemas(contents: Contents) -> list[Row]:
    """Those of users beside public."""
    return [
        {
            "oid": oids.schema(name),
            "nspname": name,
            "_owner": 0,
            **rights.of_schema(place),
        }
        for name, place in contents.schemas.items()
    ]


def _notes(table: Table, rows: Rows) -> Iterator[Row]:
    """COMMENT ON its indexes and constraints."""
    for kind, name, text in table.notes:
        index = kind == INDEX
        listed = rows["pg_class" if index else "pg_constraint"]
        column = "relname" if index else "conname"
        for row in listed:
            if row[column] == name and (not index or row["relkind"] == "i"):
                yield {
                    "objoid": row["oid"],
                    "classoid": oids.PG_CLASS if index else oids.PG_CONSTRAINT,
                    "objsubid": 0,
                    "description": text,
                }


def _owned(rows: Rows, id: int) -> Rows:
    for listed in rows.values():
        for row in listed:
            row["_owner"] = id
    return rows


def dependents(contents: Contents, changed: Iterable[int]) -> set[int]:
    """What else must be written anew: who refers to these by foreign keys or owns or is owned by
    them, or has one of these types.
    """
    found = set(changed)
    kinds = {one.enum.oid for id, one in contents.types.items() if id in found}
    kinds |= {enums.array_oid(oid) for oid in kinds}
    more: set[int] = set(found)
    for one in contents.relations.values():
        if isinstance(one, Table):
            others: set[int] = {key.table for key in one.foreign_keys}
            others |= {c.sequence for c in one.columns if c.sequence}
            if others & found or any(_has(column, kinds) for column in one.columns):
                more.add(one.id)
            if one.id in found:
                more |= {o for o in others if o in contents.relations}
        elif isinstance(one, Sequence) and one.owned_by and one.owned_by[0] in found:
            more.add(one.id)
    for by in contents.functions.values() if kinds else ():
        if not kinds.isdisjoint([*(a.oid for a in by.arguments), *dict(by.columns).values()]):
            more.add(by.id)
        if by.result in kinds:
            more.add(by.id)
    return more


def _has(column: Column, kinds: set[int]) -> bool:
    return bool(kinds) and enums.oid_in(column.type) in kinds


def _shown_type(contents: Contents, oid: int, text: str) -> str:
    """A type's name with its schema, unless that is public."""
    for one in contents.types.values():
        schema = schema_of(one.namespace)
        if schema != PUBLIC_SCHEMA and oid in (one.enum.oid, enums.array_oid(one.enum.oid)):
            return f"{quoted(schema)}.{text}"
    return text


# -- tables


_BINDS: Final = (PUBLIC, WRITE_ONLY)
PLAIN: Final = (
    Column(1, "key", "bytea", nullable=False),
    Column(2, "value", "bytea", nullable=False),
)


def columns(table: Table) -> tuple[Column, ...]:
    """What users see; a plain table has a key and a value."""
    return PLAIN if table.plain else table.visible


def _table(facts: Facts, contents: Contents, table: Table, rows: Rows) -> None:
    oid, shown = oids.relation(table.id), columns(table)
    numbers = {1: 1, 2: 2} if table.plain else attnums(table)
    # one that is not validated yet (NOT VALID) binds who writes, and is shown
    foreign = [k for k in table.foreign_keys if k.state in _BINDS and k.table in contents.relations]
    checks = [c for c in table.checks if c.state in _BINDS]
    indexes = [i for i in table.indexes if i.state == PUBLIC]
    keyed = table.plain or bool(table.primary_key and not table.hidden_key)
    referred = any(k.table == table.id for t in contents.tables() for k in t.foreign_keys)
    rows["pg_class"].append(
        class_row(
            oid,
            table.name,
            "r",
            reltype=oids.row_type(table.id),
            relam=HEAP,
            relreplident="d",
            relnatts=max(numbers.values(), default=0),
            relhasindex=keyed or bool(indexes),
            relchecks=len(checks),
            relhastriggers=bool(foreign) or referred,
        )
    )
    _row_type(table.id, table.name, rows)
    for name, number, kind in _SYSTEM:
        rows["pg_attribute"].append(
            {
                **ATTRIBUTE,
                **facts.of(kind),
                "attrelid": oid,
                "attname": name,
                "attnum": number,
                "attnotnull": True,
            }
        )
    for column in shown:
        _column(facts, contents, table, column, numbers[column.id], rows)
    there = set(numbers.values())
    for number in range(1, max(there, default=0)):
        if number not in there:
            rows["pg_attribute"].append(_dropped(oid, number))
    if keyed:
        key_rows(facts, table, shown, numbers, rows)
    for index in indexes:
        index_entry(facts, table, index, numbers, rows)
    for check in checks:
        made = oids.constraint(table.id, check.name)
        key = [numbers[c] for c in check.columns if c in numbers]
        rows["pg_constraint"].append(
            {
                **CONSTRAINT,
                "oid": made,
                "conname": check.name,
                "contype": "c",
                "conrelid": oid,
                "connoinherit": False,
                "conkey": key or None,
                "convalidated": check.state == PUBLIC,
                "conbin": check.sql,
                "_def": definitions.check(check.sql) + definitions.validity(check.state),
                "_short": definitions.check_short(check.sql) + definitions.validity(check.state),
            }
        )
        for number in key:
            rows["pg_depend"].append(
                depends(oids.PG_CONSTRAINT, made, oids.PG_CLASS, oid, number, "a")
            )
    for foreign_key in foreign:
        reference_rows(contents, table, foreign_key, numbers, rows)


def _dropped(table: int, number: int) -> Row:
    """Of a column that is gone: pg_dump wants a row for each number."""
    return {
        **ATTRIBUTE,
        "attrelid": table,
        "attname": f"........pg.dropped.{number}........",
        "attnum": number,
        "atttypid": 0,
        "attstattarget": 0,
        "attlen": 4,
        "attbyval": True,
        "attalign": "i",
        "attstorage": "p",
        "attcollation": 0,
        "attisdropped": True,
    }


def _row_type(id: int, name: str, rows: Rows) -> None:
    common: Row = {**TYPE, "typalign": "d", "typstorage": "x"}
    row, array = oids.row_type(id), oids.array_type(id)
    rows["pg_type"] += [
        {
            **common,
            "oid": row,
            "typname": name,
            "typtype": "c",
            "typcategory": "C",
            "typrelid": oids.relation(id),
            "typelem": 0,
            "typarray": array,
            "typsubscript": 0,
            "typinput": 2290,
            "typoutput": 2291,
            "typreceive": 2402,
            "typsend": 2403,
            "_text": quoted(name),
        },
        {
            **ARRAY_TYPE,
            "oid": array,
            "typname": f"_{name}",
            "typelem": row,
            "typalign": "d",
            "_text": f"{quoted(name)}[]",
        },
    ]


def _column(
    facts: Facts, contents: Contents, table: Table, column: Column, number: int, rows: Rows
) -> None:
    kind, typmod = types.by_name(column.type)
    default = default_of(contents, column)
    oid = oids.relation(table.id)
    rows["pg_attribute"].append(
        {
            **ATTRIBUTE,
            **facts.of(kind.oid),
            "attrelid": oid,
            "attname": column.name,
            "attnum": number,
            "atttypmod": typmod,
            "attndims": int(column.type.endswith("[]")),
            "attnotnull": not column.nullable,
            "atthasdef": default is not None,
            "attidentity": ("d" if column.identity == BY_DEFAULT else "a")
            if column.identity
            else "",
            "attgenerated": "s" if column.generated is not None else "",
            **rights.of_column(table, column),
        }
    )
    if default is not None:
        made = oids.default(table.id, column.id)
        rows["pg_attrdef"].append({"oid": made, "adrelid": oid, "adnum": number, "adbin": default})
        rows["pg_depend"].append(depends(oids.PG_ATTRDEF, made, oids.PG_CLASS, oid, number, "a"))
        if column.sequence:  # so a dump makes the sequence before the default that names it
            named = oids.relation(column.sequence)
            rows["pg_depend"].append(depends(oids.PG_ATTRDEF, made, oids.PG_CLASS, named, 0, "n"))


def default_of(contents: Contents, column: Column) -> str | None:
    """As pg_get_expr shows it: constants with their types, sequences by their names."""
    if column.generated is not None:
        text = column.generated.strip()
        return text if text.startswith("(") or re.fullmatch(r"\w+\(.*\)", text) else f"({text})"
    if column.identity:
        return None
    sequence = contents.relations.get(column.sequence) if column.sequence else None
    if sequence is not None:
        name = quoted(sequence.name).replace("'", "''")
        if (schema := schema_of(sequence.namespace)) != PUBLIC_SCHEMA:
            name = f"{quoted(schema)}.{name}"
        return f"nextval('{name}'::regclass)"
    if column.default_sql is None:
        return None if column.default is None else _constant(column.default, column.type)
    text = column.default_sql.strip()
    of = types.by_name(column.type)[0].oid
    shown = _shown_type(contents, of, types.format_type(of))
    if _STRING.fullmatch(text):
        return f"{text}::{shown}"
    cast = _CAST.fullmatch(text)
    if cast is not None:  # so that what a dump made is dumped as before
        return f"{cast[1]}::{_LONG.get(cast[2], cast[2])}{cast[3]}"
    if _NEGATIVE.fullmatch(text):
        return f"'{text.replace(' ', '')}'::{'integer' if '.' not in text else 'numeric'}"
    if text.lower() == "null":
        return f"NULL::{shown}"
    return text.upper() if text.lower() in _NOW else definitions.operand(text)


def _constant(value: object, name: str) -> str:
    """A default that was declared as a value, not as SQL."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and value >= 0:
        return repr(value)
    if isinstance(value, bytes):
        value = "\\x" + value.hex()
    text = str(value).replace("'", "''")
    return f"'{text}'::{types.format_type(types.by_name(name)[0].oid)}"


# -- views and sequences


def _view(facts: Facts, view: View, rows: Rows) -> None:
    oid = oids.relation(view.id)
    text = view.sql.strip().rstrip(";") + ";"
    rows["pg_class"].append(
        class_row(
            oid,
            view.name,
            "v",
            reltype=oids.row_type(view.id),
            relhasrules=True,
            relnatts=len(view.columns),
            _view=text if text.startswith(" ") else f" {text}",
        )
    )
    _row_type(view.id, view.name, rows)
    for number, (name, kind) in enumerate(view.columns, 1):
        found, typmod = types.by_name(kind)
        rows["pg_attribute"].append(
            {
                **ATTRIBUTE,
                **facts.of(found.oid),
                "attrelid": oid,
                "attname": name,
                "attnum": number,
                "atttypmod": typmod,
                "attndims": int(kind.endswith("[]")),
            }
        )
    rule = oids.default(view.id, 0)
    rows["pg_rewrite"].append(
        {
            "oid": rule,
            "rulename": "_RETURN",
            "ev_class": oid,
            "ev_type": "1",
            "ev_enabled": "O",
            "is_instead": True,
            "ev_qual": "<>",
            "ev_action": "<>",
        }
    )
    rows["pg_depend"].append(depends(oids.PG_REWRITE, rule, oids.PG_CLASS, oid, 0, "i"))
    for id, used in view.uses:
        for part in used or (0,):
            rows["pg_depend"].append(
                depends(oids.PG_REWRITE, rule, oids.PG_CLASS, oids.relation(id), part, "n")
            )


def _sequence(contents: Contents, one: Sequence, rows: Rows) -> None:
    oid = oids.relation(one.id)
    rows["pg_class"].append(class_row(oid, one.name, "S", relnatts=3, reltuples=1.0, relpages=1))
    rows["pg_sequence"].append(
        {
            "seqrelid": oid,
            "seqtypid": types.by_name(one.type)[0].oid,
            "seqstart": one.start,
            "seqincrement": one.increment,
            "seqmax": one.maximum,
            "seqmin": one.minimum,
            "seqcache": one.cache,
            "seqcycle": one.cycle,
        }
    )
    if one.owned_by is None:
        return
    table = contents.relations.get(one.owned_by[0])
    if isinstance(table, Table) and (number := attnums(table).get(one.owned_by[1])):
        identity = bool(table.by_id(one.owned_by[1]).identity)
        rows["pg_depend"].append(
            depends(
                oids.PG_CLASS,
                oid,
                oids.PG_CLASS,
                oids.relation(table.id),
                number,
                "i" if identity else "a",
            )
        )

"""Descriptors → rows of the system tables that depend on them. Pure.

Each relation makes its rows alone (and with the names of what it refers to), so that a change of
one replaces only its own: `_owner` in every row is the relation's id. Columns of a row that are not
given are NULL; columns whose name begins with `_` are for our own functions and never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlproxy.pg import oids as types
from sqlproxy.pgcatalog import definitions, oids, rights
from sqlproxy.pgcatalog.contents import Contents, Named
from sqlproxy.pgcatalog.definitions import quoted
from sqlproxy.pgcatalog.static import CATALOG, Static
from sqlproxy.schema import BY_DEFAULT, PUBLIC, Column, Sequence, Table, View

Row = dict[str, Any]
Rows = dict[str, list[Row]]
HIDDEN: Final = {
    "pg_class": (
        ("_name", "VARCHAR"),
        ("_qname", "VARCHAR"),
        ("_path", "VARCHAR"),
        ("_view", "VARCHAR"),
        ("_acl", "VARCHAR[]"),
    ),
    "pg_database": (("_acl", "VARCHAR[]"), ("_schema_acl", "VARCHAR[]")),
    "pg_authid": (("_roles", "BIGINT[]"),),
    "pg_index": (("_def", "VARCHAR"), ("_short", "VARCHAR"), ("_columns", "VARCHAR[]")),
    "pg_constraint": (("_def", "VARCHAR"), ("_short", "VARCHAR")),
    "pg_type": (("_text", "VARCHAR"),),
    "pg_proc": (("_result", "VARCHAR"), ("_arguments", "VARCHAR"), ("_identity", "VARCHAR")),
}
CHANGING: Final = (
    "pg_class",
    "pg_attribute",
    "pg_attrdef",
    "pg_index",
    "pg_constraint",
    "pg_type",
    "pg_depend",
    "pg_sequence",
    "pg_description",
    "pg_rewrite",
)
_HEAP, _BTREE = 2, 403
_STRING: Final = re.compile(r"'(?:[^']|'')*'")
_NEGATIVE: Final = re.compile(r"-\s*[\d.]+")
_NOW: Final = {
    "current_timestamp",
    "current_date",
    "current_time",
    "localtimestamp",
    "current_user",
}
_CLASS: Final[Row] = {
    "relnamespace": oids.PUBLIC_SCHEMA,
    "reltype": 0,
    "reloftype": 0,
    "relowner": oids.BOOTSTRAP_ROLE,
    "relam": 0,
    "reltablespace": 0,
    "relpages": 0,
    "reltuples": -1.0,
    "relallvisible": 0,
    "reltoastrelid": 0,
    "relhasindex": False,
    "relisshared": False,
    "relpersistence": "p",
    "relchecks": 0,
    "relhasrules": False,
    "relhastriggers": False,
    "relhassubclass": False,
    "relrowsecurity": False,
    "relforcerowsecurity": False,
    "relispopulated": True,
    "relreplident": "n",
    "relispartition": False,
    "relrewrite": 0,
    "relfrozenxid": 0,
    "relminmxid": 0,
}
_ATTRIBUTE: Final[Row] = {
    "attstattarget": -1,
    "attndims": 0,
    "attcacheoff": -1,
    "atttypmod": -1,
    "attcompression": "",
    "attnotnull": False,
    "atthasdef": False,
    "atthasmissing": False,
    "attidentity": "",
    "attgenerated": "",
    "attisdropped": False,
    "attislocal": True,
    "attinhcount": 0,
}
_CONSTRAINT: Final[Row] = {
    "connamespace": oids.PUBLIC_SCHEMA,
    "condeferrable": False,
    "condeferred": False,
    "convalidated": True,
    "contypid": 0,
    "conindid": 0,
    "conparentid": 0,
    "confrelid": 0,
    "confupdtype": " ",
    "confdeltype": " ",
    "confmatchtype": " ",
    "conislocal": True,
    "coninhcount": 0,
    "connoinherit": True,
}
_SYSTEM: Final = (
    ("ctid", -1, types.TID),
    ("xmin", -2, types.XID),
    ("cmin", -3, types.CID),
    ("xmax", -4, types.XID),
    ("cmax", -5, types.CID),
    ("tableoid", -6, types.OID),
)


class Facts:
    """What rows of columns repeat of their types, and the operator classes by type."""

    def __init__(self, static: Static) -> None:
        layout = [c.name for c in static.layouts[CATALOG, "pg_type"]]
        rows = static.rows["pg_type"]
        at = {
            name: rows[layout.index(name)]
            for name in ("oid", "typlen", "typbyval", "typalign", "typstorage", "typcollation")
        }
        self._types = {row[0]: row[1:] for row in zip(*at.values(), strict=True)}
        self._classes = _classes(static)

    def of(self, oid: int) -> Row:
        length, by_value, align, storage, collation = self._types.get(oid, self._types[types.TEXT])
        return {
            "atttypid": oid,
            "attlen": length,
            "attbyval": by_value,
            "attalign": align,
            "attstorage": storage,
            "attcollation": collation,
        }

    def collation(self, oid: int) -> int:
        return int(self.of(oid)["attcollation"])

    def opclass(self, oid: int) -> int:
        return self._classes.get(types.TEXT if oid == types.VARCHAR else oid, 0)


def _classes(static: Static) -> dict[int, int]:
    layout = [c.name for c in static.layouts[CATALOG, "pg_opclass"]]
    wanted = ("oid", "opcmethod", "opcintype", "opcdefault")
    rows = zip(*(static.rows["pg_opclass"][layout.index(n)] for n in wanted), strict=True)
    return {of: oid for oid, method, of, default in rows if method == _BTREE and default}


def attnums(table: Table) -> dict[int, int]:
    """Column id → attribute number: the ids themselves, without the hidden one; where a column
    took the place of another, the numbers go in the order of the columns all the same.
    """
    hidden = [c.id for c in table.columns if c.hidden]
    shown = [c.id for c in table.columns if not c.hidden]
    numbers = sorted(number - sum(h < number for h in hidden) for number in shown)
    return dict(zip(shown, numbers, strict=True))


def of_relation(facts: Facts, contents: Contents, one: Named) -> Rows:
    """All rows that are there because of this relation."""
    rows: Rows = {name: [] for name in CHANGING}
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
    held = rights.of_relation(contents, one)
    for row in rows["pg_class"]:
        row |= held if row["oid"] == oids.relation(one.id) else {"relowner": held["relowner"]}
    for row in rows["pg_constraint"]:
        row.setdefault("_short", row["_def"])
    for listed in rows.values():
        for row in listed:
            row["_owner"] = one.id
    return rows


def dependents(contents: Contents, changed: Iterable[int]) -> set[int]:
    """What else must be told anew: who refers to these by foreign keys or owns or is owned by
    them.
    """
    found = set(changed)
    more: set[int] = set(found)
    for one in contents.relations.values():
        if isinstance(one, Table):
            others: set[int] = {key.table for key in one.foreign_keys}
            others |= {c.sequence for c in one.columns if c.sequence}
            if others & found:
                more.add(one.id)
            if one.id in found:
                more |= {o for o in others if o in contents.relations}
        elif isinstance(one, Sequence) and one.owned_by and one.owned_by[0] in found:
            more.add(one.id)
    return more


def _class(id: int, name: str, kind: str, **more: Any) -> Row:
    path = f"public.{name}"
    return {
        **_CLASS,
        "oid": id,
        "relname": name,
        "relkind": kind,
        "relfilenode": id if kind in "riS" else 0,
        "_name": quoted(name),
        "_qname": f"public.{quoted(name)}",
        "_path": path,
        **more,
    }


# -- tables


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
    foreign = [k for k in table.foreign_keys if k.state == PUBLIC and k.table in contents.relations]
    checks = [c for c in table.checks if c.state == PUBLIC]
    indexes = [i for i in table.indexes if i.state == PUBLIC]
    keyed = table.plain or bool(table.primary_key and not table.hidden_key)
    referred = any(k.table == table.id for t in contents.tables() for k in t.foreign_keys)
    rows["pg_class"].append(
        _class(
            oid,
            table.name,
            "r",
            reltype=oids.row_type(table.id),
            relam=_HEAP,
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
                **_ATTRIBUTE,
                **facts.of(kind),
                "attrelid": oid,
                "attname": name,
                "attnum": number,
                "attnotnull": True,
            }
        )
    for column in shown:
        _column(facts, contents, table, column, numbers[column.id], rows)
    if keyed:
        _primary_key(facts, table, shown, numbers, rows)
    for index in indexes:
        _index(facts, table, index, numbers, rows)
    for check in checks:
        made = oids.constraint(table.id, check.name)
        key = [numbers[c] for c in check.columns if c in numbers]
        rows["pg_constraint"].append(
            {
                **_CONSTRAINT,
                "oid": made,
                "conname": check.name,
                "contype": "c",
                "conrelid": oid,
                "connoinherit": False,
                "conkey": key or None,
                "conbin": check.sql,
                "_def": definitions.check(check.sql),
                "_short": definitions.check_short(check.sql),
            }
        )
        for number in key:
            rows["pg_depend"].append(
                _depends(oids.PG_CONSTRAINT, made, oids.PG_CLASS, oid, number, "a")
            )
    for foreign_key in foreign:
        _foreign_key(contents, table, foreign_key, numbers, rows)


def _depends(of: int, id: int, on: int, other: int, part: int, kind: str) -> Row:
    return {
        "classid": of,
        "objid": id,
        "objsubid": 0,
        "refclassid": on,
        "refobjid": other,
        "refobjsubid": part,
        "deptype": kind,
    }


def _row_type(id: int, name: str, rows: Rows) -> None:
    common: Row = {
        "typnamespace": oids.PUBLIC_SCHEMA,
        "typowner": oids.BOOTSTRAP_ROLE,
        "typbyval": False,
        "typisdefined": True,
        "typdelim": ",",
        "typalign": "d",
        "typstorage": "x",
        "typnotnull": False,
        "typbasetype": 0,
        "typtypmod": -1,
        "typndims": 0,
        "typcollation": 0,
        "typlen": -1,
        "typispreferred": False,
        "typmodin": 0,
        "typmodout": 0,
        "typanalyze": 0,
    }
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
            **common,
            "oid": array,
            "typname": f"_{name}",
            "typtype": "b",
            "typcategory": "A",
            "typrelid": 0,
            "typelem": row,
            "typarray": 0,
            "typsubscript": 6179,
            "typinput": 750,
            "typoutput": 751,
            "typreceive": 2400,
            "typsend": 2401,
            "typanalyze": 3816,
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
            **_ATTRIBUTE,
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
        }
    )
    if default is not None:
        made = oids.default(table.id, column.id)
        rows["pg_attrdef"].append({"oid": made, "adrelid": oid, "adnum": number, "adbin": default})
        rows["pg_depend"].append(_depends(oids.PG_ATTRDEF, made, oids.PG_CLASS, oid, number, "a"))


def default_of(contents: Contents, column: Column) -> str | None:
    """As pg_get_expr tells it: constants with their types, sequences by their names."""
    if column.generated is not None:
        text = column.generated.strip()
        return text if text.startswith("(") or re.fullmatch(r"\w+\(.*\)", text) else f"({text})"
    if column.identity:
        return None
    sequence = contents.relations.get(column.sequence) if column.sequence else None
    if sequence is not None:
        return f"nextval('{quoted(sequence.name)}'::regclass)"
    if column.default_sql is None:
        return None if column.default is None else _constant(column.default, column.type)
    text = column.default_sql.strip()
    shown = types.format_type(types.by_name(column.type)[0].oid, None)
    if _STRING.fullmatch(text):
        return f"{text}::{shown}"
    if _NEGATIVE.fullmatch(text):
        return f"'{text.replace(' ', '')}'::{'integer' if '.' not in text else 'numeric'}"
    if text.lower() == "null":
        return f"NULL::{shown}"
    return text.upper() if text.lower() in _NOW else text


def _constant(value: Any, name: str) -> str:
    """A default that was declared as a value, not as SQL."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and value >= 0:
        return repr(value)
    if isinstance(value, bytes):
        value = "\\x" + value.hex()
    text = str(value).replace("'", "''")
    return f"'{text}'::{types.format_type(types.by_name(name)[0].oid, None)}"


# -- indexes and constraints


def primary_key_name(table: Table) -> str:
    return table.primary_key_name or f"{table.name}_pkey"


def _primary_key(
    facts: Facts, table: Table, shown: tuple[Column, ...], numbers: Mapping[int, int], rows: Rows
) -> None:
    names = ("key",) if table.plain else table.primary_key
    by_name = {c.name: c for c in shown}
    parts = [by_name[n] for n in names]
    name, oid = primary_key_name(table), oids.primary_index(table.id)
    plain = definitions.listed(names)
    text = f"CREATE UNIQUE INDEX {quoted(name)} ON {{}}{quoted(table.name)} USING btree ({plain})"
    _index_rows(
        facts,
        table,
        oid,
        name,
        parts,
        (),
        numbers,
        rows,
        unique=True,
        primary=True,
        options=[0] * len(parts),
        definition=text.format("public."),
        short=text.format(""),
    )
    made = oids.key_constraint(table.id)
    rows["pg_constraint"].append(
        {
            **_CONSTRAINT,
            "oid": made,
            "conname": name,
            "contype": "p",
            "conindid": oid,
            "conrelid": oids.relation(table.id),
            "conkey": [numbers[c.id] for c in parts],
            "_def": f"PRIMARY KEY ({plain})",
        }
    )
    rows["pg_depend"].append(_depends(oids.PG_CLASS, oid, oids.PG_CONSTRAINT, made, 0, "i"))


def _index(facts: Facts, table: Table, index: Any, numbers: Mapping[int, int], rows: Rows) -> None:
    oid = oids.relation(index.id)
    parts = [table.by_id(p.column) for p in index.columns]
    include = tuple(table.by_id(i) for i in index.include)
    options = [int(p.descending) | (2 if p.nulls_first else 0) for p in index.columns]
    _index_rows(
        facts,
        table,
        oid,
        index.name,
        parts,
        include,
        numbers,
        rows,
        unique=index.unique,
        primary=index.primary,
        options=options,
        definition=definitions.index(table, index),
        short=definitions.index(table, index, ""),
    )
    if not index.constraint:
        return
    made = oids.key_constraint(index.id)
    rows["pg_constraint"].append(
        {
            **_CONSTRAINT,
            "oid": made,
            "conname": index.name,
            "contype": "p" if index.primary else "u",
            "conindid": oid,
            "conrelid": oids.relation(table.id),
            "conkey": [numbers[c.id] for c in parts],
            "_def": definitions.unique(table, index),
        }
    )
    rows["pg_depend"].append(_depends(oids.PG_CLASS, oid, oids.PG_CONSTRAINT, made, 0, "i"))


def _index_rows(
    facts: Facts,
    table: Table,
    oid: int,
    name: str,
    parts: list[Column],
    include: tuple[Column, ...],
    numbers: Mapping[int, int],
    rows: Rows,
    *,
    unique: bool,
    primary: bool,
    options: list[int],
    definition: str,
    short: str,
) -> None:
    every = [*parts, *include]
    kinds = [types.by_name(c.type) for c in every]
    rows["pg_class"].append(_class(oid, name, "i", relam=_BTREE, relnatts=len(every)))
    for number, (column, (kind, typmod)) in enumerate(zip(every, kinds, strict=True), 1):
        rows["pg_attribute"].append(
            {
                **_ATTRIBUTE,
                **facts.of(kind.oid),
                "attrelid": oid,
                "attname": column.name,
                "attnum": number,
                "atttypmod": typmod,
            }
        )
    keys = kinds[: len(parts)]
    rows["pg_index"].append(
        {
            "indexrelid": oid,
            "indrelid": oids.relation(table.id),
            "indnatts": len(every),
            "indnkeyatts": len(parts),
            "indisunique": unique,
            "indnullsnotdistinct": False,
            "indisprimary": primary,
            "indisexclusion": False,
            "indimmediate": True,
            "indisclustered": False,
            "indisvalid": True,
            "indcheckxmin": False,
            "indisready": True,
            "indislive": True,
            "indisreplident": False,
            "indkey": [numbers[c.id] for c in every],
            "indcollation": [facts.collation(k.oid) for k, _ in keys],
            "indclass": [facts.opclass(k.oid) for k, _ in keys],
            "indoption": options,
            "_def": definition,
            "_short": short,
            "_columns": [quoted(c.name) for c in every],
        }
    )


def _foreign_key(
    contents: Contents, table: Table, key: Any, numbers: Mapping[int, int], rows: Rows
) -> None:
    other = contents.relations[key.table]
    if not isinstance(other, Table):
        return
    theirs = attnums(other)
    index, _ = _referenced(other, key.referenced)
    made = oids.constraint(table.id, key.name)
    rows["pg_constraint"].append(
        {
            **_CONSTRAINT,
            "oid": made,
            "conname": key.name,
            "contype": "f",
            "condeferrable": key.deferrable,
            "condeferred": key.deferred,
            "conrelid": oids.relation(table.id),
            "confrelid": oids.relation(other.id),
            "conindid": index,
            "confupdtype": definitions.ACTION_LETTERS[key.on_update],
            "confdeltype": definitions.ACTION_LETTERS[key.on_delete],
            "confmatchtype": "s",
            "conkey": [numbers[c] for c in key.columns],
            "confkey": [theirs[c] for c in key.referenced],
            "_def": definitions.foreign_key(table, key, other),
        }
    )
    rows["pg_depend"].append(_depends(oids.PG_CONSTRAINT, made, oids.PG_CLASS, index, 0, "n"))


def _referenced(table: Table, wanted: tuple[int, ...]) -> tuple[int, int]:
    """The index behind a foreign key and its constraint."""
    if tuple(sorted(c.id for c in table.key_columns)) == tuple(sorted(wanted)):
        return oids.primary_index(table.id), oids.key_constraint(table.id)
    for index in table.indexes:
        if index.unique and sorted(index.column_ids) == sorted(wanted):
            return oids.relation(index.id), oids.key_constraint(index.id)
    return 0, 0


# -- views and sequences


def _view(facts: Facts, view: View, rows: Rows) -> None:
    oid = oids.relation(view.id)
    text = view.sql.strip().rstrip(";") + ";"
    rows["pg_class"].append(
        _class(
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
                **_ATTRIBUTE,
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
    rows["pg_depend"].append(_depends(oids.PG_REWRITE, rule, oids.PG_CLASS, oid, 0, "i"))
    for id, used in view.uses:
        for part in used or (0,):
            rows["pg_depend"].append(
                _depends(oids.PG_REWRITE, rule, oids.PG_CLASS, oids.relation(id), part, "n")
            )


def _sequence(contents: Contents, one: Sequence, rows: Rows) -> None:
    oid = oids.relation(one.id)
    rows["pg_class"].append(_class(oid, one.name, "S", relnatts=3, reltuples=1.0, relpages=1))
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
            _depends(
                oids.PG_CLASS,
                oid,
                oids.PG_CLASS,
                oids.relation(table.id),
                number,
                "i" if identity else "a",
            )
        )

"""Indexes and constraints → rows of pg_index, pg_constraint, pg_attribute and pg_depend. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlproxy.pg import oids as types
from sqlproxy.pgcatalog import definitions, oids
from sqlproxy.pgcatalog.contents import Contents
from sqlproxy.pgcatalog.definitions import quoted
from sqlproxy.pgcatalog.row_bases import (
    ATTRIBUTE,
    BTREE,
    CONSTRAINT,
    Facts,
    Rows,
    attnums,
    class_row,
    depends,
)
from sqlproxy.rows.schema import PUBLIC, Column, ForeignKey, Index, Table


def primary_key_name(table: Table) -> str:
    return table.primary_key_name or f"{table.name}_pkey"


def key_rows(
    facts: Facts, table: Table, shown: tuple[Column, ...], numbers: Mapping[int, int], rows: Rows
) -> None:
    names = ("key",) if table.plain else table.primary_key
    by_name = {c.name: c for c in shown}
    parts = [by_name[n] for n in names]
    name, oid = primary_key_name(table), oids.primary_index(table.id)
    plain = definitions.listed(names)
    begins = f"CREATE UNIQUE INDEX {quoted(name)} ON "
    ends = f"{quoted(table.name)} USING btree ({plain})"
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
        definition=f"{begins}public.{ends}",
        short=begins + ends,
    )
    made = oids.key_constraint(table.id)
    rows["pg_constraint"].append(
        {
            **CONSTRAINT,
            "oid": made,
            "conname": name,
            "contype": "p",
            "conindid": oid,
            "conrelid": oids.relation(table.id),
            "conkey": [numbers[c.id] for c in parts],
            "_def": f"PRIMARY KEY ({plain})",
        }
    )
    rows["pg_depend"].append(depends(oids.PG_CLASS, oid, oids.PG_CONSTRAINT, made, 0, "i"))


def index_entry(
    facts: Facts, table: Table, index: Index, numbers: Mapping[int, int], rows: Rows
) -> None:
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
        predicate=definitions.predicate(index) if index.where else None,
        immediate=not index.deferrable,
    )
    if not index.constraint:
        return
    made = oids.key_constraint(index.id)
    rows["pg_constraint"].append(
        {
            **CONSTRAINT,
            "oid": made,
            "conname": index.name,
            "contype": "p" if index.primary else "u",
            "condeferrable": index.deferrable,
            "condeferred": index.deferred,
            "conindid": oid,
            "conrelid": oids.relation(table.id),
            "conkey": [numbers[c.id] for c in parts],
            "_def": definitions.unique(table, index),
        }
    )
    rows["pg_depend"].append(depends(oids.PG_CLASS, oid, oids.PG_CONSTRAINT, made, 0, "i"))


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
    predicate: str | None = None,
    immediate: bool = True,
) -> None:
    every = [*parts, *include]
    kinds = [types.by_name(c.type) for c in every]
    rows["pg_class"].append(class_row(oid, name, "i", relam=BTREE, relnatts=len(every)))
    for number, (column, (kind, typmod)) in enumerate(zip(every, kinds, strict=True), 1):
        rows["pg_attribute"].append(
            {
                **ATTRIBUTE,
                **facts.of(kind.oid),
                "attrelid": oid,
                "attname": _title(column),
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
            "indimmediate": immediate,
            "indisclustered": False,
            "indisvalid": True,
            "indcheckxmin": False,
            "indisready": True,
            "indislive": True,
            "indisreplident": False,
            "indkey": [0 if c.derived else numbers[c.id] for c in every],
            "indexprs": ", ".join(c.title for c in parts if c.derived) or None,
            "indcollation": [facts.collation(k.oid) for k, _ in keys],
            "indclass": [facts.opclass(k.oid) for k, _ in keys],
            "indoption": options,
            "indpred": predicate,
            "_def": definition,
            "_short": short,
            "_columns": [definitions.index_column(c) for c in every],
        }
    )


def _title(column: Column) -> str:
    """What PostgreSQL calls it in the index."""
    if not column.derived:
        return column.name
    call = re.match(r"([a-z_]\w*)\(", column.title)
    return call[1] if call is not None else "expr"


def reference_rows(
    contents: Contents, table: Table, key: ForeignKey, numbers: Mapping[int, int], rows: Rows
) -> None:
    other = contents.relations[key.table]
    if not isinstance(other, Table):
        return
    theirs = attnums(other)
    index, _ = _referenced(other, key.referenced)
    made = oids.constraint(table.id, key.name)
    rows["pg_constraint"].append(
        {
            **CONSTRAINT,
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
            "convalidated": key.state == PUBLIC,
            "_def": definitions.foreign_key(table, key, other) + definitions.validity(key.state),
        }
    )
    rows["pg_depend"].append(depends(oids.PG_CONSTRAINT, made, oids.PG_CLASS, index, 0, "n"))


def _referenced(table: Table, wanted: tuple[int, ...]) -> tuple[int, int]:
    """The index that a foreign key and its constraint use."""
    if tuple(sorted(c.id for c in table.key_columns)) == tuple(sorted(wanted)):
        return oids.primary_index(table.id), oids.key_constraint(table.id)
    for index in table.indexes:
        whole = index.immediate and not index.where
        if whole and sorted(index.column_ids) == sorted(wanted):
            return oids.relation(index.id), oids.key_constraint(index.id)
    return 0, 0

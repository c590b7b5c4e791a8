"""Which OID an object of ours has: always the same one, at every node, without asking anybody.

An OID is 31 bits: 3 bits say what it is, 28 bits which one. Objects with an id from the catalog's
counter (tables, indexes, views, sequences) have it in their OID; what has only a name is hashed.

    16384 + id            a table, index, view or sequence (pg_class)
    1 << 28 | id          its row type (pg_type)
    2 << 28 | id          the array type of that
    3 << 28 | id          the index of a primary key (id: the table's)
    4 << 28 | id          the constraint of a primary key or of a unique index (id: the index's)
    5 << 28 | hash        a check or a foreign key (table id, name)
    6 << 28 | hash        a default (table id, column id), the rule of a view, a label of an enum
    7 << 28 | hash        a database, a role, a schema (name)

Enums have OIDs among those of row types, above all ids, and their arrays' among those of row types'
arrays (`sqlproxy.values.enums`).

Below 16384 are PostgreSQL's own. Ids above 2^28 (no cluster has made so many tables) wrap around.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

FIRST: Final = 16_384
_BITS: Final = 28
_MASK: Final = (1 << _BITS) - 1
PUBLIC_SCHEMA: Final = 2_200
KVORUM_SCHEMA: Final = 16_383
KVORUM_EXTENSION: Final = 16_382
BOOTSTRAP_ROLE: Final = 10
POSTGRES_DATABASE: Final = 5
PG_CLASS: Final = 1_259
PG_CONSTRAINT: Final = 2_606
PG_REWRITE: Final = 2_618
PG_ATTRDEF: Final = 2_604
PG_NAMESPACE: Final = 2_615
PG_DATABASE: Final = 1_262
PG_EXTENSION: Final = 3_079


def relation(id: int) -> int:
    return FIRST + (id & _MASK)


def row_type(id: int) -> int:
    return 1 << _BITS | (id & _MASK)


def array_type(id: int) -> int:
    return 2 << _BITS | (id & _MASK)


def primary_index(table: int) -> int:
    return 3 << _BITS | (table & _MASK)


def key_constraint(index: int) -> int:
    """Of a unique index; of a primary key: the table's id."""
    return 4 << _BITS | (index & _MASK)


def constraint(table: int, name: str) -> int:
    return 5 << _BITS | (crc32(f"{table}.{name}".encode()) & _MASK)


def default(table: int, column: int) -> int:
    return 6 << _BITS | (crc32(f"{table}.{column}".encode()) & _MASK)


def label(enum: int, position: int) -> int:
    """Of pg_enum."""
    return 6 << _BITS | (crc32(f"label {enum}.{position}".encode()) & _MASK)


def database(name: str) -> int:
    if name == "postgres":
        return POSTGRES_DATABASE
    return 7 << _BITS | (crc32(f"database {name}".encode()) & _MASK)


def schema(name: str) -> int:
    """Of users'; it is another one in each database."""
    if name == "public":
        return PUBLIC_SCHEMA
    return 7 << _BITS | (crc32(f"schema {name}".encode()) & _MASK)


def role(name: str, *, first: bool = False) -> int:
    return BOOTSTRAP_ROLE if first else 7 << _BITS | (crc32(f"role {name}".encode()) & _MASK)

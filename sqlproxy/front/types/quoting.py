"""Names and texts as they are written in SQL: quote_ident, quote_literal, and PostgreSQL's words
that are no names.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from sqlproxy.rows.naming import PUBLIC, InSchema, named
from sqlproxy.values.words import words

_WORDS: Final = re.compile(r"[a-z_][a-z0-9_$]*")
_RESERVED: Final = words(
    """
    all analyse analyze and any array as asc asymmetric authorization between bigint binary bit
    boolean both case cast char character check coalesce collate collation column concurrently
    constraint create cross current_catalog current_date current_role current_schema
    current_time current_timestamp current_user dec decimal default deferrable desc distinct do
    else end except exists extract false fetch float for foreign freeze from full grant greatest
    group grouping having ilike in initially inner inout int integer intersect interval into is
    isnull join lateral leading least left like limit localtime localtimestamp national natural
    nchar none normalize not notnull null nullif numeric offset on only or order out outer
    overlaps overlay placing position precision primary real references returning right row
    select session_user setof similar smallint some substring symmetric table tablesample then
    time timestamp to trailing treat trim true union unique user using values varchar variadic
    verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest
    xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
    """
)


_RELATION_CHARS_MAX: Final = 512  # of two names, quoted


def quote_ident(value: str) -> str:
    """Quoted unless it is a plain name that is no reserved word."""
    if _WORDS.fullmatch(value) and value not in _RESERVED:
        return value
    return '"' + value.replace('"', '""') + '"'


def read_relation(text: str) -> str:
    """A relation's name as regclass reads it (`sqlproxy.rows.naming.named`). A name is 63 bytes
    long at most, so nothing of that name is found by what is cut off.
    """
    return _read_relation(text[:_RELATION_CHARS_MAX])


@lru_cache(maxsize=1_024)
def _read_relation(text: str) -> str:
    parts = re.findall(r'"(?:[^"]|"")*"|[^."]+', text.strip())
    found = [
        word[1:-1].replace('""', '"') if word.startswith('"') else word.lower() for word in parts
    ]
    schema = found[-2] if len(found) > 1 and found[-2] != "pg_catalog" else PUBLIC
    return named(schema, found[-1] if found else "")


def held_relation(text: str) -> str:
    """A relation's name as a regclass holds it here, and as it is shown."""
    return written_relation(read_relation(text))


def written_relation(name: str) -> str:
    """What `read_relation` reads as this name."""
    return (
        f"{quote_ident(name.schema)}.{quote_ident(str(name))}"
        if isinstance(name, InSchema)
        else quote_ident(name)
    )


def quote_literal(value: str) -> str:
    quoted = "'" + value.replace("'", "''") + "'"
    return "E" + quoted.replace("\\", "\\\\") if "\\" in value else quoted


def quote_nullable(value: str | None) -> str:
    return "NULL" if value is None else quote_literal(value)

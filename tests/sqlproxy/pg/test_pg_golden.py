"""Every literal of inputs.json against what PostgreSQL 15 made of it (golden.json, recorded)."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from sqlproxy.pg import binary, oids, text, zones
from sqlproxy.pg.style import Style
from sqlproxy.values.errors import SqlError
from tests.kit.each import each

HERE = pathlib.Path(__file__).parent
GOLDEN: dict[str, Any] = json.loads((HERE / "golden.json").read_text())
LONG = 4_000  # longer answers are recorded by their length

# Where we differ and mean to: each with the SQLSTATE that ours has.
YEARS = "years outside 1 to 9999 are not kept"
DIFFERENT: dict[tuple[str, str], tuple[str, str]] = {
    ("date", "Jan 8 99 BC"): ("22008", YEARS),
    ("date", "2024-02-29 BC"): ("22008", YEARS),
    ("date", "10000-01-01"): ("22008", YEARS),
    ("timestamp", "2024-02-29 BC"): ("22008", YEARS),
    ("timestamp", "2024-02-29 10:00 BC"): ("22008", YEARS),
    ("timestamp", "10000-01-01"): ("22008", YEARS),
    ("date", "29 2 2024"): ("22007", "day, month and year by position, without marks"),
    ("date", "2024--02-29"): ("22007", "doubled marks"),
    ("date", "J2451187"): ("22007", "Julian days"),
    ("timestamp", "2024-02-29_10:00"): ("22007", "an underscore between date and time"),
    ("time", "23:59:59.9999999"): ("0A000", "24:00:00 is no time here"),
    ("time", "23:59:60"): ("0A000", "24:00:00 is no time here"),
    ("int4[]", "[0:1]={1,2}"): ("0A000", "subscripts begin at 1"),
    ("text[]", "[2:3]={a,b}"): ("0A000", "subscripts begin at 1"),
}
# Moments that a zone moves out of the years that we keep.
MOVED_OUT = {
    ("America/New_York", "0001-01-01 00:00:00+00"),
    ("Asia/Kolkata", "9999-12-31 23:59:59+00"),
    ("Europe/Paris", "9999-12-31 23:59:59+00"),
}


def ours(name: str, given: str, zone: str) -> dict[str, str]:
    """The same record as record.py makes of PostgreSQL's answer."""
    oid = oids.by_name(name)[0].oid
    style = Style(zones.shown(zone))
    try:
        value = text.reader(oid, style)(given)
        shown = text.writer(oid, style)(value)
        raw = binary.writer(oid)(value)
    except SqlError as error:
        return {"sqlstate": error.sqlstate, "message": error.message, "hint": error.hint}
    return {
        "text": shown if len(shown.encode()) <= LONG else f"{len(shown.encode())} characters",
        "binary": raw.hex() if len(raw) <= LONG else f"{len(raw)} bytes",
    }


@pytest.mark.parametrize("name", sorted({record["type"] for record in GOLDEN["values"]}))
def test_literals_mean_what_they_mean_in_postgresql(name: str) -> None:
    """A literal had another value, text, binary form, SQLSTATE or message than in PostgreSQL 15."""
    wrong = []
    for record in GOLDEN["values"]:
        given, zone = record["in"], record.get("zone", "UTC")
        if record["type"] != name or (zone, given) in MOVED_OUT:
            continue
        found = ours(name, given, zone)
        if (name, given) in DIFFERENT:
            assert found.get("sqlstate") == DIFFERENT[name, given][0], (given, found)
            continue
        wanted = {
            key: record[key]
            for key in ("text", "binary", "sqlstate", "message", "hint")
            if key in record
        }
        if found != wanted:
            wrong.append((given, zone, wanted, found))
    assert wrong == []


@each(
    "record",
    [r for r in GOLDEN["values"] if "binary" in r and "bytes" not in r["binary"]],
    ids=lambda r: f"{r['type']}:{r['in']}"[:60],
)
def test_postgresqls_binary_is_read_and_written_again(record: dict[str, str]) -> None:
    """Bytes that PostgreSQL sends would be refused, or come back as others."""
    oid = oids.by_name(record["type"])[0].oid
    raw = bytes.fromhex(record["binary"])
    if refused_in_binary(record):
        with pytest.raises(SqlError) as caught:
            binary.reader(oid)(raw)
        assert caught.value.sqlstate in ("0A000", "22008")
        return
    value = binary.reader(oid)(raw)
    assert binary.writer(oid)(value) == raw


def refused_in_binary(record: dict[str, str]) -> bool:
    """Of those that differ, the ones whose value we have no room for, in whatever format."""
    reason = DIFFERENT.get((record["type"], record["in"]), ("", ""))[1]
    return reason in (YEARS, "24:00:00 is no time here", "subscripts begin at 1")


@each("row", GOLDEN["types"], ids=lambda row: row[0])
def test_types_have_postgresqls_oids_typmods_and_names(row: list[Any]) -> None:
    """RowDescription and format_type would tell clients another type than PostgreSQL's."""
    name, oid, typmod, shown, bare, typname, size, array, category, element = row
    of, ours_typmod = oids.by_name("char(1)" if name == "char" else name)
    assert (of.oid, ours_typmod) == (oid, typmod)
    assert oids.format_type(oid, typmod) == shown
    assert oids.format_type(oid, None) == bare
    assert (of.catalog_name, of.size, of.array_oid, of.category) == (
        typname,
        size,
        array,
        category,
    )
    # PostgreSQL's `name` can be subscripted, which is no array to a client
    assert of.element == (0 if name == "name" else element)
    assert oids.by_name(oids.canonical(oid, typmod)) == (of, typmod)


def test_the_recording_is_of_postgresql_15() -> None:
    """The goldens came from another version than the one that we promise to be like."""
    assert GOLDEN["version"].startswith("15.")

"""What clients ask about a database, against what PostgreSQL 15 answered to the same
(data/answers.json.xz, recorded by record.py). Where an answer differs, the difference is one of
those listed here.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from sqlproxy.front.syntax.syntax import parse
from sqlproxy.values.errors import SqlError
from tests.sqlproxy.pgcatalog.asking import Ours, filled

RECORDED: Final = json.loads(
    lzma.decompress((Path(__file__).with_name("data") / "answers.json.xz").read_bytes())
)
# What Kvorum has not, or has besides; the columns' names and types are as PostgreSQL's all the
# same.
DIFFERENT: Final = (
    (r"_size\(", "sizes are those of partitions"),
    (r"version\(", "the version names Kvorum"),
    (
        r"pg_namespace|schemata|information_schema\.tables|pg_views",
        "the schema kvorum is there too",
    ),
    (r"pg_database", "there are no template databases"),
    (r"pg_(available_)?extension", "there is no plpgsql, but what Kvorum brings along"),
    (r"is_updatable|information_schema\.views", "views are read only"),
    (r"TOAST|pg_toast", "nothing is toasted"),
    (r"pg_settings|current_setting", "settings are those of the session"),
    (r"pg_stat_|pg_locks|pg_cursors", "there are no such counters, nor the driver's cursor"),
    (r"pg_language|pg_tablespace", "nobody has been told what they are"),
    (r"string_agg\(pg_catalog\.format_type", "in no order that was asked for"),
    (r"WITH RECURSIVE typeinfo_tree", "rows of the same depth come in any order"),
    (r"indkey::int2\[\]", "arrays begin at 1"),
    (r"array_agg\(|::regclass", "in no order that was asked for"),
    (r"pg_get_function_arg_default", "there are no functions of users"),
)


@pytest.fixture(scope="module")
def ours() -> Iterator[Ours]:
    made = Ours()
    yield made
    made.close()


def outcome(ours: Ours, text: str, values: list[str | None]) -> dict[str, Any]:
    try:
        return ours.ask(text, values)
    except SqlError as error:
        return {"error": error.sqlstate, "message": error.message}


def same(text: str, theirs: dict[str, Any], mine: dict[str, Any]) -> bool:
    """Rows that nobody asked to be in an order may be in any."""
    if theirs == mine or "rows" not in theirs or "rows" not in mine:
        return theirs == mine
    parsed = parse(text)
    assert parsed is not None
    if theirs["fields"] != mine["fields"] or "sortClause" in parsed.body:
        return False
    return sorted(map(str, theirs["rows"])) == sorted(map(str, mine["rows"]))


@pytest.mark.few(2)
@pytest.mark.parametrize("source", sorted({entry[0] for entry in RECORDED}))
def test_clients_are_answered_as_by_postgresql(ours: Ours, source: str) -> None:
    """A client would not recognise its tables, or a driver would decode a column as another
    type.
    """
    wrong, differs = [], 0
    entries = [entry for entry in RECORDED if entry[0] == source]
    for _, text, values, theirs in entries:
        mine = outcome(ours, text, values)
        if same(filled(text, ours.oids), theirs, mine):
            continue
        differs += 1
        reasons = [why for pattern, why in DIFFERENT if re.search(pattern, text)]
        if not reasons or theirs.get("fields") != mine.get("fields"):
            wrong.append((text, theirs, mine))
    assert not wrong, f"{len(wrong)} of {len(entries)}, the first: {wrong[0]}"
    assert differs <= len(entries) // 5 + 1


@pytest.mark.slow
def test_most_statements_agree_in_every_value(ours: Ours) -> None:
    """The list of differences would hide that the catalog went wrong as a whole."""
    agree = sum(
        same(filled(text, ours.oids), theirs, outcome(ours, text, values))
        for _, text, values, theirs in RECORDED
    )
    assert len(RECORDED) >= 500
    assert agree >= 0.91 * len(RECORDED), f"{agree} of {len(RECORDED)}"

"""PostgreSQL's own list of keywords, each as a name wherever its grammar takes it: what we read
beside that grammar must not take them for something else.
"""

from __future__ import annotations

from typing import Any, Final

import postgast
import pytest

from sqlproxy.front import front
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.syntax.syntax import parse
from sqlproxy.pgcatalog.static import load
from sqlproxy.values.errors import SqlError
from tests.sqlproxy.front.names import FakeNames

KINDS: Final = {row[0]: row[1] for row in load().feeds["pg_get_keywords"]["rows"]}
WORDS: Final = sorted(KINDS)
COLUMNS: Final = sorted(word for word, kind in KINDS.items() if kind in ("U", "C"))
TYPES: Final = ("int", "varchar(20)", "numeric(10,2)", "timestamp(3)", "text[]", "int not null")
PLACES: Final = (
    "create table {} (a int)",
    "create index {} on t (a)",
    "create sequence {}",
    "create view {} as select 1 as a",
    "create type {} as enum ('a')",
    "alter table t add column {} varchar(9)",
    "alter table t add constraint {} unique (a)",
    "select x.b from t as x ({})",
    "select {}.a from t as {}",
    "select {}.a from t {}",
    "select a as {} from t",
    "select a {} from t",
    "with {} as (select 1 as a) select a from {}",
    "savepoint {}",
    "prepare {} as select 1",
    "declare {} cursor for select a from t",
)


def taken(text: str) -> bool:
    """Whether PostgreSQL's grammar takes it."""
    try:
        postgast.parse(text)
    except postgast.PgQueryError:
        return False
    return True


def bound(text: str) -> Any:
    return front.bind(parse(text), FakeNames())


def test_the_list_is_whole() -> None:
    """Nothing would be asked below."""
    assert len(WORDS) > 400
    assert {"key", "index", "select", "value", "between", "system", "of"} <= set(WORDS)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", TYPES)
def test_every_keyword_names_a_column_of_any_type(kind: str) -> None:
    """`key varchar(20)` was MySQL's KEY over the column "20"."""
    for word in COLUMNS:
        for text in (
            f"create table t ({word} {kind})",
            f"create table t (id int, {word} {kind})",
            f"create table t ({word} {kind}, id int primary key)",
        ):
            if taken(text):
                made = bound(text)
                assert isinstance(made, d.CreateTable)
                assert word in [column.name for column in made.columns], text
                assert all(not key.name for key in made.keys), text


@pytest.mark.few(6)
@pytest.mark.parametrize("place", PLACES)
def test_every_keyword_is_a_name_where_postgresql_takes_it(place: str) -> None:
    """A word of Kvorum's own would be found in the middle of a statement."""
    wrong = []
    for word in WORDS:
        text = place.replace("{}", word)
        if not taken(text):
            continue
        try:
            bound(text)
        except SqlError as error:
            wrong.append((text, error.sqlstate, error.message))
    assert wrong == []

"""Nothing is accepted and ignored: of every statement in clauses.sql that is bound, each part of
its tree has been looked at. A part of a new statement that nobody reads shows up by itself.

What is listed decides nothing where it is ignored, for the reason that stands there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sqlproxy.front import front
from sqlproxy.front.syntax.syntax import whole
from sqlproxy.values.errors import SqlError
from tests.sqlproxy.front.names import FakeNames

STATEMENTS = Path(__file__).with_name("clauses.sql").read_text(encoding="utf-8").splitlines()

FILLED = (
    *("is_local", "is_enforced", "initially_valid", "defaction", "jumble_args", "row_format"),
    *("list_start", "list_end", "argnumber"),
)
"""The parser fills them in itself."""
HARMLESS = {
    "conname": "of NOT NULL: PostgreSQL 15 forgets it, too",
    "Integer": "the size of an array: PostgreSQL ignores it, too",
    "concurrent": "definitions never keep writers waiting",
    "behavior": "of REVOKE: nobody grants what was granted to him",
    "missing_ok": "of a sequence that is there",
    "relationType": "names of columns and constraints are found by the relation",
    "arg": "of hints to pages, and of VACUUM: there is nothing to do",
    "opclass": "of ON CONFLICT: a type has one order",
    "query": "of PREPARE: it is bound when it is executed",
    "contype": "of a new identity: the statement says it",
    "kind": "of grouping sets: who runs them reads the tree (sqlproxy/analytic/pieces.py)",
    "groupDistinct": "the same",
    "join_using_alias": "who names it is refused",
    "is_rowsfrom": "one function is a list of one",
    "funcformat": "how a call is shown",
    "objfuncargs": "of DROP FUNCTION: objargs once more, with names and what is returned",
    "A_Const": "of SET (a, b) = ROW (…): each column has a copy of all values",
}
USUAL = {
    "behavior": "DROP_RESTRICT",
    "op": "SETOP_NONE",
    "inh": True,
    "limitOption": "LIMIT_OPTION_DEFAULT",
    "oncommit": "ONCOMMIT_NOOP",
    "onCommit": "ONCOMMIT_NOOP",
    "ordering": "SORTBY_DEFAULT",
    "nulls_ordering": "SORTBY_NULLS_DEFAULT",
    "override": "OVERRIDING_NOT_SET",
    "fk_matchtype": "s",
    "fk_upd_action": "a",
    "fk_del_action": "a",
    "typemod": -1,
    "relpersistence": "p",
    "typmod": -1,
    "coercionform": "COERCE_EXPLICIT_CALL",
}


class Node(dict[str, Any]):
    """Knows which of its parts were looked at; who takes all of them looks at all."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__({key: watched(value) for key, value in given.items()})
        self.seen: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.seen.add(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:
        self.seen.update(super().keys())
        return super().__iter__()

    def keys(self) -> Any:
        self.seen.update(super().keys())
        return super().keys()

    def items(self) -> Any:
        self.seen.update(super().keys())
        return super().items()


def watched(value: Any) -> Any:
    if isinstance(value, dict):
        return Node(value)
    return [watched(one) for one in value] if isinstance(value, list) else value


def ignored(value: Any) -> Iterator[tuple[str, Any]]:
    """Parts that nobody looked at, outermost first."""
    if isinstance(value, Node):
        for key, inner in dict.items(value):
            if key in value.seen:
                yield from ignored(inner)
            else:
                yield key, inner
    elif isinstance(value, list):
        for one in value:
            yield from ignored(one)


@pytest.mark.parametrize("text", STATEMENTS)
def test_p4_nothing_is_accepted_and_ignored(text: str) -> None:
    """CREATE VIEW … WITH (security_invoker) made a view that reads with its owner's rights."""
    parsed = whole(text)
    assert parsed is not None
    tree = Node(parsed.body)
    try:
        front.bind(replace(parsed, body=tree), FakeNames())
    except SqlError:
        return
    for key, value in ignored(tree):
        if key.endswith("location") or key in FILLED or key in HARMLESS:
            continue
        assert key in USUAL, f"{key} = {value} is ignored"
        assert value == USUAL[key], f"{key} = {value} is ignored"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("create table z (a int) using nope", "42704"),
        ("create table z (a int) tablespace nope", "42704"),
        ("create table z (a int) on commit drop", "42P16"),
        ("create table z (a int primary key using index tablespace nope)", "42704"),
        ("create table z (a int unique with (nosuch = 1))", "22023"),
        ("create table z (a int storage plain)", "0A000"),
        ("create unlogged table z as select 1 as a", "0A000"),
        ("create table z with (nosuch = 3) as select 1 as a", "22023"),
        ("create index on t (b nosuch_ops)", "42704"),
        ("create index on t (a) with (nosuch = 1)", "22023"),
        ("create view v with (security_invoker) as select a from t", "0A000"),
        ("create view v with (nosuch) as select a from t", "22023"),
        ("vacuum (nosuch) t", "42601"),
        ("analyze (full) t", "42601"),
        ("grant select on t to bob granted by ann", "0A000"),
    ],
)
def test_p4_clauses_that_were_ignored(text: str, state: str) -> None:
    """What is wrong, or would mean something, is refused as by PostgreSQL, or by its name."""
    parsed = whole(text)
    with pytest.raises(SqlError) as caught:
        front.bind(parsed, FakeNames())
    assert caught.value.sqlstate == state


def test_p4_a_table_of_a_query_is_placed() -> None:
    """Its options were forgotten: it got the database's number of replicas."""
    made: Any = front.bind(
        whole("create table z with (replicas = 5) as select 1 as a"), FakeNames()
    )
    assert made.options == {"replicas": 5}
    front.bind(whole("create table z (a int) using heap tablespace pg_default"), FakeNames())
    front.bind(whole("create view v with (security_barrier = false) as select 1"), FakeNames())

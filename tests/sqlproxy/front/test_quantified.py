"""Value op ANY | ALL (array): what it costs, in look-ups, and what it answers, against a walk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest

from sqlproxy.analytic.selects import Selects
from sqlproxy.front import front
from sqlproxy.front.bound.env import Env
from sqlproxy.front.closures import compiling
from sqlproxy.front.closures.quantified import among, answering
from sqlproxy.front.syntax.syntax import parse
from sqlproxy.front.types.comparing import PLAIN, key_of
from sqlproxy.pg import oids
from tests.sqlproxy.front.names import FakeNames

ARRAYS = ([], [None], [1], [1, None], [1, 1], [1, 2], [3, 1, 2, None], [2, 2, None])


def _walked(operator: str, every: bool, value: Any, elements: Sequence[Any]) -> bool | None:
    """As PostgreSQL does it: one after the other."""
    found = [
        None if value is None or one is None else PLAIN[operator](value, one) for one in elements
    ]
    if (not every) in found:
        return not every
    return None if None in found else every


@pytest.mark.parametrize("operator", sorted(PLAIN))
@pytest.mark.parametrize("every", [False, True])
def test_an_answer_is_that_of_a_walk(operator: str, every: bool) -> None:
    """A short cut (a set, the smallest, the largest) forgets a NULL, an empty array or a twin."""
    for elements in ARRAYS:
        answer = answering(operator, every, None, elements)
        for value in (None, 0, 1, 2, 3, 4):
            assert answer(value) is _walked(operator, every, value, elements), (value, elements)


@pytest.mark.parametrize("operator", sorted(PLAIN))
@pytest.mark.parametrize("every", [False, True])
def test_a_row_costs_one_key_whatever_the_array_has(operator: str, every: bool) -> None:
    """Each row looks at each element again: 2,500 values and 30,000 rows took half a minute."""
    keys = 0

    def key(value: int) -> int:
        nonlocal keys
        keys += 1
        return value

    answer = answering(operator, every, key, range(1_000))
    assert keys == 1_000
    for row in range(500):
        answer(row)
    assert keys == 1_500


@pytest.mark.parametrize(
    "condition",
    [
        "a = any ($1::int4[])",
        "a <> all ($1::int8[]::numeric[])",
        "a not in ($2, 2, 3)",
        "c < all ($1::int4[]::numeric[])",
        "b = any ($3)",
        "(a, b) in (($2, 'x')" + ", (2, 'y')" * 9 + ")",
        "a = $2 or " + " or ".join(f"a = {n}" for n in range(2, 12)),
    ],
)
def test_an_array_is_looked_at_once_in_a_run(condition: str) -> None:
    """Parameters and casts of them are read anew for each row; or a run sees another one's."""
    bound = front.bind(parse(f"select 1 from t where {condition}"), FakeNames(), (1007, 23, 1009))
    fn = compiling.compile(bound.where).fn
    looked = 0

    class Params(list[Any]):
        def __getitem__(self, place: Any) -> Any:
            nonlocal looked
            looked += 1
            return super().__getitem__(place)

    row = (1, "x", None, None, None)
    env = Env(params=Params([[1, 2, 3], 1, ["x", "y"]]))
    first = [fn(row, env) for _ in range(100)]
    assert looked == 1
    other = [fn(row, Env(params=[[7], 8, ["z"]])) for _ in range(2)]
    assert "c <" in condition or first[0] is not other[0]


def test_arrays_and_documents_may_be_in_a_set() -> None:
    """A key of jsonb or of an array cannot be hashed: IN of such values is an internal error."""
    key = key_of(oids.JSONB)
    same = ['{"a": [1, 2.0]}', '{"a":[1.0,2]}']
    assert len(set(map(key, same))) == 1
    assert len({key_of(1007)([1, None]), key_of(1007)([1, None])}) == 1


SETS = (
    [(1, 1)],
    [(1, 1), (1, 2), (2, 1)],
    [(1, None)],
    [(None, 2), (1, 1)],
    [(None, None)],
    [(1, None), (None, 1), (2, 2)],
)


@pytest.mark.parametrize("negated", [False, True])
def test_a_row_is_answered_as_by_a_walk(negated: bool) -> None:
    """A set of rows forgets a part that is NULL, of the row or in the set."""
    for rows in SETS:
        answer = among((None, None), rows, negated)
        for row in product((None, 1, 2, 3), repeat=2):
            equal = [
                False if False in same else None if None in same else True
                for same in (
                    [
                        None if None in pair else pair[0] == pair[1]
                        for pair in zip(row, one, strict=True)
                    ]
                    for one in rows
                )
            ]
            found = True if True in equal else None if None in equal else False
            assert answer(row) is (None if found is None else found is not negated), (row, rows)


def _rows(count: int) -> str:
    return ", ".join(f"({i}, 'x{i}')" for i in range(count))


CHAINS: dict[str, Callable[[int], str]] = {
    "rows": lambda n: f"(a, b) in ({_rows(n)})",
    "no rows": lambda n: f"(a, b) not in ({_rows(n)})",
    "or": lambda n: " or ".join(f"a = {i}" for i in range(n)),
    "and": lambda n: " and ".join(f"a <> {i}" for i in range(n)),
    "or of and": lambda n: " or ".join(f"(a = {i} and b = 'x{i}')" for i in range(n)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_row_costs_the_same_whatever_the_set_has(name: str) -> None:
    """Rows, and chains of OR, are compared one after the other: minutes for thousands of them."""

    def steps(count: int) -> int:
        bound = front.bind(parse(f"select 1 from t where {CHAINS[name](count)}"), FakeNames())
        fn, env = compiling.compile(bound.where).fn, Env()
        fn((1, "y", 1, None, 2), env)
        calls = 0

        def count_call(*args: Any) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(count_call)
        try:
            for n in range(20):
                fn((count + n, "y", count + n, None, 2), env)
        finally:
            sys.setprofile(None)
        return calls

    assert steps(1_000) == steps(50)


@pytest.mark.parametrize("name", CHAINS)
def test_a_set_is_a_table_for_duckdb(name: str) -> None:
    """Each row of a set is a comparison in DuckDB's text, which it makes for each row."""
    text = f"select * from t join u using (a) where {CHAINS[name](1_000)}"
    selects = Selects(Env())
    query = selects.query(front.bind(parse(text), FakeNames()))
    assert len(query.text) < 2_000
    assert max(len(known.item.rows) for known in selects.known.values()) == 1_000


@pytest.mark.parametrize("operator", ["in", "not in", "= any", "<> all"])
def test_rows_of_a_query_are_hashed_by_duckdb(operator: str) -> None:
    """Rows of a query are compared pair by pair; a correlated one, or chance, is run only once."""
    for query, hashed in (
        ("select a, v from u", True),
        ("values (1, 'x'), (2, 'y')", True),
        ("select a, v from u where u.a > t.a", False),
        ("select a, v from u where random() < 2", False),
    ):
        text = f"select 1 from t where (a, b) {operator} ({query})"
        made = Selects(Env()).query(front.bind(parse(text), FakeNames())).text
        assert ("struct_pack" in made) is hashed

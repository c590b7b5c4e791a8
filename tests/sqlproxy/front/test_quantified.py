"""Value op ANY | ALL (array): what it costs, in look-ups, and what it answers, against a walk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sqlproxy.front import compiling, front
from sqlproxy.front.comparing import PLAIN, key_of
from sqlproxy.front.env import Env
from sqlproxy.front.quantified import answering
from sqlproxy.front.registry import JSONB
from sqlproxy.front.syntax import parse
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
    key = key_of(JSONB)
    same = ['{"a": [1, 2.0]}', '{"a":[1.0,2]}']
    assert len(set(map(key, same))) == 1
    assert len({key_of(1007)([1, None]), key_of(1007)([1, None])}) == 1

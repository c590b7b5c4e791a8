"""Searching long arrays (sqlproxy.front.functions.f_arrays.Same): hashed when they are asked
again."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from sqlproxy.front.functions.f_arrays import Same
from sqlproxy.front.types import comparing
from sqlproxy.pg import oids

LISTS: list[tuple[int, list[Any], list[Any]]] = [
    (oids.INT4, [*range(50), None, 3], [0, 3, 49, 50, None]),
    (oids.TEXT, [f"k{n % 40}" for n in range(80)], ["k1", "k39", "k40", None]),
    (oids.FLOAT8, [*map(float, range(40)), float("nan"), -0.0], [0.0, -0.0, float("nan"), 41.0]),
    (
        oids.NUMERIC,
        [Decimal(n) / 4 for n in range(60)],
        [Decimal("1.50"), Decimal("1.5"), Decimal(99)],
    ),
    (oids.BPCHAR, [f"{n}  " for n in range(40)], ["1", "39 ", "40"]),
    (oids.JSONB, [f'{{"a": [{n}]}}' for n in range(40)], ['{"a": [7]}', '{"a": [7.0]}', "1"]),
]


@pytest.mark.parametrize(("oid", "value", "items"), LISTS, ids=[str(row[0]) for row in LISTS])
def test_a_hashed_array_has_its_elements_at_the_same_places(
    oid: int, value: list[Any], items: list[Any]
) -> None:
    """An element is found elsewhere, or not at all, once the array is hashed."""
    for item in items:
        same, plain = Same(comparing.key_of(oid)), Same(comparing.key_of(oid))
        expected = next((i for i, one in enumerate(value) if plain(one, item)), None)
        assert [same.first(value, item) for _ in range(4)] == [expected] * 4
        assert same.first(list(value), item) == expected, "another array of the same elements"
        assert same.first(value, item, len(value)) is None


def test_a_long_array_is_searched_once() -> None:
    """A constant array is walked for every row of a table: minutes for ten thousand of each."""
    compared = 0

    def key(item: int) -> int:
        nonlocal compared
        compared += 1
        return item

    same, value = Same(key), list(range(1_000))
    assert [same.first(value, item) for item in value] == value
    assert compared < 5 * len(value)

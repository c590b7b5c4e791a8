"""Spans against a filter by brute force: a way may read too much, never too little."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.base.ids import TableId
from sqlproxy.front.bound.exprs import Const, Expr
from sqlproxy.rows import rows as row_codec
from sqlproxy.rows.schema import Column, Index, IndexColumn, Table
from sqlproxy.tables.access import Access, Given, Limit, Ordering, Stretch, choose, like_prefix
from sqlproxy.tables.entries import index_codec
from sqlproxy.tables.spans import Finder, Spans

ROWS = st.tuples(
    st.integers(-3, 3),
    st.one_of(st.none(), st.integers(-2, 2)),
    st.one_of(st.none(), st.text(alphabet="ab\x01é", max_size=3)),
)
FLAGS = st.tuples(st.booleans(), st.booleans())


def table(*indexes: Index) -> Table:
    columns = [Column(0, "a", "int4"), Column(0, "b", "int8"), Column(0, "c", "text")]
    made = Table.declare("default", "t", columns=columns, primary_key=("a",))
    made = replace(made, id=TableId(100), indexes=indexes)
    # the key is (a, c, b) in the index only: columns 2 and 3 are nullable
    return replace(made, columns=tuple(replace(c, nullable=c.name != "a") for c in made.columns))


def const(value: Any) -> Expr:
    return Const(oid=0, value=value)


def value(expr: Expr) -> Any:
    assert isinstance(expr, Const)
    return expr.value


def covered(spans: Spans, key: bytes) -> bool:
    if key in spans.points:
        return True
    return any(s.start <= key and (not s.end or key < s.end) for s in spans.ranges)


@pytest.mark.slow
@settings(max_examples=300)
@given(data=st.data())
def test_a_way_covers_every_row_that_fits(data: st.DataObject) -> None:  # noqa: C901
    """A row that a WHERE lets through and whose key is not read is a wrong answer."""
    columns = [
        IndexColumn(number, descending=down, nulls_first=first)
        for number, (down, first) in ((2, data.draw(FLAGS)), (3, data.draw(FLAGS)))
    ]
    if data.draw(st.booleans()):
        columns.reverse()
    index = Index(TableId(101), "i", tuple(columns), data.draw(st.booleans()))
    t = table(index)
    of = {2: st.integers(-2, 2), 3: st.text(alphabet="ab\x01é", max_size=3)}
    place = {2: 1, 3: 2}
    first, second = columns[0].column, columns[1].column
    conditions: list[Any] = []  # row → bool
    given_: list[Given] = []
    rest = first
    if data.draw(st.booleans()):
        if data.draw(st.booleans()):
            wanted = data.draw(st.lists(st.one_of(st.none(), of[first]), max_size=3))
            given_.append(Given(const(wanted), any=True))
            conditions.append(
                lambda row: row[place[first]] is not None and row[place[first]] in wanted
            )
        else:
            one = data.draw(st.one_of(st.none(), of[first]))
            given_.append(Given(const(one)))
            conditions.append(lambda row: one is not None and row[place[first]] == one)
        rest = second
    low = high = prefix = None
    kind = data.draw(st.sampled_from(["", "range", "prefix"]))
    if kind == "prefix" and rest == 3:
        prefix = data.draw(st.text(alphabet="ab\x01é", min_size=1, max_size=2))
        conditions.append(lambda row: row[2] is not None and row[2].startswith(prefix))
    elif kind == "range":
        for end in data.draw(st.sets(st.sampled_from(["low", "high"]), min_size=1)):
            bound, inclusive = data.draw(st.one_of(st.none(), of[rest])), data.draw(st.booleans())
            limit = Limit((const(bound),), inclusive)

            def fits(
                row: Any, end: str = end, bound: Any = bound, inclusive: bool = inclusive
            ) -> bool:
                seen = row[place[rest]]
                if bound is None or seen is None:
                    return False
                seen, bound = (x.encode() if isinstance(x, str) else x for x in (seen, bound))
                if inclusive and seen == bound:
                    return True
                return bool(seen > bound) if end == "low" else bool(seen < bound)

            conditions.append(fits)
            low, high = (limit, high) if end == "low" else (low, limit)
    access = Access(
        index,
        tuple(c.column for c in columns),
        (Stretch(tuple(given_), low, high, prefix),),
        index.unique,
    )
    spans = Finder(t, access).spans(value)
    assert list(spans.points) == sorted(set(spans.points))
    edges = [edge for span in spans.ranges for edge in (span.start, span.end)]
    assert edges[:-1] == sorted(edges[:-1])
    codec = index_codec(t, index)
    for row in data.draw(st.lists(ROWS, max_size=8)):
        key, _ = codec.entry(row)
        if all(condition(row) for condition in conditions):
            assert covered(spans, key), (row, access, spans)
        elif kind != "prefix" and not access.whole:
            # of these types a way is exact: what it reads in vain is read at every statement
            assert not covered(spans, key), (row, access, spans)


@given(st.integers(-3, 3), st.one_of(st.none(), st.integers(-3, 3), st.just("no number")))
def test_a_point_of_the_primary_key(here: int, wanted: Any) -> None:
    """`key = x` is one key, or none where nothing can be equal."""
    t = table()
    access = Access(None, (1,), (Stretch((Given(const(wanted)),)),), unique=True)
    spans = Finder(t, access).spans(value)
    key = row_codec.encode_key(t, (here,))
    assert covered(spans, key) == (wanted == here)
    assert len(spans.points) == (1 if isinstance(wanted, int) else 0)


def test_too_many_combinations_become_ranges() -> None:
    """Lists that multiply to millions of keys would fill the memory before the first read."""
    index = Index(TableId(101), "i", (IndexColumn(2), IndexColumn(3)), True)
    many = Given(const(list(range(5_000))), any=True)
    texts = Given(const([str(n) for n in range(5_000)]), any=True)
    access = Access(index, (2, 3), (Stretch((many, texts)),), unique=True)
    spans = Finder(table(index), access).spans(value)
    assert not spans.points
    assert len(spans.ranges) == 5_000


def test_like_prefix() -> None:
    """What a pattern begins with, escapes understood."""
    for pattern, begins in (
        ("abc%", "abc"),
        ("abc", "abc"),
        ("%x", ""),
        ("a_c", "a"),
        ("a\\%b%", "a%b"),
        ("\\\\", "\\"),
    ):
        assert like_prefix(pattern) == begins


def test_p8_choice_of_a_way() -> None:
    """A unique key beats an equality, that a range, that everything; order spares a sort."""
    down = Index(TableId(102), "down", (IndexColumn(2, descending=True, nulls_first=True),))
    t = table(down)
    way, is_sorted = choose(t, (), [Ordering(2, descending=True, nulls_first=True)])
    assert way.index is down
    assert is_sorted
    assert not way.reverse
    way, is_sorted = choose(t, (), [Ordering(2)])
    assert way.index is down
    assert is_sorted
    assert way.reverse
    way, is_sorted = choose(t, (), [Ordering(3)])
    assert way.index is None
    assert not is_sorted
    way, is_sorted = choose(t, (), [Ordering(2, descending=True, nulls_first=False)])
    assert not is_sorted, "NULLs of this index are at the other end"

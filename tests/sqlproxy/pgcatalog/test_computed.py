"""What of the system's views is computed by Python, row by row, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from sqlproxy.front.bound.exprs import AnyAll, Call, Cast, Length
from tests.sqlproxy.pgcatalog.asking import Ours

VIEWS: Final = (
    "columns",
    "column_privileges",
    "element_types",
    "table_constraints",
    "key_column_usage",
    "referential_constraints",
)


@pytest.fixture(scope="module")
def ours() -> Iterator[Ours]:
    made = Ours()
    yield made
    made.close()


def rendered(ours: Ours, view: str) -> Any:
    """What DuckDB is asked for a view."""
    kept: list[Any] = []
    found = ours.bound(f"SELECT * FROM information_schema.{view}")
    ours.loop.run_until_complete(ours.answer(found, (), kept))
    (rendering,) = kept
    return rendering


@pytest.mark.parametrize("view", VIEWS)
def test_views_compare_and_cut_without_python(ours: Ours, view: str) -> None:
    """A comparison of "char", or the length of a yes or no, costs a call for each row."""
    made = [what for what, *_ in rendered(ours, view).selects.functions.made]
    assert [one for one in made if isinstance(one, AnyAll | Cast | Length)] == []
    assert [one for one in made if isinstance(one, Call) and one.operator] == []


def test_a_condition_that_cannot_raise_is_computed_once(ours: Ours) -> None:
    """Each column that is shown asks once more whether the user may see it."""
    rendering = rendered(ours, "columns")
    (function,) = (
        function
        for (what, *_), function in rendering.selects.functions.made.items()
        if isinstance(what, Call) and what.proc.source == "pg_has_role_id"
    )
    # in WHERE, and beside the three columns whose functions can raise
    assert rendering.query.text.count(f"{function.name}(") == 4

"""Many cases as one test (tests/kit/each.py)."""

from __future__ import annotations

import inspect

import pytest

from tests.kit.each import each

RAN: list[tuple[int, str]] = []


@each(("number", "word"), [(1, "a"), (2, "b"), (3, "c")])
def test_every_case_is_run(tmp_path_factory: object, number: int, word: str) -> None:
    """A case was left out, or a fixture was lost."""
    assert tmp_path_factory is not None
    RAN.append((number, word))


@each("number", range(3))
async def test_coroutines_are_run_to_their_end(number: int) -> None:
    """A coroutine that nobody awaits passes whatever is in it."""
    assert inspect.iscoroutinefunction(test_coroutines_are_run_to_their_end)
    RAN.append((number, "async"))


def test_all_of_them_were_run() -> None:
    """See above."""
    assert RAN == [(1, "a"), (2, "b"), (3, "c"), (0, "async"), (1, "async"), (2, "async")]


def test_each_case_that_fails_is_named() -> None:
    """The first wrong case hides the others, or nobody knows which one it is."""

    @each("number", range(40), ids=lambda number: f"case {number}")
    def run(number: int) -> None:
        if number % 2:
            with pytest.raises(KeyError):
                pass
        assert number < 10

    with pytest.raises(ExceptionGroup, match="35 of 40 cases") as found:
        run()
    errors = found.value.exceptions
    assert [error.__notes__ for error in errors[:2]] == [["case: case 1"], ["case: case 3"]]
    assert len(errors) == 10
    assert "case 39" in found.value.__notes__[0]

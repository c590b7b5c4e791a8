"""Thousands of small cases as one test.

pytest and xdist take five milliseconds for a test, whatever is in it: a recorded expression takes
less than one. `each` is written like `pytest.mark.parametrize`, and runs all cases in one test; it
fails with an error for each case that failed (the first ten in full), which names the case. Cases
share the fixtures of the test, so it is for those that change nothing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import pytest

_Test = TypeVar("_Test", bound=Callable[..., Any])
_SHOWN_MAX = 10
_Failed = pytest.fail.Exception  # `pytest.raises` met no error: no Exception, that is


def each(
    names: str | tuple[str, ...],
    given: Iterable[Any],
    ids: Iterable[str] | Callable[[Any], str] | None = None,
) -> Callable[[_Test], _Test]:
    """The decorated test, run for every case: `names` are its arguments."""
    arguments = (names,) if isinstance(names, str) else names
    cases = list(given)
    assert cases, f"no cases of {names}"
    called = [ids(case) for case in cases] if callable(ids) else list(ids or map(repr, cases))

    def values(at: int) -> dict[str, Any]:
        found = (cases[at],) if isinstance(names, str) else cases[at]
        return dict(zip(arguments, found, strict=True))

    def decorated(test: _Test) -> _Test:
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def run(**fixtures: Any) -> None:
                wrong = _Wrong(called)
                for at in range(len(cases)):
                    await wrong.of_async(at, test(**fixtures, **values(at)))
                wrong.tell()
        else:

            @functools.wraps(test)
            def run(**fixtures: Any) -> None:
                wrong = _Wrong(called)
                for at in range(len(cases)):
                    wrong.of(at, functools.partial(test, **fixtures, **values(at)))
                wrong.tell()

        signature = inspect.signature(test)
        left = [p for p in signature.parameters.values() if p.name not in arguments]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run  # type: ignore[return-value]

    return decorated


class _Wrong:
    """Errors of the cases that failed."""

    def __init__(self, called: list[str]) -> None:
        self._called = called
        self._errors: list[Exception] = []
        self._more: list[str] = []

    def of(self, at: int, run: Callable[[], object]) -> None:
        try:
            run()
        except (Exception, _Failed) as error:  # noqa: BLE001 - whatever a case raises is its failure
            self._add(at, error)

    async def of_async(self, at: int, run: Awaitable[object]) -> None:
        try:
            await run
        except (Exception, _Failed) as error:  # noqa: BLE001 - whatever a case raises is its failure
            self._add(at, error)

    def _add(self, at: int, error: Exception | _Failed) -> None:
        if len(self._errors) == _SHOWN_MAX:
            self._more.append(self._called[at][:300])
            return
        if isinstance(error, _Failed):
            error = AssertionError(str(error)).with_traceback(error.__traceback__)
        error.add_note(f"case: {self._called[at][:300]}")
        self._errors.append(error)

    def tell(self) -> None:
        if self._errors:
            count = len(self._errors) + len(self._more)
            group = ExceptionGroup(f"{count} of {len(self._called)} cases", self._errors)
            if self._more:
                group.add_note("as well: " + "; ".join(self._more[:100]))
            raise group

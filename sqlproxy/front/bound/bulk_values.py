"""The values of an INSERT of many rows, as it is run: column by column, or row by row where that
can be seen. sqlproxy/front/binding/bulk.py makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlproxy.front.bound.env import Env

Convert = Callable[[object], object]


class Literals:
    """A column whose values the text says."""

    def __init__(self, values: Sequence[object]) -> None:
        self._values = values

    def all(self, env: Env) -> Sequence[object]:
        return self._values

    def one(self, row: int, env: Env) -> Any:
        return self._values[row]


class Given:
    """A column of parameters: `$first`, `$(first + step)`, …"""

    def __init__(
        self, first: int, step: int, count: int, converts: Sequence[Convert | None]
    ) -> None:
        """`converts`: one for all, or one for each."""
        self._at = slice(first - 1, first - 1 + step * count, step)
        self._first, self._step = first - 1, step
        self._converts = converts

    def all(self, env: Env) -> Sequence[object]:
        values = env.params[self._at]
        if len(self._converts) > 1:
            return [
                value if value is None or convert is None else convert(value)
                for value, convert in zip(values, self._converts, strict=True)
            ]
        (convert,) = self._converts
        if convert is None:
            return values
        return [None if value is None else convert(value) for value in values]

    def one(self, row: int, env: Env) -> Any:
        value = env.params[self._first + row * self._step]
        convert = self._converts[row if len(self._converts) > 1 else 0]
        return value if value is None or convert is None else convert(value)


@dataclass(frozen=True, slots=True)
class Columns:
    """The values of an INSERT, in the order of its columns."""

    count: int
    columns: Sequence[Literals | Given]

    def all(self, env: Env) -> list[Sequence[Any]]:
        """Column by column. Raises SqlError."""
        return [column.all(env) for column in self.columns]

    def rows(self, env: Env) -> list[list[Any]]:
        """Row by row, so that the first error is that of the first row. Raises SqlError."""
        return [[column.one(row, env) for column in self.columns] for row in range(self.count)]

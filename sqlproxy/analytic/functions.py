"""The Python functions that DuckDB calls in one query: closures of expressions, sums of numeric,
keys to sort by. Values come and go as Arrow columns.

A name is used once in a process, because DuckDB's functions belong to the database, not to a
cursor. An SqlError raised inside is kept: DuckDB only passes its text on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from itertools import count
from time import perf_counter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kv.base.limits import SQL_PIECE_BYTES
from sqlproxy.analytic.forms import array_of, users, weight
from sqlproxy.loop.fair_threads import OneByOne
from sqlproxy.values import memory
from sqlproxy.values.breaks import no_break, paused, set_breaks
from sqlproxy.values.errors import OUT_OF_MEMORY, QUERY_CANCELED, SqlError, too_deep

_numbers = count(1)  # of the names of functions, in this process
_PREFIX: Final = "kv_f"
_one_by_one: Final = OneByOne(perf_counter)


def _values(
    row_fn: Callable[[Sequence[object]], object],
    columns: Sequence[Sequence[object]],
    budget: memory.Budget,
) -> list[object]:
    """Of each row. Raises SqlError."""
    try:
        return [row_fn(row) for row in paused(zip(*columns, strict=True), 1)]
    except SqlError as error:
        if error.sqlstate != OUT_OF_MEMORY:
            raise
    values = []  # what counted may be gone with its row
    for row in paused(zip(*columns, strict=True), 1):
        budget.fresh()
        values.append(row_fn(row))
        budget.take(memory.size_of(values[-1]))
    return values


def _signature(parameters: int) -> Signature:
    """DuckDB counts the parameters that a function says it has."""
    return Signature([Parameter(f"c{n}", Parameter.POSITIONAL_ONLY) for n in range(parameters)])


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of a value: PostgreSQL's, and how DuckDB holds it."""

    oid: int
    held: str


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    call: Callable[..., pa.Array]
    parameters: tuple[str, ...]
    result: str
    volatile: bool


class Functions:
    """Those of one query, by what they compute."""

    def __init__(self) -> None:
        self.made: dict[object, Function] = {}
        self.wanted = 0  # how often one was asked for
        self.weigher: Function | None = None
        self.failed: SqlError | None = None
        self.ended = False  # nobody waits for the query any more
        self._budget = memory.now()

    def add(
        self,
        key: object,
        row_fn: Callable[[Sequence[object]], object],
        parameters: Sequence[Shape],
        result: Shape,
        *,
        volatile: bool = False,
    ) -> str:
        """The name of a function of rows of values in user form, made once per `key`."""
        self.wanted += 1
        found = self.made.get(key)
        if found is None:
            call = self._call(row_fn, tuple(parameters), result)
            found = Function(
                f"{_PREFIX}{next(_numbers)}",
                call,
                tuple(shape.held for shape in parameters),
                result.held,
                volatile,
            )
            self.made[key] = found
        return found.name

    def forget(self, count: int) -> None:
        """Those after the first so many are not called."""
        while len(self.made) > count:
            self.made.popitem()

    def weighing(self) -> str:
        """The name of a function of the bytes of each row that leaves DuckDB, which refuses those
        that DuckDB would copy together, thousands at a time: there, rows may share one value.
        """
        most = max(SQL_PIECE_BYTES, self._budget.limit - self._budget.used)

        def call(sizes: pa.Array) -> pa.Array:
            size = pc.sum(sizes).as_py() or 0
            if size > most:
                error = self._budget.refused(size)
                self.failed = error.bare()
                raise error
            return pa.nulls(len(sizes), pa.bool_())

        name = f"{_PREFIX}{next(_numbers)}"
        call.__dict__["__signature__"] = _signature(1)
        self.weigher = Function(name, call, ("BIGINT",), "BOOLEAN", volatile=True)
        return name

    def _call(
        self,
        row_fn: Callable[[Sequence[object]], object],
        parameters: tuple[Shape, ...],
        result: Shape,
    ) -> Callable[..., pa.Array]:
        who = self._budget.who

        def call(*columns: pa.Array) -> pa.Array:
            budget = self._budget.part()
            with _one_by_one.turn(who) as between:
                # DuckDB ends a query between two calls of a function, of thousands of rows each.
                def goes_on() -> None:
                    if self.ended:
                        raise SqlError(QUERY_CANCELED, "the query was ended")
                    between()

                try:
                    budget.take(sum(map(weight, columns)))
                    given = [
                        users(column, shape.oid, shape.held)
                        for column, shape in zip(columns, parameters, strict=True)
                    ]
                    set_breaks(goes_on)
                    with memory.spending(budget):
                        values = _values(row_fn, given, budget)
                    return array_of(values, result.oid, result.held)
                except (SqlError, RecursionError) as error:
                    self.failed = too_deep() if isinstance(error, RecursionError) else error.bare()
                    raise
                finally:
                    set_breaks(no_break)
                    budget.end()

        call.__dict__["__signature__"] = _signature(len(parameters))
        return call

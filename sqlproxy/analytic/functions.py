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
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kv.base.limits import SQL_PIECE_BYTES
from sqlproxy.analytic.forms import array_of, users, weight
from sqlproxy.loop.fair_threads import OneByOne
from sqlproxy.values import memory
from sqlproxy.values.breaks import no_break, paused, set_breaks
from sqlproxy.values.errors import OUT_OF_MEMORY, QUERY_CANCELED, SqlError, too_deep

ByColumn: TypeAlias = Callable[[pa.Array, Callable[[pa.Array], pa.Array]], pa.Array | None]
"""Of a column, and how it is computed value by value; None: it has to be that."""
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


def _whole(column: pa.Array) -> pa.Array:
    """In one chunk."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _once_each(column: pa.Array, each: Callable[[pa.Array], pa.Array]) -> pa.Array | None:
    """A value that comes several times is computed once, unless the copies would be large: value by
    value they count. Not of floats, of which two that differ may be equal.
    """
    if not _is_hashed(column.type):
        return None
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    if 2 * len(encoded.dictionary) > len(column):
        return None
    made = each(encoded.dictionary)
    if pa.types.is_string(made.type) or pa.types.is_binary(made.type):
        sizes = pc.binary_length(made).take(encoded.indices)
        if (pc.sum(sizes).as_py() or 0) > SQL_PIECE_BYTES:
            return None
    return made.take(encoded.indices)


def _once_each_row(
    row_fn: Callable[[Sequence[object]], object],
    rows: Sequence[tuple[object, ...]],
    budget: memory.Budget,
) -> list[object] | None:
    """The same of rows of several columns."""
    distinct = dict.fromkeys(rows)
    if 2 * len(distinct) > len(rows):
        return None
    columns = list(zip(*distinct, strict=True))
    found = dict(zip(distinct, _values(row_fn, columns, budget), strict=True))
    made = [found[row] for row in rows]
    if sum(len(one) for one in made if isinstance(one, str | bytes)) > SQL_PIECE_BYTES:
        return None
    return made


def _is_hashed(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        is_kind(kind)
        for is_kind in (types.is_string, types.is_integer, types.is_timestamp, types.is_date)
    )


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
        self.begin()

    def begin(self) -> None:
        """For a run of the query by whoever asks now."""
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
        by_column: ByColumn | None = None,
    ) -> str:
        """The name of a function of rows of values in user form, made once per `key`. `by_column`:
        the same of a whole column.
        """
        self.wanted += 1
        found = self.made.get(key)
        if found is None:
            if by_column is None and not (volatile or result.held.endswith("[]")):
                by_column = _once_each
            call = self._call(row_fn, tuple(parameters), result, by_column)
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
        by_column: ByColumn | None,
    ) -> Callable[..., pa.Array]:
        def computed(columns: Sequence[pa.Array], budget: memory.Budget) -> pa.Array:
            given = [
                users(column, shape.oid, shape.held)
                for column, shape in zip(columns, parameters, strict=True)
            ]
            values = None
            if by_column is _once_each and len(columns) > 1:
                kinds = [column.type for column in columns]
                if all(_is_hashed(kind) or pa.types.is_boolean(kind) for kind in kinds):
                    values = _once_each_row(row_fn, list(zip(*given, strict=True)), budget)
            if values is None:
                values = _values(row_fn, given, budget)
            return array_of(values, result.oid, result.held)

        def call(*columns: pa.Array) -> pa.Array:
            budget = self._budget.part()
            with _one_by_one.turn(budget.who) as between:
                # DuckDB ends a query between two calls of a function, of thousands of rows each.
                def goes_on() -> None:
                    if self.ended:
                        raise SqlError(QUERY_CANCELED, "the query was ended")
                    between()

                try:
                    budget.take(sum(map(weight, columns)))
                    set_breaks(goes_on)
                    with memory.spending(budget):
                        found = None
                        if by_column is not None and len(columns) == 1:
                            found = by_column(
                                _whole(columns[0]), lambda one: computed([one], budget)
                            )
                        return computed(columns, budget) if found is None else found
                except (SqlError, RecursionError) as error:
                    self.failed = too_deep() if isinstance(error, RecursionError) else error.bare()
                    raise
                finally:
                    set_breaks(no_break)
                    budget.end()

        call.__dict__["__signature__"] = _signature(len(parameters))
        return call

"""The way of one new row from the values of a statement to its bytes, made once per statement.

    INSERT INTO t (a, b) VALUES ($1, 7)     slots   [format, nil, 7, nil]   what is constant
                                            steps   a ← $1, id ← nextval    what each run computes

For rows of which nothing is computed but defaults, and nothing checked but NOT NULL; whatever else
a table demands (`sqlproxy.tables.rules`), and every error's words, are InsertPlan's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlproxy.front.bound.env import Env
from sqlproxy.front.closures.compiling import Compiled, Fn
from sqlproxy.rows.rows import ROW_FORMAT
from sqlproxy.tables.changing import TableWriter


class Single:
    """See the module."""

    __slots__ = ("_needed", "_slots", "_steps", "_writer")

    def __init__(
        self, writer: TableWriter, slots: list[object], steps: Sequence[tuple[int, Fn]]
    ) -> None:
        """`slots`: the stored array without what `steps` compute, by place in the row."""
        self._writer, self._slots = writer, slots
        converters = writer.codec.converters
        self._steps = [(at + 1, fn, converters[at]) for at, fn in steps]
        self._needed = tuple(at + 1 for at in writer.rules.required)

    def __call__(self, env: Env) -> tuple[bytes, bytes] | None:
        """Storage key and value; None: a column that must not be is NULL. Raises SqlError,
        ValueError, TypeError, TooLarge.
        """
        slots = self._slots.copy()
        for at, fn, convert in self._steps:
            value = fn((), env)
            if value is not None:
                slots[at] = convert(value)
        if None in slots:
            for at in self._needed:
                if slots[at] is None:
                    return None
        return self._writer.new(slots)


def single_of(writer: TableWriter, given: Mapping[int, Compiled | None]) -> Single | None:
    """`given`: what the statement says of each place; None: DEFAULT. None: there is no such way."""
    rules, rows, count = writer.rules, writer.codec, len(writer.table.columns)
    if rules.generated or rules.checks or not rows.dense:
        return None
    slots: list[object] = [ROW_FORMAT] + [None] * count
    steps: list[tuple[int, Fn]] = []
    for place, one in given.items():
        if one is None:
            continue
        if not one.constant:
            steps.append((place, one.fn))
        elif one.value is not None:
            try:
                slots[place + 1] = rows.converters[place](one.value)
            except (ValueError, TypeError):
                return None
    # Of a single row all is computed in the order of the columns, as in PostgreSQL.
    missing = [at for at in range(count) if given.get(at) is None]
    steps += [(at, rules.defaults[at]) for at in missing if at in rules.defaults]
    steps.sort(key=lambda step: step[0])
    return Single(writer, slots, steps)

"""What an answer is made of: rows, the columns that they have, and what a COPY sends.

Rows are tuples of values in user form (`sqlproxy.values.types`); the wire turns them into text or
binary by the OIDs of the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Row = Sequence[object]
Values = Sequence[object]
"""Of the parameters of a statement, $1 first, in user form."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column of an answer. `table`, `column`: the OID and attribute number it is, or 0."""

    name: str
    oid: int
    typmod: int = -1
    table: int = 0
    column: int = 0


Fit = Callable[[object], object]  # raises SqlError


@dataclass(frozen=True, slots=True)
class CopyFormat:
    """The options of a COPY; `kind`: text, csv or binary. The wire reads and writes this format.
    `table`: its name in the context of errors. `fits`: by column, what makes a value that was read
    one of the column's type with its modifier, or says that it does not fit.
    """

    kind: Literal["text", "csv", "binary"] = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    header_match: bool = False
    quote: str = '"'
    escape: str = '"'
    force_quote: frozenset[str] = frozenset()
    force_quote_all: bool = False
    force_not_null: frozenset[str] = frozenset()
    force_null: frozenset[str] = frozenset()
    encoding: str = "UTF8"
    table: str = ""
    fits: tuple[Fit | None, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Columns:
    """`count` rows, column by column, in user form."""

    columns: list[Sequence[object]]
    count: int

    def rows(self) -> list[tuple[object, ...]]:
        """The same row by row."""
        return list(zip(*self.columns, strict=True))


Part = Columns | Sequence[Sequence[object]]
"""Some rows of a COPY, column by column or row by row."""


@dataclass(slots=True)
class Answered:
    """A statement is done, and its transaction with it."""

    tag: str
    rows: Sequence[Row] = ()

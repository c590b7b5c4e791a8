"""What a table demands of its rows, compiled once per version of its descriptor: defaults,
generated columns, NOT NULL, CHECK. A row here is all columns of the descriptor, in its order, in
user form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlproxy.front.bound.env import Env
from sqlproxy.front.closures.compiling import Fn
from sqlproxy.pg.style import Style
from sqlproxy.rows.naming import schema_of
from sqlproxy.rows.schema import PUBLIC, Table
from sqlproxy.values.errors import CHECK_VIOLATION, NOT_NULL_VIOLATION, Detail, MayRead, SqlError

Row = tuple[object, ...]
Text = Callable[[int, object], str]  # place of a column and its value → PostgreSQL's text


@dataclass(frozen=True, slots=True)
class Rules:
    """By place in the row. `checks`: name and condition. `taken`: the sequence of each number that
    the default of a place takes, `perhaps`: that it may take; those of -1 every written row takes.
    `unsure`: `taken` does not tell all.
    """

    table: Table
    defaults: dict[int, Fn]
    generated: tuple[tuple[int, Fn], ...]
    on_update: tuple[tuple[int, Fn], ...]
    checks: tuple[tuple[str, Fn], ...]
    required: tuple[int, ...]
    text: Text
    text_in: Callable[[Style], Text] | None = None  # the same in the style of a session
    taken: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    perhaps: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    unsure: bool = False

    def numbers(self, given: Container[int] = (), *, most: bool = False) -> Counter[str]:
        """How many numbers of each sequence a row takes whose other places are `given`. `most`: or
        may take.
        """
        listed = [self.taken, self.perhaps] if most else [self.taken]
        return Counter(
            n
            for taken in listed
            for place, names in taken.items()
            if place not in given
            for n in names
        )

    def finished(self, values: list[Any], env: Env) -> Row:
        """The row with its generated columns, found to be right. Raises SqlError (23502, 23514)."""
        for place, fn in self.generated:
            values[place] = fn(values, env)
        for place in self.required:
            if values[place] is None:
                raise self._null(place, values)
        for name, fn in self.checks:
            if fn(values, env) is False:
                raise SqlError(
                    CHECK_VIOLATION,
                    f'new row for relation "{self.table.name}" violates check constraint "{name}"',
                    detail=self._failing(values),
                    schema=schema_of(self.table.namespace),
                    table=self.table.name,
                    constraint=name,
                )
        return tuple(values)

    def _null(self, place: int, values: Sequence[Any]) -> SqlError:
        column = self.table.columns[place].name
        return SqlError(
            NOT_NULL_VIOLATION,
            f'null value in column "{column}" of relation "{self.table.name}" violates not-null '
            "constraint",
            detail=self._failing(values),
            schema=schema_of(self.table.namespace),
            table=self.table.name,
            column=column,
        )

    def _failing(self, values: Sequence[Any]) -> str:
        places = [
            place
            for place, column in enumerate(self.table.columns)
            if column.state == PUBLIC and not column.hidden
        ]

        def detail(places: Sequence[int], named: str = "") -> str:
            row = [values[place] for place in places]
            return self._detail(f"Failing row contains {named}({{}}).", places, row, readable)

        def readable(may_read: MayRead) -> str:
            """As PostgreSQL, but for what the statement gave: that is left out, too."""
            if may_read(self.table, ()):
                return detail(places)
            seen = [at for at in places if may_read(self.table, [self.table.columns[at].id])]
            names = ", ".join(self.table.columns[at].title for at in seen)
            return detail(seen, f"({names}) = ") if seen else ""

        return detail(places)

    def key_detail(self, words: str, places: Sequence[int], values: Sequence[Any]) -> str:
        """Words with `(a, b)=(1, x)` in them, as errors about keys tell them; to who may not read
        these columns without, or nothing if there is nothing more to say.
        """
        names = ", ".join(self.table.columns[place].title for place in places)
        before, _, behind = words.partition("{}")
        bare = "" if behind == " already exists." else before.rstrip() + behind

        def readable(may_read: MayRead) -> str:
            ids = [self.table.columns[place].id for place in places]
            seen = may_read(self.table, ()) or may_read(self.table, ids)
            return detail() if seen else bare

        def detail() -> str:
            text = f"({names})=({{}})"
            return self._detail(text, places, values, readable, before, behind)

        return detail()

    def _detail(
        self,
        words: str,
        places: Sequence[int],
        values: Sequence[object],
        readable: Callable[[MayRead], str],
        before: str = "",
        behind: str = "",
    ) -> str:
        around, _, closing = words.rpartition("{}")

        def with_values(text: Text) -> str:
            shown = ", ".join(
                "null" if v is None else text(place, v)
                for place, v in zip(places, values, strict=True)
            )
            return f"{before}{around}{shown}{closing}{behind}"

        text_in = self.text_in or (lambda style: self.text)
        return Detail(with_values(self.text), lambda style: with_values(text_in(style)), readable)

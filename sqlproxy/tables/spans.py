"""A way to rows, with its values: the keys to get, or the ranges of keys to scan. Pure.

Values arrive in user form. What equals nothing that is stored (NULL) gives no key; a value that the
component cannot express leaves its side of the range open: every row passes the WHERE anyway.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from kv.base.keys import escape_open, successor
from kv.base.limits import SQL_POINTS_MAX
from sqlproxy.front.bound.exprs import Expr
from sqlproxy.front.closures.compiling import Fn
from sqlproxy.rows import keys
from sqlproxy.rows.schema import Table
from sqlproxy.tables.access import Access, Given, Limit, Stretch, directions_of
from sqlproxy.values.enums import BASE
from sqlproxy.values.types import ARRAY, Type, resolve

Value = Callable[[Expr], Any]  # what an expression without columns is now, in user form
_WIDEST: Final = {
    "int2": "int8",
    "int4": "int8",
    "float4": "float8",
    "varchar": "text",
    "char": "bpchar",
}


@dataclass(frozen=True, slots=True)
class Span:
    """Keys of `[start, end)`, user keys of the table or the index; end b"" = no bound."""

    start: bytes
    end: bytes


@dataclass(frozen=True, slots=True)
class Spans:
    """Where to look: `points` are whole keys, each of one row at most. Both are in the order of
    keys and do not repeat; only one of them is there.
    """

    points: tuple[bytes, ...] = ()
    ranges: tuple[Span, ...] = ()

    def has(self, key: bytes) -> bool:
        """Whether it lies there."""
        if self.points:
            at = bisect_left(self.points, key)
            return at < len(self.points) and self.points[at] == key
        at = bisect_right(self.ranges, key, key=lambda span: span.start) - 1
        return at >= 0 and (not self.ranges[at].end or key < self.ranges[at].end)


class Component:
    """One column of a key: a value in user form → its bytes, as the index orders them. Its type is
    taken at its widest (numeric without a scale, float4 as float8), so that nothing is rounded.
    """

    __slots__ = ("_encode", "_kind", "descending", "null", "nulls_first")

    def __init__(self, kind: Type, *, descending: bool = False, nulls_first: bool = False) -> None:
        own = kind.base in (ARRAY, BASE)
        self._kind = kind if own else resolve(_WIDEST.get(kind.base, kind.base))
        self._encode = keys.component(kind, descending=descending, nulls_first=nulls_first)
        self.descending, self.nulls_first = descending, nulls_first
        self.null: bytes = self._encode(None)

    def bytes_of(self, value: object) -> bytes:
        """Raises ValueError or TypeError for what the type cannot express."""
        found: bytes = self._encode(self._kind.to_stored(value))
        return found

    def beginning(self, text: str) -> bytes | None:
        """What the bytes of every text begin with that begins with `text`; None where they do not
        stand in one place.
        """
        if self.descending or self._kind.base not in ("text", "varchar"):
            return None
        return bytes([keys.TAG["text"]]) + escape_open(text.encode())


class Finder:
    """The spans of one way, again and again with other values; not of those beside it. Made once
    per statement.
    """

    def __init__(self, table: Table, access: Access) -> None:
        self.access = access
        self._one_row, self._points = access.one_row, access.points
        directions = directions_of(table, access.index)
        self._components = [
            Component(table.by_id(number).resolved, descending=down, nulls_first=first)
            for number, (down, first) in zip(access.components, directions, strict=False)
        ]
        self._points_max = SQL_POINTS_MAX // len(access.stretches)

    def parts(self, fns: Sequence[Fn]) -> list[tuple[Fn, Callable[[object], bytes]]]:
        """What computes each component that is given, and its bytes (`Component.bytes_of`)."""
        return [(fn, one.bytes_of) for fn, one in zip(fns, self._components, strict=False)]

    def spans(self, value: Value) -> Spans:
        """`value` evaluates the expressions of the way."""
        if self._one_row:
            parts = []
            given = self.access.stretches[0].given
            for component, one in zip(self._components, given, strict=True):
                if (wanted := value(one.expr)) is None:
                    return Spans()
                try:
                    parts.append(component.bytes_of(wanted))
                except (ValueError, TypeError):
                    return Spans()
            return Spans(points=(b"".join(parts),))
        found = [self._of(one, value) for one in self.access.stretches]
        if len(found) == 1:
            return found[0]
        if not any(one.ranges for one in found):
            return Spans(points=tuple(sorted({p for one in found for p in one.points})))
        return Spans(ranges=_merged(found))

    def _of(self, stretch: Stretch, value: Value) -> Spans:
        found = self._prefixes(stretch.given, value)
        if found is None:
            return Spans()
        prefixes, count = found
        if self._points and count == len(self._components):
            return Spans(points=tuple(prefixes))
        if count < len(stretch.given) or count == len(self._components):
            return Spans(ranges=tuple(Span(p, successor(p)) for p in prefixes))
        low, high = self._narrowed(stretch, value)
        if low is None:
            return Spans()
        spans = [Span(p + low, successor(p) if high is None else p + high) for p in prefixes]
        return Spans(ranges=tuple(span for span in spans if not span.end or span.start < span.end))

    def _prefixes(self, given: Sequence[Given], value: Value) -> tuple[list[bytes], int] | None:
        """The bytes of what is given, in their order, and of how many components they are: fewer if
        all would be too many combinations. None: nothing is equal to that.
        """
        choices: list[list[bytes]] = []
        tied = self._tied(given, value)
        combinations = 1 if tied is None else len(tied)
        if not combinations or combinations > self._points_max:
            return None if not combinations else ([b""], 0)
        for component, one in zip(self._components, given, strict=False):
            if one.null:
                choices.append([component.null])
                continue
            if one.tied:
                choices.append([b""])  # stands for that of the row
                continue
            wanted = value(one.expr)
            if wanted is None:
                return None
            found = _encoded(component, _flat(wanted) if one.any else (wanted,))
            if not found:
                return None
            combinations *= len(found)
            if combinations > self._points_max:
                break
            choices.append(found)
        if tied is None:
            return sorted(b"".join(parts) for parts in product(*choices)), len(choices)
        places = [at for at, one in enumerate(given[: len(choices)]) if one.tied]
        prefixes: set[bytes] = set()
        for row in tied:
            for at, part in zip(places, row, strict=False):
                choices[at] = [part]
            prefixes.update(b"".join(parts) for parts in product(*choices))
        return sorted(prefixes), len(choices)

    def _tied(self, given: Sequence[Given], value: Value) -> list[tuple[bytes, ...]] | None:
        """The rows of lists that are tied, each once; None: there are none."""
        columns = []
        for component, one in zip(self._components, given, strict=False):
            if one.tied:
                wanted = value(one.expr)
                columns.append([_bytes(component, each) for each in wanted or ()])
        if not columns:
            return None
        rows = dict.fromkeys(zip(*columns, strict=True))
        return [tuple([part for part in row if part]) for row in rows if None not in row]

    def _narrowed(self, stretch: Stretch, value: Value) -> tuple[bytes | None, bytes | None]:
        """The bytes between which the next component lies: from the first (None: nothing can be
        there) up to the second (None: to the end).
        """
        at = len(stretch.given)
        component = self._components[at]
        if stretch.prefix is not None:
            beginning = component.beginning(stretch.prefix)
            if beginning is not None:
                return beginning, successor(beginning) or None
        if not stretch.ranged:
            return b"", None
        first, last = stretch.low, stretch.high
        if component.descending:
            first, last = last, first
        ends = [self._end(at, end, value) for end in (first, last)]
        if any(end is None for end in ends):
            return None, None
        low, high = ends
        assert low is not None
        assert high is not None
        start, stop = low[0], high[1] or None
        # a comparison is never true of NULL
        if not low[1] and component.nulls_first:
            start = successor(component.null)
        if not high[1]:
            stop = None if component.nulls_first else component.null
        return start, stop

    def _end(self, at: int, end: Limit | None, value: Value) -> tuple[bytes, bytes] | None:
        """The first bytes within a range that begins at this bound, and the first ones after a
        range that ends there; (b"", b"") for an open end, None when nothing can be compared with
        it.
        """
        if end is None:
            return b"", b""
        found, inclusive = b"", end.inclusive
        for component, expr in zip(self._components[at:], end.exprs, strict=False):
            wanted = value(expr)
            if wanted is None and not found:
                return None
            part = None if wanted is None else _bytes(component, wanted)
            if part is None:  # the columns before it decide, or it is equal to nothing
                inclusive = True
                break
            found += part
        if not found:
            return b"", b""
        after = successor(found)
        return (found, after) if inclusive else (after, found)


def _merged(many: Sequence[Spans]) -> tuple[Span, ...]:
    """All of them as ranges that do not meet."""
    found = [one for spans in many for one in spans.ranges]
    found += [Span(point, successor(point)) for spans in many for point in spans.points]
    merged: list[Span] = []
    for one in sorted(found, key=lambda span: span.start):
        if not merged or (merged[-1].end and merged[-1].end < one.start):
            merged.append(one)
        elif merged[-1].end and (not one.end or one.end > merged[-1].end):
            merged[-1] = Span(merged[-1].start, one.end)
    return tuple(merged)


def _bytes(component: Component, value: object) -> bytes | None:
    """None: it is NULL, or nothing that the component could have."""
    if value is None:
        return None
    try:
        return component.bytes_of(value)
    except (ValueError, TypeError):
        return None


def _encoded(component: Component, values: Iterable[object]) -> list[bytes]:
    found = {_bytes(component, value) for value in values}
    return sorted(part for part in found if part is not None)


def _flat(values: Sequence[object]) -> Iterable[object]:
    """The elements of an array of any number of dimensions."""
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value

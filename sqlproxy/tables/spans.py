"""A way to rows, with its values: the keys to get, or the ranges of keys to scan. Pure.

Values arrive in user form. What equals nothing that is stored (NULL) gives no key; a value that the
component cannot express leaves its side of the range open: every row passes the WHERE anyway.
"""

from __future__ import annotations

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
from sqlproxy.tables.access import Access, Limit, directions_of
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
    """The spans of one way, again and again with other values. Made once per statement."""

    def __init__(self, table: Table, access: Access) -> None:
        self.access = access
        directions = directions_of(table, access.index)
        self._components = [
            Component(table.by_id(number).resolved, descending=down, nulls_first=first)
            for number, (down, first) in zip(access.components, directions, strict=True)
        ]

    def parts(self, fns: Sequence[Fn]) -> list[tuple[Fn, Callable[[object], bytes]]]:
        """What computes each component that is given, and its bytes (`Component.bytes_of`)."""
        return [(fn, one.bytes_of) for fn, one in zip(fns, self._components, strict=False)]

    def spans(self, value: Value) -> Spans:
        """`value` evaluates the expressions of the way."""
        given = self.access.given
        if self.access.points and not any(one.any for one in given):  # the commonest: one row
            parts = []
            for component, one in zip(self._components, given, strict=True):
                if (wanted := value(one.expr)) is None:
                    return Spans()
                try:
                    parts.append(component.bytes_of(wanted))
                except (ValueError, TypeError):
                    return Spans()
            return Spans(points=(b"".join(parts),))
        return self._many(value)

    def _many(self, value: Value) -> Spans:
        choices: list[list[bytes]] = []
        combinations, cut = 1, False
        for component, one in zip(self._components, self.access.given, strict=False):
            wanted = value(one.expr)
            if wanted is None:
                return Spans()
            found = _encoded(component, _flat(wanted) if one.any else (wanted,))
            if not found:
                return Spans()
            combinations *= len(found)
            if combinations > SQL_POINTS_MAX:
                cut = True
                break
            choices.append(found)
        prefixes = sorted(b"".join(parts) for parts in product(*choices))
        if self.access.points and not cut:
            return Spans(points=tuple(prefixes))
        if cut or len(choices) == len(self._components):
            return Spans(ranges=tuple(Span(p, successor(p)) for p in prefixes))
        low, high = self._narrowed(self._components[len(choices)], value)
        if low is None:
            return Spans()
        spans = [Span(p + low, successor(p) if high is None else p + high) for p in prefixes]
        return Spans(ranges=tuple(span for span in spans if not span.end or span.start < span.end))

    def _narrowed(self, component: Component, value: Value) -> tuple[bytes | None, bytes | None]:
        """The bytes between which the next component lies: from the first (None: nothing can be
        there) up to the second (None: to the end).
        """
        access = self.access
        if access.prefix is not None:
            beginning = component.beginning(access.prefix)
            return (b"", None) if beginning is None else (beginning, successor(beginning) or None)
        if access.low is None and access.high is None:
            return b"", None
        first, last = access.low, access.high
        if component.descending:
            first, last = last, first
        ends = [self._end(component, end, value) for end in (first, last)]
        if any(end is None for end in ends):
            return None, None
        low, high = ends
        assert low is not None
        assert high is not None
        start = low[0] if first is None or first.inclusive else low[1]
        stop: bytes | None = high[0] if last is not None and not last.inclusive else high[1]
        # a comparison is never true of NULL
        if not low[1] and component.nulls_first:
            start = successor(component.null)
        if not high[1]:
            stop = None if component.nulls_first else component.null
        return start, stop

    @staticmethod
    def _end(component: Component, end: Limit | None, value: Value) -> tuple[bytes, bytes] | None:
        """The bytes of a bound and the first ones after it; (b"", b"") for an open end, None when
        nothing can be compared with it.
        """
        if end is None:
            return b"", b""
        wanted = value(end.expr)
        if wanted is None:
            return None
        try:
            found = component.bytes_of(wanted)
        except (ValueError, TypeError):
            return b"", b""
        return found, successor(found)


def _encoded(component: Component, values: Iterable[object]) -> list[bytes]:
    found = set()
    for value in values:
        if value is None:
            continue
        try:
            found.add(component.bytes_of(value))
        except (ValueError, TypeError):
            continue
    return sorted(found)


def _flat(values: Sequence[object]) -> Iterable[object]:
    """The elements of an array of any number of dimensions."""
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value

"""Arrays in text: `{1,NULL,"a b"}`, nested for more dimensions.

Quoted are elements that are empty, spell NULL, or have braces, commas, quotes, backslashes or white
space. Values are lists, nested lists for more dimensions, all of a level of the same length.

Deliberately missing: lower bounds other than 1 (`[0:1]={…}` is refused; `[1:2]={…}` is read).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from sqlproxy.pg import oids
from sqlproxy.pg.style import SPACES
from sqlproxy.values.breaks import pause, paused
from sqlproxy.values.errors import INVALID_TEXT, LIMIT_EXCEEDED, SqlError, unsupported
from sqlproxy.values.memory import bytes_of, room

P = TypeVar("P", str, bytes)
DIMENSIONS_MAX: Final = 6
_LARGE: Final = 1 << 16  # characters that are written before somebody asks whether more may be
_BARE: Final = frozenset(
    (
        *(oids.INT2, oids.INT4, oids.INT8, oids.OID, oids.FLOAT4, oids.FLOAT8, oids.NUMERIC),
        *(oids.BOOL, oids.UUID),
    )
)
"""Types whose elements are never quoted."""
_PIECE: Final = 1 << 8  # elements that are written at once
_ODD: Final = frozenset((type(None), list, tuple))  # what is no element by itself
_QUOTE = re.compile(r'[{},"\\\s]', re.ASCII)
_ESCAPE = re.compile(r'["\\]')
_TOKEN = re.compile(
    r'[ \t\n\r\v\f]*(?:([{},])|"((?:[^"\\]++|\\.)*+)"|((?:[^{},"\\]++|\\.)++))', re.DOTALL
)
_BOUNDS = re.compile(r"[ \t\n\r\v\f]*((?:\[[+-]?\d+(?::[+-]?\d+)?\])+)[ \t\n\r\v\f]*=")
_ONE_BOUND = re.compile(r"\[([+-]?\d+)(?::([+-]?\d+))?\]")
_UNESCAPE = re.compile(r"\\(.)", re.DOTALL)


def array_writer(write: Callable[[object], str], of: int) -> Callable[[list[object]], str]:
    """Of arrays with elements of a type."""
    bare = of in _BARE

    def element(value: object) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, list | tuple):
            return array(value)
        text = write(value)
        if not text or _QUOTE.search(text) or (len(text) == 4 and text.upper() == "NULL"):
            return f'"{_ESCAPE.sub(_backslash, text)}"'
        return text

    def several(values: Sequence[object]) -> str:
        pause()
        return ",".join(map(write if _ODD.isdisjoint(map(type, values)) else element, values))

    def array(values: list[object] | tuple[object, ...]) -> str:
        if not values:
            return "{}"
        parts = map(several, _pieces(values)) if bare else map(element, paused(values))
        return "{" + ",".join(measured(parts)) + "}"

    return array


def measured(parts: Iterable[P], beside: int = 1) -> Iterator[P]:
    """The parts of what is written, with so many bytes beside each, while there is room for it.
    Raises SqlError: 54000, 53200.
    """
    size, most = 0, _LARGE
    for part in parts:
        yield part
        size += bytes_of(part) + beside
        if size > most:
            pause()
            room(size)
            most = size + _LARGE
    if size > _LARGE:
        room(size)


def _pieces(values: Sequence[object]) -> Iterator[Sequence[object]]:
    return (values[at : at + _PIECE] for at in range(0, len(values), _PIECE))


def _backslash(found: re.Match[str]) -> str:
    pause()
    return "\\" + found[0]


def _unescaped(found: re.Match[str]) -> str:
    pause()
    return found[1]


def array_reader(read: Callable[[str], object]) -> Callable[[str], list[object]]:
    def parse(text: str) -> list[object]:
        start, shape = _bounds(text)
        reader = _Reader(text, start, read)
        values = reader.array()
        if shape is not None and shape != shape_of(values):
            raise malformed(text, "Specified array dimensions do not match array contents.")
        return values

    return parse


def _bounds(text: str) -> tuple[int, tuple[int, ...] | None]:
    """Where the braces begin, and the lengths that `[1:2]=` demands."""
    found = _BOUNDS.match(text)
    if found is None:
        return 0, None
    lengths = []
    for low, high in _ONE_BOUND.findall(found[1]):
        first, last = (int(low), int(high)) if high else (1, int(low))
        if first != 1:
            raise unsupported("an array whose subscripts do not begin at 1")
        if last < first:
            raise SqlError("2202E", "upper bound cannot be less than lower bound")
        lengths.append(last)
    return found.end(), tuple(lengths)


def shape_of(values: list[object]) -> tuple[int, ...]:
    """The length of every dimension; () of an empty array."""
    shape = []
    level: object = values
    while isinstance(level, list | tuple):
        if not level:
            return ()
        shape.append(len(level))
        level = level[0]
    return tuple(shape)


def malformed(text: str, detail: str) -> SqlError:
    return SqlError(INVALID_TEXT, f'malformed array literal: "{text}"', detail=detail)


class _Reader:
    """Recursive descent over tokens: braces and commas, quoted and bare elements."""

    def __init__(self, text: str, start: int, read: Callable[[str], object]) -> None:
        self._text = text
        self._at = start
        self._read = read
        self._shape: list[int] = []  # length of each dimension, once known
        self._leaf = 0  # depth of the elements, once known

    def array(self) -> list[Any]:
        mark, _ = self._next()
        if mark != "{":
            raise malformed(self._text, 'Array value must start with "{" or dimension information.')
        values = self._level(1)
        if self._text[self._at :].strip(SPACES):
            raise malformed(self._text, "Junk after closing right brace.")
        return values

    def _next(self) -> tuple[str, str | None]:
        """A mark, or "" and the element's text (None = NULL)."""
        pause()
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise malformed(self._text, "Unexpected end of input.")
        self._at = found.end()
        mark, quoted, bare = found.groups()
        if mark:
            return mark, None
        if quoted is not None:
            return "", _UNESCAPE.sub(_unescaped, quoted)
        text = bare.rstrip(SPACES) if "\\" not in bare else _strip_escaped(bare)
        if text.upper() == "NULL" and "\\" not in bare:
            return "", None
        if not text:
            raise malformed(self._text, "Unexpected end of input.")
        return "", _UNESCAPE.sub(_unescaped, text)

    def _level(self, depth: int) -> list[object]:
        if depth > DIMENSIONS_MAX:
            raise SqlError(
                LIMIT_EXCEEDED,
                f"number of array dimensions ({depth}) exceeds the maximum allowed "
                f"({DIMENSIONS_MAX})",
            )
        values: list[object] = []
        mark, text = self._next()
        if mark == "}":
            if depth > 1:
                raise malformed(self._text, 'Unexpected "}" character.')
            return values
        while True:
            if mark == "{":
                if self._leaf and depth >= self._leaf:
                    raise self._uneven()
                values.append(self._level(depth + 1))
            elif mark:
                raise malformed(self._text, f'Unexpected "{mark}" character.')
            else:
                self._leaf = self._leaf or depth
                if self._leaf != depth:
                    raise self._uneven()
                values.append(None if text is None else self._read(text))
            mark, _ = self._next()
            if mark == "}":
                self._close(depth, len(values))
                return values
            if mark != ",":
                if not mark:
                    raise malformed(self._text, "Unexpected array element.")
                raise malformed(self._text, f'Unexpected "{mark}" character.')
            mark, text = self._next()

    def _close(self, depth: int, length: int) -> None:
        """All of a dimension have the same length."""
        while len(self._shape) < depth:
            self._shape.append(-1)
        if self._shape[depth - 1] not in (-1, length):
            raise self._uneven()
        self._shape[depth - 1] = length

    def _uneven(self) -> SqlError:
        return malformed(
            self._text, "Multidimensional arrays must have sub-arrays with matching dimensions."
        )


def _strip_escaped(bare: str) -> str:
    """White space after an element goes, but an escaped space stays."""
    end = len(bare)
    while end and bare[end - 1] in SPACES and not _escaped(bare, end - 1):
        end -= 1
    return bare[:end]


def _escaped(text: str, at: int) -> bool:
    count = 0
    while at - count - 1 >= 0 and text[at - count - 1] == "\\":
        count += 1
    return count % 2 == 1

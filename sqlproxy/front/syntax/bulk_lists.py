"""Long lists of literals, `IN (…)`, `IN ((…), (…))` and `VALUES (…), (…)`, read beside the parser:
it makes a tree of ten times their size, which takes as many times longer to read and to bind.

    text ─ read ─▶ a template, in which each long list is `$1000000`, `$1000001`, …, and the lists

A list is read as JSON, which it is but for its quotes and parentheses: numbers, strings, null.
What is not (an expression, a comment) stays in the text, so that nothing is read in another way
than PostgreSQL's. Whatever may hide where a string ends (E'…',
$$…$$, block comments) leaves the whole text to the parser. So does an error: positions are those of
the text. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from kv.base.limits import SQL_TOKENS_MAX
from sqlproxy.values.breaks import pause

LIST_MIN: Final = 64  # fewer literals are parsed as quickly
FIRST: Final = 1_000_000  # the number of the first list: no parameter has so high a one
_CHARS_MIN: Final = 2 * LIST_MIN
_KINDS: Final = frozenset((int, str, Decimal, type(None)))
_ANY: Final = msgspec.json.Decoder(list[Any], float_hook=Decimal)
_DECODERS: Final[tuple[msgspec.json.Decoder[Any], ...]] = (
    msgspec.json.Decoder(list[int]),
    msgspec.json.Decoder(list[str]),
    _ANY,
)
_STRING: Final = re.compile(r"'((?:[^']++|'')*+)'")
_TOKEN: Final = re.compile(
    r"(?P<odd>(?<!\w)(?:[ebxn]|u&)'|/\*|\$\w*+\$|\$\d{6})"
    r"|'(?:[^']++|'')*+'|\"(?:[^\"]++|\"\")*+\"|--[^\n]*+"
    r"|(?<![\w$])in\s*+(?P<list>\()|(?<![\w$])values\s*+(?P<rows>(?=\())"
    r"|[^'\"/$\-ebxnuiv]{1,4096}+|[\s\S]",  # one match is short, whatever there is
    re.IGNORECASE,
)
# In pieces, too. A row of more parts is for the parser.
_INSIDE: Final = re.compile(r"(?:[^'()]{1,4096}+|'[^']*+'){1,2000}")
_ROW: Final = r"\((?:[^'()]++|'[^']*+'){0,5000}\)"
_ONE_ROW: Final = re.compile(_ROW)
_ROWS: Final = re.compile(rf"(?:{_ROW}\s*+,\s*+){{1,1000}}")
_CLOSED: Final = re.compile(r"\s*+\)")
_TOKENS: Final = 1 << 8  # that are found between two breaks
_PIECE: Final = 1 << 16  # characters that are decoded at once
Rows = Sequence[Sequence[Any]]


def read(text: str) -> tuple[str, list[Rows]] | None:
    """The template, and each list as rows; None: there is none, or it is for the parser."""
    if len(text) < _CHARS_MIN or "\0" in text:
        return None
    parts: list[str] = []
    lists: list[Rows] = []
    at = place = tokens = 0
    while found := _TOKEN.match(text, place):
        if not tokens % _TOKENS:
            pause()
        place, kind = found.end(), found.lastgroup
        tokens += 1
        if kind == "odd" or tokens > SQL_TOKENS_MAX:  # outside of lists: the parser refuses it
            return None
        if kind is None:
            continue
        first, end, is_rows = _span(text, found.start(kind), kind)
        written = text[first:end]
        if len(written) < _CHARS_MIN:
            continue
        rows = _rows(written) if is_rows else _list(written)
        if rows is None:
            continue
        parts += (text[at:first], f"(${FIRST + len(lists)})")
        lists.append(rows)
        at = place = end
    return ("".join(parts) + text[at:], lists) if lists else None


def _span(text: str, at: int, kind: str) -> tuple[int, int, bool]:
    """Where what is listed from here on begins and ends, and whether it is rows: (a, b), (c, d)."""
    if kind == "rows":
        return at, _end_of_rows(text, at), True
    first = end = at + 1
    while inside := _INSIDE.match(text, end):
        end = inside.end()
    if text[end : end + 1] == ")":
        return at, end + 1, False
    if text[end : end + 1] != "(" or text[first:end].strip():
        return at, at, False
    closed = _CLOSED.match(text, last := _end_of_rows(text, end))
    return (end, last, True) if closed is not None else (at, at, False)


def _end_of_rows(text: str, at: int) -> int:
    """Where at least two rows end that begin here; the same place: there are none."""
    end = at
    while rows := _ROWS.match(text, end):
        end = rows.end()
    last = _ONE_ROW.match(text, end) if end > at else None
    return at if last is None else last.end()


def _list(written: str) -> Rows | None:
    body = _json(written[1:-1])
    if body is None:
        return None
    for decoder in _DECODERS:
        found: list[Any] = []
        try:
            for piece in pieces(body, ","):
                some = decoder.decode(f"[{piece}]")
                if not _KINDS.issuperset(map(type, some)):
                    return None
                found += [(value,) for value in some]
        except (msgspec.DecodeError, UnicodeEncodeError):
            continue
        return found if len(found) >= LIST_MIN else None
    return None


def _rows(written: str) -> Rows | None:
    body = _json(written)
    found: list[Any] = []
    if body is None or "[" in body or "]" in body:
        return None
    try:
        for piece in pieces(body.replace("(", "[").replace(")", "]"), "],"):
            found += _ANY.decode(f"[{piece}]")
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    if not all(type(row) is list and _KINDS.issuperset(map(type, row)) for row in found):
        return None
    if len(found) < LIST_MIN or len(set(map(len, found))) != 1 or not found[0]:
        return None
    if max(body.count("("), body.count(")")) > len(found):  # some stand in strings
        found = [
            [v.replace("[", "(").replace("]", ")") if type(v) is str else v for v in row]
            for row in found
        ]
    return found


def pieces(body: str, mark: str) -> Iterator[str]:
    """Values in JSON with commas between, some at a time: none is torn apart. `mark`: what ends
    with the comma behind one.
    """
    at = 0
    while at < len(body):
        pause()
        end, cut = at, at + _PIECE
        quotes = 0
        while end == at or quotes % 2:  # a mark in a string is none
            found = body.find(mark, cut)
            if found < 0:
                yield body[at:]
                return
            quotes += body.count('"', end, found)
            if "\\" in body[end:found]:  # of a quote, perhaps: then there is one piece more
                yield body[at:]
                return
            end, cut = found, found + 1
        yield body[at : end + len(mark) - 1]
        at = end + len(mark)


def _json(body: str) -> str | None:
    """Of literals; None: its SQL text does not say it."""
    if "''" not in body and not _odd(body):
        return body.replace("'", '"')
    return None if _odd(_STRING.sub("", body)) else _STRING.sub(_quoted, body)


def _odd(text: str) -> bool:
    """Whether there is what means another thing in JSON, or a comment."""
    return any(mark in text for mark in ('"', "\\", "[", "]", "--"))


def _quoted(found: re.Match[str]) -> str:
    inside = found[1].replace("''", "'")
    if "\\" in inside or '"' in inside:
        inside = inside.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inside}"'

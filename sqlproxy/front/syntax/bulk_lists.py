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
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

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
_ROWS: Final = r"(?:\((?:[^'()]++|'[^']*+')*+\)\s*+,\s*+)++\((?:[^'()]++|'[^']*+')*+\)"
_TOKEN: Final = re.compile(
    r"(?P<odd>(?<!\w)(?:[ebxn]|u&)'|/\*|\$\w*+\$|\$\d{6})"
    r"|'(?:[^']++|'')*+'|\"(?:[^\"]++|\"\")*+\"|--[^\n]*+"
    r"|(?<![\w$])in\s*+(?P<list>\((?:[^'()]++|'[^']*+')*+\))"
    rf"|(?<![\w$])in\s*+\(\s*+(?P<many>{_ROWS})\s*+\)"
    rf"|(?<![\w$])values\s*+(?P<rows>{_ROWS})",
    re.IGNORECASE,
)
Rows = Sequence[Sequence[Any]]


def read(text: str) -> tuple[str, list[Rows]] | None:
    """The template, and each list as rows; None: there is none, or it is for the parser."""
    if len(text) < _CHARS_MIN or "\0" in text:
        return None
    parts: list[str] = []
    lists: list[Rows] = []
    at = 0
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        if kind is None:
            continue
        if kind == "odd":
            return None
        written = found[kind]
        if len(written) < _CHARS_MIN:
            continue
        rows = _list(written) if kind == "list" else _rows(written)
        if rows is None:
            continue
        parts += (text[at : found.start(kind)], f"(${FIRST + len(lists)})")
        lists.append(rows)
        at = found.end(kind)
    return ("".join(parts) + text[at:], lists) if lists else None


def _list(written: str) -> Rows | None:
    body = _json(written[1:-1])
    if body is None:
        return None
    for decoder in _DECODERS:
        try:
            found: list[Any] = decoder.decode(f"[{body}]")
        except (msgspec.DecodeError, UnicodeEncodeError):
            continue
        if len(found) < LIST_MIN or not _KINDS.issuperset(map(type, found)):
            return None
        return [(value,) for value in found]
    return None


def _rows(written: str) -> Rows | None:
    body = _json(written)
    found: list[Any]
    if body is None or "[" in body or "]" in body:
        return None
    try:
        found = _ANY.decode(f"[{body.replace('(', '[').replace(')', ']')}]")
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


def _json(body: str) -> str | None:
    """Of literals; None: it cannot be told from what it says in SQL."""
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

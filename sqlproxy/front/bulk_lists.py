"""Long lists of literals, `IN (…)` and `VALUES (…), (…)`, read beside the parser: it makes a tree
of ten times their size, which takes as many times longer to read and to bind.

    text ─ read ─▶ a template, in which each long list is `$1000000`, `$1000001`, …, and the lists

A list is read as JSON, which it is but for its quotes and parentheses: integers, strings, null.
What is not (an expression, a decimal, a doubled quote, a comment) stays in the text, so that
nothing is read in another way than PostgreSQL's. Whatever may hide where a string ends (E'…',
$$…$$, block comments) leaves the whole text to the parser. So does an error: positions are those of
the text. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

LIST_MIN: Final = 64  # fewer literals are parsed as quickly
FIRST: Final = 1_000_000  # the number of the first list: no parameter has so high a one
_CHARS_MIN: Final = 2 * LIST_MIN
_TYPES: Final[tuple[Any, ...]] = (list[int], list[str], list[int | str | None])
_TOKEN: Final = re.compile(
    r"(?P<odd>(?<!\w)(?:[ebxn]|u&)'|/\*|\$\w*+\$|\$\d{6})"
    r"|'(?:[^']++|'')*+'|\"(?:[^\"]++|\"\")*+\"|--[^\n]*+"
    r"|(?<![\w$])in\s*+(?P<list>\((?:[^'()]++|'[^']*+')*+\))"
    r"|(?<![\w$])values\s*+(?P<rows>(?:\((?:[^'()]++|'[^']*+')*+\)\s*+,\s*+)++"
    r"\((?:[^'()]++|'[^']*+')*+\))",
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
    for kind in _TYPES:
        try:
            found: list[Any] = msgspec.json.decode(f"[{body}]", type=kind)
        except (msgspec.DecodeError, UnicodeEncodeError):
            continue
        return [(value,) for value in found] if len(found) >= LIST_MIN else None
    return None


def _rows(written: str) -> Rows | None:
    body = _json(written)
    if body is None:
        return None
    try:
        found = msgspec.json.decode(
            f"[{body.replace('(', '[').replace(')', ']')}]", type=list[list[int | str | None]]
        )
    except (msgspec.DecodeError, UnicodeEncodeError):
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
    if '"' in body or "\\" in body or "[" in body or "]" in body or "--" in body:
        return None
    return body.replace("'", '"')

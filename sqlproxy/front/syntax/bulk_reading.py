"""INSERT … VALUES with many rows of plain literals or parameters, read by patterns instead of the
parser (sqlproxy/front/binding/bulk.py binds them).

    text ─ read ─▶ a template (the same statement with its first row alone), and all rows

The template, which is parsed and bound as ever, says everything but the values: table, columns, ON
CONFLICT, RETURNING. The patterns are narrower than PostgreSQL's grammar: integers, decimals, '…'
without a prefix, true, false, null and $n. Whatever else there is (an expression, DEFAULT, a
comment, rows of different lengths) is nobody's business here: the whole text is parsed then.

Most such texts are JSON but for their quotes and parentheses, and are read as that first, in a
third of the time (`_decoded`): where a text is both, it means the same. Strings begin and end at
the same places, as a doubled quote is no JSON; between them there are numbers, true, false, null,
commas and blanks in both. What JSON knows and SQL reads in another way is left to the patterns:
fractions and exponents, backslashes. A parenthesis within a string is put back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from kv.base.limits import SQL_TEXT_BYTES_MAX
from sqlproxy.front.syntax.bulk_lists import pieces

ROWS_MIN: Final = 16  # fewer are parsed as quickly
CHARS_MIN: Final = 200
_BLANKS: Final = " \t\r\n"
_DECODED: Final = frozenset({int, str, bool, type(None)})
_COLUMNS_MAX: Final = 100  # more have patterns of their own too long to keep

# Repetitions are possessive, so that no text makes them look twice. Those of groups that can fail
# half-way are not: before 3.11.5 Python goes on where the failed turn has stopped. They look once
# more at each turn, at most.
_LITERAL: Final = (
    r"(?:-?[0-9]++(?:\.[0-9]++)?(?![\w.])|'(?:[^']++|'')*+'|\$[0-9]++(?!\w)"
    r"|(?ai:null|true|false)(?!\w))"  # ASCII: digits and letters of other scripts are names there
)
_SPACE: Final = r"[ \t\r\n]*+"
_NAME: Final = r'(?:\w++|"[^"]++")'
_HEAD: Final = re.compile(
    rf"{_SPACE}insert\s++into\s++{_NAME}(?:\.{_NAME})?{_SPACE}"
    rf"(?:\({_SPACE}{_NAME}{_SPACE}(?:,{_SPACE}{_NAME}{_SPACE})*\){_SPACE})?"
    rf"(?:overriding\s++(?:system|user)\s++value\s++)?values{_SPACE}(?=\()",
    re.IGNORECASE,
)
_FIRST: Final = re.compile(rf"\({_SPACE}{_LITERAL}{_SPACE}(?:,{_SPACE}{_LITERAL}{_SPACE})*\)")
_COMMA: Final = re.compile(rf"{_SPACE},{_SPACE}(?=\()")
_ROWS: Final = msgspec.json.Decoder(list[list[Any]])
_EACH: Final = re.compile(_LITERAL)
_TAIL: Final = re.compile(rf"{_SPACE}(?:(?:on|returning)\b[^$;]*+)?(?:;{_SPACE})?", re.I)


@dataclass(frozen=True, slots=True)
class Rows:
    """`columns`: the literals as they are written, column by column; or, if `decoded`, the values
    that they are: integers, strings without a type, booleans, None.
    """

    count: int
    columns: Sequence[Sequence[Any]]
    decoded: bool = False


def read(text: str) -> tuple[str, Rows] | None:
    """The template and the rows; None: this is something else."""
    if not CHARS_MIN <= len(text) <= SQL_TEXT_BYTES_MAX or "\0" in text:
        return None
    head = _HEAD.match(text)
    first = None if head is None else _FIRST.match(text, head.end())
    if head is None or first is None:
        return None
    width = len(_EACH.findall(first[0]))
    if width > _COLUMNS_MAX:
        return None
    if (decoded := _decoded(text, head.end(), width)) is not None:
        return text[: first.end()], decoded
    row, rows = _patterns(width)
    columns: list[list[object]] = [[] for _ in range(width)]
    end = head.end()
    comma = None
    while there := rows.match(text, end):
        _add(columns, row.findall(text, end, there.end()))
        end = there.end()
        comma = _COMMA.match(text, end)
        if comma is None:
            break
        end = comma.end()
    count = len(columns[0])
    if comma is not None or count < ROWS_MIN or _TAIL.fullmatch(text, end) is None:
        return None
    return f"{text[: first.end()]} {text[end:]}", Rows(count, columns)


def _add(columns: list[list[object]], rows: Sequence[Any]) -> None:
    """Rows behind those that are there; of one column they are its values."""
    if len(columns) == 1:
        columns[0] += rows
        return
    for n, column in enumerate(columns):
        column += [row[n] for row in rows]


def _decoded(text: str, at: int, width: int) -> Rows | None:
    """The rows from here to the end, if they are JSON; see the module."""
    body = text[at:].rstrip(_BLANKS).removesuffix(";").rstrip(_BLANKS)
    if not body.endswith(")"):
        return None
    if '"' in body or "\\" in body or "[" in body or "]" in body:
        return None
    body = body.replace("'", '"').replace("(", "[").replace(")", "]")
    columns: list[list[object]] = [[] for _ in range(width)]
    try:
        for piece in pieces(body, "],"):
            found = _ROWS.decode(f"[{piece}]")
            if set(map(len, found)) != {width}:
                return None
            _add(columns, [row[0] for row in found] if width == 1 else found)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    count = len(columns[0])
    if count < ROWS_MIN:
        return None
    within = max(body.count("["), body.count("]")) > count  # either may stand in a string
    for n, values in enumerate(columns):
        kinds = set(map(type, values))
        if not kinds <= _DECODED:
            return None
        if within and str in kinds:
            columns[n] = [_put_back(v) if type(v) is str else v for v in values]
    return Rows(count, columns, decoded=True)


def _put_back(text: str) -> str:
    return text.replace("[", "(").replace("]", ")")


@lru_cache(maxsize=64)
def _patterns(width: int) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """One row, its literals as groups; and some rows."""

    def row(literal: str) -> str:
        return rf"\({_SPACE}" + rf"{_SPACE},{_SPACE}".join([literal] * width) + rf"{_SPACE}\)"

    one = row(_LITERAL)
    return re.compile(row(f"({_LITERAL})")), re.compile(
        rf"{one}(?:{_SPACE},{_SPACE}{one}){{0,500}}"
    )

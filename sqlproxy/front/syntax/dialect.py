"""What Kvorum takes beside PostgreSQL's grammar, taken out of the text before PostgreSQL's parser
sees it.

    CREATE TABLE t (id int AUTO_INCREMENT, at timestamp ON UPDATE CURRENT_TIMESTAMP,
                    KEY [name] (a, b), INDEX [name] (…), UNIQUE KEY [name] (…))
    SELECT … FROM t AS OF SYSTEM TIME '2026-01-31 12:00' | '-10s' | 1234567 | $1
                    | follower_read_timestamp() | with_max_staleness('10s')

Words are replaced by blanks of the same length, so positions in errors stay true. The words are
looked for among the tokens of PostgreSQL's own scanner, never in literals or comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import postgast

from sqlproxy.values.errors import SYNTAX_ERROR, SqlError

_SUSPECTED: Final = re.compile(
    r"\bauto_increment\b|\bon\s+update\s+(?:current_timestamp|now)\b|\bas\s+of\s+system\b"
    r"|^\s*create\b.*[(,]\s*(?:unique\s+)?(?:key|index)\b",
    re.IGNORECASE | re.DOTALL,
)


MOMENTS: Final = ("follower_read_timestamp", "with_max_staleness")
"""Functions that AS OF SYSTEM TIME takes; what they mean says sqlproxy.session.running.as_of."""
_MOMENT: Final = re.compile(
    rf"'[^']*'|-?\d+(\.\d*)?|\$\d+|{MOMENTS[0]}\(\)|{MOMENTS[1]}\('[^']*'\)"
)


@dataclass(frozen=True, slots=True)
class Key:
    """KEY or UNIQUE KEY inside CREATE TABLE; `columns`: name and whether descending."""

    name: str | None
    columns: tuple[tuple[str, bool], ...]
    unique: bool


@dataclass(frozen=True, slots=True)
class Extras:
    """What was taken out. `as_of`: what follows AS OF SYSTEM TIME, without blanks."""

    auto_increment: frozenset[str] = frozenset()
    on_update: dict[str, str] = field(default_factory=dict)  # column → expression
    keys: tuple[Key, ...] = ()
    as_of: str | None = None

    @property
    def any(self) -> bool:
        return bool(self.auto_increment or self.on_update or self.keys or self.as_of)


NOTHING: Final = Extras()


@dataclass(slots=True)
class _Token:
    text: str  # in lower case unless it is quoted
    start: int  # bytes
    end: int
    depth: int


def suspected(text: str) -> bool:
    """Whether it is worth looking: a cheap test that may be wrong about literals."""
    return _SUSPECTED.search(text) is not None


def separate(text: str) -> tuple[str, Extras]:
    """The text in PostgreSQL's grammar, and what was taken out. Raises SqlError (42601)."""
    raw = bytearray(text.encode())
    tokens = _tokens(text)
    if [t.text for t in tokens[:1]] == ["create"]:
        extras = _table(raw, tokens)
    elif "system" in (t.text for t in tokens):
        extras = _as_of(raw, tokens)
    else:
        extras = NOTHING
    return raw.decode(), extras


def _tokens(text: str) -> list[_Token]:
    try:
        scanned = postgast.scan(text).tokens
    except postgast.PgQueryError as error:
        raise SqlError(SYNTAX_ERROR, str(error.message), position=error.cursorpos) from None
    raw, depth, found = text.encode(), 0, []
    for token in scanned:
        word = raw[token.start : token.end].decode()
        if word.startswith(("--", "/*")):
            continue
        if word == ")":
            depth -= 1
        found.append(_Token(_folded(word), token.start, token.end, depth))
        if word == "(":
            depth += 1
    return found


def _folded(word: str) -> str:
    return word if word.startswith(('"', "'")) else word.lower()


def _name(word: str) -> str:
    return word[1:-1].replace('""', '"') if word.startswith('"') else word


def _blank(raw: bytearray, start: int, end: int) -> None:
    raw[start:end] = b" " * (end - start)


def _as_of(raw: bytearray, tokens: list[_Token]) -> Extras:
    found: str | None = None
    for i, token in enumerate(tokens):
        if token.text == "as" and [t.text for t in tokens[i + 1 : i + 4]] == [
            "of",
            "system",
            "time",
        ]:
            if i + 4 >= len(tokens):
                raise SqlError(SYNTAX_ERROR, "syntax error at end of input", position=len(raw) + 1)
            end = i + 5 if tokens[i + 4].text == "-" else i + 4
            if tokens[i + 4].text in MOMENTS:
                end = next((j for j in range(end, len(tokens)) if tokens[j].text == ")"), end)
            end = min(end, len(tokens) - 1)
            word = "".join(t.text for t in tokens[i + 4 : end + 1])
            if not _MOMENT.fullmatch(word):
                raise SqlError(
                    SYNTAX_ERROR,
                    f'syntax error at or near "{word}"',
                    hint=f"AS OF SYSTEM TIME takes a literal, a parameter, {' or '.join(MOMENTS)}.",
                    position=tokens[i + 4].start + 1,
                )
            if found not in (None, word):
                raise SqlError(
                    SYNTAX_ERROR, "a statement reads at one time only", position=token.start + 1
                )
            found = word
            _blank(raw, token.start, tokens[end].end)
    return Extras(as_of=found)


def _table(raw: bytearray, tokens: list[_Token]) -> Extras:
    words = {t.text for t in tokens[:4]}
    if "table" not in words:
        return NOTHING
    auto: set[str] = set()
    updates: dict[str, str] = {}
    keys: list[Key] = []
    for element, before, after in _elements(tokens):
        if key := _key(element):
            keys.append(key)
            _blank(raw, element[0].start, element[-1].end)
            # The comma goes with it: the one before, unless it is the first element.
            comma = before or after
            if comma is not None:
                if chr(raw[comma.start]) == " " and after is not None:
                    comma = after
                _blank(raw, comma.start, comma.end)
            continue
        column = _name(element[0].text)
        for i, token in enumerate(element):
            following = [t.text for t in element[i : i + 3]]
            if token.text in ("auto_increment", "autoincrement") and i > 1:
                auto.add(column)
                _blank(raw, token.start, token.end)
            elif (
                following[:2] == ["on", "update"]
                and following[2:]
                and following[2]
                in (
                    "current_timestamp",
                    "now",
                    "localtimestamp",
                )
            ):
                end = i + 2
                if [t.text for t in element[end + 1 : end + 2]] == ["("]:
                    end = next(k for k in range(end, len(element)) if element[k].text == ")")
                updates[column] = raw[element[i + 2].start : element[end].end].decode()
                _blank(raw, token.start, element[end].end)
    return Extras(frozenset(auto), updates, tuple(keys))


def _elements(tokens: list[_Token]) -> list[tuple[list[_Token], _Token | None, _Token | None]]:
    """The elements between the outer parentheses, each with the commas before and after it."""
    found: list[tuple[list[_Token], _Token | None, _Token | None]] = []
    opened = next((i for i, t in enumerate(tokens) if t.text == "("), None)
    if opened is None:
        return found
    now: list[_Token] = []
    before: _Token | None = None
    for token in tokens[opened + 1 :]:
        ends = token.text == ")" and token.depth == 0
        if ends or (token.text == "," and token.depth == 1):
            if now:
                found.append((now, before, None if ends else token))
            now, before = [], token
            if ends:
                break
        else:
            now.append(token)
    return found


def _key(element: list[_Token]) -> Key | None:
    words = [t.text for t in element]
    unique = words[0] == "unique" and words[1:2] in (["key"], ["index"])
    if not unique and words[0] not in ("key", "index"):
        return None
    at = 2 if unique else 1
    name = None
    if len(words) > at and words[at] != "(":
        name = _name(words[at])
        at += 1
    # `key int` is a column of that name.
    if (
        len(words) <= at
        or words[at] != "("
        or words[-1] != ")"
        or element[-1].depth != element[at].depth
    ):
        return None
    columns: list[tuple[str, bool]] = []
    part: list[str] = []
    for word in [*words[at + 1 : -1], ","]:
        if word != ",":
            part.append(word)
            continue
        if not part or len(part) > 2 or part[1:] not in ([], ["asc"], ["desc"]):
            return None
        if part[0][0].isdigit():  # `key varchar(20)` is a column, too
            return None
        columns.append((_name(part[0]), part[1:] == ["desc"]))
        part = []
    return Key(name, tuple(columns), unique)

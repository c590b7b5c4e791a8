"""LIKE, SIMILAR TO and regular expressions: PostgreSQL's functions, by the names of its C ones.
What runs a pattern: `sqlproxy.front.functions.linear_patterns`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Final

from kv.base.limits import SQL_PATTERN_CHARS_MAX
from sqlproxy.front.functions.f_text import Pieces
from sqlproxy.front.functions.function import declared, nulls
from sqlproxy.front.functions.linear_patterns import Found, Pattern, regex, too_long, wildcards
from sqlproxy.front.types import letters
from sqlproxy.values.breaks import paused
from sqlproxy.values.errors import INVALID_ESCAPE, INVALID_PARAMETER, SqlError, unsupported
from sqlproxy.values.memory import bytes_of, characters, room

_MARK: Final = re.compile(r"\\(.)", re.DOTALL)  # in a replacement
_GROUPS: Final = frozenset("&123456789")
_MARKS: Final = 1 << 12  # between two breaks
_SPECIAL: Final = re.compile(r"\\(.?)|[%_]", re.DOTALL)


def _like_test(pattern: str) -> Callable[[str], bool]:
    """`_made_test`, which remembers patterns, but none of megabytes."""
    return (_known_test if len(pattern) <= _KNOWN_CHARS_MAX else _made_test)(pattern)


def _made_test(pattern: str) -> Callable[[str], bool]:
    """Whether a value is like a pattern. Raises SqlError for one that ends in an escape character,
    if there is text left when it is reached.
    """
    if "\\" not in pattern and "_" not in pattern:
        return _in_order(_split(pattern))
    if len(pattern) > SQL_PATTERN_CHARS_MAX:
        raise too_long(pattern)
    parts, last, ends_in_escape, wild = [""], 0, False, False
    for mark in _SPECIAL.finditer(pattern):
        parts[-1] += pattern[last : mark.start()]
        last = mark.end()
        match mark[0]:
            case "%":
                parts.append("")
            case "_":
                wild = True
            case "\\":
                ends_in_escape = True
            case _:
                parts[-1] += mark[1]
    parts[-1] += pattern[last:]
    if ends_in_escape:
        there = wildcards(pattern[:-1] + "_%").test

        def unfinished(value: str) -> bool:
            if there(value):
                raise SqlError(INVALID_ESCAPE, "LIKE pattern must not end with escape character")
            return False

        return unfinished
    return wildcards(pattern).test if wild else _in_order(parts)


def _split(pattern: str) -> list[str]:
    """At each %."""
    parts = [""]
    for at in paused(range(0, len(pattern), _PIECE), 1):
        first, *rest = pattern[at : at + _PIECE].split("%")
        parts[-1] += first
        parts += rest
    return parts


_known_test = lru_cache(maxsize=1_024)(_made_test)
_KNOWN_CHARS_MAX: Final = 1_024
_PIECE: Final = 1 << 16


def _in_order(parts: list[str]) -> Callable[[str], bool]:
    """Whether a value is made of these with any text between them: each is looked for once."""
    if len(parts) == 1:
        return lambda value: value == parts[0]
    first, *inner, last = parts
    inner = [part for part in paused(inner) if part]
    shortest = len(first) + len(last)

    def test(value: str) -> bool:
        if len(value) < shortest or not (value.startswith(first) and value.endswith(last)):
            return False
        at, end = len(first), len(value) - len(last)
        for part in paused(inner):
            at = value.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True

    return test


def _like(negated: bool, ignore_case: bool = False) -> Callable[[str, str], bool]:
    def call(value: str, pattern: str) -> bool:
        if ignore_case:
            value, pattern = letters.lower(value), letters.lower(pattern)
        return _like_test(pattern)(value) is not negated

    return call


def _bytea_like(negated: bool) -> Callable[[bytes, bytes], bool]:
    test = _like(negated)
    return lambda value, pattern: test(value.decode("latin-1"), pattern.decode("latin-1"))


def _check_escape(escape: str) -> None:
    """Raises SqlError."""
    if len(escape) > 1:
        raise SqlError(
            INVALID_ESCAPE,
            "invalid escape string",
            hint="Escape string must be empty or one character.",
        )


def _like_escape(pattern: str, escape: str) -> str:
    """LIKE … ESCAPE 'x': the pattern with backslash for the escape character."""
    _check_escape(escape)
    if escape == "\\" or (escape not in pattern if escape else "\\" not in pattern):
        return pattern.replace("\\", "\\\\") if escape != "\\" else pattern
    if len(pattern) > SQL_PATTERN_CHARS_MAX:
        raise too_long(pattern)
    out, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if escape and char == escape:
            at += 1
            if at >= len(pattern):
                raise SqlError(INVALID_ESCAPE, "LIKE pattern must not end with escape character")
            out.append("\\" + pattern[at])
        elif char == "\\":
            out.append("\\\\")
        else:
            out.append(char)
        at += 1
    return "".join(out)


def _matches(negated: bool, flags: str = "") -> Callable[[str, str], bool]:
    def call(value: str, pattern: str) -> bool:
        return regex(pattern, flags).test(value) is not negated

    return call


def similar_to(pattern: str, escape: str | None = "\\") -> str | None:
    """SIMILAR TO's pattern as an advanced regular expression (similar_escape)."""
    if escape is None or pattern is None:
        return None
    _check_escape(escape)
    if len(pattern) > SQL_PATTERN_CHARS_MAX:
        raise too_long(pattern)
    out = ["^(?:"]
    at, inside = 0, False
    while at < len(pattern):
        char = pattern[at]
        if escape and char == escape and at + 1 < len(pattern):
            if pattern[at + 1] == '"':
                raise unsupported("substring by SIMILAR with separators")
            out.append("\\" + pattern[at + 1])
            at += 1
        elif inside:
            out.append("\\\\" if char == "\\" else char)
            inside = char != "]"
        elif char == "[":
            out.append(char)
            inside = True
        elif char == "%":
            out.append(".*")
        elif char == "_":
            out.append(".")
        elif char == "(":
            out.append("(?:")
        elif char in "\\.^$":
            out.append("\\" + char)
        else:
            out.append(char)
        at += 1
    return "".join([*out, ")$"])


def _replacement(pattern: Pattern, text: str) -> Callable[[Found], str]:
    pieces: list[str | int] = []  # text, or the number of a group
    times: Counter[int] = Counter()
    fixed, last = [], 0
    for mark in paused(_MARK.finditer(text), _MARKS):
        fixed.append(text[last : mark.start()])
        last = mark.end()
        if mark[1] in _GROUPS:
            group = 0 if mark[1] == "&" else int(mark[1])
            if group <= pattern.groups:
                pieces += ["".join(fixed), group]
                fixed = []
                times[group] += 1
        else:
            fixed.append("\\" if mark[1] == "\\" else mark[0])
    pieces.append("".join([*fixed, text[last:]]))
    size = characters(len(text) - 2 * times.total(), wide=not text.isascii())

    def call(found: Found) -> str:
        room(size + sum(n * bytes_of(found[group] or "") for group, n in times.items()))
        each = pieces if len(pieces) <= _MARKS else paused(pieces, _MARKS)
        return "".join([one if isinstance(one, str) else found[one] or "" for one in each])

    return call


def _regexp_replace(value: str, pattern: str, text: str, flags: str = "") -> str:
    if flags[:1].isdigit():
        raise SqlError(
            INVALID_PARAMETER,
            f'invalid regular expression option: "{flags[0]}"',
            hint="If you meant to use regexp_replace() with a start parameter, cast the fourth "
            "argument to integer "
            "explicitly.",
        )
    return _replaced(value, regex(pattern, flags), text, 0 if "g" in flags else 1)


def _replaced(value: str, pattern: Pattern, text: str, nth: int, start: int = 0) -> str:
    """With `text` for a match from `start` on; 0: for each. Raises SqlError (54000)."""
    make = _replacement(pattern, text)
    out, last = Pieces(), 0
    for n, found in enumerate(pattern.all(value, start), 1):
        if nth in (0, n):
            out.add(value[last : found.start()])
            out.add(make(found))
            last = found.end()
            if nth:
                break
    out.add(value[last:])
    return out.whole()


def _regexp_replace_nth(
    value: str, pattern: str, text: str, start: int, nth: int = 1, flags: str = ""
) -> str:
    if start < 1:
        raise SqlError(INVALID_PARAMETER, f'invalid value for parameter "start": {start}')
    if nth < 0:
        raise SqlError(INVALID_PARAMETER, f'invalid value for parameter "n": {nth}')
    return _replaced(value, regex(pattern, flags), text, nth, start - 1)


def _regexp_match(value: str, pattern: str, flags: str = "") -> list[object] | None:
    if "g" in flags:
        raise SqlError(
            INVALID_PARAMETER,
            'regexp_match() does not support the "global" option',
            hint="Use the regexp_matches function instead.",
        )
    compiled = regex(pattern, flags)
    found = compiled.search(value)
    if found is None:
        return None
    return list(found.groups()) if compiled.groups else [found[0]]


def _regexp_substring(value: str, pattern: str) -> str | None:
    compiled = regex(pattern)
    found = compiled.search(value)
    return None if found is None else found[1 if compiled.groups else 0]


def _regexp_split(value: str, pattern: str, flags: str = "") -> list[str]:
    out, last = [], 0
    for found in regex(pattern, flags).all(value):
        if found.end() == found.start() and found.start() in (0, len(value), last):
            if found.start() != last or found.start() in (0, len(value)):
                continue
            continue
        out.append(value[last : found.start()])
        last = found.end()
    out.append(value[last:])
    return out


def _regexp_count(value: str, pattern: str, start: int = 1, flags: str = "") -> int:
    if start < 1:
        raise SqlError(INVALID_PARAMETER, f'invalid value for parameter "start": {start}')
    return sum(1 for _ in regex(pattern, flags).all(value, start - 1))


def _regexp_substr(
    value: str, pattern: str, start: int = 1, nth: int = 1, flags: str = "", group: int = 0
) -> str | None:
    _check_places(start, nth, group)
    found = _nth(value, regex(pattern, flags), start, nth, group)
    return None if found is None else found[0][found[1]]


def _check_places(start: int, nth: int, group: int, end: int = 0) -> None:
    """Raises SqlError (22023)."""
    for word, given, fits in (
        ("start", start, start > 0),
        ("n", nth, nth > 0),
        ("endoption", end, end in (0, 1)),
        ("subexpr", group, group >= 0),
    ):
        if not fits:
            raise SqlError(INVALID_PARAMETER, f'invalid value for parameter "{word}": {given}')


def _nth(
    value: str, pattern: Pattern, start: int, nth: int, group: int
) -> tuple[Found, int] | None:
    """A match, and the group of it that is meant: the first one of a pattern without groups is all
    that it matches.
    """
    if group == 1 and not pattern.groups:
        group = 0
    if group > pattern.groups:
        return None
    found = next(islice(pattern.all(value, start - 1), nth - 1, None), None)
    return None if found is None else (found, group)


def _regexp_instr(
    value: str,
    pattern: str,
    start: int = 1,
    nth: int = 1,
    end: int = 0,
    flags: str = "",
    group: int = 0,
) -> int:
    _check_places(start, nth, group, end)
    met = _nth(value, regex(pattern, flags), start, nth, group)
    if met is None:
        return 0
    found, group = met
    return (found.end(group) if end else found.start(group)) + 1


FUNCTIONS: Final = declared(
    {
        **{
            f"regexp_substr{s}": _regexp_substr
            for s in ("", "_no_flags", "_no_n", "_no_start", "_no_subexpr")
        },
        **{
            f"regexp_instr{s}": _regexp_instr
            for s in ("", "_no_endoption", "_no_flags", "_no_n", "_no_start", "_no_subexpr")
        },
        "textlike": _like(False),
        "textnlike": _like(True),
        "texticlike": _like(False, True),
        "texticnlike": _like(True, True),
        "namelike": _like(False),
        "namenlike": _like(True),
        "nameiclike": _like(False, True),
        "nameicnlike": _like(True, True),
        "bytealike": _bytea_like(False),
        "byteanlike": _bytea_like(True),
        "like_escape": _like_escape,
        "textregexeq": _matches(False),
        "textregexne": _matches(True),
        "texticregexeq": _matches(False, "i"),
        "texticregexne": _matches(True, "i"),
        "nameregexeq": _matches(False),
        "nameregexne": _matches(True),
        "nameicregexeq": _matches(False, "i"),
        "nameicregexne": _matches(True, "i"),
        "similar_to_escape_1": similar_to,
        "similar_to_escape_2": similar_to,
        "similar_escape": nulls(similar_to),
        "regexp_match": _regexp_match,
        "regexp_match_no_flags": _regexp_match,
        "regexp_like": lambda v, p, f="": regex(p, f).test(v),
        "regexp_like_no_flags": lambda v, p: regex(p).test(v),
        "regexp_count": _regexp_count,
        "regexp_count_no_flags": _regexp_count,
        "regexp_count_no_start": _regexp_count,
        "textregexsubstr": _regexp_substring,
        "textregexreplace_noopt": _regexp_replace,
        "textregexreplace": _regexp_replace,
        "textregexreplace_extended": _regexp_replace_nth,
        "textregexreplace_extended_no_flags": _regexp_replace_nth,
        "textregexreplace_extended_no_n": _regexp_replace_nth,
        "regexp_split_to_array": _regexp_split,
        "regexp_split_to_array_no_flags": _regexp_split,
    }
)

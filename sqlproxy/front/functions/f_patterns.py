"""LIKE, SIMILAR TO and regular expressions: PostgreSQL's functions, by the names of its C ones.

Patterns become Python's, kept compiled. Where the engines differ: docs/reference/sql.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from sqlproxy.front.functions.function import declared, nulls
from sqlproxy.front.types import letters
from sqlproxy.front.types.letters import SPACES
from sqlproxy.values.errors import (
    INVALID_ESCAPE,
    INVALID_PARAMETER,
    INVALID_REGEX,
    SqlError,
    unsupported,
)


@lru_cache(maxsize=1_024)
def like_pattern(pattern: str, escape: str = "\\") -> re.Pattern[str]:
    """LIKE's pattern as a regular expression; with the group `rest`: it ends in an escape
    character.
    """
    out, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape and escape:
            at += 1
            if at >= len(pattern):
                out.append("(?P<rest>.*)")  # an error, if there is text left when it is reached
                break
            out.append(re.escape(pattern[at]))
        elif char == "%":
            out.append(".*")
        elif char == "_":
            out.append(".")
        else:
            out.append(re.escape(char))
        at += 1
    return re.compile("".join(out), re.DOTALL)


def _like(negated: bool, ignore_case: bool = False) -> Callable[[str, str], bool]:
    def call(value: str, pattern: str) -> bool:
        if ignore_case:
            value, pattern = letters.lower(value), letters.lower(pattern)
        found = like_pattern(pattern)
        if found.groups and (start := found.match(value)) and start["rest"]:
            raise SqlError(INVALID_ESCAPE, "LIKE pattern must not end with escape character")
        return (found.fullmatch(value) is not None and not found.groups) is not negated

    return call


def _bytea_like(negated: bool) -> Callable[[bytes, bytes], bool]:
    def call(value: bytes, pattern: bytes) -> bool:
        found = like_pattern(pattern.decode("latin-1")).fullmatch(value.decode("latin-1"))
        return (found is not None) is not negated

    return call


def _like_escape(pattern: str, escape: str) -> str:
    """LIKE … ESCAPE 'x': the pattern with backslash for the escape character."""
    if len(escape) > 1:
        raise SqlError(
            INVALID_ESCAPE,
            "invalid escape string",
            hint="Escape string must be empty or one character.",
        )
    if escape == "\\":
        return pattern
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


_CONTROLS: Final = r"\x00-\x1f\x7f-\x9f"
_CLASSES: Final[dict[str, Callable[[], str]]] = {
    "digit": lambda: "0-9",
    "xdigit": lambda: "0-9A-Fa-f",
    "blank": lambda: r" \t",
    "cntrl": lambda: _CONTROLS,
    "space": lambda: SPACES,
    "word": lambda: r"\w",
    "upper": letters.large,
    "lower": letters.small,
}
"""Classes of characters as parts of a set; …"""
_SETS: Final = {
    "alpha": r"[^\W0-9_]",
    "alnum": r"[^\W_]",
    "print": rf"[^{_CONTROLS}\u2028\u2029]",
    "graph": rf"[^{_CONTROLS}{SPACES}]",
    "punct": rf"[^\w{_CONTROLS}{SPACES}]|_",
}
"""… those that Python has no part for."""
_ESCAPES: Final = {
    "m": r"\b(?=\w)",
    "M": r"\b(?<=\w)",
    "y": r"\b",
    "Y": r"\B",
    "A": r"\A",
    "Z": r"\Z",
    "d": "[0-9]",
    "D": "[^0-9]",
    "s": f"[{SPACES}]",
    "S": f"[^{SPACES}]",
}
_INSIDE: Final = {"d": "0-9", "s": SPACES}
"""Escapes that are others in a set."""


@lru_cache(maxsize=1_024)
def regex(pattern: str, flags: str = "") -> re.Pattern[str]:  # noqa: C901 - a table of flags
    """PostgreSQL's advanced regular expression as Python's. Raises 2201B; 0A000 for what Python
    lacks.
    """
    bits = 0
    for flag in flags:
        match flag:
            case "i":
                bits |= re.IGNORECASE
            case "c":
                bits &= ~re.IGNORECASE
            case "n" | "m":
                bits |= re.MULTILINE
            case "x":
                bits |= re.VERBOSE
            case "s":
                bits |= re.DOTALL
            case "g" | "t" | "e" | "b" | "q" | "p" | "w":
                if flag in "bpw":
                    raise unsupported(f'the option "{flag}" of regular expressions')
            case _:
                raise SqlError(INVALID_PARAMETER, f'invalid regular expression option: "{flag}"')
    if "q" in flags:
        pattern = re.escape(pattern)
    elif pattern.startswith("***="):
        pattern = re.escape(pattern[4:])
    else:
        pattern = _translated(pattern.removeprefix("***:"))
    if not bits & re.MULTILINE:
        bits |= re.DOTALL
    try:
        return re.compile(pattern, bits)
    except (re.error, OverflowError, RecursionError) as error:
        raise SqlError(INVALID_REGEX, f"invalid regular expression: {_words(str(error))}") from None


def _words(problem: str) -> str:
    """Python's complaint in PostgreSQL's words, where the two say the same."""
    for mine, theirs in (
        ("missing ), unterminated subpattern", "parentheses () not balanced"),
        ("unbalanced parenthesis", "parentheses () not balanced"),
        ("unterminated character set", "brackets [] not balanced"),
        ("nothing to repeat", "quantifier operand invalid"),
        ("multiple repeat", "quantifier operand invalid"),
        ("min repeat greater than max repeat", "invalid repetition count(s)"),
        ("bad character range", "invalid character range"),
        ("invalid group reference", "invalid backreference number"),
        ("bad escape (end of pattern)", "invalid escape \\ sequence"),
    ):
        if problem.startswith(mine):
            return theirs
    return problem


def _translated(pattern: str) -> str:
    out: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            following = pattern[at + 1]
            out.append(_ESCAPES.get(following, char + following))
            at += 2
        elif pattern.startswith(("[[:<:]]", "[[:>:]]"), at):
            out.append(_ESCAPES["m" if pattern[at + 3] == "<" else "M"])
            at += 7
        elif char == "[":
            text, at = _set(pattern, at + 1)
            out.append(text)
        else:
            out.append(char)
            at += 1
    return "".join(out)


def _set(pattern: str, at: int) -> tuple[str, int]:
    """A set of characters from after its bracket, and where it ends."""
    negated = pattern.startswith("^", at)
    at += negated
    parts: list[str] = []
    sets: list[str] = []  # beside them
    if pattern.startswith("]", at):
        parts.append(r"\]")
        at += 1
    while at < len(pattern) and pattern[at] != "]":
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            parts.append(_INSIDE.get(pattern[at + 1], pattern[at : at + 2]))
            at += 2
        elif pattern.startswith("[:", at):
            close = pattern.find(":]", at)
            name = pattern[at + 2 : close] if close > 0 else ""
            if name in _SETS:
                sets.append(_SETS[name])
            elif name in _CLASSES:
                parts.append(_CLASSES[name]())
            else:
                raise SqlError(INVALID_REGEX, "invalid regular expression: invalid character class")
            at = close + 2
        else:
            parts.append("\\[" if char == "[" else char)
            at += 1
    end = "]" if at < len(pattern) else ""  # without it, it is not balanced: Python says so
    listed = "".join(parts)
    if not sets:
        return f"[{'^' * negated}{listed}{end}", at + 1
    if not negated:
        both = [f"[{listed}{end}"] if listed or not end else []
        return f"(?:{'|'.join([*both, *sets])})", at + 1
    rest = f"[^{listed}{end}" if listed or not end else r"[\s\S]"
    return f"(?:(?!{'|'.join(sets)}){rest})", at + 1


def _matches(negated: bool, flags: str = "") -> Callable[[str, str], bool]:
    def call(value: str, pattern: str) -> bool:
        return (regex(pattern, flags).search(value) is not None) is not negated

    return call


def similar_to(pattern: str, escape: str | None = "\\") -> str | None:
    """SIMILAR TO's pattern as an advanced regular expression (similar_escape)."""
    if escape is None or pattern is None:
        return None
    if len(escape) > 1:
        raise SqlError(
            INVALID_ESCAPE,
            "invalid escape string",
            hint="Escape string must be empty or one character.",
        )
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


def _replacement(text: str) -> Callable[[re.Match[str]], str]:
    parts = re.split(r"\\(.)", text, flags=re.DOTALL)

    def call(found: re.Match[str]) -> str:
        out = [parts[0]]
        for i in range(1, len(parts), 2):
            mark = parts[i]
            if mark == "&":
                out.append(found[0])
            elif mark.isdigit() and mark != "0":
                out.append((found[int(mark)] or "") if int(mark) <= (found.re.groups) else "")
            elif mark == "\\":
                out.append("\\")
            else:
                out.append("\\" + mark)
            out.append(parts[i + 1])
        return "".join(out)

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
    return regex(pattern, flags).sub(_replacement(text), value, count=0 if "g" in flags else 1)


def _regexp_replace_nth(
    value: str, pattern: str, text: str, start: int, nth: int = 1, flags: str = ""
) -> str:
    if start < 1:
        raise SqlError(INVALID_PARAMETER, f'invalid value for parameter "start": {start}')
    if nth < 0:
        raise SqlError(INVALID_PARAMETER, f'invalid value for parameter "n": {nth}')
    head, rest = value[: start - 1], value[start - 1 :]
    compiled = regex(pattern, flags)
    make = _replacement(text)
    if nth == 0:
        return head + compiled.sub(make, rest)
    for i, found in enumerate(compiled.finditer(rest), 1):
        if i == nth:
            return head + rest[: found.start()] + make(found) + rest[found.end() :]
    return value


def _regexp_match(value: str, pattern: str, flags: str = "") -> list[Any] | None:
    if "g" in flags:
        raise SqlError(
            INVALID_PARAMETER,
            'regexp_match() does not support the "global" option',
            hint="Use the regexp_matches function instead.",
        )
    found = regex(pattern, flags).search(value)
    if found is None:
        return None
    return list(found.groups()) if found.re.groups else [found[0]]


def _regexp_substring(value: str, pattern: str) -> str | None:
    found = regex(pattern).search(value)
    if found is None:
        return None
    text: str | None = found[1] if found.re.groups else found[0]
    return text


def _regexp_split(value: str, pattern: str, flags: str = "") -> list[str]:
    out, last = [], 0
    for found in regex(pattern, flags).finditer(value):
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
    return sum(1 for _ in regex(pattern, flags).finditer(value[start - 1 :]))


def _regexp_substr(
    value: str, pattern: str, start: int = 1, nth: int = 1, flags: str = "", group: int = 0
) -> str | None:
    for word, given in (("start", start), ("n", nth)):
        if given < 1:
            raise SqlError(INVALID_PARAMETER, f'invalid value for parameter "{word}": {given}')
    for i, found in enumerate(regex(pattern, flags).finditer(value[start - 1 :]), 1):
        if i == nth:
            text: str | None = found[group] if group <= found.re.groups else None
            return text
    return None


def _regexp_instr(
    value: str,
    pattern: str,
    start: int = 1,
    nth: int = 1,
    end: int = 0,
    flags: str = "",
    group: int = 0,
) -> int:
    for word, given in (("start", start), ("n", nth)):
        if given < 1:
            raise SqlError(INVALID_PARAMETER, f'invalid value for parameter "{word}": {given}')
    for i, found in enumerate(regex(pattern, flags).finditer(value[start - 1 :]), 1):
        if i == nth and group <= found.re.groups:
            place = found.end(group) if end else found.start(group)
            return place + start if place >= 0 else 0
    return 0


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
        "similar_to_escape_1": similar_to,
        "similar_to_escape_2": similar_to,
        "similar_escape": nulls(similar_to),
        "regexp_match": _regexp_match,
        "regexp_match_no_flags": _regexp_match,
        "regexp_like": lambda v, p, f="": regex(p, f).search(v) is not None,
        "regexp_like_no_flags": lambda v, p: regex(p).search(v) is not None,
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

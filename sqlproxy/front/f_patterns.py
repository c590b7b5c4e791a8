"""LIKE, SIMILAR TO and regular expressions: PostgreSQL's functions, by the names of its C ones.

Patterns become Python's, kept compiled. Where the engines differ: docs/reference/sql.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from sqlproxy.errors import (
    INVALID_ESCAPE,
    INVALID_PARAMETER,
    INVALID_REGEX,
    SqlError,
    unsupported,
)


@lru_cache(maxsize=1_024)
def like_pattern(pattern: str, escape: str = "\\", ignore_case: bool = False) -> re.Pattern[str]:
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
    # the locale is C: letters of ASCII only have two cases
    flags = re.DOTALL | re.ASCII | (re.IGNORECASE if ignore_case else 0)
    return re.compile("".join(out), flags)


def _like(negated: bool, ignore_case: bool = False) -> Callable[[str, str], bool]:
    def call(value: str, pattern: str) -> bool:
        found = like_pattern(pattern, "\\", ignore_case)
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


_CLASSES: Final = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z",
    "space": r"\s",
    "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f",
    "print": r"\x20-\x7e", "graph": r"\x21-\x7e", "word": r"\w",
}  # fmt: skip
_ESCAPES: Final = {
    "m": r"\b(?=\w)",
    "M": r"\b(?<=\w)",
    "y": r"\b",
    "Y": r"\B",
    "A": r"\A",
    "Z": r"\Z",
}


@lru_cache(maxsize=1_024)
def regex(pattern: str, flags: str = "") -> re.Pattern[str]:  # noqa: C901 - a table of flags
    """PostgreSQL's advanced regular expression as Python's. Raises 2201B; 0A000 for what Python
    lacks.
    """
    bits = int(re.ASCII)  # the locale is C: its classes and cases are those of ASCII
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
    at, inside = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            following = pattern[at + 1]
            out.append(
                _ESCAPES[following] if following in _ESCAPES and not inside else char + following
            )
            at += 2
            continue
        if inside and pattern.startswith("[:", at):
            end = pattern.find(":]", at)
            name = pattern[at + 2 : end] if end > 0 else ""
            if name not in _CLASSES:
                raise SqlError(INVALID_REGEX, "invalid regular expression: invalid character class")
            out.append(_CLASSES[name])
            at = end + 2
            continue
        if not inside and pattern.startswith(("[[:<:]]", "[[:>:]]"), at):
            out.append(_ESCAPES["m" if pattern[at + 3] == "<" else "M"])
            at += 7
            continue
        if char == "[" and not inside:
            inside = True
            out.append(char)
            at += 1
            if pattern[at : at + 1] == "^":
                out.append("^")
                at += 1
            if pattern[at : at + 1] == "]":
                out.append(r"\]")
                at += 1
            continue
        if char == "]" and inside:
            inside = False
        elif char == "[" and inside:
            out.append("\\")
        out.append(char)
        at += 1
    return "".join(out)


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


FUNCTIONS: Final[dict[str, Any]] = {
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
    "similar_escape": similar_to,
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
NON_STRICT: Final = frozenset(("similar_escape",))

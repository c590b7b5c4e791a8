"""Regular expressions and patterns of LIKE in time linear in what they look at, whatever a client
asks: RE2 runs them, and nothing backtracks.

    PostgreSQL's advanced syntax ─▶ RE2's ─┬▶ for ASCII texts: small programs, \\b as it should be
                                           └▶ for others, when the first comes: classes of Unicode

RE2 decides leftmost-first, as Perl does; PostgreSQL takes the longest match. It has neither back
references nor lookaround, which are 0A000; of the ends of words it has \\b over ASCII: `\\m` and
`\\M` are that beside what is a part of a word, and a text with other letters is 0A000 for them.

Linear is not enough: RE2's last resort costs the product of the program's size and the text's. More
than SQL_PATTERN_STEPS_MAX of that is 54000.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Protocol

import re2

from kv.base.limits import SQL_PATTERN_BYTES_MAX, SQL_PATTERN_CHARS_MAX, SQL_PATTERN_STEPS_MAX
from sqlproxy.front.types import letters
from sqlproxy.front.types.letters import SPACES
from sqlproxy.values.breaks import paused
from sqlproxy.values.errors import (
    INVALID_PARAMETER,
    INVALID_REGEX,
    LIMIT_EXCEEDED,
    SqlError,
    unsupported,
)


class Found(Protocol):
    """A match."""

    def __getitem__(self, group: int) -> str | None: ...
    def start(self, group: int = 0) -> int: ...
    def end(self, group: int = 0) -> int: ...
    def groups(self) -> tuple[str | None, ...]: ...


class Pattern:
    """A compiled one. Raises SqlError: 2201B, 0A000 or 54000."""

    def __init__(self, ascii: str, wide: str | None, ignore_case: bool = False) -> None:
        """`wide`: for texts beyond ASCII; None: there they are 0A000."""
        self._wide, self._ignore_case = wide, ignore_case
        self._compiled: dict[tuple[bool, bool], re2._Regexp] = {}
        self._sources = {True: ascii, False: wide}
        self.groups: int = self._program(True, True).groups

    def _program(self, ascii: bool, grouped: bool) -> re2._Regexp:
        found = self._compiled.get((ascii, grouped))
        if found is None:
            source = self._sources[ascii]
            if source is None:
                raise unsupported(
                    "an end of a word (\\m, \\M, \\y, \\Y) in a text with letters beyond ASCII"
                )
            options = re2.Options()
            options.log_errors = False
            options.case_sensitive = not self._ignore_case
            options.never_capture = not grouped
            options.max_mem = SQL_PATTERN_BYTES_MAX
            try:
                found = re2.compile(source, options)
            except re2.error as error:
                raise _refused(error.args[0]) from None
            self._compiled[ascii, grouped] = found
        return found

    def _for(self, text: str, grouped: bool) -> re2._Regexp:
        program = self._program(text.isascii(), grouped)
        if program.programsize * len(text) > SQL_PATTERN_STEPS_MAX:
            raise SqlError(
                LIMIT_EXCEEDED,
                f"a pattern of {program.programsize} steps is too much for a text of {len(text)} "
                f"characters: together they are more than {SQL_PATTERN_STEPS_MAX}",
                hint="Use a shorter pattern, or a part of the text.",
            )
        return program

    def test(self, text: str) -> bool:
        """Whether it matches somewhere."""
        return self._for(text, False).search(text.encode()) is not None

    def search(self, text: str) -> Found | None:
        found: Found | None = self._for(text, True).search(text)
        return found

    def all(self, text: str, start: int = 0) -> Iterator[Found]:
        """All matches from a place on, from left to right; what is before it is seen by `^` and
        ends of words.
        """
        if start <= len(text):
            yield from paused(_each_once(self._for(text, True).finditer(text, start)))


def _each_once(many: Iterator[Found]) -> Iterator[Found]:
    """RE2's wrapper finds an empty match that it had to look for a second time."""
    last = None
    for found in many:
        if (span := (found.start(), found.end())) != last:
            yield found
        last = span


@lru_cache(maxsize=256)
def wildcards(pattern: str) -> Pattern:
    """`%` is any text, `_` any character, a backslash takes the meaning of the next one."""
    if len(pattern) > SQL_PATTERN_CHARS_MAX:
        raise too_long(pattern)
    out = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += char == "\\"
        if char == "%":
            out.append(".*")
        elif char == "_":
            out.append(".")
        else:
            out.append(re2.escape(pattern[at : at + 1]))
        at += 1
    if len(pattern) > SQL_PATTERN_CHARS_MAX:
        raise too_long(pattern)
    text = rf"(?s)\A(?:{''.join(out)})\z"
    return Pattern(text, text)


# -- PostgreSQL's advanced regular expressions

_CONTROLS: Final = r"\x00-\x1f\x{7f}-\x{9f}"
_SEEN: Final = r"\pL\pM\pN\pP\pS\p{Cf}\p{Co}"
_WIDE: Final[dict[str, str]] = {
    "digit": "0-9",
    "xdigit": "0-9A-Fa-f",
    "blank": r" \t",
    "cntrl": _CONTROLS,
    "space": SPACES,
    "print": rf"{_SEEN} \x{{a0}}\x{{1680}}\x{{2000}}-\x{{200a}}\x{{202f}}\x{{205f}}\x{{3000}}",
    "graph": rf"{_SEEN}\x{{a0}}\x{{2007}}\x{{202f}}",
}
"""Classes of characters as parts of a set, but for those that letters.py makes; …"""
_ASCII: Final[dict[str, str]] = {
    **_WIDE,
    "cntrl": r"\x00-\x1f\x7f",
    "space": r"\t-\r ",
    "word": "0-9A-Za-z_",
    "alpha": "A-Za-z",
    "alnum": "0-9A-Za-z",
    "print": " -~",
    "graph": "!-~",
    "punct": "!-/:-@[-`{-~",
    "upper": "A-Z",
    "lower": "a-z",
}
"""… and in ASCII."""
_SHORT: Final = {"d": "digit", "s": "space", "w": "word"}
_CONTROL: Final = {
    "a": r"\a",
    "b": r"\x08",
    "B": r"\\",
    "e": r"\x1b",
    "f": r"\f",
    "n": r"\n",
    "r": r"\r",
    "t": r"\t",
    "v": r"\v",
    "0": r"\x00",
}
_ENDS: Final = {"m": r"\b", "M": r"\b", "y": r"\b", "Y": r"\B", "<": r"\b", ">": r"\b"}
_OF_WORDS: Final = (
    r"(?:(?<!\\)[0-9A-Za-z_]|\\[wd]"
    r"|\[(?:[0-9A-Za-z_](?:-[0-9A-Za-z])?|\[:(?:alpha|alnum|x?digit|upper|lower|word):\]|\\[wd])+\])"
)
_BEGINS: Final = re.compile(rf"(?:\((?:\?:)?)*{_OF_WORDS}(?![?*{{])")
_ENDED: Final = re.compile(rf"{_OF_WORDS}\+?\)*\Z")


_OPTIONS: Final = frozenset("bceimnpqstwx")
_OWN_OPTIONS: Final = re.compile(r"\(\?([A-Za-z]+)(\))?")  # which a pattern begins with
_LINES: Final = {"n": "(?m)", "m": "(?m)", "p": "(?-s)", "w": "(?ms)", "s": "(?s)"}
"""What options say of line feeds: whether a dot matches one (s), and ^ and $ stand beside one."""


@lru_cache(maxsize=256)
def regex(pattern: str, flags: str = "") -> Pattern:
    """PostgreSQL's advanced regular expression. Raises SqlError: 2201B; 0A000 for what RE2 lacks,
    22023 for options that are none.
    """
    if len(pattern) > SQL_PATTERN_CHARS_MAX:
        raise too_long(pattern)
    ignore_case = expanded = False
    how = "(?s)"
    pattern, own, quoted = _beginning(pattern, quoted="q" in flags)
    for flag in flags[:SQL_PATTERN_CHARS_MAX] + own:
        match flag:
            case "i" | "c":
                ignore_case = flag == "i"
            case "n" | "m" | "p" | "w" | "s":
                how = _LINES[flag]
            case "x" | "t":
                expanded = flag == "x"
            case "b":
                raise unsupported(f'the option "{flag}" of regular expressions')
            case "g" | "e" | "q":
                pass
            case _:
                raise SqlError(INVALID_PARAMETER, f'invalid regular expression option: "{flag}"')
    if quoted:
        literal = re2.escape(pattern)
        return Pattern(literal, literal, ignore_case)
    narrow = _Translation(pattern, expanded, True)
    wide = None if narrow.ends else how + _Translation(pattern, expanded, False).text
    return Pattern(how + narrow.text, wide, ignore_case)


def _beginning(pattern: str, *, quoted: bool) -> tuple[str, str, bool]:
    """What comes behind the options that a pattern begins with, these, and whether it is a text as
    it stands. Raises SqlError (2201B).
    """
    if quoted:
        return pattern, "", True
    if pattern.startswith("***="):
        return pattern[4:], "", True
    pattern = pattern.removeprefix("***:")
    found = _OWN_OPTIONS.match(pattern)
    if found is None:
        return pattern, "", False
    if not found[2] or not _OPTIONS.issuperset(found[1]):
        raise SqlError(INVALID_REGEX, "invalid regular expression: invalid embedded option")
    return pattern[found.end() :], found[1], "q" in found[1]


class _Translation:
    """`text`: RE2's syntax; `ends`: it asks where words end."""

    def __init__(self, pattern: str, expanded: bool, ascii: bool) -> None:
        self._pattern, self._expanded = pattern, expanded
        self._classes = _ASCII if ascii else _WIDE
        self.ends = False
        out: list[str] = []
        at = 0
        while at < len(pattern):
            text, at = self._next(at)
            out.append(text)
        self.text = "".join(out)

    def _next(self, at: int) -> tuple[str, int]:
        """What is at a place, and where the next one begins."""
        pattern, char = self._pattern, self._pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            return self._escaped(at)
        if pattern.startswith(("[[:<:]]", "[[:>:]]"), at):
            return self._end("m" if pattern[at + 3] == "<" else "M", at, at + 7), at + 7
        if char == "[":
            return self._set(at + 1)
        if pattern.startswith("(?#", at):
            return "", (pattern.find(")", at) + 1) or len(pattern)
        if pattern.startswith(("(?=", "(?!", "(?<=", "(?<!"), at):
            raise unsupported("lookahead and lookbehind in a regular expression")
        if pattern.startswith("(?", at) and not pattern.startswith("(?:", at):  # RE2 has more
            raise SqlError(INVALID_REGEX, "invalid regular expression: quantifier operand invalid")
        if self._expanded and char in " \t\n\v\f\r":
            return "", at + 1
        if self._expanded and char == "#":
            return "", (pattern.find("\n", at) + 1) or len(pattern)
        return char, at + 1

    def _escaped(self, at: int) -> tuple[str, int]:
        pattern, char = self._pattern, self._pattern[at + 1]
        if char in _ENDS and char.isalpha():
            return self._end(char, at, at + 2), at + 2
        if char.lower() in _SHORT:
            negated = "^" * char.isupper()
            return f"[{negated}{self._class(_SHORT[char.lower()])}]", at + 2
        if char == "A":
            return r"\A", at + 2
        if char == "Z":
            return r"\z", at + 2
        return _character(pattern, at)

    def _end(self, kind: str, at: int, after: int) -> str:
        """Where a word begins, ends, or either, or neither."""
        self.ends = True
        if kind == "m" and not _all_of(_BEGINS, self._pattern, after):
            raise unsupported("\\m before what may be no part of a word")
        if kind == "M" and not _ENDED.search(self._pattern, 0, at):
            raise unsupported("\\M after what may be no part of a word")
        return _ENDS[kind]

    def _class(self, name: str) -> str:
        if name in self._classes:
            return self._classes[name]
        match name:
            case "alpha":
                return letters.alphabetic()
            case "alnum":
                return "0-9" + letters.alphabetic()
            case "word":
                return "0-9_" + letters.alphabetic()
            case "punct":
                return letters.punctuation()
            case "upper":
                return letters.large()
            case "lower":
                return letters.small()
            case _:
                pass
        raise SqlError(INVALID_REGEX, "invalid regular expression: invalid character class")

    def _set(self, at: int) -> tuple[str, int]:
        """A set of characters from after its bracket, and where it ends."""
        pattern = self._pattern
        out = ["["]
        if pattern.startswith("^", at):
            out.append("^")
            at += 1
        if pattern.startswith("]", at):
            out.append(r"\]")
            at += 1
        while at < len(pattern) and pattern[at] != "]":
            char = pattern[at]
            if char == "\\" and at + 1 < len(pattern):
                if pattern[at + 1] in _SHORT:
                    text, at = self._class(_SHORT[pattern[at + 1]]), at + 2
                elif pattern[at + 1] in "DSW":
                    raise SqlError(
                        INVALID_REGEX, "invalid regular expression: invalid escape \\ sequence"
                    )
                else:
                    text, at = _character(pattern, at)
                out.append(text)
            elif pattern.startswith("[:", at):
                close = pattern.find(":]", at)
                out.append(self._class(pattern[at + 2 : close] if close > 0 else ""))
                at = close + 2
            elif pattern.startswith(("[.", "[="), at):
                raise unsupported("collating elements in a regular expression")
            else:
                out.append("\\" + char if char in "[^&~" else char)
                at += 1
        out.append("]" if at < len(pattern) else "")  # without it RE2 says that it is not balanced
        return "".join(out), at + 1


def too_long(pattern: str) -> SqlError:
    return SqlError(
        LIMIT_EXCEEDED,
        f"a pattern of {len(pattern)} characters is more than {SQL_PATTERN_CHARS_MAX}",
    )


def _all_of(begins: re.Pattern[str], pattern: str, at: int) -> bool:
    """Whether what comes, and each branch of the groups that begin here, begins with a part of a
    word.
    """
    if not begins.match(pattern, at):
        return False
    depth, n = 0, at
    while n < len(pattern) and (depth or n == at or pattern[n - 1] == "("):
        depth += (pattern[n] == "(") - (pattern[n] == ")")
        if pattern[n] == "|" and not begins.match(pattern, n + 1):
            return False
        n += 1
    return True


def _character(pattern: str, at: int) -> tuple[str, int]:
    """One character that an escape stands for. Raises SqlError."""
    char = pattern[at + 1]
    for mark, digits in (("u", 4), ("U", 8), ("x", 2)):
        if char == mark:
            code = re.compile(rf"[0-9A-Fa-f]{{{1 if mark == 'x' else digits},{digits}}}").match(
                pattern, at + 2
            )
            if code is not None:
                return f"\\x{{{code[0]}}}", code.end()
    if char in _CONTROL:
        return _CONTROL[char], at + 2
    if char == "c" and at + 2 < len(pattern):
        return f"\\x{{{ord(pattern[at + 2]) & 31:x}}}", at + 3
    if char in "123456789":
        raise unsupported("back references in a regular expression")
    if char.isascii() and char.isalpha():
        raise SqlError(INVALID_REGEX, "invalid regular expression: invalid escape \\ sequence")
    return re2.escape(char), at + 2


def _refused(said: bytes | str) -> SqlError:
    """RE2's complaint in PostgreSQL's words, where the two say the same."""
    problem = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    for mine, theirs in (
        ("missing )", "parentheses () not balanced"),
        ("unexpected )", "parentheses () not balanced"),
        ("missing ]", "brackets [] not balanced"),
        ("no argument for repetition", "quantifier operand invalid"),
        ("bad repetition operator", "quantifier operand invalid"),
        ("invalid repetition size", "invalid repetition count(s)"),
        ("invalid character class range", "invalid character range"),
        ("trailing \\", "invalid escape \\ sequence"),
    ):
        if problem.startswith(mine):
            return SqlError(INVALID_REGEX, f"invalid regular expression: {theirs}")
    if problem.startswith("pattern too large"):
        return SqlError(
            INVALID_REGEX, "invalid regular expression: regular expression is too complex"
        )
    return SqlError(INVALID_REGEX, f"invalid regular expression: {problem}")

"""A text of SQL as its statements, so that each is sent by itself, as psql does.

A semicolon ends a statement outside of '…' (with '' and, in E'…', with backslashes), "…",
$tag$…$tag$, comments (-- and nested /* */) and parentheses. Behind COPY … FROM STDIN; come its
lines, up to one of \\. alone. A line that begins with a backslash where a statement may is a
statement, as \\restrict of dumps. Not read: BEGIN ATOMIC of functions, which there are none of.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_SKIPPED: Final = re.compile(r"(?:\s|--[^\n]*)+")
_BLANK: Final = re.compile(r"\s*(?:--.*)?", re.DOTALL)
_TAG: Final = re.compile(r"\$(?:[^\W\d]\w*)?\$")
_WORD: Final = re.compile(r"\w[\w$]*")
_COMMENT: Final = re.compile(r"/\*|\*/")
_QUOTED: Final = {
    "'": re.compile(r"'[^']*(?:''[^']*)*'"),
    '"': re.compile(r'"[^"]*(?:""[^"]*)*"'),
}
_ESCAPED: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_COPY_IN: Final = re.compile(r"copy\s+(?!\()[^;]*?\bfrom\s+stdin\b", re.IGNORECASE)
_COPY_END: Final = re.compile(r"^\\\.[ \t]*(?:\r?\n|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statement:
    """`at`: characters before it. `data`: of COPY FROM STDIN; None: there are no lines for it."""

    at: int
    text: str
    data: str | None = None

    @property
    def copies_in(self) -> bool:
        return _COPY_IN.match(self.text) is not None

    @property
    def to_client(self) -> bool:
        """A command of psql's."""
        return self.text.startswith("\\")

    @property
    def copies(self) -> bool:
        return self.text[:4].lower() == "copy"


def split(text: str) -> tuple[list[Statement], bool]:
    """The statements, and whether the last one is whole. What is blank or a comment is none."""
    found: list[Statement] = []
    at = 0
    while (at := _begin(text, at)) < len(text):
        if text[at] == "\\":
            command = text[at:].partition("\n")[0]
            found.append(Statement(at, command.rstrip()))
            at += len(command)
            continue
        end = _end(text, at)
        if end is None:
            found.append(Statement(at, text[at:].rstrip()))
            return found, False
        said = Statement(at, text[at:end])
        at = end + 1
        if not said.text.strip():
            continue
        if (
            said.copies_in
            and (line := text.find("\n", at)) >= 0
            and _BLANK.fullmatch(text, at, line)
        ):
            last = _COPY_END.search(text, line + 1)
            data = text[line + 1 : last.start() if last else len(text)]
            found.append(Statement(said.at, said.text, data))
            if last is None:
                return found, False
            at = last.end()
        else:
            found.append(said)
    return found, True


def _begin(text: str, at: int) -> int:
    """Behind blanks and comments."""
    while at < len(text):
        if (blank := _SKIPPED.match(text, at)) is not None:
            at = blank.end()
        elif text.startswith("/*", at):
            at = _behind_comment(text, at) or len(text)
        else:
            break
    return at


def _end(text: str, at: int) -> int | None:
    """Where the semicolon is; None: there is none."""
    depth = 0
    while at < len(text):
        char = text[at]
        behind: int | None = at + 1
        if char in _QUOTED:
            behind = _match_end(_QUOTED[char], text, at)
        elif char == "$" and (tag := _TAG.match(text, at)) is not None:
            close = text.find(tag[0], tag.end())
            behind = None if close < 0 else close + len(tag[0])
        elif text.startswith(("--", "/*"), at):
            behind = _begin(text, at)
        elif char in "()":
            depth = max(0, depth + (1 if char == "(" else -1))
        elif char == ";" and depth == 0:
            return at
        elif (word := _WORD.match(text, at)) is not None:
            behind = word.end()
            if word[0] in ("e", "E") and text.startswith("'", behind):
                behind = _match_end(_ESCAPED, text, behind)
        if behind is None:
            return None
        at = behind
    return None


def _match_end(pattern: re.Pattern[str], text: str, at: int) -> int | None:
    found = pattern.match(text, at)
    return None if found is None else found.end()


def _behind_comment(text: str, at: int) -> int | None:
    depth = 0
    for mark in _COMMENT.finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return None

"""Letters as PostgreSQL knows them in the locale C.UTF-8: each has one other case at most, whatever
stands beside it. Pure.

So `upper('ß')` is 'ß' and the last sigma of a word is one as any other, which Python's own methods
do otherwise. Compared with a server for each code point: tests/sqlproxy/front/test_letters.py.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Final

SPACES: Final = "\t-\r \u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000"
"""Those that are spaces, as a part of a set in a regular expression."""
_CASED_TO: Final = 0x20000  # no letter after it has two cases


def lower(text: str) -> str:
    """In small letters."""
    if "Σ" not in text and "İ" not in text:
        return text.lower()
    return "".join(["i" if char == "İ" else char.lower() for char in text])


def upper(text: str) -> str:
    """In large letters."""
    made = text.upper()
    return made if len(made) == len(text) else "".join(map(_upper, text))


def _upper(char: str) -> str:
    made = char.upper()
    if len(made) > 1:  # of ᾳ the large letter is its title's; ß has none
        made = char.title()
    return made if len(made) == 1 else char


def in_word(char: str) -> bool:
    """Whether it is a letter or a digit; fractions and raised digits are none."""
    return char.isalnum() and (char.isascii() or unicodedata.category(char) != "No")


@cache
def large() -> str:
    """All large letters, as a part of a set."""
    return _ranges(str.istitle)


@cache
def small() -> str:
    return _ranges(lambda char: char.islower() or char in "ǅǈǋǲ")


def _ranges(meant: Callable[[str], bool]) -> str:
    found: list[list[int]] = []
    for at in range(_CASED_TO):
        if meant(chr(at)):
            if found and found[-1][1] == at - 1:
                found[-1][1] = at
            else:
                found.append([at, at])
    return "".join(chr(a) if a == b else f"{chr(a)}-{chr(b)}" for a, b in found)

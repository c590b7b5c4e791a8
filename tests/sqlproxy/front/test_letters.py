"""Letters as a PostgreSQL 15 in the locale C.UTF-8 has them (sqlproxy.front.types.letters).

letters.json is what it said of each code point: `lower` and `upper` are those that change and what
they become, the others the members of the classes upper, lower, space, alpha and punct.
"""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from sqlproxy.front.functions.f_patterns import FUNCTIONS
from sqlproxy.front.functions.f_text import FUNCTIONS as FUNCTIONS_OF_TEXT
from sqlproxy.front.functions.linear_patterns import regex
from sqlproxy.front.types import letters

TOLD: dict[str, Any] = json.loads(Path(__file__).with_name("letters.json").read_text("utf-8"))
_SLICE = 1_000  # characters: a pattern is bounded by the text's length
EVERY = "".join(map(chr, (*range(1, 0xD800), *range(0xE000, 0x110000))))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["lower", "upper"])
def test_letters_change_as_in_postgresql(case: str) -> None:
    """A letter has another large or small one, or becomes two."""
    before, after = TOLD[case]
    expected = dict(zip(before, after, strict=True))
    make = getattr(letters, case)
    assert [c for c in EVERY if make(c) != expected.get(c, c)] == []
    assert make(before) == after, "in a text they are others than alone"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "told"), [("upper", "large"), ("lower", "small"), ("space", "spaces")]
)
def test_classes_have_the_letters_of_postgresql(name: str, told: str) -> None:
    """A class of a regular expression has other characters."""
    pattern = regex(f"[[:{name}:]]")
    parts = (EVERY[at : at + _SLICE] for at in range(0, len(EVERY), _SLICE))
    found = [one[0] or "" for part in parts for one in pattern.all(part)]
    assert "".join(found) == TOLD[told]


@pytest.mark.parametrize(
    ("pattern", "told", "others"),
    [
        ("[[:alpha:]]+", "alphabetic", ""),
        ("[[:punct:]]+", "punctuation", ""),
        pytest.param(r"\w+", "alphabetic", "0123456789_", marks=pytest.mark.slow),
        pytest.param("[[:alnum:]]+", "alphabetic", "0123456789", marks=pytest.mark.slow),
    ],
)
def test_marks_and_digits_are_letters_as_in_postgresql(
    pattern: str, told: str, others: str
) -> None:
    """The vowels of Hindi end a word, or digits of Arabic are no part of one."""
    compiled = regex(pattern)
    # Characters of a later Unicode than Python's are unknown to one of them.
    known = "".join(char for char in EVERY if unicodedata.category(char) != "Cn")
    parts = (known[at : at + _SLICE] for at in range(0, len(known), _SLICE))
    found = {char for part in parts for one in compiled.all(part) for char in one[0] or ""}
    spans = [span.split("-") for span in TOLD[told].split()]
    expected = {chr(at) for a, *b in spans for at in range(int(a, 16), int((b or [a])[0], 16) + 1)}
    assert found == (expected | set(others)) & set(known)


def test_marks_are_inside_of_words() -> None:
    """initcap begins a word after a vowel of Hindi."""
    initcap = FUNCTIONS_OF_TEXT["initcap"].call
    assert initcap("क\u093fa b\u0903c") == "क\u093fa B\u0903c"


def test_patterns_without_case_see_all_letters() -> None:
    """ILIKE knows the two cases of ASCII only."""
    ilike = FUNCTIONS["texticlike"].call
    found = (("ÉCOLE", "é%"), ("straße", "STRAß_"), ("ΟΔΟΣ", "οδοσ"), ("ДОМ", "д_м"))
    assert all(ilike(*one) for one in found)
    assert not any(ilike(*one) for one in (("é", "e"), ("STRASSE", "straße")))

"""Letters as a PostgreSQL 15 in the locale C.UTF-8 has them (sqlproxy.front.types.letters).

letters.json is what it said of each code point: `lower` and `upper` are those that change and what
they become, the others the members of the classes upper, lower and space.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sqlproxy.front.functions.f_patterns import FUNCTIONS
from sqlproxy.front.functions.linear_patterns import regex
from sqlproxy.front.types import letters

TOLD: dict[str, Any] = json.loads(Path(__file__).with_name("letters.json").read_text("utf-8"))
_SLICE = 1_000  # characters: a pattern is bounded by the text's length
EVERY = "".join(chr(at) for at in range(1, 0x110000) if not 0xD800 <= at < 0xE000)


@pytest.mark.parametrize("case", ["lower", "upper"])
def test_letters_change_as_in_postgresql(case: str) -> None:
    """A letter has another large or small one, or becomes two."""
    before, after = TOLD[case]
    expected = dict(zip(before, after, strict=True))
    make = getattr(letters, case)
    assert [c for c in EVERY if make(c) != expected.get(c, c)] == []
    assert make(before) == after, "in a text they are others than alone"


@pytest.mark.parametrize(
    ("name", "told"), [("upper", "large"), ("lower", "small"), ("space", "spaces")]
)
def test_classes_have_the_letters_of_postgresql(name: str, told: str) -> None:
    """A class of a regular expression has other characters."""
    pattern = regex(f"[[:{name}:]]")
    parts = (EVERY[at : at + _SLICE] for at in range(0, len(EVERY), _SLICE))
    found = [one[0] or "" for part in parts for one in pattern.all(part)]
    assert "".join(found) == TOLD[told]


def test_patterns_without_case_see_all_letters() -> None:
    """ILIKE knows the two cases of ASCII only."""
    ilike = FUNCTIONS["texticlike"].call
    found = (("ÉCOLE", "é%"), ("straße", "STRAß_"), ("ΟΔΟΣ", "οδοσ"), ("ДОМ", "д_м"))
    assert all(ilike(*one) for one in found)
    assert not any(ilike(*one) for one in (("é", "e"), ("STRASSE", "straße")))

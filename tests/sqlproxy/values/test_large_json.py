"""jsonb values of many members: read with breaks, and counted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from sqlproxy.values import jsonb, memory
from sqlproxy.values.breaks import no_break, set_breaks
from sqlproxy.values.errors import OUT_OF_MEMORY, SqlError

MANY = 40_000
FORMS = {
    "numbers": "[" + "1," * MANY + "1]",
    "texts": "[" + '"ab",' * MANY + "1]",
    "lists": "[" + "[]," * MANY + "1]",
    "booleans": "[" + "true," * MANY + "null]",
    "objects": "[" + '{"a":[]},' * MANY + "1]",
    "keys": "{" + ",".join(f'"{n * 7919 % MANY}":""' for n in range(MANY)) + "}",
    "a list inside": '{"a":{"b":[' + "null," * MANY + "null]}}",
}


@pytest.fixture
def breaks() -> Iterator[list[int]]:
    taken = [0]

    def take() -> None:
        taken[0] += 1

    set_breaks(take)
    yield taken
    set_breaks(no_break)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, much in (("_MEMBERS_MANY", 1_000), ("_RUN", 512)):
        monkeypatch.setattr(jsonb, name, much)


@pytest.mark.few(1)
@pytest.mark.parametrize("form", FORMS)
def test_many_members_are_read_and_written_with_breaks(form: str, breaks: list[int]) -> None:
    """A client's value of 16 MiB held the interpreter for a second."""
    value = jsonb.parse(FORMS[form])
    assert breaks[0] > MANY / 100
    breaks[0] = 0
    text = jsonb.dumps(value)
    assert breaks[0] > MANY / 1_000
    assert jsonb.canonical(text) == text


def test_what_many_members_need_is_counted() -> None:
    """16 MiB of empty lists are 400 MB, of numbers a gigabyte."""
    budget = memory.Budget(memory.Share(), 1 << 20)
    with memory.spending(budget):
        for form, text in FORMS.items():
            if form != "a list inside":
                with pytest.raises(SqlError) as refused:
                    jsonb.parse(text)
                assert refused.value.sqlstate == OUT_OF_MEMORY
        assert jsonb.parse("[" + "1," * 9_000 + "1]")


def _made(chance: random.Random, depth: int) -> str:
    kind = chance.random()
    if not depth or kind < 0.5:
        return chance.choice(["null", "true", "1", "-1.5e3", '"a\\u00e9b"', '"x,[{"', '""'])
    parts = [_made(chance, depth - 1) for _ in range(chance.randint(0, 6))]
    if kind < 0.75:
        return f"[{', '.join(parts)}]"
    named = [f'"k{chance.randint(0, 9)}": {part}' for part in parts]
    return "{" + " ,".join(named) + "}"


def _told(read: Callable[[str], object], text: str) -> str:
    try:
        return repr(read(text))
    except ValueError as error:
        return str(error)


def test_both_ways_read_the_same() -> None:
    """A large value means something else, or what is no JSON is taken."""
    chance = random.Random(7)
    for n in range(2_000):
        text = _made(chance, 4)
        if n % 3 == 0:
            at = chance.randrange(len(text))
            text = text[:at] + chance.choice([",", "]", "}", "x", "", '"']) + text[at + 1 :]
        with_breaks = _told(jsonb._Breaking().decode, text)
        assert with_breaks == _told(jsonb._decode, text), text

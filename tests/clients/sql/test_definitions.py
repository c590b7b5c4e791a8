"""Definitions by chance, over several schemas, as PostgreSQL 15 answers them: recorded by
tests/clients/sql/definitions.py.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.clients.sql.conftest import Sql
from tests.clients.sql.definitions import RECORDED, SEEDS
from tests.clients.sql.sessions import Sessions

pytestmark = pytest.mark.cluster

DIFFERENT: Final = {
    2: "of a taken name and a key that nothing can refer to, the second mistake is told first",
}
"""By seed, why a case ends earlier."""
CASES: Final[dict[int, list[list[Any]]]] = dict(json.loads(RECORDED.read_text("utf-8")))


def plain(said: list[Any]) -> list[Any]:
    """Without the order of rows, which nobody asked for, and the words of errors."""
    if not said[0].startswith("["):
        return said[:1]
    tag, rows = json.loads(said[0])
    return [tag, sorted(rows or (), key=str)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_p12_definitions_by_chance_answer_as_postgresql(sql: Sql, seed: int) -> None:
    """What is moved, renamed or dropped in one schema leaves something behind in another, or means
    something else from then on.
    """
    sessions, wrong = Sessions(sql.dsn), ""
    try:
        for session, text, said in CASES[seed]:
            found = sessions.ask(session, text)
            if found[0] == "0A000" != said[0]:
                break  # from here on there is something else
            if plain(found) != plain(said):
                wrong = f"{session}: {text}\n{found}\nPostgreSQL: {said}"
                break
    finally:
        sessions.close()
    assert bool(wrong) is (seed in DIFFERENT), wrong or "it is the same now: take it out"


def test_p12_definitions_are_recorded() -> None:
    """Seeds were added and not recorded, or most of their statements are refused."""
    assert list(CASES) == list(range(SEEDS))
    every = [said[0] for case in CASES.values() for _, _, said in case]
    assert len(every) > 20 * SEEDS
    assert sum(one.startswith("[") for one in every) * 3 > len(every) * 2

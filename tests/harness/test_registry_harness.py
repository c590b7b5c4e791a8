"""Every built-in procedure, crashed and failed wherever it can be (J19, J12, J13).

`tests/harness` has the machinery and one scenario for each type. Here each type is hurt at a few
points, chosen by its name; `make harness` does it at every one.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.harness import harness
from tests.harness.saboteur import Case, Hurt
from tests.harness.scenarios import SCENARIOS
from tests.harness.user_scenarios import FLOW


@pytest.fixture(autouse=True)
def _files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    harness.files(monkeypatch, tmp_path)


def test_j19_every_registered_type_has_a_scenario() -> None:
    """A built-in that nobody crashes, or that nobody finds: its name is its interface."""
    registered, pages = harness.registered(), Path(__file__).parents[2] / "docs"
    assert registered == set(SCENARIOS), "give it a scenario in tests/harness/scenarios.py"
    told = set(re.findall(r"[\w.]+", (pages / "reference" / "procedures.md").read_text()))
    assert registered - {FLOW} <= told, "describe it in docs/reference/procedures.md"


def test_j19_the_page_has_a_row_of_every_type() -> None:
    """New types were missing in it; it says of each how it was hurt, and how often in all."""
    page = (Path(__file__).parents[2] / "docs" / "testing-procedures.md").read_text()
    rows = re.findall(r"^\| ([\w.]+) \| (\d+) \|", page, re.M)
    assert [name for name, _ in rows] == sorted(name for name, _ in rows)
    last = r"^(\d+) types, (\d+) points. Hurt at sampled points only, by CI: (.*)$"
    said = re.search(last, page, re.M)
    assert said is not None
    assert (len(rows), sum(int(points) for _, points in rows)) == (int(said[1]), int(said[2]))
    told = {name for name, _ in rows} | set(re.findall(r"\w+\.\w+", said[3]))
    assert told == set(SCENARIOS), "crash it everywhere: make harness TYPES=… prints its row"


BROKE_ONCE = {
    # the new voter led before the map named it, and nobody asked it
    "AddReplicas": [Case(Hurt.MASTER_AFTER, 8)],
    "kvorum.move_replica": [
        # the leader fell before the new learner was committed: its promotion was asked for for ever
        Case(Hurt.OTHER_BEFORE, 6),
        # the old replica was gone, and the new one was taken out again
        Case(Hurt.FAILS, 0, "kvorum.move_replica.finish"),
    ],
}


def _some(cases: list[Case], name: str) -> list[Case]:
    """A crash of the master, one of another node, a failure, a step done twice."""
    chance = random.Random(name)
    kinds = [harness.CRASHES[:2], harness.CRASHES[2:], harness.FAULTS[:1], harness.FAULTS[1:]]
    found = [chance.choice([case for case in cases if case.hurt in kind]) for kind in kinds]
    return list(dict.fromkeys([*found, *BROKE_ONCE.get(name, [])]))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_j19_j12_j13_wholly_or_not_at_all(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash or a failure left half of it, a lock, a replica, or made it happen twice."""
    for number, case in enumerate(_some(harness.cases(name), name)):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        try:
            harness.play(name, case)
        except BaseException as error:
            error.add_note(f'again: python -m tests.harness {name} --case "{case}"')
            raise

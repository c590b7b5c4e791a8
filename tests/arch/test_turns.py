"""Who runs which test file next (tests/kit/turns.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit import turns
from tests.kit.machine import ROOT
from tests.kit.turns import Durations, best, recorded

TOOK_S = {
    "tests/clients/spark/a.py": 100.0,
    "tests/long_wait.py": 200.0,
    "tests/wait.py": 30.0,
    "tests/busy.py": 50.0,
    "tests/busy_too.py": 60.0,
}
WAITING = {"tests/clients/spark/a.py", "tests/long_wait.py", "tests/wait.py"}


def order(worker: int, workers: int) -> list[str]:
    """What a process runs that has all files to itself."""
    left, found = [*TOOK_S, "tests/unknown.py"], []
    while left:
        found.append(best(left, TOOK_S, worker=worker, workers=workers))
        left.remove(found[-1])
    return found


def test_waiting_files_run_beside_those_that_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores stood idle for a third of a run, then every process computed at once; or the longest
    file began last, and all others had to wait for it.
    """
    monkeypatch.setattr(turns, "waits", WAITING.__contains__)
    waits = ["tests/long_wait.py", "tests/wait.py"]
    busy = ["tests/busy_too.py", "tests/busy.py", "tests/unknown.py"]
    assert order(0, 3) == ["tests/clients/spark/a.py", *waits, *busy]
    assert order(1, 3) == [*waits, "tests/clients/spark/a.py", *busy]
    assert order(2, 3) == [*busy, *waits, "tests/clients/spark/a.py"]
    assert order(0, 1) == order(0, 3), "one process alone leaves nothing out"


def test_files_that_start_processes_are_told_by_their_marks() -> None:
    """A file that is taken for one that computes keeps a core idle."""
    assert turns.waits("tests/processes/test_verify.py")
    assert turns.waits("tests/clients/spark/test_spark_write.py")
    assert not turns.waits("tests/kv/mvcc/test_records.py")
    assert not turns.waits("tests/arch/test_tests.py"), "it only tells of marks"


def test_there_are_ports_for_every_test_process() -> None:
    """Two processes that share ports meet each other's clusters."""
    shares = re.search(
        r"^_SHARES = (\d+)$", (ROOT / "tests" / "kit" / "machine.py").read_text(), re.M
    )
    assert shares is not None
    assert 1 < turns.processes() <= int(shares[1])


def test_every_recorded_file_is_there() -> None:
    """Figures of files that were renamed order nothing, and hide that the new ones have none."""
    gone = [file for file in recorded() if not (ROOT / file).exists()]
    assert not gone


def test_durations_are_added_up_and_others_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of one part would forget what is known of the rest."""
    monkeypatch.setattr(turns, "RECORD", tmp_path / "durations.json")
    here, other = "tests/arch/test_turns.py", "tests/conftest.py"
    (tmp_path / "durations.json").write_text(f'{{"{other}": 7, "tests/gone.py": 9}}')
    durations = Durations()
    for when, seconds in (("setup", 1.0), ("call", 2.0), ("teardown", 0.5)) * 2:
        durations.pytest_runtest_logreport(
            pytest.TestReport(
                f"{here}::test_x", (here, 1, "x"), {}, "passed", None, when, duration=seconds
            )
        )
    durations.pytest_sessionfinish()
    assert recorded() == {here: 7, other: 7}

"""What the command line tells of one procedure, and of what surgery changes."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.api.model import ProcedureInfo
from kvorum.cli import procedure_commands, surgery_commands
from procedures.engine.procedure import done
from procedures.engine.registry import procedure, step


def test_j2_steps_are_shown_with_how_long_they_took(capsys: pytest.CaptureFixture[str]) -> None:
    """The steps stood below the last field, as if they belonged to it."""
    steps = [
        {"step": "pack", "outcome": "next", "attempt": 1, "start_ms": 1, "took_ms": 4},
        {"step": "send", "outcome": "done", "attempt": 1, "start_ms": 5, "took_ms": 12},
    ]
    told = {"id": "7", "name": "ship", "state": "SUCCESS", "step": "send", "locks": []}
    procedure_commands._print(ProcedureInfo.of({**told, "result": 1, "steps": steps}), json=False)
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "result       1",
        "steps        pack: next, 4 ms",
        "             send: done, 12 ms",
    ]


def test_u11_a_retry_that_changes_no_field_says_what_it_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The dry run of a retry told nothing: "9 (ship): "."""
    one = {"procedure": "9", "name": "ship", "before": {}, "after": {}, "locks_released": []}
    told = {"changed": True, "dry_run": True, "count": 1, "procedures": [one]}
    surgery_commands.changes(told, as_json=False)
    assert capsys.readouterr().out == "would change:\n  9 (ship): goes on at once, as it is\n"


def test_a_replay_is_of_the_version_that_ran() -> None:
    """With two versions side by side in a module the last one was taken."""

    def of(version: int, *accepts: int) -> Any:
        class Declared:
            @step(first=True)
            async def only(self, _ctx: Any) -> Any:
                return done()

        return procedure("sided", version=version, accepts=accepts)(Declared)

    one, two, four = of(1), of(2), of(4, 3)
    wanted = {1: one, 2: two, 3: four, 4: four, 5: two}
    for version, code in wanted.items():
        assert procedure_commands._of_version([one, four, two], version) is code

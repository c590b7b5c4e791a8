"""What the command line tells of one procedure, and of what surgery changes."""

from __future__ import annotations

import pytest

from kvorum.api.model import ProcedureInfo
from kvorum.cli import procedure_commands, surgery_commands


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

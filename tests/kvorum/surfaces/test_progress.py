"""How far a procedure is: shown in a terminal, in a log and in a notebook."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import kvorum
from kvorum.api.model import ProcedureInfo
from kvorum.sdk.progress import Line


def info(state: str, part: float, text: str) -> ProcedureInfo:
    told = {"progress": {"part": part, "text": text}}
    return ProcedureInfo(id=7, name="kvorum.export", state=state, step="copy", extra=told)


LOOKS = [
    info("RUNNABLE", 0.0, "0 rows"),
    info("RUNNABLE", 0.05, "5 rows"),
    info("RUNNABLE", 0.5, "50 rows \x1b[2J"),
    info("SUCCESS", 0.5, "100 rows"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_u3_a_terminal_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A screen is filled with lines, or what a procedure says moves the cursor."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    line = Line()
    for look in LOOKS:
        line.show(look)
    assert "\n" not in screen.getvalue()
    assert "export:  50%  50 rows \\x1b[2J" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K"), "nothing of it is left"


def test_u3_a_log_has_a_line_at_each_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of a night has a million lines of progress, or none."""
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    shown = Line("copy")
    for look in LOOKS:
        shown.show(look)
    lines = [line.split()[:2] for line in log.getvalue().splitlines()]
    assert lines == [["copy:", "0%"], ["copy:", "50%"], ["copy:", "100%"]]


def test_u3_a_notebook_has_one_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is another output below the cell."""
    shown: list[str] = []

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert (raw, display_id) == (True, True)
        return SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))

    ipython, displays = ModuleType("IPython"), ModuleType("IPython.display")
    vars(ipython)["get_ipython"] = lambda: SimpleNamespace(kernel=object())
    vars(displays)["display"] = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    line = Line()
    for look in LOOKS:
        line.show(look)
    assert shown[0] == "export " + "░" * 20 + "   0%  0 rows"
    assert shown[-1] == "export " + "█" * 20 + " 100%  100 rows"


@pytest.mark.slow
def test_u3_follow_ends_with_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever follows a procedure gets its progress and no result, or hangs behind its end."""
    with kvorum.open(tmp_path / "a") as db:
        db.create_table("default", "t")
        db.table("default", "t").put("k", "v")
        args = {"table": ["default", "t"], "target": (tmp_path / "x").as_uri(), "format": "csv"}
        assert kvorum.follow(db, db.submit("kvorum.export", args))["rows"] == 1
        with pytest.raises(kvorum.KvorumError, match="not empty"):
            kvorum.follow(db, db.submit("kvorum.export", args))

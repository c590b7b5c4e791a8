"""The guide for operators works as it is printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import kvorum
from tests.kit.machine import free_port_base

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "operating-procedures.md"


def test_the_operators_guide_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Users copied an example that does not work."""
    module, *blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "operated.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    program = "from operated import *\n" + "\n".join(blocks)
    try:
        with kvorum.open(
            tmp_path / "data", port=free_port_base(), procedure_modules=["operated"]
        ) as db:
            exec(compile(program, "guide", "exec"), {"__name__": "guide", "db": db})
    finally:
        sys.modules.pop("operated", None)
    told = capsys.readouterr().out.splitlines()
    assert told == re.findall(r"print\(.*\)  # (.*)", program)

"""The example of docs/guides/procedures.md runs as it stands, and says what the guide says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "procedures.md"


def test_guide_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Users copied an example that does not work."""
    module, program = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[:2]
    (tmp_path / "bank.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        exec(compile(program, "guide", "exec"), {"__name__": "guide"})
    finally:
        sys.modules.pop("bank", None)
    told = capsys.readouterr().out.splitlines()
    promised = re.findall(r"print\(.*?\)  # (.*)", program)
    assert [line.split(":")[0] for line in told] == [p.split(":")[0] for p in promised]
    assert told == ["{'moved': 30}", "NO_ACCOUNT nobody has no account", "b'70'"]

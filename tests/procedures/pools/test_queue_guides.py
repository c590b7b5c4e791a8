"""The guides about queues and deploys work as they are printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import kvorum
from tests.kit.machine import free_port_base

GUIDES = Path(__file__).resolve().parents[3] / "docs" / "guides"


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["queues", "deploys"])
def test_the_guide_works(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Users copied an example that does not work."""
    text = (GUIDES / f"{name}.md").read_text()
    module, *blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    guided = f"guided_{name}"
    (tmp_path / f"{guided}.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    program = f"import kvorum\nfrom {guided} import *\n" + "\n".join(blocks)
    try:
        with kvorum.open(
            tmp_path / "data", port=free_port_base(), procedure_modules=[guided]
        ) as db:
            exec(compile(program, "guide", "exec"), {"__name__": "guide", "db": db})
    finally:
        sys.modules.pop(guided, None)
    told = capsys.readouterr().out.splitlines()
    promised = re.findall(r"(?:print\(.*\)  |^)# (.*)", program, re.MULTILINE)
    assert told == promised

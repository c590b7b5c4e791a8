"""The example of docs/guides/procedures.md runs as it stands, and says what the guide says."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import kvorum
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine.submission import Submission
from procedures.pools.control import Control
from tests.procedures.lab import Lab
from tests.procedures.pools.pool_lab import TableRows

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "procedures.md"


@pytest.mark.parametrize("approved", [True, False])
def test_the_guides_approval_ends(approved: bool) -> None:
    """Users copied an example that waits for ever where nobody approves."""
    block = next(
        b
        for b in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        if "class Approval" in b
    )
    block = block.replace("86_400_000", "60_000")  # its day is a minute here
    code: dict[str, Any] = {"kvorum": kvorum}
    exec(compile(block, "guide", "exec"), code)

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [code["Approval"]])
        async with lab.executor(rows=TableRows(lab.store.table)) as executor:
            id = await executor.submit(Submission("approve", None, "tester"))
            await asyncio.sleep(50)
            if approved:
                told = {"id": id, "name": "approval", "payload": {"by": "ada"}}
                await Control(executor).do("signal", told)
            else:
                await asyncio.sleep(11)
            record = await executor.wait(id, 1_000)
        if approved:
            assert plain_data.decode(record.result) == {"by": "ada"}
        else:
            assert record.error is not None
            assert record.error.code == "NOT_APPROVED"

    simloop.run(main, 0)


@pytest.mark.slow
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

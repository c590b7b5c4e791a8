"""Procedures without a cluster as a user has them: real files, a real kill (L1)."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kvorum
from kvorum import procedures
from kvorum.cli.main import app

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "embedded-procedures.md"
PROGRAM = """
import sys, time, kvorum
from kvorum import procedures

@kvorum.procedure("slow")
class Slow:
    @kvorum.step(first=True)
    def one(self, ctx):
        ctx.state["one"] = ctx.state.get("one", 0) + 1
        return kvorum.next("two")

    @kvorum.step
    def two(self, ctx):
        if sys.argv[2] == "hang":
            print("hangs", flush=True)
            time.sleep(600)
        return kvorum.done(ctx.state)

with procedures.open(sys.argv[1], procedures=[Slow]) as p:
    id = p.submit(Slow, nonce="n")
    print(id, p.wait(id), flush=True)
"""


@kvorum.procedure("wal.tiny")
class Tiny:
    @kvorum.step(first=True)
    def only(self, ctx: object) -> object:
        return kvorum.done(1)


@kvorum.procedure("wal.limited", max_concurrent=3)
class Limited:
    @kvorum.step(first=True)
    def only(self, ctx: object) -> object:
        return kvorum.done(1)


def test_l1_the_guides_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Users copied an example that does not work, or did things twice when they ran it twice."""
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        exec(compile(program, "guide", "exec"), {"__name__": "guide"})
        assert capsys.readouterr().out.splitlines() == [
            "{'paid': 'tea'}",
            "NO_MONEY the card was refused",
        ]
        assert "{'paid': 'tea'}" in GUIDE.read_text()


@pytest.mark.slow
def test_l1_a_killed_process_goes_on(tmp_path: Path) -> None:
    """After kill -9 a procedure was lost, began anew, or its directory stayed locked."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "data")]
    with subprocess.Popen([*command, "hang"], stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "hangs\n"
            with pytest.raises(kvorum.InvalidArgument, match=f"process {first.pid}"):
                procedures.open(tmp_path / "data", procedures=[Tiny])
        finally:
            first.send_signal(signal.SIGKILL)
    done = subprocess.run([*command, "go"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1 {'one': 1}\n"


def test_l1_dump_changes_nothing(tmp_path: Path) -> None:
    """`kvorum proc dump` showed something else than there was, or wrote."""
    with procedures.open(tmp_path / "d", procedures=[Tiny]) as p:
        id = p.submit(Tiny, nonce="once")
        assert p.wait(id) == 1
        assert p.submit("wal.tiny", nonce="once") == id
        assert [one.id for one in p.procedures(state="SUCCESS")] == [id]
    before = {file.name: file.read_bytes() for file in (tmp_path / "d").iterdir()}
    told = CliRunner().invoke(app, ["proc", "dump", str(tmp_path / "d")])
    assert told.exit_code == 0, told.output
    assert re.search(rf"{id} +wal.tiny +SUCCESS +only +once", told.output)
    assert {file.name: file.read_bytes() for file in (tmp_path / "d").iterdir()} == before
    for wrong in (tmp_path, tmp_path / "nothing"):
        refused = CliRunner().invoke(app, ["proc", "dump", str(wrong)])
        assert refused.exit_code == 1


def test_l1_limits_of_declarations_are_refused(tmp_path: Path) -> None:
    """A declared limit was silently not kept; or a directory of something else was taken."""
    with pytest.raises(kvorum.Refused, match="max_concurrent=3"):
        procedures.open(tmp_path / "d", procedures=[Limited])
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "letter.txt").write_text("mine")
    with pytest.raises(kvorum.InvalidArgument, match="not empty"):
        procedures.open(tmp_path / "e", procedures=[Tiny])

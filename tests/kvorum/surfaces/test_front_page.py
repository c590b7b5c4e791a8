"""What README.md, and the first page on clusters, print works as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import kvorum
from tests.kit.machine import ROOT, free_port_base

README = (ROOT / "README.md").read_text()
CLUSTER = (ROOT / "docs" / "guides" / "cluster.md").read_text().split("\n## ")[1]
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^ {4}\.venv/bin/kvorum (.+)$", README, re.MULTILINE)
CLUSTER_COMMANDS = re.findall(r"^ {4}kvorum (cluster .+)$", CLUSTER, re.MULTILINE)


@pytest.mark.slow
def test_the_first_program(tmp_path: Path) -> None:
    """The first thing that a user tries must do what it says, in an empty directory."""
    run = subprocess.run(
        [sys.executable, "-c", BLOCKS[0]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, b"b'10'\n", b"")


@pytest.mark.slow
@pytest.mark.cluster
def test_the_cluster_commands(tmp_path: Path) -> None:
    """A cluster is started, hurt and stopped by the page's own lines."""
    assert len(CLUSTER_COMMANDS) == 5
    for line in CLUSTER_COMMANDS:
        command = shlex.split(line, comments=True)
        if command[1] == "up":
            command += ["--port", str(free_port_base(4))]
        run = subprocess.run(
            [sys.executable, "-m", "kvorum", *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert run.returncode == 0, f"{line}: {run.stderr}"


@pytest.mark.slow
def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command after `kvorum dev`, in the order of the page, with its procedure."""
    (tmp_path / "shop.py").write_text(BLOCKS[1])
    monkeypatch.syspath_prepend(tmp_path)
    base = free_port_base()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "KVORUM_CONNECT": f"127.0.0.1:{base}"}
    with kvorum.open(tmp_path / "data", port=base, procedure_modules=["shop"]):
        said = {}
        for line in COMMANDS:
            command = shlex.split(line, comments=True)
            if command[0] == "dev":
                continue
            run = subprocess.run(
                [sys.executable, "-m", "kvorum", *command],
                env=env,
                capture_output=True,
                timeout=50,
                check=False,
            )
            said[line] = run.returncode, run.stdout.decode(), run.stderr.decode()
    assert len(said) == 7
    declined = [line for line in said if "DECLINED" in line]
    for line, (code, _, error) in said.items():
        assert code == (line in declined), error
        assert error.startswith("kvorum: DECLINED") if line in declined else not error
    assert said["get default/greetings/hello"][1] == "world\n"
    assert said["scan shop/seats"][1] == "12A\ttaken\n"


def test_links_lead_somewhere() -> None:
    """A front page with dead links looks abandoned."""
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"

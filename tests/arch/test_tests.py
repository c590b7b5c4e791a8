"""The tests keep their own rules."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.each import each
from tests.kit.machine import ROOT

FILES = sorted((ROOT / "tests").rglob("test_*.py"))
WITH_A_DOCSTRING = re.compile(r'\w+\([^"]*?\)(?: -> [^"\n]+)?:\n +r?"""')


@each("path", FILES, ids=lambda p: str(Path(p).relative_to(ROOT)))
def test_every_test_says_what_would_break(path: Path) -> None:
    """A red test without a docstring leaves the reader to guess what promise was broken."""
    text = path.read_text()
    if all(WITH_A_DOCSTRING.match(rest) for rest in text.split("def test_")[1:]):
        return  # seen without parsing it, which takes a second for each hundred files
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert not silent


@pytest.mark.slow
def test_spark_test_fails_without_java(tmp_path: Path) -> None:
    """On a machine without Java the suite must say so, never pass with fewer tests."""
    probe = tmp_path / "test_probe.py"
    probe.write_text("import pytest\n@pytest.mark.spark\ndef test_it():\n    pass\n")
    (tmp_path / "empty").mkdir()
    tools = tmp_path / "bin"  # what the script needs of PATH, and no java
    tools.mkdir()
    for tool in ("bash", "env", "sed", "head", "readlink"):
        (tools / tool).symlink_to(_which(tool))
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-c",
            str(ROOT / "pyproject.toml"),
            "--rootdir",
            str(ROOT),
            "-p",
            "tests.conftest",
            "-p",
            "no:cacheprovider",
            str(probe),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PATH": str(tools),
            "JAVA_HOME": "",
            "JVM_DIR": str(tmp_path / "empty"),
            "PYTHONPATH": str(ROOT),
        },
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "Java 17 is needed for Spark: apt-get install openjdk-17-jre-headless" in run.stdout


def _which(tool: str) -> str:
    found = shutil.which(tool)
    assert found is not None, tool
    return found

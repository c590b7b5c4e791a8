"""The scripts that a fresh machine meets first."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.kit.machine import ROOT

ADVICE = "Java 17 is needed for Spark: apt-get install openjdk-17-jre-headless, then run again\n"


def fake_java(home: Path, version: str) -> Path:
    """A Java home whose `java -version` prints what a real one of that version prints."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return home


def ask(
    tmp_path: Path,
    *,
    java_home: Path | None = None,
    path: Path | None = None,
    jvm_dir: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the search with only these places to look in."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "sh", "env", "sed", "head", "readlink"):
        found = next(p for d in ("/bin", "/usr/bin") if (p := Path(d, tool)).exists())
        (tools / tool).symlink_to(found)
    places = [str(tools), *([str(path / "bin")] if path else [])]
    env = {
        "PATH": os.pathsep.join(places),
        "JAVA_HOME": str(java_home or ""),
        "JVM_DIR": str(jvm_dir or tmp_path / "none"),
    }
    return subprocess.run(
        [ROOT / "scripts" / "java_home.sh"], env=env, capture_output=True, text=True, check=False
    )


def test_no_java_is_one_line_of_advice(tmp_path: Path) -> None:
    """Whoever has no Java must read what to do, not a stack trace from Spark."""
    run = ask(tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (1, "", ADVICE)


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2", "17"])
def test_java_home_is_taken_first(tmp_path: Path, version: str) -> None:
    """Spark itself looks at JAVA_HOME first; another answer would test another Java."""
    chosen = fake_java(tmp_path / "chosen", version)
    other = fake_java(tmp_path / "other", "17.0.1")
    assert ask(tmp_path, java_home=chosen, path=other).stdout == f"{chosen}\n"


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_old_java_is_passed_over(tmp_path: Path, version: str) -> None:
    """An old default must not hide the Java 17 that was installed as advised."""
    old = fake_java(tmp_path / "old", version)
    assert ask(tmp_path, java_home=old, path=old).returncode == 1
    (tmp_path / "again").mkdir()
    new = fake_java(tmp_path / "jvm" / "java-17-openjdk-amd64", "17.0.15")
    run = ask(tmp_path / "again", java_home=old, path=old, jvm_dir=tmp_path / "jvm")
    assert run.stdout == f"{new}\n"


def test_scripts_are_executable() -> None:
    """A script without its bit fails on the first command of a fresh clone."""
    for script in [*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci" / "run"]:
        assert os.access(script, os.X_OK), script

"""How commands fail: in one line, never with a traceback. Every command, so that a new one is
covered.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from kv.base.config import NodeConfig
from kvorum.cli.main import app
from kvorum.programs.localcluster import LocalCluster
from kvorum.programs.process import urls
from tests.kit.commands import run

NOWHERE = "127.0.0.1:1"
GIVEN = {"table": "default.t", "key": "default/t/k"}
GO_ON = {"start", "dev", "proxy", "cluster up", "worker", "doctor"}  # servers, and what asks nobody


def commands() -> Iterator[tuple[str, Any]]:
    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        if hasattr(command, "commands"):
            for name, one in command.commands.items():
                yield from below(one, (*words, name))
        elif " ".join(words) not in GO_ON:
            yield " ".join(words), command

    yield from below(typer.main.get_command(app), ())


def words_for(command: Any, folder: Path) -> list[str]:
    """Something for each argument that must be there, and nobody to ask."""
    words = []
    for one in command.params:
        if "--connect" in one.opts:
            words += ["--connect", NOWHERE]
        elif "--data" in one.opts:
            words += ["--data", str(folder / "none")]
        elif "--dir" in one.opts:
            (folder / "ca.crt").touch()  # of `kvorum cert`: there already, and no certificate
            words += ["--dir", str(folder)]
        elif one.param_type_name == "argument" and one.required:
            words.append(GIVEN.get(one.name, "1"))
        elif one.required:
            words += [one.opts[0], "1"]
    return words


def test_commands_are_found() -> None:
    """The test below would pass because it looks at none."""
    assert {"get", "cluster start", "namespace create"} <= {name for name, _ in commands()}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_every_command_fails_in_one_line(name: str, tmp_path: Path) -> None:
    """A command whose cluster is not there ends with a traceback, or as if all were well."""
    command = dict(commands())[name]
    found = run(*name.split(), *words_for(command, tmp_path), code=None)
    assert found.code in (1, 2), found
    assert b"Traceback" not in found.err
    if found.code == 1:
        assert len(found.err.splitlines()) == 1, found.err


@pytest.mark.slow
def test_a_node_that_ends_at_once_is_told_in_one_line(tmp_path: Path) -> None:
    """`cluster start` shows the node's log, or a traceback, instead of what the node said."""
    cluster = LocalCluster.create(tmp_path / "c", 1, 27_900)
    (number,) = [node.id for node in cluster.nodes]
    log = cluster.log(number)
    log.write_text('{"level": "info"}\nTraceback\nkvorum: CANNOT_LISTEN: in use\n{"level": "x"}\n')
    assert cluster._last_word(number) == "CANNOT_LISTEN: in use"
    log.write_text('{"level": "info"}\nRuntimeError: x\n')
    assert cluster._last_word(number) == "RuntimeError: x"
    (tmp_path / "c" / f"node-{number}").write_text("no directory")
    words = [sys.executable, "-m", "kvorum", "cluster", "start", str(number), "--data"]
    ran = subprocess.run(
        [*words, str(tmp_path / "c")], capture_output=True, text=True, env=os.environ, check=False
    )
    assert ran.returncode == 1
    (line,) = ran.stderr.strip().splitlines()
    assert line.startswith("kvorum: UNAVAILABLE: node")
    assert "{" not in line


def test_where_a_node_is_names_the_console(tmp_path: Path) -> None:
    """Who starts `kvorum dev` does not learn that there is a console."""
    config = NodeConfig(data=tmp_path, port=7600)
    assert urls(config)["console"] == "http://127.0.0.1:7602/console"

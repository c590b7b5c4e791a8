"""The `kvorum` command of the tests: within this process, which takes milliseconds, or in a process
of its own as users run it, which takes a second to start.
"""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import typer.main

from kvorum.cli.main import main
from tests.kit.machine import ROOT

_TIMEOUT_S = 120
_tree = functools.cache(typer.main.get_command)  # to build it takes most of a command's time


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended and what it wrote."""

    code: int
    out: bytes
    err: bytes

    @property
    def json(self) -> Any:
        """Its document; of one that failed the last line of its error."""
        return json.loads(self.out or self.err.splitlines()[-1])


def run(
    *words: str,
    code: int | None = 0,
    connect: str = "",
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    apart: bool = False,
) -> Ended:
    """`kvorum WORDS…` to its end, which `code` asserts. `apart`: in a process of its own."""
    given = settings(connect, env)
    ended = (_apart if apart else _here)(words, given, stdin)
    assert code in (None, ended.code), (words, ended)
    if ended.code == 1:
        assert b"Traceback" not in ended.err, (words, ended)
    return ended


def told(*words: str, code: int = 0, connect: str = "", apart: bool = False) -> Any:
    """The JSON document of a command."""
    return run(*words, "--json", code=code, connect=connect, apart=apart).json


def settings(connect: str = "", env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command, without our own variables (KVORUM_KILLS), which are no settings
    and would be refused.
    """
    ours = {key: value for key, value in os.environ.items() if not key.startswith("KVORUM_")}
    there = {"KVORUM_CONNECT": connect} if connect else {}
    return {**ours, "PYTHONPATH": str(ROOT), **there, **(env or {})}


def command(*words: str) -> list[str]:
    """What starts it in a process of its own."""
    return [sys.executable, "-m", "kvorum", *words]


def _apart(words: tuple[str, ...], env: dict[str, str], stdin: bytes) -> Ended:
    ended = subprocess.run(
        command(*words),
        cwd=ROOT,
        env=env,
        input=stdin,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def _here(words: tuple[str, ...], env: dict[str, str], stdin: bytes) -> Ended:
    given, out, err = (io.TextIOWrapper(io.BytesIO(data)) for data in (stdin, b"", b""))
    code: object = 0
    mask = os.umask(0o077)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", _tree)
        patch.setattr(os, "environ", env)
        patch.setattr(sys, "argv", ["kvorum", *words])
        for name, stream in (("stdin", given), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, stream)
        try:
            main()
        except SystemExit as end:
            code = end.code
        finally:
            os.umask(mask)
    for stream in (out, err):
        stream.flush()
    written = [stream.buffer.getvalue() for stream in (out, err)]
    return Ended(code if isinstance(code, int) else 0, *written)

"""The examples of raft/README.md are run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import raft

README = Path(raft.__file__).with_name("README.md")


def test_f19_the_readme_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """F19: the first thing that a user of the library copies must work."""
    text = README.read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    expected = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    names = {"__name__": "readme"}
    for program, prints in zip(programs, expected, strict=True):
        exec(compile(program, str(README), "exec"), names)
        assert capsys.readouterr().out == prints


def test_every_public_name_exists() -> None:
    """A name in __all__ that is not there breaks `from raft import *`."""
    assert all(hasattr(raft, name) for name in raft.__all__)

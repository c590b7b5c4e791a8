"""The example of raft/README.md is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import raft

README = Path(raft.__file__).with_name("README.md")


def test_f19_the_readme_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """F19: the first thing that a user of the library copies must work."""
    text = README.read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (expected,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    exec(compile(program, str(README), "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out == expected


def test_every_public_name_exists() -> None:
    """A name in __all__ that is not there breaks `from raft import *`."""
    assert all(hasattr(raft, name) for name in raft.__all__)

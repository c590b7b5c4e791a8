"""Secrets are not given on command lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
import typer.main

from kv.base.config import OPTIONS, load
from kv.base.config_values import SECRET_NAMES
from kv.base.errors import InvalidArgument
from kvorum.cli.main import app

SAID_SO: Final = {
    ("kvorum proc complete", "token"),
    ("kvorum proc search", "token"),
    ("kvorum proc search", "--token"),
}
"""(command, parameter): it lets somebody complete one step that waits, once; it says where a page
ended, and lets nobody do anything.
"""


def _commands(command: Any, path: str = "kvorum") -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{path} {name}")


def test_u15_no_flag_takes_a_secret() -> None:
    """Every user of a machine sees what follows a command's flags (ps); so do its histories."""
    found = set()
    for path, one in _commands(typer.main.get_command(app)):
        for param in one.params:
            takes = not getattr(param, "is_flag", False)
            for name in (param.name, *param.opts):
                plain = name.lstrip("-").replace("-", "_")
                file = plain.endswith("_file") or str(param.metavar or "") == "FILE"
                if takes and not file and SECRET_NAMES.search(plain):
                    found.add((path, name))
    assert found == SAID_SO, "a secret comes from a file, stdin, a prompt or the environment"


def test_u15_settings_that_hold_secrets_are_called_secret() -> None:
    """A new setting like cluster_secret has a flag, and is repeated when its value is refused."""
    for option in OPTIONS:
        if SECRET_NAMES.search(option.name) and not option.name.endswith("_file"):
            assert option.secret, option.name
        if option.secret:
            with pytest.raises(InvalidArgument) as caught:
                load({}, {option.variable: "hush"})
            assert "hush" not in f"{caught.value.message}{caught.value.details}"

"""What the first versions of Python 3.11 (Debian 12 has one) do in another way than later ones."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ["raft", "kv", "tso", "txn", "procedures", "sqlproxy", "kvorum", "pyspark_kvorum"]
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
STAR = re.compile(r"^\s*except\s*\*", re.MULTILINE)
HALF_WAY = re.compile(r"\)(\?|\{[^{}]*\}+)\+")


@pytest.mark.parametrize("package", PACKAGES)
def test_no_error_is_raised_out_of_a_group_of_them(package: str) -> None:
    """`raise` within `except*` raises a group before 3.11.4: callers look for the error alone."""
    for path in (one for one in SOURCES if one.is_relative_to(ROOT / package)):
        if not STAR.search(text := path.read_text()):
            continue
        found = [node.lineno for node in ast.walk(ast.parse(text)) if is_star(node)]
        assert not found, f"{path}: lines {found}"


def is_star(node: ast.AST) -> bool:
    """Whether it is a `try` with `except*`."""
    return isinstance(node, ast.TryStar)


def test_no_group_with_an_end_is_possessive() -> None:
    """Before 3.11.5 `(?:ab)?+` matches the `a` of `ac`, so wrong text is taken for plain values."""
    for path in SOURCES:
        assert HALF_WAY.search(path.read_text()) is None, path

"""Texts that end at the end of a line because a parenthesis is missing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("kv", "kvorum", "procedures", "pyspark_kvorum", "raft", "sqlproxy", "tso", "txn")


@pytest.mark.parametrize("package", PACKAGES)
def test_no_text_stands_alone(package: str) -> None:
    """The second line of a message is a statement of its own, so users read half a sentence."""
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
                continue
            if not isinstance(node.value.value, str):
                continue
            written = (ast.get_source_segment(text, node) or "").lstrip("rR")
            if not written.startswith('"""'):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {written[:60]}")
    assert found == []

"""docs/features.md is true: made from its parts, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from scripts import features

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"(?:(tests/[\w/]+\.py))?::(test_\w+)")


def _named() -> list[tuple[str, str]]:
    pairs = []
    for parts in features.rows().values():
        for _, tests in parts:
            path = ""
            for match in NAMED.finditer(tests):
                path = match[1] or path
                pairs.append((path, match[2]))
    return sorted(set(pairs))


def test_features_page_is_made_from_its_parts() -> None:
    """A row that was changed in one place only would tell two stories."""
    assert features.TARGET.read_text() == features.page(), "run: python scripts/features.py"


def test_every_feature_names_a_test() -> None:
    """A feature without a test is a claim."""
    silent = [name for name, parts in features.rows().items() if "::test_" not in str(parts)]
    assert not silent


@pytest.mark.parametrize(("path", "name"), _named())
def test_named_tests_exist(path: str, name: str) -> None:
    """A renamed test would leave a feature without its proof."""
    assert f"def {name}" in (ROOT / path).read_text(), f"{path} has no {name}"


def _of_every_run() -> set[str]:
    """Ids in the names of the tests that `make test` runs."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(path.read_text())
        marks = [node for node in tree.body if isinstance(node, ast.Assign)]
        if any("pytestmark" in ast.unparse(n.targets[0]) and _slow(n.value) for n in marks):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            ids = re.match(r"test((?:_[a-z]\d{1,2})+)(?=_)", node.name)
            if ids and not any(_slow(mark) for mark in node.decorator_list):
                found |= set(ids[1].upper().split("_"))
    return found


def _slow(node: ast.AST) -> bool:
    return re.search(r"mark\.slow\b", ast.unparse(node)) is not None


def test_every_feature_is_tested_in_every_run() -> None:
    """A feature breaks, and `make test` says that all is well."""
    assert set(features.rows()) <= _of_every_run()

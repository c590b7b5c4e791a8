"""docs/features.md is true: made from its parts, and every test that it names exists."""

from __future__ import annotations

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

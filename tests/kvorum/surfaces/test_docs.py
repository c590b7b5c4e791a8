"""The pages that are made from the code agree with it."""

from __future__ import annotations

import tomllib

import pytest

from kv.base import limits
from kvorum.version import VERSION
from scripts import http_reference, limits_reference
from tests.kit.machine import ROOT


@pytest.mark.parametrize("page", [http_reference, limits_reference], ids=lambda p: p.__name__)
def test_generated_page_is_fresh(page: object) -> None:
    """A reference that lags behind the code is worse than none: run `python -m` the script."""
    assert page.TARGET.read_text() == page.render()  # type: ignore[attr-defined]


def test_every_limit_is_listed() -> None:
    """A bound that users meet and cannot look up looks like a bug."""
    text = limits_reference.TARGET.read_text()
    names = [n for n, v in vars(limits).items() if n.isupper() and isinstance(v, int)]
    assert len(names) > 40
    assert not [n for n in names if f"| {n} |" not in text]


def test_version_is_one() -> None:
    """A package and a command that disagree on their version help nobody."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION

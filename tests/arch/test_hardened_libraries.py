"""The two libraries whose private ways we know are loaded in one place each, also dynamically.

import-linter sees import statements only; a module name in a string gets past it.
"""

from __future__ import annotations

import ast
import re

import pytest

from tests.arch.test_modules import PACKAGES
from tests.kit.machine import ROOT

LOADERS = {
    "pysyncobj": {"raft/group.py", "raft/pinned.py"},
    "rocksdict": {"kv/storage/rocks.py", "kv/storage/tuning.py"},
}
LOADING_CALLS = {"import_module", "find_spec", "__import__"}


def loads(tree: ast.AST, library: str) -> bool:
    """Whether this module imports the library, by statement or by name in a string."""
    own = re.compile(rf"{library}(\.\w+)*$")
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) if any(own.match(n.name) for n in names):
                return True
            case ast.ImportFrom(module=str(name), level=0) if own.match(name):
                return True
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]):
                called = getattr(func, "attr", getattr(func, "id", None))
                if called in LOADING_CALLS and own.match(name):
                    return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("library", sorted(LOADERS))
def test_only_its_wrapper_loads_it(library: str) -> None:
    """A second importer would use the library without what the wrapper guards against."""
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if loads(ast.parse(path.read_text()), library)
    }
    assert found <= LOADERS[library]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import pysyncobj.config", True),
        ("from pysyncobj import SyncObj", True),
        ("importlib.util.find_spec('pysyncobj.syncobj')", True),
        ("import_module('pysyncobj')", True),
        ("import pysyncobjects", False),
        ("version('pysyncobj')", False),
    ],
)
def test_the_search_sees_every_way(text: str, expected: bool) -> None:
    """A search that misses a way to load would pass while the rule is broken."""
    assert loads(ast.parse(text), "pysyncobj") is expected

"""What pyproject.toml declares is what the packages import, both ways, and each extra is whole."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions

import pytest

from kvorum.local import extras
from tests.arch.test_modules import PACKAGES
from tests.kit.machine import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_IMPORTED = {"tzdata"}  # data
# Of a notebook, of fsspec, of who runs tests: asked only where they are.
OF_THE_HOST = {"IPython", "aiohttp", "pytest"}
LOADING_CALLS = {"find_spec", "import_module", "needed"}
HINT = re.compile(rf"^\s*(?:import|from)\s+(\w+)|\b(?:{'|'.join(LOADING_CALLS)})\(", re.M)


def names(requirements: list[str]) -> set[str]:
    found = (re.match(r"[A-Za-z0-9._-]+", one) for one in requirements)
    return {normal(one[0]) for one in found if one}


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


@cache
def distributions() -> dict[str, set[str]]:
    """The packages that bring a top-level name."""
    return {top: {normal(n) for n in of} for top, of in packages_distributions().items()}


def asks_others(text: str) -> bool:
    """Most files have nothing of other people's, which is seen without parsing them."""
    return any(not hint[1] or foreign(hint[1]) for hint in HINT.finditer(text))


def foreign(top: str) -> bool:
    return top not in sys.stdlib_module_names and top not in PACKAGES


@cache
def imported() -> dict[str, set[str]]:
    """Names of other people's top-level packages, and who imports them."""
    found: dict[str, set[str]] = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if asks_others(text) else ():
                modules: list[str] = []
                match node:
                    case ast.Import(names=aliases):
                        modules = [alias.name for alias in aliases]
                    case ast.ImportFrom(module=str(name), level=0):
                        modules = [name]
                    case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]):
                        called = getattr(func, "attr", getattr(func, "id", None))
                        modules = [name] if called in LOADING_CALLS else []
                for module in modules:
                    top = module.partition(".")[0]
                    if foreign(top):
                        found.setdefault(top, set()).add(str(path.relative_to(ROOT)))
    return found


OPTIONAL = PROJECT["optional-dependencies"]
SHIPPED = {"": names(PROJECT["dependencies"])} | {
    extra: names(OPTIONAL[extra]) for extra in OPTIONAL if extra not in ("attack", "dev")
}


def test_every_import_is_declared() -> None:
    """A package that comes with another one by chance is missing at the next version of that."""
    declared = set().union(*SHIPPED.values())
    for top, files in imported().items():
        if top not in OF_THE_HOST:
            assert distributions()[top] & declared, (
                f"{top} is in no list of pyproject.toml: {sorted(files)[:3]}"
            )


@pytest.mark.parametrize("extra", sorted(SHIPPED))
def test_everything_declared_is_imported(extra: str) -> None:
    """Users install what nothing uses."""
    used = {name for top in imported() for name in distributions().get(top, ())}
    assert SHIPPED[extra] - NOT_IMPORTED <= used


def test_the_advice_names_the_extra_that_has_it() -> None:
    """Whoever lacks a package is told to install an extra that does not bring it."""
    for package, extra in extras.EXTRAS.items():
        assert distributions()[package] & SHIPPED[extra], package


def test_every_optional_package_has_its_advice() -> None:
    """A package of an extra that is not there ends as a traceback."""
    of_a_node = SHIPPED[""]
    optional = {
        top for top in imported() if top not in OF_THE_HOST and not distributions()[top] & of_a_node
    }
    assert optional == set(extras.EXTRAS)

"""Every module can be imported, and is there for a reason."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path

import grimp
import pytest

from tests.kit.each import each
from tests.kit.machine import ROOT

PACKAGES = ("raft", "kv", "tso", "txn", "procedures", "sqlproxy", "kvorum", "pyspark_kvorum")

# Modules that nothing of ours imports, each with who does instead. A line that stopped being true
# fails the test as well, so the list cannot rot.
ENTRY_POINTS = {
    "kvorum.cli.main": "the `kvorum` command (pyproject.toml)",
    "kvorum.__main__": "python -m kvorum",
    "kvorum.sql.sql_process": "python -m, by kvorum.sql.sql_processes",
    "kvorum.steps.step_process": "python -m, by kvorum.steps.step_processes",
    "kvorum.testing.pytest_plugin": "pytest (pyproject.toml)",
    "procedures.master.balancing.simulate": "python -m, a cluster to plan for on paper",
    "pyspark_kvorum.bulk": "kvorum.spark.bulk_load, by name: neither package imports the other",
}


def modules() -> list[str]:
    """Dotted names of all modules on disk, packages included, in order."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


@functools.cache
def graph() -> grimp.ImportGraph:
    """Who imports whom among our packages, and the demo (it is what `make demo` runs)."""
    extra = [name for name in ("demo",) if (ROOT / name / "__init__.py").exists()]
    return grimp.build_graph(*PACKAGES, *extra, cache_dir=None)


@each("name", [m for m in modules() if not m.endswith("__main__")])
def test_module_can_be_imported(name: str) -> None:
    """A module that cannot be imported alone (a cycle, a missing package) breaks its users."""
    importlib.import_module(name)


@pytest.mark.parametrize("package", PACKAGES)
def test_package_is_typed(package: str) -> None:
    """Without py.typed the annotations of a package do not reach those who use it."""
    assert (ROOT / package / "py.typed").exists()


def test_no_dead_module() -> None:
    """Code that no other module reaches is either unfinished wiring or left over."""
    known = graph()
    dead = [
        name
        for name in modules()
        if name not in ENTRY_POINTS and not _is_package(name) and not _importers(known, name)
    ]
    assert not dead, (
        f"nothing imports these; wire them in, list their entry point, or delete: {dead}"
    )


def test_entry_points_are_needed() -> None:
    """An exemption that is not needed any more would hide the next dead module."""
    known = graph()
    on_disk = set(modules())
    stale = [name for name in ENTRY_POINTS if name in on_disk and _importers(known, name)]
    assert not stale


def _importers(known: grimp.ImportGraph, name: str) -> list[str]:
    """Who imports the module, but for `python -m` starters, which are entry points themselves."""
    found = known.find_modules_that_directly_import(name)
    return sorted(m for m in found if not m.endswith(".__main__"))


def _is_package(name: str) -> bool:
    return Path(ROOT, *name.split("."), "__init__.py").exists()

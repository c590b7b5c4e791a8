"""The files that decide what gets installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.kit.machine import ROOT, free_port_base

LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


def pins(text: str) -> dict[str, str]:
    """Name to version of every package that a lock file pins."""
    return dict(re.findall(r"^([a-z0-9][a-z0-9.-]*)==([^ ;]+)", text, re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda p: p.name)
def test_lock_is_exact_and_portable(lock: Path) -> None:
    """Without hashes, or with an index or a path in it, a lock installs other things elsewhere."""
    text = lock.read_text()
    for entry in re.split(r"\n(?=[a-z0-9])", text)[1:]:
        assert "==" in entry, entry
        assert "--hash=sha256:" in entry, entry.splitlines()[0]
    assert not re.search(r"://|index-url|find-links|(?<![\w.])/(?:home|root|opt|tmp|usr)/", text)


def test_nothing_heavy_is_locked() -> None:
    """A numeric framework pulled in by accident would cost every user gigabytes."""
    for lock in LOCKS:
        assert not {"torch", "jax", "jaxlib", "tensorflow"} & pins(lock.read_text()).keys()


def test_hardened_libraries_are_pinned_exactly() -> None:
    """raft/group.py and kv/storage/rocks.py rely on these very versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"pysyncobj==0.3.17", "rocksdict==0.3.29"} <= set(project["dependencies"])
    for name in ("runtime", "dev"):
        locked = pins((ROOT / "requirements" / f"{name}.lock").read_text())
        assert (locked["pysyncobj"], locked["rocksdict"]) == ("0.3.17", "0.3.29")


def test_lock_answers_every_requirement() -> None:
    """A dependency added without `make lock` would be missing on the next fresh machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(name for extra in extras for name in extra)]
    files = ("dev.lock", "attack.lock")  # together: the attack's stands beside
    locked = pins("".join((ROOT / "requirements" / name).read_text() for name in files))
    names = {re.split(r"[=<>!~;\[ ]", w, maxsplit=1)[0].lower() for w in wanted}
    assert names <= locked.keys(), f"run `make lock`: {sorted(names - locked.keys())}"


def test_port_bases_do_not_repeat() -> None:
    """Two clusters of one test run must not share ports."""
    assert len({free_port_base(nodes=3) for _ in range(20)}) == 20

"""The fixtures, as a project of users has them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from tests.kit.machine import ROOT

PROJECT = """
import kvorum
import pytest


@kvorum.workflow("plug")
async def plug(flow, args: int) -> int:
    await flow.sleep(86_400_000)
    return args + 1


@pytest.mark.kvorum(procedures=[plug], nodes=1)
async def test_inside(kvorum_cluster):
    assert await (await kvorum_cluster.submit(plug, 1)).result() == 2
    assert kvorum_cluster.elapsed_ms > 86_400_000


@pytest.mark.kvorum(procedures=[plug], nodes=1)
@pytest.mark.parametrize("given", [3])
def test_plain(kvorum_cluster, given):
    async def story(cluster):
        return await (await cluster.submit(plug, given)).result()

    assert kvorum_cluster(story) == 4


@pytest.mark.kvorum(nodes=1)
@pytest.mark.kvorum_seeds(2)
async def test_seeds(kvorum_cluster):
    kvorum_cluster.note("here it is")
    assert kvorum_cluster.seed == 1
"""


pytestmark = pytest.mark.slow


def run(project: Path, *more: str, plugins: str = "") -> str:
    (project / "test_project.py").write_text(PROJECT)
    return pytest_of(project, "test_project.py", "-rA", *plugins.split(), *more)


def pytest_of(project: Path, *more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "kvorum.testing.pytest_plugin", *more],
        cwd=project,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("plugins", ["", "-p pytest_asyncio.plugin -o asyncio_mode=auto"])
def test_u7_tests_run_inside_of_the_simulation_and_failures_say_their_seed(
    tmp_path: Path, plugins: str
) -> None:
    """Also beside a plugin that takes async tests for its own."""
    told = run(tmp_path, plugins=plugins)
    assert "3 passed" in told, told
    assert "1 failed" in told, told
    assert "FAILED test_project.py::test_seeds[seed2]" in told
    assert "seed 2; again: pytest test_project.py -k test_seeds --kvorum-seed 2" in told
    assert "test: here it is" in told


def test_u7_one_seed_can_be_asked_for(tmp_path: Path) -> None:
    """As what failed says."""

    told = run(tmp_path, "--kvorum-seed", "1", "-k", "seeds")
    assert "1 passed" in told, told
    assert "[seed1]" in told


def test_u7_the_guide_is_true(tmp_path: Path) -> None:
    """Its test finds the double payment; with the step that it mends all tests pass."""
    guide = (ROOT / "docs" / "guides" / "testing.md").read_text()
    payments, tests, mended = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "test_payments.py").write_text(tests)
    step = re.compile(r"    @kvorum.step\n    async def charge.*?next\(\"book\"\)\n", re.DOTALL)
    assert step.search(payments)
    for text, passes in ((payments, False), (step.sub(indent(mended, "    "), payments), True)):
        (tmp_path / "payments.py").write_text(text)
        if passes:  # all of it: test_explore.py
            few = 'setup=accounts, only=lambda fault: fault.moment not in ("sends", "gets"))'
            (tmp_path / "test_payments.py").write_text(tests.replace("setup=accounts)", few))
        told = pytest_of(tmp_path, "test_payments.py")
        assert ("2 passed" if passes else "1 failed, 1 passed") in told, told
        assert passes or "charge happened 2 times, not 1" in told

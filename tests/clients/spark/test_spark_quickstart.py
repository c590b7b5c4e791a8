"""The quick start for Spark, as a script and as a notebook."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from scripts import notebook
from tests.kit.machine import java_home
from tests.kit.processes import NodeProcess

pytestmark = pytest.mark.spark


def test_o14_the_notebook_is_the_script() -> None:
    """Readers of the notebook would run other code than what is tested."""
    assert notebook.TARGET.read_text() == notebook.notebook()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_o14_quick_start_runs(node: NodeProcess) -> None:
    """What a newcomer runs first fails."""
    home, advice = java_home()
    assert home is not None, advice
    # As from a shell that has not activated the environment: another python3 comes first, and has
    # nothing of ours.
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "PYTHON"))}
    environment = kept | {
        "KVORUM": f"127.0.0.1:{node.base}",
        "JAVA_HOME": home,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
    }
    ran = subprocess.run(
        [sys.executable, str(notebook.SCRIPT)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=270,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "PYSPARK_PYTHON" not in environment
    assert "rows over 1400: 66" in ran.stdout
    assert "rows: 1050" in ran.stdout
    assert ran.stdout.count("insert") == 3  # the three cities of the totals

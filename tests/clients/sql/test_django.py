"""Django to the end: migrations of its own apps and of one with every relation, the ORM, the admin,
fixtures, `inspectdb`, changes of the schema and back again
(tests/clients/sql/django_site/checks.py).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.sql.conftest import Sql

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
SITE = Path(__file__).with_name("django_site")


def test_django(sql: Sql, tmp_path: Path) -> None:
    """A migration, a query or a page of Django's fails, or a migration finds a change to make."""
    shutil.copytree(SITE, tmp_path / "site", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "run.py", str(sql.port), sql.database],
        cwd=tmp_path / "site",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-4000:]}"
    assert done.stdout.count("ok ") >= 24

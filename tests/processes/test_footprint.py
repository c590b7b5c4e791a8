"""What a node costs when nobody asks it anything, and what it imports."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvorum.local import logs
from tests.kit.machine import ROOT, free_port_base
from tests.kit.processes import NodeProcess

CPU_SHARE_MAX = 0.02
MEMORY_BYTES_MAX = 150 << 20


@pytest.mark.cluster
@pytest.mark.slow
def test_idle_node_costs_nearly_nothing(tmp_path: Path) -> None:
    """A timer that spins would cost every idle node a core's share for ever."""
    with NodeProcess(tmp_path / "data", free_port_base()) as node:
        node.start()
        time.sleep(1)
        before, began = cpu_s(node.spawned), time.monotonic()
        time.sleep(4)
        share = (cpu_s(node.spawned) - before) / (time.monotonic() - began)
        assert share <= CPU_SHARE_MAX, f"{share:.1%} of a core while idle"
        assert resident_bytes(node.spawned) <= MEMORY_BYTES_MAX


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("imported", "heavy"),
    [
        ("kvorum", ("asyncio", "msgspec", "typer")),
        ("kvorum.connecting", ("fastapi", "uvicorn", "rocksdict", "pysyncobj", "pyarrow", "typer")),
        ("kvorum.node.node", ("fastapi", "uvicorn", "pyarrow", "pyspark", "prometheus_client")),
        ("kvorum.cli.main", ("fastapi", "rocksdict", "kvorum.node.node", "rich")),
    ],
)
def test_nothing_heavy_is_imported_early(imported: str, heavy: tuple[str, ...]) -> None:
    """An import that nobody needs costs every start of every command."""
    code = f"import sys, {imported}; print([m for m in {heavy!r} if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_log_lines_are_json() -> None:
    """A log that a collector cannot parse is read by nobody."""
    stream = io.StringIO()
    record = logging.LogRecord("kvorum.x", logging.ERROR, "f", 1, "was %d", (7,), None)
    record.data = {"method": "PUT"}
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonLines())
    handler.emit(record)
    line = json.loads(stream.getvalue())
    assert line["level"] == "error"
    assert line["message"] == "was 7"
    assert line["method"] == "PUT"

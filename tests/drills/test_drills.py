"""Two of the drills that cost little, and the proof that a drill would notice."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kvorum
from tests.drills.drills import DRILLS, Drill, hold
from tests.drills.machines import Machines, no_compiler

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]
CHEAP = ("suspend", "clock-ahead")


@pytest.mark.parametrize("drill", [one for one in DRILLS if one.name in CHEAP], ids=CHEAP)
def test_f3_a_drill_holds(drill: Drill) -> None:
    """What `make drills` holds must be holdable: it starts, hurts, mends and finds nothing."""
    report = hold(drill)
    if report.skipped:
        pytest.skip(report.skipped)
    assert not report.wrong
    assert report.writes > 50, "hardly anything was written"


def test_f3_a_drill_notices_a_lost_write() -> None:
    """A check that passes whatever is lost would say "nothing lost" for ever."""

    def lose(nodes: Machines) -> None:
        with kvorum.connect(nodes.url) as db:
            row = next(iter(db.table("default", "k").rows(prefix="a")))
            db.table("default", "k").delete(row.key)

    report = hold(Drill(name="lose", what="an acknowledged row is deleted", hurt=lose))
    assert any("are lost" in line for line in report.wrong), report.wrong


def test_f3_a_node_is_told_of_its_machine(tmp_path: Path) -> None:
    """Disks that are not slow and clocks that are right would make drills of nothing."""
    if why := no_compiler():
        pytest.skip(why)
    nodes = Machines(tmp_path)
    with nodes.cables:
        said = "import os, time; print(time.time()); f = open('x', 'w'); t = time.monotonic(); "
        said += "os.fdatasync(f.fileno()); print(time.monotonic() - t)"
        for ahead_ms, late_ms in ((-3_600_250, 0), (3_600_750, 300)):
            nodes.wrong_clock(1, ahead_ms)
            nodes.slow_disk(1, late_ms)
            assert struct.unpack("<2q", nodes.machine(1).read_bytes()) == (late_ms, ahead_ms)
            shown = subprocess.run(
                [sys.executable, "-c", said],
                env=os.environ | nodes.environment(1),
                cwd=tmp_path,
                check=True,
                capture_output=True,
            )
            clock, sync = map(float, shown.stdout.split())
            assert abs(clock - time.time() - ahead_ms / 1000) < 60
            assert sync >= late_ms / 1000

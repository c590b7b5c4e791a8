"""Which test process takes which file next, and how many of them there are.

Half of the suite's time is waiting: for elections, leases, processes that start. Files that start
processes (marked so) leave a core idle, others keep one busy, so the two kinds are run beside each
other: there is one process more than cores, the last of them takes the files that compute, the
others those that wait, each the longest that is left; whoever has none of its kind left takes what
there is. Files of tests/clients/spark go to the first process while it has any: a session of Spark
starts in ten seconds.

Files are not torn apart (pytest-xdist's `loadfile`): their fixtures are made once. Seconds that
files took are in durations.json; one that is not there is short. Nothing but the order comes from
these figures, so it does no harm that they get old. `make test-all DURATIONS=1` writes them anew.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.kit.machine import ROOT

RECORD = Path(__file__).with_name("durations.json")
_PROCESSES_MAX = 4  # tests/kit/machine.py has ports for so many
_WORTH_NOTING_S = 3.0
_STARTS_SPARK = "tests/clients/spark/"
_MARKED = re.compile(r"^(?:@|pytestmark\b.*)pytest\.mark\.(?:cluster|spark)\b", re.MULTILINE)
ALL_SLOW = re.compile(r"^pytestmark = (?:\[[^\]]*)?pytest\.mark\.slow\b", re.MULTILINE)


def processes() -> int:
    """How many test processes `-n auto` means."""
    return min(_PROCESSES_MAX, len(os.sched_getaffinity(0)) + 1)


def recorded() -> dict[str, float]:
    """Seconds by file. A test run does not fail for what is only an order."""
    try:
        found: dict[str, float] = json.loads(RECORD.read_text())
    except (OSError, ValueError):  # half of a file, say
        return {}
    return found


@cache
def waits(file: str) -> bool:
    """Whether it starts processes."""
    path = ROOT / file
    return path.exists() and bool(_MARKED.search(path.read_text("utf-8")))


def left_out(file: Path, config: pytest.Config) -> bool:
    """Whether all of its tests are long, in a run without such: it is not even imported then."""
    return without_slow(config) and bool(ALL_SLOW.search(file.read_text("utf-8")))


def without_slow(config: pytest.Config) -> bool:
    """As `make test` runs them."""
    return "not slow" in config.option.markexpr


def best(files: Iterable[str], took_s: Mapping[str, float], *, worker: int, workers: int) -> str:
    """The one of `files` that process `worker` of `workers` runs next; of equals the first."""
    computes = worker == workers - 1 > 0

    def rank(file: str) -> tuple[bool, bool, float]:
        of_spark = file.startswith(_STARTS_SPARK)
        return waits(file) != computes, of_spark == (worker == 0), took_s.get(file, 0.0)

    return max(files, key=rank)


def import_all(config: pytest.Config) -> None:
    """Of a whole run in several processes: each begins elsewhere, so that each compiles a part of
    the files for all. In a fresh clone that is most of what collecting takes, and all of them did
    it for the same file at the same time.
    """
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    every = sorted((ROOT / "tests").rglob("test_*.py"))
    files = [file for file in every if not left_out(file, config)]
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in files[first:] + files[:first]:
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        # Whatever is wrong with it is told when it is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


class Turns(LoadFileScheduling):
    """See the module."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._took_s = recorded()

    def _assign_work_unit(self, node: WorkerController) -> None:
        worker = int(node.gateway.id.removeprefix("gw"))
        file = best(self.workqueue, self._took_s, worker=worker, workers=self.numnodes)
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)


class Durations:
    """Adds up what files take: a plugin of the process that gives the tests out."""

    def __init__(self) -> None:
        self._took_s: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._took_s[file] = self._took_s.get(file, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        """Files that were not run keep what they had, if they still exist."""
        found = recorded() | self._took_s
        kept = {
            file: round(seconds)
            for file, seconds in sorted(found.items())
            if seconds >= _WORTH_NOTING_S and (ROOT / file).exists()
        }
        RECORD.write_text(json.dumps(kept, indent=1) + "\n")

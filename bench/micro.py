"""What measurements inside one process share: a folder for the data, a JSON line, a profile."""

from __future__ import annotations

import cProfile
import json
import pstats
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop


def print_measured(measure: Callable[[Path], Coroutine[Any, Any, dict[str, Any]]]) -> None:
    """Run `measure` on a new folder, which is removed, and print what it found."""
    with tempfile.TemporaryDirectory(prefix="kvorum-bench-") as folder:
        print(json.dumps(uvloop.run(measure(Path(folder)))))


@contextmanager
def profiled(wanted: bool, lines: int = 35) -> Iterator[None]:
    """The functions of the block that took most time of their own, printed if `wanted`."""
    if not wanted:
        yield
        return
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(lines)

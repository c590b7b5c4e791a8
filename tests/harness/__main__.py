"""make harness: every built-in procedure (or those named), hurt at every point.

    python -m tests.harness [TYPE …]                          every point of every type (named)
    python -m tests.harness TYPE --case "the master dies before write 3"     one point, again

The last line of a type is its row of docs/testing-procedures.md: points, seconds, failures.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from pathlib import Path
from time import monotonic

import pytest

from tests.harness import harness
from tests.harness.saboteur import Case
from tests.harness.scenarios import SCENARIOS


def main(names: list[str], only: str = "") -> int:
    failed = [case for name in names or sorted(SCENARIOS) for case in _hurt(name, only)]
    return 1 if failed else 0


def _hurt(name: str, only: str) -> list[Case]:
    """The points at which a type (those that `only` names, if it is given) did not hold."""
    began = monotonic()
    failed: list[Case] = []
    with pytest.MonkeyPatch.context() as patches, tempfile.TemporaryDirectory() as root:
        harness.files(patches, Path(root))
        cases = [case for case in harness.cases(name) if only in ("", str(case))]
        if not cases:
            _say(f"{name}: {only!r} is none of its points")
            return [Case()]
        for number, case in enumerate(cases):
            place = Path(root, str(number))
            place.mkdir()
            os.chdir(place)
            try:
                harness.play(name, case)
            except Exception:  # noqa: BLE001 - the others are to be seen, too
                failed.append(case)
                traceback.print_exc()
                _say(f'{name} FAILED; again: python -m tests.harness {name} --case "{case}"')
    seconds = monotonic() - began
    _say(f"{name}: {len(cases)} ways to hurt it, {seconds:.0f} s, {len(failed)} failures")
    return failed


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.harness")
    parser.add_argument("types", nargs="*", metavar="TYPE")
    parser.add_argument("--case", default="", help="one point, as a failure names it")
    given = parser.parse_args()
    if unknown := sorted({*given.types} - {*SCENARIOS}):
        parser.error(f"no type is called {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    sys.exit(main(given.types, given.case))

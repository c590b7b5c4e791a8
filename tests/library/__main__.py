"""make harness: every built-in procedure (or those named), hurt at every point."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from pathlib import Path

import pytest

from tests.library import harness
from tests.library.scenarios import SCENARIOS


def main(names: list[str]) -> int:
    failed = 0
    for name in names or sorted(SCENARIOS):
        with pytest.MonkeyPatch.context() as patches, tempfile.TemporaryDirectory() as root:
            harness.files(patches, Path(root))
            cases = harness.cases(name)
            for number, case in enumerate(cases):
                place = Path(root, str(number))
                place.mkdir()
                os.chdir(place)
                try:
                    harness.play(name, case)
                except Exception:  # noqa: BLE001 - the others are to be seen, too
                    failed += 1
                    print(f"{name}: {case}")  # noqa: T201
                    traceback.print_exc()
            print(f"{name}: {len(cases)} ways to hurt it, {failed} failures so far")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

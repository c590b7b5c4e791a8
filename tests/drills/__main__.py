"""`python -m tests.drills`: hurt clusters of real processes on this machine, and see what holds.

python -m tests.drills                  all drills, a few minutes; exit code 1 if one fails
python -m tests.drills suspend restore  some of them
python -m tests.drills --list           what there is
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.drills.drills import DRILLS, Drill, Report, hold

_TITLES = ("drill", "what is done", "no write for at most", "found", "whole again", "writes", "")


def main(argv: Sequence[str] | None = None) -> int:
    """0: all held; 1: some did not; 2: wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.drills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="all, if left out")
    parser.add_argument("--list", action="store_true", help="hold none")
    options = parser.parse_args(argv)
    by_name = {drill.name: drill for drill in DRILLS}
    if unknown := set(options.names) - set(by_name):
        parser.error(f"there is no drill {min(unknown)}; there are {', '.join(by_name)}")
    chosen = [by_name[name] for name in options.names] or list(DRILLS)
    if options.list:
        for drill in chosen:
            _say(f"{drill.name:14} {drill.what}")
        return 0
    return _all(chosen)


def _all(drills: Sequence[Drill]) -> int:
    """A table in Markdown, line by line as they end."""
    _say("| " + " | ".join(_TITLES) + " |")
    _say("|---" * len(_TITLES) + "|")
    failed = 0
    for drill in drills:
        report = hold(drill)
        failed += bool(report.wrong)
        _say(_row(report))
        for line in report.wrong:
            sys.stderr.write(f"{drill.name}: {line}\n")
    return 1 if failed else 0


def _row(report: Report) -> str:
    drill = report.drill
    found = [f"{report.gap_s:.1f} s", f"{report.whole_s:.1f} s", str(report.writes)]
    verdict = report.skipped or ("FAILED" if report.wrong else "nothing lost")
    cells = [drill.name, drill.what, f"{drill.gap_s:.0f} s", *found, verdict]
    if report.skipped:
        cells[3:6] = ["", "", ""]
    return "| " + " | ".join(cells) + " |"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())

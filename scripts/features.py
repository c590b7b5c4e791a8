"""Make docs/features.md from the rows that each package keeps in docs/_features, sorted by id.

    python scripts/features.py [--check]

Rows of one id are joined. `--check` says what is out of date and exits 1.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "features.md"
ROW = re.compile(r"^\| *([A-Z]+\d+) *\| *(.*?) *\| *(.*?) *\|$")
HEAD = """# Features

What works, by the ids of the design, and the tests that prove it. What is not listed does not
work yet. Made from `docs/_features/*.md` by `python scripts/features.py`.

| id | what works | tests |
|---|---|---|
"""


def rows() -> dict[str, list[tuple[str, str]]]:
    """By id: (what works, tests) of every package that has a part in it."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for file in sorted((ROOT / "docs" / "_features").glob("*.md")):
        for line in file.read_text().splitlines():
            if match := ROW.match(line):
                found[match[1]].append((match[2], match[3].replace("`", "")))
    return found


def page() -> str:
    """The page's text."""
    order = sorted(rows().items(), key=lambda item: (item[0][0], int(item[0][1:])))
    lines = [
        f"| {name} | {'; '.join(what for what, _ in parts)} | {'; '.join(t for _, t in parts)} |"
        for name, parts in order
    ]
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        return 0 if TARGET.exists() and TARGET.read_text() == page() else 1
    TARGET.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())

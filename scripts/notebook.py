"""Make demo/quickstart/spark_quickstart.ipynb from the cells of spark_quickstart.py beside it.

    python -m scripts.notebook [--check]

`# %%` begins a cell of code, `# %% [markdown]` one of text. `--check` says whether the notebook is
out of date, and exits 1.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parent.parent / "demo" / "quickstart" / "spark_quickstart.py"
TARGET = SCRIPT.with_suffix(".ipynb")
_MARK, _TEXT = "# %%", "# %% [markdown]"


def notebook() -> str:
    """The notebook as JSON, version 4.5 of its format."""
    cells: list[dict[str, Any]] = []
    lines: list[str] = []
    for line in [*SCRIPT.read_text().splitlines(), _MARK]:
        if not line.startswith(_MARK):
            lines.append(line)
            continue
        if cells:
            _fill(cells[-1], lines)
        cells.append(_cell(len(cells), text=line == _TEXT))
        lines = []
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = {
        "cells": cells[:-1],  # the last one is the end of the script
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _cell(at: int, *, text: bool) -> dict[str, Any]:
    if text:
        return {"cell_type": "markdown", "id": f"cell-{at}", "metadata": {}, "source": []}
    empty: dict[str, Any] = {"execution_count": None, "outputs": [], "source": []}
    return {"cell_type": "code", "id": f"cell-{at}", "metadata": {}} | empty


def _fill(cell: dict[str, Any], lines: list[str]) -> None:
    if cell["cell_type"] == "markdown":
        lines = [line.removeprefix("#").removeprefix(" ") for line in lines]
    text = "\n".join(lines).strip("\n")
    cell["source"] = text.splitlines(keepends=True)


def main(arguments: list[str]) -> int:
    """See the module."""
    made = notebook()
    if "--check" in arguments:
        return int(not TARGET.exists() or TARGET.read_text() != made)
    TARGET.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

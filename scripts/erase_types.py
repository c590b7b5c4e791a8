"""Makes clients/typescript/worker.mjs of worker.ts: the same lines without their types.

It knows as much of TypeScript as that file has: aliases and interfaces of one line, annotations
with the types below. `tests/clients/typescript` compares what is
checked in. Newer versions of Node.js run worker.ts itself.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parent.parent / "clients" / "typescript" / "worker.ts"
TARGET: Final = SOURCE.with_suffix(".mjs")
_NAME: Final = r"(?:Json|Steps?|Task|Outcome|Declared|Options|string|number|boolean|void)"
_ONE: Final = rf"(?:Promise<{_NAME}>|{_NAME})(?:\[\])*(?: \| undefined)?"
_TYPE: Final = rf"(?:\([^()]*\) => {_ONE}|{_ONE})"


def erased(source: str) -> str:
    """JavaScript."""
    return "\n".join(line for one in source.split("\n") if (line := _line(one)) is not None)


def _line(line: str) -> str | None:
    if re.match(r"(type|interface) ", line):
        return None
    if line.strip().startswith(("//", "/**")):
        return line
    return re.sub(rf"(?<=[\w)])\??: {_TYPE}(?=[,;)={{ ]|$)", "", line)


def main() -> None:
    text = SOURCE.read_text().replace(
        "worker.mjs is this file without its types.", "made of worker.ts."
    )
    TARGET.write_text(erased(text))


if __name__ == "__main__":
    main()

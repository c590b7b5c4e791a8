"""Makes docs/limits.md from kv/base/limits.py: `python -m scripts.limits_reference`."""

from __future__ import annotations

import re
from pathlib import Path

from kv.base import limits

TARGET = Path(__file__).parent.parent / "docs" / "limits.md"
_SECTION = re.compile(r"# -- (.+)")
_CONSTANT = re.compile(r"([A-Z][A-Z0-9_]*): Final = [^#]+(?:#\s*(.+))?")
_UNITS = {
    "BYTES": "bytes",
    "MS": "ms",
    "CHARS": "characters",
    "ROWS": "rows",
    "KEYS": "keys",
    "OPS": "ops",
    "DAYS": "days",
}


def render() -> str:
    """The whole page."""
    lines = [
        "# Limits",
        "",
        "Made from `kv/base/limits.py` by `python -m scripts.limits_reference`. Nothing grows "
        "without a bound from here. A request above one is refused with `TOO_LARGE` (413) or "
        "`INVALID_ARGUMENT` (400), whose `details` have the limit and the actual figure, and "
        "nothing is done. `BUSY` (429) means that a queue is full: try again.",
        "",
    ]
    for line in Path(limits.__file__).read_text().splitlines():
        section, constant = _SECTION.match(line), _CONSTANT.match(line)
        if section:
            lines += [
                "",
                f"## {section[1].capitalize()}",
                "",
                "| name | value | |",
                "|---|---|---|",
            ]
        elif constant:
            value = getattr(limits, constant[1])
            meaning = (constant[2] or "").strip().replace("|", "\\|")
            lines.append(f"| {constant[1]} | {_shown(constant[1], value)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _shown(name: str, value: object) -> str:
    if not isinstance(value, int):
        return str(value)
    words = name.split("_")
    unit = next((u for w, u in _UNITS.items() if w in words), "")
    if unit == "bytes" and value % limits.MiB == 0 and value:
        return f"{value // limits.MiB} MiB"
    if unit == "bytes" and value % limits.KiB == 0 and value:
        return f"{value // limits.KiB} KiB"
    return f"{value:,} {unit}".strip()


if __name__ == "__main__":
    TARGET.write_text(render())

"""The names that users import from `kvorum` are pinned: adding or losing one is a decision.

`UPDATE_GOLDEN=1 pytest tests/arch` rewrites the snapshot; the commit then says why.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import kvorum

SNAPSHOT = Path(__file__).with_name("public_names.txt")


def surface() -> str:
    """One line per public name: what it is, and a function's parameters."""
    lines = []
    for name in sorted(getattr(kvorum, "__all__", [])):
        value = getattr(kvorum, name)
        if inspect.isclass(value):
            members = [m for m in dir(value) if not m.startswith("_")]
            own = [m for m in members if not issubclass(value, BaseException) or m in vars(value)]
            lines += [f"class {name}", *(f"    {name}.{m}" for m in own)]
        elif inspect.iscoroutinefunction(value):
            lines.append(f"async def {name}({_parameters(value)})")
        elif callable(value):
            lines.append(f"def {name}({_parameters(value)})")
        else:
            lines.append(f"{name}")
    return "\n".join(lines) + "\n"


def _parameters(value: object) -> str:
    return ", ".join(inspect.signature(value).parameters)  # type: ignore[arg-type]


def test_public_names_are_pinned() -> None:
    """A name that vanishes breaks users' programs; one that slips in must be kept for ever."""
    if os.environ.get("UPDATE_GOLDEN"):
        SNAPSHOT.write_text(surface())
    assert surface() == SNAPSHOT.read_text(), "meant? then UPDATE_GOLDEN=1 pytest tests/arch"

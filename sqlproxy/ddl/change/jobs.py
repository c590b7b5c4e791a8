"""kvorum.jobs: the schema changes among the procedures, as the system catalog shows them, and what
who waits for one is progress_line. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

KINDS: Final[Mapping[str, str]] = {
    "CreateIndex": "add index",
    "DropIndex": "drop index",
    "AddConstraint": "add constraint",
    "AddColumn": "add column",
    "AddParts": "alter table",
    "ChangeType": "alter column type",
    "AlterType": "alter column type",
    "DropColumn": "drop column",
    "AlterTable": "alter table",
}


def jobs_of(procedures: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """Rows of kvorum.jobs from rows of kvorum.procedures; what they lock says what is changed."""
    found = []
    for one in procedures:
        kind = KINDS.get(str(one["name"]))
        if kind is None:
            continue
        paths = [part for lock in one.get("locks") or () for part in _path(lock)]
        database, table = paths[0] if paths else (None, None)
        error = one.get("error")
        part, text = _progress(one)
        rows = _rows_in(text)
        found.append(
            {
                **{name: one.get(name) for name in ("id", "state", "created_ms", "updated_ms")},
                "kind": kind,
                "phase": one.get("step"),
                "database": database,
                "table": table,
                "object": paths[1][1] if len(paths) > 1 else None,
                "progress": part,
                "rows_done": rows,
                "rows_total": round(rows / part) if rows is not None and part else None,
                "error": error.get("message") if isinstance(error, Mapping) else None,
            }
        )
    return found


def progress_line(procedure: Mapping[str, object]) -> str:
    """Where a running definition is, in a line for who waits for it; "": nothing is to be said."""
    part, text = _progress(procedure)
    if not text:
        return ""
    kind = KINDS.get(str(procedure.get("name")), str(procedure.get("name")))
    shown = f", about {part:.0%}" if part else ""
    return f"{kind}: {procedure.get('step')}, {text}{shown}"


def _progress(procedure: Mapping[str, object]) -> tuple[float | None, str]:
    """What its step said last: part and words."""
    found = procedure.get("progress")
    if not isinstance(found, Mapping):
        return None, ""
    return float(found.get("part") or 0.0), str(found.get("text") or "")


def _rows_in(text: str) -> int | None:
    number, _, what = text.partition(" ")
    return int(number) if what == "rows" and number.isdigit() else None


def _path(lock: Any) -> list[tuple[str, str]]:
    """Namespace and name in a lock of a table or an index."""
    resource = lock.get("resource") if isinstance(lock, Mapping) else lock[-1]
    kind, _, rest = str(resource).partition("/")
    namespace, _, name = rest.partition("/")
    return [(namespace, name)] if kind == "table" and name else []

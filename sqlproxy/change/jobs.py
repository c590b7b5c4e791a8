"""kvorum.jobs: the schema changes among the procedures, as the system catalog shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

KINDS: Final[Mapping[str, str]] = {
    "CreateIndex": "add index",
    "DropIndex": "drop index",
    "AddConstraint": "add constraint",
    "DropColumn": "drop column",
    "AlterTable": "alter table",
}


def jobs_of(procedures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of kvorum.jobs from rows of kvorum.procedures; what they lock says what is changed."""
    found = []
    for one in procedures:
        kind = KINDS.get(str(one["name"]))
        if kind is None:
            continue
        paths = [part for lock in one.get("locks") or () for part in _path(lock)]
        database, table = paths[0] if paths else (None, None)
        error = one.get("error")
        found.append(
            {
                **{name: one.get(name) for name in ("id", "state", "created_ms", "updated_ms")},
                "kind": kind, "phase": one.get("step"), "database": database, "table": table,
                "object": paths[1][1] if len(paths) > 1 else None,
                "error": error.get("message") if isinstance(error, Mapping) else None,
            }
        )  # fmt: skip
    return found


def _path(lock: Any) -> list[tuple[str, str]]:
    """Namespace and name in a lock of a table or an index."""
    resource = lock.get("resource") if isinstance(lock, Mapping) else lock[-1]
    kind, _, rest = str(resource).partition("/")
    namespace, _, name = rest.partition("/")
    return [(namespace, name)] if kind == "table" and name else []

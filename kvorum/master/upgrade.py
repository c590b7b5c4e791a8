"""Would new code run what is under way? Its declarations against all live records (U10). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from procedures.engine import core
from procedures.engine.plain_data import Plain
from procedures.engine.records import Record
from procedures.engine.registry import ProcedureType, Registry


def check(types: Sequence[ProcedureType], records: Iterable[Record]) -> Plain:
    """How many live procedures have a name that these declare, and which of them they would not
    run, with the reason: by the rule by which nodes and workers leave a procedure alone.
    """
    registry = Registry()
    for declared in types:
        registry.put(declared)
    checked, broken = 0, []
    for record in records:
        if registry.find(record.name) is None:
            continue
        checked += 1
        if why := core.missing(record, registry) or _other_calls(record, registry):
            broken.append(
                {
                    "id": str(record.id),
                    "name": record.name,
                    "version": record.version,
                    "state": record.state.name,
                    "step": record.step,
                    "why": why,
                }
            )
    return {"checked": checked, "broken": broken}


def _other_calls(record: Record, registry: Registry) -> str:
    """Why a workflow's function would not make the calls that are stored: it is run here as far as
    these go, and nothing is carried out.
    """
    declared = registry.get(record.name, record.version)
    return "" if declared.replays is None else declared.replays(record)

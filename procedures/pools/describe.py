"""Declarations as plain data and back.

The master decides about procedures whose code it does not have: whether a step exists, what is
undone, whether one is past its point of no return. For that a description is enough; it becomes a
`ProcedureType` whose methods are names, and which says of itself that it is `remote`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import NoReturn

from procedures.engine.procedure import Lock
from procedures.engine.registry import ProcedureType, StepDef, StepMark, UndoDef
from procedures.pools.messages import Description, StepText


def described(declared: ProcedureType, pool: str) -> Description:
    """What a worker of `pool` reports of a type."""
    rule, looks = declared.locks, declared.remote and declared.needs_look
    locks = None
    if not callable(rule) and (rule or not looks):
        locks = tuple((lock.mode, lock.resource) for lock in rule)
    return Description(
        name=declared.name,
        version=declared.version,
        pool=declared.pool or pool,
        first=declared.first,
        steps=tuple(
            StepText(
                s.name,
                s.mark.undo,
                s.mark.point_of_no_return,
                s.mark.undo_partial,
                s.mark.deadline_ms,
            )
            for s in declared.steps.values()
        ),
        undos=tuple(declared.undos),
        locks=locks,
        timeout_ms=declared.timeout_ms,
        retention_ms=declared.retention_ms,
        accepts=tuple(sorted(declared.accepts)),
        queue=declared.queue,
        priority=declared.priority,
        max_concurrent=declared.max_concurrent,
        rate_per_s=declared.rate_per_s,
        typed=declared.args is not None or declared.typed,
        origin=declared.origin,
        bypass=declared.bypass,
        validators=tuple(sorted(declared.validators)),
        key=declared.key,
        needs=declared.needs,
        pinned=declared.pinned,
        since_ms=declared.since_ms,
        replaying=declared.replaying,
        attributes=tuple(sorted(declared.attributes.items())),
        user=declared.user,
    )


def remote_type(description: Description) -> ProcedureType:
    """A type that is run elsewhere."""
    steps = {
        s.name: StepDef(
            s.name,
            _elsewhere,
            True,
            StepMark(
                first=s.name == description.first,
                undo=s.undo,
                point_of_no_return=s.point_of_no_return,
                undo_partial=s.undo_partial,
                deadline_ms=s.deadline_ms,
            ),
        )
        for s in description.steps
    }
    return ProcedureType(
        description.name,
        description.version,
        description.first,
        MappingProxyType(steps),
        MappingProxyType({name: UndoDef(name, _elsewhere, True) for name in description.undos}),
        tuple(Lock(mode, resource) for mode, resource in description.locks or ()),
        description.timeout_ms,
        description.retention_ms,
        object,
        description.origin,
        accepts=frozenset(description.accepts),
        pool=description.pool,
        queue=description.queue,
        priority=description.priority,
        max_concurrent=description.max_concurrent,
        rate_per_s=description.rate_per_s,
        bypass=description.bypass,
        key=description.key,
        needs=description.needs,
        pinned=description.pinned,
        since_ms=description.since_ms,
        replaying=description.replaying,
        remote=True,
        needs_look=description.locks is None or description.typed,
        typed=description.typed,
        validators=MappingProxyType(dict.fromkeys(description.validators, _elsewhere)),
        attributes=MappingProxyType(dict(description.attributes)),
        user=description.user,
    )


def _elsewhere(*_: object) -> NoReturn:
    raise AssertionError("a method that workers run was called here")

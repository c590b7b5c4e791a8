"""The procedures of schema changes, for a node's registry."""

from __future__ import annotations

from procedures.engine.registry import Registry
from sqlproxy.ddl.change import (
    adding,
    altering,
    columns,
    enum_types,
    functions,
    indexes,
    parts,
    retyping,
)
from sqlproxy.ddl.change import constraints as constraining
from sqlproxy.ddl.change.states import ChangeServices


def register(registry: Registry, services: ChangeServices) -> None:
    """Serve them."""
    indexes.register(registry, services)
    adding.register(registry, services)
    retyping.register(registry, services)
    altering.register(registry, services)
    columns.register(registry, services)
    constraining.register(registry, services)
    parts.register(registry, services)
    enum_types.register(registry, services)
    functions.register(registry)

"""The procedures of schema changes, for a node's registry."""

from __future__ import annotations

from procedures.engine.registry import Registry
from sqlproxy.change import indexes
from sqlproxy.change.states import ChangeServices


def register(registry: Registry, services: ChangeServices) -> None:
    """Serve them."""
    indexes.register(registry, services)

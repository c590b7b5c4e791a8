"""Tests of procedures: a whole cluster in one process, in virtual time (docs/guides/testing.md).

Names are loaded when they are first used: who needs only the simulated loop loads no node.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvorum.testing.cluster import Cluster, Started, simulate
    from kvorum.testing.exploring import Ended, Fault, Report, Violation, explore
    from kvorum.testing.history import Event, History
    from kvorum.testing.services import Service

_HOMES = {
    "kvorum.testing.cluster": "Cluster Started simulate",
    "kvorum.testing.exploring": "Ended Fault Report Violation explore",
    "kvorum.testing.history": "Event History",
    "kvorum.testing.services": "Service",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Cluster",
    "Ended",
    "Event",
    "Fault",
    "History",
    "Report",
    "Service",
    "Started",
    "Violation",
    "explore",
    "simulate",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'kvorum.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)

"""Kvorum: a Raft-replicated procedure store and transactional key-value service. What users touch.

    db = kvorum.connect("kvorum://host:7600")     a running node (or "http://host:7602")
    db = kvorum.open("directory")                 a node in this process
    db.table("app", "users").put("ada", b"1815")

    @kvorum.procedure("transfer")
    class Transfer:
        @kvorum.step(first=True)
        def withdraw(self, ctx): ...

Names are loaded when they are first used, so that `import kvorum` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kvorum.version import VERSION as __version__

if TYPE_CHECKING:
    from kv.base.errors import (
        AlreadyExists,
        Busy,
        ConditionFailed,
        Corruption,
        DeadlineExceeded,
        InvalidArgument,
        KeyLocked,
        KvorumError,
        NotFound,
        Refused,
        Rejected,
        Reroute,
        RestartTxn,
        SnapshotTooOld,
        TooLarge,
        TryLater,
        TxnAborted,
        Unavailable,
        UnknownOutcome,
        WriteConflict,
    )
    from kvorum.api.handles import Enqueued, Handle
    from kvorum.api.model import (
        Column,
        Delete,
        Item,
        NamespaceInfo,
        Page,
        ProcedureInfo,
        Put,
        Record,
        SnapshotInfo,
        TableInfo,
        TxnState,
    )
    from kvorum.api.procedure_events import AsyncProcedureEvents, ProcedureEvent
    from kvorum.api.watching import AsyncWatch, Change, Event
    from kvorum.connecting import aconnect, aopen, connect, open
    from kvorum.sdk.database import AsyncDatabase
    from kvorum.sdk.progress import follow
    from kvorum.sdk.snapshots import AsyncSnapshot
    from kvorum.sdk.sync import Database, ProcedureEvents, Snapshot, Table, Transaction, Watch
    from kvorum.sdk.tables import AsyncTable, AsyncTransaction
    from procedures.bus.workers import operation
    from procedures.engine.context import StepContext
    from procedures.engine.flow import Flow
    from procedures.engine.procedure import (
        again,
        children,
        done,
        exclusive,
        fail,
        next,
        shared,
        suspend,
    )
    from procedures.engine.registry import procedure, query, step, undo, update
    from procedures.engine.retries import retry
    from procedures.engine.step_exceptions import StepFailed
    from procedures.engine.workflow import workflow

_HOMES = {
    "kv.base.errors": (
        "AlreadyExists Busy ConditionFailed Corruption DeadlineExceeded InvalidArgument KeyLocked "
        "KvorumError NotFound Refused Rejected Reroute RestartTxn SnapshotTooOld TooLarge TryLater "
        "TxnAborted Unavailable UnknownOutcome WriteConflict"
    ),
    "kvorum.sdk.database": "AsyncDatabase",
    "kvorum.api.handles": "Enqueued Handle",
    "kvorum.api.model": (
        "Column Delete Item NamespaceInfo Page ProcedureInfo Put Record SnapshotInfo TableInfo "
        "TxnState"
    ),
    "kvorum.sdk.progress": "follow",
    "kvorum.connecting": "aconnect aopen connect open",
    "kvorum.sdk.snapshots": "AsyncSnapshot",
    "kvorum.sdk.tables": "AsyncTable AsyncTransaction",
    "kvorum.sdk.sync": "Database ProcedureEvents Snapshot Table Transaction Watch",
    "kvorum.api.watching": "AsyncWatch Change Event",
    "kvorum.api.procedure_events": "AsyncProcedureEvents ProcedureEvent",
    "procedures.engine.procedure": "again children done exclusive fail next shared suspend",
    "procedures.bus.workers": "operation",
    "procedures.engine.registry": "procedure query step undo update",
    "procedures.engine.context": "StepContext",
    "procedures.engine.flow": "Flow",
    "procedures.engine.retries": "retry",
    "procedures.engine.step_exceptions": "StepFailed",
    "procedures.engine.workflow": "workflow",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "AlreadyExists",
    "AsyncDatabase",
    "AsyncProcedureEvents",
    "AsyncSnapshot",
    "AsyncTable",
    "AsyncTransaction",
    "AsyncWatch",
    "Busy",
    "Change",
    "Column",
    "ConditionFailed",
    "Corruption",
    "Database",
    "DeadlineExceeded",
    "Delete",
    "Enqueued",
    "Event",
    "Flow",
    "Handle",
    "InvalidArgument",
    "Item",
    "KeyLocked",
    "KvorumError",
    "NamespaceInfo",
    "NotFound",
    "Page",
    "ProcedureEvent",
    "ProcedureEvents",
    "ProcedureInfo",
    "Put",
    "Record",
    "Refused",
    "Rejected",
    "Reroute",
    "RestartTxn",
    "Snapshot",
    "SnapshotInfo",
    "SnapshotTooOld",
    "StepContext",
    "StepFailed",
    "Table",
    "TableInfo",
    "TooLarge",
    "Transaction",
    "TryLater",
    "TxnAborted",
    "TxnState",
    "Unavailable",
    "UnknownOutcome",
    "Watch",
    "WriteConflict",
    "__version__",
    "aconnect",
    "again",
    "aopen",
    "children",
    "connect",
    "done",
    "exclusive",
    "fail",
    "follow",
    "next",
    "open",
    "operation",
    "procedure",
    "query",
    "retry",
    "shared",
    "step",
    "suspend",
    "undo",
    "update",
    "workflow",
]


def __getattr__(name: str) -> Any:
    if name == "spark":  # `import kvorum` is enough for `kvorum.spark.table(…)`
        return importlib.import_module("kvorum.spark")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'kvorum' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)

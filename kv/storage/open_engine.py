"""The engine of a kind, made from its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, assert_never

from kv.storage.engine import Engine
from kv.storage.memory import MemoryEngine

EngineKind = Literal["rocks", "memory"]


def open_engine(kind: EngineKind, path: str | Path, families: Sequence[str]) -> Engine:
    """The engine of `kind` at `path` (made if missing; ignored by the memory engine) with exactly
    these families.

    Raises InvalidArgument (not a directory, unreadable, not Kvorum's, another format version, in
    use by another process, other families) and Corruption.
    """
    match kind:
        case "rocks":
            # Imported here, so that a client machine or a simulation needs no rocksdict.
            from kv.storage.rocks import RocksEngine

            return RocksEngine(path, families)
        case "memory":
            return MemoryEngine(families)
        case _:
            assert_never(kind)

"""Limits so small that every one of them is met; see `randomised`."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import kvorum.storage.store
from kv.base import limits
from kv.replica.manager import ReplicaManager
from kvorum.cluster.cluster import CONSENSUS

CHOICES: Final[Mapping[str, Sequence[int]]] = {
    "DRAIN_REQUESTS_MAX": (1, 3),
    "DRAIN_ROWS_MAX": (1, 10),
    "RECORDED_TXNS_MAX": (1, 3),
    "ENTRY_TARGET_BYTES": (1, 300),
    "SHIP_OLD_BYTES_MAX": (0, 20),
    "LOCK_INLINE_BYTES_MAX": (0, 4),
    "PREWRITE_KEYS_MAX": (1, 2),
    "PREWRITES_IN_FLIGHT_MAX": (1, 2),
    "RESOLVE_BYTES": (1, 20),
    "RESOLVES_IN_FLIGHT_MAX": (0, 1),
    "RECOVERY_GRACE_MS": (10, 50),
    "READS_IN_FLIGHT_MAX": (1, 2),
    "COMMITS_IN_FLIGHT_MAX": (1, 2),
    "OUTCOMES_CACHED_MAX": (1, 3),
    "SWEEP_INTENTS_MAX": (1, 3),
    "SCAN_STEP_ROWS_MAX": (1, 3),
    "SNAPSHOT_BLOCK_ROWS_MAX": (1, 5),
    "SNAPSHOT_LOOK_ROWS_MAX": (2, 10),
    "GC_STEP_ROWS_MAX": (1, 5),
    "REQUESTS_PER_FRAME_MAX": (1, 2),
    "TXN_STREAM_KEYS_MIN": (1, 3),
    "RESOLVE_CHUNK_ROWS": (1, 3),
    "THROUGH_TXNS_MAX": (1, 2),
    "THROUGH_CHUNKS_MAX": (1, 2),
}
"""What may be set, to what instead of its default."""
THRESHOLDS: Final[Mapping[str, Sequence[int]]] = {
    "kv.partition.locks._NEW_MAX": (0, 3),
    "kv.partition.locks._MANY": (1, 3),
    "kv.partition.locks._DEAD_MAX": (0, 2),
    "kv.partition.admission._KEYS_AT_ONCE": (1, 3),
    "kv.mvcc.get._SLICE_KEYS": (1, 2),
    "kv.replica.state._SLICE_ROWS": (1, 3),
    "kv.replica.cutting._STEP_ROWS": (1, 5),
    "kv.feed.version_pairs._SLICE_ROWS": (1, 3),
    "kv.feed.version_pairs._OLDER_ROWS_FIRST": (1, 4),
    "kv.feed.changes._SLICE_ROWS": (1, 3),
    "kv.feed.changes._HIST_ROWS": (1, 3),
    "kv.feed.changes._SEEK_ROWS": (0, 1),
    "kv.feed.spill._BLOCK_ROWS": (1, 3),
    "txn.reading.reader._FEW_KEYS": (1, 3),
    "procedures.engine.kv_store._READ_CHUNK": (1, 3),
    "procedures.engine.kv_store._FORGET_CHUNK": (1, 3),
    "procedures.engine.forget._PAGE": (1, 3),
    "procedures.engine.grants._PAGE": (1, 3),
}
"""The same, of constants that are one module's own: where another way is taken for much."""
LOG_KEEP_ENTRIES: Final = (2, 30)
"""Behind the applied ones: a node that was away longer gets a snapshot."""
_PACKAGES: Final = ("kv.", "tso.", "txn.", "procedures.", "kvorum.")


@contextmanager
def randomised(rng: random.Random, share: float, **fixed: int) -> Iterator[list[str]]:
    """About so many of them differ from their default while this lasts; which, in words."""
    chosen = {
        name: rng.choice(choices) for name, choices in CHOICES.items() if rng.random() < share
    }
    chosen |= fixed
    own = {
        name: rng.choice(choices) for name, choices in THRESHOLDS.items() if rng.random() < share
    }
    keep = rng.choice(LOG_KEEP_ENTRIES) if rng.random() < share else limits.LOG_KEEP_ENTRIES
    defaults: Any = ReplicaManager.__init__.__kwdefaults__
    defaults["log_keep_entries"] = keep
    if keep != limits.LOG_KEEP_ENTRIES:
        kvorum.storage.store.CONSENSUS = replace(
            CONSENSUS, log_tail_bytes=0, log_keep_bytes_max=rng.choice([0, 2_000])
        )
    try:
        with changed(chosen), owned(own):
            yield [f"{name}={value}" for name, value in {**chosen, **own, "logs": keep}.items()]
    finally:
        defaults["log_keep_entries"] = limits.LOG_KEEP_ENTRIES
        kvorum.storage.store.CONSENSUS = CONSENSUS


@contextmanager
def changed(values: Mapping[str, int]) -> Iterator[None]:
    """Limits are constants, imported by name: set them wherever they were imported to."""
    before: list[tuple[Any, str, int]] = []
    for name, value in values.items():
        default = getattr(limits, name)
        for module in list(sys.modules.values()):
            of_ours = module.__name__.startswith(_PACKAGES) and module is not limits
            if of_ours and vars(module).get(name) == default:
                before.append((module, name, default))
                setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, default in before:
            setattr(module, name, default)


@contextmanager
def owned(values: Mapping[str, int]) -> Iterator[None]:
    """Constants of one module, by the module's name and theirs."""
    before: list[tuple[Any, str, int]] = []
    for path, value in values.items():
        where, _, name = path.rpartition(".")
        module = importlib.import_module(where)
        before.append((module, name, getattr(module, name)))
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, default in before:
            setattr(module, name, default)

"""Limits so small that every one of them is met; see `randomised`."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import kvorum.store
from kv.base import limits
from kv.replica.manager import ReplicaManager
from kvorum.cluster import CONSENSUS

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
}
"""What may be set, to what instead of its default."""
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
    keep = rng.choice(LOG_KEEP_ENTRIES) if rng.random() < share else limits.LOG_KEEP_ENTRIES
    defaults: Any = ReplicaManager.__init__.__kwdefaults__
    defaults["log_keep_entries"] = keep
    if keep != limits.LOG_KEEP_ENTRIES:
        kvorum.store.CONSENSUS = replace(
            CONSENSUS, log_tail_bytes=0, log_keep_bytes_max=rng.choice([0, 2_000])
        )
    try:
        with changed(chosen):
            yield [f"{name}={value}" for name, value in {**chosen, "logs": keep}.items()]
    finally:
        defaults["log_keep_entries"] = limits.LOG_KEEP_ENTRIES
        kvorum.store.CONSENSUS = CONSENSUS


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

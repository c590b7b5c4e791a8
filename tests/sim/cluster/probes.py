"""Rare situations of whole clusters say that they arose; see
kvorum/testing/simulation/probes.py."""

from __future__ import annotations

RARE: tuple[str, ...] = (
    "a client stands still",
    "a leader stands still",
    "ambush: gets",
    "ambush: hears",
    "ambush: persists",
    "ambush: sends",
    "answer: CONDITION_FAILED",
    "answer: DEADLINE_EXCEEDED",
    "answer: DEADLOCK",
    "answer: KEY_LOCKED",
    "answer: SNAPSHOT_TOO_OLD",
    "answer: TXN_ABORTED",
    "answer: UNKNOWN_OUTCOME",
    "answer: WRITE_CONFLICT",
    "client dies: gets",
    "client dies: sends",
    "clock jumps",
    "connection lost",
    "leadership transferred",
    "partition split",
    "partitions merged",
    "replica to be moved",
    "log cut",
    "request: COMMIT",
    "request: HEARTBEAT",
    "request: PREWRITE_ROWS",
    "request: RECOVER",
    "request: ROLLBACK",
    "request: SETTLE",
    "slow sync",
    "stopped in order",
    "snapshot installed",
    "sync failed",
    "the oracle's leader dies",
    "unsynced writes at a power loss",
)
"""What a long run must have seen."""

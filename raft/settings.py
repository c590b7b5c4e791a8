"""The settings of a host, with their relations, and its counters."""

from __future__ import annotations

from dataclasses import dataclass

from raft.errors import BadConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Settings of a host. Every bound is here, with its relations asserted. Times in milliseconds,
    sizes in bytes.
    """

    heartbeat_ms: int = 300
    election_min_ms: int = 1000
    election_max_ms: int = 2000
    lease_ms: int = 800
    """Counted from the moment a heartbeat is *sent*; shorter than election_min_ms by more than the
    clocks may drift.
    """
    drift_percent_max: int = 5
    tick_ms: int = 50
    """Groups whose timers fall due within this time are ticked together, so that their heartbeats
    share frames.
    """
    entry_bytes_max: int = 16 << 20
    append_bytes_max: int = 32 << 20
    """Bound of one AppendEntries. Longer than any entry: the library's path for longer ones is
    broken (P8).
    """
    message_bytes_max: int = 1 << 20
    """Commands of one AppendEntries to a follower; a longer entry travels alone. The library's own
    bound, `append_bytes_max`, is never reached.
    """
    window_bytes_max: int = 8 << 20
    """Unacknowledged commands on their way to one follower; one entry may exceed it."""
    window_messages_max: int = 256
    reorder_ms: int = 100
    """A message that was overtaken by one that left so much later is taken for lost, and sent
    again.
    """
    log_keep_bytes_max: int = 64 << 20
    """A leader keeps up to so much below `compact` for a follower that answers but lags; behind
    that it gets a snapshot.
    """
    log_tail_bytes: int = 1 << 20
    """What every replica with other members keeps below `compact`: the next leader needs it for
    those that are a little behind.
    """
    snapshot_chunk_bytes: int = 256 << 10
    snapshot_window_chunks: int = 8
    """Unacknowledged chunks of one transfer; kept for sending again."""
    snapshots_max: int = 4
    """Transfers that leave one host at a time; others wait."""
    snapshot_bytes_per_s: int = 64 << 20
    """Of all transfers that leave one host."""
    snapshot_resend_ms: int = 1000
    """Without progress for so long, a follower that answers is asked how far it is."""
    snapshot_retry_ms: int = 5000
    """After a transfer that could not begin or go on."""
    snapshot_abandon_ms: int = 60_000
    """Without progress for so long, a transfer lets go of its source and of the log. Until then a
    follower that restarts goes on where it was.
    """
    promote_lag_max: int = 1024
    """Entries that a learner may lack of the log's end when it becomes a voter."""
    hibernate_after_ms: int = 5000
    """A group with nothing to do for so long sends no more heartbeats (rules/hibernate). 0: never.
    """
    memory_entries_max: int = 4096
    memory_bytes_max: int = 8 << 20
    """Applied entries kept in memory per group, so that near-term catch-up reads no disk (F11)."""
    apply_entries_max: int = 256
    """Applied by one group in one step of the loop, if more are due; the rest follows soon."""
    replay_entries_max: int = 256
    """Entries read from disk at once during recovery."""
    proposals_max: int = 4096
    """Proposals of one group without an outcome."""

    def __post_init__(self) -> None:
        drift = self.election_min_ms * self.drift_percent_max // 100
        rules = {
            "0 < heartbeat_ms * 3 < election_min_ms": 0
            < self.heartbeat_ms * 3
            < self.election_min_ms,
            "election_min_ms < election_max_ms": self.election_min_ms < self.election_max_ms,
            "0 < lease_ms <= election_min_ms - drift": 0
            < self.lease_ms
            <= self.election_min_ms - drift,
            "0 < tick_ms <= heartbeat_ms": 0 < self.tick_ms <= self.heartbeat_ms,
            "0 < entry_bytes_max < append_bytes_max - 1": 0
            < self.entry_bytes_max
            < self.append_bytes_max - 1,
            "0 < message_bytes_max <= window_bytes_max": 0
            < self.message_bytes_max
            <= self.window_bytes_max,
            "window_messages_max > 0": self.window_messages_max > 0,
            "reorder_ms > 0": self.reorder_ms > 0,
            "0 <= log_tail_bytes <= log_keep_bytes_max": 0
            <= self.log_tail_bytes
            <= self.log_keep_bytes_max,
            "snapshot_chunk_bytes > 0": self.snapshot_chunk_bytes > 0,
            "snapshot_window_chunks > 0": self.snapshot_window_chunks > 0,
            "snapshots_max > 0": self.snapshots_max > 0,
            "snapshot_bytes_per_s > 0": self.snapshot_bytes_per_s > 0,
            "0 < snapshot_resend_ms < snapshot_abandon_ms": 0
            < self.snapshot_resend_ms
            < self.snapshot_abandon_ms,
            "snapshot_retry_ms > 0": self.snapshot_retry_ms > 0,
            "promote_lag_max >= 0": self.promote_lag_max >= 0,
            "hibernate_after_ms >= 0": self.hibernate_after_ms >= 0,
            "memory_entries_max > 0": self.memory_entries_max > 0,
            "memory_bytes_max > 0": self.memory_bytes_max > 0,
            "apply_entries_max > 0": self.apply_entries_max > 0,
            "replay_entries_max > 0": self.replay_entries_max > 0,
            "proposals_max > 0": self.proposals_max > 0,
        }
        for rule, holds in rules.items():
            if not holds:
                raise BadConfig(f"RaftConfig must satisfy {rule}; got {self}")


@dataclass(slots=True)
class RaftCounters:
    """Figures of one host since it was built; the owner exports them. Plain integers: the hot path
    adds to them.
    """

    syncs: int = 0
    entries_appended: int = 0
    bytes_appended: int = 0
    entries_applied: int = 0
    entries_replayed: int = 0
    """Applied without a token from a log that was read at the start."""
    disk_reads: int = 0
    """Scans of the LogDB for entries that were no longer in memory. Zero in steady state (F11)."""
    logs_reset: int = 0
    bytes_resent: int = 0
    """Of commands that were sent to a follower once more because they seemed lost (F10)."""
    appends_parked: int = 0
    """Received appends that had overtaken others and waited for them."""
    snapshots_sent: int = 0
    """Transfers that a follower has installed."""
    snapshots_installed: int = 0
    snapshots_failed: int = 0
    """Transfers that could not begin or go on, on either side; they are tried again."""
    snapshot_bytes_sent: int = 0
    snapshot_bytes_resent: int = 0
    """Of these, once more because they seemed lost."""
    elections_won: int = 0
    messages_dropped: int = 0
    """Received messages that the armour refused: stale terms, strangers, unknown kinds."""
    fatal_errors: int = 0
    callback_errors: int = 0

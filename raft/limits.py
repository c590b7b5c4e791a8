"""Bounds of the peer protocol, with their relations asserted. (Consensus has `RaftConfig`.)"""

from __future__ import annotations

from dataclasses import dataclass

from raft.errors import BadConfig
from raft.wire import FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportLimits:
    """Times in milliseconds, sizes in bytes. Equal on all nodes but for the times."""

    silence_ms: int = 500
    """A peer from which nothing came for so long is reported as down. Half of the minimum election
    timeout: who sleeps beside a dead leader wakes in time to elect another.
    """
    dead_ms: int = 2_000
    """After so long a silence the connection is given up and a new one tried."""
    handshake_ms: int = 2_000
    """For a connection, from the dial to the proofs."""
    backoff_ms_first: int = 50
    """Between two dials, doubled each time …"""
    backoff_ms_max: int = 1_000
    """… up to this. Short: it bounds how long a healed network stays cut."""
    refused_ms: int = 3_000
    """Between two dials of a node that refused us: only people can change that."""
    message_bytes_max: int = 33 << 20
    """One message packed: `RaftConfig.append_bytes_max` and what surrounds its entries."""
    queue_bytes_max: int = 32 << 20
    """Bulk that waits for one peer; above it `room` is False. One message more may wait."""
    urgent_bytes_max: int = 4 << 20
    """Small messages that wait for one peer whose socket takes nothing. More are lost."""
    small_bytes: int = 16 << 10
    """A longer message is bulk, whatever it is."""
    socket_bytes_high: int = 128 << 10
    """What a socket may hold unsent before bulk waits here instead, where it can be overtaken."""
    strangers_max: int = 64
    """Connections that have not proved who they are."""
    peers_max: int = 1024
    """Other nodes, those that were removed included."""

    def __post_init__(self) -> None:
        rules = {
            "0 < silence_ms < dead_ms": 0 < self.silence_ms < self.dead_ms,
            "0 < handshake_ms": self.handshake_ms > 0,
            "0 < backoff_ms_first <= backoff_ms_max <= refused_ms": 0
            < self.backoff_ms_first
            <= self.backoff_ms_max
            <= self.refused_ms,
            "0 < small_bytes <= FRAME_BYTES_MAX / 2": 0 < self.small_bytes <= FRAME_BYTES_MAX // 2,
            "small_bytes <= message_bytes_max <= 1 GiB": self.small_bytes
            <= self.message_bytes_max
            <= 1 << 30,
            "FRAME_BYTES_MAX <= urgent_bytes_max": self.urgent_bytes_max >= FRAME_BYTES_MAX,
            "0 < queue_bytes_max": self.queue_bytes_max > 0,
            "0 < socket_bytes_high <= urgent_bytes_max": 0
            < self.socket_bytes_high
            <= self.urgent_bytes_max,
            "0 < strangers_max": self.strangers_max > 0,
            "0 < peers_max": self.peers_max > 0,
        }
        for rule, holds in rules.items():
            if not holds:
                raise BadConfig(f"TransportLimits must satisfy {rule}; got {self}")

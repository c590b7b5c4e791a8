"""Figures of the peer protocol: plain integers; the hot path adds to them, the owner exports."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class TransportCounters:
    """Of one transport since it was built."""

    frames_in: int = 0
    messages_in: int = 0
    bytes_in: int = 0
    writes: int = 0
    bytes_out: int = 0
    malformed: int = 0
    """Connections that ended because of bytes that are not the protocol."""
    refused: dict[str, int] = field(default_factory=dict)
    """Connections that we refused, by code (raft/handshake.py)."""
    unreachable: int = 0
    """Messages to peers without a connection: lost."""
    timeouts: int = 0
    """Connections given up after a silence, or in their handshake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFigures:
    """How one peer stands. Messages are of the present connection."""

    address: tuple[str, int] | None
    connected: bool
    silent: bool
    """Connected, but nothing came lately."""
    queued_bytes: int
    """Waiting to be sent, what the socket holds included."""
    rtt_ms: float | None
    """Of the last ping, from loop to loop, as exact as the loop's clock."""
    trouble: str | None
    """Why there is no connection: the last reason that either side gave."""
    refused: str | None
    """The code with which the peer refused us last (raft/handshake.py)."""
    sent: int
    received: int
    lost: int
    """Dropped because their lane was full."""
    connections: int
    """Since the start of this node."""

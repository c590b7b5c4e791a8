"""What waits to be sent to one peer, in two lanes. Pure: messages in, frames out.

    add ──▶ the pass ──────────────────────────▶ one frame per pass of the loop
      └───▶ the backlog ─ frames and parts ────▶ while the socket takes them

As long as the socket keeps up, everything of a pass leaves in one frame, in the order in which it
came. Only what is long or comes while the socket does not keep up waits in the *backlog*: appends
that carry entries, chunks of snapshots, whatever is longer than `small_bytes`. Heartbeats, votes
and acknowledgements always go with the pass, before the backlog, so a long append delays them by
what the socket has taken already, never by its own length.

A heartbeat that overtakes appends of its own group would tell of a log position that the follower
cannot have yet: it would be refused, and the leader would step back and repeat what is on its way.
So it overtakes without its position (`bare`): it holds up the leader's claim and asks for nothing,
which is what a leader also sends to a follower behind its log. The position comes with the appends.

Invariants
  * the backlog keeps its order, so appends of a group do not overtake each other;
  * what waits is bounded: bulk by `queue_bytes_max` and one message, the rest by
    `urgent_bytes_max`; above that messages are lost and counted, which Raft allows;
  * a message that is longer than a frame travels in parts, one message at a time; between two parts
    there are only whole frames of small messages.

Rejected: two connections per peer (found and lost separately, and the second one is needed at the
worst moment only); streams with windows of their own as in HTTP/2 (one per group would be needed).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from raft.limits import TransportLimits
from raft.wire import (
    FRAME_BYTES_MAX,
    LAST,
    MESSAGES,
    PART,
    ROW_HEAD,
    frame,
    messages_body,
    pack_message,
)

BULK_KINDS: Final = frozenset({"snapshot"})
"""Kinds that keep their order with appends, however short: a question "how far are you?" that
overtook chunks would be answered as if those were lost."""
_POSITION: Final = frozenset({"prevLogIdx", "prevLogTerm", "entries"})
_ROWS_BYTES_MAX: Final = FRAME_BYTES_MAX - 8
"""Rows of one MESSAGES frame; the rest is for the head of the list."""


def bare(message: Mapping[str, object]) -> Mapping[str, object]:
    """A heartbeat without its position in the log; every other message as it is."""
    if message["type"] != "append_entries" or message.get("entries"):
        return message
    return {name: value for name, value in message.items() if name not in _POSITION}


class Lanes:
    """See the module. The owner calls `take_pass` once per pass, then `take_bulk` while the socket
    is not `held`.
    """

    __slots__ = (
        "_backlog",
        "_limits",
        "_long",
        "_long_at",
        "_pass",
        "_pass_bytes",
        "_sealed",
        "_sealed_bytes",
        "_waiting",
        "backlog_bytes",
        "held",
        "lost",
        "sent",
    )

    def __init__(self, limits: TransportLimits) -> None:
        self._limits = limits
        self.held = False  # the socket takes no more for now
        self.sent = self.lost = 0  # messages
        self.clear()

    def clear(self) -> None:
        """Forget everything: the connection is gone."""
        self._pass: list[bytes] = []
        self._pass_bytes = 0
        self._sealed: list[bytes] = []  # frames of this pass that are full
        self._sealed_bytes = 0
        self._backlog: deque[tuple[int, bytes]] = deque()
        self._waiting: dict[int, int] = {}  # messages in the backlog, by group
        self._long: tuple[int, bytes] | None = None  # the message that is under way in parts
        self._long_at = 0
        self.backlog_bytes = 0

    @property
    def queued_bytes(self) -> int:
        """Of both lanes, without what the socket has."""
        return self.backlog_bytes + self._pass_bytes + self._sealed_bytes

    def room(self) -> bool:
        """May bulk be added?"""
        return self.backlog_bytes < self._limits.queue_bytes_max

    # ------------------------------------------------------------------ in

    def add(self, group_id: int, message: Mapping[str, object], socket_bytes: int = 0) -> None:
        """Queue a message, or lose it if its lane is full. `socket_bytes`: what a held socket has
        not sent.

        Raises TypeError, ValueError: a value in it is not plain data.
        """
        if group_id in self._waiting:
            message = bare(message)
        row = pack_message(group_id, message)
        size = len(row)
        if self.held or self._waiting or self._pass_bytes + size > _ROWS_BYTES_MAX:
            self._choose(group_id, message, row, socket_bytes)
        else:
            self._pass.append(row)
            self._pass_bytes += size
            self.sent += 1

    def _choose(
        self, group_id: int, message: Mapping[str, object], row: bytes, socket_bytes: int
    ) -> None:
        """The lane of a message that cannot simply leave with this pass."""
        limits, size = self._limits, len(row)
        bulk = (
            size > limits.small_bytes
            or bool(message.get("entries"))
            or message["type"] in BULK_KINDS
        )
        if bulk:
            if not self.room() or size > limits.message_bytes_max:
                self.lost += 1
                return
            self._backlog.append((group_id, row))
            self._waiting[group_id] = self._waiting.get(group_id, 0) + 1
            self.backlog_bytes += size
        else:
            waiting = self._sealed_bytes + self._pass_bytes + socket_bytes
            if waiting + size > limits.urgent_bytes_max:
                self.lost += 1
                return
            if self._pass_bytes + size > _ROWS_BYTES_MAX:
                self._seal()
            self._pass.append(row)
            self._pass_bytes += size
        self.sent += 1

    def _seal(self) -> None:
        full = frame(MESSAGES, messages_body(self._pass))
        self._sealed.append(full)
        self._sealed_bytes += len(full)
        self._pass, self._pass_bytes = [], 0

    # ------------------------------------------------------------------ out

    def take_pass(self) -> bytes:
        """The frames of this pass; empty if there are none."""
        if not self._pass:
            return b""
        if not self._sealed:
            rows, self._pass, self._pass_bytes = self._pass, [], 0
            return frame(MESSAGES, messages_body(rows))
        self._seal()
        frames = b"".join(self._sealed)
        self._sealed, self._sealed_bytes = [], 0
        return frames

    def take_bulk(self) -> bytes:
        """The next frame of the backlog; empty if there is none."""
        if self._long is not None:
            return self._next_part()
        backlog = self._backlog
        if not backlog:
            return b""
        if len(backlog[0][1]) > _ROWS_BYTES_MAX:
            self._long, self._long_at = backlog.popleft(), 0
            return self._next_part()
        rows, size = [], 0
        while backlog and size + len(backlog[0][1]) <= _ROWS_BYTES_MAX:
            group_id, row = backlog.popleft()
            rows.append(row)
            size += len(row)
            self._left(group_id)
        self.backlog_bytes -= size
        return frame(MESSAGES, messages_body(rows))

    def _next_part(self) -> bytes:
        assert self._long is not None
        group_id, row = self._long
        start = self._long_at
        head = b"" if start else ROW_HEAD
        end = min(len(row), start + FRAME_BYTES_MAX - len(head))
        body: bytes | memoryview = memoryview(row)[start:end]
        if head:
            body = head + body
        self.backlog_bytes -= end - start
        if end < len(row):
            self._long_at = end
            return frame(PART, body)
        self._long = None
        self._left(group_id)
        return frame(LAST, body)

    def _left(self, group_id: int) -> None:
        count = self._waiting[group_id] - 1
        if count:
            self._waiting[group_id] = count
        else:
            del self._waiting[group_id]

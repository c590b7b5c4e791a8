"""What a commit cost: its messages, and how many round trips and syncs its caller waited for.

Recorded by the coordinator while it works, not computed from what the protocol should do. A message
that is sent after the answer to another one may depend on it, so its depth is one more than the
deepest answer until then; messages that are under way together have the same depth. The caller
waited for as many round trips as the deepest message that was answered when it got its answer. The
same with only those counted that go through a partition's log: each waits for one sync of it.

Deliberately missing: what lies below one message (looking for a leader, its network, its queue).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

Monotonic = Callable[[], float]


class Message(Struct):
    """Times are milliseconds since the commit began."""

    name: str
    rows: int  # keys that it is about
    sent_ms: float
    round_trips: int  # until its answer, one after the other
    syncs: int
    answered_ms: float | None = None
    error: str = ""  # the code of a refusal

    def __str__(self) -> str:
        until = "…" if self.answered_ms is None else f"{self.answered_ms:.2f}"
        end = f" {self.error}" if self.error else ""
        return f"{self.sent_ms:8.2f} → {until:>8} ms  {self.name} ({self.rows}){end}"


@dataclass(slots=True)
class CommitTrace:
    """One commit's. `round_trips` and `syncs` are those on the caller's path; the messages go on
    after its answer.
    """

    monotonic: Monotonic
    messages: list[Message] = field(default_factory=list)
    answered_ms: float | None = None  # when the caller was
    round_trips: int = 0
    syncs: int = 0
    _began: float = -1.0
    _depth: int = 0
    _syncs: int = 0

    def __post_init__(self) -> None:
        self._began = self.monotonic()

    def sent(self, name: str, rows: int, *, logged: bool) -> Message:
        """`logged`: its answer waits for a sync."""
        message = Message(
            name,
            rows,
            (self.monotonic() - self._began) * 1000,
            self._depth + 1,
            self._syncs + logged,
        )
        self.messages.append(message)
        return message

    def answered(self, message: Message, error: str = "") -> None:
        message.answered_ms, message.error = (self.monotonic() - self._began) * 1000, error
        self._depth = max(self._depth, message.round_trips)
        self._syncs = max(self._syncs, message.syncs)

    def finished(self) -> None:
        """The caller has its answer."""
        if self.answered_ms is None:
            self.answered_ms = (self.monotonic() - self._began) * 1000
            self.round_trips, self.syncs = self._depth, self._syncs

    def __str__(self) -> str:
        lines = sorted([(m.sent_ms, str(m)) for m in self.messages])
        at = self.answered_ms
        if at is not None:
            trips = f"{self.round_trips} round trip{'s' * (self.round_trips != 1)}"
            syncs = f"{self.syncs} sync{'s' * (self.syncs != 1)}"
            lines.append((at, f"{at:8.2f}               ms  answered: {trips}, {syncs}"))
        return "\n".join(line for _, line in sorted(lines, key=lambda one: one[0]))

"""The state machine of a witness: none. Its log is all it has, and of that only the tail.

Why a witness may forget: it never leads, so nobody is ever replicated to from its log; for its vote
it needs the last (index, term), for its acknowledgements the entries that may still be overwritten,
and those lie above the commit index. What is sent to a witness, and when: `rules/witness`.
"""

from __future__ import annotations

from collections.abc import Callable

from raft.api import Command, SnapshotId, SnapshotSource
from raft.errors import InvariantBroken, SnapshotUnavailable

ENTRIES_KEPT = 256
"""Committed entries in the log of a witness before it forgets them (each is some 40 bytes)."""


class WitnessMachine:
    """Counts what is committed and forgets it. `forget` is `Replica.compact`, set by the host."""

    def __init__(self, group_id: int, base: tuple[int, int]) -> None:
        """`base`: (index, term) before the first stored entry: committed, and durable in the log
        itself."""
        self._group_id = group_id
        self._base = base
        self._forgotten = base[0]
        self.forget: Callable[[int], None] = lambda _index: None

    def applied(self) -> tuple[int, int]:
        return self._base

    def apply(self, index: int, term: int, command: Command, token: object | None) -> None:
        raise InvariantBroken(
            f"group {self._group_id}: a witness was sent the data of entry {index}, term {term}"
        )

    def advance(self, index: int, term: int) -> None:
        if index - self._forgotten > ENTRIES_KEPT:
            self._forgotten = index - 1  # the last one that is applied
            self.forget(self._forgotten)

    def dropped(self, tokens: list[object], *, unknown: bool) -> None:
        """It proposes nothing."""

    def role(self, *, leader: bool, term: int) -> None:
        if leader:
            raise InvariantBroken(f"group {self._group_id}: a witness leads in term {term}")

    def snapshot(self) -> SnapshotSource:
        raise SnapshotUnavailable(f"group {self._group_id}: a witness has no state")

    def restore(self, snapshot: SnapshotId) -> NoSink:
        """What a leader sends a witness is empty: only index, term and members count."""
        return NoSink()


class NoSink:
    """A snapshot without chunks: the log's new base is all of it."""

    def staged(self) -> int:
        return 0

    def stage(self, number: int, chunk: bytes, done: Callable[[], None]) -> None:
        raise SnapshotUnavailable(f"a witness was sent {len(chunk)} bytes of state")

    def install(self, done: Callable[[], None]) -> None:
        done()

    def discard(self) -> None:
        """Nothing is kept."""

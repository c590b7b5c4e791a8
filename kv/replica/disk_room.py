"""Whether a node's databases have room for new writes.

A database never recovers from a disk that was really full, so new writes are refused while the
reserve (`Engine.check_room`) is touched. That is looked at by a timer of the node, for a disk that
others fill or empty, and after every ROOM_CHECK_BYTES of log entries, because a fast disk is filled
faster than any timer looks. What was admitted before is refused, too, when its turn comes.

What finishes or frees (commits, resolutions, the collector) is let through; so are, as long as a
last reserve is not touched, deletions and what drops tables (kv.base.disk_space).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kv.base.errors import KvorumError, Unavailable
from kv.base.limits import ROOM_CHECK_BYTES
from kv.storage.engine import Engine


class Room:
    """All on the loop. `refusal`: why new writes are not taken now; `of_shards`: in which storage
    shards not, as the files of a shard are written as fast as they can be, whatever others do.
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.refusal: KvorumError | None = None
        self.of_shards: dict[str, KvorumError] = {}
        self._engines = engines
        self._unseen_bytes = 0

    def wrote(self, entry_bytes: int) -> None:
        """A log entry of this size was proposed."""
        self._unseen_bytes += entry_bytes
        if self._unseen_bytes >= ROOM_CHECK_BYTES:
            self.look()

    def look(self) -> None:
        """Ask the databases."""
        self._unseen_bytes = 0
        self.refusal = None
        for engine in self._engines:
            try:
                engine.check_room()
            except Unavailable as error:
                self.refusal = error
        self.of_shards = {} if self.refusal is not None else dict(self._full_shards())

    def _full_shards(self) -> Iterator[tuple[str, KvorumError]]:
        for engine in self._engines:
            for shard in engine.shards():
                try:
                    engine.check_room(shard)
                except Unavailable as error:
                    yield shard, error

"""What happened, as one number: two runs of a seed are the same if their numbers are."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32


class Trace:
    """`digest` runs over every line; `show` is given each of them, to be looked at."""

    def __init__(self, now: Callable[[], float], show: Callable[[str], None] | None = None) -> None:
        self.digest = 0
        self.count = 0
        self._now, self._show = now, show

    def note(self, what: str) -> None:
        line = f"{self._now():10.6f} {what}"
        self.digest = crc32(line.encode(), self.digest)
        self.count += 1
        if self._show is not None:
            self._show(line)

    def message(self, kind: str, source: object, target: object, body: bytes | None) -> None:
        told = "end" if body is None else f"{len(body)} bytes {crc32(body):08x}"
        self.note(f"{source} → {target} {told}")

    def consensus(self, source: int, target: object, body: bytes) -> None:
        self.note(f"{source} ⇒ {target} {len(body)} bytes {crc32(body):08x}")

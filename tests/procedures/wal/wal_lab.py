"""A disk for logs that loses its power, and stores over it, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kv.base.adapters import LoopTimers
from kv.base.ports import Timers
from kvorum.testing.simulation.loop import SimClock, SimLoop, SimRng
from procedures.wal.journal import Terms
from procedures.wal.store import WalStore

VARIANTS = ("lost", "half", "holes", "whole")


class PowerLoss(BaseException):
    """The power went while the disk worked."""


class CrashDisk:
    """Files in memory. Every method is several points (write, sync, name) at which the power may
    go; `variant` says what is then left of what was not synced.
    """

    def __init__(self, files: dict[int, bytes] | None = None) -> None:
        self.files = dict(files or {})
        self.points = 0
        self.crash_at = 0
        self.variant = "lost"
        self.dead = False
        self.closed = False
        self.log: list[str] = []
        self.room = 1 << 40
        self.broken: OSError | None = None  # what the next append raises

    def survivor(self) -> CrashDisk:
        """The disk as a restart finds it."""
        return CrashDisk(self.files)

    def where(self, number: int) -> str:
        return f"{number:016}.wal"

    def list(self) -> list[int]:
        return sorted(self.files)

    def read(self, number: int) -> bytes:
        return self.files[number]

    def create(self, number: int, head: bytes) -> None:
        self._point(lambda: None, "create")
        self.files.pop(number, None)
        self._point(lambda: self._torn(number, b"", head), "create head")
        self.files[number] = head
        self._point(lambda: self.files.pop(number), "create name")

    def append(self, number: int, data: bytes) -> None:
        if self.broken is not None:
            raise self.broken
        before = self.files[number]
        self._point(lambda: self._torn(number, before, data), "append")
        self.files[number] = before + data
        self._point(lambda: None, "synced")

    def cut(self, number: int, size: int) -> None:
        self._point(lambda: None, "cut")
        self.files[number] = self.files[number][:size]
        self._point(lambda: None, "cut synced")

    def remove(self, number: int) -> None:
        data = self.files.pop(number, None)
        if data is None:
            return

        def back() -> None:
            if self.variant != "whole":
                self.files[number] = data

        self._point(back, "remove")
        self._point(lambda: None, "removed")

    def free(self) -> int:
        return self.room

    def close(self) -> None:
        self.closed = True

    def _torn(self, number: int, before: bytes, data: bytes) -> None:
        left = {
            "lost": b"",
            "half": data[: len(data) // 2],
            "holes": bytes(len(data) // 2) + data[len(data) // 2 :],
            "whole": data,
        }[self.variant]
        if before or left:
            self.files[number] = before + left

    def _point(self, left: Callable[[], Any], what: str) -> None:
        if self.dead:
            raise PowerLoss
        self.points += 1
        self.log.append(what)
        if self.points == self.crash_at:
            self.dead = True
            left()
            raise PowerLoss


class SimOffload:
    """The thread of the disk, in virtual time."""

    def __init__(self, timers: Timers, sync_s: float = 0.001) -> None:
        self._timers = timers
        self.sync_s = sync_s

    def run(
        self, work: Callable[[], int], done: Callable[[BaseException | None, int], None]
    ) -> None:
        def now() -> None:
            try:
                result = work()
            except (PowerLoss, OSError) as error:
                done(error, 0)
            else:
                done(None, result)

        self._timers.call_later(self.sync_s, now)

    def close(self) -> None:
        pass


def wal(loop: SimLoop, disk: CrashDisk, **terms: int) -> WalStore:
    """A store over the disk. Raises PowerLoss."""
    timers = LoopTimers(loop)
    return WalStore(disk, SimOffload(timers), SimClock(loop), timers, SimRng(7), Terms(**terms))

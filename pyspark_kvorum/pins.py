"""What keeps the history that a read needs from being collected: a lease at the cluster (U9).

Spark calls us in short-lived processes, so nobody lives as long as a read. The driver opens the
lease where it chooses the version, each task renews it while it reads, and it ends by itself
PIN_TTL_MS after the last of them; `kvorum snapshot list` names its owner and age meanwhile. A task
that finds it gone (of an action much later on the same frame, or released by an operator) opens
one of its own for as long as it reads, if the version is still there at all.
"""

from __future__ import annotations

import contextlib
import time
from typing import Final, Self

from kv.base.errors import KvorumError, NotFound, SnapshotTooOld
from kv.base.limits import LEASE_TTL_MS_MAX
from pyspark_kvorum.session import Session
from tso.verbs import SNAPSHOT_OPEN, SNAPSHOT_RELEASE, SNAPSHOT_RENEW

PIN_TTL_MS: Final = LEASE_TTL_MS_MAX
_RELEASE_BUDGET_MS: Final = 5_000
_RENEW_S: Final = PIN_TTL_MS / 1000 / 10


class Pin:
    """A lease at `at`. Pickled from the driver to its tasks."""

    def __init__(self, id: int, at: int, owner: str) -> None:
        self.id, self.at, self.owner = id, at, owner
        self._own = False
        self._renewed_s = float("-inf")

    def __getstate__(self) -> dict[str, object]:
        """For another process, perhaps on a machine with another clock."""
        return {**self.__dict__, "_own": False, "_renewed_s": float("-inf")}

    @classmethod
    def open(cls, session: Session, at: int, owner: str) -> Self:
        """`at` 0 = now. Raises SnapshotTooOld, InvalidArgument (a version of the future)."""
        id, at = session.run(session.ask(SNAPSHOT_OPEN, at, owner, PIN_TTL_MS))
        return cls(id, at, owner)

    def renew(self, session: Session) -> None:
        """Now and then, as often as it is called. Raises SnapshotTooOld with advice."""
        now_s = time.monotonic()
        if now_s - self._renewed_s < _RENEW_S:
            return
        self._renewed_s = now_s
        try:
            session.run(session.ask(SNAPSHOT_RENEW, self.id))
        except NotFound:
            try:
                opened = Pin.open(session, self.at, self.owner)
            except SnapshotTooOld as e:
                raise too_old(e, self.at) from e
            self.id, self._own = opened.id, True

    def moved(self, session: Session, at: int) -> Pin:
        """One at a later version instead of this one."""
        later = Pin.open(session, at, self.owner)
        self.release(session)
        return later

    def left(self, session: Session) -> None:
        """A task ends: what it opened itself is let go."""
        if self._own:
            self.release(session)

    def release(self, session: Session) -> None:
        """One attempt: it ends by itself, too."""
        with contextlib.suppress(KvorumError, OSError):
            session.run(
                session.kv.call_node(SNAPSHOT_RELEASE, self.id, budget_ms=_RELEASE_BUDGET_MS)
            )


def too_old(error: SnapshotTooOld, at: int) -> KvorumError:
    """What to do about it, for a batch read."""
    return KvorumError(
        f"{error.code}: this load() is pinned to version {at}, which the cluster no longer keeps;"
        f" load() again, or raise gc_retention_ms: {error.message}",
        code=error.code,
        details=error.details,
    )

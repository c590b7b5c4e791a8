"""What commands left: their procedures wait in a pool of their own (command_worker.py), with their
locks.

    the command dies ──▶ its worker is silent ──▶ its pool is empty ──▶ after PATIENCE_MS: bypassed

So schema changes do not wait for ever for somebody who never comes back. It is ended where it
stands: nobody but the command sees its directory, so nobody could undo anything there; what is left
is no backup, nor an export, for it has no manifest. An import has more time: where it stands is
worth more, and it locks one table only. A restore is never ended: half of one must be finished.

Deliberately missing: a clock that outlives a master. A new one begins to count anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from kv.base.errors import Refused
from kv.base.limits import TRANSFER_LEFT_MS, TRANSFER_TIMEOUT_MS
from kvorum.transfer.backup import BACKUP_HERE
from kvorum.transfer.export import EXPORT_HERE
from kvorum.transfer.import_ import IMPORT_HERE
from procedures.engine.executor import Executor

PATIENCE_MS: Final[Mapping[str, int]] = {
    BACKUP_HERE: TRANSFER_LEFT_MS,
    EXPORT_HERE: TRANSFER_LEFT_MS,
    IMPORT_HERE: TRANSFER_TIMEOUT_MS,
}
_ACTOR: Final = "kvorum"


class Left:
    """Call `look` now and then, at the master; `executor()` is None elsewhere."""

    def __init__(
        self, executor: Callable[[], Executor | None], monotonic: Callable[[], float]
    ) -> None:
        self._executor, self._monotonic = executor, monotonic
        self._since: dict[int, float] = {}

    async def look(self) -> None:
        """End those that nobody has worked on for too long."""
        executor = self._executor()
        if executor is None or executor.crew is None:
            self._since.clear()
            return
        pools = {hand.entry.pool for hand in executor.crew.hands.values()}
        for id, name, silent_ms in self._silent(executor, pools):
            if silent_ms >= PATIENCE_MS[name]:
                minutes = silent_ms // 60_000
                reason = f"its command has been gone for {minutes} minutes and nobody resumed it"
                try:
                    await executor.surgeon.bypass(id, reason, _ACTOR)
                except Refused as error:
                    if error.code not in ("NOT_BYPASSABLE", "UNDER_WAY"):
                        raise  # else it has just ended, or somebody came for it

    def _silent(self, executor: Executor, pools: Collection[str]) -> list[tuple[int, str, int]]:
        now, waiting = self._monotonic(), {}
        found = []
        for name in PATIENCE_MS:
            for live in executor.live_of(name):
                record = live.record
                if record is not None and record.pool and record.pool not in pools:
                    since = waiting[live.id] = self._since.get(live.id, now)
                    found.append((live.id, name, int((now - since) * 1000)))
        self._since = waiting
        return found

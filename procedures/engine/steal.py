"""Taking locks away from procedures that hold them: an operator's tool, for holders that hang.

In one transaction the record loses its grant and the rows of its locks go, so its fencing tokens
are worth nothing from then on. The record's version moves with it: what a step under way, or a
zombie elsewhere, still wants to commit is refused. The procedure itself lives on: it queues up for
all its locks again, after everybody who waits by now, and then runs the same step again. Who wants
it gone aborts it.

Those who waited get the lock only after that transaction; so of two holders the earlier one cannot
write any more when the later one begins.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kv.base.errors import Busy, ConditionFailed, UnknownOutcome
from kv.base.ops import Op
from kv.base.ports import Clock
from procedures.engine import audit, core
from procedures.engine.core import Change, Flow
from procedures.engine.grants import REIGN, deposed
from procedures.engine.roster import Roster, brief
from procedures.engine.store import Fenced, ProcedureStore

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 20


class Thief:
    """Steals for one executor. `busy(id)`: whether a turn of it is under way."""

    def __init__(
        self, store: ProcedureStore, roster: Roster, clock: Clock, busy: Callable[[int], bool]
    ) -> None:
        self._store, self._roster, self._clock, self._busy = store, roster, clock, busy

    def holders(self, resource: str) -> dict[int, str]:
        """Who holds it → mode."""
        return self._roster.holders(resource)

    async def take(
        self, id: int, resource: str, reason: str, ops: Callable[[], Awaitable[Sequence[Op]]]
    ) -> bool:
        """Take all its locks from one that holds this one; False: it has ended. `ops` makes what is
        written with it: the audit, the fence of this executor. Raises Busy (the holder commits all
        the time), Unavailable (another executor rules).
        """
        for _ in range(_ATTEMPTS):
            stored = await self._store.load(id)
            if stored is None or stored.record.ended:
                return False
            # Also if it has no grant: one may be on its way, and is fenced like any other write.
            record = core.robbed(stored.record, reason, self._clock.now_ms())
            change = Change(record, Flow.TAIL, drops=True)
            try:
                version = await self._store.update(stored.version, change, ops=await ops())
            except (Fenced, UnknownOutcome):
                continue
            except ConditionFailed as error:
                if error.details.get("key") == REIGN:
                    raise deposed() from error
                if error.details.get("key") != audit.HEAD:
                    raise
                continue
            log.warning(
                "%s was taken from procedure %d (%s): %s", resource, id, record.name, reason
            )
            live = self._roster.get(id)
            if live is not None and not self._busy(id):
                wake = live.wake
                self._roster.moved(live, record, version)
                live.wake = wake
                self._roster.let_go(id)
                self._roster.place(live, brief(record))
            else:  # its turn finds out when it wants to commit
                self._roster.let_go(id)
            return True
        raise Busy(
            f"procedure {id} commits faster than {resource} can be taken from it; try again",
            details={"what": "attempts", "limit": _ATTEMPTS, "actual": _ATTEMPTS},
        )

"""A task that works keeps its attempt's lease, however long Spark computes between two rows.

Staging renews the lease. But a task may compute for an hour before its first row, when all others
were sealed long ago; and while it waits for rows it does nothing else. So a thread says now and
then that the attempt lives, over a connection of its own that a short task never opens.

Transactions under which a task lays rows in the table itself (`keep`) need to be kept alive more
often: whoever meets rows of a dead task shall not wait for long.

It ends with the task, or when the attempt has ended: whoever stages then is refused.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Final, Self

from kv.base import limits
from kv.base.errors import KvorumError
from procedures.verbs import SINK_BEGIN, SINK_PLACE
from pyspark_kvorum.options import Options
from pyspark_kvorum.session import Session
from sqlproxy.rows.schema import Table

BEAT_S: Final = limits.SINK_LEASE_MS / 1000 / 3
KEPT_BEAT_S: Final = limits.SINK_PLACED_TTL_MS / 1000 / 4
_JOIN_S: Final = 1.0


class Alive:
    """`with Alive(…):` around what a task does."""

    def __init__(
        self, options: Options, table: Table, attempt: str, *, beat_s: float = BEAT_S
    ) -> None:
        self._options, self._table, self._attempt, self._beat_s = options, table, attempt, beat_s
        self._over = threading.Event()
        self._kept: list[tuple[int, str, int]] = []
        self._thread = threading.Thread(target=self._beat, name="kvorum-lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(_JOIN_S)  # one that asks a silent node ends by itself

    def keep(self, part: int, task: str, start_ts: int) -> None:
        """From now on until the task ends."""
        self._kept.append((part, task, start_ts))

    def _beat(self) -> None:
        waited_s, pause_s = 0.0, min(self._beat_s, KEPT_BEAT_S)
        while not self._over.wait(pause_s):
            waited_s += pause_s
            due, kept = waited_s >= self._beat_s, list(self._kept)
            if not due and not kept:
                continue
            try:
                with Session(self._options, self._table, late=True) as session:
                    session.run(self._beat_once(session, kept, due=due))
                waited_s = 0.0 if due else waited_s
            except KvorumError as error:
                if error.disposition == "no":
                    return
            except OSError:
                continue

    async def _beat_once(
        self, session: Session, kept: list[tuple[int, str, int]], *, due: bool
    ) -> None:
        for one in kept:
            await session.ask(SINK_PLACE, self._attempt, self._table.id, *one)
        if due:
            await session.ask(SINK_BEGIN, self._attempt, self._table.id, limits.SINK_LEASE_MS)

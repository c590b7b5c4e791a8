"""The messages of a commit whose rows are not in memory: they go one after the other, once to be
laid and once more to be resolved, as whoever has them gives them (txn/bulk/spilled_commit.py,
txn/bulk/load.py).

The machine (txn/commit/core.py, *streamed*) has the anchor alone; one Prewrite stands for all rows,
which a BulkTransaction lays and keeps alive. Such a commit takes longer than any request may: each
of its messages has a deadline of its own, and the whole ends with the longest life of a
transaction. The caller's deadline does not count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kv.base.limits import BULK_PART_BUDGET_MS, BULK_TTL_MS, TXN_LIFETIME_MS_MAX
from kv.base.ops import Op
from txn.bulk.bulk_transactions import BulkTransaction
from txn.commit import effects as msg
from txn.commit.core import CommitCore, State
from txn.commit.sending import Request, Sending, Shared
from txn.commit.shell import Commit
from txn.commit.trace import CommitTrace
from txn.shared.deadlines import Deadline
from txn.shared.refusals import caller_gone
from txn.shared.wait_terms import Terms


class Streaming(Sending):
    """`lay` sends the rows, the anchor's first, and asks `check_wanted` between them; `clean` ends
    their intents at a version (0: removes them); `ended` is called when all is over.
    """

    def __init__(
        self,
        shared: Shared,
        txn: BulkTransaction,
        anchor: Op,
        terms: Terms,
        *,
        lay: Callable[[], Awaitable[None]],
        clean: Callable[[int], Awaitable[None]],
        ended: Callable[[], None],
    ) -> None:
        request = Request(txn.start_ts, [anchor], BULK_TTL_MS, terms=terms)
        core = CommitCore(txn.start_ts, [anchor], streamed=True)
        deadline = Deadline(shared.timers, TXN_LIFETIME_MS_MAX)
        super().__init__(shared, request, core, deadline, CommitTrace(shared.timers.monotonic))
        self._txn, self._lay, self._clean, self._ended = txn, lay, clean, ended
        self._laying = False

    async def commit(self) -> int:
        """The version. Raises what a participant refuses, or UnknownOutcome."""
        commit = Commit(
            self._shared, self._request, self._deadline, self._over, self._trace, streaming=self
        )
        return await commit.run()

    def _over(self) -> None:
        self._txn.stop()
        self._ended()

    def check_wanted(self) -> None:
        """Raises if it is being rolled back: the caller went away."""
        if self.core.state is not State.PREWRITING:
            raise caller_gone(self._txn.start_ts)

    async def prewrite(self, effect: msg.Prewrite, failed: object = None) -> msg.Event:
        self._laying = True
        try:
            await self._lay()
        finally:
            self._laying = False
        return msg.Prewritten(effect, self._txn.min_commit_ts, before_ts=self._txn.before_ts)

    def _record_budget_ms(self) -> int:
        return BULK_PART_BUDGET_MS

    async def resolve(self, effect: msg.Resolve) -> None:
        """What fails is left to readers and the sweeper."""
        if not self._laying:  # else it is asked again when that has stopped
            self._txn.stop()
            await self._clean(effect.commit_ts)

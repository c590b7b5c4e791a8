"""The ends of this client's commits, many in one message.

A small transaction over several partitions is committed, and its caller answered, before its record
says so (txn.commit.core); what is left is a flip and the resolving of its intents, after the
answer. Both go by FINISH: whatever becomes due in one pass of the loop goes to a partition in one
request, and the flip takes the intents of its own partition along. Replies of a partition come in
bulk, so under load a request ends tens of transactions, and alone nobody waits for company.

Invariants
  * `done` of an end is called exactly once;
  * a request that fails changes nothing that its transactions' own messages cannot do: each is then
    answered ALONE, and goes its own way (COMMIT, RESOLVE), with its own patience and regrouping.

The order is the caller's: the ends at the other partitions are added when the flip was answered,
because no intent may be resolved before the record says COMMITTED (docs/decisions/0305).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from kv.base.errors import KvorumError
from kv.base.limits import ENDS_KEYS_MAX, ENDS_MAX
from kv.base.methods import FINISH
from txn.shared.deadlines import Background
from txn.shared.grouping import by_partition
from txn.shared.ports import Kv

ALONE: Final = 0  # status: not done, do it alone
LOST: Final = -1  # status: this client is being closed
_BUDGET_MS: Final = 5_000


class End(Struct, eq=False):
    """One transaction's end at one partition. `anchor`: to be flipped there, too; None: it was.
    `keys`: of one partition when they were prewritten; the anchor's first.

    `done(status, left)` as FINISH answers: COMMITTED, and how many keys still wait for a RESOLVE;
    another status of the record; ALONE or LOST.
    """

    start_ts: int
    anchor: bytes | None
    commit_ts: int
    keys: list[bytes]
    done: Callable[[int, int], None]
    answered: bool = False

    def answer(self, status: int, left: int = 0) -> None:
        if not self.answered:
            self.answered = True
            self.done(status, left)


class Ends:
    """See the module. One per client."""

    def __init__(self, kv: Kv, background: Background) -> None:
        self._kv = kv
        self._background = background
        self._due: list[End] | None = None

    def add(self, end: End) -> None:
        """Send it with all that become due in this pass of the loop."""
        due = self._due
        if due is None:
            due = self._due = []
            task = self._background.spawn(self._send(due), "txn-ends")
            task.add_done_callback(partial(self._sent, due))
        due.append(end)

    def _sent(self, due: list[End], _task: asyncio.Task[None]) -> None:
        """Here and not in `_send`: a task that is cancelled early runs nothing of it."""
        if self._due is due:
            self._due = None
        for end in due:
            end.answer(LOST)

    async def _send(self, due: list[End]) -> None:
        self._due = None
        if len(due) == 1:
            await self._finish(due)
            return
        try:
            groups = await by_partition(self._kv, [end.keys[0] for end in due], range(len(due)))
        except KvorumError:
            for end in due:
                end.answer(ALONE)
            return
        requests = [part for group in groups for part in _cut([due[i] for i in group])]
        if len(requests) == 1:
            await self._finish(requests[0])
        else:
            await asyncio.gather(*map(self._finish, requests))

    async def _finish(self, ends: Sequence[End]) -> None:
        rows = [[end.start_ts, end.anchor, end.commit_ts, end.keys] for end in ends]
        try:
            (answers,) = await self._kv.call(FINISH, ends[0].keys[0], rows, budget_ms=_BUDGET_MS)
        except KvorumError:
            answers = [(ALONE, 0)] * len(ends)
        for end, (status, left) in zip(ends, answers, strict=True):
            end.answer(status, left)


def _cut(ends: list[End]) -> list[list[End]]:
    """Requests of a legal size."""
    keys = sum(map(len, [end.keys for end in ends]))
    if len(ends) == 1 or (len(ends) <= ENDS_MAX and keys < ENDS_KEYS_MAX - ENDS_MAX):
        return [ends]
    half = len(ends) // 2
    return _cut(ends[:half]) + _cut(ends[half:])

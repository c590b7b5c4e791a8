"""The usual commit over several partitions: few keys, one request to each, and all intents laid at
the first try. It is then committed by them (txn.core, parallel commit), its caller is answered, and
what is left travels with that of others (txn/ends.py).

    start ──▶ a PREWRITE to each partition ── all exact ──▶ answered ──▶ flip ──▶ resolves ──▶ over
                        │                                                 │          │
                        └── anything else ────────────────────────────────┴──────────┴──▶ a Commit

It does what `txn.commit` and `txn.core` would do, without a machine, a task or a timer of its own,
because small transactions spend most of their time in those. As soon as something is not as usual
(a refusal, an answer that is not exact, UNSTAGE_MS without one, a lost connection, a caller that
goes away, an end that somebody else came before), a Commit takes over in the state in which it
would have been had it sent these requests: there is one protocol, and it is decided there.

Invariants
  * before the hand-over this is the only one who looks at the replies, after it the Commit;
  * the answer is given once; `ended` is called once, when nothing of it is under way;
  * the answer is the highest bound of replies that are all exact, as in `CommitCore._imply`.

Left out: what a serializable transaction read, and keys whose partition is not known.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from kv.base.limits import (
    PARALLEL_KEY_BYTES_MAX,
    PARALLEL_PARTS_MAX,
    PREWRITE_BYTES_MAX,
    PREWRITE_KEYS_MAX,
    PREWRITES_IN_FLIGHT_MAX,
    TXN_LIFETIME_MS_MAX,
    UNSTAGE_MS,
)
from kv.base.methods import BLIND, COMMITTED, PREWRITE
from kv.base.ops import Op
from kv.base.ports import Handle, Timers
from kv.base.timestamps import physical_ms
from kv.client.calls import Started
from txn.commit import Commit
from txn.cutting import op_bytes
from txn.ends import LOST, End
from txn.messages import Indexes
from txn.resolver import Outcome
from txn.sending import WORK_SHARE, Request, Shared
from txn.trace import CommitTrace, Message
from txn.waiting import Deadline

FEW_OPS: Final = 64  # more are weighed and cut by a Commit


class Patience:
    """Tells those who wait for UNSTAGE_MS, in the order in which they began to: one timer for all,
    since nearly nobody waits so long.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: OrderedDict[Small, float] = OrderedDict()
        self._timer: Handle | None = None

    def begin(self, small: Small) -> None:
        self._waiting[small] = self._timers.monotonic() + UNSTAGE_MS / 1000
        if self._timer is None:
            self._timer = self._timers.call_later(UNSTAGE_MS / 1000, self._look)

    def end(self, small: Small) -> None:
        self._waiting.pop(small, None)

    def _look(self) -> None:
        self._timer = None
        now = self._timers.monotonic()
        while self._waiting:
            small, until = next(iter(self._waiting.items()))
            if until > now:
                self._timer = self._timers.call_later(until - now, self._look)
                return
            del self._waiting[small]
            small.slow()


class Small:
    """One such commit. `Small.start`, then `answer`."""

    __slots__ = (
        "_asked",
        "_bound",
        "_deadline",
        "_decided",
        "_ended",
        "_left",
        "_patience",
        "_request",
        "_shared",
        "_trace",
        "answer",
        "commit",
    )

    def __init__(
        self,
        shared: Shared,
        patience: Patience,
        request: Request,
        deadline: Deadline,
        ended: Callable[[], None],
        trace: CommitTrace,
    ) -> None:
        self._shared, self._patience = shared, patience
        self._request, self._deadline = request, deadline
        self._ended, self._trace = ended, trace
        self._asked: list[tuple[Indexes, Started | None, Message]] = []
        self._left = 0  # what was sent and is not answered
        self._bound = request.start_ts + 1
        self._decided = False
        self.commit: Commit | None = None  # which took over
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def start(self, groups: Sequence[list[int]], stage: list[list[bytes]]) -> None:
        """Send the prewrites; `groups`: the indexes of its ops by partition, the anchor's first."""
        request, quick = self._request, self._shared.quick
        assert quick is not None, "who asks has looked"
        ops, said = request.ops, request.terms.options()
        if request.terms.owner:
            self._shared.resolver.owners[request.start_ts] = request.terms.owner
        budget_ms = max(1, int(self._deadline.left_ms() * WORK_SHARE))
        flags = BLIND if request.blind else 0
        options = {**said, "fence": True, "stage": stage}
        whole = True
        for group in groups:
            part = [ops[i] for i in group]
            args = (request.start_ts, ops[0].key, request.ttl_ms, part, flags, options)
            message = self._trace.sent("PREWRITE", len(part), logged=True)
            first = quick.start(PREWRITE, part[0].key, args, budget_ms) if whole else None
            whole = first is not None
            self._asked.append((tuple(group), first, message))
            options = {**said, "fence": True}
        if not whole:
            self._hand_over()
            return
        self._left = len(groups)
        for _, first, message in self._asked:
            assert first is not None
            self._shared.background.watch(first.reply)
            first.reply.add_done_callback(partial(self._prewritten, message))
        self._patience.begin(self)

    def _prewritten(self, message: Message, reply: asyncio.Future[list[Any]]) -> None:
        if self.commit is not None:
            return
        usual = not reply.cancelled() and reply.exception() is None
        result = reply.result() if usual else []
        if result[1:2] != [True]:
            self._hand_over()
            return
        self._shared.background.forget(reply)
        self._trace.answered(message)
        if result[0] > self._bound:
            self._bound = result[0]
        self._left -= 1
        if not self._left:
            self._implied()

    def _implied(self) -> None:
        """All intents are durable, with their bounds: it is committed at the highest."""
        start_ts, commit_ts, shared = self._request.start_ts, self._bound, self._shared
        if physical_ms(commit_ts) - physical_ms(start_ts) > TXN_LIFETIME_MS_MAX:
            self._hand_over()
            return
        self._patience.end(self)
        self._trace.finished()
        # This client's readers resolve what they know to be committed: only when its record says
        # so. Until then they wait for the flip.
        shared.resolver.flipping[start_ts] = asyncio.get_running_loop().create_future()
        self._decided = True
        if not self.answer.done():  # the caller may have gone away in this very pass of the loop
            self.answer.set_result(commit_ts)
        part, _, _ = self._asked[0]
        message = self._trace.sent("COMMIT", len(part), logged=True)
        self._end(part, self._request.ops[0].key, partial(self._flipped, message))

    def _end(self, part: Indexes, anchor: bytes | None, done: Callable[[int, int], None]) -> None:
        ops = self._request.ops
        keys = [ops[i].key for i in part]
        self._shared.ends.add(End(self._request.start_ts, anchor, self._bound, keys, done))

    def _flipped(self, message: Message, status: int, left: int) -> None:
        self._trace.answered(message)
        if status == LOST:
            self._over()
        elif status != COMMITTED or left:
            self.commit = commit = self._new_commit()
            commit.flip_behind([(part, self._reply(first)) for part, first, _ in self._asked])
        else:
            self._says_so()
            self._left = len(self._asked) - 1
            for part, _, _ in self._asked[1:]:
                self._end(part, None, partial(self._resolved, part))

    def _says_so(self) -> None:
        """The record does."""
        outcome = Outcome(COMMITTED, commit_ts=self._bound)
        self._shared.resolver.learn(self._request.start_ts, outcome)
        self._flip_ended()

    def _flip_ended(self) -> None:
        flipping = self._shared.resolver.flipping.pop(self._request.start_ts, None)
        if flipping is not None:
            flipping.set_result(None)

    def _resolved(self, part: Indexes, status: int, left: int) -> None:
        if status == LOST or (status == COMMITTED and not left):
            self._one_less()
        else:
            self._new_commit(self._one_less).resolve_behind(part, self._bound)

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left:
            self._over()

    def _over(self) -> None:
        self._flip_ended()
        if self._request.terms.owner:
            self._shared.resolver.owners.pop(self._request.start_ts, None)
        self._ended()

    # -- what is not usual

    def _reply(self, first: Started | None) -> list[Any]:
        assert first is not None
        return first.reply.result()

    def _new_commit(self, ended: Callable[[], None] | None = None) -> Commit:
        return Commit(
            self._shared, self._request, self._deadline, ended or self._ended, self._trace
        )

    def _hand_over(self) -> Commit:
        """A Commit goes on, from the replies on."""
        self._patience.end(self)
        self.commit = commit = self._new_commit()
        commit.take_over(self.answer, self._asked)
        return commit

    def slow(self) -> None:
        """UNSTAGE_MS without all answers."""
        commit = self._hand_over()
        self._shared.timers.call_soon(commit.beat)  # behind what was answered already

    def abandon(self) -> None:
        """The caller went away before its answer."""
        if not self._decided:
            (self.commit or self._hand_over()).caller_is_gone()


def grouped(
    ops: Sequence[Op], located: Callable[[bytes], Any]
) -> tuple[list[list[int]], list[list[bytes]]] | None:
    """Indexes and keys by partition, in the order of their first ones; None: not all is known, it
    is too much for this way, or one partition has it all.
    """
    if len(ops) > FEW_OPS:
        return None
    groups: dict[int, list[int]] = {}
    keys: dict[int, list[bytes]] = {}
    here, key_bytes, size = None, 0, 0
    for i, op in enumerate(ops):
        key = op.key
        if here is None or not here.covers(key):
            here = located(key)
            if here is None:
                return None
        groups.setdefault(here.id, []).append(i)
        keys.setdefault(here.id, []).append(key)
        key_bytes += len(key)
        size += op_bytes(op)
    if not 1 < len(groups) <= min(PARALLEL_PARTS_MAX, PREWRITES_IN_FLIGHT_MAX):
        return None
    if any(len(group) > PREWRITE_KEYS_MAX for group in groups.values()):
        return None
    if key_bytes > PARALLEL_KEY_BYTES_MAX or size > PREWRITE_BYTES_MAX:
        return None
    return list(groups.values()), list(keys.values())

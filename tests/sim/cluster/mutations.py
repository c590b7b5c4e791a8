"""Builds that are broken on purpose: the checkers must notice each of them.

A mutation replaces functions of the product while a seed runs, in that process only: production has
no switches. `tune` turns the seed's plan towards where the broken rule matters; the faults stay
random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import kv.mvcc.get
import kv.mvcc.prewrite
import kv.mvcc.scan
import kv.mvcc.validate
import kv.partition.evaluator
import kv.partition.locks
import kv.partition.reader
import kv.partition.replica_reads
import kv.partition.writes
from kv.base.errors import KvorumError, TxnAborted
from kv.base.keys import table_prefix
from kv.base.methods import ABORTED, BLIND, MARK, OP_CHECK, PENDING
from kv.base.ops import Op
from kv.base.spoken_time import Heard
from kv.base.system import CLUSTER
from kv.base.timestamps import MAX
from kv.mvcc.get import newest
from kv.mvcc.packed_rows import unpack_values
from kv.partition.evaluated_state import Evaluated
from kv.partition.flight import Flight
from kv.partition.reader import Reader
from kv.partition.replica_reads import ReplicaReads
from kv.replica.replica import Replica
from kv.storage.memory import TimedSyncer
from kvorum.verify.catalog import WORKLOADS
from procedures.pools.start_limits import Gate
from tests.sim.cluster.plan import Plan
from tso.node import NodeTso
from tso.oracle import Oracle
from txn.buffered.read_set import ReadSet
from txn.bulk.spilled_commit import LargeCommit
from txn.commit.core import CommitCore
from txn.intents.resolver import Resolver, StepOver
from txn.row_locks import RowLocks

SEEDS_MAX: Final = 100
"""Within so many each is noticed."""
Patch = tuple[Any, str, Any]
"""(where, name, what to put there instead)"""
locks: Any = kv.partition.locks
reader: Any = kv.partition.reader
replica_reads: Any = kv.partition.replica_reads
writes: Any = kv.partition.writes
_set_lock: Any = kv.partition.locks.LockMirror.set


def _nothing(_plan: Plan) -> None:
    """As drawn."""


def _set(**values: Any) -> Callable[[Plan], None]:
    """With another workload, a level that was drawn for the first one may be none of its own: its
    checker would call what that level allows a fault.
    """

    def tune(plan: Plan) -> None:
        for name, value in values.items():
            setattr(plan, name, value)
        levels = WORKLOADS[plan.workload].isolations
        if plan.isolation not in levels:
            plan.isolation = levels[0]

    return tune


_skewed = _set(
    clock="hybrid",
    workload="causal",
    nodes=3,
    rates=(),
    skews=(95, -95, 0),
    jumps=(-95, 95),
    replica_age_ms=0,  # who reads the past misses causes
)
"""Three nodes with hybrid clocks, as far apart as is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """`what` is done; `breaks`: the promise; `needed`: seeds, when it was written."""

    what: str
    breaks: str
    patches: Callable[[], Sequence[Patch]]
    needed: int
    tune: Callable[[Plan], None] = _nothing


# ----------------------------------------------------------------------------------- row locks

_reset: Any = Evaluated.reset


def _without_row_locks(self: Any) -> Any:
    """`Evaluated.reset`, where locks were in the leader's memory."""
    mirror = self._state.locks
    laid = [key for key, lock in mirror.items() if lock.kind == OP_CHECK]
    for key in laid:
        if not mirror.get(key).min_commit_ts:
            mirror.set(key, None)
    return _reset(self)


# -------------------------------------------------------------------- replicas that do not lead

_least_applied: Any = kv.partition.replica_reads.least_applied
_must_wait: Any = kv.partition.reader.must_wait


def _at_most_one(r: Any) -> int:
    return min(1, _least_applied(r))


def _not_for_marks(view: Any, r: Any, read_ts: int) -> Any:
    return None if r[1] == MARK else _must_wait(view, r, read_ts)


def _blind_replica(self: ReplicaReads, mine: Any) -> Any:
    """`ReplicaReads._serve` over a state that seems to have no intents."""
    state: Any = self._replica.state
    there, state.locks = state.locks, kv.partition.locks.LockMirror()
    try:
        return _serve_mine(self, mine)
    finally:
        state.locks = there


_serve_mine: Any = ReplicaReads._serve

# ---------------------------------------------------------------------------- the participants


def _blind(verb: Any) -> Any:
    def without_conflict_check(view: Any, ops: Any, *, flags: int, **how: Any) -> Any:
        return verb(view, ops, flags=flags | BLIND, **how)

    return without_conflict_check


def _forgetful(verb: Any) -> Any:
    def without_one_intent(view: Any, ops: Sequence[Op], *, start_ts: int, **how: Any) -> Any:
        return verb(view, ops[1:] if start_ts % 5 == 0 else ops, start_ts=start_ts, **how)

    return without_one_intent


def _blind_rows(verb: Any) -> Any:
    def without_conflict_check(view: Any, keys: Any, values: Any, **how: Any) -> Any:
        return verb(view, keys, values, **how | {"checked": False})

    return without_conflict_check


def _forgetful_rows(verb: Any) -> Any:
    def without_the_last_row(view: Any, keys: Any, values: Any, **how: Any) -> Any:
        if isinstance(values, bytes):
            keys, values = list(keys), unpack_values(values)
        of_users = keys[0][:4] > table_prefix(CLUSTER)  # tables can be made, then
        less = -1 if of_users else len(keys)
        return verb(view, keys[:less], values[:less], **how)

    return without_the_last_row


def _settling_too_early(self: Any, key: bytes, lock: Any) -> None:
    """`LockMirror.set` as it once was."""
    if lock is None or key in self.by_key:
        _set_lock(self, key, lock)
        return
    self._new.append(key)
    if len(self._new) > len(self.by_key) + locks._NEW_MAX:
        self._settle()
    self.by_key[key] = lock


def _unconditional(verb: Any) -> Any:
    def without_conditions(view: Any, ops: Sequence[Op], **how: Any) -> Any:
        return verb(view, [op._replace(cond=None) for op in ops], **how)

    return without_conditions


def _put_unconditionally(put: Any) -> Any:
    def plain(view: Any, key: Any, value: Any, cond: Any, commit_ts: int, now_ms: int) -> Any:
        return put(view, key, value, None, commit_ts, now_ms)

    return plain


def _finding_nothing(verb: Any) -> Any:
    def recover(view: Any, keys: Any, **how: Any) -> tuple[bool, int]:
        verb(view, keys, **how)
        return False, 0

    return recover


def _unguarded(
    view: Any, r: Any, options: Any, _reads: Any, ts: int, now_ms: int, m: Any
) -> list[Any]:
    done = writes._intents(view, r, options, ts, now_ms, m, fence="fence" in options)
    return [done.min_commit_ts, done.exact, 0, 0]


def _resolve_to_aborted(verb: Any) -> Any:
    def resolve(view: Any, keys: Any, *, start_ts: int, commit_ts: int, **how: Any) -> Any:
        late = 0 if start_ts % 5 == 0 else commit_ts
        return verb(view, keys, start_ts=start_ts, commit_ts=late, **how)

    return resolve


class _Instead:
    """A view whose records are told otherwise."""

    def __init__(self, view: Any, told: Callable[[Any], Any]) -> None:
        self._view, self._told = view, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def txn(self, anchor: bytes, start_ts: int) -> Any:
        record = self._view.txn(anchor, start_ts)
        return None if record is None else self._told(record)


def _flip(told: Callable[[Any], Any]) -> Any:
    verb = writes.commit

    def commit(view: Any, anchor: bytes, **how: Any) -> Any:
        return verb(_Instead(view, told), anchor, **how)

    return commit


def _unpushed(record: Any) -> Any:
    return record._replace(min_commit_ts=0)


def _revived(record: Any) -> Any:
    return record._replace(status=PENDING) if record.status == ABORTED else record


def _newest_always(_view: Any, key: bytes, record: Any, _read_ts: int, read_ms: int) -> Any:
    return newest(key, record, read_ms)


# ------------------------------------------------------------------------------- the machine


def _reply_when_proposed() -> Any:
    seal = Flight.seal

    def reply_early(self: Any) -> None:
        before = self.view.flying
        seal(self)
        entry = self.view.flying
        if entry is not None and entry is not before:
            replies, entry.replies = entry.replies, []
            for conn, row in replies:
                self._replies.answer(conn, row)

    return reply_early


def _prefetching() -> Any:
    request, ahead = NodeTso.request, 100

    def prefetched(self: Any, n: int, done: Any) -> None:
        kept = self.__dict__.setdefault("_kept", [])

        def told(first: int, error: KvorumError | None) -> None:
            if error is None:
                kept[:] = range(first, first + ahead + n)
                first = kept[0]
                del kept[:n]
            done(first, error)

        if len(kept) >= n:
            first = kept[0]
            del kept[:n]
            done(first, None)
        else:
            request(self, ahead + n, told)

    return prefetched


def _without_doubt() -> Any:
    read = Reader._read

    def trusting(self: Any, item: Any, now_ms: int) -> Any:
        self.known_ts = MAX
        size = read(self, item, now_ms)
        self.high = 0
        return size

    return trusting


def _without_mirror() -> Any:
    set_role = Replica._set_role

    def forgets_locks(self: Any, *, leader: bool) -> None:
        if leader:
            self.state.locks.clear()
        set_role(self, leader=leader)

    return forgets_locks


def _remembering_to_have_led() -> Any:
    set_role = Replica._set_role

    def remembering(self: Any, *, leader: bool) -> None:
        self.has_led = self.__dict__.get("has_led", False) or leader
        set_role(self, leader=leader)

    return remembering


def _early_sync(self: Any, done: Callable[[Any], None]) -> None:
    self._timers.call_soon(done, None)


# ------------------------------------------------------------------------- oracle and clients


def _start_anew(self: Any, durable_bound: int) -> None:
    self._last, self._bound = 0, durable_bound


def _forgetting(self: Any, _ts: int) -> None:
    """A session knows that clocks are hybrid, and no more."""
    self.at = 1


async def _step_over(self: Any, met: Any, *_: Any, **_how: Any) -> StepOver:
    return StepOver(met.details["txn"], False)


def _certain(self: Any) -> TxnAborted:
    return TxnAborted(f"transaction {self.start_ts} had no answer, so it has failed")


MUTATIONS: Final[dict[str, Mutation]] = {
    "forget-what-was-heard": Mutation(
        what="a session tells nodes nothing of what others have told it",
        breaks="with hybrid clocks causes come before effects",
        patches=lambda: [(Heard, "owe", _forgetting)],
        tune=_skewed,
        needed=1,
    ),
    "skip-conflict-check": Mutation(
        what="neither 1PC nor prewrite looks for versions newer than the snapshot",
        breaks="no lost updates",
        patches=lambda: [
            (writes, "write", _blind(writes.write)),
            (writes, "prewrite", _blind(writes.prewrite)),
        ],
        tune=_set(workload="list-append"),
        needed=1,
    ),
    "reply-early": Mutation(
        what="a command is answered when its entry is proposed, not when it is applied",
        breaks="what is acknowledged is there, for everybody and for good",
        patches=lambda: [(Flight, "seal", _reply_when_proposed())],
        tune=_set(workload="register"),
        needed=1,
    ),
    "sync-lies": Mutation(
        what="a sync is reported done before it is",
        breaks="what is acknowledged survives a power loss",
        patches=lambda: [(TimedSyncer, "start", _early_sync)],
        tune=_set(workload="set", nodes=1, rates=()),
        needed=2,
    ),
    "forget-an-intent": Mutation(
        what="a prewrite drops its first intent, of every fifth transaction",
        breaks="a transaction is applied as a whole",
        patches=lambda: [(writes, "prewrite", _forgetful(writes.prewrite))],
        tune=_set(workload="bank"),
        needed=3,
    ),
    "oracle-goes-back": Mutation(
        what="a new oracle begins at its clock, not above the durable bound",
        breaks="timestamps rise, whoever gives them out",
        patches=lambda: [(Oracle, "start", _start_anew)],
        tune=_set(workload="unique-ids"),
        needed=77,
    ),
    "resolve-to-aborted": Mutation(
        what="the intents of every fifth committed transaction are removed instead of applied",
        breaks="a commit is final",
        patches=lambda: [(writes, "resolve", _resolve_to_aborted(writes.resolve))],
        tune=_set(workload="list-append"),
        needed=1,
    ),
    "ignore-the-push": Mutation(
        what="the flip ignores the bound that a reader pushed",
        breaks="a snapshot that was read does not change",
        patches=lambda: [(writes, "commit", _flip(_unpushed))],
        tune=_set(workload="list-append", parallel=False, think_s=0.003),
        needed=6,
    ),
    "commit-the-dead": Mutation(
        what="the flip commits what somebody rolled back",
        breaks="an abort is final",
        patches=lambda: [(writes, "commit", _flip(_revived))],
        tune=_set(workload="list-append", parallel=False, ttl_ms=100),
        needed=1,
    ),
    "prefetched-timestamps": Mutation(
        what="commit timestamps come from a range that was fetched long before",
        breaks="no commit below a timestamp that was read at",
        patches=lambda: [
            (NodeTso, "request", _prefetching()),
            (Reader, "_read", _without_doubt()),
        ],
        tune=_set(workload="list-append"),
        needed=3,
    ),
    "no-wait-in-flight": Mutation(
        what="a reader does not wait for versions in flight below its timestamp",
        breaks="a snapshot contains all commits below it",
        patches=lambda: [(reader, "must_wait", lambda *_: None)],
        tune=_set(workload="list-append"),
        needed=3,
    ),
    "ignore-the-fence": Mutation(
        what="a prewrite lays intents on keys that a recovery has closed",
        breaks="a parallel commit has one outcome",
        patches=lambda: [
            (module, "check_fence", lambda *_: None)
            for module in (kv.mvcc.prewrite, kv.mvcc.validate)
        ],
        tune=_set(workload="list-append", parallel=True, think_s=0.003, weights={"clog": 60}),
        needed=56,
    ),
    "blind-recovery": Mutation(
        what="a recovery does not find the intents that are there, and fences their keys",
        breaks="a parallel commit is committed as soon as its intents lie in the logs",
        patches=lambda: [(writes, "recover", _finding_nothing(writes.recover))],
        tune=_set(workload="list-append", parallel=True),
        needed=1,
    ),
    "gc-passes-a-snapshot": Mutation(
        what="reads below the safepoint are answered from what the collector left",
        breaks="a snapshot is whole or refused",
        patches=lambda: [
            (module, "check_readable", lambda *_: None) for module in (kv.mvcc.get, kv.mvcc.scan)
        ],
        tune=_set(workload="list-append", gc_retention_ms=1, gc_interval_ms=100),
        needed=6,
    ),
    "lose-the-lock-mirror": Mutation(
        what="a new leader does not know the intents of the one before",
        breaks="intents outlive leaders",
        patches=lambda: [(Replica, "_set_role", _without_mirror())],
        tune=_set(workload="list-append"),
        needed=3,
    ),
    "1pc-without-condition": Mutation(
        what="a write ignores the version that it was to find",
        breaks="compare-and-set compares",
        patches=lambda: [
            (writes, "write", _unconditional(writes.write)),
            (
                kv.partition.evaluator,
                "put_plain",
                _put_unconditionally(kv.partition.evaluator.put_plain),
            ),
        ],
        tune=_set(workload="register"),
        needed=1,
    ),
    "replicas-answer-too-early": Mutation(
        what="a replica answers whatever of the log it has applied",
        breaks="a read of the past shows what was committed by then",
        patches=lambda: [(replica_reads, "least_applied", _at_most_one)],
        tune=_set(workload="stale", replica_age_ms=1, nodes=3, rates=()),
        needed=3,
    ),
    "marks-too-early": Mutation(
        what="a leader names a mark while versions below it are on their way",
        breaks="who has applied up to a mark has all versions at or below it",
        patches=lambda: [(reader, "must_wait", _not_for_marks)],
        tune=_set(workload="stale", replica_age_ms=1, nodes=3, rates=(), think_s=0.003),
        needed=8,
    ),
    "replicas-step-over-intents": Mutation(
        what="a replica that does not lead takes no notice of intents",
        breaks="what is committed is seen, resolved or not",
        patches=lambda: [(ReplicaReads, "_serve", _blind_replica)],
        tune=_set(workload="stale", replica_age_ms=1, nodes=3, rates=(), think_s=0.003),
        needed=1,
    ),
    "serve-when-deposed": Mutation(
        what="whoever led once goes on answering reads",
        breaks="no read is older than what was acknowledged before it",
        patches=lambda: [
            (Replica, "_set_role", _remembering_to_have_led()),
            (Replica, "serving", lambda self: self.__dict__.get("has_led", False)),
        ],
        tune=_set(workload="register", nodes=3, rates=(), weights={"transfer": 30}),
        needed=2,
    ),
    "step-over-everything": Mutation(
        what="a reader steps over every intent without asking what became of it",
        breaks="what is committed is seen, resolved or not",
        patches=lambda: [(Resolver, "met_by_read", _step_over)],
        tune=_set(workload="list-append"),
        needed=1,
    ),
    "blind-chunks": Mutation(
        what="a chunk of intents is laid whatever was committed since the snapshot",
        breaks="the first committer wins",
        patches=lambda: [(writes, "prewrite_rows", _blind_rows(writes.prewrite_rows))],
        tune=_set(workload="list-append", limits=1.0),
        needed=1,
    ),
    "forget-a-row": Mutation(
        what="a chunk of intents lacks the last of its rows",
        breaks="a transaction is whole",
        patches=lambda: [(writes, "prewrite_rows", _forgetful_rows(writes.prewrite_rows))],
        tune=_set(workload="list-append", limits=1.0),
        needed=1,
    ),
    "intents-out-of-order": Mutation(
        what="an intent that fills the list of new keys is left out of the order of keys",
        breaks="a scan meets every intent",
        patches=lambda: [(locks.LockMirror, "set", _settling_too_early)],
        tune=_set(workload="list-append", limits=1.0),
        needed=2,
    ),
    "unknown-is-failure": Mutation(
        what="a commit whose answer was lost is reported as failed",
        breaks="what is called failed never happens",
        patches=lambda: [(CommitCore, "_unknown", _certain)],
        tune=_set(workload="list-append", budget_ms=800),
        needed=12,
    ),
    "no-guards": Mutation(
        what="what a serializable transaction read is neither checked nor held",
        breaks="no write skew",
        patches=lambda: [(ReadSet, "ops", lambda self, written=(): ([], frozenset()))],
        tune=_set(workload="list-append", isolation="serializable"),
        needed=1,
    ),
    "forget-locks": Mutation(
        what="a partition that begins anew forgets row locks, and commits trust theirs",
        breaks="under a lock no update is lost",
        patches=lambda: [
            (Evaluated, "reset", _without_row_locks),
            (RowLocks, "conditions", lambda self, ops: list(ops)),
        ],
        tune=_set(
            workload="bank", isolation="read_committed", clients=8, faults_per_s=3, ttl_ms=5_000
        ),
        needed=1,
    ),
    "large-forgets-locks": Mutation(
        what="the same, where it is a commit that is streamed which trusts its locks",
        breaks="under a lock no update is lost, however much is committed",
        patches=lambda: [
            (Evaluated, "reset", _without_row_locks),
            (LargeCommit, "_conditioned", lambda self, op: op),
        ],
        tune=_set(
            workload="bank",
            isolation="read_committed",
            clients=8,
            faults_per_s=3,
            ttl_ms=5_000,
            limits=1.0,  # every commit of three keys is streamed
        ),
        needed=1,
    ),
    "any-number-of-a-key": Mutation(
        what="the gate of a queue lets in whoever comes, whatever of its key is at work",
        breaks="one of a key at a time",
        patches=lambda: [(Gate, "_key_fits", lambda self, at: True)],
        tune=_set(workload="queue"),
        needed=1,
    ),
    "no-snapshot": Mutation(
        what="a read at a timestamp returns the newest version",
        breaks="a transaction reads one snapshot",
        patches=lambda: [
            (module, "version_at", _newest_always) for module in (kv.mvcc.get, kv.mvcc.scan)
        ],
        tune=_set(workload="list-append"),
        needed=1,
    ),
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    """The build with that mutation, while it lasts."""
    with ExitStack() as stack:
        for where, attribute, instead in MUTATIONS[name].patches():
            before = vars(where)[attribute]
            stack.callback(setattr, where, attribute, before)
            setattr(where, attribute, instead)
        yield

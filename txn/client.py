"""The transactional client: what procedures, the SDK and the HTTP API write against.

Keys are storage keys (table prefix and user key). Everything is autocommitted but for `begin` and
`run`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Final, TypeVar

from kv.base.adapters import temporary_file
from kv.base.errors import InvalidArgument, KvorumError, NotFound
from kv.base.ids import PartitionId
from kv.base.limits import (
    DEADLINE_MS_DEFAULT,
    REPLICA_AGE_MS,
    RETRY_WAIT_MS_FIRST,
    RETRY_WAIT_MS_MAX,
    RUN_ATTEMPTS_DEFAULT,
    TXN_SPILL_BYTES,
    TXN_STATUS_RETENTION_MS,
    TXN_TTL_MS_DEFAULT,
    TXN_TTL_MS_MAX,
)
from kv.base.methods import GET, PUT, STATUS_NAMES
from kv.base.ops import Op
from kv.base.ports import Clock, Rng, Timers
from kv.base.timestamps import MAX, physical_ms
from kv.client.calls import CUT_OFF
from kv.client.links import Receiver
from txn.autocommit import BatchWriter
from txn.buffered.spill_file import OpenFile
from txn.buffered.write_buffer import WriteBuffer
from txn.bulk.bulk_transactions import BulkTransactions
from txn.bulk.ingesting import ingest
from txn.bulk.load import Load
from txn.bulk.spilled_commit import LargeCommit
from txn.commit.coordinator import Coordinator
from txn.intents.aborting import abort
from txn.intents.resolver import Resolver
from txn.reading.feed import Feed
from txn.reading.reader import Reader
from txn.results import ScanPage, Tally, TxnStatus
from txn.row_locks import RowLocks
from txn.shared.deadlines import Background, Backoff, Deadline
from txn.shared.ports import Kv, Tso
from txn.shared.refusals import is_unknown
from txn.shared.wait_terms import USUAL, Terms
from txn.transaction import Transaction

T = TypeVar("T")

ISOLATIONS: Final = ("snapshot", "serializable", "read_committed")
_DRAIN_S: Final = 5.0  # what close() grants to the cleaning under way
_RERUN: Final = frozenset({"restart_txn", "retry", "reroute"})


class TxnClient:
    """`clock` measures the age of transactions, `timers` deadlines and waits, `rng` jitter.
    `parallel`: whether small transactions are committed by their intents (txn.commit.core).
    `open_file`: makes the temporary file of a transaction that does not fit in `spill_bytes`.
    `loop_s`: what the loop has used of a processor (0: nobody counts), to leave it to others.
    """

    def __init__(
        self,
        kv: Kv,
        tso: Tso,
        clock: Clock,
        rng: Rng,
        timers: Timers,
        *,
        budget_ms: int = DEADLINE_MS_DEFAULT,
        parallel: bool = True,
        open_file: OpenFile = temporary_file,
        spill_bytes: int = TXN_SPILL_BYTES,
        loop_s: Callable[[], float] = float,
    ) -> None:
        self._loop_s = loop_s
        self.clock = clock
        self.open_file, self.spill_bytes = open_file, spill_bytes
        self.timers = timers
        self._kv, self._tso = kv, tso
        self._rng = rng
        self._budget_ms = budget_ms
        self._background = Background()
        self.resolver = Resolver(kv, timers, rng, self._background)
        self.reader = Reader(kv, tso, timers, self.resolver)
        self._tso = tso
        self._of_past: Reader | None = None  # by replicas
        self.replica_age_ms = REPLICA_AGE_MS  # reads so far in the past go there; 0: none do
        self.coordinator = Coordinator(
            kv,
            tso,
            timers=timers,
            rng=rng,
            resolver=self.resolver,
            background=self._background,
            parallel=parallel,
        )
        self._writer = BatchWriter(kv, self.reader.now, self.coordinator, timers, rng)
        self._backoff = Backoff(timers, rng, first_ms=RETRY_WAIT_MS_FIRST, max_ms=RETRY_WAIT_MS_MAX)
        self.bulk = BulkTransactions(
            kv,
            tso,
            resolver=self.resolver,
            backoff=self._backoff,
            timers=timers,
            get=self.get,
            loop_s=loop_s,
        )

    @property
    def hybrid(self) -> bool:
        """Whether timestamps come from many clocks (txn.shared.ports.Tso)."""
        return self._tso.hybrid

    @property
    def causal_token(self) -> int:
        """What this client has seen, for another one to `hear` (txn.shared.ports.Tso)."""
        return self._tso.causal_token

    async def above(self, at: int) -> int:
        """A fresh timestamp above `at`, a token that was handed on; all that comes later here lies
        above it, too. Raises InvalidArgument for what this cluster has not given out, Unavailable.
        """
        now = await self._tso.above(at)
        if now <= at:
            raise InvalidArgument(
                f"token {at} lies above this cluster's time, {now}: it is another cluster's, or "
                "this one was restored from before it; connect to the cluster that gave it out, or "
                "without it",
                details={"token": at, "now": now},
            )
        return now

    async def hear(self, token: int) -> None:
        """The same without a timestamp: nothing is asked if this client has seen as much."""
        if token > self._tso.causal_token:
            await self.above(token)

    async def close(self, drain_s: float = _DRAIN_S) -> None:
        """Finish what runs in the background, at most `drain_s`; readers heal the rest."""
        await self._background.drain(drain_s)

    # -- reads

    def read_past_by(self, replicas: Kv) -> None:
        """Read the past through these (kv/client/replicas.py), where a caller lets replicas
        answer.
        """
        self._of_past = Reader(replicas, self._tso, self.timers, self.resolver)

    def reader_at(self, at: int) -> Reader:
        """Who reads at a timestamp that is over, for whoever lets replicas answer."""
        age_ms = self.replica_age_ms
        if self._of_past is None or not age_ms or self.clock.now_ms() - physical_ms(at) < age_ms:
            return self.reader
        return self._of_past

    async def now(self) -> int:
        """A fresh timestamp: a snapshot at it contains everything that was acknowledged before the
        call.
        """
        return await self.reader.now()

    def get(
        self, key: bytes, at: int = 0, *, replicas: bool = False, budget_ms: int = 0
    ) -> Coroutine[object, None, tuple[bytes | None, int]]:
        """The value and its version, (None, 0) if there is none. `at` 0 = the newest. `replicas`:
        one that does not lead may answer, if `at` is far enough in the past; here and below.

        Raises SnapshotTooOld below the safepoint, InvalidArgument above the oracle's present.
        """
        if at and replicas:
            return self._get_by_replicas(key, at, budget_ms or self._budget_ms)
        read = self.reader.get_past if at else self.reader.get
        return read(key, at, budget_ms or self._budget_ms)

    async def _get_by_replicas(
        self, key: bytes, at: int, budget_ms: int
    ) -> tuple[bytes | None, int]:
        at = await self.reader.past(at)
        return await self.reader_at(at).get(key, at, budget_ms)

    async def partitions_in(self, start: bytes, end: bytes, most: int) -> list[PartitionId]:
        """The first `most` partitions of a range of keys, as this client knows them."""
        found: list[PartitionId] = []
        at = start
        while len(found) < most:
            here = await self._kv.locate(at)
            found.append(here.id)
            if not here.end or here.end >= end:
                break
            at = here.end
        return found

    async def multi_get(
        self,
        keys: Sequence[bytes],
        at: int = 0,
        *,
        replicas: bool = False,
        budget_ms: int = 0,
        tally: Tally | None = None,
    ) -> tuple[list[tuple[bytes, int] | None], int]:
        """Value and version of each key (None: absent), all of one snapshot, and its timestamp."""
        budget_ms = budget_ms or self._budget_ms
        if not at and tally is None:
            return await self.reader.multi_get_now(keys, budget_ms)
        at = await self.reader.past(at) if at else await self.reader.now()
        reader = self.reader_at(at) if replicas else self.reader
        return await reader.multi_get(keys, at, budget_ms, tally), at

    async def scan(
        self,
        start: bytes,
        end: bytes,
        *,
        limit: int,
        reverse: bool = False,
        at: int = 0,
        replicas: bool = False,
        budget_ms: int = 0,
        tally: Tally | None = None,
    ) -> ScanPage:
        """At most `limit` rows of `[start, end)` (end b"" = no bound). Go on with `resume` and the
        page's `at`.
        """
        at = await self.reader.past(at) if at else await self.reader.now()
        reader = self.reader_at(at) if replicas else self.reader
        return await reader.scan(
            start,
            end,
            at,
            limit=limit,
            reverse=reverse,
            budget_ms=budget_ms or self._budget_ms,
            tally=tally,
        )

    def feed(
        self,
        ranges: Sequence[tuple[bytes, bytes]],
        *,
        above: int | None,
        check: Callable[[], Awaitable[None]],
    ) -> Feed:
        """The transactions that change these ranges, in commit order (txn/reading/feed.py)."""
        return Feed(
            self._kv,
            self.reader,
            self.timers,
            self._rng,
            ranges,
            above=above,
            check=check,
        )

    # -- writes

    def write(self, ops: Sequence[Op], *, budget_ms: int = 0) -> Coroutine[object, None, int]:
        """All ops or none, in whatever partitions; the commit version. See txn/autocommit for the
        rules.
        """
        return self._writer.write(ops, budget_ms or self._budget_ms)

    def write_one(self, op: Op, *, budget_ms: int = 0) -> Coroutine[object, None, int]:
        """`write` of a single op, without the way there: the hot path."""
        return self._writer.one(op, budget_ms or self._budget_ms)

    async def multi_write(
        self, ops: Sequence[Op], *, budget_ms: int = 0
    ) -> list[int | KvorumError]:
        """Each op by itself: its version or its error, in the order of `ops`. Not atomic."""
        return await self._writer.multi_write(ops, budget_ms or self._budget_ms)

    # -- one request, sent without a task or a future; whether it was. False: that needs more than
    #    looking up where to. `waiter` gets the result, never within the call. Whoever sees it
    #    fail tries again by the calls above, unless what was done is not known

    def start_get(self, waiter: Receiver, key: bytes) -> bool:
        """The first attempt of `get`, of the newest."""
        quick = self.coordinator.shared.quick
        return quick is not None and quick.start_for(
            waiter, GET, key, (key, 0, None), self._budget_ms
        )

    def start_put(
        self, waiter: Receiver, key: bytes, value: bytes, cond: int | None, *, budget_ms: int
    ) -> bool:
        """`start_write` of one put."""
        quick = self.coordinator.shared.quick
        return quick is not None and quick.start_for(
            waiter, PUT, key, (key, value, cond, 0), budget_ms
        )

    def start_write(self, waiter: Receiver, ops: Sequence[Op], *, budget_ms: int = 0) -> bool:
        """The first attempt of `write`, of distinct keys, if one partition has them all."""
        return self._writer.start_write(waiter, ops, budget_ms or self._budget_ms)

    def start_rows(
        self,
        waiter: Receiver,
        keys: list[bytes],
        values: list[bytes],
        *,
        absent: bool,
        budget_ms: int = 0,
    ) -> bool:
        """`start_write` of many puts, whose keys rise; `absent`: none of them may be there."""
        return self._writer.start_rows(
            waiter, keys, values, budget_ms or self._budget_ms, absent=absent
        )

    # -- transactions

    async def commit_large(
        self,
        start_ts: int,
        buffer: WriteBuffer,
        terms: Terms,
        *,
        locks: RowLocks | None,
        checked: bool,
    ) -> int:
        """Commit what is spilled (txn.bulk.spilled_commit); closes the buffer."""
        commit = LargeCommit(
            self.coordinator.shared,
            self.bulk,
            start_ts,
            buffer,
            terms,
            locks=locks,
            checked=checked,
            pages=self._pages_through,
        )
        return await commit.run()

    async def load(self, terms: Terms = USUAL) -> Load:
        """A transaction that only writes, of any number of rows, sent while they come."""
        start_ts = await self.reader.now()
        load = Load(self.coordinator.shared, self.bulk, start_ts, terms, self._loop_s)
        load.pages = self._pages_through
        return load

    def _pages_through(self) -> int:
        return self.resolver.pages_through

    async def begin(
        self,
        *,
        ttl_ms: int = TXN_TTL_MS_DEFAULT,
        isolation: str = "snapshot",
        terms: Terms = USUAL,
        recorded: bool = False,
        renews: bool = False,
        budget_ms: int = 0,
    ) -> Transaction:
        """A transaction on a fresh snapshot; `renews`: that may go on to newer ones.

        `isolation`: "snapshot"; "serializable": what it read, ranges included, still holds when it
        commits; one that writes nothing never waits or fails for it; "read_committed": as `renews`,
        its owner says when. `ttl_ms`: how long its
        intents may stand without a heartbeat. `terms`: how it waits for others. `recorded`:
        `status` knows its end even if it wrote nothing or is aborted, which costs one write; for
        transactions whose id others know.
        """
        if isolation not in ISOLATIONS:
            raise InvalidArgument(
                f"isolation {isolation!r:.40} is not offered; it is one of {', '.join(ISOLATIONS)}"
            )
        if not 0 < ttl_ms <= TXN_TTL_MS_MAX:
            raise InvalidArgument(f"ttl_ms must be in 1 … {TXN_TTL_MS_MAX}, got {ttl_ms}")
        start_ts = await self.reader.now()
        budget_ms = budget_ms or self._budget_ms
        return Transaction(
            self,
            start_ts,
            ttl_ms=ttl_ms,
            terms=terms,
            recorded=recorded,
            budget_ms=budget_ms,
            serializable=isolation == "serializable",
            renews=renews or isolation == "read_committed",
        )

    async def run(
        self,
        fn: Callable[[Transaction], Awaitable[T]],
        *,
        attempts: int = RUN_ATTEMPTS_DEFAULT,
        ttl_ms: int = TXN_TTL_MS_DEFAULT,
        isolation: str = "snapshot",
        terms: Terms = USUAL,
        budget_ms: int = 0,
    ) -> T:
        """`fn(t)` and a commit; on a conflict again from the start, on a new snapshot, after a
        growing wait.

        `fn` may run several times, so it must have no effects but through `t`. Only errors that say
        that nothing was written lead to another run, never UnknownOutcome. The last error is raised
        when `attempts` or the time (`budget_ms` for all runs together, and for the commit of each)
        is used up.
        """
        deadline = Deadline(self.timers, budget_ms or self._budget_ms)
        attempt = 0
        while True:
            try:
                t = await self.begin(
                    ttl_ms=ttl_ms,
                    isolation=isolation,
                    terms=terms,
                    budget_ms=deadline.budget_ms(),
                )
                async with t:
                    return await fn(t)
            except KvorumError as error:
                attempt += 1
                if error.disposition not in _RERUN or attempt >= attempts or deadline.passed:
                    raise
                if error.code == CUT_OFF:
                    raise
            await self._backoff.wait(attempt - 1, deadline)

    async def ingest(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        *,
        at: int,
        unique: bool,
        budget_ms: int = 0,
    ) -> int:
        """Write rows made from a snapshot of this client, as of its time `at`, where nothing newer
        is; how many (`txn.bulk.ingesting`).
        """
        return await ingest(
            self._kv,
            self.resolver,
            self._backoff,
            keys,
            values,
            at=at,
            unique=unique,
            deadline=Deadline(self.timers, budget_ms or self._budget_ms),
        )

    async def status(self, txn: int) -> TxnStatus:
        """What became of a transaction, whoever began it and whatever restarted since.

        Its record decides. Without one it is "unknown": never heard of (nothing was written for it
        yet, or ever), or not remembered any more, because its record was in a table that has been
        dropped. Raises InvalidArgument for an id that the oracle has not given out yet, NotFound
        (TXN_NOT_FOUND) when it is so old that every commit would be forgotten.
        """
        now = await self._past(txn)
        anchor = await self._kv.find_txn(txn, budget_ms=self._budget_ms)
        if anchor is not None:
            found, _ = await self.resolver.check(
                txn, anchor, ttl_ms=TXN_TTL_MS_MAX, budget_ms=self._budget_ms
            )
            return _status(found.status, found.commit_ts)
        age_ms = physical_ms(now) - physical_ms(txn)
        if age_ms <= TXN_STATUS_RETENTION_MS:
            return TxnStatus("unknown")
        raise NotFound(
            f"nothing is known of transaction {txn}: it would have begun {age_ms} ms ago, outcomes "
            f"are kept for {TXN_STATUS_RETENTION_MS} ms, and whether it was committed, or ever "
            "was, is not known any more",
            code="TXN_NOT_FOUND",
            details={"txn": txn, "age_ms": age_ms, "limit": TXN_STATUS_RETENTION_MS},
        )

    async def abort(self, txn: int, *, budget_ms: int = 0) -> None:
        """Roll a transaction back, whoever began it; fine if it was already.

        Raises Refused (TXN_COMMITTED), NotFound (TXN_NOT_FOUND): it has no record, so it holds
        nothing; InvalidArgument, DeadlineExceeded.
        """
        await self._past(txn)
        deadline = Deadline(self.timers, budget_ms or self._budget_ms)
        anchor = await self._kv.find_txn(txn, budget_ms=deadline.budget_ms())
        if anchor is None:
            raise is_unknown(txn)
        await abort(self._kv, self.resolver, self._backoff, txn, anchor, deadline)

    async def _past(self, txn: int) -> int:
        """A fresh timestamp. Raises InvalidArgument for an id that was not given out by now."""
        now = await self.reader.now()
        if not 0 < txn <= (MAX if self.hybrid else now):
            raise InvalidArgument(
                f"{txn} is no transaction: ids are timestamps that the oracle gave out, "
                f"up to {now} by now"
            )
        return now


def _status(status: int, commit_ts: int) -> TxnStatus:
    match STATUS_NAMES[status]:
        case "committed":
            return TxnStatus("committed", commit_ts)
        case "aborted":
            return TxnStatus("aborted")
        case _:
            return TxnStatus("pending")

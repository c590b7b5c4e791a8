"""Exactly-once writes. The protocol (Flink's two-phase sink, on Spark's hooks):

    begin      the first staged chunk opens the attempt (a random id made with the writer) under a
               lease
    invoke     write(): rows become sorted chunks, staged under (attempt, task); refused once the
               attempt is aborted
    preCommit  end of write(): the task is sealed with its counts and checksum; the message reports
               them to the driver
    commit     the driver's manifest names the winning tasks; the procedure `kvorum.sink_commit`
               writes exactly those rows and the marker (application, table) → version in one
               transaction
    abort      the attempt refuses everything from then on; an attempt nobody can name ends with its
               lease

A task whose rows are one small chunk stages nothing and asks nobody: the chunk is in its message,
and goes to the node with the commit, where it is checked as what was staged is
(docs/decisions/1120). So a small micro-batch costs one request, from the process that commits.

A replayed batch finds its version at or below the marker and changes nothing; of a stream it brings
a digest of its rows, so that another batch under that number is noticed. Task retries and
speculative copies stage under their own task ids and are dropped unless the manifest names them.

Weaker deliveries leave things out: at-least-once names no application, so a replay writes its rows
once more; at-most-once moves the marker first and waits for nothing, so a batch that is refused is
lost. A write that belongs to a job (kvorum.spark.job) is handed to the job instead of committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kv.base import limits
from kv.base.adapters import SystemRng
from kv.base.errors import InvalidArgument, Refused
from kv.base.keys import table_prefix
from kv.base.limits import (
    SINK_INLINE_BYTES,
    SINK_INLINE_DRIVER,
    SINK_INLINE_KEPT,
    SINK_INLINE_TOTAL,
)
from procedures.sink.format.sink_parts import JOB_SIGNAL, LAST, ORDER, REFUSE, two_rows
from procedures.sink.format.sink_records import DUPLICATE, add_crc, pack_ordered, pack_pieces
from procedures.verbs import SINK_ABORT, SINK_COMMIT, SINK_SEAL, SINK_STAGE
from pyspark_kvorum import attempt_lease
from pyspark_kvorum.attempt_lease import Alive
from pyspark_kvorum.options import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    INSERT,
    Options,
)
from pyspark_kvorum.session import Session
from sqlproxy.rows.schema import Table
from txn.shared.together import together

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kvorum.packing import Rows
    from pyspark_kvorum.placing import Keep, Placing

CHUNK_ROWS: Final = 8_192
CHUNK_BYTES_TARGET: Final = limits.SINK_CHUNK_BYTES_MAX // 4
_JOB_TASKS: Final = 1_000  # tasks of a job's write per message
_SEALS_IN_FLIGHT: Final = 8
# Of one task: while the node has one in its log and one in hand, the next is already there.
_CHUNKS_IN_FLIGHT: Final = 3
_INLINE_OVERHEAD: Final = 64  # of a chunk in the commit's message, with the name of its task
_QUERY_ID = "sql.streaming.queryId"


def _fresh_id() -> str:
    return SystemRng().token(16).hex()


@dataclass
class Staged(WriterCommitMessage):
    """What a finished task staged; equal to what the server sealed, or the commit is refused."""

    attempt: str
    part: int
    task: str
    chunks: int
    rows: int
    crc: int
    query: str
    table: int
    inline: bytes | None = None  # its only chunk, which was not staged
    shape: list[list[object]] | None = None  # of the table, by the first task (sink_parts)
    given: int = 0  # rows that it got, and the sum of their checksums, where they are compared
    digest: int = 0
    columns: tuple[int, ...] = ()  # that it gives, if not all; by the first task

    def manifest_row(self) -> list[object]:
        return [self.part, self.task, self.chunks, self.rows, self.crc]


@dataclass
class _Writer:
    options: Options
    table: Table | None  # None: made by a process that only commits or aborts
    attempt: str
    overwrite: bool = False
    given: tuple[int, ...] = ()

    @classmethod
    def create(
        cls, options: Options, session: Session, overwrite: bool, given: tuple[int, ...] = ()
    ) -> Self:
        """On the driver; the object is pickled to tasks and to the committing process. `given`: the
        columns of an upsert that leaves the others of a row as they are (`kept_columns`).
        """
        attempt = _fresh_id()
        if options.job:
            attempt = f"{job_attempts(options.job, options.ordinal)}{attempt[:16]}"
        return cls(options, session.table, attempt, overwrite, () if overwrite else given)

    @classmethod
    def to_commit(cls, options: Options, overwrite: bool) -> Self:
        """In the process that commits or aborts what tasks report."""
        return cls(options, None, _fresh_id(), overwrite)

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Of a process that only aborts, what messages name; what is left ends with its lease."""
        attempts = {(m.attempt, m.table) for m in messages if isinstance(m, Staged)}
        if self.table is not None:
            attempts.add((self.attempt, self.table.id))
        if attempts:
            with Session(self.options, self.table, late=True) as session:
                for attempt, table in sorted(attempts):
                    session.run(session.ask(SINK_ABORT, attempt, table))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage one task's rows and seal it. Raises when the server refuses it."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty(_QUERY_ID) or ""
        assert self.table is not None, "it was made by the process that planned the write"
        with (
            Alive(self.options, self.table, self.attempt, beat_s=attempt_lease.BEAT_S) as living,
            Session(self.options, self.table, late=True) as session,
        ):
            # A second try would meet what the first one laid.
            places = self._places and context.attemptNumber() == 0 and not self.table.ruled
            stage = _Stage(
                session,
                self.table,
                self.attempt,
                context.partitionId(),
                query,
                keep=living.keep if places else None,
                compares=bool(query) and self._once,
                columns=self.given,
            )
            return session.run(stage.all(iterator))

    def _commit(
        self, messages: Sequence[WriterCommitMessage | None], app: str, version: int
    ) -> None:
        tasks = [m for m in messages if isinstance(m, Staged)]
        if len(tasks) != len(messages):
            raise InvalidArgument(
                f"{len(messages) - len(tasks)} of {len(messages)} tasks sent no message"
            )
        attempts = {m.attempt for m in tasks if m.rows}
        if len(attempts) > 1:
            raise InvalidArgument(
                f"tasks of {len(attempts)} attempts in one commit: {sorted(attempts)}"
            )
        attempt = attempts.pop() if attempts else self.attempt
        with Session(self.options, self.table, late=True) as session:
            if self.table is None and (not tasks or self._bounded):
                self.table = session.run(session.described())
            part = self._part(
                attempt,
                tasks[0].table if self.table is None else self.table.id,
                next((m.columns for m in tasks if m.columns), ()),
            )
            part["manifest"] = [m.manifest_row() for m in tasks if m.rows]
            if shape := next((m.shape for m in tasks if m.shape), None):
                part["shape"] = shape
            inline = [m for m in tasks if m.inline is not None]
            fetched = app and self.options.delivery != AT_MOST_ONCE  # then the record goes at once
            room = SINK_INLINE_TOTAL if fetched else SINK_INLINE_KEPT
            if sum(len(m.inline or b"") + _INLINE_OVERHEAD for m in inline) > room:
                session.run(_stage_now(session, inline))
            elif inline:
                part["inline"] = {m.task: m.inline for m in inline}
            if self.options.job:
                session.run(_hand_to_job(session, part))
                return
            query = next((m.query for m in tasks if m.query), "")
            request = part | {"app": app, "version": version, "query": query}
            if app and query and self._once:
                request["digest"] = [sum(m.given for m in tasks), sum(m.digest for m in tasks)]
            session.run(_commit_until_definite(session, request))

    def _part(self, attempt: str, table: int, given: Sequence[int]) -> dict[str, object]:
        """What the rows mean (procedures.sink.format.sink_parts)."""
        options = self.options
        twice = ORDER if options.dedupe_by else LAST if options.duplicates == "last" else REFUSE
        part: dict[str, object] = {"attempt": attempt, "table": table, "twice": twice}
        part["path"] = f"{options.namespace}.{options.table}"
        if options.op == INSERT:
            part["fresh"] = True
        if given:
            part["given"] = list(given)
        if self.overwrite:
            part["replace"] = [*self._replaced(), options.replace_where]
        if options.delivery == AT_MOST_ONCE:
            part["early"] = True
        if options.reset:
            part["reset"] = True
        if self._places:
            part["placed"] = True
        return part

    @property
    def _places(self) -> bool:
        """Whether tasks may lay rows in place (pyspark_kvorum.placing)."""
        return False

    @property
    def _once(self) -> bool:
        """Whether a replayed batch of a query is compared with what was committed."""
        return self.options.delivery == EXACTLY_ONCE and not self.options.job

    @property
    def _bounded(self) -> bool:
        return self.options.key_from is not None or self.options.key_to is not None

    def _replaced(self) -> tuple[bytes, bytes]:
        """The range of user keys; b"" = no bound."""
        low, high = self.options.key_from, self.options.key_to
        if not self._bounded:
            return b"", b""
        assert self.table is not None
        from sqlproxy.rows.arrow_rows import key_prefix

        return (
            b"" if low is None else key_prefix(self.table, low),
            b"" if high is None else key_prefix(self.table, high),
        )


def job_attempts(job: int, ordinal: int) -> str:
    """What the names of the attempts at one write of a job begin with."""
    return f"job-{job}-{ordinal:03d}-"


async def _hand_to_job(session: Session, part: dict[str, Any]) -> None:
    """Report a staged write to the job, in messages of a legal size; each may be repeated."""
    options = session.options
    name = f"{options.namespace}.{options.table}"
    manifest = part.pop("manifest")
    for at in range(0, max(1, len(manifest)), _JOB_TASKS):
        piece = part | {"manifest": manifest[at : at + _JOB_TASKS]}
        payload = {"do": "add", "ordinal": options.ordinal, "table": name, "part": piece}
        payload["tasks"] = len(manifest)  # of all pieces
        signal = {"id": options.job, "name": JOB_SIGNAL, "payload": payload}
        signal["key"] = f"{part['attempt']}/{at}"
        await session.control("signal", signal)


async def _stage_now(session: Session, tasks: list[Staged]) -> None:
    """What the tasks did not stage, because their messages are too many bytes for one commit."""
    waiting = deque(tasks)
    await session.opened()

    async def some() -> None:
        while waiting:
            m = waiting.popleft()
            await session.ask(
                SINK_SEAL, m.attempt, m.table, m.part, m.task, m.chunks, m.rows, m.crc, m.inline
            )

    async with together() as group:
        for _ in range(_SEALS_IN_FLIGHT):
            group.create_task(some())


async def _commit_until_definite(session: Session, request: dict[str, object]) -> None:
    """Start or attach to the commit's procedure until it has ended; the request may be repeated."""
    while (await session.ask(SINK_COMMIT, request))[0]:
        pass


class _Stage:
    """One task's way from record batches to a sealed task."""

    def __init__(
        self,
        session: Session,
        table: Table,
        attempt: str,
        part: int,
        query: str,
        *,
        keep: Keep | None = None,
        compares: bool = False,
        columns: tuple[int, ...] = (),
    ) -> None:
        """`keep`: it may lay rows in place, under transactions that this keeps alive. `compares`:
        it says what its rows come to. `columns`: that an upsert gives.
        """
        # Only tasks need Arrow and numpy: the process that commits would wait for their import.
        from pyspark_kvorum import packing
        from pyspark_kvorum.encoding import Encoder
        from pyspark_kvorum.placing import Placing

        self.packing = packing
        self.options = session.options
        self.encode = Encoder(table, self.options)
        self.session, self.table, self.attempt, self.part = session, table, attempt, part
        self.task, self.query = _fresh_id(), query
        self.chunks = self.rows = self.crc = 0
        self.compares, self.given, self.digest = compares, 0, 0
        self.columns = columns
        self.gathered: list[Rows] = []
        self.orders: list[bytes] = []
        self.size = 0
        self.last: bytes | None = None  # the highest key of a bulk load so far
        self.placing: Placing | None = None
        if keep is not None:
            self.placing = Placing(session, table, attempt, part, self.task, keep)
        self.begun = False  # it has laid rows in place
        self.flying: deque[asyncio.Task[object]] = deque()  # chunks under way, oldest first

    async def all(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        try:
            for batch in iterator:
                step = _rows_per_chunk(batch)
                for at in range(0, batch.num_rows, step):
                    await self._add(batch.slice(at, step))
            if self.begun:
                await self._place()
            last = self._take() if self.gathered else None
            await self._landed(but=0)
            if self.begun:
                last = await self._laid(last)
            inline = None
            if self.chunks == 1 and last is not None and not self.begun and self._may_stay(last):
                inline = last
            elif self.rows:
                await self.session.ask(
                    SINK_SEAL,
                    self.attempt,
                    self.table.id,
                    self.part,
                    self.task,
                    self.chunks,
                    self.rows,
                    self.crc,
                    last,
                    *self._placed(),
                )
        finally:
            for sending in self.flying:
                sending.cancel()
            await asyncio.gather(*self.flying, return_exceptions=True)
        return Staged(
            self.attempt,
            self.part,
            self.task,
            self.chunks,
            self.rows,
            self.crc,
            self.query,
            self.table.id,
            inline,
            _shape_of(self.table) if self.part == 0 else None,
            self.given,
            self.digest,
            self.columns if self.part == 0 else (),
        )

    def _may_stay(self, chunk: bytes) -> bool:
        """Whether the message may carry it. A job's program may be gone before its commit. All
        messages are in the driver's memory at once, and a task knows of how many only that there
        are those below its own number: all together are SINK_INLINE_DRIVER · (1 + ln tasks).
        """
        room = min(SINK_INLINE_BYTES, SINK_INLINE_DRIVER // (self.part + 1))
        return len(chunk) <= room and not self.options.job

    async def _add(self, batch: pa.RecordBatch) -> None:
        rows, orders = self.encode(batch)
        if self.compares:
            self.given += rows.count
            self.digest += self.packing.digest(rows)
        self.gathered.append(rows)
        if orders is not None:
            self.orders += orders
        self.size += rows.size
        if self.size >= CHUNK_BYTES_TARGET:
            await self._place()
            if self.size >= CHUNK_BYTES_TARGET:
                await self._send(self._stage(self._take()))

    async def _send(self, sending: Coroutine[object, None, object]) -> None:
        self.flying.append(asyncio.get_running_loop().create_task(sending))
        await asyncio.sleep(0)
        await self._landed(but=_CHUNKS_IN_FLIGHT)

    def _stage(self, chunk: bytes) -> Coroutine[object, None, object]:
        """The chunk that was counted last."""
        return self.session.ask(
            SINK_STAGE, self.attempt, self.table.id, self.part, self.task, self.chunks - 1, chunk
        )

    async def _place(self) -> None:
        """Lay the gathered rows in place, if that is done here; those that may not be stay
        gathered.
        """
        if self.placing is None or not self.gathered:
            return
        if (not self.begun or self.placing.old) and not await self.placing.start():
            if not self.begun:
                self.placing = None
            return
        self.begun = True
        rows = self.packing.merged(self.gathered)
        if self.options.bulk != "runs":
            rows = self._sorted(rows)
            self._in_order(rows.first, rows.last)
        runs, self.gathered = self.placing.take(rows)
        self.size = sum(left.size for left in self.gathered)
        self.rows += sum(run.count for run in runs)
        await self._send(self._lay(self.placing, runs))
        if (chunk := self.placing.laid_chunk()) is not None:
            self._count(chunk)
            await self._send(self._stage(chunk))

    async def _lay(self, placing: Placing, runs: Sequence[Rows]) -> None:
        try:
            await placing.lay(runs)
        except Refused as refused:
            if refused.code != DUPLICATE:
                raise
            key = refused.details["key"][len(table_prefix(self.table.id)) :]
            raise self._duplicate(key) from refused

    async def _laid(self, last: bytes | None) -> bytes | None:
        """The last chunk of a task that laid rows in place: where they are."""
        assert self.placing is not None
        chunk = self.placing.laid_chunk(all_of_it=True)
        if chunk is None:
            return last
        if last is not None:
            await self._stage(last)
        self._count(chunk)
        return chunk

    def _placed(self) -> tuple[object, ...]:
        if not self.begun or self.placing is None:
            return ()
        return self.placing.sealed(), self.placing.rows

    def _count(self, chunk: bytes) -> None:
        self.crc = add_crc(self.crc, self.chunks, chunk)
        self.chunks += 1

    def _take(self) -> bytes:
        """The gathered rows as a chunk sorted by key, each key once."""
        rows = self.packing.merged(self.gathered)
        if self.orders:
            keys, values, orders = _highest(*rows.lists(), self.orders)
            chunk = pack_ordered(keys, values, orders)
            count, first, last = len(keys), keys[0], keys[-1]
        else:
            rows = self._sorted(rows)
            chunk = pack_pieces(self.packing.pieces(rows))
            count, first, last = rows.count, rows.first, rows.last
        if self.options.bulk == "true":
            self._in_order(first, last)
        self._count(chunk)
        self.rows += count
        self.gathered, self.orders, self.size = [], [], 0
        return chunk

    def _sorted(self, rows: Rows) -> Rows:
        """By key, each key once."""
        rows = self.packing.in_order(rows)
        if (twin := self.packing.twin(rows)) is None:
            return rows
        if self.options.duplicates != "last":
            raise self._duplicate(twin)
        return self.packing.last_of_twins(rows)

    def _in_order(self, first: bytes, last: bytes) -> None:
        if self.last is not None and first <= self.last:
            raise InvalidArgument(
                "option bulk: the rows of a task are not in key order, or two have one key; sort"
                " them by kvorum.spark.bulk_load, or leave the option out",
                code="SINK_ORDER",
            )
        self.last = last

    def _duplicate(self, key: bytes) -> InvalidArgument:
        shown = repr(key)[1:]
        if not self.table.plain:
            from sqlproxy.rows.rows import decode_key

            values = ", ".join(map(str, decode_key(self.table, key)))
            shown = f"({', '.join(self.table.primary_key)})=({values})"
        shown += f" of table {self.table.path}"
        return InvalidArgument(two_rows(shown), code=DUPLICATE)

    async def _landed(self, *, but: int) -> None:
        """Wait until so many chunks are under way. Raises what one was refused with."""
        while len(self.flying) > but:
            await self.flying.popleft()


def _shape_of(table: Table) -> list[list[object]]:
    """What the encoded rows of a table depend on (procedures.sink.format.sink_parts)."""
    return [[c.id, c.name, c.type, c.nullable] for c in table.columns]


def _highest(
    keys: list[bytes], values: list[bytes | None], orders: list[bytes]
) -> tuple[list[bytes], list[bytes | None], list[bytes]]:
    """Sorted by key; of rows with one key the one of the highest order, the last of equal ones."""
    best: dict[bytes, tuple[bytes, bytes | None]] = {}
    for key, value, order in zip(keys, values, orders, strict=True):
        found = best.get(key)
        if found is None or order >= found[0]:
            best[key] = (order, value)
    rising = sorted(best)
    return rising, [best[k][1] for k in rising], [best[k][0] for k in rising]


def _rows_per_chunk(batch: pa.RecordBatch) -> int:
    """So many rows that a chunk stays near its target, whatever the width of the rows."""
    width: int = max(1, batch.nbytes // max(1, batch.num_rows))
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES_TARGET // width))


class KvorumBatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write.format("kvorum").mode("append").save()`: all rows visible at once, or none."""

    @property
    def _places(self) -> bool:
        # A stream's batch is run again under another attempt, which would wait for the first one's.
        options = self.options  # rows are written blindly, each key once
        return (
            options.bulk in ("true", "runs")
            and options.op != INSERT
            and options.delivery != AT_MOST_ONCE
            and options.duplicates != "last"
            and not self.given
            and not (options.job or options.dedupe_by or self.overwrite)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages, self.options.txn_app, max(self.options.txn_version, 0))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class KvorumStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("kvorum")`: each micro-batch is one transaction, once."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        query = next((m.query for m in messages if isinstance(m, Staged) and m.query), "")
        app = self.options.app or query
        if self.options.delivery == AT_LEAST_ONCE:
            app = ""
        elif not app:
            raise InvalidArgument(
                "Spark gave no query id, so a replayed batch could not be recognised; set option"
                " appId"
            )
        self._commit(messages, app, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)

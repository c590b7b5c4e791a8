"""The server side of the Spark sink's staging: RPC methods SINK_*, each one transaction in the
system tables.

An attempt is opened by its first chunk and lives under a lease that every call renews when a third
of it is gone. Staging checks the attempt's row in the same transaction that writes the chunk, so
that nothing arrives after an abort. Attempts whose lease ran out are removed by `reap`, which the
node calls from a timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from kv.base import limits, system
from kv.base.errors import (
    ConditionFailed,
    InvalidArgument,
    NotFound,
    Refused,
    RestartTxn,
    TooLarge,
)
from kv.base.keys import successor, table_range
from kv.base.node_methods import Caller, Handler
from kv.base.ops import Op, check, delete, put
from kv.base.ports import Clock
from kv.base.timestamps import physical_ms
from kv.base.wire_row import WireRow
from procedures import verbs
from procedures.engine import plain_data
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import State
from procedures.engine.records import Record
from procedures.engine.submission import Submission
from procedures.sink import placed_rows
from procedures.sink.format.sink_parts import checked_request, marker_of
from procedures.sink.format.sink_records import (
    About,
    Attempt,
    AttemptState,
    Sealed,
    add_crc,
    attempt_key,
    attempt_of,
    check_chunk,
    checked_int,
    checked_text,
    chunk_key,
    chunks_range,
    place_key,
    task_key,
    task_of,
)
from procedures.sink.sink_clean import drop_range, drop_tasks
from procedures.sink.sink_commit import COMMITTED_STILL, SINK_COMMIT, already_committed
from procedures.sink.sink_ports import Transactions, attempt_by, marker_by, pages

log = logging.getLogger(__name__)

_HOLDS: Final = (AttemptState.OPEN, AttemptState.COMMITTING)
_RACES_MAX: Final = 8
_DROP_S: Final = 5.0  # that an abort spends on removing what was staged
_ANSWER_MS: Final = 500  # what waiting leaves of its caller's patience


class Procedures(Protocol):
    """What the service needs of the procedure executor."""

    async def submit(self, sub: Submission) -> int: ...
    async def wait(self, id: int, wait_ms: int) -> Record: ...
    async def acknowledge(self, id: int) -> None: ...


T = TypeVar("T")


class SinkService:
    """Handlers of the SINK_* methods; arguments as in kv.base.methods."""

    def __init__(self, txn: Transactions, procedures: Procedures, clock: Clock) -> None:
        self._txn, self._procedures, self._clock = txn, procedures, clock
        self._fetched: deque[int] = deque()  # commits that were answered, not forgotten yet

    def handlers(self) -> Mapping[int, Handler]:
        """By method number, for the node's dispatcher."""

        def serve(fn: Callable[..., Awaitable[WireRow]]) -> Handler:
            async def handler(caller: Caller, args: list[object]) -> WireRow:
                return await fn(*args, user=caller.user)

            return handler

        async def abort(_caller: Caller, args: list[object]) -> WireRow:
            return await self.abort(*args)

        async def commit(caller: Caller, args: list[object]) -> list[object]:
            left_ms = int((caller.deadline - self._clock.monotonic()) * 1000) - _ANSWER_MS
            return await self.commit(args[0], wait_ms=max(0, left_ms))

        return {
            verbs.SINK_BEGIN: serve(self.begin),
            verbs.SINK_STAGE: serve(self.stage),
            verbs.SINK_SEAL: serve(self.seal),
            verbs.SINK_PLACE: serve(self.place),
            verbs.SINK_COMMIT: commit,
            verbs.SINK_ABORT: abort,
        }

    async def begin(
        self, attempt: object, table: object, lease_ms: object, *, user: str = ""
    ) -> list[object]:
        """Open the attempt or renew its lease: [state]. `user`: who asks, here and below. Raises
        Refused when it is aborted.
        """
        name, table_id = _attempt_args(attempt, table)
        lease = checked_int(lease_ms, "lease_ms", 1_000, limits.SINK_LEASE_MS)
        await self._guarded(name, table_id, [], lease, user)
        return [AttemptState.OPEN.name]

    async def place(
        self,
        attempt: object,
        table: object,
        part: object,
        task: object,
        start_ts: object,
        *,
        user: str = "",
    ) -> WireRow:
        """Whether the task may lay rows in place under this transaction; then it is known before
        it lays anything, so that whoever ends the attempt ends it. False: it has to stage them,
        since another load does so in this table, or it has too many transactions already. Asked
        again, it keeps the transaction alive.
        """
        name, table_id = _attempt_args(attempt, table)
        number = checked_int(part, "part", 0, 2**31 - 1)
        began = checked_int(start_ts, "start_ts", 1, 2**64 - 2)
        key = task_key(name, checked_text(task, "task"))
        if number >= limits.SINK_PLACED_TASKS_MAX:
            return [False]

        async def once() -> bool:
            ops = await self._taken(name, table_id)
            if ops is None:
                return False
            raw, version = await self._txn.get(key)
            known = Sealed.unpack(raw) if raw is not None else Sealed(number, 0, 0, 0)
            if known.rows:
                raise Refused(f"task {task} is sealed", code="SINK_NOT_OPEN")
            if began not in [one for one, _ in known.txns]:
                if len(known.txns) >= limits.SINK_PLACED_TXNS_MAX:
                    return False
                txns = (*known.txns, (began, 0))
                ops.append(put(key, Sealed(number, 0, 0, 0, txns).pack(), cond=version))
            await self._guarded(name, table_id, ops, limits.SINK_LEASE_MS, user)
            return True

        # another attempt, or the same request sent before, may be faster
        placed = await _raced(name, once)
        if placed and not await self._txn.bulk.keep(
            [(key, began)], limits.SINK_PLACED_TTL_MS, user=user
        ):
            raise _given_up(name)
        return [placed]

    async def _taken(self, name: str, table: int) -> list[Op] | None:
        """What makes the table this attempt's; None: it is another one's, which lives. Two that
        laid rows at once would wait for each other.
        """
        raw, version = await self._txn.get(place_key(table))
        holder = None if raw is None else raw.decode()
        if holder == name:
            return []
        if holder is not None:
            other, _ = await attempt_by(self._txn.get, holder)
            if other is not None and other.state in _HOLDS:
                return None
        return [put(place_key(table), name.encode(), cond=version)]

    async def stage(
        self,
        attempt: object,
        table: object,
        part: object,
        task: object,
        seq: object,
        chunk: object,
        *,
        user: str = "",
    ) -> list[object]:
        """Keep one chunk. The same chunk may come again; another one under its number is refused by
        the seal.
        """
        name, table_id = _attempt_args(attempt, table)
        op = self._chunk(name, task, seq, chunk)
        checked_int(part, "part", 0, 2**31 - 1)
        await self._guarded(name, table_id, [op], limits.SINK_LEASE_MS, user)
        return [True]

    async def seal(
        self,
        attempt: object,
        table: object,
        part: object,
        task: Any,
        chunks: object,
        rows: Any,
        crc: object,
        last_chunk: Any,
        txns: object = (),
        placed: Any = 0,
        *,
        user: str = "",
    ) -> list[object]:
        """End a task, together with its last chunk if given: a small task costs one message. From
        now on its transactions live as long as its attempt.
        """
        name, table_id = _attempt_args(attempt, table)
        count = checked_int(chunks, "chunks", 1, 2**31 - 1)
        sealed = Sealed(
            checked_int(part, "part", 0, 2**31 - 1),
            count,
            checked_int(rows, "rows", 1, 2**62),
            checked_int(crc, "crc", 0, 2**32 - 1),
            _checked_txns(txns),
            checked_int(placed, "placed", 0, rows),
        )
        ops = [put(task_key(name, checked_text(task, "task")), sealed.pack())]
        if last_chunk is not None:
            ops.append(self._chunk(name, task, count - 1, last_chunk))
            if count == 1 and add_crc(0, 0, last_chunk) != crc:
                raise InvalidArgument(
                    f"task {task}: the chunk's checksum is not {crc}", code="SINK_CORRUPT"
                )
        own = [(task_key(name, task), start_ts) for start_ts, _ in sealed.txns]
        if own and not await self._txn.bulk.keep(own, limits.SINK_LEASE_MS):
            raise _given_up(name)
        await self._guarded(name, table_id, ops, limits.SINK_LEASE_MS, user)
        return [True]

    async def commit(self, request: object, *, wait_ms: int = 0) -> list[object]:
        """Start the commit's procedure, or attach to it, and wait for its end.

        [0] once the batch is committed, [procedure id] while it is not: ask again. The same request
        may be asked any number of times. Raises the error that the procedure ended with.
        """
        args = checked_request(request)
        if not args["app"] and not args["manifest"] and "replace" not in args:
            return [0]  # no rows, and no marker to move
        if await self._marked(args) and not await self._laid(args):
            return [0]
        nonce = f"{args['attempt']}/{args['version']}"
        id = await self._procedures.submit(
            Submission(SINK_COMMIT, args, "spark", nonce, first_counts=True)
        )
        if args.get("early"):
            return [0]  # at most once: nobody waits for it
        record = await self._procedures.wait(id, min(wait_ms, limits.SINK_COMMIT_WAIT_MS))
        if not record.ended:
            return [id]
        if record.state is State.SUCCESS:
            if args["app"]:  # else the record is all that a repeated request could find
                await self._forget_later(id)
            return [0]
        if await self._marked(args) or await self._committed_still(record, args):
            return [0]  # somebody aborted it just after its flip
        error = record.error
        raise Refused(
            f"the batch was not committed: {error.message if error else record.state.name}",
            code=error.code if error else "SINK_FAILED",
        )

    async def _committed_still(self, record: Record, args: Plain) -> bool:
        """Whether a commit that did not end well, and left no marker that says so, had made its
        batch visible. Raises Refused (SINK_UNKNOWN) if nobody knows.
        """
        if record.state is State.FAILED:  # in its first step, which does all or nothing
            return False
        state = plain_data.decode(record.data)
        known = state.get(COMMITTED_STILL) if isinstance(state, dict) else None
        if known is not None:
            return bool(known)
        found, _ = await attempt_by(self._txn.get, args["attempt"])
        if found is not None and found.state is AttemptState.DONE:
            return True
        advice = (
            "Run it again: under the same name and version it is done once"
            if args["app"]
            else "Look at the table: rows have keys, so writing them once more by op=upsert is"
            " harmless unless somebody changed them since. With txnAppId and txnVersion it would be"
            " done once"
        )
        raise Refused(
            f"whether the batch was committed is not known: its procedure {record.id} ended"
            f" {record.state.name} without saying so (kvorum proc show {record.id}). {advice}",
            code="SINK_UNKNOWN",
        )

    async def _forget_later(self, id: int) -> None:
        """The record of a commit is not needed any more; the next `reap` acknowledges it, so that
        no batch waits for that.
        """
        self._fetched.append(id)
        if len(self._fetched) > limits.SINK_FETCHED_MAX:
            await self._procedures.acknowledge(self._fetched.popleft())

    async def _marked(self, args: dict[str, object]) -> bool:
        if not args["app"]:
            return False
        marker, _ = await marker_by(self._txn.get, marker_of(args))
        return already_committed(marker, args)

    async def _laid(self, args: Plain) -> bool:
        """Whether a replayed batch has laid rows, which its procedure takes back at once."""
        if not args.get("placed"):
            return False
        found, _ = await attempt_by(self._txn.get, args["attempt"])
        return found is not None and found.state is AttemptState.OPEN

    async def abort(self, attempt: object, table: object = 0) -> list[object]:
        """Refuse everything of this attempt, also of one that a job has prepared. Raises Refused
        while it is being committed; not if that procedure was ended by force. InvalidArgument if it
        stages for another table than is said.
        """
        name = _attempt_name(attempt)
        said = checked_int(table, "table id", 0, 2**31 - 1)

        async def once() -> int:
            found, version = await attempt_by(self._txn.get, name)
            if found is not None:
                if said:
                    _of_table(name, found, said)
                await self._refuse_committing(name, found)
            of = found.table if found else said
            row = Attempt.leased(AttemptState.ABORTED, of, self._clock.now_ms(), before=found)
            await self._txn.write([put(attempt_key(name), row.pack(), cond=version)])
            return of

        dropped = await _raced(name, once)
        with suppress(TimeoutError):  # much was staged, or laid: `reap` goes on with it
            async with asyncio.timeout(_DROP_S):
                await self._drop(name, dropped)
        return [AttemptState.ABORTED.name]

    async def _refuse_committing(self, name: str, found: Attempt) -> None:
        committing = found.state is AttemptState.COMMITTING
        if committing and await self._abandoned(found.procedure):
            return
        if committing or found.state is AttemptState.DONE:
            raise Refused(
                f"attempt {name} is being committed by procedure {found.procedure}; it cannot"
                " be aborted",
                code="SINK_COMMITTING",
            )

    async def _record(self, procedure: int) -> Record | None:
        try:
            return await self._procedures.wait(procedure, 0)
        except NotFound:
            return None

    async def _bypassed(self, procedure: int, version: int, now: int) -> bool:
        """Whether nobody looks after what this commit claimed. After one that committed, its
        cleaning does, even when its record is gone; but not for a day.
        """
        record = await self._record(procedure)
        if record is None:
            return now - physical_ms(version) >= limits.SINK_EXPIRED_MS
        return record.state is State.BYPASSED

    async def _going_on(self, procedure: int) -> bool:
        record = await self._record(procedure)
        return record is not None and not record.ended

    async def _abandoned(self, procedure: int) -> bool:
        """Whether this procedure ended without saying what became of its attempts (BYPASSED)."""
        record = await self._record(procedure)
        return record is None or (record.ended and record.state is not State.SUCCESS)

    async def reap(self) -> int:
        """Remove attempts whose lease ran out, with what they staged, and staging without an
        attempt: the losers of small batches, and what a crash of this method left. And the records
        of commits that were answered. Returns how many attempts.

        An attempt that had finished tasks is not forgotten at once: it says for SINK_EXPIRED_MS
        that its lease ended. What a job has prepared has no lease, nor has what is committed; but a
        commit that was ended by force left its attempts to nobody.
        """
        while self._fetched:
            await self._procedures.acknowledge(self._fetched[0])
            self._fetched.popleft()
        now, gone = self._clock.now_ms(), 0
        seen: set[str] = set()
        attempts = table_range(system.SINK_ATTEMPTS)
        async for rows in pages(self._txn, *attempts, limits.GC_STEP_ROWS_MAX):
            for key, value, version in rows:
                name, table = attempt_of(key), 0
                if name in seen:
                    continue
                seen.add(name)
                if task_of(key):  # an orphan, unless it was opened since the last page
                    over = (await attempt_by(self._txn.get, name))[0] is None
                else:
                    found = Attempt.unpack(value)
                    table = found.table
                    over = await self._ended(name, found, version, now)
                if over:
                    await self._drop(name, table)
                    gone += 1
        return gone + await self._reap_chunks()

    async def _ended(self, name: str, found: Attempt, version: int, now: int) -> bool:
        """Whether what the attempt staged is to be removed. False if it was renewed meanwhile."""
        if found.state is AttemptState.PREPARED:
            if now - found.lease_until_ms >= limits.SINK_PREPARED_WARN_MS:
                log.warning(
                    "attempt %s of job %d is prepared for %d minutes: commit or abort the job"
                    " (kvorum spark sinks)",
                    *(name, found.procedure, (now - found.lease_until_ms) // 60_000),
                )
            return False
        if found.state is AttemptState.COMMITTING:
            if not await self._bypassed(found.procedure, version, now):
                return False
        elif found.lease_until_ms > now:
            if found.state is AttemptState.ABORTED:
                await self._drop(name, found.table)  # what its abort has left
            return False
        if found.state is AttemptState.DONE and await self._going_on(found.procedure):
            return False  # its commit would not find that it is done, and say that it failed
        own = attempt_key(name)
        row = delete(own, cond=version)
        if found.state is AttemptState.OPEN:
            sealed = await self._txn.scan(own + b"\x00", successor(own), limit=1)
            if sealed.items:
                log.warning("attempt %s had finished tasks; its lease ended, it is dropped", name)
                until = now + limits.SINK_EXPIRED_MS
                left = replace(found, state=AttemptState.EXPIRED, lease_until_ms=until)
                row = put(own, left.pack(), cond=version)
        try:
            await self._txn.write([row])
        except ConditionFailed:
            return False
        return True

    async def _drop(self, name: str, table: int = 0) -> None:
        """Of an attempt that cannot be committed any more, or that was: its transactions know."""
        await placed_rows.finish(self._txn, name, table)
        await drop_tasks(self._txn, name)
        await drop_range(self._txn, *chunks_range(name))

    async def _reap_chunks(self) -> int:
        """Chunks whose attempt is gone. A chunk and its attempt are written together, and the
        attempt goes last or in one transaction with them, so nobody needs these.
        """
        start, end = table_range(system.SINK_CHUNKS)
        gone = 0
        while True:
            page = await self._txn.scan(start, end, limit=1)
            if not page.items:
                return gone
            name = attempt_of(page.items[0][0])
            found, _ = await attempt_by(self._txn.get, name)
            if found is None:
                await self._drop(name)
                gone += 1
            start = chunks_range(name)[1]

    # -- inside

    def _open(self, name: str, found: Attempt, table: int) -> None:
        if found.state is not AttemptState.OPEN:
            raise Refused(
                f"attempt {name} is {found.state.name}: nothing can be staged", code="SINK_NOT_OPEN"
            )
        _of_table(name, found, table)

    async def _guarded(
        self, name: str, table: int, ops: list[Op], lease_ms: int, user: str
    ) -> None:
        """Write `ops` in one transaction with the check that the attempt is open; open it if it is
        new, and renew its lease if a third of it is gone. Raises ConditionFailed if one of their
        own conditions does not hold.
        """
        own = attempt_key(name)

        async def once() -> bool:
            found, version = await attempt_by(self._txn.get, name)
            if found is not None:
                self._open(name, found, table)
            now = self._clock.now_ms()
            if found is not None and found.lease_until_ms - now >= lease_ms * 2 // 3:
                if ops:  # many tasks of one attempt may say that they live
                    await self._txn.write([check(own, version), *ops])
                return False
            about = found.about if found is not None else About(now, user)
            row = Attempt(AttemptState.OPEN, table, now + lease_ms, about=about)
            await self._txn.write([put(own, row.pack(), cond=version), *ops])
            return found is not None

        # another task may have opened the attempt, or renewed its lease
        if await _raced(name, once, own):
            await self._keep(name)

    async def _keep(self, name: str) -> None:
        """The lease was renewed: the transactions of its finished tasks live as long. Those of
        tasks that work are kept alive by these.
        """
        finished = await placed_rows.records_of(self._txn, name, lambda _, task: task.rows > 0)
        await self._txn.bulk.keep(finished, limits.SINK_LEASE_MS)

    def _chunk(self, name: str, task: Any, seq: object, chunk: object) -> Op:
        number = checked_int(seq, "seq", 0, 2**31 - 1)
        what = f"chunk {number} of task {checked_text(task, 'task')}"
        if not isinstance(chunk, bytes):
            raise InvalidArgument(f"{what} must be bytes")
        if len(chunk) > limits.SINK_CHUNK_BYTES_MAX:
            raise TooLarge(
                f"{what} has {len(chunk)} bytes, the limit is {limits.SINK_CHUNK_BYTES_MAX}; stage"
                " smaller chunks",
                details={
                    "what": "chunk",
                    "limit": limits.SINK_CHUNK_BYTES_MAX,
                    "actual": len(chunk),
                },
            )
        check_chunk(chunk, what)
        return put(chunk_key(name, task, number), chunk)


async def _raced(name: str, once: Callable[[], Awaitable[T]], key: bytes | None = None) -> T:
    """`once`, again while others change what it looked at: this key, if one is given."""
    for _ in range(_RACES_MAX):
        try:
            return await once()
        except ConditionFailed as failed:
            if key is not None and failed.details.get("key") != key:
                raise
    raise RestartTxn(f"attempt {name} changes too fast; ask again", code="SINK_RACE")


def _checked_txns(txns: object) -> tuple[tuple[int, int], ...]:
    """[[start_ts, bound], …]. Raises InvalidArgument."""
    if not isinstance(txns, list | tuple) or len(txns) > limits.SINK_PLACED_TXNS_MAX:
        raise InvalidArgument(f"txns: at most {limits.SINK_PLACED_TXNS_MAX} [start_ts, bound]")
    for one in txns:
        if not isinstance(one, list | tuple) or [type(field) for field in one] != [int, int]:
            raise InvalidArgument(f"txns: [start_ts, bound] expected, got {one!r:.80}")
    return tuple((start_ts, bound) for start_ts, bound in txns)


def _given_up(name: str) -> Refused:
    return Refused(
        f"attempt {name}: the rows that this task laid were given up; run it again",
        code="SINK_NOT_OPEN",
    )


def _of_table(name: str, found: Attempt, table: int) -> None:
    if found.table not in (0, table):  # 0: it was aborted by who did not say
        raise InvalidArgument(f"attempt {name} does not stage for table {table}")


def _attempt_name(attempt: object) -> str:
    return checked_text(attempt, "attempt", limits.SINK_ATTEMPT_CHARS_MAX)


def _attempt_args(attempt: object, table: object) -> tuple[str, int]:
    return _attempt_name(attempt), checked_int(table, "table id", 100, 2**31 - 1)

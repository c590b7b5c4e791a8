"""What Spark's writers left in the cluster, and what operators do about it.

    attempts   staged work (kvorum/api/sink_attempts.py)
    ledgers    the last version of each application at each table ("" = a job's), by whom, when
    jobs       `kvorum.spark.job`s that go on

As far as the caller may see: what was staged for tables that he has any right on. Decided by the
procedures that own the work, so none of these calls can tear a commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from kv.base import system
from kv.base.adapters import LoopTimers
from kv.base.credentials import Credential
from kv.base.errors import (
    InvalidArgument,
    KvorumError,
    NotFound,
    Refused,
)
from kv.base.keys import table_range, unescape
from kv.base.limits import SCAN_ROWS_MAX, SINK_JOB_SILENT_MS, SINK_PREPARED_WARN_MS
from kv.base.timestamps import physical_ms
from kvorum.api.addresses import parse_url, tls_for
from kvorum.api.sink_attempts import SinkAttempt
from kvorum.native.native import NativeBackend
from kvorum.native.remote import connect_backend
from kvorum.native.staged_attempts import Paths
from kvorum.sdk.portal import Portal
from procedures.engine.client import ENDED, ProcedureClient
from procedures.sink.format.sink_parts import JOB_SIGNAL, SPARK_JOB
from procedures.sink.format.sink_records import (
    Attempt,
    AttemptState,
    Marker,
    attempt_of,
    marker_key,
    task_of,
)
from procedures.verbs import SINK_ABORT
from sqlproxy.catalog import catalog
from txn.transaction import Transaction

T = TypeVar("T")

_TIMEOUT_MS: Final = 30_000
_LOCK: Final = "spark-job/"
_BEATS: Final = 5  # in the time after which a silent job is let go of


@dataclass(frozen=True, slots=True)
class SinkLedger:
    """Up to which version an application wrote to a table. `table` "" is the ledger of its jobs."""

    app: str
    table: str
    version: int
    query: str
    retired: tuple[str, ...]
    committed: int
    committed_ms: int

    def to_plain(self) -> dict[str, object]:
        return asdict(self) | {"committed": str(self.committed), "retired": list(self.retired)}


@dataclass(frozen=True, slots=True)
class SparkJobInfo:
    """A job that has not ended. `progress` in words."""

    id: int
    app: str
    version: int
    state: str
    step: str
    age_ms: int
    progress: str

    @property
    def stale(self) -> bool:
        """Whether it should have been decided long ago."""
        return self.age_ms >= SINK_PREPARED_WARN_MS

    def to_plain(self) -> dict[str, object]:
        return asdict(self) | {"id": str(self.id), "stale": self.stale}


class Sinks:
    """One connection. `with kvorum.spark.sinks("host:7600") as sinks: …`"""

    def __init__(
        self,
        url: str,
        *,
        timeout_ms: int = _TIMEOUT_MS,
        tls_dir: str | None = None,
        ca: str | None = None,
        token: str = "",
    ) -> None:
        """Raises InvalidArgument, Unavailable."""
        scheme, addresses = parse_url(url)
        if scheme != "kvorum":
            raise InvalidArgument(f"{url!r}: what sinks left is read natively: give HOST:BASE")
        credential = Credential(token) if token else None
        self._portal = Portal("kvorum-sinks")
        try:
            self._backend: NativeBackend = self._portal.call(
                connect_backend(
                    addresses,
                    timeout_ms,
                    tls_for(url, tls_dir, ca),
                    credential,
                )
            )
            self.procedures: ProcedureClient = self._portal.call(self._procedures())
        except BaseException:
            self._portal.close()
            raise
        self._url = url
        self._beating: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<kvorum sinks of {self._url}>"

    async def _procedures(self) -> ProcedureClient:
        timers = LoopTimers(asyncio.get_running_loop())
        return ProcedureClient(self._backend.kv, timers, owner="spark")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._portal.call(self._backend.close())
        finally:
            self._portal.close()

    def ask(self, work: Coroutine[object, None, T]) -> T:
        """Run it on the connection's loop."""
        return self._portal.call(work)

    # -- what there is

    def attempts(self) -> list[SinkAttempt]:
        """By name."""
        return list(self._portal.call(self._attempts()))

    async def _attempts(self) -> list[SinkAttempt]:
        found, on = await self._backend.sink_attempts()
        while on:
            more, on = await self._backend.sink_attempts(on)
            found += more
        return found

    def ledgers(self) -> list[SinkLedger]:
        """By application and table."""
        return list(self._portal.call(self._ledgers()))

    async def _ledgers(self) -> list[SinkLedger]:
        found, paths = [], Paths(self._backend.catalog, self._backend.txn)
        for key, value, version in await self._scan(system.SINK_MARKERS):
            app, at = unescape(key, 4)
            if not app:
                continue  # the anchor of a table's large batches
            table = int.from_bytes(key[at:], "big")
            marker = Marker.unpack(value)
            found.append(
                SinkLedger(
                    app.decode(),
                    await paths.of(table, version) if table else "",
                    marker.version,
                    marker.query,
                    marker.retired,
                    version,
                    physical_ms(version),
                )
            )
        return sorted(found, key=lambda one: (one.app, one.table))

    def jobs(self) -> list[SparkJobInfo]:
        """Jobs that go on, the oldest first."""
        infos = self._portal.call(self.procedures.list(name=SPARK_JOB))
        return sorted((_job(i) for i in infos if i["state"] not in ENDED), key=lambda j: j.id)

    # -- what is done about it

    def abort(self, attempt: str) -> None:
        """Nothing more is staged by it, and it is not committed. Raises NotFound, Refused while it
        is being committed.
        """
        rows = self._portal.call(self._scan(system.SINK_ATTEMPTS))
        tables = {
            attempt_of(key): 0 if task_of(key) else Attempt.unpack(value).table
            for key, value, _ in reversed(rows)  # an attempt's own row comes before its tasks'
        }
        if attempt not in tables:
            raise NotFound(
                f"there is no attempt {attempt!r}: see kvorum spark sinks",
                code="SINK_ATTEMPT_NOT_FOUND",
            )
        self._portal.call(self._backend.kv.call_node(SINK_ABORT, attempt, tables[attempt]))

    def commit_job(self, job: int) -> object:
        """Commit what a job has prepared, and wait for it. Raises what refused it."""
        return self._portal.call(self._commit_job(job))

    async def _commit_job(self, job: int) -> object:
        signal = {"id": job, "name": JOB_SIGNAL, "payload": {"do": "commit"}, "key": "commit"}
        try:
            await self.procedures.control("signal", signal)
        except Refused as e:
            if e.code != "ENDED":
                raise
        return await self.procedures.result(job, ack=False)

    def abort_job(self, job: int, reason: str = "aborted by an operator") -> None:
        """Let go of all that a job has prepared. Raises Refused, NotFound."""
        self._portal.call(self.procedures.abort(job, reason))

    def keep_alive(self, job: int) -> None:
        """Until this connection is closed, report to a job that its program lives."""

        async def begin() -> None:
            self._beating = asyncio.get_running_loop().create_task(self._beat(job))

        self._portal.call(begin())

    async def _beat(self, job: int) -> None:
        """Ends when the job has."""
        while True:
            await asyncio.sleep(SINK_JOB_SILENT_MS / 1000 / _BEATS)
            signal = {"id": job, "name": JOB_SIGNAL, "payload": {"do": "alive"}}
            try:
                await self.procedures.control("signal", signal)
            except (Refused, NotFound):
                return
            except KvorumError:
                continue  # the next one may come through

    def commit_up_to(self, app: str, version: int) -> list[int]:
        """Commit the application's prepared jobs up to this version, in the order of their
        versions; later ones stay prepared. The jobs that were committed. All are tried; then the
        first error is raised. Raises NotFound if there is none.
        """
        waiting = sorted(
            (job for job in self.jobs() if job.app == app and job.version <= version),
            key=lambda job: (job.version, job.id),
        )
        if not waiting:
            raise NotFound(
                f"application {app!r} has no prepared job up to version {version}; see kvorum spark"
                " sinks",
                code="SINK_NOTHING_PREPARED",
            )
        return commit_all(waiting, self.commit_job)

    def forget(self, app: str, table: str = "") -> bool:
        """Remove an application's ledger at a table ("" = its jobs'; the id of one that is gone):
        its next version may be any.
        False if there was none. A query that goes on under this name would write again what it
        wrote before: only for one that is over.
        """
        return bool(self._portal.call(self._forget(app, table)))

    async def _forget(self, app: str, table: str) -> bool:
        number = 0
        if table.isdigit():
            number = int(table)
        elif table:
            namespace, _, name = table.partition(".")
            number = int((await catalog.lookup(self._backend.catalog, namespace, name)).id)
        key = marker_key(app, number)

        async def drop(t: Transaction) -> bool:
            value, version = await t.get(key)
            if value is not None:
                t.delete(key, cond=version)
            return value is not None

        return await self._backend.txn.run(drop)

    def prepared(self, job: int) -> set[int]:
        """Which writes of a job (by number) are staged and kept."""
        head = f"job-{job}-"
        return {
            int(one.attempt[len(head) :].partition("-")[0])
            for one in self.attempts()
            if one.attempt.startswith(head) and one.state == AttemptState.PREPARED.name
        }

    # -- inside

    async def _scan(self, table: int) -> list[tuple[bytes, bytes, int]]:
        start, end = table_range(table)
        rows: list[tuple[bytes, bytes, int]] = []
        resume: bytes | None = start
        while resume is not None:
            page = await self._backend.catalog.scan(resume, end, limit=SCAN_ROWS_MAX)
            rows += page.items
            resume = page.resume
        return rows


def commit_all(jobs: list[SparkJobInfo], commit: Callable[[int], object]) -> list[int]:
    """Try each; the ids that were committed. Raises the first error when all were tried."""
    done: list[int] = []
    first: KvorumError | None = None
    for job in jobs:
        try:
            commit(job.id)
        except KvorumError as error:
            error.add_note(f"job {job.id} ({job.app} version {job.version}) was not committed")
            first = first or error
        else:
            done.append(job.id)
    if first is not None:
        first.details["committed"] = [str(one) for one in done]
        raise first
    return done


def sinks(url: str, *, tls_dir: str | None = None, ca: str | None = None, token: str = "") -> Sinks:
    """What sinks left at the cluster of HOST:BASE[,…]. Use it in `with`."""
    return Sinks(url, tls_dir=tls_dir, ca=ca, token=token)


def _job(info: dict[str, Any]) -> SparkJobInfo:
    """Application and version are in the name of the job's lock."""
    resource = next(
        (lock["resource"] for lock in info["locks"] if lock["resource"].startswith(_LOCK)), _LOCK
    )
    app, _, version = resource[len(_LOCK) :].rpartition("@")
    progress = info.get("progress") or {}
    return SparkJobInfo(
        id=int(info["id"]),
        app=app,
        version=int(version or 0),
        state=info["state"],
        step=info["step"],
        age_ms=info["age_ms"],
        progress=str(progress.get("text", "") if isinstance(progress, dict) else progress),
    )

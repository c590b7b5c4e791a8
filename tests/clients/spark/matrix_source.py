"""The data source as it is, with places where the kill matrix stops it: `format("kvorum")`.

What to do there is said by files (matrix_points). `rpc/*.bin` in their folder is what was sent, for
the controller to send once more, later.

Points of a task: begin, staged, sealed. Of the driver's Python: commit (before the request),
committed (after its answer, before Spark's own log), abort. Actions: die, raise, wait.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import msgpack
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from kv.base import limits
from procedures.verbs import SINK_COMMIT, SINK_PLACE, SINK_SEAL, SINK_STAGE
from pyspark_kvorum import KvorumDataSource, attempt_lease, writer
from pyspark_kvorum.placing import Placing
from pyspark_kvorum.session import Session
from tests.clients.spark.matrix_lease import LEASE_MS
from tests.clients.spark.matrix_points import LOOK_S, Waiting, folder, planned

_NAMES = {SINK_STAGE: "stage", SINK_SEAL: "seal", SINK_COMMIT: "commit"}
_plain_ask = Session.ask
_plain_lay = Placing.lay


def point(name: str) -> None:
    """Do what a plan says of this point."""
    plan = planned(name)
    if plan is None:
        return
    match plan["action"]:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise RuntimeError("the kill matrix said so")
        case "wait":
            waiting = Waiting(plan)
            while waiting.on:
                time.sleep(LOOK_S)
        case _:  # note: only the plan's owner hears of it
            return


def _sealed(attempt: str, part: int) -> None:
    """Of one part of an attempt there may be several: retries, and copies of a slow task."""
    with (folder() / "sealed.log").open("a") as log:
        log.write(f"{attempt} {part}\n")


def _note(method: int, args: tuple[Any, ...]) -> None:
    target = folder() / "rpc" / f"{time.monotonic_ns()}-{os.getpid()}.bin"
    made = target.with_suffix(".new")
    made.write_bytes(msgpack.packb([method, list(args)], use_bin_type=True))
    made.rename(target)


async def ask(self: Session, method: int, *args: Any) -> list[Any]:
    """`Session.ask` between two points."""
    if method in _NAMES:
        _note(method, args)
    match method:
        case _ if method in (SINK_PLACE, SINK_STAGE, SINK_SEAL):
            point("begin")
        case _ if method == SINK_COMMIT:
            point("commit")
    found = await _plain_ask(self, method, *args)
    if method == SINK_SEAL:
        _sealed(args[0], args[2])
    match method:
        case _ if method == SINK_STAGE:
            point("staged")
        case _ if method == SINK_SEAL:
            point("sealed")
        case _ if method == SINK_COMMIT and not found[0]:
            point("committed")
    return found


async def lay(self: Placing, runs: Any) -> None:
    """`Placing.lay`, which stages nothing."""
    await _plain_lay(self, runs)
    point("staged")


Placing.lay = lay  # type: ignore[method-assign]
Session.ask = ask  # type: ignore[method-assign]
attempt_lease.BEAT_S = LEASE_MS / 1000 / 3  # type: ignore[misc]
limits.SINK_LEASE_MS = LEASE_MS  # type: ignore[misc]
writer.CHUNK_BYTES_TARGET = 1_500  # type: ignore[misc]
writer.CHUNK_ROWS = 25  # type: ignore[misc]


class MatrixWriter(writer.KvorumStreamWriter):
    """Spark pickles it by its module's name, so tasks and the committing process import this."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        point("abort")  # Spark names no attempt here, so nothing is sent
        super().abort(messages, batchId)


class MatrixBatchWriter(writer.KvorumBatchWriter):
    """The same for bulk loads."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        point("abort")
        super().abort(messages)


class MatrixSource(KvorumDataSource):
    """`format("kvorum")` of the matrix's driver."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> MatrixWriter:
        return self._writing(MatrixWriter, schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> MatrixBatchWriter:
        return self._writing(MatrixBatchWriter, schema, overwrite)

"""The data source as it is, with places where the kill matrix stops it: `format("kvorum")`.

In the folder KVORUM_MATRIX:

    plan-ID.json   {id, point, action, times}: what to do when a process comes to a point
    reached-ID     the process that did: {pid}
    go-ID          a process that waits goes on
    rpc/*.bin      what was sent, for the controller to send once more, later

Points of a task: begin, staged, sealed. Of the driver's Python: commit (before the request),
committed (after its answer, before Spark's own log), abort. Actions: die, raise, wait.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import msgpack
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from kv.base.methods import SINK_COMMIT, SINK_SEAL, SINK_STAGE
from pyspark_kvorum import KvorumDataSource, writer
from pyspark_kvorum.session import Session

WAIT_S = 120.0
_NAMES = {SINK_STAGE: "stage", SINK_SEAL: "seal", SINK_COMMIT: "commit"}
_plain_ask = Session.ask


def folder() -> Path:
    return Path(os.environ["KVORUM_MATRIX"])


def point(name: str) -> None:
    """Do what a plan says of this point. Of several processes that come here at once, one does."""
    for path in sorted(folder().glob("plan-*.json")):
        try:
            plan = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if plan["point"] != name:
            continue
        mine = path.with_suffix(f".{os.getpid()}")
        try:
            path.rename(mine)
        except FileNotFoundError:
            continue
        if plan.get("times", 1) > 1:
            again = path.with_suffix(".new")
            again.write_text(json.dumps({**plan, "times": plan["times"] - 1}))
            again.rename(path)
        told = folder() / f"told.{os.getpid()}"
        told.write_text(json.dumps({"pid": os.getpid(), "ppid": os.getppid()}))
        told.rename(folder() / f"reached-{plan['id']}")
        _act(plan)
        return


def _act(plan: dict[str, Any]) -> None:
    match plan["action"]:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise RuntimeError("the kill matrix said so")
        case "wait":
            until = time.monotonic() + WAIT_S
            while not (folder() / f"go-{plan['id']}").exists() and time.monotonic() < until:
                time.sleep(0.01)


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
        case _ if method in (SINK_STAGE, SINK_SEAL):
            point("begin")
        case _ if method == SINK_COMMIT:
            point("commit")
    found = await _plain_ask(self, method, *args)
    match method:
        case _ if method == SINK_STAGE:
            point("staged")
        case _ if method == SINK_SEAL:
            point("sealed")
        case _ if method == SINK_COMMIT and not found[0]:
            point("committed")
    return found


Session.ask = ask  # type: ignore[method-assign]
writer.CHUNK_BYTES_TARGET = 1_500  # type: ignore[misc]
writer.CHUNK_ROWS = 25  # type: ignore[misc]


class MatrixWriter(writer.KvorumStreamWriter):
    """Spark pickles it by its module's name, so tasks and the committing process import this."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        point("abort")  # Spark names no attempt here, so nothing is sent
        super().abort(messages, batchId)


class MatrixSource(KvorumDataSource):
    """`format("kvorum")` of the matrix's driver."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> MatrixWriter:
        return self._writing(MatrixWriter, schema, overwrite)

"""What a node does for the bus: one handler per kind of operation (procedures/bus).

    flush, compact        files of the state database (procedures/bus/tables.py)
    checkpoint, …         DATA/points/NAME, staged in DATA/points/.staging (checkpoints.py)
    setting               read the row anew (kvorum/local/settings.py, kvorum/local/settings.py)
    catch_up              after a restart (recovery.py)

All of them may be repeated. Blocking work is done in threads; compactions go one range at a time,
with the pause `maintenance.pause_ms`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from kv.base.errors import Busy, Refused
from kv.replica.manager import ReplicaManager
from kv.replica.ranges import slices
from kv.replica.replica import Replica
from kv.storage.directory import private_directory
from kv.storage.engine import Engine
from kvorum.cluster.catchup import caught_up
from kvorum.local.settings import Settings
from procedures.bus.handlers import Handler, Job
from procedures.bus.settings import known_name
from procedures.engine.plain_data import Plain

InThread = Callable[[Callable[[], None]], Awaitable[None]]

_MANIFEST: Final = "POINT.json"
STAGING: Final = ".staging"


class _OfReplicas(Handler):
    """What is done to the replicas of body["partitions"]."""

    def __init__(self, manager: ReplicaManager, state: Engine, in_thread: InThread) -> None:
        self._manager, self._state, self._in_thread = manager, state, in_thread

    def _replicas(self, job: Job) -> list[Replica]:
        """Raises Busy: one is not here yet, or no more; the master follows the map."""
        found = []
        for partition in job.body["partitions"]:
            replica = self._manager.replica(partition)
            if replica is None:
                raise Busy(
                    f"partition {partition} is not at this node now", details={"what": "bus"}
                )
            found.append(replica)
        return found

    async def undo(self, job: Job) -> None:
        """What was written to files stays there."""


class Flush(_OfReplicas):
    """See the module."""

    async def do(self, job: Job) -> object:
        replicas = self._replicas(job)
        since_s = asyncio.get_running_loop().time()
        await self._in_thread(self._state.flush)
        return _took(len(replicas), since_s)


class Compact(_OfReplicas):
    """See the module."""

    def __init__(
        self, manager: ReplicaManager, state: Engine, in_thread: InThread, settings: Settings
    ) -> None:
        super().__init__(manager, state, in_thread)
        self._settings = settings

    async def do(self, job: Job) -> object:
        replicas = self._replicas(job)
        since_s = asyncio.get_running_loop().time()
        for count, replica in enumerate(replicas):
            job.progress({"partitions": count, "of": len(replicas)})
            for family, start, end in slices(replica.descriptor):
                await self._in_thread(partial(replica.state.engine.compact, family, start, end))
            await asyncio.sleep(self._settings.value("maintenance.pause_ms") / 1000)
        return _took(len(replicas), since_s)


def _took(partitions: int, since_s: float) -> dict[str, int]:
    took_s = asyncio.get_running_loop().time() - since_s
    return {"partitions": partitions, "took_ms": round(took_s * 1000)}


class Points:
    """The directory of points of one node. Every method blocks: a thread's work."""

    def __init__(self, data: Path) -> None:
        self._root = data / "points"

    def clear(self) -> None:
        """Forget what a process before this one staged: whoever wants it stages it again."""
        shutil.rmtree(self._root / STAGING, ignore_errors=True)

    def stage(self, op: str, state: Engine, manifest: Plain) -> None:
        """Copy the database, under the operation's name. Raises Refused (POINT_EXISTS)."""
        name = manifest["name"]
        if (there := self.read(name)) is not None:
            if there.get("op") == op:
                return  # committed already
            raise Refused(f"there is a point {name} already; drop it first", code="POINT_EXISTS")
        staged = self._staged(op)
        shutil.rmtree(staged, ignore_errors=True)
        private_directory(self._root)
        private_directory(staged)
        state.checkpoint(staged / "state")
        with (staged / _MANIFEST).open("w") as file:
            file.write(json.dumps({**manifest, "op": op}))
            file.flush()
            os.fsync(file.fileno())
        _sync(staged)

    def commit(self, op: str, name: str) -> None:
        """Let it have its name."""
        there = self.read(name)
        if there is not None and there.get("op") == op:
            return
        self._staged(op).rename(self._root / name)
        _sync(self._root)

    def undo(self, op: str) -> None:
        """Nothing of the operation is left, unless it was committed."""
        shutil.rmtree(self._staged(op), ignore_errors=True)

    def drop(self, op: str, name: str) -> bool:
        """Whether it was there."""
        if self.read(name) is None:
            return False
        away = self._staged(op)
        away.parent.mkdir(exist_ok=True)
        shutil.rmtree(away, ignore_errors=True)
        (self._root / name).rename(away)
        shutil.rmtree(away)
        return True

    def read(self, name: str) -> dict[str, object] | None:
        """The manifest of a point, None if there is none."""
        try:
            found: dict[str, object] = json.loads((self._root / name / _MANIFEST).read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found

    def all(self) -> list[list[Any]]:
        """[name, at_ms] of every point."""
        if not self._root.is_dir():
            return []
        names = sorted(p.name for p in self._root.iterdir() if p.name != STAGING)
        found = [(name, self.read(name)) for name in names]
        return [[name, manifest["at_ms"]] for name, manifest in found if manifest is not None]

    def _staged(self, op: str) -> Path:
        return self._root / STAGING / op


def _sync(directory: Path) -> None:
    """Names in it survive a power loss from now on."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _OfPoints(Handler):
    def __init__(self, points: Points | None, in_thread: InThread) -> None:
        """`points`: None, the engine keeps nothing on disk."""
        self._points, self._in_thread = points, in_thread

    @property
    def points(self) -> Points:
        """Raises Refused."""
        if self._points is None:
            raise Refused(
                "this node keeps its data in memory: there are no files to copy",
                code="NO_FILES",
            )
        return self._points

    async def _call(self, work: Callable[[], object]) -> Any:
        found: list[object] = []
        await self._in_thread(lambda: found.append(work()))
        return found[0]

    async def undo(self, job: Job) -> None:
        if self._points is not None:
            await self._call(lambda: self.points.undo(job.op))


class MakePoint(_OfPoints):
    """See the module."""

    def __init__(
        self,
        points: Points | None,
        in_thread: InThread,
        manager: ReplicaManager,
        state: Engine,
        stopped: Callable[[], bool],
    ) -> None:
        super().__init__(points, in_thread)
        self._manager, self._state, self._stopped = manager, state, stopped

    async def stage(self, job: Job) -> Any:
        points = self.points
        await caught_up(self._manager, self._stopped)
        rows = [[int(r.descriptor.id), r.state.index] for r in self._manager.replicas()]
        manifest = {**job.body, "partitions": rows}
        await self._call(lambda: points.stage(job.op, self._state, manifest))

    async def commit(self, job: Job) -> object:
        await self._call(lambda: self.points.commit(job.op, job.body["name"]))
        return len(self._manager.replicas())


class DropPoint(_OfPoints):
    """See the module."""

    async def do(self, job: Job) -> object:
        return await self._call(lambda: self.points.drop(job.op, job.body["name"]))


class ListPoints(_OfPoints):
    """See the module."""

    async def do(self, job: Job) -> object:
        return [] if self._points is None else await self._call(self._points.all)


class ReadSetting(Handler):
    """See the module."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def do(self, job: Job) -> object:
        name, wanted = known_name(job.body["name"]), job.body["version"]
        version, value = await self._settings.read(name, at_least=wanted)
        return {"version": version, "value": value}

    async def undo(self, job: Job) -> None:
        """What was read is the truth."""


class CatchUp(_OfReplicas):
    """See the module."""

    def __init__(
        self,
        manager: ReplicaManager,
        state: Engine,
        in_thread: InThread,
        look: Callable[[], Awaitable[None]],
        stopped: Callable[[], bool],
    ) -> None:
        """`look`: compare the replicas with the map."""
        super().__init__(manager, state, in_thread)
        self._look, self._stopped = look, stopped

    async def do(self, job: Job) -> object:
        since_s = asyncio.get_running_loop().time()
        await self._look()
        count = len(self._replicas(job))
        job.progress({"partitions": count, "waits": "for their leaders' logs"})
        await caught_up(self._manager, self._stopped)
        return _took(count, since_s)

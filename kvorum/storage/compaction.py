"""Gives the space of what was deleted back, at one node, with no call by anybody.

After every round of the collector (kvorum/storage/collector.py) the files of the state database are
looked at; what kv/storage/files_to_rewrite.py finds worth it is rewritten: one range at a time,
in pieces, in a thread, never the whole database. Each piece is paid for with a pause, so that
rewriting reads CARE_BYTES_PER_S on the average and requests have the disk. Leaders and followers
do it alike: each for its own files.

Nothing is remembered over a restart: the facts are with the files, and in the partitions'
counters. What did not help (a cursor keeps the files of its moment) is left alone for
CARE_SPARED_LOOKS looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from kv.base.errors import KvorumError
from kv.base.limits import CARE_BYTES_PER_S, CARE_SPARED_LOOKS
from kv.replica.replica import Replica
from kv.storage.engine import Engine
from kv.storage.files_to_rewrite import Job, Piece, Span, Spared, flush_due, next_job

log = logging.getLogger(__name__)

_JOBS_MAX: Final = 64  # of one look; then the files are looked at after the next round


class Care:
    """Counts `looks`, ranges rewritten (`compactions`) by reason, and bytes of files read."""

    def __init__(
        self,
        replicas: Callable[[], Iterable[Replica]],
        engine: Engine,
        in_thread: Callable[..., Awaitable[object]],
    ) -> None:
        self.looks = self.compactions = self.flushes = self.read_bytes = 0
        self.why: dict[str, int] = {}
        self._replicas, self._engine, self._in_thread = replicas, engine, in_thread
        self._spared: dict[Spared, int] = {}  # until which look
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Look, when what is being rewritten now is done."""
        self._asked.set()

    async def run(self) -> None:
        """A look for everything that is asked for."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self.look()
            except KvorumError as error:
                log.info("files were not looked at: %s; next round", error)

    async def look(self) -> None:
        """Rewrite what is worth it, one after the other."""
        self.looks += 1
        self._spared = {id: until for id, until in self._spared.items() if until > self.looks}
        for name in flush_due(self._engine.files(), self._engine.in_memory()):
            await self._alone(self._engine.flush_family, name)
            self.flushes += 1
        for _ in range(_JOBS_MAX):
            job = next_job(self._engine.files(), self._spans(), self._spared)
            if job is None:
                return
            # whatever comes of it: at once again is too early
            self._spared[job.id] = self.looks + CARE_SPARED_LOOKS
            await self._do(job)

    def stats(self) -> dict[str, int]:
        """For metrics."""
        return {
            "compactions": self.compactions,
            "compaction_flushes": self.flushes,
            "compaction_read_bytes": self.read_bytes,
        }

    def _spans(self) -> list[Span]:
        found = [
            Span(d.start, d.end, r.state.live_bytes, r.state.old_versions, d.shard)
            for r in self._replicas()
            for d in (r.descriptor,)
        ]
        return sorted(found, key=lambda span: span.start)

    async def _do(self, job: Job) -> None:
        log.debug("rewriting %s (%s): %d pieces", job.family, job.why, len(job.pieces))
        for piece in job.pieces:
            try:
                await self._alone(self._rewrite, job, piece)
            except KvorumError as error:
                log.info("files of family %s were not rewritten: %s", job.family, error)
                return
            self.read_bytes += piece.bytes
            await asyncio.sleep(piece.bytes / CARE_BYTES_PER_S)
        self.compactions += 1
        self.why[job.why] = self.why.get(job.why, 0) + 1

    def _rewrite(self, job: Job, piece: Piece) -> None:
        self._engine.compact(job.family, piece.start, piece.end, bottom=job.bottom)

    async def _alone(self, call: Callable[..., None], *args: object) -> None:
        """In a thread, to its end: the database cannot be closed meanwhile."""

        async def work() -> None:
            await self._in_thread(call, *args)

        task = asyncio.get_running_loop().create_task(work(), name="rewrite-files")
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

"""The loop of a master that splits and merges: every few seconds it looks at the map and at what
the nodes reported, asks `deciding.py` what to do, and submits procedures for it.

    kvorum.split_partition    {"partition", "key"}     the key from the leader (SPLIT_POINT)
    kvorum.merge_partitions   {"left", "right"}
    kvorum.move_beside        {"partition", "beside"}  before it, where their replicas are at
                                                       different nodes: the smaller one moves (H6)

A submission's nonce is made of the partition, its epoch and the attempt: a new master that decides
the same gets the procedure that is there. What has been submitted is followed to its end; one that
fails is tried again after a while, longer each time (BACKOFF_S). A procedure that this version does
not have is said once, and then left alone for the rest of the reign.

`shown` has the last decisions and refusals, for people (EXPLAIN; `kvorum partition auto`). A
cluster can switch all this off: setting `partition.auto` (procedures/bus/settings.py).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kv.base.errors import KvorumError, NotFound
from kv.base.ids import META_PARTITION, PartitionId
from kv.base.methods import SPLIT_POINT
from procedures.engine import plain_data
from procedures.engine.context import StepContext
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import Outcome, done
from procedures.engine.records import Record
from procedures.engine.registry import procedure, step
from procedures.engine.submission import Submission
from procedures.master.map.groups import Groups
from procedures.master.map.partitions import Placed
from procedures.master.map.reports import Picture
from procedures.master.members.move_apart import MOVE_APART, MOVE_BESIDE
from procedures.master.shape.deciding import Decider, Merge, Part, Plan, Policy, Split

log = logging.getLogger(__name__)

SPLIT: Final = "kvorum.split_partition"
MERGE: Final = "kvorum.merge_partitions"
EXPLAIN: Final = "kvorum.explain_partitions"
OWNER: Final = "master"
_MERGING: Final = (MERGE, MOVE_BESIDE)
BACKOFF_S: Final = 10.0
_BACKOFF_S_MAX: Final = 600.0
_DONE_SHOWN_MAX: Final = 50
_REFUSED_MAX: Final = 200
_PREFIX_BYTES: Final = 4  # of a storage key: the table


class Procedures(Protocol):
    """kvorum.master.roles.Master."""

    async def submit(self, sub: Submission) -> int: ...

    async def wait(self, id: int, wait_ms: int) -> Record: ...


@dataclass(slots=True)
class _Work:
    """A procedure that was submitted; `partition` is the left one of a merge."""

    id: int
    kind: str
    partitions: tuple[int, ...]
    how: str = ""  # of a split: Split.how


@dataclass(slots=True)
class _Failed:
    """Something that did not work, about one partition."""

    attempts: int
    until_s: float
    reason: str


class Splitter:
    """One node's; it looks while that is the master."""

    def __init__(
        self,
        *,
        picture: Picture,
        nodes: Callable[[], Collection[int]],
        map_: Callable[[], Awaitable[Sequence[Placed]]],
        busy: Callable[[], Awaitable[Collection[int]]],
        groups: Groups,
        procedures: Procedures,
        policy: Callable[[], Policy],
        monotonic: Callable[[], float],
    ) -> None:
        """`nodes`: that live and keep data; `busy`: partitions that some operation is about."""
        self.splits = self.merges = self.failures = 0
        self.done: deque[str] = deque(maxlen=_DONE_SHOWN_MAX)
        self.plan = Plan()
        self._picture, self._nodes, self._map, self._busy = picture, nodes, map_, busy
        self._groups, self._procedures, self._policy = groups, procedures, policy
        self._monotonic = monotonic
        self._decider = Decider()
        self._working: list[_Work] = []
        self._failed: dict[tuple[str, int], _Failed] = {}
        self._missing: set[str] = set()

    def begin(self) -> None:
        """A reign begins: what an earlier one knew is old."""
        self._decider = Decider()
        self._working, self._failed, self._missing = [], {}, set()
        self.plan = Plan()

    async def look(self) -> None:
        """Follow what is under way, decide, begin what is to be done. Raises KvorumError."""
        await self._follow()
        nodes = self._nodes()
        if not self._picture.complete(nodes):
            return  # a part of the picture shows partitions without leaders, and loads too low
        map_ = await self._map()
        parts = self._parts(map_, await self._busy())
        self.plan = self._decider.look(
            self._monotonic(),
            parts,
            len(nodes),
            self._policy(),
            splitting=sum(work.kind == SPLIT for work in self._working),
            merging=sum(work.kind in _MERGING for work in self._working),
        )
        at: dict[int, Placed] = {placed.descriptor.id: placed for placed in map_}
        for split in self.plan.splits:
            await self._split(split, at[split.partition])
        for merge in self.plan.merges:
            await self._merge(merge, at[merge.left], at[merge.right])

    # ------------------------------------------------------------------------------- the picture

    def _parts(self, map_: Sequence[Placed], busy: Collection[int]) -> list[Part]:
        leaders, now_s = self._picture.leaders(), self._monotonic()
        worked = {partition for work in self._working for partition in work.partitions}
        parts: list[Part] = []
        for placed in map_:
            d = placed.descriptor
            if d.id == META_PARTITION:
                continue
            _, report = leaders.get(d.id, (0, None))
            why = ""
            if placed.change or d.id in worked:
                why = "a procedure is changing it"
            elif d.learners:
                why = "a replica of it is moving"
            elif d.id in busy:
                why = "an operation on all its nodes is under way"
            elif report is not None and report.epoch != d.epoch:
                why = "the map and its leader do not agree yet"
            else:
                why = self._resting(d.id, now_s)
            known = None if report is None or report.epoch != d.epoch else report
            part = Part(d.id, d.start[:_PREFIX_BYTES], d.start, d.end, d.epoch, busy=why)
            if known is not None:
                part = Part(
                    *(d.id, d.start[:_PREFIX_BYTES], d.start, d.end, d.epoch),
                    size=known.size,
                    units=known.units,
                    appended=known.appended,
                    hot_share=max((one.share for one in known.hot), default=0.0),
                    written=known.written,
                    bytes_max=placed.bytes_max,
                    busy=why,
                )
            parts.append(part)
        return parts

    def _resting(self, partition: int, now_s: float) -> str:
        for kind in (SPLIT, *_MERGING):
            failed = self._failed.get((kind, partition))
            if failed is not None and now_s < failed.until_s:
                return f"the last attempt failed ({failed.reason})"
        return ""

    # --------------------------------------------------------------------------------- following

    async def _follow(self) -> None:
        """What became of the procedures that were submitted."""
        left: list[_Work] = []
        for work in self._working:
            record = await self._find(work)
            if record is None:
                continue
            if not record.ended:
                left.append(work)
            elif record.error is not None:
                self._fails(work.kind, work.partitions[0], record.error.message)
            else:
                self._failed.pop((work.kind, work.partitions[0]), None)
                if work.how == "load":
                    await self._part(record)
        self._working = left

    async def _part(self, record: Record) -> None:
        """A hot partition was split: its new half leaves the nodes of the other (H5)."""
        halves = plain_data.decode(record.result) if record.result else {}
        args = {"partition": halves.get("new"), "beside": halves.get("partition")}
        try:
            await self._procedures.submit(Submission(MOVE_APART, args, OWNER))
        except KvorumError as error:
            self._tell(f"the halves of partition {args['beside']} stay together: {error.message}")

    async def _find(self, work: _Work) -> Record | None:
        try:
            return await self._procedures.wait(work.id, 0)
        except NotFound:
            return None  # it was fetched by somebody, and forgotten

    def _fails(self, kind: str, partition: int, reason: str) -> None:
        self.failures += 1
        known = self._failed.get((kind, partition))
        attempts = 1 if known is None else known.attempts + 1
        pause_s = min(_BACKOFF_S_MAX, BACKOFF_S * 2 ** (attempts - 1))
        until_s = self._monotonic() + pause_s
        self._failed[kind, partition] = _Failed(attempts, until_s, reason)
        self._tell(f"{kind} of partition {partition} failed: {reason}; again in {pause_s:.0f} s")

    # ------------------------------------------------------------------------------------- doing

    async def _split(self, split: Split, placed: Placed) -> None:
        if SPLIT in self._missing:
            return
        d = placed.descriptor
        try:
            (key,) = await self._groups.order(
                *(d.id, d.data_voters, SPLIT_POINT), *(d.id, split.how)
            )
        except KvorumError as error:
            self._fails(SPLIT, split.partition, error.message)
            return
        if key is None:
            self._fails(SPLIT, split.partition, f"no key is known that cuts it ({split.how})")
            return
        begun = await self._submit(
            *(SPLIT, {"partition": split.partition, "key": key}, (split.partition,)),
            str(split.epoch),
            split.how,
        )
        if begun:
            self.splits += 1
            self._tell(f"partition {split.partition} is split ({split.how}): {split.reason}")

    async def _merge(self, merge: Merge, left: Placed, right: Placed) -> None:
        if MERGE in self._missing:
            return
        epochs = ".".join(map(str, merge.epochs))
        both = (merge.left, merge.right)
        if set(left.descriptor.data_voters) != set(right.descriptor.data_voters):
            await self._bring_together(merge, left, right, epochs)
            return
        if await self._submit(MERGE, {"left": merge.left, "right": merge.right}, both, epochs):
            self.merges += 1
            self._tell(f"partitions {both[0]} and {both[1]} are merged: {merge.reason}")

    async def _bring_together(self, merge: Merge, left: Placed, right: Placed, epochs: str) -> None:
        """The smaller one moves to where its neighbour is; they are merged when a later look finds
        them there.
        """
        if MOVE_BESIDE in self._missing:
            return
        leaders, both = self._picture.leaders(), (merge.left, merge.right)
        sizes = [report.size for id_ in both for _, report in (leaders[PartitionId(id_)],)]
        small, other = both if sizes[0] < sizes[1] else both[::-1]
        # Should they be moved apart again meanwhile, it is another attempt.
        nodes = [sorted(row.descriptor.data_voters) for row in (left, right)]
        at = ">".join(".".join(map(str, one)) for one in nodes)
        args = {"partition": small, "beside": other}
        if await self._submit(MOVE_BESIDE, args, both, f"{epochs}/{at}"):
            text = f"partition {small} moves beside partition {other}, to be merged with it"
            self._tell(f"{text}: {merge.reason}")

    async def _submit(
        self,
        name: str,
        args: Plain,
        partitions: tuple[int, ...],
        epochs: str,
        how: str = "",
    ) -> bool:
        failed = self._failed.get((name, partitions[0]))
        attempt = 0 if failed is None else failed.attempts
        ids = ".".join(map(str, partitions))
        nonce = f"{name}/{ids}/{epochs}/{attempt}"
        try:
            id_ = await self._procedures.submit(
                Submission(name, args, OWNER, nonce, first_counts=True)
            )
        except NotFound as error:
            self._missing.add(name)
            self._tell(f"{name} cannot be started: {error.message}")
            return False
        except KvorumError as error:
            self._fails(name, partitions[0], error.message)
            return False
        self._working.append(_Work(id_, name, partitions, how))
        return True

    def _tell(self, text: str) -> None:
        self.done.append(text)
        log.info("%s", text)

    def stats(self) -> dict[str, int]:
        """For metrics."""
        return {
            "splits": self.splits,
            "merges": self.merges,
            "failures": self.failures,
            "working": len(self._working),
        }

    def shown(self) -> Plain:
        """For people: what was done last, and what is not done and why."""
        refused = self.plan.refused
        return {
            "done": list(self.done),
            "refused": [[one.partition, one.reason] for one in refused[:_REFUSED_MAX]],
            "more_refused": max(0, len(refused) - _REFUSED_MAX),
            "working": [[work.id, work.kind, list(work.partitions)] for work in self._working],
        }


@procedure(EXPLAIN)
class ExplainPartitions:
    """EXPLAIN {}: what the master has split and merged of late, what it does not, and why."""

    def __init__(self, shown: Callable[[], dict[str, object]]) -> None:
        self._shown = shown

    @step(first=True)
    def tell(self, ctx: StepContext) -> Outcome:
        return done(self._shown())

"""What to split and what to merge, with a reason in words for each. Pure: the same picture at the
same times gives the same plan. The loop around it is procedures/master/shape/splitter.py.

split   size     above bytes_max: in the middle; one that is appended to: at its end, a little
                 earlier, so that what is written from then on goes to a new partition (H7). What is
                 left of it is cut in the middle if it had grown too large meanwhile
        load     above load_multiple times the mean of all, and load_min, in LOOKS looks in a row:
                 where its requests divide (H5). Not if one key has most of them, nor if all writes
                 go after the last row: no cut would help
merge   small    two neighbours of a table that fill less than half a partition together, and one
                 of them less than a quarter, or less than fragment_share of the mean in size and
                 load (H3, H6); both cold, both small for settle_s

Hysteresis. What was just split has more than bytes_max together, what may be merged at most half of
it: a partition must lose half its bytes, or win as many, before it goes the other way. By load the
same: merged ones have a quarter of load_min together at most. And for rest_s after any change of a
partition (its epoch) it is not split by load, until the averages are of what it is now; sizes are
known at once.

A partition that was never written to is left as it is: somebody cut an empty table into pieces on
purpose. One that is busy (a procedure has it, its members differ from its neighbour's and are being
moved, …) is passed over with the reason. `refused` says, for everything that is over a limit or
could go, why nothing is done.

Source: the ByteKV article (hot-spot and fragment detection), CockroachDB's rule that a split is not
undone at once. Left out: who has the replicas of the halves (procedures/master/balancing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Final, NamedTuple

from kv.base.limits import PARTITION_BYTES_MAX_DEFAULT, PARTITION_LOAD_MIN_DEFAULT, MiB
from procedures.master.map.reports import APPENDED_MIN, HOT_MIN

MIDDLE: Final = "middle"
LOAD: Final = "load"
END: Final = "end"
LOOKS: Final = 3
_END_SHARE: Final = 0.75  # of bytes_max at which one that is appended to is cut
_MERGED_SHARE: Final = 0.5  # of bytes_max that a merged partition may have
_SMALL_SHARE: Final = 0.25  # … and the smaller of the two
_MERGED_LOAD_SHARE: Final = 0.25  # of load_min


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator may set; see the module."""

    bytes_max: int = PARTITION_BYTES_MAX_DEFAULT
    load_min: float = PARTITION_LOAD_MIN_DEFAULT
    load_multiple: float = 2.0
    fragment_share: float = 0.2
    rest_s: float = 20.0
    settle_s: float = 300.0
    splits_max: int = 4  # procedures at once
    merges_max: int = 2


@dataclass(frozen=True, slots=True)
class Part:
    """A partition as map and reports have it. `size` None: its leader has not reported it."""

    id: int
    table: bytes
    start: bytes
    end: bytes
    epoch: int
    size: int | None = None
    units: float = 0.0
    appended: float = 0.0
    hot_share: float = 0.0  # of its hottest key
    written: bool = True
    bytes_max: int = 0  # of its table; 0: the policy's
    busy: str = ""  # why nothing may be done with it now


class Split(NamedTuple):
    """Cut it: see kv/replica/cutting.py for `how`."""

    partition: int
    epoch: int
    how: str
    reason: str


class Merge(NamedTuple):
    """Make one of two neighbours."""

    left: int
    right: int
    epochs: tuple[int, int]
    reason: str


class Refusal(NamedTuple):
    """Why a partition that is over a limit, or could go, is left as it is."""

    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    splits: tuple[Split, ...] = ()
    merges: tuple[Merge, ...] = ()
    refused: tuple[Refusal, ...] = ()


@dataclass(slots=True)
class _Seen:
    """What a reign remembers of a partition."""

    epoch: int
    since_s: float  # it has this epoch, as far as this reign knows
    small_since_s: float | None = None
    loud: int = 0  # looks in a row with too much load


@dataclass(slots=True)
class _Draft:
    splits: list[Split] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)

    def plan(self) -> Plan:
        return Plan(tuple(self.splits), tuple(self.merges), tuple(self.refused))


class Decider:
    """One reign's. `look` every few seconds."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._looked = False  # what the first look finds has not just changed

    def look(
        self,
        now_s: float,
        parts: Sequence[Part],
        nodes: int,
        policy: Policy,
        *,
        splitting: int = 0,
        merging: int = 0,
    ) -> Plan:
        """What to begin now. `parts`: of the whole map, in key order; `nodes`: that live;
        `splitting`, `merging`: what is under way.
        """
        self._follow(now_s, parts, policy)
        self._looked = True
        draft = _Draft()
        mean_units = sum(p.units for p in parts) / max(1, len(parts), nodes)
        taken = self._splits(now_s, parts, mean_units, policy, policy.splits_max - splitting, draft)
        room = policy.merges_max - merging
        self._merges(now_s, parts, mean_units, policy, room, taken, draft)
        return draft.plan()

    def _follow(self, now_s: float, parts: Sequence[Part], policy: Policy) -> None:
        ids = {p.id for p in parts}
        for gone in [id_ for id_ in self._seen if id_ not in ids]:
            del self._seen[gone]
        for p in parts:
            seen = self._seen.get(p.id)
            if seen is None or seen.epoch != p.epoch:
                seen = self._seen[p.id] = _Seen(p.epoch, now_s if self._looked else -inf)
            small = p.size is not None and p.size <= _MERGED_SHARE * _most(p, policy)
            if not small or p.units > _MERGED_LOAD_SHARE * policy.load_min:
                seen.small_since_s = None
            elif seen.small_since_s is None:
                seen.small_since_s = now_s

    # ------------------------------------------------------------------------------------ splits

    def _splits(
        self,
        now_s: float,
        parts: Sequence[Part],
        mean_units: float,
        policy: Policy,
        room: int,
        draft: _Draft,
    ) -> set[int]:
        wanted: list[tuple[float, Split]] = []
        for p in parts:
            seen = self._seen[p.id]
            found = self._split(p, seen, mean_units, policy, draft)
            if found is None:
                continue
            if p.busy:
                draft.refused.append(Refusal(p.id, f"{found.reason}, but {p.busy}"))
            elif found.how == LOAD and (left_s := policy.rest_s - (now_s - seen.since_s)) > 0:
                wait = f"it has changed a moment ago and rests for {left_s:.0f} s more"
                draft.refused.append(Refusal(p.id, f"{found.reason}, but {wait}"))
            else:
                urgency = (p.size or 0) / _most(p, policy) + p.units / policy.load_min
                wanted.append((urgency, found))
        wanted.sort(key=lambda one: (-one[0], one[1].partition))
        for _, split in wanted[: max(0, room)]:
            draft.splits.append(split)
        for _, split in wanted[max(0, room) :]:
            text = f"{split.reason}, but {policy.splits_max} splits are under way"
            draft.refused.append(Refusal(split.partition, text))
        return {split.partition for _, split in wanted}

    def _split(
        self, p: Part, seen: _Seen, mean_units: float, policy: Policy, draft: _Draft
    ) -> Split | None:
        """What should be done with one partition, were it not busy."""
        loud = p.units >= max(policy.load_min, policy.load_multiple * mean_units)
        seen.loud = seen.loud + 1 if loud else 0
        if p.size is None:
            return None
        most = _most(p, policy)
        share = p.size / most
        appended = p.appended >= APPENDED_MIN
        if appended and share >= _END_SHARE:
            reason = (
                f"it is appended to and has {_mib(p.size)} of {_mib(most)}: "
                "what comes goes to a new one"
            )
            return Split(p.id, p.epoch, END, reason)
        if share > 1:
            reason = f"it has {_mib(p.size)}, the limit is {_mib(most)}"
            return Split(p.id, p.epoch, MIDDLE, reason)
        if seen.loud < LOOKS:
            return None
        reason = (
            f"it serves {p.units:.0f} units/s, {p.units / mean_units:.1f} times the mean of "
            f"{mean_units:.0f}"
        )
        if p.hot_share >= HOT_MIN:
            text = f"{reason}, but one key has {p.hot_share:.0%} of the requests: no cut divides it"
            draft.refused.append(Refusal(p.id, text))
            return None
        if appended:
            text = f"{reason}, but its rows are all appended: they would follow the last partition"
            draft.refused.append(Refusal(p.id, text))
            return None
        return Split(p.id, p.epoch, LOAD, reason)

    # ------------------------------------------------------------------------------------ merges

    def _merges(
        self,
        now_s: float,
        parts: Sequence[Part],
        mean_units: float,
        policy: Policy,
        room: int,
        taken: set[int],
        draft: _Draft,
    ) -> None:
        known = [p.size for p in parts if p.size is not None]
        mean_size = sum(known) / max(1, len(known))
        pairs: list[tuple[int, Part, Part, str]] = []
        for left, right in pairwise(parts):
            if left.table != right.table or left.end != right.start:
                continue
            reason = self._fit(left, right, mean_size, mean_units, policy)
            if reason is not None:
                pairs.append(((left.size or 0) + (right.size or 0), left, right, reason))
        pairs.sort(key=lambda pair: (pair[0], pair[1].id))
        used = set(taken)
        for _, left, right, reason in pairs:
            if used & {left.id, right.id}:
                continue
            why = self._not_now(now_s, left, policy) or self._not_now(now_s, right, policy)
            if not why and len(draft.merges) >= room:
                why = f"{policy.merges_max} merges are under way"
            if why:
                draft.refused.append(Refusal(left.id, f"{reason}, but {why}"))
                continue
            used |= {left.id, right.id}
            draft.merges.append(Merge(left.id, right.id, (left.epoch, right.epoch), reason))

    def _fit(
        self, left: Part, right: Part, mean_size: float, mean_units: float, policy: Policy
    ) -> str | None:
        """Why two neighbours should be one; None if they should not."""
        if left.size is None or right.size is None or not (left.written and right.written):
            return None
        size, units = left.size + right.size, left.units + right.units
        most = _most(left, policy)
        if size > _MERGED_SHARE * most:
            return None
        if units > _MERGED_LOAD_SHARE * policy.load_min:
            return None
        small = min(left, right, key=lambda p: p.size or 0)
        assert small.size is not None
        pair = f"it and partition {right.id} have {_mib(size)} together"
        if small.size < _SMALL_SHARE * most:
            return f"{pair}, and little load"
        fragment = policy.fragment_share
        if small.size < fragment * mean_size and small.units < fragment * mean_units:
            return f"{pair}, partition {small.id} less than {fragment:.0%} of the mean"
        return None

    def _not_now(self, now_s: float, p: Part, policy: Policy) -> str:
        """Why a partition that should be merged is not; empty if nothing is in the way."""
        seen = self._seen[p.id]
        if p.busy:
            return f"partition {p.id}: {p.busy}"
        if seen.small_since_s is None:
            return f"partition {p.id} is not small"
        left_s = policy.settle_s - (now_s - max(seen.small_since_s, seen.since_s))
        if left_s > 0:
            return f"partition {p.id} must stay small for {left_s:.0f} s more"
        return ""


def _most(p: Part, policy: Policy) -> int:
    """The bytes above which it is split: its table's, or everybody's."""
    return p.bytes_max or policy.bytes_max


def _mib(size: float) -> str:
    return f"{size / MiB:.1f} MiB"

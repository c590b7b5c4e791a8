"""Is a history strictly serializable? Of transactions that put, delete, read and scan.

Every value is unique, so a read that found one names its writer. The order of a key's versions is
that of their commit timestamps, which the store shows; a read that found nothing saw the last of
them at or below its snapshot, which must be a delete, the end of a time to live, or none at all. A
time to live is a transaction of the clock, which deletes the key at that moment. Then

    ww  the writer of a version → the writer of the key's next one
    wr  the writer of the version that was read → the reader
    rw  the reader → the writer of the version behind the one that it read
    rt  a transaction that was acknowledged before another began → that one

and a history is strictly serializable if and only if these have no cycle (Adya 1999, section 3.1;
Papadimitriou 1979).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.txn.si_checker import Edges, edge, find_cycle

Version = tuple[int, str | None, int]
"""(commit_ts, value or None, writer)"""


@dataclass
class Txn:
    """One transaction that committed. Times are of the observer's clock."""

    id: int  # its start_ts
    commit_ts: int = 0  # 0: it wrote nothing
    began: float = 0.0
    ended: float = float("inf")  # acknowledged; infinite when that never happened
    reads: dict[str, str | None] = field(default_factory=dict)
    writes: dict[str, str | None] = field(default_factory=dict)
    expires: dict[str, int] = field(default_factory=dict)
    """Of the writes that have a time to live: the first timestamp at which they are gone."""


def anomalies(history: Sequence[Txn]) -> list[str]:
    """What is wrong, in words; empty = strictly serializable."""
    versions = _versions(history)
    edges: Edges = {t.id: set() for t in history}
    for found in versions.values():
        for _, _, writer in found:
            edges.setdefault(writer, set())
        for (_, _, a), (_, _, b) in pairwise(found):
            edge(edges, a, b)
    wrong = [problem for t in history for problem in _reads(t, versions, edges)]
    by_end = sorted(history, key=lambda t: t.ended)
    for t in history:
        for earlier in by_end:
            if earlier.ended >= t.began:
                break
            edge(edges, earlier.id, t.id)
    cycle = find_cycle(edges)
    if cycle:
        wrong.append(f"no serial order: {' → '.join(map(str, cycle))}")
    return wrong


def _versions(history: Sequence[Txn]) -> dict[str, list[Version]]:
    """By key, in order; the clock's deletes have negative writers. To delete what is not there is
    to write nothing.
    """
    versions: dict[str, list[Version]] = {}
    for t in history:
        for key, value in t.writes.items():
            versions.setdefault(key, []).append((t.commit_ts, value, t.id))
    expires = {(key, t.id): ts for t in history for key, ts in t.expires.items()}
    clock = 0
    for key, found in versions.items():
        whole: list[Version] = []
        for version in [*sorted(found, key=_when), None]:
            gone = expires.get((key, whole[-1][2])) if whole else None
            if gone is not None and (version is None or gone <= version[0]):
                clock -= 1
                whole.append((gone, None, clock))
            there = bool(whole) and whole[-1][1] is not None
            if version is not None and (version[1] is not None or there):
                whole.append(version)
        versions[key] = whole
    return versions


def _when(version: Version) -> int:
    return version[0]


def _reads(t: Txn, versions: dict[str, list[Version]], edges: Edges) -> list[str]:
    """Add wr and rw of one transaction."""
    wrong = []
    for key, seen in t.reads.items():
        found = versions.get(key, [])
        if seen is None:
            at = bisect_right(found, t.id, key=_when) - 1
            if at >= 0 and found[at][1] is not None:
                wrong.append(f"{t.id} did not find {key}, but {found[at]} was its snapshot")
        else:
            at = next((i for i, (_, value, _) in enumerate(found) if value == seen), -2)
            if at < -1:
                wrong.append(f"{t.id} read {key} = {seen}, which nobody committed")
                continue
        if at >= 0:
            edge(edges, found[at][2], t.id)
        if at + 1 < len(found):
            edge(edges, t.id, found[at + 1][2])
    return wrong

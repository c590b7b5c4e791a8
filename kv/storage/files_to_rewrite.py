"""Which files of the state database are worth rewriting now. Pure: facts in, ranges out.

A delete in a log-structured store writes a mark; the bytes come back when the mark has met, in a
compaction, what it deletes. RocksDB does that as its levels fill up: a range that was emptied and
is not written to any more would keep its bytes for ever, and every scan would step over the marks.
So the engine is asked to compact:

    memory      the marks are still in memory and weigh much against what the files have: flush
                that family, the files then say where the marks are
    marks       a file in which every fourth row, and MARKS_MIN at least, is a delete mark: its
                range. One that lies at the bottom (marks that met nothing on their way) is
                rewritten by itself
    space       files that hold more than SPACE_RATIO times what the partitions count there, and
                SPACE_SLACK_BYTES: a range was deleted in one mark, or a table was dropped and
                nobody counts anything there. Only files that lie wholly inside the partitions that
                they touch are counted, and files may be compressed: so it is said too late rather
                than in vain
    history     the same for old versions, by rows

Each storage shard (kv.base.shards) is looked at by itself.

Bounds: a piece reads PIECE_BYTES_MAX of files, as far as it can be cut: a single file with what
lies under it always goes as one. What a piece left as it was (somebody reads there, and needs the
files of his moment) is left alone for a while: that is the caller's `spared`.

Source: ByteKV (G5, G6, G9). Left out: when (kvorum/storage/compaction.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kv.base.keys import escape_open
from kv.base.limits import (
    CARE_MARKS_MIN,
    CARE_MARKS_SHARE,
    CARE_MEMORY_MARKS_MAX,
    CARE_PIECE_BYTES_MAX,
    CARE_SPACE_RATIO,
    CARE_SPACE_SLACK_BYTES,
)
from kv.base.shards import UNIVERSAL, family_of, parted, policy_of
from kv.storage.files import FileFacts, MemoryFacts

Spared = tuple[str, bytes]
"""(family, where the range begins) of a job that did not help."""


class Span(NamedTuple):
    """A partition that is here and what it counts; `end` b"" = no bound."""

    start: bytes
    end: bytes
    live_bytes: int
    old_versions: int
    shard: str = ""


class Piece(NamedTuple):
    """One call of the engine: `start <= key < end`, b"" = no bound."""

    start: bytes
    end: bytes
    bytes: int  # of the files that it reads, about


@dataclass(frozen=True, slots=True)
class Job:
    """Rewrite this; `bottom`: also files that lie alone at the bottom."""

    family: str
    why: str  # marks, space or history
    pieces: tuple[Piece, ...]
    bottom: bool = False

    @property
    def id(self) -> Spared:
        return self.family, self.pieces[0].start


def flush_due(files: Sequence[FileFacts], memory: Mapping[str, MemoryFacts]) -> list[str]:
    """Families whose delete marks in memory are many against what their files hold."""
    entries: dict[str, int] = {}
    for file in files:
        entries[file.family] = entries.get(file.family, 0) + file.entries
    return [
        name
        for name, facts in memory.items()
        if facts.deletions >= CARE_MARKS_MIN
        and (there := entries.get(name, 0)) >= CARE_MARKS_MIN
        and (
            facts.deletions * CARE_MARKS_SHARE >= there or facts.deletions >= CARE_MEMORY_MARKS_MAX
        )
    ]


def next_job(
    files: Sequence[FileFacts], spans: Sequence[Span], spared: Collection[Spared] = ()
) -> Job | None:
    """What is most worth it; None: nothing is. `spans` in key order, without overlaps."""
    by_family: dict[str, list[FileFacts]] = {}
    for file in sorted(files, key=lambda f: (f.first, f.number)):
        by_family.setdefault(file.family, []).append(file)
    job = _marks(by_family, spared) or _space(by_family, spans, spared)
    return None if job is None else _whole(job, by_family)


def _whole(job: Job, by_family: Mapping[str, Sequence[FileFacts]]) -> Job:
    """Universal compaction knows no ranges: whatever is asked for, it rewrites the family, so that
    is done once.
    """
    if policy_of(parted(job.family)[1]) != UNIVERSAL:
        return job
    size = sum(file.bytes for file in by_family[job.family])
    return replace(job, pieces=(Piece(job.pieces[0].start, job.pieces[-1].end, size),))


# ------------------------------------------------------------------------------------------- marks


def has_many_marks(file: FileFacts) -> bool:
    """Whether a quarter of a file, and enough of it, is delete marks."""
    return file.deletions >= CARE_MARKS_MIN and file.deletions * CARE_MARKS_SHARE >= file.entries


def _marks(by_family: Mapping[str, Sequence[FileFacts]], spared: Collection[Spared]) -> Job | None:
    """The file with the most."""
    best: FileFacts | None = None
    for files in by_family.values():
        for file in files:
            if (
                has_many_marks(file)
                and (file.family, file.first) not in spared
                and (best is None or file.deletions > best.deletions)
            ):
                best = file
    if best is None:
        return None
    family = by_family[best.family]
    below = [f for f in family if f.level > best.level and _overlap(f, best.first, best.last)]
    end = best.last + b"\x00"
    return Job(best.family, "marks", _pieces(family, best.first, end), bottom=not below)


def _overlap(file: FileFacts, first: bytes, last: bytes) -> bool:
    return file.first <= last and first <= file.last


# ------------------------------------------------------------------------------------------- space


def _space(
    by_family: Mapping[str, Sequence[FileFacts]],
    spans: Sequence[Span],
    spared: Collection[Spared],
) -> Job | None:
    """The range with the most that nobody counts."""
    best: tuple[int, Job] | None = None
    for kind, shard in map(parted, by_family):
        if kind not in ("cur", "hist"):
            continue
        family = family_of(kind, shard)
        within = [s for s in spans if s.shard == shard]
        if kind == "cur":
            why, size, counted, slack = "space", _bytes, _live, CARE_SPACE_SLACK_BYTES
        else:
            why, size, counted, slack = "history", _rows, _old, CARE_MARKS_MIN
            escaped = ((escape_open(s.start), escape_open(s.end)) for s in within)
            pairs = zip(within, escaped, strict=True)
            within = [s._replace(start=low, end=high) for s, (low, high) in pairs]
        files = by_family[family]
        for start, end in _regions(files, within):
            inside = [f for f in _from(files, start, end) if not end or f.last < end]
            known = sum(counted(s) for s in _touched(within, start, end))
            excess = sum(size(f) for f in inside) - CARE_SPACE_RATIO * max(0, known) - slack
            if excess <= 0 or (family, inside[0].first) in spared:
                continue
            # in bytes, so that both kinds can be compared
            weight = sum(f.bytes for f in inside) if kind == "hist" else excess
            if best is None or weight > best[0]:
                last = max(f.last for f in inside)
                pieces = _pieces(files, inside[0].first, last + b"\x00")
                best = weight, Job(family, why, pieces)
    return None if best is None else best[1]


def _bytes(file: FileFacts) -> int:
    return file.bytes


def _rows(file: FileFacts) -> int:
    return file.entries - file.deletions


def _live(span: Span) -> int:
    return span.live_bytes


def _old(span: Span) -> int:
    return span.old_versions


def _regions(files: Sequence[FileFacts], spans: Sequence[Span]) -> Sequence[tuple[bytes, bytes]]:
    """For every file the partitions (or the gap between two) that it touches, as one range."""
    found: dict[tuple[bytes, bytes], None] = {}
    starts = [s.start for s in spans]
    for file in files:
        at = bisect_right(starts, file.first) - 1
        if at >= 0 and (not spans[at].end or file.first < spans[at].end):
            low = spans[at].start
        else:
            low = spans[at].end if at >= 0 else b""
        at = bisect_right(starts, file.last) - 1
        if at >= 0 and (not spans[at].end or file.last < spans[at].end):
            high = spans[at].end
        else:
            high = starts[at + 1] if at + 1 < len(starts) else b""
        found[low, high] = None
    return list(found)


def _touched(spans: Sequence[Span], start: bytes, end: bytes) -> Sequence[Span]:
    return [s for s in spans if (not end or s.start < end) and (not s.end or start < s.end)]


def _from(files: Sequence[FileFacts], start: bytes, end: bytes) -> Sequence[FileFacts]:
    key: Callable[[FileFacts], bytes] = lambda f: f.first  # noqa: E731
    low = bisect_left(files, start, key=key)
    return files[low : bisect_left(files, end, key=key) if end else len(files)]


# ------------------------------------------------------------------------------------------ pieces


def _pieces(files: Sequence[FileFacts], start: bytes, end: bytes) -> tuple[Piece, ...]:
    """A range, cut between files of the deepest level in it where more than PIECE_BYTES_MAX would
    be read at once.
    """
    here = [f for f in files if f.first < end and start <= f.last]
    deepest = max(f.level for f in here)
    cuts = sorted(f.last + b"\x00" for f in here if f.level == deepest)
    pieces: list[Piece] = []
    at, size, sized = start, 0, sorted(here, key=lambda f: f.last)
    read = 0
    for cut in cuts:
        while read < len(sized) and sized[read].last < cut:
            size += sized[read].bytes
            read += 1
        if size >= CARE_PIECE_BYTES_MAX and at < cut < end:
            pieces.append(Piece(at, cut, size))
            at, size = cut, 0
    size += sum(f.bytes for f in sized[read:])
    pieces.append(Piece(at, end, size))
    return tuple(pieces)

"""Long fork: two readers that saw two writes in different orders (Sovran et al. 2011, Parallel
Snapshot Isolation; snapshot isolation forbids it).

Every key of a group is written once, so of two reads of a group one must have seen all that the
other one saw. Real time is checked as well: a read that began after a write was acknowledged, or
after another read ended, sees at least as much (shapes of workloads/longfork.py). Finds
"long-fork", "stale" and "from-nowhere".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import History, Operation


def check(history: History) -> list[Anomaly]:
    """See the module."""
    groups: dict[int, list[Operation]] = defaultdict(list)
    for o in history.operations():
        groups[o.args["group"]].append(o)
    found: list[Anomaly] = []
    for number in sorted(groups):
        reads = [o for o in groups[number] if o.f != "write" and o.acknowledged]
        writes = {o.args["key"]: o for o in groups[number] if o.f == "write"}
        found += _forks(number, reads)
        found += _real_time(number, reads, writes)
    return found


def _seen(o: Operation) -> frozenset[str]:
    return frozenset(key for key, there in o.result.items() if there)


def _forks(group: int, reads: Sequence[Operation]) -> list[Anomaly]:
    """In the order of how much they saw, each must contain the one before it."""
    found = []
    for less, more in pairwise(sorted(reads, key=lambda o: (len(_seen(o)), o.id))):
        if not _seen(less) <= _seen(more):
            only, other = sorted(_seen(less) - _seen(more)), sorted(_seen(more) - _seen(less))
            text = (
                f"group {group}: #{less.id} saw {', '.join(only)} without {', '.join(other)}, "
                f"#{more.id} saw it the other way round"
            )
            found.append(Anomaly("long-fork", text, (less.id, more.id)))
    return found


def _real_time(
    group: int, reads: Sequence[Operation], writes: dict[str, Operation]
) -> list[Anomaly]:
    found = []
    for o in reads:
        must: dict[str, Operation] = {
            key: w for key, w in writes.items() if w.acknowledged and w.ended < o.began
        }
        for earlier in reads:
            if earlier.ended < o.began:
                must |= {key: earlier for key in _seen(earlier) if key not in must}
        for key in sorted(must.keys() - _seen(o)):
            text = f"group {group}: #{o.id} did not see {key}, which #{must[key].id} saw before"
            found.append(Anomaly("stale", text, (must[key].id, o.id)))
        for key in sorted(_seen(o)):
            write = writes.get(key)
            if write is None or write.outcome == "fail" or write.began > o.ended:
                why = "nobody wrote" if write is None else f"#{write.id} did not write ({write.f})"
                text = f"group {group}: #{o.id} saw {key}, which {why}"
                found.append(Anomaly("from-nowhere", text, (o.id,)))
    return found

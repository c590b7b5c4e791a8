"""How far a leader may commit: Raft sections 5.3 and 5.4.2 (figure 8), thesis 10.2.1.

Invariants
  * the leader counts itself only up to what is durable on its own disk, like everybody else;
  * only an entry of the current term commits by counting; older ones commit with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def majority_index(own: int, others: Iterable[int]) -> int:
    """The largest value that a majority of the voters has reached. `own` is the leader's, one value
    per other voter.
    """
    ranks = sorted([own, *others])
    return ranks[(len(ranks) - 1) // 2]


def commit_bound(
    commit_index: int,
    own_synced: int,
    others: Iterable[int],
    *,
    term: int,
    term_at: Callable[[int], int | None],
) -> int:
    """The new commit index of a leader of `term`: `commit_index` or higher, never lower."""
    index = majority_index(own_synced, others)
    if index > commit_index and term_at(index) == term:
        return index
    return commit_index

"""What an AppendEntries may change in a follower's log: Raft figure 2, AppendEntries receiver steps
2 to 5.

Invariant: entries are removed only where one of ours *conflicts* with one of the leader's. The
library removes everything after `prev` (P1), so that a late duplicate would take acknowledged
entries away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Known:
    """Every entry of the message is in our log already: acknowledge up to `end`, change nothing."""

    end: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Our log has no entry of that term at `prev`: reject; the leader looks further back."""

    prev: int
    prev_term: int


@dataclass(frozen=True, slots=True)
class Extend:
    """Keep our log up to `prev`, then take the message's entries from number `skip` on."""

    prev: int
    prev_term: int
    skip: int


def place(
    prev: int,
    prev_term: int,
    entry_terms: Sequence[int],
    *,
    base: tuple[int, int],
    term_at: Callable[[int], int | None],
) -> Known | Mismatch | Extend:
    """Where do entries with these terms, which follow (prev, prev_term), belong?

    `base` = (index, term) before our first entry: up to there all is committed, hence equal to the
    leader's.
    """
    end, skip = prev + len(entry_terms), 0
    if prev < base[0]:
        skip = min(base[0] - prev, len(entry_terms))
        if prev + skip < base[0]:
            return Known(end)
        prev, prev_term = base
    if term_at(prev) != prev_term:
        return Mismatch(prev, prev_term)
    while skip < len(entry_terms) and term_at(prev + 1) == entry_terms[skip]:
        prev, prev_term, skip = prev + 1, entry_terms[skip], skip + 1
    return Known(end) if skip == len(entry_terms) else Extend(prev, prev_term, skip)

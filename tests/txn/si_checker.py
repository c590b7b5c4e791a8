"""Is a history of list-append transactions snapshot isolated? (after Elle; Kingsbury & Alvaro 2020)

Every append is unique, so the final list of a key is the order of its writers, and what a read
returned says exactly whom it saw. From that follow the edges

    ww  the writer of an element → the writer of the next one
    wr  the writer of the last element that was read → the reader
    rw  the reader → the writer of the first element that it did not see
    rt  a transaction that was acknowledged before another began → that one

A history is (strongly) snapshot isolated if and only if the relation (ww or wr or rt) ; rw? has no
cycle (Cerone & Gotsman 2018): a cycle may only exist if it has two rw edges in a row, as write skew
has. Lost update, long fork, G0, G1c and G-single all make a forbidden cycle; G1a (a read of an
aborted append) and G1b (of an intermediate one) are found while reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass
class Txn:
    """One transaction that committed (or may have). Times are of the observer's clock."""

    id: int
    began: float = 0.0
    ended: float = float("inf")  # acknowledged; infinite when that never happened
    reads: dict[str, tuple[int, ...]] = field(default_factory=dict)
    appends: dict[str, int] = field(default_factory=dict)


def anomalies(history: Sequence[Txn], final: Mapping[str, Sequence[int]]) -> list[str]:
    """What is wrong, in words; empty = snapshot isolated. `final`: the lists at the end."""
    writer = {(k, v): t.id for t in history for k, v in t.appends.items()}
    first: dict[int, set[int]] = {t.id: set() for t in history}  # ww, wr, rt
    rw: dict[int, set[int]] = {t.id: set() for t in history}
    wrong = _writes(final, writer, first)
    for t in history:
        for key, value in t.appends.items():
            if t.ended < float("inf") and value not in final.get(key, ()):
                wrong.append(f"lost: {t.id} was acknowledged, but {key} does not hold {value}")
        wrong += _reads(t, final, writer, first, rw)
    real_time(history, first)
    composed = {t: after | {c for b in after for c in rw[b]} for t, after in first.items()}
    cycle = find_cycle(composed)
    if cycle:
        wrong.append(f"cycle without two rw edges in a row: {cycle}")
    return wrong


Writer = Mapping[tuple[str, int], int]
Edges = dict[int, set[int]]


def _writes(final: Mapping[str, Sequence[int]], writer: Writer, first: Edges) -> list[str]:
    """Add ww."""
    wrong = []
    for key, values in final.items():
        if len(set(values)) != len(values):
            wrong.append(f"{key}: an append was executed twice: {values}")
        for value in values:
            if (key, value) not in writer:
                wrong.append(f"G1a: {key} holds {value}, which nobody committed")
        for a, b in pairwise(values):
            edge(first, writer.get((key, a)), writer.get((key, b)))
    return wrong


def _reads(
    t: Txn, final: Mapping[str, Sequence[int]], writer: Writer, first: Edges, rw: Edges
) -> list[str]:
    """Add wr and rw of one transaction."""
    wrong = []
    for key, seen in t.reads.items():
        values = tuple(final.get(key, ()))
        if values[: len(seen)] != seen:
            wrong.append(f"{t.id} read {key} as {seen}, which is no prefix of {values}")
            continue
        if seen:
            edge(first, writer.get((key, seen[-1])), t.id)
        if len(seen) < len(values):
            edge(rw, t.id, writer.get((key, values[len(seen)])))
    return wrong


def real_time(history: Sequence[Txn], first: Edges) -> None:
    by_end = sorted(history, key=lambda t: t.ended)
    for t in history:
        for earlier in by_end:
            if earlier.ended >= t.began:
                break
            edge(first, earlier.id, t.id)


def edge(edges: Edges, a: int | None, b: int | None) -> None:
    if a is not None and b is not None and a != b:
        edges[a].add(b)


def find_cycle(edges: Mapping[int, set[int]]) -> list[int]:
    """The transactions of some cycle, [] if there is none."""
    state: dict[int, int] = {}
    for root in edges:
        path: list[int] = []
        todo: list[tuple[int, bool]] = [(root, False)]
        while todo:
            node, leaving = todo.pop()
            if leaving:
                state[node] = 2
                path.pop()
                continue
            if node in state:
                continue
            state[node] = 1
            path.append(node)
            todo.append((node, True))
            for after in sorted(edges[node]):
                if after == node or state.get(after) == 1:
                    return [*path[path.index(after) :], after]
                if after not in state:
                    todo.append((after, False))
    return []

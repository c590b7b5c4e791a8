"""Cycles in a graph whose edges have kinds: what may depend on what, and what must not.

A *search* says which kinds may be used, and how often the kind `rw` (which leads from a reader to
whoever overwrote what it read) may follow itself:

    none        not at all
    apart       never twice in a row: what snapshot isolation forbids (Cerone & Gotsman 2018)
    any         as often as it likes: what serializability forbids

`apart` is a walk over pairs (node, whether the last edge was rw), on which rw leads only out of
pairs without it; a closed walk there is a cycle without two rw edges in a row, the seam included.

Real time would be an edge for every pair of transactions. Instead each moment at which something
ended is a node of its own (negative numbers), so edges are as many as events. Such nodes stand
between transactions, never in what is reported.

Strong components are found first (Tarjan 1972, without recursion): in a clean history that is all
the work, and linear. The cycle shown is a shortest one through some node of the component.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Kind = Literal["ww", "wr", "rw", "session", "real-time"]
Rw = Literal["none", "apart", "any"]
Node = tuple[int, bool]
"""A transaction (or a moment), and whether the way to it ended with rw (only in `apart`)."""

_STARTS_MAX: Final = 64
"""Nodes of a component from which a shortest cycle is looked for."""


class Edge(NamedTuple):
    """`why` in words; "" for those of time."""

    source: int
    target: int
    kind: Kind
    why: str


class Graph:
    """Edges by source. Of several of one kind between two nodes the first is kept."""

    def __init__(self) -> None:
        self._out: dict[Kind, dict[int, dict[int, str]]] = {}

    def add(self, source: int, target: int, kind: Kind, why: str = "") -> None:
        if source != target:
            self._out.setdefault(kind, {}).setdefault(source, {}).setdefault(target, why)

    def out(self, source: int, kind: Kind) -> Mapping[int, str]:
        return self._out.get(kind, {}).get(source, {})

    def sources(self, kinds: Iterable[Kind]) -> list[int]:
        return sorted({node for kind in kinds for node in self._out.get(kind, ())})


@dataclass(frozen=True, slots=True)
class Search:
    """What a cycle may be made of."""

    kinds: tuple[Kind, ...]
    rw: Rw

    def after(self, graph: Graph, node: Node) -> Iterator[tuple[Node, Kind]]:
        """Where one edge leads."""
        at, by_rw = node
        for kind in self.kinds:
            for target in graph.out(at, kind):
                yield (target, False), kind
        if self.rw == "any" or (self.rw == "apart" and not by_rw):
            for target in graph.out(at, "rw"):
                yield (target, self.rw == "apart"), "rw"

    def starts(self, graph: Graph) -> list[Node]:
        kinds = self.kinds if self.rw == "none" else (*self.kinds, "rw")
        return [(node, False) for node in graph.sources(kinds)]


def cycles(graph: Graph, search: Search) -> Iterator[list[Edge]]:
    """One cycle, as short as one can be found, of each strong component; the edges of time are one
    each.
    """
    for component in _components(graph, search):
        inside = set(component)
        best: list[Edge] | None = None
        for start in sorted(node for node in component if node[0] >= 0)[:_STARTS_MAX]:
            found = _shortest(graph, search, start, inside)
            if found is not None and (best is None or len(found) < len(best)):
                best = found
        if best is not None:
            yield _without_moments(best)


def _components(graph: Graph, search: Search) -> Iterator[list[Node]]:
    """Strong components of more than one node."""
    order: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    on_stack: set[Node] = set()
    for root in search.starts(graph):
        if root in order:
            continue
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        todo = [(root, search.after(graph, root))]
        while todo:
            node, targets = todo[-1]
            step = next(targets, None)
            if step is None:
                todo.pop()
                if todo:
                    above = todo[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == order[node]:
                    component = _pop(stack, on_stack, node)
                    if len(component) > 1:
                        yield component
                continue
            target = step[0]
            if target not in order:
                order[target] = low[target] = len(order)
                stack.append(target)
                on_stack.add(target)
                todo.append((target, search.after(graph, target)))
            elif target in on_stack:
                low[node] = min(low[node], order[target])


def _pop(stack: list[Node], on_stack: set[Node], last: Node) -> list[Node]:
    component = []
    while True:
        node = stack.pop()
        on_stack.discard(node)
        component.append(node)
        if node == last:
            return component


def _shortest(graph: Graph, search: Search, start: Node, inside: set[Node]) -> list[Edge] | None:
    """The shortest way from a node back to itself."""
    came: dict[Node, tuple[Node, Kind]] = {}
    todo = deque([start])
    while todo:
        node = todo.popleft()
        for target, kind in search.after(graph, node):
            if target not in inside or target in came:
                continue
            came[target] = (node, kind)
            if target == start:
                return _way(graph, came, start)
            todo.append(target)
    return None


def _way(graph: Graph, came: Mapping[Node, tuple[Node, Kind]], start: Node) -> list[Edge]:
    way: list[Edge] = []
    node = start
    while not way or node != start:
        before, kind = came[node]
        why = graph.out(before[0], kind)[node[0]]
        way.append(Edge(before[0], node[0], kind, why))
        node = before
    way.reverse()
    return way


def _without_moments(way: Sequence[Edge]) -> list[Edge]:
    """Transaction → moment → … → transaction becomes one edge."""
    first = next(i for i, edge in enumerate(way) if edge.source >= 0)
    shown: list[Edge] = []
    source = -1
    for edge in (*way[first:], *way[:first]):
        if edge.source >= 0:
            source = edge.source
        if edge.target >= 0:
            shown.append(Edge(source, edge.target, edge.kind, edge.why))
    return shown

"""No file imports one that imports it: who reads one file of a circle must read them all.

Imports for type checking and those inside functions count. They are how a circle is hidden from
Python; the reader still goes round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import grimp

from tests.arch.test_modules import PACKAGES

TREE = (*PACKAGES, "bench", "demo", "scripts", "tests")

# The circles of today, each by its modules. This list only shrinks: a circle that was cut, or that
# lost a module, fails the test until its line says so.
CIRCLES_LEFT: frozenset[frozenset[str]] = frozenset(
    {
        frozenset(
            {
                "tests.sim.raft.machine",
                "tests.sim.raft.nemesis",
                "tests.sim.raft.network",
                "tests.sim.raft.node",
                "tests.sim.raft.world",
            }
        ),
    }
)


def circles(imports: Mapping[str, Iterable[str]]) -> set[frozenset[str]]:
    """The strongly connected components of more than one module (Tarjan 1972)."""
    found: set[frozenset[str]] = set()
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for imported in imports.get(module, ()):
            if imported not in order:
                visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in path:
                lowest[module] = min(lowest[module], order[imported])
        if lowest[module] == order[module]:
            at = path.index(module)
            component = frozenset(path[at:])
            del path[at:]
            if len(component) > 1:
                found.add(component)

    for module in imports:
        if module not in order:
            visit(module)
    return found


def test_circles_are_found() -> None:
    """A search that finds nothing would allow everything."""
    imports = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": [], "e": ["f"], "f": ["g"], "g": ["e"]}
    assert circles(imports) == {frozenset("bc"), frozenset("efg")}


def test_no_circle_of_imports() -> None:
    """Two files that need each other are one idea in two places, or have an arrow to be cut."""
    graph = grimp.build_graph(*TREE, cache_dir=None)
    found = circles(
        {name: sorted(graph.find_modules_directly_imported_by(name)) for name in graph.modules}
    )
    new = sorted(map(sorted, found - CIRCLES_LEFT))
    assert not new, f"these import each other, in a circle: {new}"
    gone = sorted(map(sorted, CIRCLES_LEFT - found))
    assert not gone, f"these are no circle any more; take them out of CIRCLES_LEFT: {gone}"

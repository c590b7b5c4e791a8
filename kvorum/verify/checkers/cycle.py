"""The ring: every snapshot is one ring over all nodes (shapes of workloads/cycle.py).

Finds "missing" (a node that was not read), "broken-ring" (the walk from the first node does not
come back to it after all others) and, of swaps, "short-path" (four steps in a row that are not four
nodes: the transaction saw two moments).
"""

from __future__ import annotations

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import History, Operation


def check(history: History) -> list[Anomaly]:
    """See the module."""
    nodes: list[str] = list(history.header.parameters["nodes"])
    found: list[Anomaly] = []
    for o in history.operations():
        if not o.acknowledged:
            continue
        if o.f == "swap":
            found += _path(o)
        else:
            found += _ring(o, nodes)
    return found


def _path(o: Operation) -> list[Anomaly]:
    if o.result is None:
        return [Anomaly("missing", f"#{o.id} swap met a node that is not there", (o.id,))]
    if len(set(o.result)) == len(o.result):
        return []
    text = f"#{o.id} swap walked {' → '.join(o.result)}: no ring of one moment is so short"
    return [Anomaly("short-path", text, (o.id,))]


def _ring(o: Operation, nodes: list[str]) -> list[Anomaly]:
    missing = [node for node in nodes if node not in o.result]
    if missing:
        text = f"#{o.id} {o.f} found no node {', '.join(missing)}"
        return [Anomaly("missing", text, (o.id,))]
    walk, at = [nodes[0]], o.result[nodes[0]]
    while at not in walk and at in o.result:
        walk.append(at)
        at = o.result[at]
    if at == nodes[0] and len(walk) == len(nodes):
        return []
    text = f"#{o.id} {o.f} at {o.ended_s:.3f} s walked {' → '.join([*walk, at])}"
    return [Anomaly("broken-ring", f"{text}: not one ring over {len(nodes)} nodes", (o.id,))]

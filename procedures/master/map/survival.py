"""What is lost when nodes are lost, as the map and the members say (docs/decisions/1495). Pure:
nobody is asked, so it answers while a site is down.

    serves    a majority of the voters stays: at most a new leader is elected
    stops     it does not, but a copy stays: nothing is read or written until nodes come back
    lost      no copy stays; a witness alone brings nothing back
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import InvalidArgument
from kv.base.ids import NodeId
from kv.base.placement import LEADERS_RULE, SURVIVE, canonical_leaders, is_preferred
from procedures.master.map.nodes import NodeRow, NodeState
from procedures.master.map.partitions import Placed

Fate = Literal["lost", "stops", "serves"]
FATES: Final[tuple[Fate, ...]] = ("lost", "stops", "serves")
"""The worst first."""
_NODE: Final = "node="


def lost_nodes(texts: Iterable[str], nodes: Sequence[NodeRow]) -> frozenset[NodeId]:
    """The members that these mean: node=ID, or labels like dc=eu,rack=r7. Raises InvalidArgument:
    one makes no sense, or means nobody.
    """
    found: set[NodeId] = set()
    for text in texts:
        some = _meant(text, [row for row in nodes if row.state is not NodeState.GONE])
        if not some:
            raise InvalidArgument(f"no node of the cluster is at {text!r:.60}")
        found |= some
    return frozenset(found)


def _meant(text: str, nodes: Sequence[NodeRow]) -> set[NodeId]:
    if text.startswith(_NODE):
        return {row.id for row in nodes if str(row.id) == text.removeprefix(_NODE)}
    try:
        labels = canonical_leaders(text)
    except ValueError:
        labels = ""
    if not labels:
        raise InvalidArgument(f"{text!r:.60} is neither {_NODE}ID nor labels, {LEADERS_RULE}")
    return {row.id for row in nodes if is_preferred(labels, row.domains)}


def fate(descriptor: PartitionDescriptor, gone: Collection[NodeId]) -> Fate:
    """What becomes of a partition when these nodes are gone."""
    staying = [node for node in descriptor.voters if node not in gone]
    if all(node in descriptor.witnesses for node in staying):
        return "lost"
    return "serves" if 2 * len(staying) > len(descriptor.voters) else "stops"


def breaking(rows: Iterable[Placed], nodes: Sequence[NodeRow]) -> dict[str, list[str]]:
    """By level (kv.base.placement.SURVIVE): the domains each of which alone stops a partition."""
    sites = {row.id: row.domains for row in nodes}
    descriptors = [row.descriptor for row in rows]
    found: dict[str, list[str]] = {}
    for end, level in enumerate(reversed(SURVIVE), 1):
        bad: set[str] = set()
        for descriptor in descriptors:
            there: dict[tuple[str, ...], list[NodeId]] = {}
            for node in descriptor.voters:
                if node in sites:
                    there.setdefault(sites[node][:end], []).append(node)
            bad |= {
                "/".join(filter(None, domain)) or "(no label)"
                for domain, gone in there.items()
                if fate(descriptor, gone) != "serves"
            }
        found[level] = sorted(bad)
    return found

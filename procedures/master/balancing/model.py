"""The picture that the balancer and the placement decide upon, and what they say.

A *dimension* is a kind of load. They are listed by priority, the first one counts most:

    0  traffic   standard traffic units per second (a unit: a request of up to 1 KB that hits the
                 cache); capacity = the units that would use the whole CPU of that node
    1  size      bytes; capacity = the disk
    2  replicas  their number; capacity = what the node is worth beside the others (1 = an average
                 one)

A node's *utilisation* in a dimension is its load by its capacity, so machines of unequal size can
be compared. Source: the balancing chapter of the ByteKV article (I1-I14); that memory,
disk and network are seen through the CPU is theirs, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kv.base.ids import NodeId, PartitionId
from kv.base.placement import SURVIVE

Loads = tuple[float, float, float]
"""One number per dimension."""

TRAFFIC: Final = 0
SIZE: Final = 1
COUNT: Final = 2
NAMES: Final = ("traffic", "size", "replicas")
INFINITE: Final = float("inf")

Level = Literal["dc", "rack", "server"]
LEVELS: Final[tuple[Level, ...]] = ("dc", "rack", "server")
"""What fails together, the widest first."""


def level_of(survive: str) -> Level | None:
    """The level of a table's goal (kv.base.placement); None: it has none."""
    return LEVELS[-1 - SURVIVE.index(survive)] if survive else None


@dataclass(frozen=True, slots=True)
class Dimension:
    """How tightly one kind of load is balanced. The two marks lie `alpha` of the mean above and
    below it, but at least `margin` (utilisation): an idle cluster is balanced.
    """

    name: str
    alpha: float
    margin: float


DIMENSIONS: Final = (
    Dimension("traffic", 0.20, 0.02),
    Dimension("size", 0.20, 0.01),
    Dimension("replicas", 0.10, 1.5),
)


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node that answers. `domains`: one name per level, the widest first, each within the one
    before it (two racks "1" in two datacenters are two).
    """

    id: NodeId
    capacity: Loads = (1.0, 1.0, 1.0)
    limit: Loads = (0.95, 0.90, INFINITE)
    """The hard lines, as utilisation: no move may end above them."""
    base: Loads = (0.0, 0.0, 0.0)
    """Load that no replica here explains and no move takes away (other files on the disk)."""
    domains: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    takes: bool = True
    """It may get replicas and leaderships: false while it is being emptied, or slow."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition and what it costs. Writes cost at each replica, reads at the leader."""

    id: PartitionId
    nodes: tuple[NodeId, ...]
    """Where it has replicas with data that vote."""
    leader: NodeId | None = None
    size: float = 0.0
    writes: float = 0.0
    reads: float = 0.0
    tags: frozenset[str] = frozenset()
    """What a node must carry to have it."""
    held: str = ""
    """Why it must not be moved now; empty = it may."""
    witnesses: tuple[NodeId, ...] = ()
    """Who votes beside `nodes` and keeps no data."""
    ready: frozenset[NodeId] | None = None
    """Who of `nodes` could lead at once; None = all of them."""
    survive: Level | None = None
    """At which level its replicas keep apart; None: as the cluster's do."""
    preferred: frozenset[NodeId] = frozenset()
    """Nodes where its table wants to be led, and its replicas as far as its goal allows."""

    def having(
        self,
        nodes: tuple[NodeId, ...],
        leader: NodeId | None,
        ready: frozenset[NodeId] | None,
    ) -> PartitionView:
        """The same one elsewhere. (dataclasses.replace takes five times as long.)"""
        return PartitionView(
            self.id,
            nodes,
            leader,
            self.size,
            self.writes,
            self.reads,
            self.tags,
            self.held,
            self.witnesses,
            ready,
            self.survive,
            self.preferred,
        )

    def loads_at(self, node: int) -> Loads:
        """What its replica at this node costs."""
        led = self.reads if node == self.leader else 0.0
        return (self.writes + led, self.size, 1.0)


@dataclass(frozen=True, slots=True)
class Move:
    """One decision: a replica or a leadership from `source` to `target`."""

    kind: Literal["replica", "leader"]
    partition: PartitionId
    source: NodeId
    target: NodeId
    dimension: str
    """For which it is done; of the placement: for which rule."""
    quality: Literal["good", "neutral", "bad"]
    reason: str


@dataclass(frozen=True, slots=True)
class Fix:
    """One thing that must be changed whatever it weighs: a replica more (`source` None), one less
    (`target` None), or one elsewhere.
    """

    partition: PartitionId
    source: NodeId | None
    target: NodeId | None
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that was looked at and not done. `partition` None: the whole pair, or (then
    `target` is None too) the whole source.
    """

    kind: Literal["replica", "leader", "placement"]
    dimension: str
    source: NodeId | None
    target: NodeId | None
    partition: PartitionId | None
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, in this order, and (the first of them) what was refused and why."""

    moves: Sequence[Move]
    refusals: Sequence[Refusal]
    refused: int
    """How many refusals there were, also those that were not kept."""

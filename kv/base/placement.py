"""What a table wants of where its partitions are (docs/decisions/1495), and the words for it.

    survive    server, rack or datacenter: the loss of any one of them stops nothing; "": no goal
    leaders    labels of the nodes that should lead: dc=eu, or dc=eu,rack=r7; "": whoever

With a goal `replicas` are votes: an odd number, at least three, so that one of three domains, or
fewer than half of the votes, may be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kv.base.config_values import SITE_LABELS, domains

SURVIVE: Final = ("server", "rack", "datacenter")
SURVIVE_RULE: Final = f"{', '.join(SURVIVE[:-1])} or {SURVIVE[-1]}"
_LABELS: Final = ", ".join(f"{name}=NAME" for name in SITE_LABELS)
LEADERS_RULE: Final = f"some of {_LABELS}"
VOTES_MIN: Final = 3


class Placement(NamedTuple):
    """See the module. `replicas`: copies of each partition, 0 = one at every node; `tags`: that a
    node must carry to have one; `bytes_max`: above which a partition is split, 0 = the cluster's
    setting; `shard`: kv.base.shards.
    """

    replicas: int = 0
    tags: tuple[str, ...] = ()
    bytes_max: int = 0
    shard: str = ""
    survive: str = ""
    leaders: str = ""


def votes(survive: str, replicas: int) -> int:
    """How many vote for each partition of a table that wants so many replicas (0: it does not
    say).
    """
    return max(VOTES_MIN, replicas | 1) if survive else replicas


def is_goal(survive: object) -> bool:
    return survive == "" or survive in SURVIVE


def canonical_leaders(leaders: str) -> str:
    """The one way to write these labels. Raises ValueError."""
    if not leaders.strip():
        return ""
    said = zip(SITE_LABELS, domains(leaders), strict=True)
    return ",".join(f"{name}={value}" for name, value in said if value)


def is_preferred(leaders: str, site: Sequence[str]) -> bool:
    """Whether a node there (its datacenter, rack and server) should lead."""
    if not leaders:
        return False
    pairs = zip(domains(leaders), site, strict=True)
    return all(not wanted or wanted == there for wanted, there in pairs)

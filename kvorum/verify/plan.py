"""Which faults, when, for how long: drawn from the seed before anything happens.

A plan is a list of faults in the order of time. At most one is in force at any time, but for a
`restart` or a `kill`, after which the node may still be catching up when the next one comes. Each
fault leaves a majority alone, but for "kill all", which is what a power cut does; it comes seldom
and never last. What a fault hits is said by its shape and a number: who leads is known only when
its time has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from kv.base.errors import InvalidArgument
from kvorum.verify.random_choices import Chance

Kind = Literal["kill", "pause", "cut", "restart"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Shape = Literal["leader", "any", "all", "halves", "ring", "one-way"]
"""leader: of some partition; any: some node; all: every node; halves: a minority cut off from the
rest; ring: one link between two nodes cut, so that the third one sees both; one-way: nobody hears
the leader of some partition, who hears everybody.
"""

_SHAPES: Final[dict[Kind, Sequence[Shape]]] = {
    "kill": ("leader", "leader", "any", "any", "all"),
    "pause": ("leader", "leader", "any"),
    "cut": ("leader", "leader", "halves", "ring", "one-way"),
    "restart": ("leader", "any"),
}
_FIRST_S = (0.5, 1.5)  # quiet at the beginning
_CALM_S = (0.5, 3.0)  # between two faults
_LASTS_S: Final[dict[Kind, tuple[float, float]]] = {
    "kill": (0.1, 4.0),
    "pause": (0.2, 6.0),  # around the time-outs of leases and elections, on both sides of them
    "cut": (1.0, 6.0),
    "restart": (0.0, 1.0),
}
_QUIET_END_S = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """`at_s`: seconds after the load began. `draw`: in [0, 1), picks among those the shape allows.
    `lasts_s`: until it is undone.
    """

    at_s: float
    kind: Kind
    shape: Shape
    draw: float
    lasts_s: float


def parse_kinds(text: str, nodes: int) -> tuple[Kind, ...]:
    """The kinds of "kill,pause,cut" or "none", for a cluster of so many nodes. Raises
    InvalidArgument.
    """
    named = [part.strip() for part in text.split(",") if part.strip()]
    if named in ([], ["none"]):
        return ()
    unknown = [name for name in named if name not in KINDS]
    if unknown:
        raise InvalidArgument(f"{unknown[0]!r} is no fault; there are {', '.join(KINDS)} (or none)")
    if "cut" in named and nodes < 3:
        raise InvalidArgument(f"a cut needs 3 nodes or more, there are {nodes}: leave cut out")
    return tuple(kind for kind in KINDS if kind in named)


def plan(chance: Chance, kinds: Sequence[Kind], seconds: float) -> list[Fault]:
    """The faults of a run of so many seconds; all are undone before its end."""
    faults: list[Fault] = []
    if not kinds:
        return faults
    at = chance.between(*_FIRST_S)
    while True:
        kind = chance.pick(kinds)
        shortest, longest = _LASTS_S[kind]
        room = seconds - _QUIET_END_S - at
        if room <= shortest:
            break
        lasts = chance.between(shortest, min(longest, room))
        shape = chance.pick(_SHAPES[kind])
        faults.append(Fault(round(at, 3), kind, shape, chance.rng.random(), round(lasts, 3)))
        at += lasts + chance.between(*_CALM_S)
    if faults and faults[-1].shape == "all":
        # A power cut at the end would leave nothing to see of the recovery.
        faults[-1] = replace(faults[-1], shape="leader")
    return faults

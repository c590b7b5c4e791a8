"""Which faults, when, for how long: drawn from the seed before anything happens.

A plan is a list of faults in the order of time. At most one is in force at any time, but for a
`restart` or a `kill`, after which the node may still be catching up when the next one comes. Each
fault leaves a majority alone, but for "kill all", which is what a power cut does; it comes seldom
and never last. What a fault hits is said by its shape and a number: who leads is known only when
its time has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from kv.base.errors import InvalidArgument
from kvorum.verify.chance import Chance

Kind = Literal["kill", "pause", "cut", "restart"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Shape = Literal["leader", "any", "all", "halves", "ring"]
"""leader: of some partition; any: some node; all: every node; halves: a minority cut off from the
rest; ring: one link between two nodes cut, so that the third one sees both.
"""

_SHAPES: Final[dict[Kind, Sequence[Shape]]] = {
    "kill": ("leader", "leader", "any", "any", "all"),
    "pause": ("leader", "leader", "any"),
    "cut": ("leader", "leader", "halves", "ring"),
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


def parse_kinds(text: str) -> tuple[Kind, ...]:
    """ "kill,pause,cut" or "none". Raises InvalidArgument."""
    named = [part.strip() for part in text.split(",") if part.strip()]
    if named in ([], ["none"]):
        return ()
    unknown = [name for name in named if name not in KINDS]
    if unknown:
        raise InvalidArgument(f"{unknown[0]!r} is no fault; there are {', '.join(KINDS)} (or none)")
    return tuple(kind for kind in KINDS if kind in named)


def plan(chance: Chance, kinds: Sequence[Kind], *, nodes: int, seconds: float) -> list[Fault]:
    """The faults of a run of so many seconds on so many nodes; all are undone before its end.

    With fewer than three nodes there are no cuts that a majority survives: `cut` is refused with
    InvalidArgument.
    """
    if "cut" in kinds and nodes < 3:
        raise InvalidArgument(f"a cut needs 3 nodes or more, there are {nodes}: leave cut out")
    faults: list[Fault] = []
    if not kinds:
        return faults
    at = chance.between(*_FIRST_S)
    while True:
        kind = chance.pick(kinds)
        lasts = chance.between(*_LASTS_S[kind])
        if at + lasts > seconds - _QUIET_END_S:
            if faults and faults[-1].shape == "all":
                faults.pop()  # a power cut at the end would leave nothing to see of the recovery
            return faults
        shape = chance.pick(_SHAPES[kind])
        faults.append(Fault(round(at, 3), kind, shape, chance.rng.random(), round(lasts, 3)))
        at += lasts + chance.between(*_CALM_S)

"""Finds transactions that wait for each other in a circle, in what nodes tell of their waits. Pure.

An edge is a wait: its waiter can not go on before its holder ends. Both are told by their ids with
their users: whoever guesses a start_ts cannot make that transaction wait, and be a victim. A waiter
with several waits needs all of them, so every circle is a deadlock; but one look sees edges of
different moments, so a circle in one answer proves nothing. It is true when all its edges are there
in two looks, the second of which began after the first had ended: each of them stood from before
the first ended until after the second began, hence all together at one moment (`still`). An edge is
the same only for the same holder (`Wait.edge`). Nobody in a circle can leave it by itself, so none
is missed for ever.

The victim is the one with the lowest priority, of these the youngest: it has done least, and every
node that looks at the same circle names the same one. Sources: Chandy, Misra and Haas 1983 for the
model of requests that need all; the double look instead of their probes, because waits here last
tens of milliseconds at least and a look is one round trip.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from kv.base.errors import TxnAborted
from kv.base.intents import TxnId, start_of
from kv.base.limits import CYCLE_SHOWN_MAX
from kv.base.waits import Wait
from txn.shared.wait_terms import NAMES

DEADLOCK: Final = "DEADLOCK"
_CYCLES_MAX: Final = 64  # reported by one look; the next finds the rest

Cycle = Sequence[Wait]
"""Each one's holder is the next one's waiter, the last one's the first one's."""


def cycles(waits: Iterable[Wait], roots: Collection[TxnId]) -> list[Cycle]:
    """Circles that the transactions `roots` wait in or for, each without the victims of those
    before it.
    """
    edges: dict[TxnId, list[Wait]] = {}
    for wait in sorted(waits, key=lambda w: w.edge):
        if wait.waiter and wait.holder and wait.waiter_id != wait.holder_id:
            edges.setdefault(wait.waiter_id, []).append(wait)
    found: list[Cycle] = []
    while len(found) < _CYCLES_MAX:
        cycle = _first_cycle(edges, roots)
        if cycle is None:
            break
        found.append(cycle)
        del edges[victim(cycle).waiter_id]
    return found


def _first_cycle(edges: dict[TxnId, list[Wait]], roots: Collection[TxnId]) -> Cycle | None:
    """Depth first, each transaction once; the path is a list, since it may be long."""
    done: set[TxnId] = set()
    for root in sorted(roots, key=_in_order):
        path: list[Wait] = []  # from the root to where we are
        on_path: dict[TxnId, int] = {root: 0}
        left = [iter(edges.get(root, ()))]
        while left:
            wait = next(left[-1], None)
            if wait is None:
                left.pop()
                if path:
                    ended = path.pop().holder_id
                    done.add(ended)
                    del on_path[ended]
                continue
            holder = wait.holder_id
            if holder in on_path:
                return [*path[on_path[holder] :], wait]
            if holder in done or holder not in edges:
                continue
            path.append(wait)
            on_path[holder] = len(path)
            left.append(iter(edges[holder]))
        done.add(root)
    return None


def _in_order(id_: TxnId) -> tuple[int, bytes]:
    return start_of(id_), b"" if isinstance(id_, int) else id_


def still(cycle: Cycle, waits: Iterable[Wait]) -> bool:
    """Whether a later look shows the very same waits."""
    now = {wait.edge for wait in waits}
    return all(wait.edge in now for wait in cycle)


def victim(cycle: Cycle) -> Wait:
    """The wait that ends."""
    return min(cycle, key=lambda wait: (wait.priority, -wait.waiter, wait.waiter_user))


def refusal(cycle: Cycle, chosen: Wait) -> TxnAborted:
    """What the victim gets: the circle, beginning with itself."""
    at = cycle.index(chosen)
    ordered = [*cycle[at:], *cycle[:at]]
    owners = {w.holder: w.holder_owner for w in cycle if w.holder_owner}
    owners |= {w.waiter: w.waiter_owner for w in cycle if w.waiter_owner}
    names = {w.waiter: f"{w.waiter}{_of(owners.get(w.waiter, ''))}" for w in cycle}
    steps = [
        f"{names[w.waiter]} waits for {_shown(w.resource)}, held by {names[w.holder]}"
        for w in ordered[:CYCLE_SHOWN_MAX]
    ]
    more = len(ordered) - len(steps)
    return TxnAborted(
        f"transaction {names[chosen.waiter]} was rolled back, because {len(ordered)} transactions "
        f"wait for each other: {'; '.join(steps)}{f'; and {more} more' if more else ''}. Run it "
        "again, as db.run does",
        code=DEADLOCK,
        details={
            "txn": chosen.waiter,
            "reason": "deadlock",
            "key": chosen.resource,
            "cycle": [
                {
                    "txn": str(w.waiter),
                    "owner": owners.get(w.waiter, ""),
                    "priority": NAMES.get(w.priority, w.priority),
                    "node": w.node,
                    "waits_for": str(w.holder),
                    "key": w.resource,
                }
                for w in ordered[:CYCLE_SHOWN_MAX]
            ],
        },
    )


def _of(owner: str) -> str:
    return f" of {owner}" if owner else ""


def _shown(resource: bytes | str) -> str:
    return repr(resource[:64])

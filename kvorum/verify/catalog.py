"""Which workloads there are, and which checkers judge the history of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kv.base.errors import InvalidArgument
from kvorum.verify.anomaly import Anomaly
from kvorum.verify.checkers import (
    bank,
    batches,
    causal,
    counters,
    cycle,
    feed,
    linearizable,
    longfork,
    monotonic,
    procedures,
    queues,
    refusals,
    sets,
    sites,
    skew,
    stale,
    transactions,
    unique,
    versions,
)
from kvorum.verify.history import History
from kvorum.verify.workloads.appends import ListAppend
from kvorum.verify.workloads.bank import Bank
from kvorum.verify.workloads.base import Workload
from kvorum.verify.workloads.batches import Batch
from kvorum.verify.workloads.causal import Causal
from kvorum.verify.workloads.cycle import Cycle
from kvorum.verify.workloads.feed import Feed
from kvorum.verify.workloads.longfork import LongFork
from kvorum.verify.workloads.monotonic import Monotonic
from kvorum.verify.workloads.procedure import Procedures
from kvorum.verify.workloads.queues import Queues
from kvorum.verify.workloads.register import Register
from kvorum.verify.workloads.sets import Set
from kvorum.verify.workloads.sites import Sites
from kvorum.verify.workloads.skew import Skew
from kvorum.verify.workloads.stale import Stale
from kvorum.verify.workloads.uniqueids import UniqueIds

Checker = Callable[[History], list[Anomaly]]

_ALL: Final[Sequence[tuple[type[Workload], Sequence[Checker]]]] = (
    (Register, (linearizable.check, versions.check)),
    (ListAppend, (transactions.check,)),
    (Bank, (bank.check,)),
    (Set, (sets.check,)),
    (Cycle, (cycle.check,)),
    (LongFork, (longfork.check,)),
    (Monotonic, (monotonic.check, counters.check)),
    (Batch, (batches.check,)),
    (Stale, (batches.check, stale.check)),
    (UniqueIds, (unique.check,)),
    (Procedures, (procedures.check,)),
    (Queues, (queues.check,)),
    (Feed, (feed.check,)),
    (Skew, (skew.check,)),
    (Causal, (causal.check,)),
    (Sites, (sites.check,)),
)
WORKLOADS: Final[Mapping[str, type[Workload]]] = {kind.name: kind for kind, _ in _ALL}
CHECKERS: Final[Mapping[str, Sequence[Checker]]] = {
    kind.name: (refusals.check, *judges) for kind, judges in _ALL
}


def workload(name: str) -> type[Workload]:
    """Raises InvalidArgument naming those that there are."""
    if name not in WORKLOADS:
        raise InvalidArgument(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}")
    return WORKLOADS[name]


def judge(history: History) -> list[Anomaly]:
    """What all checkers of the history's workload find. Raises InvalidArgument for one that is not
    known, or whose events lack what its workload records.
    """
    name = workload(history.header.workload).name
    try:
        return [anomaly for check in CHECKERS[name] for anomaly in check(history)]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InvalidArgument(
            f"the history is not one of workload {name}: {type(error).__name__} {error}"
        ) from error

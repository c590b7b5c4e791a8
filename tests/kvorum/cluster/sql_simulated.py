"""SQL in the simulation of whole clusters (tests/sim/cluster): messages are lost, come twice or
late, nodes and clients die, partitions are split and moved, statements are cancelled, clients hang
up.

    python -m tests.kvorum.cluster.sql_simulated --seeds 1..200 [--only sql-register,…] [--trace]
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.catalog import CHECKERS, WORKLOADS
from kvorum.verify.checkers import bank, counters, linearizable, skew, transactions
from kvorum.verify.history import History
from kvorum.verify.workloads.base import Workload
from sqlproxy.session.running import loading
from tests.kit.quiet import quiet
from tests.kvorum.cluster.sql_workloads import (
    Appends,
    Bank,
    Counters,
    Family,
    Loads,
    Register,
    Seats,
    Skew,
    Unique,
    all_or_nothing,
    each_once,
    index_is_table,
    linearizable_by_name,
    no_orphans,
)
from tests.sim.cluster.plan import Plan, draw
from tests.sim.cluster.world import Outcome, run_plan

SQL: Final[dict[str, tuple[type[Workload], Sequence[Callable[[History], list[Anomaly]]]]]] = {
    "sql-register": (Register, (linearizable.check,)),
    "sql-unique": (Unique, (linearizable_by_name, index_is_table)),
    "sql-counters": (Counters, (counters.check,)),
    "sql-bank": (Bank, (bank.check,)),
    "sql-appends": (Appends, (transactions.check,)),
    "sql-skew": (Skew, (skew.check,)),
    "sql-family": (Family, (no_orphans,)),
    "sql-loads": (Loads, (all_or_nothing,)),
    "sql-seats": (Seats, (each_once,)),
}


@contextmanager
def _known() -> Iterator[None]:
    """The simulation knows these workloads."""
    kinds = cast(dict[str, Any], WORKLOADS)
    judges = cast(dict[str, Any], CHECKERS)
    rows_min = vars(loading)["SQL_LOAD_ROWS_MIN"]
    kinds |= {name: kind for name, (kind, _) in SQL.items()}
    judges |= {name: (_refused, *checks) for name, (_, checks) in SQL.items()}
    vars(loading)["SQL_LOAD_ROWS_MIN"] = 20
    try:
        yield
    finally:
        vars(loading)["SQL_LOAD_ROWS_MIN"] = rows_min
        for name in SQL:
            del kinds[name], judges[name]


def _refused(history: History) -> list[Anomaly]:
    """What no client should ever be told."""
    return [
        Anomaly("refused", f"#{o.id} {o.f} {o.args}: {o.error} {o.info['wrong']}", (o.id,))
        for o in history.operations()
        if "wrong" in o.info
    ]


def plan_of(seed: int, names: Sequence[str]) -> Plan:
    rng = random.Random(seed * 31)
    plan = draw(rng)
    plan.workload = names[seed % len(names)]
    plan.isolation = rng.choice(SQL[plan.workload][0].isolations)
    plan.gc_retention_ms = max(plan.gc_retention_ms, 5_000)
    plan.limits = 0.0
    if rng.random() < 0.4:
        plan.weights["reshape"] = 20
    return plan


def run_sql(seed: int, names: Sequence[str] = tuple(SQL), show: Any = None) -> Outcome:
    with _known():
        return run_plan(seed, plan_of(seed, names), show)


@quiet()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1..50")
    parser.add_argument("--only", default=",".join(SQL))
    parser.add_argument("--trace", action="store_true")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("..")
    bad = 0

    def show(line: str) -> None:
        sys.stdout.write(line + "\n")

    for seed in range(int(first), int(last or first) + 1):
        outcome = run_sql(seed, given.only.split(","), show if given.trace else None)
        kind = plan_of(seed, given.only.split(",")).workload
        show(
            f"{seed} {kind}: {outcome.operations} operations, {outcome.committed} done: "
            f"{outcome.violation or 'clean'}"
        )
        bad += outcome.violation is not None
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())

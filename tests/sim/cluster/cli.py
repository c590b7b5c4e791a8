"""`python -m tests.sim.cluster`: many seeds, or one seed with its trace.

python -m tests.sim.cluster --seeds 1..5000 --jobs 2       the long run: clean, and every probe hit
python -m tests.sim.cluster --clock hybrid --seeds 1..1000  clusters with hybrid clocks: causality
python -m tests.sim.cluster --seeds 17 --trace             one seed, line by line
python -m tests.sim.cluster --seeds 1..100 --mutation X    a broken build, until it is noticed
python -m tests.sim.cluster --proof                        every broken build: each must be noticed
python -m tests.sim.cluster --crash-points                 one commit, killed at every message and
                                                           sync
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from kvorum.testing.simulation.probes import probes
from tests.kit.quiet import quiet
from tests.sim.cluster.crashpoints import enumerate_all
from tests.sim.cluster.mutations import MUTATIONS
from tests.sim.cluster.probes import RARE
from tests.sim.cluster.proof import prove_all
from tests.sim.cluster.world import Outcome, run_seed

CHUNK = 10
"""Seeds per job."""
SEEDS_FOR_PROBES = 1000
"""A run of so many seeds must have been everywhere."""


@quiet()
def main(argv: list[str] | None = None) -> int:
    """0: clean; 1: a violation, or a probe that a long run never hit; 2: wrong arguments."""
    options = _parser().parse_args(argv)
    if options.proof:
        return prove_all(_say)
    if options.crash_points:
        return enumerate_all(_say)
    first, last = options.seeds
    if options.trace or options.digests:
        for seed in range(first, last + 1):
            show = _print if options.trace else None
            outcome = run_seed(seed, mutation=options.mutation, show=show, clock=options.clock)
            if options.digests:
                _print(f"{seed} {outcome.digest:08x}")
            else:
                _say(f"seed {seed}: {outcome.violation or 'clean'}; trace {outcome.digest:08x}")
        return 1 if outcome.violation else 0
    return run_many(
        first,
        last,
        jobs=options.jobs,
        say=_say,
        mutation=options.mutation,
        keep_going=options.keep_going,
        clock=options.clock,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=_range, default=(1, 200), metavar="A..B")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--keep-going", action="store_true", help="after a violation")
    parser.add_argument("--mutation", default="", choices=["", *MUTATIONS])
    parser.add_argument("--clock", default="", choices=["", "hybrid"], help="of all plans")
    parser.add_argument("--proof", action="store_true", help="every broken build in turn")
    parser.add_argument("--crash-points", action="store_true", help="of one commit, all of them")
    parser.add_argument("--trace", action="store_true", help="show the seeds line by line")
    parser.add_argument("--digests", action="store_true", help="only tell the traces' numbers")
    return parser


def _range(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    return int(first), int(last) if dots else int(first)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


def replay_command(seed: int, mutation: str = "", clock: str = "") -> str:
    """What to type to see this seed again, line by line."""
    of = f" --mutation {mutation}" if mutation else ""
    of += f" --clock {clock}" if clock else ""
    return f"python -m tests.sim.cluster --seeds {seed}{of} --trace"


Chunk = tuple[list[tuple[int, Outcome]], Counter[str]]


@quiet()
def run_chunk(seeds: range, mutation: str = "", keep_going: bool = False, clock: str = "") -> Chunk:
    """Some seeds in this process: what came of each, and how often the probes were hit."""
    probes.counts.clear()
    outcomes = []
    for seed in seeds:
        outcomes.append((seed, run_seed(seed, mutation=mutation, clock=clock)))
        if outcomes[-1][1].violation and not keep_going:
            break
    return outcomes, probes.counts


def run_many(
    first: int,
    last: int,
    *,
    jobs: int,
    say: Callable[[str], None],
    mutation: str = "",
    keep_going: bool = False,
    clock: str = "",
) -> int:
    """Exit code."""
    began_s = time.monotonic()
    chunks = [range(at, min(at + CHUNK, last + 1)) for at in range(first, last + 1, CHUNK)]
    outcomes: list[tuple[int, Outcome]] = []
    hits: Counter[str] = Counter()
    bad = 0
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(run_chunk, chunk, mutation, keep_going, clock) for chunk in chunks]
        for job in as_completed(running):
            done, counts = job.result()
            hits += counts
            outcomes += done
            for seed, outcome in done:
                if outcome.violation:
                    bad += 1
                    again = replay_command(seed, mutation, clock)
                    say(f"seed {seed}: {outcome.violation}\n  {again}")
            if bad and not keep_going:
                pool.shutdown(cancel_futures=True)
                break
            if len(outcomes) % (20 * CHUNK) < len(done):
                say(f"{len(outcomes)} seeds, {time.monotonic() - began_s:.0f} s")
    rare = () if mutation or clock or len(outcomes) < SEEDS_FOR_PROBES else RARE
    missed = [name for name in rare if not hits[name]]
    _summary(outcomes, hits, bad, missed, time.monotonic() - began_s, say)
    return 1 if bad or missed else 0


def _summary(
    outcomes: list[tuple[int, Outcome]],
    hits: Counter[str],
    bad: int,
    missed: list[str],
    wall_s: float,
    say: Callable[[str], None],
) -> None:
    seeds = len(outcomes)
    operations = sum(outcome.operations for _, outcome in outcomes)
    say(
        f"{seeds} seeds, {bad} violations, {wall_s:.1f} s, {seeds / wall_s:.1f} seeds/s, "
        f"{operations / max(1, seeds):.0f} operations per seed"
    )
    for name in sorted(hits):
        say(f"  {hits[name]:9} {name}")
    if missed:
        say(f"never happened in {seeds} seeds: {', '.join(missed)}")

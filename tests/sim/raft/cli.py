"""`python -m tests.sim.raft`: many seeds, one seed with its trace, or the proof of power.

python -m tests.sim.raft --seeds 1..5000 --jobs 2         the long run: clean, and every probe hit
python -m tests.sim.raft --seeds 17 --trace               one seed, line by line
python -m tests.sim.raft --seeds 1..300 --rule-off P2     until the first violation (exit code 1)
python -m tests.sim.raft --proof                          every rule off in turn: each must be
                                                          caught
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.sim.raft.directed import SCENARIOS, play
from tests.sim.raft.probes import RARE, probes
from tests.sim.raft.proof import prove
from tests.sim.raft.rules import RULES, switched_off
from tests.sim.raft.run import MODES, replay_command, run_seed, show_line
from tests.sim.raft.world import Outcome

CHUNK = 50
"""Seeds per job."""
SEEDS_FOR_PROBES = 1000
"""A run of so many seeds must have been everywhere."""


def main(argv: list[str] | None = None) -> int:
    """0: clean; 1: a violation, or a probe that a long run never hit; 2: wrong arguments."""
    options = _parser().parse_args(argv)
    if options.proof:
        return prove(_say)
    first, last = options.seeds
    rules_off = tuple(options.rule_off)
    if options.scenario or options.trace:
        show = show_line if options.trace else None
        if options.scenario:
            with switched_off(*rules_off, alone=True):
                outcome = play(options.scenario, first, show)
        else:
            outcome = run_seed(first, options.mode, rules_off=rules_off, trace=show)
        _say(f"seed {first}: {outcome.violation or 'clean'}; trace {outcome.digest}")
        return 1 if outcome.violation else 0
    return _run_many(first, last, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.raft",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=_range, default=(1, 200), metavar="A..B")
    parser.add_argument("--mode", choices=sorted(MODES), default="chaos")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--rule-off", action="append", default=[], choices=sorted(RULES))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--keep-going", action="store_true", help="after a violation")
    parser.add_argument("--trace", action="store_true", help="show the first seed line by line")
    parser.add_argument("--proof", action="store_true", help="switch every rule off in turn")
    return parser


def _range(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    return int(first), int(last) if dots else int(first)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


Chunk = tuple[list[tuple[int, Outcome]], Counter[str]]


def _run_chunk(seeds: range, mode: str, rules_off: tuple[str, ...], keep_going: bool) -> Chunk:
    probes.counts.clear()
    outcomes = []
    for seed in seeds:
        outcomes.append((seed, run_seed(seed, mode, rules_off=rules_off)))
        if outcomes[-1][1].violation and not keep_going:
            break
    return outcomes, probes.counts


def _run_many(first: int, last: int, options: argparse.Namespace) -> int:
    rules_off, began_s = tuple(options.rule_off), time.monotonic()
    chunks = [range(at, min(at + CHUNK, last + 1)) for at in range(first, last + 1, CHUNK)]
    seeds, events, bad = 0, 0, []
    hits: Counter[str] = Counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        jobs = [
            pool.submit(_run_chunk, chunk, options.mode, rules_off, options.keep_going)
            for chunk in chunks
        ]
        for job in as_completed(jobs):
            outcomes, counts = job.result()
            hits += counts
            seeds += len(outcomes)
            events += sum(outcome.events for _, outcome in outcomes)
            found = [(seed, outcome) for seed, outcome in outcomes if outcome.violation]
            for seed, outcome in found:
                _say(f"seed {seed}: {outcome.violation}")
                _say(f"  {replay_command(seed, options.mode, rules_off)}")
            bad += found
            if bad and not options.keep_going:
                pool.shutdown(cancel_futures=True)
                break
            if seeds % (20 * CHUNK) < CHUNK:
                _say(f"{seeds} seeds, {time.monotonic() - began_s:.0f} s")
    wall_s = time.monotonic() - began_s
    _say(
        f"{seeds} seeds, {len(bad)} violations, {wall_s:.1f} s, {seeds / wall_s:.1f} seeds/s, "
        f"{events / max(1, seeds):.0f} events per seed"
    )
    for name in sorted(hits):
        _say(f"  {hits[name]:9} {name}")
    missed = [name for name in RARE if not hits[name]] if seeds >= SEEDS_FOR_PROBES else []
    if missed and not rules_off and options.mode == "chaos":
        _say(f"never happened in {seeds} seeds: {', '.join(missed)}")
        return 1
    return 1 if bad else 0

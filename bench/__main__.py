"""python -m bench NAME …: prints one JSON line per case (progress and tables go to stderr)."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bench import (
    cluster,
    compare,
    kv,
    many_procedures,
    memory,
    procedures,
    recovery,
    recovery_procedures,
    report,
    spark,
    split,
    spread,
    stores,
    traffic,
    transactions,
)
from bench.machine import describe
from bench.node import ROOT
from bench.stats import Record


def _numbers(text: str) -> list[int]:
    """`1,16,64` as integers."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of numbers like 1,16,64"
        ) from None
    if min(found) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} has a negative number")
    return found


def _counts(text: str) -> list[int]:
    """The same, all at least 1."""
    found = _numbers(text)
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: 1 is the least")
    return found


def _some_of(allowed: tuple[str, ...]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        found = text.split(",")
        for name in found:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(allowed)}")
        return found

    return parse


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="NAME")

    def command(name: str, help_text: str, *, reps: int = 3) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help_text)
        sub.add_argument("--reps", type=int, default=reps, help="windows per case; medians count")
        sub.add_argument("--secs", type=float, default=2.0, help="seconds of a window")
        return sub

    one = command("kv", "operations against one node")
    one.add_argument("--ops", type=_some_of(kv.OPS), default=list(kv.OPS))
    one.add_argument("--clients", type=_counts, default=[1, 16, 64, 256])
    one.add_argument("--sizes", type=_counts, default=[100, 1024], help="bytes of a value")
    one.add_argument("--transport", type=_some_of(kv.TRANSPORTS), default=["native"])
    one.add_argument("--client", choices=["auto", "lean", "sdk"], default="auto")
    one.add_argument("--procs", type=int, default=1, help="client processes")

    one = command("cluster", "operations against three nodes")
    one.add_argument("--ops", type=_some_of(kv.OPS), default=["put", "get"])
    one.add_argument("--clients", type=_counts, default=[1, 64, 256])
    one.add_argument("--sizes", type=_counts, default=[100], help="bytes of a value")
    one.add_argument("--transport", type=_some_of(kv.TRANSPORTS), default=["native", "mux"])
    one.add_argument("--client", choices=["auto", "lean", "sdk"], default="auto")

    command("failover", "three nodes, the leader killed under load", reps=10)

    one = command("groups", "log syncs with one group and with many, on three nodes")
    one.add_argument("--groups", type=_counts, default=[1, 200])

    one = command("stores", "one machine with one store and with several: throughput")
    one.add_argument("--stores", type=_counts, default=[1, 2])

    one = command("transactions", "two keys, two partitions, a bank, timestamps")
    one.add_argument("--nodes", type=int, choices=[1, 3], default=1)

    one = command("procedures", "durable procedures, steps per second")
    one.add_argument("--steps", type=_counts, default=list(procedures.STEPS))
    one.add_argument("--clients", type=_counts, default=list(procedures.CLIENTS))

    one.add_argument("--nodes", type=int, choices=[1, 3], default=1)

    one = command("recovery-procedures", "kill -9 of the master and of a worker under procedures")
    places = recovery_procedures.PLACES
    one.add_argument("--places", type=_some_of(places), default=list(places))

    one = command("many-procedures", "memory and CPU per step while very many procedures wait")
    one.add_argument("--waiting", type=_numbers, default=list(many_procedures.COUNTS))
    kinds = tuple(many_procedures.KINDS)
    one.add_argument("--kinds", type=_some_of(kinds), default=list(kinds))

    one = command("split", "writes while their table is split all the time")
    one.add_argument("--clients", type=_counts, default=[16])
    one.add_argument("--merges", action="store_true", help="merge, too")

    one = command("traffic", "single rows beside COPY FROM and a batch of the Spark sink")
    one.add_argument("--rows", type=int, default=traffic.ROWS)

    one = command("spread", "rising keys loaded into one table of three nodes", reps=1)
    one.add_argument("--rows", type=int, default=spread.ROWS)
    one.add_argument("--bytes-max", type=int, default=spread.BYTES_MAX)
    one.add_argument("--settle-s", type=float, default=spread.SETTLE_S)
    one.add_argument("--replicas", type=_counts, default=[3, 1], help="of the table; a run of each")

    one = command("spark", "batch and streaming writes from Spark (needs Java 17)")
    one.add_argument("--nodes", type=int, default=1)
    one.add_argument("--rows", type=int, default=int(os.environ.get("PEERS_ROWS", spark.ROWS)))

    one = command("memory", "an idle node, and one with a gigabyte")
    one.add_argument("--load-mb", type=int, default=1000)

    one = command("recovery", "kill -9, ready again, first write")
    one.add_argument("--sizes-mb", type=_numbers, default=[0, 100], help="data held when killed")

    one = command("compare", "Kvorum and its peers in turn, ratios, goals")
    one.add_argument("names", nargs="*", metavar="PART", help=f"of {', '.join(compare.NAMES)}")
    default = os.environ.get("PEERS_SCRIPTS", str(ROOT.parent / "shared" / "peers"))
    one.add_argument(
        "--peers", type=Path, default=Path(default), help="folder of the peers' scripts"
    )
    home = os.environ.get("PEERS_HOME", "/opt/peers")
    one.add_argument("--home", type=Path, default=Path(home), help="what peers_setup.sh installed")
    one.add_argument("--rows", type=int, default=int(os.environ.get("PEERS_ROWS", spark.ROWS)))

    one = commands.add_parser("report", help="JSON lines as Markdown")
    one.add_argument("results", type=Path, nargs="+")
    one.add_argument(
        "--into", type=Path, help="a page with the two markers, such as docs/performance.md"
    )
    return top


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The checked arguments; wrong ones end the program with usage and exit code 2."""
    top = parser()
    args = top.parse_args(argv)
    if args.command != "report" and (args.reps < 1 or args.secs <= 0):
        top.error("--reps must be at least 1 and --secs more than 0")
    if args.command == "compare":
        wrong = sorted(set(args.names) - set(compare.NAMES))
        if wrong:
            top.error(f"{wrong[0]!r} is none of {', '.join(compare.NAMES)}")
        args.names = args.names or list(compare.NAMES)
    return args


def _records(args: argparse.Namespace) -> Iterator[Record]:  # noqa: C901 - a case per command
    yield describe(Path(os.environ.get("PEERS_WORK", tempfile.gettempdir())))
    match args.command:
        case "kv":
            wanted = kv.cases(
                ops=args.ops,
                clients=args.clients,
                sizes=args.sizes,
                transports=args.transport,
                client=args.client,
            )
            yield from kv.run(wanted, reps=args.reps, secs=args.secs, procs=args.procs)
        case "cluster":
            wanted = kv.cases(
                ops=args.ops,
                clients=args.clients,
                sizes=args.sizes,
                transports=args.transport,
                client=args.client,
            )
            yield from cluster.run(wanted, reps=args.reps, secs=args.secs)
        case "failover":
            yield from cluster.failover(reps=args.reps)
        case "groups":
            yield from cluster.groups(args.groups, reps=args.reps, secs=args.secs)
        case "stores":
            yield from stores.run(args.stores, reps=args.reps, secs=args.secs)
        case "transactions":
            yield from transactions.run(nodes=args.nodes, reps=args.reps, secs=args.secs)
        case "procedures":
            yield from procedures.run(
                args.steps, args.clients, nodes=args.nodes, reps=args.reps, secs=args.secs
            )
        case "recovery-procedures":
            yield from recovery_procedures.run(args.places, reps=args.reps)
        case "many-procedures":
            yield from many_procedures.run(args.waiting, args.kinds, reps=args.reps, secs=args.secs)
        case "split":
            yield from split.run(args.clients, merges=args.merges, reps=args.reps, secs=args.secs)
        case "traffic":
            yield from traffic.run(args.rows, reps=args.reps, secs=args.secs)
        case "spread":
            for replicas in args.replicas:
                yield from spread.run(
                    args.rows,
                    bytes_max=args.bytes_max,
                    settle_s=args.settle_s,
                    replicas=replicas,
                )
        case "spark":
            yield from spark.run(args.rows, reps=args.reps, nodes=args.nodes)
        case "memory":
            yield from memory.run(args.load_mb)
        case "recovery":
            yield from recovery.run(args.sizes_mb, reps=args.reps)
        case "compare":
            yield from compare.run(
                args.names, args.peers, args.home, rows=args.rows, reps=args.reps, secs=args.secs
            )
        case _:
            raise AssertionError(args.command)


def _print(records: Iterable[Record]) -> list[Record]:
    seen = []
    for record in records:
        seen.append(record)
        print(json.dumps(record, separators=(",", ":")), flush=True)
    return seen


def _report(results: list[Path], into: Path | None) -> None:
    records = [record for path in results for record in report.read(path.read_text().splitlines())]
    text = report.render(records)
    if into is None:
        print(text, end="")
    else:
        report.insert(into, text)


def main() -> int:
    args = parse()
    # An ordinary exit runs what stops nodes and removes folders.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if args.command == "report":
        _report(args.results, args.into)
        return 0
    seen = _print(_records(args))
    if args.command == "compare":
        print("\n" + report.goals_table(seen), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

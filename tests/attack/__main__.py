"""`make attack`: a million hostile inputs, and what they did.

    python -m tests.attack --inputs 1000000 --seed 1

Most go to the decoders in this process, a fifth by atheris, which looks for new code; one in fifty
is a stream at a node's ports, one in two hundred a statement; schemathesis asks for two minutes and
a half what our OpenAPI document tells. The same seed gives the same inputs. Ends with 1 if anything
was found.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.attack import live
from tests.attack.decoders import memory_bytes, of_messages, of_types, targets, tried
from tests.attack.mutations import Mutator
from tests.kit.commands import settings
from tests.kit.machine import ROOT, free_port_base
from tests.kit.processes import NodeProcess

_GROWTH_BYTES: Final = 64 << 20
_STREAMS_PER: Final = 50
_STATEMENTS_PER: Final = 200
_GUIDED_PER: Final = 5
_SHOWN_MAX: Final = 50


def decoders(count: int, seed: int) -> list[str]:
    """What was found, each kind once."""
    groups, mutator = (of_messages(), [*of_types()]), Mutator(seed)
    found: dict[tuple[str, str], str] = {}
    for target in targets():  # once, so that what is cached counts as before
        for sample in target.samples:
            tried(target, sample)
    before = memory_bytes()
    for number in range(count):
        group = groups[number % 2]
        target = group[number // 2 % len(group)]
        one = tried(target, mutator.make(target.samples))
        if one is not None and len(found) < _SHOWN_MAX:
            found.setdefault((one.target, one.what[:40]), str(one))
    if (grown := memory_bytes() - before) > _GROWTH_BYTES:
        found["memory", ""] = f"decoders: {grown >> 20} MiB more than before"
    return list(found.values())


def guided(count: int, seed: int, report: live.Report) -> None:
    """The decoders again, by a fuzzer that looks for new code."""
    if importlib.util.find_spec("atheris") is None:
        report.skipped.append("atheris")
        return
    words = [sys.executable, "-m", "tests.attack.guided", f"-runs={count}", f"-seed={seed}"]
    done = subprocess.run(words, cwd=ROOT, env=settings(), capture_output=True, text=True)
    report.inputs += count
    if done.returncode:
        report.found(f"atheris: {done.stderr[-900:]}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bystander", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bystander:
        live.bystander(given.bystander)
        return 0
    counts = given.inputs // _STREAMS_PER, given.inputs // _STATEMENTS_PER
    inside = given.inputs - sum(counts) - given.inputs // _GUIDED_PER
    began = time.monotonic()
    found = decoders(inside, given.seed)
    print(
        f"{inside} inputs to {len(targets())} decoders: {time.monotonic() - began:.0f} s",
        flush=True,
    )
    with (
        tempfile.TemporaryDirectory(prefix="kvorum-attack-") as home,
        NodeProcess(Path(home) / "data", free_port_base()) as node,
    ):
        node.start()
        report, slowest = live.attack(node, counts, given.seed)
    guided(given.inputs // _GUIDED_PER, given.seed, report)
    for name in report.skipped:
        print(f"without {name}: it is not installed (make attack does that)")
    print(f"{report.inputs} others: {time.monotonic() - began:.0f} s in all")
    print("slowest of bystanders:", {name: f"{s * 1e3:.0f} ms" for name, s in slowest.items()})
    found += report.findings
    print(f"seed {given.seed}, {given.inputs} inputs: {len(found)} findings")
    for one in found:
        print(" *", one)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

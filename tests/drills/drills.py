"""What may happen to the machines of a cluster, and what must be so while and after it does.

    load ─────────────────────────────────────────────▶  puts, batches, procedures (workload.py)
           calm · hurt, and undo it · calm · stop
                                                    └▶  whole again, then every answer is checked

A drill holds if nothing that was acknowledged is lost, done twice or out of order, if no write had
to wait longer than `gap_s`, and if all replicas are level `WHOLE_S` after the load, at the latest.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

import kvorum
from kv.base.config import HYBRID
from procedures.master.members.relocating import TRANSFER_LEADER
from tests.drills.machines import Machines, no_compiler, no_mounts
from tests.kit.commands import run
from tests.processes.workload import Seen, check, load, prepare

CALM_S: Final = 1.0
HURT_S: Final = 3.0
WHOLE_S: Final = 30.0
GAP_S: Final = 5.0  # an election, on a machine that runs all nodes and their clients
START_S: Final = 60.0  # … or until nodes have started anew
AN_HOUR_MS: Final = 3_600_000


def _nothing() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """`hurt` runs in a thread. `needs` says why it cannot be held here."""

    name: str
    what: str
    hurt: Callable[[Machines], None]
    gap_s: float = GAP_S
    needs: Callable[[], str] = _nothing
    clock: str = ""
    ahead_ms: tuple[int, ...] = ()


@dataclass(slots=True)
class Report:
    """What came of one. `wrong`: empty if it held; `skipped`: why it was not held."""

    drill: Drill
    writes: int = 0
    gap_s: float = 0.0
    whole_s: float = 0.0
    wrong: list[str] = field(default_factory=list)
    skipped: str = ""


def hold(drill: Drill) -> Report:
    """A drill, on a cluster of its own."""
    report = Report(drill, skipped=drill.needs())
    if not report.skipped:
        with machines(drill.clock, drill.ahead_ms) as nodes:
            try:
                _hold(drill, nodes, report)
            except (AssertionError, kvorum.KvorumError) as error:
                report.wrong.append(str(error))
            except BaseExceptionGroup as errors:
                report.wrong += map(str, errors.exceptions)
    return report


@contextlib.contextmanager
def machines(clock: str = "", ahead_ms: tuple[int, ...] = ()) -> Iterator[Machines]:
    """Three nodes that run; nothing is left of them afterwards."""
    with tempfile.TemporaryDirectory(prefix="kvorum-drill-") as directory:
        nodes = Machines(Path(directory), clock=clock, ahead_ms=ahead_ms)
        with nodes.cables:
            try:
                nodes.start()
                yield nodes
            finally:
                for node in nodes.local.nodes:
                    if node.state() == "paused":
                        nodes.resume(node.id)
                nodes.local.down(within_s=10)
                nodes.close()


def _hold(drill: Drill, nodes: Machines, report: Report) -> None:
    seen = Seen()
    prepare(nodes.url)
    asyncio.run(_hurt_under_load(drill, nodes, seen))
    report.writes, report.gap_s = len(seen.puts) + len(seen.batches), seen.gap_s
    began_s = time.monotonic()
    nodes.mend()
    report.whole_s = time.monotonic() - began_s
    if report.gap_s > drill.gap_s:
        report.wrong.append(f"no write for {report.gap_s:.1f} s")
    if report.whole_s > WHOLE_S:
        report.wrong.append(f"whole again after {report.whole_s:.1f} s")
    report.wrong += seen.went_back[:3]
    with kvorum.connect(nodes.url) as db:
        check(db, seen)


async def _hurt_under_load(drill: Drill, nodes: Machines, seen: Seen) -> None:
    async with load(nodes.url, seen):
        await asyncio.sleep(CALM_S)
        await asyncio.to_thread(drill.hurt, nodes)
        await asyncio.sleep(CALM_S)


# ------------------------------------------------------------------------------------- processes


def _kill(nodes: Machines, victim: int) -> None:
    nodes.kill(victim)
    time.sleep(HURT_S)
    nodes.start(victim)


def kill_master(nodes: Machines) -> None:
    _kill(nodes, nodes.leader())


def kill_leader(nodes: Machines) -> None:
    _kill(nodes, nodes.leader(_last_partition(nodes)))


def kill_follower(nodes: Machines) -> None:
    _kill(nodes, nodes.others(nodes.leader())[0])


def kill_all(nodes: Machines) -> None:
    for victim in nodes.numbers:
        nodes.kill(victim)
    nodes.start()


def suspend(nodes: Machines) -> None:
    victim = nodes.leader()
    nodes.pause(victim)
    time.sleep(HURT_S)
    nodes.resume(victim)


def _last_partition(nodes: Machines) -> int:
    with kvorum.connect(nodes.url) as db:
        return max(int(row["id"]) for row in db.partitions())


# ----------------------------------------------------------------------------------------- cables


def cut_leader(nodes: Machines) -> None:
    leader = nodes.leader()
    nodes.cables.part([leader], nodes.others(leader))
    time.sleep(HURT_S)
    nodes.cables.heal()


def cut_link(nodes: Machines) -> None:
    leader = nodes.leader()
    nodes.cables.part([leader], nodes.others(leader)[:1])
    time.sleep(HURT_S)
    nodes.cables.heal()


def mute_leader(nodes: Machines) -> None:
    leader = nodes.leader()
    nodes.cables.cut(*((leader, other) for other in nodes.others(leader)))
    time.sleep(HURT_S)
    nodes.cables.heal()


# ------------------------------------------------------------------------------- disks and clocks


def full_disk(nodes: Machines) -> None:
    victim = nodes.leader()
    nodes.kill(victim)
    with nodes.full_disk(victim):
        time.sleep(HURT_S)


def slow_disk(nodes: Machines) -> None:
    victim = nodes.leader()
    nodes.slow_disk(victim, 300)
    time.sleep(HURT_S)
    nodes.slow_disk(victim, 0)


def _leap(nodes: Machines, ms: int) -> None:
    victim = nodes.leader()
    nodes.wrong_clock(victim, ms)
    time.sleep(HURT_S)
    nodes.wrong_clock(victim, 0)


def leap_ahead(nodes: Machines) -> None:
    _leap(nodes, AN_HOUR_MS)


def leap_back(nodes: Machines) -> None:
    _leap(nodes, -AN_HOUR_MS)


def skewed(nodes: Machines) -> None:
    """The clocks differ already; one of them leaps too far, then the master dies."""
    leap_ahead(nodes)
    kill_master(nodes)


# ------------------------------------------------------------------------------ what operators do


def move_leaders(nodes: Machines) -> None:
    with kvorum.connect(nodes.url) as db:
        for turn in range(9):
            for row in db.partitions():
                target = nodes.numbers[turn % len(nodes.numbers)]
                args = {"partition": row["id"], "to": target, "why": "a drill"}
                with contextlib.suppress(kvorum.KvorumError):  # it leads there already
                    db.wait(db.submit(TRANSFER_LEADER, args), timeout_ms=20_000)


def restart_all(nodes: Machines) -> None:
    for victim in nodes.numbers:
        process = nodes.local.node(victim).process()
        assert process is not None
        nodes.local.signal(victim, signal.SIGTERM)
        psutil.wait_procs([process], timeout=30)
        nodes.start(victim)
        nodes.wait_caught_up(lag_max=300)


def replace_all(nodes: Machines) -> None:
    for old in nodes.numbers:
        nodes.replace(old)


def restore(nodes: Machines) -> None:
    """A backup is taken under the load; an empty cluster is made of it, and has what was there at
    its moment: no more, no less.
    """
    target = nodes.local.directory.parent / "backup"
    run("backup", str(target), "--json", connect=nodes.local.connect, apart=True)
    run("backup", "verify", str(target), "--json", apart=True)
    with machines() as others:
        shown = run("restore", str(target), "--json", connect=others.local.connect, apart=True).json
        with kvorum.connect(nodes.url) as was, kvorum.connect(others.url) as now:
            wanted = _rows(was, int(shown["at"]))
            assert _rows(now) == wanted, "the restored cluster differs"
    shutil.rmtree(target)


def _rows(db: kvorum.Database, at: int | None = None) -> dict[bytes, bytes]:
    """What no procedure writes: those go on in a restored cluster."""
    rows = db.table("default", "k").rows(at=at)
    return {row.key: row.value for row in rows if not row.key.startswith(b"proc")}


DRILLS: Final = (
    Drill(
        name="kill-master", what="kill -9 of the master, who gives out timestamps", hurt=kill_master
    ),
    Drill(
        name="kill-leader", what="kill -9 of the leader of a table's partition", hurt=kill_leader
    ),
    Drill(
        name="kill-follower", what="kill -9 of a node that is not the master", hurt=kill_follower
    ),
    Drill(name="kill-all", what="kill -9 of all nodes at once", hurt=kill_all, gap_s=START_S),
    Drill(
        name="suspend",
        what="SIGSTOP of the master for 3 s",
        hurt=suspend,
    ),
    Drill(
        name="cut-leader", what="the master is cut off from both others for 3 s", hurt=cut_leader
    ),
    Drill(
        name="cut-link",
        what="one link of the master is cut for 3 s",
        hurt=cut_link,
    ),
    Drill(
        name="mute-leader", what="nobody hears the master for 3 s, who hears all", hurt=mute_leader
    ),
    Drill(
        name="full-disk",
        what="the disk of a node is full for 3 s",
        hurt=full_disk,
        needs=no_mounts,
    ),
    Drill(
        name="slow-disk",
        what="each sync of the master takes 300 ms longer for 3 s",
        hurt=slow_disk,
        needs=no_compiler,
    ),
    Drill(
        name="clock-ahead",
        what="the master's clock leaps an hour ahead, and back after 3 s",
        hurt=leap_ahead,
        needs=no_compiler,
    ),
    Drill(
        name="clock-back",
        what="the master's clock leaps an hour back, and ahead after 3 s",
        hurt=leap_back,
        needs=no_compiler,
    ),
    Drill(
        name="skewed",
        what="hybrid clocks 100 ms apart: one leaps an hour for 3 s, then kill -9 of the master",
        hurt=skewed,
        needs=no_compiler,
        clock=HYBRID,
        ahead_ms=(50, -50, 0),
    ),
    Drill(
        name="move-leaders", what="every partition is led by each node in turn", hurt=move_leaders
    ),
    Drill(
        name="restart-all",
        what="a rolling restart, as of an upgrade",
        hurt=restart_all,
    ),
    Drill(
        name="replace-all",
        what="every node is replaced by a new one",
        hurt=replace_all,
    ),
    Drill(
        name="restore",
        what="a backup under load, restored into an empty cluster",
        hurt=restore,
    ),
)

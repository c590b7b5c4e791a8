"""`kvorum verify`: run a workload on a cluster, hurt the cluster, and check what clients saw."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kv.base.config import PORT_DEFAULT, PORTS_PER_NODE
from kv.base.errors import InvalidArgument, KvorumError, Unavailable
from kvorum.cli import output
from kvorum.cli.connection import Json

if TYPE_CHECKING:
    from kvorum.localcluster import LocalCluster
    from kvorum.verify.history import Event, History
    from kvorum.verify.nemesis import Nemesis
    from kvorum.verify.report import Report
    from kvorum.verify.session import Session

_PROGRESS_S = 2.0
_STOP_S = 20.0
_NODES = 3
_NODES_MAX = 9  # of a local cluster
_PORT = PORT_DEFAULT + 1_000  # not where a cluster of the user's may listen already


def verify(
    workload: Annotated[
        str, typer.Option(help="Names, with commas between them (run side by side), or all.")
    ] = "bank",
    seconds: Annotated[float, typer.Option(help="How long the load runs.")] = 60.0,
    nemesis: Annotated[
        str, typer.Option(help="Faults: some of kill, pause, cut, restart; or none.")
    ] = "",
    nodes: Annotated[
        int | None, typer.Option(help="Nodes of a new local cluster; 3 if left out.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Directory of a local cluster: one that runs is used and left running, else a "
            "new one is made there. Left out: a new one in a temporary directory."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Node I of a new one listens from PORT + 10·I.")
    ] = _PORT,
    connect: Annotated[
        str | None,
        typer.Option(help="HOST:BASE[,…] of a running cluster, which is not hurt (no nemesis)."),
    ] = None,
    clients: Annotated[int, typer.Option(help="Concurrent clients of each workload.")] = 8,
    seed: Annotated[
        int | None, typer.Option(help="Of the choices of clients and nemesis; else drawn.")
    ] = None,
    isolation: Annotated[str, typer.Option(help="snapshot or serializable.")] = "snapshot",
    history: Annotated[
        Path | None,
        typer.Option(
            help="Write what was seen, as JSON lines; of several workloads one file each."
        ),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="Only check a history that --history wrote.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the tables and the temporary directory.")
    ] = False,
    json: Json = False,
) -> None:
    """Run a workload, hurt the cluster, and check that clients saw nothing impossible.

    Use a TEST cluster: faults are real. Workloads: register, list-append, bank, set, cycle,
    long-fork, monotonic, batch, unique-ids, procedure, feed, and, with --isolation serializable,
    skew. Exit code 0: no anomaly, 1: anomalies, or a cluster that did not come back, 2: wrong
    usage.
    """
    try:
        if check is not None:
            _check_file(check, json)
            return
        _Command(
            wanted_workloads=workload, seconds=seconds, faults=nemesis, nodes=nodes, data=data,
            port=port, connect=connect, clients=clients, seed=seed, isolation=isolation,
            history=history, keep=keep, json=json,
        ).run()  # fmt: skip
    except KvorumError as e:
        output.die(e, as_json=json)
    except OSError as e:
        output.die(f"{e.filename or 'verify'}: {e.strerror or e}", as_json=json)


def _check_file(path: Path, json: bool) -> None:
    from kvorum.verify.catalog import judge
    from kvorum.verify.history import History
    from kvorum.verify.report import report

    with path.open() as file:
        history = History.parse(file)
    found = report(history, judge(history))
    _print([found], [history], [], json=json)
    raise SystemExit(_exit_code([found], []))


@dataclass
class _Command:
    """One call of the command: makes the cluster, runs the session, prints the verdict."""

    wanted_workloads: str
    seconds: float
    faults: str
    nodes: int | None
    data: Path | None
    port: int | None
    connect: str | None
    clients: int
    seed: int | None
    isolation: str
    history: Path | None
    keep: bool
    json: bool
    clean: bool = field(default=False, init=False)

    def run(self) -> None:
        from kv.base.adapters import SystemRng
        from kvorum.verify.catalog import WORKLOADS
        from kvorum.verify.plan import parse_kinds
        from kvorum.verify.session import Session, Wanted

        names = self.wanted_workloads.split(",")
        if names == ["all"]:
            names = [name for name, w in WORKLOADS.items() if self.isolation in w.isolations]
        rng = SystemRng()
        drawn = int.from_bytes(rng.token(4))
        try:
            wanted = Wanted(
                workloads=list(dict.fromkeys(names)),
                seconds=self.seconds,
                clients=self.clients,
                seed=drawn if self.seed is None else self.seed,
                run_id=rng.token(4).hex(),
                isolation=self.isolation,
            )
            kinds = parse_kinds(self.faults, self._count())
        except InvalidArgument as e:
            raise typer.BadParameter(e.message) from e
        if self.connect and (kinds or self.nodes is not None or self.data is not None):
            raise typer.BadParameter(
                "--connect runs without faults on a cluster that is there: --nemesis, --nodes and "
                "--data are for local clusters"
            )
        progress = _Progress(quiet=self.json)
        session = Session(wanted, progress)
        progress.say(f"seed {wanted.seed}")
        if self.connect:
            self._finish(session, self.connect, None, progress)
            return
        with self._cluster(progress, session) as cluster:

            def nemesis() -> Nemesis:
                from kv.base.adapters import SeededRng
                from kvorum.verify.chance import Chance
                from kvorum.verify.nemesis import Nemesis
                from kvorum.verify.plan import plan

                chance = Chance(SeededRng(f"{wanted.seed}/nemesis"))
                faults = plan(chance, kinds, self.seconds)

                def told(what: str, numbers: list[int]) -> None:
                    session.fault(what, numbers)
                    progress.fault(what, numbers)

                return Nemesis(cluster, faults, told)

            self._finish(session, cluster.connect, nemesis if kinds else None, progress)

    # -------------------------------------------------------------------------------- cluster

    def _count(self) -> int:
        """How many nodes there are or will be."""
        from kvorum.localcluster import LocalCluster

        if self.data is not None and LocalCluster.exists(self.data):
            return len(LocalCluster.open(self.data).nodes)
        return _NODES if self.nodes is None else self.nodes

    @contextmanager
    def _cluster(self, progress: _Progress, session: Session) -> Iterator[LocalCluster]:
        """A running local cluster; one that was made here is stopped in any case."""
        from kvorum.localcluster import LocalCluster

        if self.data is not None and LocalCluster.exists(self.data):
            if self.nodes is not None:
                raise typer.BadParameter(f"there is a cluster in {self.data}: leave --nodes out")
            yield LocalCluster.open(self.data)
            return
        count = self._count()
        with self._directory(progress) as directory:
            cluster = LocalCluster.create(directory, count, self.port or _free_port(count))
            try:
                modules = sorted({m for run in session.kinds for m in run.modules})
                options = ("--procedure-modules", ",".join(modules)) if modules else ()
                for node in list(cluster.nodes):
                    cluster.start(node.id, options)
                numbers = [node.id for node in cluster.nodes]
                cluster.wait_ready(numbers, told=lambda _number: None)
                progress.say(f"{len(numbers)} nodes run in {directory}")
                yield cluster
            finally:
                cluster.down(within_s=_STOP_S)

    @contextmanager
    def _directory(self, progress: _Progress) -> Iterator[Path]:
        """Where a new cluster goes. A temporary one stays if there is something to look at."""
        if self.data is not None:
            yield self.data
            return
        directory = Path(tempfile.mkdtemp(prefix="kvorum-verify-"))
        try:
            yield directory / "cluster"
        finally:
            if (self.clean and not self.keep) or not any(directory.iterdir()):
                shutil.rmtree(directory)
            elif directory.exists():
                progress.say(f"the data and logs of the nodes are in {directory}")

    # ------------------------------------------------------------------------------------ end

    def _finish(
        self,
        session: Session,
        url: str,
        nemesis: Callable[[], Nemesis] | None,
        progress: _Progress,
    ) -> None:
        """Run, write the histories whatever happens, print and end the process."""
        problems: list[str] = []
        try:
            problems = asyncio.run(_interruptible(session, url, nemesis, progress))
        except KvorumError as e:
            problems = [f"{e.code}: {e.message}"]
            if not session.runs:
                raise
        finally:
            self._write(session.histories)
        from kvorum.verify.catalog import judge
        from kvorum.verify.report import report

        progress.say("checking")
        found = [report(history, judge(history)) for history in session.histories]
        code = _exit_code(found, problems)
        self.clean = code == output.DONE
        if self.clean and not self.keep:
            with suppress(KvorumError):
                asyncio.run(session.drop(url))
        _print(found, session.histories, problems, json=self.json)
        if code:
            raise SystemExit(code)

    def _write(self, histories: list[History]) -> None:
        if self.history is None:
            return
        for history in histories:
            path = self.history
            if len(histories) > 1:
                path = path.with_name(f"{path.stem}.{history.header.workload}{path.suffix}")
            with path.open("w") as file:
                file.writelines(line + "\n" for line in history.lines())


async def _interruptible(
    session: Session, url: str, nemesis: Callable[[], Nemesis] | None, progress: _Progress
) -> list[str]:
    """The session. Ctrl-C and SIGTERM end it in order, once: who is healing is not disturbed."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    interrupted = False

    def stop() -> None:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            progress.say("interrupted: healing the cluster")
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        return await session.run(url, nemesis)
    except asyncio.CancelledError:
        if not interrupted:
            raise
        task.uncancel()
        return ["interrupted before its end"]


def _free_port(count: int) -> int:
    """A BASE for `count` nodes on which nobody listens now."""
    for base in range(_PORT, _PORT + 10_000, PORTS_PER_NODE * (_NODES_MAX + 1)):
        first = base + PORTS_PER_NODE
        if not any(map(_in_use, range(first, first + PORTS_PER_NODE * count))):
            return base
    raise Unavailable(f"no free ports above {_PORT}: give a --port")


def _in_use(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


class _Progress:
    """What is printed while it runs: a line every few seconds, and every fault."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._counts = {"ok": 0, "unknown": 0, "fail": 0}
        self._next_s = _PROGRESS_S

    def __call__(self, event: Event) -> None:
        if event.type in self._counts:
            self._counts[event.type] += 1
        if event.time_s >= self._next_s and event.type != "note":
            self._next_s = event.time_s + _PROGRESS_S
            counts = self._counts
            self._line(
                event.time_s,
                f"{counts['ok']:,} acknowledged, {counts['unknown']:,} unknown, "
                f"{counts['fail']:,} failed",
            )

    def fault(self, what: str, nodes: list[int]) -> None:
        self._line(None, f"    {what} {', '.join(map(str, nodes))}".rstrip())

    def say(self, text: str) -> None:
        self._line(None, text)

    def _line(self, at_s: float | None, text: str) -> None:
        if not self._quiet:
            sys.stdout.write(text + "\n" if at_s is None else f"{at_s:6.1f} s  {text}\n")
            sys.stdout.flush()


def _print(
    found: list[Report], histories: list[History], problems: list[str], *, json: bool
) -> None:
    from kvorum.verify.report import lines

    if json:
        told: dict[str, Any] = {
            "verdict": "clean" if not _exit_code(found, problems) else "not clean",
            "seed": histories[0].header.seed if histories else None,
            "workloads": [one.to_plain() for one in found],
            "problems": problems,
        }
        output.emit(told)
        return
    output.lines([""])
    for one, history in zip(found, histories, strict=True):
        output.lines(lines(one, history))
    output.lines(f"PROBLEM: {problem}" for problem in problems)
    output.lines(["", _verdict(found, problems)])


def _verdict(found: list[Report], problems: list[str]) -> str:
    bad = [one.workload for one in found if one.verdict == "anomalies"]
    if bad:
        return f"VERDICT: anomalies in {', '.join(bad)}"
    if problems:
        return "VERDICT: no anomaly in what was seen, but the run did not go well"
    unclear = [f"{one.workload} ({one.verdict})" for one in found if one.verdict != "clean"]
    if unclear:
        return f"VERDICT: nothing is shown by {', '.join(unclear)}"
    return "VERDICT: no anomaly"


def _exit_code(found: list[Report], problems: list[str]) -> int:
    clean = all(one.verdict == "clean" for one in found) and not problems
    return output.DONE if clean else output.FAILED

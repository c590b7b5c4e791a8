"""One call of `kvorum verify`: makes the cluster or finds it, runs the session, prints the verdict.

Whatever happens, a cluster that was made here is stopped, and one that was found is healed: Ctrl-C
and SIGTERM end a run in order, at any time.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import typer

from kv.base.config import HYBRID, ORACLE, PORT_DEFAULT, PORTS_PER_NODE
from kv.base.errors import InvalidArgument, KvorumError, Unavailable
from kvorum.cli import output

if TYPE_CHECKING:
    from kvorum.programs.localcluster import LocalCluster
    from kvorum.verify.history import Event, History
    from kvorum.verify.nemesis import Nemesis
    from kvorum.verify.plan import Kind
    from kvorum.verify.report import Report
    from kvorum.verify.session import Session, Wanted

PORT: Final = PORT_DEFAULT + 1_000  # not where a cluster of the user's may listen already
_PORTS_TRIED = 10_000
_NODES = 3
_NODES_MAX = 9  # of a local cluster
_PROGRESS_S = 2.0
_STOP_S = 20.0

MakeNemeses = Callable[[], Sequence["Nemesis"]]


def check_file(path: Path, *, json: bool) -> int:
    """Judge a history that was written; the exit code."""
    from kvorum.verify.catalog import judge
    from kvorum.verify.history import History
    from kvorum.verify.report import report

    with path.open() as file:
        history = History.parse(file)
    found = [report(history, judge(history))]
    _print(found, [history], [], json=json)
    return _exit_code(found, [])


@dataclass
class Verification:
    """See the module; the fields are the options of the command. `run` it once."""

    names: Sequence[str]
    seconds: float
    faults: str
    nodes: int | None
    data: Path | None
    port: int | None
    connect: str | None
    clients: int
    seed: int | None
    isolation: str
    clock: str | None
    history: Path | None
    keep: bool
    json: bool
    _clean: bool = field(default=False, init=False)
    _kept: Path | None = field(default=None, init=False)
    """The temporary directory, which stays unless the run is clean."""

    def run(self) -> int:
        """The exit code. Raises KvorumError, OSError and typer.BadParameter."""
        from kvorum.verify.session import Session

        wanted, kinds = self._checked()
        progress = _Progress(quiet=self.json)
        session = Session(wanted, progress)
        progress.say(f"seed {wanted.seed}")
        with _terminable():
            if self.connect:
                return self._finish(session, [self.connect], list, progress)
            with self._clusters(progress, session) as clusters:
                make = self._nemeses(clusters, kinds, session, progress) if kinds else list
                return self._finish(session, [one.connect for one in clusters], make, progress)

    def _checked(self) -> tuple[Wanted, Sequence[Kind]]:
        """What is to be done. Raises typer.BadParameter: nothing was begun."""
        from kv.base.adapters import SystemRng
        from kvorum.verify.catalog import WORKLOADS, workload
        from kvorum.verify.plan import parse_kinds
        from kvorum.verify.session import Wanted

        names = self.names
        if names == ["all"]:
            names = [
                name
                for name, kind in WORKLOADS.items()
                if self.isolation in kind.isolations
                and (self.clock or ORACLE) in kind.clocks
                and kind.clusters == 1
            ]
        for name in names:
            if name in WORKLOADS and (self.clock or ORACLE) not in WORKLOADS[name].clocks:
                raise typer.BadParameter(
                    f"{name} checks what --clock {self.clock} does not promise (real-time order); "
                    f"there are {', '.join(n for n, k in WORKLOADS.items() if HYBRID in k.clocks)}"
                )
        rng = SystemRng()
        try:
            wanted = Wanted(
                workloads=list(dict.fromkeys(names)),
                seconds=self.seconds,
                clients=self.clients,
                seed=int.from_bytes(rng.token(4)) if self.seed is None else self.seed,
                run_id=rng.token(4).hex(),
                isolation=self.isolation,
            )
            kinds = parse_kinds(self.faults, self._count(workload(names[0]).clusters))
        except InvalidArgument as e:
            raise typer.BadParameter(e.message) from e
        if self.connect and (kinds or self.nodes is not None or self.data is not None):
            raise typer.BadParameter(
                "--connect runs without faults on a cluster that is there: --nemesis, --nodes and "
                "--data are for local clusters"
            )
        if workload(names[0]).clusters > 1 and (self.connect or self._found()):
            raise typer.BadParameter(
                f"{names[0]} makes clusters of its own: leave --connect and "
                "the --data of another one out"
            )
        if self.clock is not None and (self.connect or self._found()):
            raise typer.BadParameter("--clock is for a new local cluster: leave it out")
        if self.nodes is not None and self._found():
            raise typer.BadParameter(f"there is a cluster in {self.data}: leave --nodes out")
        if self.history is not None and not self.history.parent.is_dir():
            raise typer.BadParameter(f"{self.history.parent}, for --history, is no directory")
        return wanted, kinds

    def _nemeses(
        self,
        clusters: Sequence[LocalCluster],
        kinds: Sequence[Kind],
        session: Session,
        progress: _Progress,
    ) -> Callable[[], list[Nemesis]]:
        """One for each, with a plan of its own."""
        from kv.base.adapters import SeededRng
        from kvorum.verify.nemesis import Nemesis
        from kvorum.verify.plan import plan
        from kvorum.verify.random_choices import Chance

        def made(number: int, cluster: LocalCluster) -> Nemesis:
            which = f"cluster {number}: " if number else ""
            chance = Chance(SeededRng(f"{session.wanted.seed}/nemesis{which}"))

            def on_fault(what: str, numbers: list[int]) -> None:
                session.fault(which + what, numbers)
                progress.say(f"    {which}{what} {', '.join(map(str, numbers))}".rstrip())

            return Nemesis(cluster, plan(chance, kinds, session.wanted.seconds), on_fault)

        first = len(clusters) > 1
        return lambda: [made(number, one) for number, one in enumerate(clusters, first)]

    # -------------------------------------------------------------------------------- cluster

    def _found(self) -> bool:
        """Whether there is a cluster to use."""
        from kvorum.programs.localcluster import LocalCluster

        return self.data is not None and LocalCluster.exists(self.data)

    def _count(self, clusters: int) -> int:
        """How many nodes there are or will be in each cluster."""
        from kvorum.programs.localcluster import LocalCluster

        if self.data is not None and self._found():
            return len(LocalCluster.open(self.data).nodes)
        if self.nodes is None:
            return _NODES if clusters == 1 else 1
        return self.nodes

    @contextmanager
    def _clusters(self, progress: _Progress, session: Session) -> Iterator[list[LocalCluster]]:
        """Running local clusters, each of which knows where the other one is; those that were made
        here are stopped in any case.
        """
        from kvorum.programs.localcluster import LocalCluster
        from kvorum.verify.workloads.sites import OTHER

        if self.data is not None and self._found():
            yield [LocalCluster.open(self.data)]
            return
        count = self._count(session.clusters)
        base = self.port or _free_port(count * session.clusters)
        modules = sorted({m for run in session.kinds for m in run.modules})
        with self._directory(progress) as directory, ExitStack() as stack:
            made = []
            for number in range(session.clusters):
                where = directory / f"cluster-{number + 1}" if session.clusters > 1 else directory
                first = base + PORTS_PER_NODE * count * number
                one = LocalCluster.create(where, count, first, clock=self.clock or "")
                stack.callback(one.down, within_s=_STOP_S)
                made.append(one)
            for number, one in enumerate(made):
                options = ["--procedure-modules", ",".join(modules)] if modules else []
                if len(made) > 1:
                    file = one.directory / "sites.toml"
                    file.write_text(f'[{OTHER}]\nurl = "kvorum://{made[number - 1].connect}"\n')
                    options += ["--sites-file", str(file)]
                for node in list(one.nodes):
                    one.start(node.id, tuple(options))
            for one in made:
                numbers = [node.id for node in one.nodes]
                one.wait_ready(numbers, on_ready=lambda _number: None)
                progress.say(f"{len(numbers)} nodes run in {one.directory}")
            yield made

    @contextmanager
    def _directory(self, progress: _Progress) -> Iterator[Path]:
        """Where a new cluster goes. A temporary one stays if there is something to look at."""
        if self.data is not None:
            yield self.data
            return
        self._kept = directory = Path(tempfile.mkdtemp(prefix="kvorum-verify-"))
        try:
            yield directory / "cluster"
        finally:
            if (self._clean and not self.keep) or not any(directory.iterdir()):
                shutil.rmtree(directory)
            else:
                progress.say(f"the data and logs of the nodes are in {directory}")

    # ------------------------------------------------------------------------------------ end

    def _finish(
        self, session: Session, urls: Sequence[str], nemeses: MakeNemeses, progress: _Progress
    ) -> int:
        """Run, write the histories whatever happens, print; the exit code."""
        from kvorum.verify.catalog import judge
        from kvorum.verify.report import report

        problems: list[str] = []
        try:
            problems = asyncio.run(_interruptible(session, urls, nemeses, progress))
        except KvorumError as e:
            if not session.begun:
                raise
            problems = [f"{e.code}: {e.message}"]
        finally:
            self._write(session.histories if session.begun else [])
        progress.say("checking")
        found = [report(history, judge(history)) for history in session.histories]
        code = _exit_code(found, problems)
        self._clean = code == output.DONE
        if self._clean and not self.keep:
            for url in urls:
                with suppress(KvorumError):
                    asyncio.run(session.drop(url))
        kept = None if self._clean and not self.keep else self._kept
        _print(found, session.histories, problems, json=self.json, kept=kept)
        return code

    def _write(self, histories: list[History]) -> None:
        if self.history is None:
            return
        for history in histories:
            path = self.history
            if len(histories) > 1:
                path = path.with_name(f"{path.stem}.{history.header.workload}{path.suffix}")
            with path.open("w") as file:
                file.writelines(line + "\n" for line in history.lines())


# ---------------------------------------------------------------------------------------- signals


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM as Ctrl-C: nodes that were started must be stopped."""

    def stop(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def _interruptible(
    session: Session, urls: Sequence[str], nemeses: MakeNemeses, progress: _Progress
) -> list[str]:
    """The session. The first Ctrl-C or SIGTERM ends it in order; who is healing then is not
    disturbed by more of them.
    """
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

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        return await session.run(urls, nemeses)
    except asyncio.CancelledError:
        if not interrupted:
            raise
        task.uncancel()
        return ["interrupted before its end"]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


# ------------------------------------------------------------------------------------------ ports


def _free_port(count: int) -> int:
    """A BASE for `count` nodes on which nobody listens now. Raises Unavailable."""
    for base in range(PORT, PORT + _PORTS_TRIED, PORTS_PER_NODE * (2 * _NODES_MAX + 1)):
        first = base + PORTS_PER_NODE
        if not any(map(_in_use, range(first, first + PORTS_PER_NODE * count))):
            return base
    raise Unavailable(f"no free ports from {PORT} to {PORT + _PORTS_TRIED}: give a --port")


def _in_use(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


# --------------------------------------------------------------------------------------- printing


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
            self.say(
                f"{event.time_s:6.1f} s  {counts['ok']:,} acknowledged, "
                f"{counts['unknown']:,} unknown, {counts['fail']:,} failed"
            )

    def say(self, text: str) -> None:
        if not self._quiet:
            output.lines([text])
            sys.stdout.flush()


def _print(
    found: list[Report],
    histories: list[History],
    problems: list[str],
    *,
    json: bool,
    kept: Path | None = None,
) -> None:
    from kvorum.verify.report import lines

    if json:
        answer: dict[str, object] = {
            "verdict": "clean" if not _exit_code(found, problems) else "not clean",
            "seed": histories[0].header.seed if histories else None,
            "workloads": [one.to_plain() for one in found],
            "problems": problems,
            "directory": None if kept is None else str(kept),
        }
        output.emit(answer)
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

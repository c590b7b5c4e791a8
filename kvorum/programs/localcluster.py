"""A cluster of real node processes on this machine, in one directory: for development, tests and
trying out what happens when things are killed.

    DIR/cluster.json     {founders, witnesses, clock, highest, nodes: [{id, base, pid, started,
                         later, witness}]}, written anew (rename) at every change
    DIR/secret           what the nodes prove to each other; readable by the owner alone
    DIR/tls/             certificates and the administrator's login, if it is secured
    DIR/node-I/          data of node I, DIR/node-I.log what it says

Node I listens from `base + 10·I` on. The processes outlive the command that started them; they are
known by pid *and* start time, so a pid that the system gave to somebody else is never signalled.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import psutil

from kv.base.adapters import SystemRng
from kv.base.config import CLOCKS, HTTP_OFFSET, PORTS_PER_NODE
from kv.base.errors import InvalidArgument, NotFound, Unavailable
from kv.base.tls import TLS_DIR, client_tls
from kv.storage.directory import private_directory
from kvorum.programs import secured

NODES_MAX: Final = 9
READY_S: Final = 60.0
STOP_S: Final = 20.0
_LOOK_S: Final = 0.05
_ERROR = "kvorum: "  # how a command says why it failed (kvorum/cli/output.py)
_STARTED_TOLERANCE_S: Final = 0.5
_HOST: Final = "127.0.0.1"
_TLS: Final = "tls"
_READY_S: Final = 1.0

State = Literal["running", "paused", "dead"]


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One process. `pid` 0: it was never started; `started` in seconds since the epoch. `later`: it
    was added to a cluster that existed. `witness`: it votes and keeps no data.
    """

    id: int
    base: int
    pid: int = 0
    started: float = 0.0
    later: bool = False
    witness: bool = False

    @property
    def address(self) -> str:
        return f"{_HOST}:{self.base}"

    def process(self) -> psutil.Process | None:
        """The living process, None if there is none (any more)."""
        if not self.pid:
            return None
        try:
            found = psutil.Process(self.pid)
            same = abs(found.create_time() - self.started) < _STARTED_TOLERANCE_S
            return found if same and found.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    def state(self) -> State:
        """Paused means SIGSTOP: it lives, but does nothing."""
        process = self.process()
        if process is None:
            return "dead"
        try:
            return "paused" if process.status() == psutil.STATUS_STOPPED else "running"
        except psutil.NoSuchProcess:
            return "dead"


class LocalCluster:
    """See the module. `create` or `open` one."""

    def __init__(
        self,
        directory: Path,
        nodes: Iterable[LocalNode],
        founders: int,
        highest: int = 0,
        witnesses: int = 0,
        clock: str = "",
    ) -> None:
        """`founders` were there at the first start, the last `witnesses` of them keep no data; no
        id above `highest` was ever given out. `clock`: as `kvorum start --clock` has it; "": as
        it is by default.
        """
        self.directory = directory
        self.nodes = list(nodes)
        self._count, self._highest = founders, max(founders, highest)
        self.clock = clock
        self.witnesses = tuple(_ids(founders))[founders - witnesses :]
        self._children: list[subprocess.Popen[bytes]] = []  # of this very process

    # ---------------------------------------------------------------------------------- making

    @classmethod
    def create(
        cls,
        directory: Path,
        count: int,
        base: int,
        witnesses: int = 0,
        *,
        secure_at: datetime | None = None,
        clock: str = "",
    ) -> LocalCluster:
        """A new cluster in an empty or missing directory, the last `witnesses` nodes of which keep
        no data; with certificates as of `secure_at`. Raises InvalidArgument.
        """
        if not 1 <= count <= NODES_MAX:
            raise InvalidArgument(f"a local cluster has 1 to {NODES_MAX} nodes, got {count}")
        if not 0 <= 2 * witnesses < count:
            raise InvalidArgument(
                f"{witnesses} witnesses of {count} nodes: there must be more nodes with data"
            )
        if clock not in ("", *CLOCKS):
            raise InvalidArgument(f"clock is {' or '.join(CLOCKS)}, not {clock!r}")
        if base < 1 or base + PORTS_PER_NODE * (count + 1) > 65_536:
            raise InvalidArgument(
                f"port {base} leaves no room for {count} nodes below 65536: node I uses "
                f"PORT + {PORTS_PER_NODE}·I and the {PORTS_PER_NODE - 1} ports after it"
            )
        if directory.exists() and any(directory.iterdir()):
            raise InvalidArgument(
                f"{directory} is not empty and holds no cluster: give another --data"
            )
        private_directory(directory)
        descriptor = os.open(directory / "secret", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(SystemRng().token(32).hex())
        if secure_at is not None:
            secured.make(directory / _TLS, secure_at)
        nodes = [
            LocalNode(i, base + PORTS_PER_NODE * i, witness=i > count - witnesses)
            for i in _ids(count)
        ]
        made = cls(directory, nodes, count, witnesses=witnesses, clock=clock)
        made._save()
        return made

    @classmethod
    def open(cls, directory: Path) -> LocalCluster:
        """The cluster in a directory. Raises NotFound, InvalidArgument."""
        path = directory / "cluster.json"
        try:
            saved = json.loads(path.read_text())
            nodes = [LocalNode(**row) for row in saved["nodes"]]
            # Earlier versions had none of these.
            witnesses, clock = saved.get("witnesses", 0), saved.get("clock", "")
            return cls(directory, nodes, saved["founders"], saved["highest"], witnesses, clock)
        except FileNotFoundError:
            raise NotFound(
                f"there is no local cluster in {directory}: make one with "
                f"`kvorum cluster up --data {directory}`"
            ) from None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InvalidArgument(f"{path} cannot be read: {error}") from error

    @classmethod
    def exists(cls, directory: Path) -> bool:
        return (directory / "cluster.json").exists()

    def _save(self) -> None:
        path = self.directory / "cluster.json"
        draft = path.with_suffix(".new")
        nodes = [asdict(node) for node in self.nodes]
        saved = {
            "founders": self._count,
            "witnesses": len(self.witnesses),
            "clock": self.clock,
            "highest": self._highest,
            "nodes": nodes,
        }
        draft.write_text(json.dumps(saved, indent=1))
        draft.replace(path)

    # --------------------------------------------------------------------------------- looking

    @property
    def tls_at(self) -> Path | None:
        """Where the certificates are (kvorum.programs.secured); None: it is without."""
        at = self.directory / _TLS
        return at if at.exists() else None

    def log_in(self) -> None:
        """Connections of this process are the administrator's from now on; and nobody's where there
        is no TLS.
        """
        for name in ("KVORUM_CA", "KVORUM_TOKEN", "KVORUM_TOKEN_FILE", TLS_DIR):
            os.environ.pop(name, None)
        if self.tls_at is not None:
            os.environ[TLS_DIR] = str(secured.admin_dir(self.tls_at))

    def initialise(self) -> None:
        """Make the administrator of a secured cluster, if there is none yet. Raises KvorumError."""
        if self.tls_at is not None:
            secured.initialise(self.tls_at, self.connect)

    @property
    def connect(self) -> str:
        """What `--connect` and `kvorum.connect` take: every node that was ever started."""
        return ",".join(node.address for node in self.nodes)

    def node(self, number: int) -> LocalNode:
        """Raises InvalidArgument."""
        for node in self.nodes:
            if node.id == number:
                return node
        known = ", ".join(str(node.id) for node in self.nodes)
        raise InvalidArgument(f"there is no node {number} in {self.directory}; it has {known}")

    def leader(self, partition: int, *, within_s: float = READY_S) -> int:
        """The node that leads a partition, as the living nodes say. Raises Unavailable."""
        from kvorum.connecting import connect

        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            living = [node.address for node in self.nodes if node.state() == "running"]
            with connect(",".join(living or [self.connect])) as db:
                leaders = {row["id"]: row["leader"] for row in db.partitions()}
            if (found := leaders.get(partition)) is not None:
                return int(found)
            time.sleep(_LOOK_S)  # noqa: TID251 - a command that waits for processes, not a node
        raise Unavailable(f"partition {partition} has no leader after {within_s:.0f} s")

    def data(self, number: int) -> Path:
        return self.directory / f"node-{number}"

    def log(self, number: int) -> Path:
        return self.directory / f"node-{number}.log"

    def tail(self, number: int, lines: int = 5) -> str:
        """The last lines of a node's log."""
        path = self.log(number)
        text = path.read_text(errors="replace") if path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _last_word(self, number: int) -> str:
        """What a node that ended said of it: its own line of error, else the last of its log."""
        lines = self.tail(number).splitlines()
        said = [line for line in lines if line.startswith(_ERROR)]
        return said[-1].removeprefix(_ERROR) if said else "".join(lines[-1:])

    # -------------------------------------------------------------------------------- starting

    def start(self, number: int, options: Sequence[str] = ()) -> None:
        """Start a node that is dead; nothing happens if it lives. Does not wait."""
        node = self.node(number)
        if node.process() is not None:
            return
        command = [sys.executable, "-m", "kvorum", *self._arguments(node), *options]
        secret = (self.directory / "secret").read_text().strip()
        environment = {**os.environ, "KVORUM_CLUSTER_SECRET": secret}
        with self.log(number).open("ab") as log:
            child = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in this terminal is not meant for it
            )
        self._children.append(child)
        try:
            started = psutil.Process(child.pid).create_time()
        except psutil.Error as error:  # it ended as soon as it began
            raise Unavailable(f"node {number} ended: {self._last_word(number)}") from error
        self._note(replace(node, pid=child.pid, started=started))

    def options(self, number: int) -> list[str]:
        """The `options` that a living node was started with, so that it can be started so again.
        Raises Unavailable if it does not live.
        """
        node = self.node(number)
        process = node.process()
        if process is None:
            raise Unavailable(f"node {number} does not run")
        try:
            command = process.cmdline()
        except psutil.Error as error:
            raise Unavailable(f"node {number}: {error}") from error
        ours = self._arguments(node)
        return command[command.index(ours[0]) + len(ours) :] if ours[0] in command else []

    def _arguments(self, node: LocalNode) -> list[str]:
        """What every start of this node gives to `kvorum`."""
        return [
            *("start", "--data", str(self.data(node.id)), "--port", str(node.base)),
            *("--fault-injection", "true"),
            *(("--clock", self.clock) if self.clock else ()),
            *(("--tls-dir", str(secured.node_dir(self.tls_at))) if self.tls_at else ()),
            *self._place(node),
        ]

    def _place(self, node: LocalNode) -> list[str]:
        """Its place in the cluster: a founder is named by its number, a later node is given one."""
        if node.later:
            others = [other.address for other in self.nodes if other.id != node.id]
            return ["--join", ",".join(others), *(["--witness", "true"] if node.witness else [])]
        founders = [other.address for other in self.founders]
        joined = ["--join", ",".join(founders)] if len(founders) > 1 else []
        if self.witnesses:
            joined += ["--witnesses", ",".join(map(str, self.witnesses))]
        return ["--node-id", str(node.id), *joined]

    @property
    def founders(self) -> list[LocalNode]:
        """Those of the first start, in order; also such as were removed since: their list is part
        of what the cluster is.
        """
        some = self.nodes[0]
        base = some.base - PORTS_PER_NODE * some.id
        return [LocalNode(i, base + PORTS_PER_NODE * i) for i in _ids(self._count)]

    def add(self, *, witness: bool = False) -> LocalNode:
        """One more node, not started yet. The cluster gives out ids in order, so its number is
        known before.
        """
        last = self._highest
        base = self.founders[0].base - PORTS_PER_NODE
        if last >= NODES_MAX:
            raise InvalidArgument(f"{self.directory} has had {NODES_MAX} nodes, the limit")
        made = LocalNode(last + 1, base + PORTS_PER_NODE * (last + 1), later=True, witness=witness)
        self.nodes.append(made)
        self._highest = made.id
        self._save()
        return made

    def forget(self, number: int) -> None:
        """Take a node that was decommissioned, and is stopped, out of the list. Its data stay."""
        node = self.node(number)
        if node.process() is not None:
            raise InvalidArgument(f"node {number} runs: stop it first")
        self.nodes.remove(node)
        self._save()

    def _note(self, node: LocalNode) -> None:
        self.nodes = [node if old.id == node.id else old for old in self.nodes]
        self._save()

    def wait_ready(
        self, numbers: Iterable[int], *, within_s: float = READY_S, on_ready: Callable[[int], None]
    ) -> None:
        """Until all of them answer /readyz; `on_ready(number)` as each does.

        Raises Unavailable with the end of a log.
        """
        waiting = list(numbers)
        deadline = time.monotonic() + within_s
        while waiting:
            for number in list(waiting):
                node = self.node(number)
                if self._ready(node):
                    waiting.remove(number)
                    on_ready(number)
                elif node.process() is None:
                    raise Unavailable(f"node {number} ended: {self._last_word(number)}")
            if waiting and time.monotonic() > deadline:
                names = ", ".join(map(str, waiting))
                raise Unavailable(
                    f"node {names} is not ready after {within_s:.0f} s; see {self.log(waiting[0])}"
                )
            time.sleep(_LOOK_S)  # noqa: TID251 - a command that waits for processes, not a node

    def _ready(self, node: LocalNode) -> bool:
        at, port = self.tls_at, node.base + HTTP_OFFSET
        asked = http.client.HTTPConnection(_HOST, port, timeout=_READY_S)
        if at is not None:
            context = client_tls(secured.admin_dir(at)).peer
            asked = http.client.HTTPSConnection(_HOST, port, timeout=_READY_S, context=context)
        try:
            with contextlib.closing(asked):
                asked.request("GET", "/readyz")
                return asked.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    # -------------------------------------------------------------------------------- stopping

    def down(self, *, within_s: float = STOP_S) -> None:
        """SIGTERM to all (paused ones are woken first), SIGKILL to whoever does not go."""
        self._end([node.process() for node in self.nodes], within_s)

    def stop(self, number: int, *, within_s: float = STOP_S) -> None:
        """The same for one node."""
        self._end([self.node(number).process()], within_s)

    def _end(self, processes: list[psutil.Process | None], within_s: float) -> None:
        living = [process for process in processes if process is not None]
        for process in living:
            _send(process, signal.SIGTERM)
            _send(process, signal.SIGCONT)
        _, stubborn = psutil.wait_procs(living, timeout=within_s)
        for process in stubborn:
            _send(process, signal.SIGKILL)
        psutil.wait_procs(stubborn, timeout=within_s)
        self._reap()

    def signal(self, number: int, what: signal.Signals) -> None:
        """Raises Unavailable if the node does not live."""
        process = self.node(number).process()
        if process is None:
            raise Unavailable(f"node {number} does not run")
        _send(process, what)
        if what == signal.SIGKILL:
            psutil.wait_procs([process], timeout=STOP_S)
            self._reap()

    def _reap(self) -> None:
        """Children that ended are to be asked for their exit code; those of other processes are
        not ours to ask.
        """
        self._children = [child for child in self._children if child.poll() is None]


def _ids(count: int) -> range:
    return range(1, count + 1)


def _send(process: psutil.Process, what: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # it went by itself
        process.send_signal(what)

"""A node of our own: `python -m kvorum start` in a process of its own, stopped by its pid."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

ROOT = Path(__file__).resolve().parent.parent
_FIRST, _LAST, _STRIDE = 20_000, 31_000, 10  # below the range that outgoing connections take from
_READY_S = 60.0
_STOP_S = 20.0


def work_folder(name: str) -> Path:
    """A new folder for data; below $PEERS_WORK if it is set, as for the peers."""
    folder = Path(
        tempfile.mkdtemp(prefix=f"kvorum-bench-{name}-", dir=os.environ.get("PEERS_WORK"))
    )
    folder.chmod(0o755)  # PostgreSQL runs as another user
    return folder


def free_base(nodes: int = 1) -> int:
    """A base port whose four ports nobody listens on, and the same for each more node, ten on."""
    span = (_LAST - _FIRST) // _STRIDE
    for i in range(span):
        base = _FIRST + _STRIDE * ((os.getpid() * 7 + i) % span)
        if all(_is_free(base + _STRIDE * n + k) for n in range(nodes) for k in range(4)):
            return base
    raise RuntimeError(f"no free ports between {_FIRST} and {_LAST}")


def _is_free(port: int) -> bool:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Server(Protocol):
    """What is measured: a node, or a cluster (bench/cluster.py)."""

    @property
    def url(self) -> str: ...
    @property
    def base(self) -> int:
        """Where any node listens."""
        ...

    @property
    def http_port(self) -> int: ...
    @property
    def pids(self) -> tuple[int, ...]:
        """All its processes."""
        ...


class Started(ABC):
    """Started by `with`, stopped at its end, its folder removed."""

    folder: Path

    @abstractmethod
    def start(self) -> object: ...

    @abstractmethod
    def stop(self) -> None: ...

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Node(Started):
    """`with Node("kv") as node:` a started node, stopped at the end, its folder removed."""

    def __init__(self, name: str, *, options: tuple[str, ...] = ()) -> None:
        self.folder = work_folder(name)
        self.data = self.folder / "data"
        self._base = free_base()
        self._options = options
        self._log = self.folder / "node.log"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def pids(self) -> tuple[int, ...]:
        return (self.pid,)

    @property
    def base(self) -> int:
        return self._base

    @property
    def http_port(self) -> int:
        return self.base + 2

    @property
    def url(self) -> str:
        return f"kvorum://127.0.0.1:{self.base}"

    def start(self) -> float:
        """Start it; the seconds until it was ready. Raises RuntimeError with the log's end."""
        began = time.monotonic()
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command(), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        while time.monotonic() - began < _READY_S and self._child.poll() is None:
            if self._ready():
                return time.monotonic() - began
            time.sleep(0.01)
        code = self._child.poll()
        what = f"is not ready after {_READY_S:.0f} s" if code is None else f"ended with code {code}"
        raise RuntimeError(f"the node {what}:\n{self.tail()}")

    def _command(self) -> list[str]:
        kvorum = [sys.executable, "-m", "kvorum", "start"]
        return [*kvorum, "--data", str(self.data), "--port", str(self.base), *self._options]

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.http_port}/readyz", timeout=1
            ) as r:
                return bool(r.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def tail(self, lines: int = 20) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def kill(self) -> None:
        """kill -9: nothing is flushed, nobody hears of it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        child, self._child = self._child, None
        if child is None or child.poll() is not None:
            return
        child.send_signal(number)
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

"""The demo's processes: nodes and a Spark driver, started, watched and killed by pid."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol, Self

import httpx

from kv.base.ids import META_PARTITION
from kvorum.programs.localcluster import LocalCluster

PROCEDURES = "demo.procedures"


def free_base_port(nodes: int = 1) -> int:
    """A base port with BASE … BASE+3 free on loopback, and the same ten further on for each more
    node.
    """
    for base in range(17_600, 19_600, 10):
        try:
            for port in (base + 10 * i + j for i in range(nodes) for j in range(4)):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise RuntimeError("no free ports between 17600 and 19600")


class Process:
    """A child in a group of its own, output to a log file."""

    def __init__(self, name: str, argv: list[str], log: Path) -> None:
        self.name, self.argv, self.log = name, argv, log
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        with self.log.open("ab") as out:
            self._child = subprocess.Popen(
                self.argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
            )
        return self

    @property
    def code(self) -> int | None:
        """The exit code, None while it runs."""
        return None if self._child is None else self._child.poll()

    def kill(self) -> None:
        """SIGKILL to the whole group: nobody gets to say goodbye."""
        self._signal(signal.SIGKILL)

    def stop(self, wait_s: float = 15) -> None:
        """SIGTERM, and SIGKILL to whoever does not go."""
        self._signal(signal.SIGTERM, wait_s)
        if self._child is not None and self._child.poll() is None:
            self.kill()

    def _signal(self, number: signal.Signals, wait_s: float = 10) -> None:
        if self._child is None or self._child.poll() is not None:
            return
        try:
            os.killpg(self._child.pid, number)
            self._child.wait(wait_s)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass

    def tail(self, lines: int = 25) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


class Node(Process):
    """`kvorum start` on a directory and a base port."""

    def __init__(self, data: Path, base: int, log: Path) -> None:
        start = [sys.executable, "-m", "kvorum", "start", "--data", str(data)]
        argv = [*start, "--port", str(base), "--procedure-modules", PROCEDURES]
        super().__init__("node", argv, log)
        self.base = base

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.base}"

    def kill_leader(self) -> str:
        """There is only one."""
        self.kill()
        return "node"

    def back(self) -> float:
        """Start it again; seconds until it is ready."""
        self.start()
        return self.wait_ready()

    def wait_ready(self, timeout_s: float = 60) -> float:
        """Seconds until /readyz says yes. Raises RuntimeError with the log's end if it does not."""
        began = time.monotonic()
        while time.monotonic() - began < timeout_s:
            if self.code is not None:
                break
            try:
                if httpx.get(f"http://127.0.0.1:{self.base + 2}/readyz", timeout=1).is_success:
                    return time.monotonic() - began
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"the node is not ready (exit code {self.code}):\n{self.tail()}")


class Servers(Protocol):
    """One node or several: what the demo does with them."""

    @property
    def endpoint(self) -> str:
        """HOST:BASE, or several with commas."""
        ...

    def kill_leader(self) -> str:
        """kill -9 the node that leads the system's own partition: oracle, procedures and sink stop
        with it. How it is called.
        """
        ...

    def back(self) -> float:
        """Start what was killed; seconds until it is ready."""
        ...

    def stop(self) -> None: ...


class Cluster:
    """`kvorum cluster up` on a directory: several nodes, one of which is killed."""

    def __init__(self, directory: Path, nodes: int, base: int) -> None:
        self._local = LocalCluster.create(directory, nodes, base - 10)
        self._dead: int | None = None

    @property
    def endpoint(self) -> str:
        return self._local.connect

    def start(self) -> float:
        """Seconds until all are ready."""
        began = time.monotonic()
        numbers = [node.id for node in self._local.nodes]
        for number in numbers:
            self._local.start(number, ("--procedure-modules", PROCEDURES))
        self._local.wait_ready(numbers, on_ready=lambda _number: None)
        return time.monotonic() - began

    def kill_leader(self) -> str:
        self._dead = self._local.leader(META_PARTITION)
        self._local.signal(self._dead, signal.SIGKILL)
        return f"node {self._dead}, the leader,"

    def back(self) -> float:
        assert self._dead is not None, "nothing was killed"
        began = time.monotonic()
        self._local.start(self._dead, ("--procedure-modules", PROCEDURES))
        self._local.wait_ready([self._dead], on_ready=lambda _number: None)
        return time.monotonic() - began

    def stop(self) -> None:
        self._local.down()

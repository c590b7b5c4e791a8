"""A real node process for the tests: started, waited for, killed, and always cleaned up
by its pid.
"""

from __future__ import annotations

import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.kit.commands import command, settings
from tests.kit.machine import ROOT

READY_S = 90.0  # of a loaded machine


class NodeProcess:
    """`kvorum start` on a directory and a base port; `with` ends it whatever happens."""

    def __init__(
        self, data: Path, base: int, *options: str, before: str = "", tls_dir: Path | None = None
    ) -> None:
        """`before`: shell commands that run first in the same process (limits)."""
        self.data = data
        self.tls_dir = tls_dir
        if tls_dir is not None:
            options = (*options, "--tls-dir", str(tls_dir))
        self.base = base
        self.log = data.with_suffix(".log")
        words = command("start", "--data", str(data), "--port", str(base), *options)
        self._command = ["bash", "-c", f'{before}; exec "$0" "$@"', *words] if before else words
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"kvorum{'s' if self.tls_dir else ''}://127.0.0.1:{self.base}"

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the process; whether it gets ready is another question."""
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=settings(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self._child

    def start(self) -> None:
        """Start and wait until it is ready."""
        child = self.spawn()
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and child.poll() is None:
            if self.ready():
                return
            time.sleep(0.02)
        raise AssertionError(f"not ready (exit code {child.poll()}): {self.tail()}")

    def ready(self) -> bool:
        url, context = f"http://127.0.0.1:{self.base + 2}/readyz", None
        if self.tls_dir is not None:
            url = url.replace("http:", "https:")
            context = ssl.create_default_context(cafile=self.tls_dir / "ca.crt")
        try:
            with urllib.request.urlopen(url, timeout=2, context=context) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    @property
    def spawned(self) -> int:
        """Its process id."""
        assert self._child is not None
        return self._child.pid

    def exited(self, within_s: float) -> bool:
        """Whether it ended by itself in time."""
        assert self._child is not None
        try:
            self._child.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def exit_code(self, timeout_s: float = READY_S) -> int:
        """Wait for its end."""
        assert self._child is not None
        return self._child.wait(timeout_s)

    def exit_code_now(self) -> int | None:
        """None while it runs."""
        assert self._child is not None
        return self._child.poll()

    def kill(self) -> None:
        """kill -9: nothing is flushed, nobody is told."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        assert self._child is not None
        if self._child.poll() is None:
            self._child.send_signal(number)
        return self._child.wait(READY_S)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._child is not None and self._child.poll() is None:
            self.kill()

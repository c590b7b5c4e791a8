"""What tests ask the machine: free ports, and a Java that Spark can use."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Below the ephemeral range of Linux (32768..60999), so that no outgoing connection takes them. Each
# of several test processes has a share of its own: what one has just found free, another may take.
_SHARES = 4
_SHARE = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
_WIDTH = 12_000 // _SHARES
_FIRST = 20_000 + _SHARE * _WIDTH
_LAST = _FIRST + _WIDTH
_PORTS_PER_NODE, _NODE_STRIDE = 4, 10


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _all_free(ports: Iterable[int]) -> bool:
    with contextlib.ExitStack() as stack:
        for port in ports:
            s = stack.enter_context(socket.socket())
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


_next = _FIRST + (os.getpid() * 97) % (_LAST - _FIRST)


def free_port_base(nodes: int = 1) -> int:
    """A BASE whose BASE+10·i .. +3 are free for every node i < `nodes`; never twice the same."""
    global _next
    span = _NODE_STRIDE * nodes
    for _ in range(_LAST - _FIRST):
        base = _next
        _next = base + span
        if _next + span > _LAST:
            _next = _FIRST
        if _all_free(
            base + _NODE_STRIDE * i + p for i in range(nodes) for p in range(_PORTS_PER_NODE)
        ):
            return base
    raise AssertionError(f"no {span} free ports between {_FIRST} and {_LAST}")


@functools.cache
def java_home() -> tuple[str | None, str]:
    """The home of a Java 17 or newer, or None and the line that says what to do about it."""
    found = subprocess.run(
        [str(ROOT / "scripts" / "java_home.sh")], capture_output=True, text=True, check=False
    )
    if found.returncode == 0:
        return found.stdout.strip(), ""
    return None, found.stderr.strip()

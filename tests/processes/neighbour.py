"""A client that pings a node by its native port and over HTTP in turns, each on a connection of its
own, until its input ends; then it tells the slowest of both, in ms that the node's loop computed.

    python -m tests.processes.neighbour PORT PID

It is a process of its own: beside an attacker's threads it would wait for the interpreter, and see
what the loop did meanwhile, too.
"""

from __future__ import annotations

import itertools
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kv.base.methods import PING
from kv.base.rpc import FrameDecoder, FrameEncoder, Hello

HELLO = FrameEncoder().message(Hello().to_wire())
_PING_HTTP = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


def computed_ms(pid: int) -> float:
    """What the loop's thread of a process has computed since its start."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e6


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


class Neighbour:
    def __init__(self, base: int, pid: int) -> None:
        self._pid = pid
        self._native, self._http = connect(base), connect(base + 2)
        for sock in (self._native, self._http):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(30)
        self._decoder = FrameDecoder()
        self._rids = itertools.count(1)
        self._native.sendall(HELLO)
        self._answer()
        self.slowest_ms(iter([True, False]).__next__)  # what went on before is over

    def _answer(self) -> None:
        while self._decoder.pull() is None:
            self._decoder.push(self._native.recv(65_536))

    def _answer_http(self) -> None:
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._http.recv(65_536)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        size = int(head[head.index(b"content-length: ") + 16 :].split(b"\r\n")[0])
        while len(body) < size:
            body += self._http.recv(65_536)

    def slowest_ms(self, while_: Callable[[], bool]) -> tuple[float, float, int]:
        """And how many of both there were."""
        native = http = 0.0
        pings = 0
        while while_():
            pings += 1
            began = computed_ms(self._pid)
            self._native.sendall(FrameEncoder().message([[next(self._rids), PING, 0]]))
            self._answer()
            middle = computed_ms(self._pid)
            self._http.sendall(_PING_HTTP)
            self._answer_http()
            native = max(native, middle - began)
            http = max(http, computed_ms(self._pid) - middle)
            time.sleep(0.005)
        return native, http, pings


def main() -> None:
    neighbour = Neighbour(*map(int, sys.argv[1:]))
    done = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdout.write(json.dumps(neighbour.slowest_ms(lambda: not done.is_set())))


if __name__ == "__main__":
    main()

"""The log of requests goes on to where all logs are kept."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kvorum.audit import ship_audit_log
from kvorum.audit.ship_audit_log import WAITING_BYTES_MAX, Shipper, sending

LINES = b'{"user":"ann"}\n{"user":"bob"}\n'


async def at_once(work: Callable[[], None]) -> None:
    work()


def test_syslog_gets_a_datagram_for_each_line(tmp_path: Path) -> None:
    """What a collector cannot read is lost where it is looked for."""
    path = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unix:
        unix.bind(path)
        sending(f"syslog://{path}")(LINES)
        assert unix.recv(1000) == b'<110>1 - - kvorum - - - {"user":"ann"}'
        assert unix.recv(1000).endswith(b'{"user":"bob"}')
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        sending(f"syslog://127.0.0.1:{udp.getsockname()[1]}")(b"x" * 20_000 + b"\n")
        assert len(udp.recv(65_536)) == 8_192
    with pytest.raises(OSError, match="No such file"):
        sending(f"syslog://{path}.gone")(LINES)


def test_a_url_gets_lines_and_a_redirect_is_a_failure() -> None:
    """Whoever answers for the collector would say where the log goes."""
    got: list[tuple[str, bytes]] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(302 if self.path == "/away" else 204)
            self.send_header("location", "/other")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        sending(f"{url}/logs")(LINES)
        with pytest.raises(OSError, match="302"):
            sending(f"{url}/away")(LINES)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert got == [("/logs", LINES), ("/away", LINES)]


async def test_what_cannot_be_sent_is_tried_again_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that is restarted would miss what happened meanwhile."""
    monkeypatch.setattr(ship_audit_log, "_AGAIN_S", 0)
    sent: list[bytes] = []
    failures = iter([True, True, False, False])

    def send(lines: bytes) -> None:
        if next(failures):
            raise OSError("it is away")
        sent.append(lines)
        if len(sent) == 2:
            done.set()

    done = asyncio.Event()
    shipper = Shipper(send, at_once)
    shipper.add(b"1\n")
    shipper.add(b"2\n")
    task = asyncio.create_task(shipper.run())
    await done.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert sent == [b"1\n", b"2\n"]


async def test_what_waits_is_bounded_and_what_is_dropped_is_counted() -> None:
    """A collector that is away for a week would fill the node's memory."""
    shipper = Shipper(lambda _lines: None, at_once)
    shipper.add(b"x" * (WAITING_BYTES_MAX - 1) + b"\n")
    shipper.add(LINES)
    assert shipper.figures()["dropped"] == 2

"""What a node and its SQL processes say to each other: messages over a Unix socket, and with some
of them a client's socket, which is the receiver's from then on.

    Channel.send ─▶ frame of kv/base/rpc.py [+ descriptor] ─▶ the other Channel's `heard`

The socket is the process's standard input, so whoever is left notices the end of the other one at
once, however it came.

    node ─▶ process   [SETTINGS, {…}]                first
                      [CLIENT] + socket              serve it
                      [CANCEL, process, key]         a CancelRequest for a session of yours
                      [LIST, number]                 list your sessions
                      [SESSIONS, number, rows]       those of the others, which you asked for
                      [END, process, terminate]      end this session, or what it runs
                      [STOP]                         in order
    process ─▶ node   [READY]                        clients may come
                      [GONE]                         one of the clients is
                      [CANCEL, process, key]         for a session of another process
                      [SESSIONS, number]             list the others'
                      [ANSWER, number, rows]           what LIST asked for
                      [END, process, terminate]      a session of another process
                      [STOP]                         no more clients, and tell me to stop
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from kv.base.errors import KvorumError
from kv.base.rpc import FrameDecoder, FrameEncoder
from kv.base.wire_row import WireRow

SETTINGS: Final = "settings"
CLIENT: Final = "client"
CANCEL: Final = "cancel"
LIST: Final = "list"
ANSWER: Final = "answer"
SESSIONS: Final = "sessions"
END: Final = "end"
STOP: Final = "stop"
READY: Final = "ready"
GONE: Final = "gone"

_READ_BYTES: Final = 1 << 16
_SOCKETS: Final = 16  # the kernel gives out those of one message at a time
Heard = Callable[[list[object], socket.socket | None], None]


class Channel:
    """One end, of the running loop. `heard` gets what comes, of CLIENT with the socket: None, if
    there was no descriptor left for it. `ended` is called once, if the other end goes away, or
    takes nothing any more.
    """

    def __init__(self, sock: socket.socket, heard: Heard, ended: Callable[[], None]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._heard, self._ended = heard, ended
        self._loop = asyncio.get_running_loop()
        self._encoder, self._decoder = FrameEncoder(), FrameDecoder()
        self._out: deque[tuple[bytes, socket.socket | None]] = deque()
        self._clients: deque[socket.socket] = deque()  # came, their messages not yet
        self._open = True
        self._loop.add_reader(sock, self._read)

    @property
    def waiting(self) -> int:
        """Messages that the other end has not taken."""
        return len(self._out)

    def send(self, message: WireRow, client: socket.socket | None = None) -> None:
        """Queue a message. `client` is closed here as soon as the other end has it."""
        if not self._open:
            if client is not None:
                client.close()
            return
        self._out.append((self._encoder.message(message), client))
        if len(self._out) == 1:
            self._write()

    def close(self) -> None:
        """Say and hear nothing more; sockets under way are closed."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        under_way = [*self._clients, *(client for _, client in self._out if client is not None)]
        self._out.clear()
        self._clients.clear()
        for client in under_way:
            client.close()

    def _end(self) -> None:
        if self._open:
            self.close()
            self._ended()

    def _write(self) -> None:
        while self._out:
            data, client = self._out[0]
            try:
                sent = self._send(data, client)
            except BlockingIOError:
                self._loop.add_writer(self._sock, self._write)
                return
            except OSError:  # mostly the other end is gone; else it would wait for ever
                self._loop.call_soon(self._end)
                return
            if client is not None:
                client.close()
            if sent < len(data):
                self._out[0] = data[sent:], None
            else:
                self._out.popleft()
        self._loop.remove_writer(self._sock)

    def _send(self, data: bytes, client: socket.socket | None) -> int:
        if client is None:
            return self._sock.send(data)
        return socket.send_fds(self._sock, [data], [client.fileno()])

    def _read(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._sock, _READ_BYTES, _SOCKETS)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        self._clients.extend(socket.socket(fileno=number) for number in descriptors)
        if not data:
            self._end()
            return
        self._decoder.push(data)
        with contextlib.suppress(KvorumError):  # both ends are of one version
            while self._open and (message := self._decoder.pull()) is not None:
                comes = message[0] == CLIENT and self._clients
                self._heard(message, self._clients.popleft() if comes else None)

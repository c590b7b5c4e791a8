"""SQL in processes of their own (`sql_processes`): a node is one loop, and with these its SQL is
not in it (docs/decisions/1144).

    clients ─▶ listening socket of the node ─ accepted, handed over ─▶ process 0 ─┐ native protocol
                                             the one with the fewest ─▶ process 1 ─┴▶ the nodes

Each is a stateless proxy (kvorum/sql/sql_process.py). The node accepts, because it can choose: the
process with the fewest clients gets the next one, and who kills a process ends its sessions alone.
What sessions of one node know of each other goes through here (kvorum/sql/sql_channel.py): a cancel
request to whose it is, pg_stat_activity, pg_terminate_backend. The number of a session says which
process it is in: process `i` of n gives out i + 1, i + 1 + n, …

A process that ends by itself is started again; while none is ready clients wait in the socket.
They end with the node: their standard input is one end of the channel, which closes however the
node ends.

Deliberately missing: a process that hangs is not looked for, as nobody looks for a node that does.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kv.base.config import ENVIRONMENT_PREFIX, NodeConfig
from kv.base.limits import SQL_CONNECTIONS_MAX
from kv.base.ports import Rng, Timers
from kvorum.audit.open_audit_log import LogSettings
from kvorum.sql.sql_channel import (
    ANSWER,
    CANCEL,
    CLIENT,
    END,
    GONE,
    LIST,
    READY,
    SESSIONS,
    SETTINGS,
    STOP,
    Channel,
)

NO_PROCESSES: Final = {"processes": 0, "processes_restarted": 0, "clients": 0}
"""`figures` of a node that serves SQL itself."""
_ACCEPTED_AT_ONCE: Final = 64
_NO_FILES_S: Final = 0.1  # until clients are accepted again when no descriptors were left, …
_UNTAKEN_MAX: Final = 256  # … or every process has left so many messages untaken
_ASK_S: Final = 1.0  # a process that has not listed its sessions until then is left out
_REST_S: Final = (0.1, 5.0)  # before a process is started again, the first time and at most
_FIRST_S: Final = 10.0  # the first one waits so long for the others: clients come to all
_WELL_S: Final = 10.0  # one that lived so long may begin with the first rest again
_STOP_S: Final = 12.0
_SECRET_BYTES: Final = 32

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _One:
    number: int
    channel: Channel | None = None
    ready: bool = False
    clients: int = 0
    pid: int = 0


@dataclass(slots=True)
class _Question:
    """A process that wants to know of the sessions of the others."""

    asker: _One
    number: int
    open: set[int]
    rows: list[object] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class SqlProcesses:
    """See the module. `open` once, `close` once."""

    def __init__(self, config: NodeConfig, node: int, timers: Timers, rng: Rng) -> None:
        assert config.port is not None
        # By which they prove to be this node's: the cluster's, if it has one.
        self.secret = config.cluster_secret.encode() or rng.token(_SECRET_BYTES)
        self._count = config.sql_processes
        self._settings = {
            "address": [_reached(config.listen), config.port],
            "count": self._count,
            "node": node,
            "data": str(config.data.absolute()),
            "log_level": config.log_level,
            "tls_dir": config.tls_dir,
            "connections_max": -(-SQL_CONNECTIONS_MAX // self._count),
            "memory_bytes": config.sql_memory_bytes // self._count,
            "session_defaults": config.session_defaults,
            "log": dataclasses.asdict(LogSettings.of(config, ".sql")),
            "secret": rng.token(_SECRET_BYTES),
            "node_secret": self.secret,
        }
        self._timers = timers
        self._all = [_One(number) for number in range(self._count)]
        self._sock: socket.socket | None = None
        self._accepting = False
        self._begun = False  # all were ready once, or had their time
        self._closing = asyncio.Event()
        self._keepers: list[asyncio.Task[None]] = []
        self._questions: dict[int, _Question] = {}
        self._asked = 0
        self.restarts = 0

    def open(self, sock: socket.socket) -> None:
        """Start them, and hand over who comes to a socket that listens."""
        self._sock = sock
        loop = asyncio.get_running_loop()
        self._keepers = [loop.create_task(self._keep(one)) for one in self._all]

    async def close(self) -> None:
        """End sessions and processes in order, and listen no more."""
        self._closing.set()
        self._pause()
        if self._sock is not None:
            self._sock.close()
        for one in self._all:
            if one.channel is not None:
                one.channel.send([STOP])
        if self._keepers:
            await asyncio.wait(self._keepers)
        for question in list(self._questions.values()):
            self._answer(question)

    def not_ready(self) -> str | None:
        """Why nobody is served, None if somebody is."""
        if self._closing.is_set() or (self._begun and any(one.ready for one in self._all)):
            return None
        return "its SQL processes are starting"

    def figures(self) -> Mapping[str, int]:
        """For the metrics."""
        return {
            "processes": sum(one.ready for one in self._all),
            "processes_restarted": self.restarts,
            "clients": sum(one.clients for one in self._all),
        }

    # -- the processes

    async def _keep(self, one: _One) -> None:
        """Have it run until the node stops."""
        rest = _REST_S[0]
        while not self._closing.is_set():
            began = self._timers.monotonic()
            try:
                why = await self._run(one)
            except OSError as error:
                why = f"it cannot be started: {error.strerror or error}"
            except Exception as error:  # an application boundary: the others go on
                log.exception("SQL process %d is not looked after", one.number)
                why = str(error)
            if self._closing.is_set():
                return
            self.restarts += 1
            log.warning("SQL process %d ended: %s; it is started again", one.number, why)
            rest = _REST_S[0] if self._timers.monotonic() - began > _WELL_S else rest
            try:
                async with asyncio.timeout(rest):
                    await self._closing.wait()
            except TimeoutError:
                rest = min(2 * rest, _REST_S[1])

    async def _run(self, one: _One) -> str:
        """From its start to its end; why it ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "kvorum.sql.sql_process"),
                    env=_environment(os.environ),
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is passed on by us
                )
            except BaseException:
                ours.close()
                raise
        one.pid = process.pid
        one.channel = Channel(ours, partial(self._heard, one), partial(self._lost, one))
        one.channel.send([SETTINGS, {**self._settings, "number": one.number}])
        if self._closing.is_set():
            one.channel.send([STOP])
        ended = asyncio.get_running_loop().create_task(process.wait())
        stopping = asyncio.get_running_loop().create_task(self._closing.wait())
        try:
            await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([ended], timeout=_STOP_S)
        finally:
            stopping.cancel()
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGKILL)
            await ended
            self._lost(one)
        code = process.returncode
        assert code is not None
        return f"by signal {-code}" if code < 0 else f"with exit code {code}"

    def _lost(self, one: _One) -> None:
        """It is gone, or going: it gets nothing more."""
        if one.channel is not None:
            one.channel.close()
        one.channel, one.ready, one.clients, one.pid = None, False, 0, 0
        self._served_or_pause()
        for question in list(self._questions.values()):
            if question.asker is one:
                self._forget(question)
            else:
                self._answered(question, one.number, [])

    # -- clients

    def _served_or_pause(self) -> None:
        if not any(one.ready for one in self._all):
            self._pause()

    def _came(self) -> None:
        """One more process is ready."""
        if not self._begun and not all(one.ready for one in self._all):
            asyncio.get_running_loop().call_later(_FIRST_S, self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        self._begun = True
        if any(one.ready for one in self._all):
            self._resume()

    def _resume(self) -> None:
        if not self._accepting and self._sock is not None and not self._closing.is_set():
            self._accepting = True
            asyncio.get_running_loop().add_reader(self._sock, self._accept)

    def _pause(self) -> None:
        if self._accepting and self._sock is not None:
            self._accepting = False
            asyncio.get_running_loop().remove_reader(self._sock)

    def _rest(self) -> None:
        self._pause()
        asyncio.get_running_loop().call_later(_NO_FILES_S, self._resume)

    def _accept(self) -> None:
        assert self._sock is not None
        for _ in range(_ACCEPTED_AT_ONCE):
            found = [one for one in self._all if one.ready and one.channel is not None]
            one = min(found, key=_load, default=None)
            if one is None:
                self._pause()
                return
            assert one.channel is not None
            if one.channel.waiting > _UNTAKEN_MAX:  # their sockets would be ours, without a bound
                self._rest()
                return
            try:
                client, _address = self._sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors are left
                log.warning("SQL clients have to wait: %s", error.strerror)
                self._rest()
                return
            one.clients += 1
            one.channel.send([CLIENT], client)

    # -- what they say

    def _heard(self, one: _One, message: list[object], _client: socket.socket | None) -> None:
        match message:
            case [str(kind)] if kind == READY:
                one.ready = True
                log.info("SQL process %d serves (pid %d)", one.number, one.pid)
                self._came()
            case [str(kind)] if kind == GONE:
                one.clients -= 1
            case [str(kind)] if kind == STOP:
                one.ready = False
                self._served_or_pause()
                if one.channel is not None:
                    one.channel.send([STOP])
            case [str(kind), int(process), *_] if kind in (CANCEL, END):
                owner = self._all[(process - 1) % self._count]
                if owner.channel is not None:
                    owner.channel.send(message)
            case [str(kind), int(number)] if kind == SESSIONS:
                self._ask_others(one, number)
            case [str(kind), int(number), list(rows)] if kind == ANSWER:
                question = self._questions.get(number)
                if question is not None:
                    self._answered(question, one.number, rows)

    def _ask_others(self, one: _One, number: int) -> None:
        self._asked += 1
        mine = self._asked
        others = [other for other in self._all if other is not one and other.ready]
        question = _Question(one, number, {other.number for other in others})
        self._questions[mine] = question
        if not others:
            self._answer(question)
            return
        loop = asyncio.get_running_loop()
        question.timer = loop.call_later(_ASK_S, self._answer, question)
        for other in others:
            if other.channel is not None:
                other.channel.send([LIST, mine])

    def _answered(self, question: _Question, number: int, rows: list[object]) -> None:
        if number in question.open:
            question.open.remove(number)
            question.rows += rows
            if not question.open:
                self._answer(question)

    def _answer(self, question: _Question) -> None:
        self._forget(question)
        if question.asker.channel is not None:
            question.asker.channel.send([SESSIONS, question.number, question.rows])

    def _forget(self, question: _Question) -> None:
        if question.timer is not None:
            question.timer.cancel()
        for key in [key for key, one in self._questions.items() if one is question]:
            del self._questions[key]


def _load(one: _One) -> tuple[bool, int, int]:
    """What a client would find there: the least is best."""
    assert one.channel is not None
    return one.channel.waiting > _UNTAKEN_MAX, one.clients, one.number


def _reached(listen: str) -> str:
    """Where a process of this machine reaches what listens there."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen, listen)


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """Without our settings: they are sent what they need."""
    return {name: v for name, v in own.items() if not name.startswith(ENVIRONMENT_PREFIX)}

"""The tables that are measured on: made through the SDK, filled in large batches."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import kvorum
from bench.native import frame, rest_of
from bench.node import Server
from bench.spec import KEYS, user_key
from kv.base import methods as m
from kv.base.keys import table_prefix, table_range
from kv.base.rpc import HEADER_BYTES, FrameEncoder, Hello, decode, read_hello

NAMESPACE = "bench"
_ROWS_PER_BATCH = 1_000
_TIMEOUT_S = 60.0
_SETTLED_S = 4.0


class Caller:
    """A blocking connection of the native protocol, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self._socket.sendall(FrameEncoder().message(Hello().to_wire()))
        read_hello(decode(self._receive()[HEADER_BYTES:]), "")

    def call(self, method: int, *args: Any) -> list[Any]:
        """The fields of the result. Raises bench.closed_loop.Failed with the server's reason."""
        self.send(method, *args)
        return self.receive()

    def send(self, method: int, *args: Any) -> None:
        """Ask; the answers come in the order of the questions of one partition."""
        self._socket.sendall(frame(method, *args))

    def receive(self) -> list[Any]:
        """The next answer, of a frame with one."""
        return rest_of(self._receive())

    def rows(self) -> list[list[Any]]:
        """The answers of the next frame, as they are: `[rid, status, …]`."""
        found: list[list[Any]] = decode(self._receive()[HEADER_BYTES:])
        return found

    def _receive(self) -> bytes:
        head = self._exactly(HEADER_BYTES)
        return head + self._exactly(int.from_bytes(head, "little"))

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self._socket.recv(count - len(data))
            if not chunk:
                raise ConnectionError("the node closed the connection")
            data += chunk
        return bytes(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Loaded:
    """A table and where it lives; it is one partition. `port`: of the node that leads it."""

    name: str
    id: int
    end: bytes
    partition: int
    epoch: int
    port: int


def ensure_namespace(db: kvorum.Database) -> None:
    if NAMESPACE not in db.namespaces():
        db.create_namespace(NAMESPACE)


def keep_shape(db: kvorum.Database) -> None:
    """Let tables have the partitions that they are made with. Else a case that is measured for
    long enough is split for its load: it changes into another case, and lean clients, which look
    for a partition once, hear that it moved.
    """
    setting = {"name": "partition.auto", "value": 0}
    db.wait(db.submit("kvorum.set_setting", setting))


def create(node: Server, name: str) -> Loaded:
    """An empty table `bench.NAME`, of one partition that stays one."""
    with kvorum.connect(node.url) as db:
        keep_shape(db)
        ensure_namespace(db)
        table = db.create_table(NAMESPACE, name).id
    return _located(node, name, table)


def found_again(node: Server, table: Loaded) -> Loaded:
    """`table` where its leader is now: leaders move when other tables are made."""
    return _located(node, table.name, table.id)


def _located(node: Server, name: str, table: int) -> Loaded:
    partition, epoch, port = _settled(node, table_prefix(table))
    return Loaded(name, table, table_range(table)[1], partition, epoch, port)


def _settled(node: Server, key: bytes) -> tuple[int, int, int]:
    """Partition, epoch and the leader's port. A cluster elects a leader for a new partition and may
    move it once, where leaders are fewer: wait until it stays.
    """
    found, since, deadline = 0, time.monotonic(), time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        with Caller(node.base) as caller:
            descriptor, (_host, port), leader = caller.call(m.LOOKUP, key)
        partition, _start, _end, epoch, *_ = descriptor
        if leader and not port:
            port = node.base  # the node that was asked
        if len(node.pids) == 1:
            return partition, epoch, node.base
        if port != found:
            found, since = port, time.monotonic()
        elif port and time.monotonic() - since > _SETTLED_S:
            return partition, epoch, port
        time.sleep(0.1)
    raise RuntimeError(f"the partition of {key!r} has no leader that stays")


def oracle_port(node: Server) -> int:
    """The port of the node that gives out timestamps: it leads the meta partition."""
    with Caller(node.base) as caller:
        _descriptor, (_host, port), _leader = caller.call(m.LOOKUP, bytes(4))
    return int(port) or node.base


def fill(table: Loaded, size: int, keys: range) -> None:
    """Write these rows with values of `size` random bytes."""
    rng = random.Random(size)
    with Caller(table.port) as caller:
        for at in range(keys.start, keys.stop, _ROWS_PER_BATCH):
            numbers = range(at, min(at + _ROWS_PER_BATCH, keys.stop))
            write(caller, table, numbers, rng.randbytes(size))


def write(caller: Caller, table: Loaded, numbers: Sequence[int], value: bytes) -> None:
    """One atomic batch."""
    prefix = table_prefix(table.id)
    ops = [[m.OP_PUT, prefix + user_key(n), value, None, 0] for n in numbers]
    caller.call(m.WRITE, table.partition, table.epoch, ops, 0, m.BLIND)


def create_filled(node: Server, size: int, keys: int = KEYS) -> Loaded:
    """The table of the KV cases for values of `size` bytes."""
    table = create(node, f"v{size}")
    fill(table, size, range(keys))
    return table

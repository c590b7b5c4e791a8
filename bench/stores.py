"""Throughput of one machine by the number of its stores (F8: more workers, more throughput).

A table whose partitions have one replica each is spread over the stores of `kvorum start --stores
N`. The client costs as little as a client can, because it shares the machine: its frames are packed
before the window, it keeps a fixed number in flight per partition, and looks at replies only to see
that they are good. What is left is the servers' own work, per operation (`cpu_us`), and how many
cores they found (`cores`).
"""

from __future__ import annotations

import asyncio
import itertools
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

import psutil
import uvloop

import kvorum
from bench.dataset import ensure_namespace
from bench.node import Node, free_base
from bench.stats import Record, median_of_runs, per_op_us
from kv.base import methods as m
from kv.base.keys import table_prefix
from kv.base.rpc import OK, FrameDecoder, FrameEncoder, Hello, error_of

OPS: Final = ("put", "get")
PARTITIONS: Final = 8
_SIZE: Final = 100
_IN_FRAME: Final = 64
_FRAMES: Final = 64  # packed ahead per partition; keys come again after so many
_IN_FLIGHT: Final = 16  # frames per partition: enough that no store waits for its disk alone
_WARM_S: Final = 1.0
_STRIDE: Final = 10


class Machine(Node):
    """`with Machine(2) as machine:` a machine with two stores."""

    def __init__(self, stores: int) -> None:
        super().__init__("stores", options=("--stores", str(stores), "--json"))
        self._base, self._stores = free_base(stores), stores

    @property
    def pids(self) -> tuple[int, ...]:
        """Of those that do the work."""
        if self._stores == 1:
            return (self.pid,)
        return tuple(child.pid for child in psutil.Process(self.pid).children())

    def _ready(self) -> bool:
        ports = (self.base + _STRIDE * i + 2 for i in range(self._stores))
        return all(map(_answers, ports))


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


class Target(NamedTuple):
    """A partition, and where its leader is."""

    host: str
    port: int
    partition: int
    epoch: int
    start: bytes
    """Of its keys, as they are stored."""


def prepare(machine: Node) -> list[Target]:
    """A table of PARTITIONS partitions with one replica each. Every partition has keys `start`
    and longer.
    """
    with kvorum.connect(machine.url) as db:
        ensure_namespace(db)
        splits = [f"{i:02d}" for i in range(1, PARTITIONS)]
        table = db.create_table("bench", "spread", split_keys=splits, replicas=1)
        addresses = {row["id"]: row["address"] for row in db.nodes()}
        rows = [row for row in db.partitions() if row["id"] != 1]
    found = []
    for number, row in enumerate(sorted(rows, key=lambda row: row["start"])):
        host, _, port = addresses[row["leader"]].rpartition(":")
        start = table_prefix(table.id) + f"{number:02d}".encode()
        found.append(Target(host, int(port), row["id"], row["epoch"], start))
    return found


def frames(target: Target, op: str) -> list[bytes]:
    """Frames of _IN_FRAME requests each, on keys of the partition."""
    encoder, value = FrameEncoder(), b"v" * _SIZE
    method, tail = (m.PUT, [value, None, 0]) if op == "put" else (m.GET, [0, None])
    keys = (target.start + f"/{i:06d}".encode() for i in itertools.count())
    head = [method, 0, target.partition, target.epoch]
    return [
        encoder.message([[rid, *head, next(keys), *tail] for rid in range(1, _IN_FRAME + 1)])
        for _ in range(_FRAMES)
    ]


class Sender(asyncio.Protocol):
    """One connection that keeps one frame in flight until `end`."""

    def __init__(self, packed: list[bytes]) -> None:
        self.done = 0
        self.errors: list[str] = []
        self.end = 0.0
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._frames = itertools.cycle(packed)
        self._decoder = FrameDecoder()
        self._greeted = False
        self._missing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._transport.write(FrameEncoder().message(Hello().to_wire()))

    def data_received(self, data: bytes) -> None:
        self._decoder.push(data)
        while (message := self._decoder.pull()) is not None:
            if not self._greeted:
                self._greeted = True
                self._fire()
                continue
            self.done += len(message)
            self._missing -= len(message)
            self.errors += [str(error_of(row)) for row in message if row[1] != OK]
            if not self._missing:
                self._fire()

    def _fire(self) -> None:
        if time.monotonic() >= self.end or self.errors:
            self.close()
            return
        self._missing = _IN_FRAME
        self._transport.write(next(self._frames))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.finished.done():
            self.errors.append(f"connection lost: {error}")
            self.finished.set_result(None)

    def close(self) -> None:
        self._transport.close()
        if not self.finished.done():
            self.finished.set_result(None)


async def _window(machine: Machine, targets: list[Target], op: str, secs: float) -> Record:
    loop = asyncio.get_running_loop()
    senders: list[Sender] = []
    end = time.monotonic() + _WARM_S + secs
    for target in targets:
        packed = frames(target, op)
        for turn in range(_IN_FLIGHT):
            ordered = packed[turn * _FRAMES // _IN_FLIGHT :] + packed
            sender = Sender(ordered)
            sender.end = end
            senders.append(sender)
            await loop.create_connection(lambda one=sender: one, target.host, target.port)  # type: ignore[misc]
    await asyncio.sleep(_WARM_S)
    before, done, own = _cpu_s(machine), sum(s.done for s in senders), time.process_time()
    began = time.monotonic()
    await asyncio.sleep(max(0.0, end - began))
    seconds, done = time.monotonic() - began, sum(s.done for s in senders) - done
    servers_s, client_s = _cpu_s(machine) - before, time.process_time() - own
    await asyncio.gather(*(sender.finished for sender in senders))
    if errors := [error for sender in senders for error in sender.errors]:
        raise RuntimeError(f"{len(errors)} errors, the first: {errors[0]}")
    return {
        "ops_s": round(done / seconds, 1),
        "cpu_us": per_op_us(servers_s, done),
        "cores": round(servers_s / seconds, 2),
        "client_cores": round(client_s / seconds, 2),
    }


def _cpu_s(machine: Machine) -> float:
    times = (psutil.Process(pid).cpu_times() for pid in machine.pids)
    return sum(found.user + found.system for found in times)


def run(counts: list[int], *, reps: int, secs: float) -> Iterator[Record]:
    """A record per operation and number of stores; `gain` is the throughput as a multiple of that
    of the first number.
    """
    first: dict[str, float] = {}
    for stores in counts:
        with Machine(stores) as machine:
            targets = prepare(machine)
            nodes = len({target.port for target in targets})
            for op in OPS:  # what is read was written before
                runs = [uvloop.run(_window(machine, targets, op, secs)) for _ in range(reps)]
                found: Record = median_of_runs(runs)
                base = first.setdefault(op, found["ops_s"])
                where: dict[str, Any] = {"bench": "stores", "op": op, "stores": stores}
                where |= {"serving": nodes, "partitions": len(targets), "size": _SIZE}
                yield where | found | {"gain": round(found["ops_s"] / base, 2)}

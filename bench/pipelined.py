"""A lean client with many requests in flight per connection: their cost when they share frames."""

from __future__ import annotations

import asyncio
from random import Random
from time import monotonic
from typing import Any, cast

from bench.closed_loop import Tally
from bench.spec import Spec
from kv.base import methods as m
from kv.base.rpc import OK, FrameDecoder, FrameEncoder, Hello, error_of, read_hello

OPS = ("put", "get")


class PipelinedConnection(asyncio.Protocol):
    """Keeps `window` requests in flight: as many new ones as replies came, in one frame."""

    def __init__(
        self, spec: Spec, keys: list[bytes], rng: Random, value: bytes, *, window: int, tally: Tally
    ) -> None:
        self._keys, self._choose, self._tally, self._window = keys, rng.random, tally, window
        where = [spec.partition, spec.epoch]
        self._head = [m.PUT if spec.op == "put" else m.GET, 0, *where]
        self._tail = [value, None, 0] if spec.op == "put" else [0, None]
        self._encoder, self._decoder = FrameEncoder(), FrameDecoder()
        self._sent: dict[int, float] = {}
        self._rid = 0
        self._greeted = self._stopping = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._transport.write(self._encoder.message(Hello().to_wire()))

    def start(self) -> None:
        self._fire(self._window)

    def _fire(self, count: int) -> None:
        now, rows = monotonic(), []
        for _ in range(count):
            self._rid += 1
            self._sent[self._rid] = now
            key = self._keys[int(self._choose() * len(self._keys))]
            rows.append([self._rid, *self._head, key, *self._tail])
        self._transport.write(self._encoder.message(rows))

    def data_received(self, data: bytes) -> None:
        self._decoder.push(data)
        answered = 0
        while (message := self._decoder.pull()) is not None:
            if not self._greeted:
                read_hello(message, "")
                self._greeted = True
                self.ready.set_result(None)
                continue
            answered += len(message)
            self._note(message)
        if not answered:
            return
        if monotonic() < self._tally.end:
            self._fire(answered)
        elif not self._sent and not self.finished.done():
            self.finished.set_result(None)

    def _note(self, rows: list[list[Any]]) -> None:
        tally, now = self._tally, monotonic()
        inside = tally.begin <= now < tally.end
        for row in rows:
            sent = self._sent.pop(row[0])
            if row[1] != OK:
                tally.failed(str(error_of(row)))
            elif inside:
                tally.latencies.append(now - sent)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._stopping and not self.finished.done():
            self._tally.failed(f"connection lost: {error}")
        if not self.finished.done():
            self.finished.set_result(None)

    def close(self) -> None:
        self._stopping = True
        self._transport.close()

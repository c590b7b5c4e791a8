"""A small bounded load on the HTTP API: `python -m bench.micro_http` prints one JSON line.

One node in a process of its own, CLIENTS keep-alive connections from this process, raw HTTP/1.1 (a
client library would be what is measured). Durable puts of 100 bytes, then gets of the same keys;
client and node share the machine's cores.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import uvloop

from bench.node import Node

CLIENTS = int(os.environ.get("CLIENTS", "64"))
SECONDS = float(os.environ.get("SECONDS", "3"))
VALUE = b"v" * 100


class Client(asyncio.Protocol):
    """Sends the next request when the answer to the last one is complete."""

    def __init__(self, number: int, put: bool, latencies: list[float], until: float) -> None:
        self._requests = [request(put, number * 1000 + i) for i in range(100)]
        self._latencies, self._until = latencies, until
        self._buffer = b""
        self._sent = 0.0
        self._i = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._next()

    def _next(self) -> None:
        self._sent = time.perf_counter()
        if self._sent >= self._until:
            self._transport.close()
            self.done.set_result(None)
            return
        self._transport.write(self._requests[self._i % 100])
        self._i += 1

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        assert head.startswith(b"HTTP/1.1 200"), self._buffer
        at = head.index(b"content-length: ") + 16
        if len(body) >= int(head[at:].split(b"\r\n", 1)[0]):
            self._buffer = b""
            self._latencies.append(time.perf_counter() - self._sent)
            self._next()


def request(put: bool, key: int) -> bytes:
    head = f"{'PUT' if put else 'GET'} /v1/kv/default/micro/k{key} HTTP/1.1\r\nhost: bench\r\n"
    if not put:
        return head.encode() + b"\r\n"
    return f"{head}content-length: {len(VALUE)}\r\n\r\n".encode() + VALUE


async def load(port: int, *, put: bool) -> list[float]:
    latencies: list[float] = []
    until = time.perf_counter() + SECONDS
    loop = asyncio.get_running_loop()
    clients = [
        (
            await loop.create_connection(
                lambda n=n: Client(n, put, latencies, until), "127.0.0.1", port
            )
        )[1]
        for n in range(CLIENTS)
    ]
    await asyncio.gather(*(c.done for c in clients))
    return latencies


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(node: Node) -> dict[str, object]:
    import kvorum

    async with await kvorum.aconnect(node.url) as db:
        await db.create_table("default", "micro")
    result: dict[str, object] = {
        "bench": "micro_http",
        "clients": CLIENTS,
        "value_bytes": len(VALUE),
    }
    for name, put in (("put", True), ("get", False)):
        if not put:  # every key that will be read
            await load(node.http_port, put=True)
        before = cpu_s(node.pid)
        latencies = sorted(await load(node.http_port, put=put))
        spent = cpu_s(node.pid) - before
        result |= {
            f"{name}s_per_s": round(len(latencies) / SECONDS),
            f"{name}_p50_ms": round(latencies[len(latencies) // 2] * 1000, 2),
            f"{name}_p99_ms": round(latencies[len(latencies) * 99 // 100] * 1000, 2),
            f"{name}_server_us": round(spent / len(latencies) * 1e6, 1),
        }
    return result


def main() -> None:
    with Node("micro-http") as node:
        sys.stdout.write(json.dumps(uvloop.run(measure(node))) + "\n")


if __name__ == "__main__":
    main()

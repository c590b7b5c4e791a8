"""What one message between peers costs: two processes, one connection over loopback.

    python -m bench.micro_peers [--seconds 2] [--entry-bytes 3000] [--groups 1,16]

Prints one JSON line. `codec`: microseconds to pack and to read one message, no socket. `wire`: per
number of groups, a leader sends each group's append and waits for all their acknowledgements (what
happens once per sync), again and again: rounds/s, messages/s, and CPU microseconds (user + system)
per message sent or received, of both processes together. `bulk`: MiB/s of 1 MiB appends, and the
longest time that a heartbeat took meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import secrets
import subprocess
import sys
import time
import timeit
from typing import Any

import uvloop

from kv.base.adapters import LoopTimers, SystemRng
from raft import wire
from raft.transport import MuxTransport

LEADER, FOLLOWER = 1, 2
ROOM = 1 << 20


class Known:
    """raft.peers.Peers that forgets."""

    def load(self) -> dict[int, bytes]:
        return {}

    def save(self, node: int, incarnation: bytes) -> None:
        pass


def transport(node: int) -> MuxTransport:
    return MuxTransport(
        cluster="bench",
        node_id=node,
        incarnation=secrets.token_bytes(16),
        secret=b"",
        timers=LoopTimers(asyncio.get_running_loop()),
        rng=SystemRng(),
        peers=Known(),
    )


def append(size: int) -> dict[str, Any]:
    return {
        "type": "append_entries",
        "term": 3,
        "commit_index": 1000,
        "at": time.monotonic(),
        "entries": [(bytes(size), 1001, 3)],
        "prevLogIdx": 1000,
        "prevLogTerm": 3,
        "round": 77,
    }


def ack() -> dict[str, Any]:
    return {
        "type": "next_node_idx",
        "next_node_idx": 1002,
        "success": True,
        "reset": False,
        "last": 1001,
        "at": time.monotonic(),
        "term": 3,
    }


async def follow(port: int) -> None:
    """The other process: acknowledges appends, repeats heartbeats, reports its CPU time."""
    mux = transport(FOLLOWER)
    done = asyncio.Event()

    def receive(peer: int, group: int, message: dict[str, Any]) -> None:
        match message["type"]:
            case "append_entries":
                mux.send(peer, group, ack(), early=False)
            case "heartbeat":
                mux.send(peer, group, message, early=True)
            case "cpu":
                us = time.process_time_ns() // 1000
                mux.send(peer, group, {"type": "cpu", "us": us}, early=True)

    mux.on_message = receive
    mux.on_down = lambda _peer: done.set()
    await mux.start("127.0.0.1", 0)
    mux.set_peer(LEADER, ("127.0.0.1", port))
    gc.freeze()
    await done.wait()
    await mux.close()


class Leader:
    """Measures."""

    def __init__(self, mux: MuxTransport) -> None:
        self._mux, self._owed = mux, 0
        self._all = asyncio.Event()
        self._cpu_us = 0
        self.beats: list[float] = []
        mux.on_message = self._receive

    def _receive(self, peer: int, group: int, message: dict[str, Any]) -> None:
        if message["type"] == "heartbeat":
            self.beats.append(time.perf_counter() - message["sent"])
            return
        if message["type"] == "cpu":
            self._cpu_us = message["us"]
        self._owed -= 1
        if self._owed == 0:
            self._all.set()

    async def _ask(self, messages: list[tuple[int, dict[str, Any]]]) -> None:
        self._owed = len(messages)
        self._all.clear()
        for group, message in messages:
            self._mux.send(FOLLOWER, group, message, early=True)
        await self._all.wait()

    async def _cpu(self) -> float:
        await self._ask([(0, {"type": "cpu"})])
        return self._cpu_us + time.process_time_ns() / 1000

    async def rounds(self, groups: int, size: int, seconds: float) -> dict[str, float]:
        count = 0
        before, began = await self._cpu(), time.perf_counter()
        while time.perf_counter() < began + seconds:
            await self._ask([(group, append(size)) for group in range(groups)])
            count += 1
        took, used_us = time.perf_counter() - began, await self._cpu() - before
        # Each append and each acknowledgement is one message, sent here and received there.
        messages = 2 * groups * count
        return {
            "rounds_s": round(count / took),
            "messages_s": round(messages / took),
            "us_per_message": round(used_us / messages, 2),
        }

    async def bulk(self, seconds: float) -> dict[str, float]:
        mux, sent = self._mux, 0
        self.beats.clear()
        self._owed = 1 << 60
        began = time.perf_counter()
        while time.perf_counter() < began + seconds:
            while mux.room(FOLLOWER):
                mux.send(FOLLOWER, 1, append(ROOM), early=True)
                sent += 1
            mux.send(FOLLOWER, 2, {"type": "heartbeat", "sent": time.perf_counter()}, early=True)
            await asyncio.sleep(0.005)
        arrived = sent - mux.figures()[FOLLOWER].queued_bytes / ROOM
        return {
            "mib_s": round(arrived * ROOM / (1 << 20) / (time.perf_counter() - began)),
            "heartbeat_ms_max": round(max(self.beats) * 1000, 1),
        }


def codec(size: int) -> dict[str, float]:
    """Best of several runs, microseconds."""

    def best(call: Any) -> float:
        return round(min(timeit.repeat(call, number=5000, repeat=5)) / 5000 * 1e6, 2)

    found = {}
    for name, message in (("append", append(size)), ("ack", ack())):
        body = wire.messages_body([wire.pack_message(7, message)])
        reader = wire.FrameReader(wire.FRAME_BYTES_MAX)
        data = wire.frame(wire.MESSAGES, body)

        def send(message: dict[str, Any] = message) -> bytes:
            row = wire.pack_message(7, message)
            return wire.frame(wire.MESSAGES, wire.messages_body([row]))

        def receive(reader: wire.FrameReader = reader, data: bytes = data) -> None:
            reader.room()[: len(data)] = data
            for _, body in reader.received(len(data)):
                wire.read_messages(body)

        found[f"{name}_send_us"], found[f"{name}_receive_us"] = best(send), best(receive)
    return found


async def lead(groups: list[int], size: int, seconds: float) -> dict[str, Any]:
    mux = transport(LEADER)
    up = asyncio.Event()
    mux.on_up = lambda _peer: up.set()
    port = await mux.start("127.0.0.1", 0)
    command = [sys.executable, "-m", "bench.micro_peers", "--follow", str(port)]
    with subprocess.Popen(command) as process:  # noqa: ASYNC220 - nobody waits for the loop yet
        try:
            await asyncio.wait_for(up.wait(), 20)
            leader = Leader(mux)
            await leader.rounds(1, size, seconds / 10)  # warms up
            wires = {str(n): await leader.rounds(n, size, seconds) for n in groups}
            bulk = await leader.bulk(seconds)
        finally:
            await mux.close()
            process.terminate()
    return {"wire": wires, "bulk": bulk}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--entry-bytes", type=int, default=3000)
    parser.add_argument("--groups", default="1,16")
    parser.add_argument("--follow", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        uvloop.run(follow(options.follow))
        return
    groups = [int(n) for n in options.groups.split(",")]
    found = uvloop.run(lead(groups, options.entry_bytes, options.seconds))
    print(
        json.dumps(
            {
                "bench": "micro_peers",
                "cpus": os.cpu_count(),
                "codec": codec(options.entry_bytes),
                **found,
            }
        )
    )


if __name__ == "__main__":
    main()

"""What idle groups cost: three processes, each with a replica of every group, over loopback.

    python -m bench.micro_idle [--groups 1000] [--seconds 10]

Prints one JSON line: for `awake` (heartbeats) and `asleep` (hibernation), the CPU of each process
in per cent of one core, and the log's syncs meanwhile. Logs are in memory: an idle group writes
nothing. `wake_ms`: from a proposal to a sleeping group until it is committed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import secrets
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

import uvloop

from bench.machine import Meter
from kv.base.adapters import LoopTimers, SystemRng
from raft import (
    Command,
    MemoryLogDB,
    MemoryPeers,
    MemorySyncer,
    RaftConfig,
    RaftHost,
    SnapshotId,
    SnapshotSink,
    SnapshotSource,
    SnapshotUnavailable,
)
from raft.transport import MuxTransport

NODES = (1, 2, 3)
START_S = 120.0


class Idle:
    """A state machine that keeps nothing but its place."""

    def __init__(self) -> None:
        self.at = (0, 0)
        self.done = asyncio.Event()

    def applied(self) -> tuple[int, int]:
        return self.at

    def apply(self, index: int, term: int, command: Command, token: object | None) -> None:
        self.at = (index, term)
        if token is not None:
            self.done.set()

    def advance(self, index: int, term: int) -> None:
        self.at = (index, term)

    def dropped(self, tokens: list[object], *, unknown: bool) -> None:
        pass

    def role(self, *, leader: bool, term: int) -> None:
        pass

    def snapshot(self) -> SnapshotSource:
        raise SnapshotUnavailable("an idle group has nothing to send")

    def restore(self, snapshot: SnapshotId) -> SnapshotSink:
        raise SnapshotUnavailable("an idle group takes nothing")


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def member(node: int, groups: int, hibernate_after_ms: int) -> None:
    """One node: prints its port, reads the others', prints how its groups stand until it is told
    to stop.
    """
    timers = LoopTimers(asyncio.get_running_loop())
    mux = MuxTransport(
        cluster="bench",
        node_id=node,
        incarnation=secrets.token_bytes(16),
        secret=b"",
        timers=timers,
        rng=SystemRng(),
        peers=MemoryPeers(),
    )
    db = MemoryLogDB()
    host = RaftHost(
        node_id=node,
        log_db=db,
        syncer=MemorySyncer(db, timers),  # type: ignore[arg-type]
        timers=timers,
        rng=random.Random(node),
        on_fatal=lambda error: say(fatal=str(error)),
        transport=mux,
        config=RaftConfig(hibernate_after_ms=hibernate_after_ms),
    )
    mux.on_message, mux.on_up, mux.on_down = host.receive, host.peer_up, host.peer_down
    say(port=await mux.start("127.0.0.1", 0))
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    for peer, port in json.loads(await lines.readline()).items():
        if int(peer) != node:
            mux.set_peer(int(peer), ("127.0.0.1", port))
    machines = {group: Idle() for group in range(groups)}
    for group, machine in machines.items():
        host.create_group(group, NODES)
        host.open_group(group, machine)
    gc.freeze()
    replicas = [replica for group in machines if (replica := host.group(group)) is not None]
    while (line := await lines.readline()).strip():
        if line.strip() == b"wake":
            group = next(group for group in machines if getattr(host.group(group), "leader", False))
            began = time.perf_counter()
            replica = host.group(group)
            assert replica is not None
            replica.propose(b"x", "x")
            await machines[group].done.wait()
            say(wake_ms=round((time.perf_counter() - began) * 1000, 2))
        else:
            say(
                leaders=sum(replica.leader for replica in replicas),
                asleep=sum(replica.status().hibernating for replica in replicas),
                syncs=host.counters.syncs,
            )
    host.close()
    await mux.close()


class Member:
    """The parent's end of a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.port = self.hear()["port"]

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        heard: dict[str, Any] = json.loads(self.process.stdout.readline())
        if "fatal" in heard:
            raise SystemExit(f"a node failed: {heard['fatal']}")
        return heard

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line: str = "?") -> dict[str, Any]:
        self.tell(line)
        return self.hear()


def wait_until(members: list[Member], what: str, wanted: int) -> None:
    end = time.monotonic() + START_S
    while (found := sum(one.ask()[what] for one in members)) != wanted:
        if time.monotonic() > end:
            raise SystemExit(f"only {found} of {wanted} {what} after {START_S:.0f} s")
        time.sleep(0.5)


def measure(groups: int, seconds: float, *, sleeping: bool) -> dict[str, Any]:
    after_ms = 2000 if sleeping else 0
    with ExitStack() as stack:
        members = []
        for node in NODES:
            command = [sys.executable, "-m", "bench.micro_idle", "--member", str(node)]
            command += ["--groups", str(groups), "--hibernate-after-ms", str(after_ms)]
            process = stack.enter_context(
                subprocess.Popen(command, stdin=-1, stdout=-1, text=True, bufsize=1)
            )
            stack.callback(process.terminate)
            members.append(Member(process))
        ports = json.dumps({node: one.port for node, one in zip(NODES, members, strict=True)})
        for one in members:
            one.tell(ports)
        wait_until(members, "leaders", groups)
        if sleeping:
            wait_until(members, "asleep", groups * len(NODES))
        time.sleep(2)
        before = [one.ask()["syncs"] for one in members]
        meters = [Meter([one.process.pid], []) for one in members]
        time.sleep(seconds)
        used = [meter.read() for meter in meters]
        found: dict[str, Any] = {
            "cpu_percent": [round(100 * one.server_s / one.wall_s, 2) for one in used],
            "syncs": sum(one.ask()["syncs"] for one in members) - sum(before),
            "other_cores": used[0].other_cores,
        }
        if sleeping:
            leading = next(one for one in members if one.ask()["leaders"])
            found["wake_ms"] = leading.ask("wake")["wake_ms"]
        for one in members:
            one.tell("")
            one.process.wait(20)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--member", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--hibernate-after-ms", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member:
        uvloop.run(member(options.member, options.groups, options.hibernate_after_ms))
        return
    line = {
        "bench": "micro_idle",
        "cpus": os.cpu_count(),
        "groups": options.groups,
        "awake": measure(options.groups, options.seconds, sleeping=False),
        "asleep": measure(options.groups, options.seconds, sleeping=True),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()

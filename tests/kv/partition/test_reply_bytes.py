"""Large replies: what one pass of the loop reads is bounded, and a slow peer holds only itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kv.base import methods
from kv.base.config import NodeConfig
from kv.base.errors import DeadlineExceeded, NotLeader, TooLarge, from_wire
from kv.base.limits import (
    DRAIN_REPLY_BYTES,
    MULTI_GET_BYTES_MAX,
    REQUESTS_PER_FRAME_MAX,
    KiB,
    MiB,
)
from kv.base.methods import GET, LOOKUP, MGET
from kv.base.rpc import FrameDecoder, FrameEncoder, Hello
from kvorum.local.ports import system_ports
from kvorum.node.node import build
from tests.kit.machine import free_port_base
from tests.kv.partition.node import Conn, Node

KEY = b"tab.large"


def reads(node: Node, conn: Conn, n: int, key: bytes = KEY, budget_s: float = 10.0) -> None:
    machine, deadline = node.machine(), node.clock.monotonic() + budget_s
    for rid in range(n):
        machine.submit(conn, [rid, GET, deadline, 1, 1, key, 0, None])


def test_large_replies_are_read_a_bounded_part_per_pass() -> None:
    """One frame of thousands of large GETs would be read into memory in one step."""
    node = Node()
    node.put(KEY, bytes(MiB))
    conn = Conn()
    reads(node, conn, 100)
    passes = seen = 0
    while len(conn.rows) < 100:
        node.scheduler.run()
        assert (len(conn.rows) - seen) * MiB <= DRAIN_REPLY_BYTES + MiB
        seen, passes = len(conn.rows), passes + 1
    assert passes == 7
    assert all(row[2] == bytes(MiB) for row in conn.rows.values())


def test_peer_that_takes_nothing_holds_its_own_reads_only() -> None:
    """Replies would pile up for who does not read, or everybody would wait for it."""
    node = Node()
    node.put(KEY, bytes(MiB))
    node.put(b"tab.small", b"1")
    slow, other = Conn(), Conn()
    slow.full = True
    reads(node, slow, 100)
    for _ in range(20):
        node.scheduler.run()
    held = len(slow.rows)
    assert held * MiB <= DRAIN_REPLY_BYTES + MiB
    reads(node, other, 300, b"tab.small")
    node.timers.run(0.1)
    assert len(other.rows) == 300
    assert len(slow.rows) == held
    assert len(slow.wakes) < 5, "it was asked again and again"
    slow.full = False
    for wake in slow.wakes:
        wake()
    node.settle(lambda: len(slow.rows) == 100)
    assert node.machine().counters.reads == 400


def test_reads_that_wait_for_a_slow_peer_are_bounded_in_time_and_by_the_queue() -> None:
    """They would be read long after anybody waits for them, or survive the end of leadership."""
    node = Node()
    node.put(KEY, bytes(MiB))
    late, lost = Conn(), Conn()
    late.full = lost.full = True
    reads(node, late, 30, budget_s=1.0)
    reads(node, lost, 30)
    node.timers.run(2.0)
    late.full = False
    for wake in late.wakes:
        wake()
    node.settle(lambda: len(late.rows) == 30)
    assert any(
        row[1] and type(from_wire(row[2:])) is DeadlineExceeded for row in late.rows.values()
    )
    node.machine().role(leader=False)
    node.settle(lambda: len(lost.rows) == 30)
    assert any(row[1] and type(from_wire(row[2:])) is NotLeader for row in lost.rows.values())


def test_every_partition_answers_something_in_every_pass() -> None:
    """Large reads of one partition would keep the others waiting."""
    node = Node(splits=(b"tab.m",))
    node.put(b"tab.a", bytes(MiB))
    node.put(b"tab.z", b"1")
    conn, other = Conn(), Conn()
    for rid in range(100):
        node.machine(b"tab.a").submit(conn, [rid, GET, 1e9, 1, 1, b"tab.a", 0, None])
    node.machine(b"tab.z").submit(other, [1, GET, 1e9, 2, 1, b"tab.z", 0, None])
    node.scheduler.run()
    assert len(conn.rows) < 20
    assert len(other.rows) == 1


@pytest.mark.parametrize("at_once", [5, 17, 400])
def test_multi_get_reads_what_a_reply_may_hold(at_once: int) -> None:
    """A multi-get of ten thousand large values would be read whole, to be refused by the frame."""
    node = Node()
    keys = [b"tab.%04d" % i for i in range(at_once)]
    size = MULTI_GET_BYTES_MAX // 8
    for key in keys[:9]:
        node.put(key, bytes(size))
    for key in keys[9:]:
        node.put(key, b"small")
    read: list[int] = []
    state = node.manager.replicas()[0].state
    multi_cur = state.multi_cur

    def counted(part: list[bytes]) -> list[bytes | None]:
        read.append(len(part))
        return list(multi_cur(part))

    state.multi_cur = counted  # type: ignore[method-assign]
    if at_once < 9:
        (found,) = node.call(MGET, keys[0], keys, 0, None)
        assert [len(value) for value, _ in found] == [size] * at_once
        return
    refused = node.error(node.send(MGET, keys[0], keys, 0, None))
    assert isinstance(refused, TooLarge)
    assert sum(read) <= 32
    (found,) = node.call(MGET, keys[0], keys[5:], 0, None)
    assert len(found) == at_once - 5


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4 * KiB


@pytest.mark.slow
async def test_node_memory_is_bounded_when_replies_grow(tmp_path: Path) -> None:
    """A client whose replies were small asks for 2 GiB in one frame and does not read."""
    base = free_port_base()
    loop = asyncio.get_running_loop()
    node = await build(
        NodeConfig(data=tmp_path / "d", port=base, http=False), system_ports(loop, "memory")
    )
    await node.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", base)
    decoder, encoder, value = FrameDecoder(), FrameEncoder(), bytes(512 * KiB)
    small, large = b"\0\0\0\x63small", b"\0\0\0\x63large"

    async def replies(n: int) -> list[list[Any]]:
        rows: list[list[Any]] = []
        while len(rows) < n:
            while (message := decoder.pull()) is None:
                decoder.push(await reader.read(1 << 20))
            rows += message
        return rows

    try:
        for key, stored in ((small, b"1"), (large, value)):
            await node.store.kv.call(methods.PUT, key, key, stored, None, 0)
        writer.write(encoder.message(Hello().to_wire()) + encoder.message([[1, LOOKUP, 0, large]]))
        hello_and_lookup = await replies(4)  # the hello has three fields
        pid, _, _, epoch = hello_and_lookup[3][2][:4]
        for _ in range(3):  # its window is wide now
            rows = [[i + 1, GET, 0, pid, epoch, small, 0, None] for i in range(4000)]
            writer.write(encoder.message(rows))
            assert len(await replies(4000)) == 4000
        before = rss_bytes()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        n = REQUESTS_PER_FRAME_MAX
        rows = [[i + 1, GET, 60_000, pid, epoch, large, 0, None] for i in range(n)]
        writer.write(encoder.message(rows))
        peak = 0
        for _ in range(50):
            await asyncio.sleep(0.01)
            peak = max(peak, rss_bytes() - before)
        assert peak < 200 * MiB, f"{peak / MiB:.0f} MiB held for one connection"
        assert await node.store.kv.call(GET, small, small, 0, None) is not None, "others are served"
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(50):
            got = 0
            while got < 200:
                rows = await replies(1)
                assert all(row[2] == value for row in rows)
                got += len(rows)
    finally:
        writer.transport.abort()
        await node.stop()

"""The lean clients against small servers that speak just enough of the protocols."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import pytest

from bench import native, pipelined, stores, web
from bench.closed_loop import Connection, Failed, Tally
from bench.compare import in_turn
from bench.peers import PeerFailed, Peers, ours
from bench.spec import Spec, user_key
from kv.base import methods as m
from kv.base.errors import Busy
from kv.base.rpc import FrameDecoder, FrameEncoder, Hello, error_row, requests_of

NAMES = [user_key(i) for i in range(100)]
KEYS = [b"\0\0\0\x64" + name for name in NAMES]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def spec(op: str, transport: str = "native", rows_per_op: int = 1) -> Spec:
    return Spec(
        op=op,
        clients=1,
        size=10,
        transport=transport,
        client="lean",
        url="",
        native_port=0,
        http_port=0,
        table="t",
        table_id=100,
        table_end=b"\0\0\0\x65",
        partition=7,
        epoch=3,
        rows_per_op=rows_per_op,
        keys=len(NAMES),
    )


def native_server(answer: Callable[[list[Any]], list[Any]]) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder, encoder, greeted = FrameDecoder(), FrameEncoder(), False
        while chunk := await reader.read(65_536):
            decoder.push(chunk)
            while (message := decoder.pull()) is not None:
                if not greeted:
                    greeted = True
                    writer.write(encoder.message(Hello(node=1).to_wire()))
                    continue
                writer.write(encoder.message([answer(row) for row in requests_of(message)]))

    return serve


async def drive(
    serve: Serve, make: Callable[[Tally], Connection | pipelined.PipelinedConnection]
) -> Tally:
    """One connection against `serve` for a short window; what it measured."""
    gone = asyncio.Event()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)
        writer.close()
        await writer.wait_closed()
        gone.set()

    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        loop, tally = asyncio.get_running_loop(), Tally()
        _, connection = await loop.create_connection(lambda: make(tally), "127.0.0.1", port)
        await asyncio.wait_for(connection.ready, 5)
        tally.window(monotonic(), monotonic() + 0.2)
        connection.start()
        await asyncio.wait_for(connection.finished, 5)
        connection.close()
        await asyncio.wait_for(gone.wait(), 5)
    return tally


RESULTS: dict[int, list[Any]] = {
    m.PUT: [12],
    m.GET: [b"value", 12],
    m.WRITE: [12],
    m.TSO: [34],
    m.SCAN: [[[b"k", b"v", 1]] * 5, None],
    m.READ_NOW: [[[b"v", 1], [b"w", 2]], 34],
}


@pytest.mark.parametrize("op", ["put", "get", "scan", "batch", "txn", "txn2"])
async def test_native_requests_have_the_contract_shape(op: str) -> None:
    """A client whose requests the node refuses would measure errors."""
    seen: list[list[Any]] = []

    def answer(row: list[Any]) -> list[Any]:
        seen.append(row)
        return [row[0], 0, *RESULTS[row[1]]]

    script = native.SCRIPTS[op](spec(op, rows_per_op=5), KEYS, random.Random(1), b"v" * 10)
    tally = await drive(native_server(answer), lambda t: native.NativeConnection(script, t))
    assert tally.errors == 0, tally.first_error
    assert tally.latencies
    assert all(latency > 0 for latency in tally.latencies)
    calls = {row[1]: row[2:] for row in seen}
    wanted = {
        "put": {m.PUT},
        "get": {m.GET},
        "scan": {m.SCAN},
        "batch": {m.WRITE},
        "txn": {m.TSO, m.GET, m.WRITE},
        "txn2": {m.READ_NOW, m.WRITE},
    }
    assert set(calls) == wanted[op]
    for method, args in calls.items():
        assert args[0] == 0
        assert method == m.TSO or args[1:3] == [7, 3]
    if op == "put":
        assert calls[m.PUT][3] in KEYS
        assert calls[m.PUT][4:] == [b"v" * 10, None, 0]
        assert len({row[5] for row in seen}) > 3, "keys must differ"
    if op == "txn":
        assert calls[m.GET][4] == 34, "it reads at its start timestamp"
    if op == "txn2":
        assert calls[m.READ_NOW][4] == 0, "the node gives the timestamp"
    if op in ("txn", "txn2"):
        assert calls[m.WRITE][4] == 34, "its write must lose against what came after its start"


async def test_timestamps_are_asked_for_at_the_oracles_node() -> None:
    """Of several nodes the partition's leader refuses to give timestamps: nothing would end."""
    seen: dict[str, set[int]] = {"leader": set(), "oracle": set()}

    def node(name: str) -> Serve:
        def answer(row: list[Any]) -> list[Any]:
            seen[name].add(row[1])
            return [row[0], 0, *RESULTS[row[1]]]

        async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await native_server(answer)(reader, writer)
            writer.close()
            await writer.wait_closed()
            gone.release()

        return serve_one

    gone = asyncio.Semaphore(0)
    oracle = await asyncio.start_server(node("oracle"), "127.0.0.1", 0)
    leader = await asyncio.start_server(node("leader"), "127.0.0.1", 0)
    loop, tally = asyncio.get_running_loop(), Tally()
    script = native.SCRIPTS["txn"](spec("txn"), KEYS, random.Random(1), b"v" * 10)
    async with oracle, leader:
        ports = [server.sockets[0].getsockname()[1] for server in (leader, oracle)]
        _, client = await loop.create_connection(
            lambda: native.NativeConnection(script, tally), "127.0.0.1", ports[0]
        )
        _, asked = await loop.create_connection(
            lambda: native.Oracle(client, tally), "127.0.0.1", ports[1]
        )
        client.ask_at(asked)
        await asyncio.wait_for(asyncio.gather(client.ready, asked.ready), 5)
        tally.window(monotonic(), monotonic() + 0.2)
        client.start()
        await asyncio.wait_for(client.finished, 5)
        asked.close()
        client.close()
        async with asyncio.timeout(5):
            await gone.acquire()
            await gone.acquire()
    assert tally.errors == 0, tally.first_error
    assert tally.latencies
    assert seen == {"leader": {m.GET, m.WRITE}, "oracle": {m.TSO}}


async def test_refusals_are_counted_not_measured() -> None:
    """An overloaded node that refuses quickly must not look fast."""
    refuse = native_server(lambda row: error_row(row[0], Busy("queue is full")))
    script = native.SCRIPTS["put"](spec("put"), KEYS, random.Random(1), b"v")
    tally = await drive(refuse, lambda t: native.NativeConnection(script, t))
    assert tally.errors > 0
    assert "queue is full" in tally.first_error
    assert not tally.latencies


async def test_a_missing_key_is_an_error() -> None:
    """Gets of keys that are not there are cheaper than what is claimed to be measured."""
    script = native.SCRIPTS["get"](spec("get"), KEYS, random.Random(1), b"")
    tally = await drive(
        native_server(lambda row: [row[0], 0, None, 0]),
        lambda t: native.NativeConnection(script, t),
    )
    assert tally.errors > 0
    assert not tally.latencies


async def test_the_pipelined_client_keeps_its_window() -> None:
    """More or fewer in flight than stated would be another benchmark."""
    most = 0

    def answer(row: list[Any]) -> list[Any]:
        nonlocal most
        most = max(most, row[0])
        return [row[0], 0, 12]

    def make(tally: Tally) -> pipelined.PipelinedConnection:
        return pipelined.PipelinedConnection(
            spec("put", "mux"), KEYS, random.Random(1), b"v", window=8, tally=tally
        )

    tally = await drive(native_server(answer), make)
    assert tally.errors == 0
    assert 8 <= len(tally.latencies) <= most


def http_server(respond: Callable[[bytes, bytes, bytes], bytes]) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            fields = head.lower().split(b"content-length: ")
            length = int(fields[1].split(b"\r\n")[0]) if len(fields) > 1 else 0
            body = await reader.readexactly(length)
            method, target, _ = head.split(b" ", 2)
            answer = respond(method, target, body)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer))
            await writer.drain()
            writer.write(answer)  # head and body apart, as a server may send them

    return serve


@pytest.mark.parametrize("op", ["put", "get", "scan", "batch", "txn"])
async def test_http_requests_are_those_of_the_api(op: str) -> None:
    """The paths are fixed by the API; a client on others would measure 404s."""
    seen: list[tuple[bytes, bytes]] = []

    def respond(method: bytes, target: bytes, body: bytes) -> bytes:
        seen.append((method, target))
        if method == b"GET" and b"?" in target:
            return b'{"items":[{},{},{},{},{}]}'
        return b'{"txn":"77"}' if target == b"/v1/txn" else b"{}"

    script = web.SCRIPTS[op](spec(op, "http", rows_per_op=5), NAMES, random.Random(1), b"v" * 10)
    tally = await drive(http_server(respond), lambda t: web.HttpConnection(script, t))
    assert tally.errors == 0, tally.first_error
    assert tally.latencies
    wanted = {
        "put": {(b"PUT", b"/v1/kv/bench/t/")},
        "get": {(b"GET", b"/v1/kv/bench/t/")},
        "scan": {(b"GET", b"/v1/kv/bench/t?limit=5&start=")},
        "batch": {(b"POST", b"/v1/batch")},
        "txn": {
            (b"POST", b"/v1/txn"),
            (b"POST", b"/v1/txn/77/get"),
            (b"POST", b"/v1/txn/77/put"),
            (b"POST", b"/v1/txn/77/commit"),
        },
    }
    assert {(method, target.split(b"k0", 1)[0]) for method, target in seen} == wanted[op]


def test_an_http_error_is_told_with_its_reason() -> None:
    """A run full of refusals must say which."""
    with pytest.raises(Failed, match="503 Busy try later"):
        web.body_of(b"HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\ntry later")


def test_peers_results_get_our_names() -> None:
    """Ratios are taken by name: a field under the peer's name would never be found."""
    theirs = {
        "ops_s": 9,
        "srv_us_op": 1,
        "cli_us_op": 2,
        "err": 0,
        "other_cores": [0.3],
        "runs": [9],
    }
    assert ours(theirs) == {
        "ops_s": 9,
        "server_us_op": 1,
        "client_us_op": 2,
        "errors": 0,
        "other_cores": 0.3,
    }


def test_turns_alternate_and_survive_a_missing_peer(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured one after the other, noise of one minute would fall on one side only."""
    order: list[str] = []

    def turn(name: str, rate: float) -> Callable[[], dict[str, Any]]:
        def measure() -> dict[str, Any]:
            order.append(name)
            return {"ops_s": rate}

        return measure

    def missing() -> dict[str, Any]:
        raise PeerFailed("not installed")

    found = in_turn(2, {"etcd": turn("etcd", 1.0), "ours": turn("ours", 2.0), "none": missing})
    assert order == ["etcd", "ours", "etcd", "ours"]
    assert set(found) == {"etcd", "ours"}
    assert found["ours"]["runs"] == [2.0, 2.0]
    assert "not installed" in capsys.readouterr().err
    with pytest.raises(PeerFailed, match="PEERS_SCRIPTS"):
        Peers(tmp_path, tmp_path)


async def test_senders_of_stores_count_good_replies_and_stop_at_a_bad_one() -> None:
    """A window full of refusals would be the fastest of all."""
    seen: list[list[Any]] = []

    def answer(row: list[Any]) -> list[Any]:
        seen.append(row)
        return [row[0], 0, 5] if len(seen) <= 640 else error_row(row[0], Busy("full"))

    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await native_server(answer)(reader, writer)
        writer.close()
        await writer.wait_closed()
        gone.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    target = stores.Target("127.0.0.1", port, 7, 3, b"\0\0\0\x6400")
    sender = stores.Sender(stores.frames(target, "put"))
    sender.end = monotonic() + 20
    await asyncio.get_running_loop().create_connection(lambda: sender, "127.0.0.1", port)
    await asyncio.wait_for(sender.finished, 5)
    await asyncio.wait_for(gone.wait(), 5)
    assert sender.done > 640
    assert sender.errors
    assert all("full" in error for error in sender.errors)
    assert {tuple(row[3:5]) for row in seen} == {(7, 3)}
    assert all(row[1] == m.PUT and row[5].startswith(target.start) for row in seen)
    assert len({row[5] for row in seen[:640]}) == 640
    server.close()
    await server.wait_closed()

"""What is peculiar to the SDK: URLs, threads, loops, interrupts, fork, lost answers, closing."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import kvorum
from kvorum.api.addresses import parse_url
from kvorum.sdk.snapshots import AsyncSnapshotTable
from kvorum.sdk.sync import SnapshotTable, TransactionTable
from kvorum.sdk.tables import AsyncTransactionTable
from tests.kvorum.surfaces.conftest import Served


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("kvorum://a:1,b:2", ("kvorum", [("a", 1), ("b", 2)])),
        ("kvorum://a", ("kvorum", [("a", 7600)])),
        ("a:1", ("kvorum", [("a", 1)])),
        ("http://a", ("http", [("a", 7602)])),
        ("http://[::1]:5/", ("http", [("::1", 5)])),
    ],
)
def test_urls(url: str, expected: object) -> None:
    """An address that is read differently connects to another cluster."""
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    "url", ["", "kvorum://", "ftp://a", "http://a,b", "a:x", "a:99999", "http://a/v1", "://a"]
)
def test_bad_urls(url: str) -> None:
    """A typing error must not become an attempt to connect somewhere."""
    with pytest.raises(kvorum.InvalidArgument):
        kvorum.connect(url)


@pytest.mark.parametrize("scheme", ["kvorum", "http"])
def test_nobody_there(scheme: str) -> None:
    """A node that does not run must be told as that, soon."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
        with (
            pytest.raises(kvorum.Unavailable),
            kvorum.connect(f"{scheme}://127.0.0.1:{port}", timeout_ms=500) as db,
        ):
            db.namespaces()


@pytest.mark.parametrize(
    ("sync", "other"),
    [
        (kvorum.Database, kvorum.AsyncDatabase),
        (kvorum.Table, kvorum.AsyncTable),
        (kvorum.Snapshot, kvorum.AsyncSnapshot),
        (kvorum.Transaction, kvorum.AsyncTransaction),
        (SnapshotTable, AsyncSnapshotTable),
        (TransactionTable, AsyncTransactionTable),
    ],
)
def test_both_facades_offer_the_same(sync: type, other: type) -> None:
    """A method that one of them lacks, or names otherwise, is found by users in production."""
    ours, theirs = (
        {n: m for n, m in inspect.getmembers(c, callable) if not n.startswith("_")}
        for c in (sync, other)
    )
    assert set(ours) == set(theirs)
    for name, method in ours.items():
        mine, its = inspect.signature(method), inspect.signature(theirs[name])
        assert [(p.name, p.kind, p.default) for p in mine.parameters.values()] == [
            (p.name, p.kind, p.default) for p in its.parameters.values()
        ], name


def test_what_a_notebook_shows(db: kvorum.Database, table: kvorum.Table) -> None:
    """A handle shows as an address in memory; or with what was in its URL besides the address."""
    where = db._async.where
    assert repr(db) == (f"<kvorum database {where}>" if where else "<kvorum database>")
    assert repr(table) == f"<kvorum table {table.ns}.{table.name}>"
    with db.snapshot() as snapshot:
        assert repr(snapshot) == f"<kvorum snapshot at {snapshot.at}>"
    with db.transaction() as transaction:
        assert repr(transaction) == f"<kvorum transaction {transaction.id}>"


def test_rows_of_a_snapshot_are_all_of_it(db: kvorum.Database, table: kvorum.Table) -> None:
    """Pages of a snapshot that see later writes are no snapshot."""
    keys = [f"{i:04}" for i in range(1_500)]
    db.batch([kvorum.Put("default", table.name, key, "v") for key in keys])
    snapshot = db.snapshot().table("default", table.name)
    found = snapshot.rows(reverse=True)
    first = next(found)
    table.delete(keys[0])
    assert [first.key.decode(), *(item.key.decode() for item in found)] == keys[::-1]
    assert [item.key.decode() for item in snapshot.rows(start="0001", end="0003")] == keys[1:3]


def test_many_threads_share_a_database(db: kvorum.Database, table: kvorum.Table) -> None:
    """One process is one client, however many threads it has."""

    def work(i: int) -> bytes:
        table.put(f"k{i}", str(i))
        found = table.get(f"k{i}")
        assert found is not None
        return found.value

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(work, range(200))) == [str(i).encode() for i in range(200)]


async def test_async_api(served: Served) -> None:
    """The asynchronous database does what the synchronous one does."""
    for url in (f"kvorum://127.0.0.1:{served.base}", f"http://127.0.0.1:{served.base + 2}"):
        async with await kvorum.aconnect(url) as db:
            name = f"async{len(url)}"
            await db.create_table("default", name)
            table = db.table("default", name)
            await asyncio.gather(*(table.put(f"k{i}", str(i)) for i in range(50)))
            async with db.transaction() as t:
                await t.table("default", name).put("t", b"1")
            assert t.version is not None
            assert len([row async for row in table.rows()]) == 51
            await db.drop_table("default", name)


async def test_an_abandoned_transaction_expires_over_http(served: Served) -> None:
    """A client that vanishes must leave nothing open at the node."""
    async with await kvorum.aconnect(f"http://127.0.0.1:{served.base + 2}") as db:
        t = await db.transaction(ttl_ms=50)
        await asyncio.sleep(0.6)
        assert (await db.status(t.id)).status == "aborted"
        with pytest.raises(kvorum.TxnAborted):
            await t.commit()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler: a shell starts its background jobs with SIGINT ignored."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_call_and_nothing_else(db: kvorum.Database, table: kvorum.Table) -> None:
    """An interrupted call must raise at once and leave the database usable."""
    procedure = db.submit("sample.wait")
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        db.wait(procedure, timeout_ms=20_000)
    timer.join()
    table.put("k", b"v")
    db.abort_procedure(procedure, "the test is over")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_an_inherited_database_refuses(db: kvorum.Database) -> None:
    """After fork the threads are gone: a call that waited for them would wait for ever."""
    child = os.fork()
    if child == 0:
        try:
            db.namespaces()
        except kvorum.Unavailable as e:
            os._exit(0 if "fork" in str(e) else 3)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert "default" in db.namespaces()


@pytest.mark.slow
def test_a_closed_database_says_so(tmp_path: Path) -> None:
    """Calls after close must not hang; the directory must be free again."""
    for _ in range(2):
        db = kvorum.open(tmp_path / "data")
        table = db.table("default", "t")
        db.close()
        db.close()
        with pytest.raises(kvorum.Unavailable, match="closed"):
            table.get("k")


@pytest.mark.slow
def test_a_call_from_the_databases_own_loop_is_refused(tmp_path: Path) -> None:
    """A synchronous call on the loop that would have to answer it waits for itself."""
    with kvorum.open(tmp_path / "data") as db:

        async def work() -> None:
            db.namespaces()

        with pytest.raises(kvorum.Unavailable, match="async"):
            db._portal.call(work())


@contextmanager
def server(answers: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """An HTTP server that gives each connection the next of `answers` and hangs up."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    seen.append(connection.recv(65536))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], seen
        thread.join()


OK = b'HTTP/1.1 200 OK\r\ncontent-length: 2\r\netag: "7"\r\n\r\nhi'


def test_a_lost_answer_to_a_write_is_an_unknown_outcome() -> None:
    """A write that is sent again after a lost answer may be done twice."""
    with server([b""]) as (port, seen), kvorum.connect(f"http://127.0.0.1:{port}") as db:
        with pytest.raises(kvorum.UnknownOutcome):
            db.table("default", "t").put("k", b"v")
        assert len(seen) == 1


def test_a_lost_answer_to_a_read_is_asked_for_again() -> None:
    """Reads may be repeated, so a broken connection should not reach the user."""
    with (
        server([b"", OK[:30], OK]) as (port, seen),
        kvorum.connect(f"http://127.0.0.1:{port}") as db,
    ):
        assert db.table("default", "t").get("k") == (b"hi", 7)
        assert len(seen) == 3


def test_an_answer_that_is_not_kvorums() -> None:
    """A proxy's error page must become an error that says what it was."""
    page = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 5\r\n\r\nnginx"
    with (
        server([page]) as (port, _),
        kvorum.connect(f"http://127.0.0.1:{port}") as db,
        pytest.raises(kvorum.Unavailable, match="502"),
    ):
        db.table("default", "t").get("k")

"""kv.server.dispatcher and validate: every request gets exactly one reply, and the right one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from kv.base.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    KeyLocked,
    KvorumError,
    Moved,
    TooLarge,
    Unavailable,
    UnknownOutcome,
)
from kv.base.intents import NOBODY
from kv.base.limits import DEADLINE_MS_DEFAULT, DEADLINE_MS_MAX, TSO_COUNT_MAX
from kv.base.methods import FIND_TXN, GET, LOOKUP, MGET, PING, PREWRITE, RESOLVE, STATS, TSO, WRITE
from kv.base.rpc import error_of
from kv.server import dispatcher as dispatcher_module
from kv.server.dispatcher import Context, Dispatcher
from procedures.verbs import PROC_ABORT, PROC_GET, PROC_LIST, PROC_SUBMIT
from tests.kit.waiting import until
from tests.kv.rpc.fakes import KEY, FakePartitions, make_dispatcher


class FakeConnection:
    """Collects replies; `flushed` are those that would have been sent."""

    user = ""
    rights = None
    author = NOBODY

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.flushed = 0

    def reply(self, row: list[Any]) -> None:
        self.rows.append(row)

    def flush(self) -> None:
        self.flushed = len(self.rows)

    def ready(self, wake: Callable[[], None]) -> bool:
        return True

    def error(self, rid: int) -> KvorumError:
        (row,) = [row for row in self.rows if row[0] == rid]
        assert row[1] == 1, row
        return error_of(row)


def submit(dispatcher: Dispatcher, *rows: list[Any]) -> FakeConnection:
    conn = FakeConnection()
    dispatcher.submit(conn, list(rows))
    return conn


async def test_rpc_node_methods_answer() -> None:
    """PING, LOOKUP, FIND_TXN and STATS are what clients find their way with."""
    dispatcher, partitions, _ = make_dispatcher(FakePartitions((KEY + b"m",)))
    conn = submit(
        dispatcher,
        [1, PING, 0],
        [2, LOOKUP, 0, KEY + b"z"],
        [3, FIND_TXN, 0, 7],
        [4, FIND_TXN, 0, 8],
        [5, STATS, 0],
    )
    by_rid = {row[0]: row[1:] for row in conn.rows}
    assert by_rid[1] == [0, 1]
    assert by_rid[2] == [0, partitions.covering(KEY + b"z").to_wire(), ["", 0], 1]  # type: ignore[union-attr]
    assert by_rid[3] == [0, KEY + b"anchor", [1, 2], [], []]
    assert by_rid[4] == [0, None, [1, 2], [], []]
    assert by_rid[5][1][f"requests.{PING}"] == 1
    assert conn.flushed == 5


async def test_rpc_partition_requests_reach_their_machine() -> None:
    """A request must go to the partition that it names, with the right epoch, and must bring its
    deadline instead of its budget: only the node knows when it came.
    """
    dispatcher, partitions, _ = make_dispatcher(FakePartitions((KEY + b"m",)))
    for machine in partitions.machines.values():
        machine.held = []
    first = [1, GET, 250, 1, 1, KEY + b"a", 0, None]
    second = [2, GET, 0, 2, 1, KEY + b"z", 0, None]
    asked = asyncio.get_running_loop().time()
    conn = submit(dispatcher, list(first), list(second))
    for number, sent, wait_s in ((1, first, 0.25), (2, second, DEADLINE_MS_DEFAULT / 1000)):
        ((_, row),) = partitions.machines[number].held or []  # type: ignore[index]
        assert [*row[:2], *row[3:]] == [*sent[:2], *sent[3:]]
        assert wait_s - 0.01 <= row[2] - asked <= wait_s + 0.25
    assert conn.rows == []


@pytest.mark.parametrize(("partition", "epoch"), [(9, 1), (1, 2), (1, 0), (-1, 1)])
async def test_rpc_moved_names_the_descriptor(partition: int, epoch: int) -> None:
    """A client with an old location must learn the new one from the refusal."""
    dispatcher, partitions, _ = make_dispatcher(FakePartitions((KEY + b"m",)))
    key = KEY + b"z"
    now = partitions.covering(key)
    assert now is not None
    rows = {
        GET: [key, 0, None],
        MGET: [[key], 0, None],
        WRITE: [[[1, key, b"v", None, 0]], 0, 0],
        PREWRITE: [5, KEY, 1000, [[1, key, b"v", None, 0]], 0],
        RESOLVE: [5, 0, [key]],
    }
    for method, args in rows.items():
        error = submit(dispatcher, [1, method, 0, partition, epoch, *args]).error(1)
        assert type(error) is Moved
        assert error.details == {"descriptor": now.to_wire()}
    assert all(m.executed == 0 for m in partitions.machines.values())


@pytest.mark.parametrize(
    "row",
    [
        [1, GET, 0, 9, 9],
        [1, MGET, 0, 9, 9, [], 0, None],
        [1, WRITE, 0, 9, 9, 5, 0, 0],
        [1, WRITE, 0, 9, 9, [[1]], 0, 0],
        [1, 50, 0, 9, 9, KEY],
        [1, GET, 0, 9, 9, "text", 0, None],
    ],
)
async def test_rpc_moved_without_a_key(row: list[Any]) -> None:
    """A request whose key cannot be found must be refused without breaking the node."""
    dispatcher, _, _ = make_dispatcher()
    assert submit(dispatcher, row).error(1).details == {"descriptor": None}


@pytest.mark.parametrize(
    "row",
    [
        [1, GET, 0],
        [1, GET, 0, 1],
        [1, GET, 0, [], 1, KEY, 0, None],
        [1, GET, 0, 1, "1", KEY, 0, None],
        [1, GET, 0, None, None, KEY, 0, None],
        [1, GET, 0, {}, 1, KEY, 0, None],
    ],
)
async def test_rpc_partition_head_of_wrong_type(row: list[Any]) -> None:
    """Wrong types where the route is must be an answer, not an exception on the loop."""
    dispatcher, _, _ = make_dispatcher()
    error = submit(dispatcher, row, [2, PING, 0])
    assert type(error.error(1)) is InvalidArgument
    assert error.rows[-1] == [2, 0, 1]


@pytest.mark.parametrize(
    ("method", "args", "words"),
    [
        (PING, [1], "PING takes 0 arguments"),
        (LOOKUP, [], "LOOKUP takes 1 arguments"),
        (LOOKUP, ["k"], "key must be bytes, got str"),
        (LOOKUP, [b"k" * 5000], "key: 5000 bytes; the limit is 4101"),
        (TSO, [0], f"count must be an integer in 1 … {TSO_COUNT_MAX}, got 0"),
        (TSO, [TSO_COUNT_MAX + 1], f"got {TSO_COUNT_MAX + 1}"),
        (TSO, [True], "got bool"),
        (TSO, ["5"], "got str"),
        (FIND_TXN, [-1], "start_ts"),
        (PROC_SUBMIT, ["n" * 65, b"\x80", "o", None], "name: 65 characters; the limit is 64"),
        (PROC_SUBMIT, [5, b"\x80", "o", None], "name must be a string"),
        (PROC_SUBMIT, ["n", b"\x80", "o", 7], "nonce must be a string"),
        (PROC_GET, [1, 60_001], "wait_ms must be an integer in 0 … 60000"),
        (PROC_LIST, [[]], "filter must be a map"),
        (PROC_ABORT, [1, b"r", False], "reason must be a string"),
        (PROC_ABORT, [1, "r", 0], "dry_run must be a boolean"),
    ],
)
async def test_rpc_bad_arguments_of_node_methods(method: int, args: list[Any], words: str) -> None:
    """Bad input must be refused with what was wrong before a handler sees it."""
    dispatcher, _, _ = make_dispatcher()
    called = []

    def handler(_context: Context, seen: list[Any]) -> list[Any]:
        called.append(seen)
        return []

    if method not in (PING, LOOKUP, FIND_TXN):
        dispatcher.register(method, handler)
    error = submit(dispatcher, [1, method, 0, *args]).error(1)
    assert type(error) in (InvalidArgument, TooLarge)
    assert words in error.message
    assert not called


async def test_rpc_unknown_method_and_budget() -> None:
    """A newer client's method, or a deadline beyond all limits, is named in the refusal."""
    dispatcher, _, _ = make_dispatcher()
    conn = submit(
        dispatcher, [1, 127, 0], [2, 10**9, 0], [3, PING, -1], [4, PING, DEADLINE_MS_MAX + 1]
    )
    assert conn.error(1).code == "UNKNOWN_METHOD"
    assert conn.error(2).code == "UNKNOWN_METHOD"
    assert str(DEADLINE_MS_MAX) in conn.error(3).message
    assert str(DEADLINE_MS_MAX + 1) in conn.error(4).message


async def test_rpc_method_is_registered_once() -> None:
    """Two owners of one method would hide one of them."""
    dispatcher, _, _ = make_dispatcher()
    with pytest.raises(AssertionError, match="registered twice"):
        dispatcher.register(PING, lambda _context, _args: [])
    with pytest.raises(AssertionError, match="belongs to partitions"):
        dispatcher.register(GET, lambda _context, _args: [])


async def test_rpc_async_handlers_answer_out_of_order() -> None:
    """A long poll must not hold up what was asked after it."""
    dispatcher, _, timers = make_dispatcher()
    gate = asyncio.Event()
    deadlines: list[float] = []

    async def slow(context: Context, args: list[Any]) -> list[Any]:
        deadlines.append(context.deadline - timers.monotonic())
        await gate.wait()
        return [args[0]]

    dispatcher.register(PROC_GET, slow)
    conn = submit(dispatcher, [1, PROC_GET, 5000, 9, 100], [2, PING, 0])
    await asyncio.sleep(0)
    assert conn.rows == [[2, 0, 1]]
    assert dispatcher.counters.handlers == 1
    gate.set()
    await until(lambda: conn.flushed == 2)
    assert conn.rows[1] == [1, 0, 9]
    assert 4.9 < deadlines[0] <= 5.0
    assert dispatcher.counters.handlers == 0


async def test_rpc_handler_errors_do_not_leak(caplog: pytest.LogCaptureFixture) -> None:
    """A bug in a handler is INTERNAL with an id that the log has; no traceback leaves the node."""
    dispatcher, _, _ = make_dispatcher()

    def broken(_context: Context, _args: list[Any]) -> list[Any]:
        raise RuntimeError("secret path /etc/x")

    async def broken_later(_context: Context, _args: list[Any]) -> list[Any]:
        await asyncio.sleep(0)
        raise RuntimeError("secret path /etc/x")

    async def refuses(_context: Context, _args: list[Any]) -> list[Any]:
        raise KeyLocked("locked", details={"key": b"k"})

    dispatcher.register(PROC_LIST, broken)
    dispatcher.register(PROC_SUBMIT, broken_later)
    dispatcher.register(PROC_ABORT, refuses)
    with caplog.at_level(logging.ERROR):
        conn = submit(
            dispatcher,
            [1, PROC_LIST, 0, {}],
            [2, PROC_SUBMIT, 0, "n", b"\x80", "o", None],
            [3, PROC_ABORT, 0, 1, "r", False],
        )
        await until(lambda: conn.flushed == 3)
    read, write, refused = conn.error(1), conn.error(2), conn.error(3)
    assert (type(read), read.code) == (KvorumError, "INTERNAL")
    assert type(write) is UnknownOutcome, "a write that broke half way was not certainly undone"
    assert type(refused) is KeyLocked
    assert refused.details == {"key": b"k"}
    for error in (read, write):
        assert "secret" not in error.message
        assert error.details["id"] in caplog.text
    assert dispatcher.faults.count == 2


async def test_rpc_deadline_ends_a_handler() -> None:
    """A handler that hangs must not hang its caller: a read is late, a write is unknown."""
    dispatcher, _, _ = make_dispatcher()
    ended: list[int] = []

    async def hangs(context: Context, _args: list[Any]) -> list[Any]:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(context.rid)
        return []

    dispatcher.register(PROC_GET, hangs)
    dispatcher.register(PROC_SUBMIT, hangs)
    conn = submit(
        dispatcher, [1, PROC_GET, 20, 1, 0], [2, PROC_SUBMIT, 20, "n", b"\x80", "o", None]
    )
    await until(lambda: conn.flushed == 2)
    assert type(conn.error(1)) is DeadlineExceeded
    assert type(conn.error(2)) is UnknownOutcome
    assert sorted(ended) == [1, 2]


async def test_rpc_timeout_of_a_handlers_own_is_no_deadline() -> None:
    """A TimeoutError inside a handler is its bug, not the caller's deadline."""
    dispatcher, _, _ = make_dispatcher()

    async def times_out(_context: Context, _args: list[Any]) -> list[Any]:
        raise TimeoutError

    dispatcher.register(PROC_GET, times_out)
    conn = submit(dispatcher, [1, PROC_GET, 0, 1, 0])
    await until(lambda: conn.flushed == 1)
    assert conn.error(1).code == "INTERNAL"


async def test_rpc_close_ends_handlers_with_a_reply() -> None:
    """Stopping must answer everybody: started handlers, those not begun, and whoever still asks."""
    dispatcher, _, _ = make_dispatcher()

    async def hangs(_context: Context, _args: list[Any]) -> list[Any]:
        await asyncio.sleep(60)
        return []

    dispatcher.register(PROC_GET, hangs)
    dispatcher.register(PROC_SUBMIT, hangs)
    early = submit(dispatcher, [1, PROC_GET, 0, 1, 0], [2, PROC_SUBMIT, 0, "n", b"\x80", "o", None])
    await asyncio.sleep(0.01)
    late = submit(dispatcher, [3, PROC_GET, 0, 1, 0])  # its task has not run yet
    await dispatcher.close()
    assert type(early.error(1)) is Unavailable
    assert type(early.error(2)) is UnknownOutcome
    assert late.error(3).code == "STOPPING"
    after = submit(dispatcher, [4, PING, 0], [5, GET, 0, 1, 1, KEY, 0, None])
    assert after.error(4).code == after.error(5).code == "STOPPING"
    assert dispatcher.counters.handlers == 0


async def test_rpc_handlers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long polls must not pile up without a limit; the one too many is told so."""
    monkeypatch.setattr(dispatcher_module, "HANDLERS_MAX", 3)
    dispatcher, _, _ = make_dispatcher()

    async def hangs(_context: Context, _args: list[Any]) -> list[Any]:
        await asyncio.sleep(60)
        return []

    dispatcher.register(PROC_GET, hangs)
    conn = submit(dispatcher, *[[i, PROC_GET, 0, 1, 0] for i in range(1, 5)])
    error = conn.error(4)
    assert type(error) is Busy
    assert error.details == {"what": "handlers", "limit": 3, "actual": 3}
    await dispatcher.close()

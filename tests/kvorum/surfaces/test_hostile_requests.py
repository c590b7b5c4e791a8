"""Nothing that a client sends over the native protocol breaks a node, or hurts another client.

Derived from the table of verbs (kv/base/verbs.py: VERBS, which is compared with
EXAMPLES below): one that is new needs an example here, or the first test fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import msgpack
import pytest

import kvorum
import kvorum.api.verbs
from kv.base.adapters import SystemRng
from kv.base.config import NodeConfig
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import from_wire
from kv.base.ids import NodeId, PartitionId
from kv.base.intents import NOBODY
from kv.base.rpc import decode, requests_of
from kv.base.verbs import NODE_METHODS, VERBS
from kvorum.local.ports import system_ports
from kvorum.node.node import Node, build

KEY: Final = b"\x00\x00\x00\x09key"
NEXT: Final = b"\x00\x00\x00\x09kez"
EMPTY_MAP: Final = msgpack.packb({})
NOWHERE: Final = PartitionDescriptor(PartitionId(999), b"\xff", b"", 1, (NodeId(1),)).to_wire()

# The arguments of a well-formed request, behind partition and epoch for methods of partitions.
# Those that would change what this node serves name partition 999, which is not there.
EXAMPLES: Final[dict[str, list[Any]]] = {
    "GET": [KEY, 0, None, 0],
    "PUT": [KEY, b"v", None, 0],
    "DELETE": [KEY, None],
    "WRITE": [[[1, KEY, b"v", None, 0]], 0, 0, {"wait_ms": 0}],
    "MGET": [[KEY, NEXT], 0, None, False, 0],
    "SCAN": [KEY, NEXT, 0, 10, False, None, False, False, 0],
    "PREWRITE": [1 << 18, KEY, 1000, [[1, KEY, b"v", None, 0]], 0, {"wait_ms": 0}],
    "PREWRITE_ROWS": [1 << 18, KEY, 1000, [NEXT], [b"v"], {"wait_ms": 0}],
    "COMMIT": [KEY, 1 << 18, (1 << 18) + 1, None],
    "ROLLBACK": [KEY, 1 << 18, None],
    "CHECK": [KEY, 1 << 18, 0, 1000, NEXT, "ann"],
    "RESOLVE": [1 << 18, 0, [KEY], KEY, "ann"],
    "HEARTBEAT": [KEY, 1 << 18, None],
    "CHANGES": [KEY, NEXT, 1 << 18, 10, 0, False, 1000, None],
    "AWAIT_CHANGES": [KEY, NEXT, 0, 0],
    "READ_NOW": [[KEY], 0, None],
    "SCAN_VALUES": [KEY, NEXT, 0, 10, False, None, [], False, 0],
    "SCAN_SEALED": [KEY, NEXT, 0, 10, False, None, 0],
    "PAIRS": [KEY, NEXT, 1 << 18, 10, 0, 0, 1000, None],
    "PARTS": [KEY, NEXT, 2],
    "WRITE_ROWS": [[KEY, NEXT], [b"v", b"w"], 0, 0, None],
    "INGEST": [[KEY, NEXT], [b"v", b"w"], 1 << 18, False],
    "RECOVER": [1 << 18, KEY, [KEY], False, "ann"],
    "HELD": [KEY, 1 << 18, KEY],
    "MARK": [KEY, 0],
    "SETTLE": [KEY, 1 << 18, 0],
    "FINISH": [[[1 << 18, None, (1 << 18) + 1, [KEY]]]],
    "PING": [],
    "CATALOG": [KEY, KEY, 10],
    "CLAIM": ["app", "t"],
    "LOOKUP": [KEY],
    "TSO": [1, 1],
    "STATS": [],
    "PLACES": [],
    "FIND_TXN": [1 << 18],
    "SAFEPOINT": [],
    "PROC_SUBMIT": ["nobody's", EMPTY_MAP, "me", None],
    "PROC_GET": [1, 0],
    "PROC_LIST": [{"limit": 1}],
    "PROC_ACK": [1],
    "PROC_ABORT": [1, "why", True],
    "SINK_BEGIN": ["attempt", 9, 1000],
    "SINK_STAGE": ["attempt", 9, 0, "task", 0, b"chunk"],
    "SINK_SEAL": ["attempt", 9, 0, "task", 1, 1, 0, None, [], 0],
    "SINK_COMMIT": [{"attempt": "attempt", "table": 9, "app": "a", "version": 1, "manifest": []}],
    "SINK_ABORT": ["attempt", 9],
    "SINK_PLACE": ["attempt", 9, 0, "task", 1 << 18],
    "LINKS": [None],
    "CREATE_PARTITION": [[NOWHERE]],
    "DROP_PARTITION": [[999]],
    "CAMPAIGN": [[999]],
    "JOIN": ["127.0.0.1:1", "0", b"t" * 16, b"p" * 32, False],
    "CHANGE_REPLICAS": [999, "learner", 7],
    "REPLICA_STATUS": [[1]],
    "STANDING": [],
    "PAST_HOUR": [0],
    "HOLDS_TXN": [1 << 18],
    "FORCE_MEMBERS": [[7], "why", b"", b"proof"],
    "WAITS": [True],
    "REFUSE_WAIT": [1, 1, 1, 1, ["KvorumError", "INTERNAL", "why", {}]],
    "SNAPSHOT_OPEN": [0, "me", 1000, "u"],
    "SNAPSHOT_RENEW": [1, "u"],
    "SNAPSHOT_RELEASE": [1, "u"],
    "SNAPSHOT_LIST": [],
    "COLLECT_BELOW": [],
    "OLDEST_INTENT": [],
    "ANCHORED": [KEY, NEXT],
    "TSO_RELAYED": [1],
    "END_TXN": [1 << 18],
    "ACCESS": ["user.list", b"\x80"],
    "PROVE": [b"p" * 32],
    "BEAT": [7, b"b" * 8, 1, {"x": b""}],
    "BEAT_NOW": [7],
    "SPLIT_POINT": [999, "middle"],
    "REPORTS": [],
    "CHECK_REPLICA": [999, KEY, NEXT, 1 << 18, 10],
    "RAISE_SAFEPOINT": [[999], 1],
    "WALL_CLOCK": [],
    "VERIFY_REPLICA": [999, 0, b""],
    "BUS_ORDERS": [[]],
    "BUS_REPORTS": ["node/7", []],
    "WORK_ENTER": ["w", EMPTY_MAP],
    "WORK_POLL": ["w", 1, 1, 0, False, 0, EMPTY_MAP],
    "WORK_IDS": ["w", 1, 1],
    "WORK_LEAVE": ["w", 1],
    "WORK_LIST": [],
    "PROC_CONTROL": ["signal", EMPTY_MAP],
    "PROC_SUBMIT_MORE": ["nobody's", EMPTY_MAP, "me", None, {"priority": 1, "queue": "q"}],
    "LOCK_BEAT": [1, 0],
    "LOCK_END": [1],
    "SPLIT_PARTITION": [999, NEXT, 1000, 1],
    "FREEZE_PARTITION": [999, 1],
    "THAW_PARTITION": [999, 1],
    "CAUGHT_UP": [999, 1],
    "MERGE_PARTITION": [999, 1, NOWHERE, 1, 1, [1]],
    "SETTLE_PARTITION": [999, 1],
}
WRONG: Final[list[Any]] = [
    *(None, True, -1, 0, 2**63, 2**64 - 1, 1.5, float("nan"), "", "x" * 70_000, "\0"),
    *(b"", b"x", b"\xff" * 70_000, [], [None], [[]], [[None, None]], [0], [b""], ["x"], [{}], {}),
    *({"x": None}, {1: 2}, {"limit": "x", "wait_ms": "x", "reads": [None], "queue": 3}),
    {"attempt": None, "table": None, "manifest": [None], "version": "x", "app": 1},
    msgpack.packb({"id": "x", "name": 1, "payload": [], "key": {}}),
]
OBEYED: Final = frozenset({"CREATE_PARTITION"})  # whose example would change what is here
BROKEN: Final = ("internal error", "unexpected")


VERB: Final = {verb.name: verb for verb in VERBS}


def requests(name: str, whole: list[Any]) -> Iterator[list[Any]]:
    """Every prefix of the example, each argument replaced by each wrong value, and too many."""
    for n in range(len(whole) + (name not in OBEYED)):
        yield whole[:n]
    yield [*whole, None]
    yield [*whole, *whole, *whole]
    for at, right in enumerate(whole):
        for wrong in WRONG:
            if name == "ANCHORED" and type(wrong) is bytes:
                continue  # an order to close another range, and no malformed one
            yield [*whole[:at], wrong, *whole[at + 1 :]]
            yield [*whole[:at], wrong]
        if type(right) is list and right and type(right[0]) is list:  # rows of rows
            for inner in range(len(right[0])):
                for wrong in (None, -1, "x", b"", [], {}, 2**64 - 1):
                    row = [*right[0][:inner], wrong, *right[0][inner + 1 :]]
                    yield [*whole[:at], [row], *whole[at + 1 :]]
                    yield [*whole[:at], [row[:inner]], *whole[at + 1 :]]


class Conn:
    """What the dispatcher answers."""

    user = ""
    rights = None
    author = NOBODY

    def __init__(self) -> None:
        self.rows: dict[int, list[Any]] = {}
        self.came = asyncio.Event()

    def reply(self, row: list[Any]) -> None:
        assert row[0] not in self.rows, f"answered twice: {row}"
        self.rows[row[0]] = row
        self.came.set()

    def flush(self) -> None:
        """Nothing is queued."""

    def ready(self, wake: Any) -> bool:
        return True


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    config = NodeConfig(data=tmp_path / "d", port=None)
    node = await build(config, system_ports(asyncio.get_running_loop()))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def through_the_wire(rows: list[list[Any]]) -> list[list[Any]]:
    """As the socket would hand them over. Raises what the socket refuses as a whole."""
    return requests_of(decode(msgpack.packb(rows)))


async def ask(node: Node, rows: list[list[Any]]) -> dict[int, list[Any]]:
    """The replies to all of them."""
    conn = Conn()
    for row in rows:
        node.store.dispatcher.submit(conn, through_the_wire([row]))
    async with asyncio.timeout(60):
        while len(conn.rows) < len(rows):
            conn.came.clear()
            await conn.came.wait()
    return conn.rows


async def keep_working(db: kvorum.AsyncDatabase, number: int, stop: asyncio.Event) -> int:
    """A client whose every request must succeed. How many there were."""
    table, done = db.table("app", "t"), 0
    while not stop.is_set():
        key = f"client-{number}-{done % 7}".encode()
        version = await table.put(key, str(done).encode())
        row = await table.get(key)
        assert row is not None
        assert (row.value, row.version) == (str(done).encode(), version)
        async with db.transaction() as t:
            await t.table("app", "t").put(key + b"/t", b"x")
        done += 1
        await asyncio.sleep(0)
    return done


def test_every_method_has_an_example() -> None:
    """A method, or an argument, that is added is never tried with malformed values: give it one in
    EXAMPLES above.
    """
    assert {name: len(verb.fields) for name, verb in VERB.items()} == {
        name: len(example) for name, example in EXAMPLES.items()
    }


@pytest.mark.slow
async def test_no_request_breaks_a_node(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the arguments are, the answer names what is wrong with them, no internal error is
    met, and eight others work on.
    """
    db = kvorum.AsyncDatabase(node.surface("embedded"), SystemRng())
    await db.create_namespace("app")
    await db.create_table("app", "t")
    stop = asyncio.Event()
    broken: list[str] = []
    async with asyncio.TaskGroup() as group:
        others = [group.create_task(keep_working(db, i, stop)) for i in range(8)]
        try:
            rid = 0
            for name, example in EXAMPLES.items():
                number = VERB[name].number
                rows = []
                for args in requests(name, example):
                    heads = [[]]
                    if number < NODE_METHODS:
                        heads = [[1, 1], [2, 1]] if args else [[], [1], [2, 1], ["x", 1], [2, None]]
                    for head in heads:
                        rid += 1
                        rows.append([rid, number, 300, *head, *args])
                replies = await ask(node, rows)
                for row in rows:
                    reply = replies[row[0]]
                    if reply[1] and any(word in from_wire(reply[2:]).message for word in BROKEN):
                        broken.append(f"{name} {row[3:]!r:.200}")
        finally:
            stop.set()
    assert not broken, (len(broken), broken[:20])
    assert node.store.faults.count == 0, caplog.text[-4000:]
    assert all(task.result() > 3 for task in others)
    await db.close()

"""The native port and workers: who works for a pool does so by that right alone, and gets at
nothing of other pools'.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgpack
import pytest
from msgspec import structs

import kvorum
from kv.base.adapters import LoopTimers, SystemClock, SystemRng
from kv.base.credentials import Credential
from kv.base.errors import KvorumError
from kv.base.keys import u64
from kv.base.methods import (
    BLIND,
    CHECK,
    COMMIT,
    FINISH,
    HEARTBEAT,
    PENDING,
    PREWRITE,
    PREWRITE_ROWS,
    RECOVER,
    RESOLVE,
    ROLLBACK,
)
from kv.base.ops import delete, put
from kv.client.client import KvClient, connect
from kv.mvcc.packed_rows import PackedKeys
from kvorum.api.names import TableIds
from kvorum.native.native import CATALOG_TTL_S
from kvorum.sdk.sync import Database
from kvorum.steps.modules import load_types
from procedures.engine import plain_data, records
from procedures.engine.attributes import index_ops
from procedures.engine.kv_store import KvStore, live_key, record_key
from procedures.engine.procedure import State
from procedures.engine.search_rows import of_state
from procedures.engine.store import NOT_HELD
from procedures.pools import messages, rows
from procedures.pools.describe import described
from procedures.pools.messages import Entry
from procedures.pools.worker import Worker
from procedures.verbs import BUS_REPORTS, WORK_ENTER, WORK_LEAVE, WORK_POLL
from sqlproxy.catalog.catalog import CatalogCache
from sqlproxy.catalog.visible_catalog import RemoteCatalog
from tests.kit.machine import free_port_base
from tso.client import remote_tso
from txn.client import TxnClient

TYPES = load_types(["tests.processes.sample_pool"])


class Cluster(NamedTuple):
    base: int
    db: Database
    worker: str  # tokens
    rogue: str


class Client(NamedTuple):
    kv: KvClient
    txn: TxnClient

    def work(self, name: str) -> Worker:
        seen, timers = RemoteCatalog(self.kv), self.txn.timers
        tables = TableIds(CatalogCache(seen, timers, CATALOG_TTL_S, seen.claim))
        store, clock = KvStore(self.txn), SystemClock()
        return Worker(name, "sample", self.kv, store, TYPES, tables, clock, timers, SystemRng())


def token_of(db: Database, name: str, *grants: tuple[str, str, str, str]) -> str:
    """A new user's."""
    db.access("user.create", {"name": name})
    for actions, kind, namespace, thing in grants:
        said = {"actions": actions.split(","), "kind": kind, "name": thing}
        said |= {"namespace": namespace} if namespace else {}
        db.access("grant.give", {"role": name, **said})
    return str(db.access("token.create", {"user": name, "name": "t"})["token"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    base = free_port_base()
    with kvorum.open(tmp_path_factory.mktemp("workers") / "data", port=base) as db:
        db.access("init")
        db.create_namespace("pool")
        db.create_table("pool", "rows")
        rows_too = ("read,write", "table", "pool", "rows")
        worker = token_of(db, "hand", ("run", "pool", "", "sample"), rows_too)
        rogue = token_of(db, "rogue", ("run", "pool", "", "other"), rows_too)
        yield Cluster(base, db, worker, rogue)


@asynccontextmanager
async def client(cluster: Cluster, token: str) -> AsyncIterator[Client]:
    timers, rng = LoopTimers(asyncio.get_running_loop()), SystemRng()
    shown = Credential(token=token)
    kv = await connect([("127.0.0.1", cluster.base)], timers=timers, rng=rng, credential=shown)
    txn = TxnClient(kv, remote_tso(kv, timers, rng), SystemClock(), rng, timers)
    try:
        yield Client(kv, txn)
    finally:
        await txn.close()
        kv.close()


@asynccontextmanager
async def working(cluster: Cluster) -> AsyncIterator[Worker]:
    async with client(cluster, cluster.worker) as mine:
        worker = mine.work("w")
        running = asyncio.create_task(worker.run())
        entered = asyncio.create_task(worker.entered.wait())
        await asyncio.wait([running, entered], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            entered.cancel()
            running.result()
        try:
            yield worker
        finally:
            worker.stop()
            await running


async def refused(doing: Any) -> str:
    try:
        await doing
    except KvorumError as error:
        return error.code
    return "done"


async def given(worker: Worker) -> None:
    async with asyncio.timeout(10):
        while not worker._jobs:  # noqa: ASYNC110 - it has no event for that
            await asyncio.sleep(0.01)


def test_a_worker_needs_the_right_to_its_pool_alone(cluster: Cluster) -> None:
    """A right to `run` that is of no use by itself would make an administrator of every worker."""

    async def run() -> None:
        async with working(cluster):
            id = await asyncio.to_thread(cluster.db.submit, "sample.pool", {"sleep_s": 0})
            ended = await asyncio.to_thread(cluster.db.procedure, id, wait_ms=10_000)
            assert ended.state == "SUCCESS", ended

    asyncio.run(run())


def test_a_worker_begins_children(cluster: Cluster) -> None:
    """Their ids come from a counter that no worker may write: only an administrator's could."""

    async def run() -> None:
        async with working(cluster):
            id = await asyncio.to_thread(cluster.db.submit, "sample.family", {})
            ended = await asyncio.to_thread(cluster.db.procedure, id, wait_ms=20_000)
            assert ended.state == "SUCCESS", ended
            assert len(set(ended.result)) == 2

    asyncio.run(run())


def test_a_worker_starts_others_and_tells_of_their_end(cluster: Cluster) -> None:
    """A workflow at a worker with rights could start nothing, or was never told how that ended: the
    row that says so is another procedure's.
    """

    async def run() -> None:
        async with working(cluster):
            id = await asyncio.to_thread(cluster.db.submit, "sample.starter", None)
            ended = await asyncio.to_thread(cluster.db.procedure, id, wait_ms=20_000)
            assert ended.state == "SUCCESS", ended
            assert [len(one) for one in ended.result] == [2, 2]

    asyncio.run(run())


def test_a_worker_begins_children_by_ids_that_it_was_given(cluster: Cluster) -> None:
    """One by the next id would stand in the way of what others submit, or pass for it; and one that
    says another owner, or its own record that does, passed for what somebody else had submitted.
    """

    async def run() -> None:
        async with working(cluster) as worker, client(cluster, cluster.worker) as mine:
            id = int(await asyncio.to_thread(cluster.db.submit, "sample.pool", {"sleep_s": 1}))
            await given(worker)
            stored = await mine.txn.get(record_key(id))
            assert stored[0] is not None
            record = records.decode(stored[0], "it")
            first = await worker._reserve_ids(3)
            forged = structs.replace(record, id=first, parent=id, starter=id + 1, tells="ext-x")
            begun = put(record_key(first), records.encode(forged), cond=0)
            assert await refused(mine.txn.write([begun, put(live_key(first), b"")])) == NOT_HELD
            for more in (
                {"tells": "ext-x"},
                {"starter": id + 1},
                {"parent": id + 1},
                {"name": "pay"},
                {"owner": "ann"},
            ):
                other = records.encode(structs.replace(record, **more))
                own = mine.txn.write([put(record_key(id), other, cond=stored[1])])
                assert await refused(own) == NOT_HELD, more
            forged = structs.replace(record, id=first, parent=id, owner="ann")
            begun = put(record_key(first), records.encode(forged), cond=0)
            assert await refused(mine.txn.write([begun, put(live_key(first), b"")])) == NOT_HELD
            for child, code in ((first, "done"), (first + 3, NOT_HELD), (1 << 40, NOT_HELD)):
                forged = records.encode(structs.replace(record, id=child, parent=id))
                child_ops = [put(record_key(child), forged, cond=0), put(live_key(child), b"")]
                begun = mine.txn.write(child_ops)
                assert await refused(begun) == code
            await asyncio.to_thread(cluster.db.procedure, id, wait_ms=10_000)

    asyncio.run(run())


def test_a_worker_does_not_begin_what_its_user_may_not(cluster: Cluster) -> None:
    """A record that a worker wrote, of a child or in place of its own, had a master drop tables."""

    async def run() -> None:
        async with working(cluster) as worker, client(cluster, cluster.worker) as mine:
            id = int(await asyncio.to_thread(cluster.db.submit, "sample.pool", {"sleep_s": 1}))
            await given(worker)
            stored, version = await mine.txn.get(record_key(id))
            assert stored is not None
            record = records.decode(stored, "it")
            args = plain_data.pack({"namespace": "pool", "name": "rows"})
            for name in ("DropTable", "kvorum.repair"):
                child = await worker._reserve_ids(1)
                evil = structs.replace(record, name=name, args=args, pool="", pending=True)
                begun = records.encode(structs.replace(evil, id=child, parent=id))
                child_ops = [put(record_key(child), begun, cond=0), put(live_key(child), b"")]
                assert await refused(mine.txn.write(child_ops)) == "FORBIDDEN"
                own = put(record_key(id), records.encode(evil), cond=version)
                assert await refused(mine.txn.write([own])) == NOT_HELD
            nothing = put(record_key(id), b"no record", cond=version)
            assert await refused(mine.txn.write([nothing])) == "INVALID_ARGUMENT"
            await asyncio.to_thread(cluster.db.procedure, id, wait_ms=10_000)

    asyncio.run(run())


@pytest.mark.slow
def test_a_worker_begins_what_somebody_there_may_submit(cluster: Cluster) -> None:
    """With the right to run one pool a worker had those of others run what nobody had submitted, in
    the name of whoever had submitted something to it.
    """
    ann = token_of(cluster.db, "ann", ("submit", "procedure type", "", "sample.pool"))

    def submitted() -> int:
        with kvorum.connect(f"kvorum://127.0.0.1:{cluster.base}", token=ann) as db:
            return int(db.submit("sample.pool", {"sleep_s": 4}))

    for user in ("ann", "hand"):
        grant = {"role": user, "actions": ["submit"], "kind": "procedure type"}
        cluster.db.access("grant.give", {**grant, "name": f"pay.{user}"})

    async def run() -> None:
        async with working(cluster) as worker, client(cluster, cluster.worker) as mine:

            async def begins(name: str) -> str:
                child = await worker._reserve_ids(1)
                other = structs.replace(record, name=name, pool="pay", id=child, parent=id)
                begun = put(record_key(child), records.encode(other), cond=0)
                return await refused(mine.txn.write([begun, put(live_key(child), b"")]))

            id = await asyncio.to_thread(submitted)
            await given(worker)
            stored, _ = await mine.txn.get(record_key(id))
            assert stored is not None
            record = records.decode(stored, "it")
            assert record.owner == "ann"
            assert await begins("pay.out") == "FORBIDDEN", "neither may"
            assert await begins("sample.family") == "done", "it runs these itself"
            for user in ("ann", "hand"):
                assert await begins(f"pay.{user}") == "done", user

    asyncio.run(run())


def test_a_procedure_is_found_by_what_its_record_says(cluster: Cluster) -> None:
    """Rows of an index that no record says made masters forget ended ones of other types, and
    searches for what others have too large; nothing ever removed them.
    """

    async def run() -> None:
        async with working(cluster) as worker, client(cluster, cluster.worker) as mine:
            id = int(await asyncio.to_thread(cluster.db.submit, "sample.pool", {"sleep_s": 1}))
            await given(worker)
            stored, version = await mine.txn.get(record_key(id))
            assert stored is not None
            record = records.decode(stored, "it")
            same = put(record_key(id), stored, cond=version)
            forged = index_ops(id, record.created_ms, (), (("customer", "forged"),))
            for name in ("other.type", "sample.pool"):
                ended = put(of_state(name, State.SUCCESS) + bytes(8) + u64(id), b"")
                assert await refused(mine.txn.write([same, ended])) == NOT_HELD, name
            assert await refused(mine.txn.write([same, *forged])) == NOT_HELD
            alone = put(of_state("other.type", State.SUCCESS) + bytes(8) + u64(id), b"")
            assert await refused(mine.txn.write([alone])) == NOT_HELD
            assert await refused(mine.txn.write(forged)) == NOT_HELD, "its type declares none"
            await asyncio.to_thread(cluster.db.procedure, id, wait_ms=10_000)

    asyncio.run(run())


def test_rows_between_those_that_a_worker_has_are_not_its_own(cluster: Cluster) -> None:
    """Packed rows were looked at by their first key: a worker wrote results of others behind it."""

    async def run() -> None:
        async with working(cluster) as worker, client(cluster, cluster.worker) as mine:
            id = int(await asyncio.to_thread(cluster.db.submit, "sample.pool", {"sleep_s": 1}))
            await given(worker)
            keys = [record_key(id), record_key(id + 1)]
            start = await mine.txn.reader.now()
            packed = PackedKeys.of(keys).sent()
            for row in (packed, keys):
                values = msgpack.packb([b"a", b"b"]) if row is packed else [b"a", b"b"]
                forged = mine.kv.call(
                    *(PREWRITE_ROWS, keys[0], start, live_key(id), 60_000, row, values, None),
                    budget_ms=1_000,
                )
                assert await refused(forged) == NOT_HELD
            await asyncio.to_thread(cluster.db.procedure, id, wait_ms=10_000)

    asyncio.run(run())


def test_what_a_worker_does_not_have_it_does_not_end(cluster: Cluster) -> None:
    """COMMIT, ROLLBACK, FINISH and HEARTBEAT of rows of procedures needed a right to some pool."""

    async def run() -> None:
        async with working(cluster) as worker, client(cluster, cluster.rogue) as rogue:
            id = int(await asyncio.to_thread(cluster.db.submit, "sample.pool", {"sleep_s": 1}))
            await given(worker)
            record, call = record_key(id), rogue.kv.call
            own = await worker._store._txn.begin()
            start, _ = own.start_ts, await rogue.txn.reader.now()
            bound = await rogue.txn.reader.now()  # above start + 1
            op = [1, live_key(id), b"", None, 0]
            await worker._store._txn._kv.call(
                *(PREWRITE, live_key(id), start, live_key(id), 60_000, [op], BLIND),
                budget_ms=1_000,
            )
            at = live_key(id)
            for method, *args in (
                (COMMIT, at, start, bound),
                (ROLLBACK, at, start),
                (HEARTBEAT, at, start),
            ):
                assert await refused(call(method, at, *args, budget_ms=1_000)) == NOT_HELD
            ends = [[start, at, bound, [at]], [start + 1, None, bound, [record]]]
            assert await call(FINISH, at, ends, budget_ms=1_000) == [[[PENDING, 1], [0, 1]]]
            assert (await call(CHECK, at, at, start, 0, 1_000, budget_ms=1_000))[0] == PENDING
            assert await refused(call(RECOVER, at, start, at, [at], True, budget_ms=1_000)) == (
                "FORBIDDEN"
            )
            await own.abort()
            await worker._store._txn._kv.call(ROLLBACK, at, at, start, budget_ms=1_000)
            await worker._store._txn._kv.call(RESOLVE, at, start, 0, [at], budget_ms=1_000)
            await asyncio.to_thread(cluster.db.procedure, id, wait_ms=10_000)

    asyncio.run(run())


def test_a_worker_of_another_pool_gets_at_nothing(cluster: Cluster) -> None:
    """It read and forged records of any pool's procedures, spoke as their workers, took the name of
    one, or declared their types as its own.
    """

    async def run() -> None:
        async with working(cluster) as worker, client(cluster, cluster.rogue) as rogue:
            id = int(await asyncio.to_thread(cluster.db.submit, "sample.pool", {"sleep_s": 1}))
            await given(worker)
            record, txn = record_key(id), rogue.txn
            for doing in (
                txn.get(record),
                txn.multi_get([record]),
                txn.scan(record_key(0), record_key(id + 1), limit=10),
                txn.write([put(record, b"forged")]),
                txn.write([put(record_key(1 << 40), b"forged", cond=0)]),
                txn.write([delete(live_key(id))]),
                txn.write([put(rows.signal(id, "s", 1), b"x")]),
                txn.write([put(rows.done(id, "ext-00-1-0"), b"x")]),
                txn.write([put(rows.worker("w"), b"x")]),
                txn.write(index_ops(id, 1, (), (("customer", "forged"),))),
                txn.write(index_ops(id, 1, (("customer", "hidden"),), ())),
                txn.write([put(of_state("sample.pool", State.SUCCESS) + bytes(8) + u64(id), b"")]),
                txn.get(rows.worker("w")),
            ):
                assert await refused(doing) == NOT_HELD
            call, (_, epoch) = rogue.kv.call_node, (worker, worker._epoch)
            poll = call(WORK_POLL, "w", epoch, 99, 0, True, 0, b"")
            assert await refused(poll) == "FORBIDDEN"
            assert await refused(call(WORK_LEAVE, "w", epoch)) == "FORBIDDEN"
            for target in ("node/1", "worker/w"):
                assert await refused(call(BUS_REPORTS, target, [])) == "FORBIDDEN"
            assert await worker._nodes.call_node(BUS_REPORTS, "worker/w", []) == [[]]
            mine = tuple(described(one, "sample") for one in TYPES)
            stolen = tuple(described(one, "other") for one in TYPES)
            for entry in (
                Entry("sample", 1, mine),
                Entry("other", 1, mine),
                Entry("other", 1, stolen),
            ):
                answer = call(WORK_ENTER, "x", messages.encode(entry))
                assert await refused(answer) == "FORBIDDEN"
            ended = await asyncio.to_thread(cluster.db.procedure, id, wait_ms=10_000)
            assert ended.state == "SUCCESS", ended

    asyncio.run(run())


def test_a_worker_of_the_same_pool_does_not_speak_for_another(cluster: Cluster) -> None:
    """Whoever may work for a pool would take, and answer for, what others of it have."""
    other = token_of(cluster.db, "twin", ("run", "pool", "", "sample"))

    async def run() -> None:
        async with working(cluster) as worker, client(cluster, other) as rogue:
            id = int(await asyncio.to_thread(cluster.db.submit, "sample.pool", {"sleep_s": 1}))
            await given(worker)
            assert await refused(rogue.txn.get(record_key(id))) == NOT_HELD
            call, epoch = rogue.kv.call_node, worker._epoch
            poll = call(WORK_POLL, "w", epoch, 99, 0, True, 0, b"")
            assert await refused(poll) == "WORKER_UNKNOWN"
            await call(WORK_LEAVE, "w", epoch)
            entry = Entry("sample", 1, tuple(described(one, "sample") for one in TYPES))
            assert await refused(call(WORK_ENTER, "w", messages.encode(entry))) == "NAME_TAKEN"
            ended = await asyncio.to_thread(cluster.db.procedure, id, wait_ms=10_000)
            assert ended.state == "SUCCESS", ended
            assert worker._epoch == epoch

    asyncio.run(run())

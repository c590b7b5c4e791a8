"""Every verb that names a transaction × whose it is: made from the table of verbs, so that a new
one that moves on transactions of others fails here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

import kvorum
import kvorum.api.verbs
from kv.base.adapters import LoopTimers
from kv.base.credentials import Credential
from kv.base.errors import Forbidden, InvalidArgument, TxnAborted
from kv.base.ids import META_PARTITION
from kv.base.intents import Abandoned
from kv.base.keys import table_prefix
from kv.base.limits import FEW_KEYS
from kv.base.methods import (
    ABORTED,
    CHECK,
    COMMIT,
    COMMITTED,
    FINISH,
    HEARTBEAT,
    HELD,
    PENDING,
    PREWRITE,
    PREWRITE_ROWS,
    RESOLVE,
    ROLLBACK,
    TSO,
)
from kv.base.system import LOCKS, ROLES, SINK_ATTEMPTS
from kv.base.timestamps import LOGICAL_BITS
from kv.base.verbs import VERBS, Caller
from kv.client.connection import MuxConnection, open_connection
from kv.client.links import LinkLost
from kvorum.node.settle_transactions import Deputy
from kvorum.sdk.sync import Database
from procedures.sink.format.sink_records import add_crc, pack_laid, task_key
from procedures.verbs import SINK_ABORT, SINK_BEGIN, SINK_COMMIT, SINK_PLACE, SINK_SEAL
from tests.kit.machine import free_port_base
from txn.client import TxnClient

assert kvorum.api.verbs  # every verb is in the table then
WRITERS = ("ann", "bob")
TTL_MS: Final = 60_000
LATER: Final = 5_000 << LOGICAL_BITS
SAYS: Final = {"start_ts", "ends", "txn", "txns"}  # fields that name a transaction


class Cluster:
    """Two who may write a table, of which one has a transaction, and an administrator."""

    def __init__(self, base: int, db: Database) -> None:
        self.base, self.db, self.keys = base, db, 0
        self.tokens = {"root": db.access("init")["token"]}
        for name in WRITERS:
            db.access("user.create", {"name": name})
            grant = {"role": name, "kind": "table", "namespace": "shop", "name": "orders"}
            db.access("grant.give", {**grant, "actions": ["read", "write"]})
            reads = {**grant, "name": "prices", "actions": ["read"]}
            db.access("grant.give", reads)
            made = db.access("token.create", {"user": name, "name": "t"})
            self.tokens[name] = made["token"]
        ids = {one.name: one.id for one in db.tables("shop")}
        self.table, self.prefix = ids["orders"], table_prefix(ids["orders"])
        self.hidden, self.read_only = table_prefix(ids["secrets"]), table_prefix(ids["prices"])
        self.where = {one["start"][:4]: int(one["id"]) for one in db.partitions()}
        self.partition = self.where[self.prefix]

    async def link(self, who: str) -> MuxConnection:
        said = Credential(token=self.tokens[who])
        timers = LoopTimers(asyncio.get_running_loop())
        return await open_connection("127.0.0.1", self.base, timers=timers, credential=said)

    def fresh(self) -> tuple[bytes, bytes, bytes]:
        """Keys that nobody has written: two that rise, and one between them."""
        self.keys += 1
        own = self.prefix + b"%06d" % self.keys
        return own + b"a", own + b"c", own + b"b"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    base = free_port_base()
    with kvorum.open(tmp_path_factory.mktemp("n") / "data", port=base) as db:
        db.create_namespace("shop")
        db.create_table("shop", "orders")
        db.create_table("shop", "prices")
        db.create_table("shop", "secrets")
        yield Cluster(base, db)


class Transaction:
    """Of ann: two intents of a value, not committed yet."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.anchor, self.other, self.between = cluster.fresh()

    async def begin(self) -> None:
        self.ann, self.bob = [await self.cluster.link(name) for name in WRITERS]
        self.root = await self.cluster.link("root")
        (self.start,) = await self.send(self.ann, TSO, 1)
        await self.send(self.ann, PREWRITE, *prewrite(self, self.anchor, self.other))

    async def send(self, link: MuxConnection, method: int, *args: Any) -> Any:
        where = (self.cluster.partition, 1) if method < TSO else ()
        late = asyncio.get_running_loop().time() + 10
        return await link.send(method, 5_000, late, (*where, *args))

    async def by(self, who: str, method: int, *args: Any) -> Any:
        if who == "node":
            kv = self.cluster.db._async._backend.kv
            work = kv.call(method, self.anchor, *args, budget_ms=5_000)
            return await asyncio.to_thread(self.cluster.db._call, work)
        return await self.send(getattr(self, who), method, *args)

    async def held(self, key: bytes) -> str | None:
        """Whose intent is there."""
        (found,) = await self.by("node", HELD, key, self.start, self.anchor)
        return None if found is None else str(found[1])

    async def commit(self) -> None:
        """It is what it was: its owner commits it, and what he wrote is there."""
        (now,) = await self.send(self.ann, TSO, 1)
        found = await self.send(self.ann, COMMIT, self.anchor, self.start, now)
        assert found[:2] == [COMMITTED, now]
        table = self.cluster.db.table("shop", "orders")
        for key in (self.anchor, self.other):
            value = await asyncio.to_thread(table.get, key[4:])
            assert value is not None
            assert value.value == b"ann's"

    def close(self) -> None:
        for link in (self.ann, self.bob, self.root):
            link.close()


Arguments = Callable[[Transaction], tuple[Any, ...]]


def put(key: bytes, value: bytes = b"forged") -> list[Any]:
    return [1, key, value, None, 0]


def prewrite(t: Transaction, *keys: bytes, value: bytes = b"ann's") -> tuple[Any, ...]:
    return t.start, t.anchor, TTL_MS, [put(key, value) for key in keys], 0


# What each says of the transaction, and what its owner, an administrator and a node hear.
ENDS: dict[str, tuple[Arguments, Callable[[Any], bool]]] = {
    "COMMIT": (lambda t: (t.anchor, t.start, t.start + 1), lambda r: r[0] in (COMMITTED, PENDING)),
    "ROLLBACK": (lambda t: (t.anchor, t.start), lambda r: r[0] == ABORTED),
    "HEARTBEAT": (lambda t: (t.anchor, t.start, {"ttl_ms": TTL_MS}), lambda r: r == [PENDING]),
    "FINISH": (
        lambda t: ([[t.start, None, t.start + 1, [t.other]]],),
        lambda r: r == [[[COMMITTED, 0]]],
    ),
    "RESOLVE": (lambda t: (t.start, 0, [t.anchor, t.other]), lambda r: r == [2, 0]),
}
GOES_ON: dict[str, Arguments] = {
    "PREWRITE": lambda t: prewrite(t, t.between, value=b"forged"),
    "PREWRITE_ROWS": lambda t: (t.start, t.anchor, TTL_MS, [t.between], [b"forged"]),
    "WRITE": lambda t: ([put(t.anchor)], t.start, 1),
    "WRITE_ROWS": lambda t: ([t.anchor], [b"forged"], t.start, 1),
}
# What somebody else hears of one that is not decided, where it is no refusal.
NOTHING: dict[str, Callable[[Any], bool]] = {
    "FINISH": lambda r: r == [[[0, 1]]],
    "RESOLVE": lambda r: r == [0, 0],
    "CHECK": lambda r: r[0] == PENDING,
    "SETTLE": lambda r: r[0] == PENDING,
    "HELD": lambda r: r[0][1] == "ann",
}
LOOKED_UP: dict[str, Arguments] = {
    "CHECK": lambda t: (t.anchor, t.start, 0, 0),
    "SETTLE": lambda t: (t.anchor, t.start, 0),
    "RECOVER": lambda t: (t.start, t.anchor, [t.other], True),
    "HELD": lambda t: (t.other, t.start, t.anchor),
}
ELSEWHERE: dict[str, str] = {
    "FIND_TXN": "test_nobody_looks_into_transactions_of_others",
    "END_TXN": "needs the right to operate",
    "SINK_PLACE": "below",
    "SINK_SEAL": "below",
}


def test_every_verb_that_names_a_transaction_is_here() -> None:
    """A new one would let anybody who may write a table end transactions of others there."""
    named = {
        verb.name
        for verb in VERBS
        if SAYS & set(verb.fields) and {Caller.CLIENT, Caller.WORKER} & set(verb.callers)
    }
    assert named == {*ENDS, *GOES_ON, *LOOKED_UP, *ELSEWHERE}


NUMBERS = {verb.name: verb.number for verb in VERBS}


@pytest.mark.parametrize("name", [*ENDS, *GOES_ON, *LOOKED_UP])
def test_nobody_moves_on_a_transaction_of_somebody_else(cluster: Cluster, name: str) -> None:
    """With the right to write a table came the power over everybody's transactions there."""
    arguments = ENDS[name][0] if name in ENDS else {**GOES_ON, **LOOKED_UP}[name]
    refusal = Forbidden if name in ("COMMIT", "ROLLBACK", "HEARTBEAT", "RECOVER") else TxnAborted

    async def run() -> None:
        t = Transaction(cluster)
        await t.begin()
        asked = t.by("bob", NUMBERS[name], *arguments(t))
        if name in NOTHING:
            said = await asked
            assert NOTHING[name](said), said
        else:
            with pytest.raises(refusal):
                await asked
        await t.commit()
        t.close()

    asyncio.run(run())


@pytest.mark.parametrize("who", ["ann", "root", "node"])
@pytest.mark.parametrize("name", ENDS)
def test_its_owner_administrators_and_nodes_do(cluster: Cluster, name: str, who: str) -> None:
    """Nobody could commit any more, or clean up after those who left."""
    arguments, fits = ENDS[name]

    async def run() -> None:
        t = Transaction(cluster)
        await t.begin()
        said = await t.by(who, NUMBERS[name], *arguments(t))
        assert fits(said), said
        t.close()

    asyncio.run(run())


@pytest.mark.parametrize("who", ["bob", "root", "node"])
@pytest.mark.parametrize("name", GOES_ON)
def test_an_id_that_is_taken_is_nobody_elses(cluster: Cluster, name: str, who: str) -> None:
    """Whoever was first with a start_ts, his value was committed by somebody else's commit, or the
    other one heard that he had committed.
    """

    async def run() -> None:
        t = Transaction(cluster)
        await t.begin()
        with pytest.raises(TxnAborted):
            await t.by(who, NUMBERS[name], *GOES_ON[name](t))
        await t.commit()
        # ann, whose id somebody else was faster to use, begins again instead of hearing that it is
        # committed
        t.anchor, t.other, t.between = cluster.fresh()
        await t.by(who, NUMBERS["WRITE"], [put(t.anchor)], t.start, 1)
        with pytest.raises(TxnAborted):
            await t.send(t.ann, PREWRITE, *prewrite(t, t.anchor))
        with pytest.raises(TxnAborted):
            await t.send(t.ann, NUMBERS["WRITE"], [put(t.anchor)], t.start, 1)
        t.close()

    asyncio.run(run())


@pytest.mark.parametrize("meta", [True, False])
def test_a_record_ends_the_intents_of_its_user_alone(cluster: Cluster, meta: bool) -> None:
    """With a record of one's own under somebody's id, his rows were committed by FINISH, in all
    tables if a key was one that only nodes may write, and by a node that had met a forged intent.
    """

    async def run() -> None:
        t = Transaction(cluster)
        await t.begin()
        mine, (anchor, other) = cluster.fresh()[0], (t.anchor, t.other)
        (at,) = await t.send(t.bob, NUMBERS["WRITE"], [put(mine)], t.start, 1)
        if meta:
            late = asyncio.get_running_loop().time() + 10
            ends = [[t.start, mine, at, [anchor, other]]]
            ends.append([t.start + 1, None, at, [table_prefix(ROLES) + b"bob"]])
            with pytest.raises(Forbidden):
                await t.bob.send(FINISH, 5_000, late, (META_PARTITION, 1, ends))
            backend = cluster.db._async._backend
            row = [1, FINISH, 0, META_PARTITION, 1, ends]  # as of an administrator
            await asyncio.to_thread(cluster.db._call, Deputy(backend.kv, backend.txn)(row))
        else:
            await t.send(t.bob, FINISH, [[t.start, mine, at, [anchor, other]]])
            resolver = cluster.db._async._backend.txn.resolver
            met = Abandoned(t.start, mine, TTL_MS, [anchor, other], "bob")
            for end in (resolver.finish(met), resolver.end(met, budget_ms=5_000)):
                await asyncio.to_thread(cluster.db._call, end)
            # what an administrator ends of him is not what nodes know of theirs
            await t.send(t.bob, HEARTBEAT, t.between, t.start + 1, {"ttl_ms": TTL_MS})
            backend = cluster.db._async._backend
            found = resolver._known.get(t.start + 1)
            await asyncio.to_thread(
                cluster.db._call, backend.txn.abort(t.start + 1, budget_ms=5_000)
            )
            assert resolver._known.get(t.start + 1) is found is None
        for key in (anchor, other):
            assert await t.held(key) == "ann"
        assert await t.by("node", RESOLVE, t.start, 0, [anchor], None, "bob") == [0, 0]
        await t.commit()
        t.close()

    asyncio.run(run())


def test_what_waits_is_its_users_when_he_is_gone(cluster: Cluster) -> None:
    """Writes that wait run after their connection lost its rights: as nobody's, who is a node to
    all others. Their outcome was believed of the transactions of nodes, which lost rows.
    """

    async def run() -> None:
        t = Transaction(cluster)
        await t.begin()
        name = f"short{cluster.keys}"
        made = await asyncio.to_thread(
            cluster.db.access, "token.create", {"user": "bob", "name": name}
        )
        cluster.tokens[name] = made["token"]
        link = await cluster.link(name)
        (start,) = await t.send(link, TSO, 1)
        waits = asyncio.ensure_future(
            t.send(link, PREWRITE, start, t.between, TTL_MS, [put(t.other)], 1)
        )
        await t.send(link, TSO, 1)  # it is there
        await asyncio.to_thread(cluster.db.access, "token.revoke", {"user": "bob", "name": name})
        with pytest.raises(LinkLost):
            await waits  # the connection ends
        await t.send(t.ann, ROLLBACK, t.anchor, t.start)
        await t.send(t.ann, RESOLVE, t.start, 0, [t.anchor, t.other])
        t.start, t.anchor = start, t.between
        async with asyncio.timeout(10):
            while (whose := await t.held(t.other)) is None:
                pass
        assert whose == "bob"
        await t.send(t.bob, ROLLBACK, t.anchor, start)
        link.close()
        t.close()

    asyncio.run(run())


def test_no_transaction_is_fenced_by_a_guess(cluster: Cluster) -> None:
    """A transaction that had written nothing for a second was over as soon as somebody asked."""

    async def run() -> None:
        t = Transaction(cluster)
        await t.begin()
        started, t.start = t.start, t.start - LATER
        await t.send(t.bob, PREWRITE, started, t.between, TTL_MS, [put(t.between)], 0)
        t.anchor, t.other, _ = cluster.fresh()
        for more in ((), (b"",), (t.other,), (t.between,), (t.between, "bob"), (None, "ann")):
            found = await t.send(t.bob, CHECK, t.anchor, t.start, started, 0, *more)
            assert found[0] == PENDING
        for method, args in (
            (COMMIT, (t.anchor, t.start, t.start + 1)),
            (NUMBERS["SETTLE"], (t.anchor, t.start, 0)),
            (NUMBERS["FINISH"], ([[t.start, t.anchor, t.start + 1, [t.anchor]]],)),
        ):
            try:
                assert ABORTED not in await t.send(t.bob, method, *args)
            except TxnAborted:
                assert method == COMMIT
        await t.send(t.ann, PREWRITE, *prewrite(t, t.anchor, t.other))
        await t.commit()
        t.close()

    asyncio.run(run())


def test_what_a_dead_client_left_is_in_nobodys_way(cluster: Cluster) -> None:
    """Readers and writers would wait for ever for a transaction of somebody else."""

    async def run() -> None:
        t = Transaction(cluster)
        await t.begin()
        t.anchor, t.other, _ = cluster.fresh()
        await t.send(t.ann, PREWRITE, t.start, t.anchor, 1, [put(t.anchor), put(t.other)], 0)
        t.close()

    asyncio.run(run())
    last = cluster.prefix + b"%06d" % cluster.keys
    url = f"127.0.0.1:{cluster.base}"
    with kvorum.connect(url, token=cluster.tokens["bob"]) as db:
        table = db.table("shop", "orders")
        assert table.get((last + b"c")[4:]) is None
        table.put((last + b"a")[4:], b"bob's")
        assert table.get((last + b"a")[4:]).value == b"bob's"


def test_a_record_lies_where_its_user_may_write(cluster: Cluster) -> None:
    """An intent names the record that decides it: by one of his own anybody had transactions
    aborted in tables that he does not even see.
    """

    async def run() -> None:
        t = Transaction(cluster)
        await t.begin()
        system = table_prefix(SINK_ATTEMPTS - 1)
        for anchor in (cluster.hidden + b"k", system + b"k", b"\0\0\0\0"):
            one = (t.start, anchor, TTL_MS, [put(t.between)], 0)
            rows = (t.start, anchor, TTL_MS, [t.between], [b"v"])
            for _ in range(2):
                with pytest.raises(Forbidden):
                    await t.send(t.bob, PREWRITE, *one)
                with pytest.raises(Forbidden):
                    await t.send(t.bob, PREWRITE_ROWS, *rows)
        await t.commit()
        t.close()

    asyncio.run(run())


def test_parts_lie_where_their_user_may_write_or_read(cluster: Cluster) -> None:
    """Whoever recovers a parallel commit closes the keys of its parts to its id: in tables that its
    user does not see, and in the system's.
    """

    async def run() -> None:
        t = Transaction(cluster)
        await t.begin()
        (t.start,) = await t.send(t.bob, TSO, 1)
        t.anchor, t.other, _ = cluster.fresh()

        async def stage(*parts: Any) -> bool:
            said = {"fence": True, "stage": [[t.anchor], *parts]}
            one = (t.start, t.anchor, TTL_MS, [put(t.anchor)], 0, said)
            return (await t.send(t.bob, PREWRITE, *one))[1:] == [True]

        system = table_prefix(SINK_ATTEMPTS - 1)
        for key in (cluster.hidden + b"k", system + b"k", table_prefix(ROLES) + b"k", b"\0"):
            for _ in range(2):
                with pytest.raises(Forbidden):
                    await stage([t.other], [key])
        for wrong in (7, [7], [[7]], [["k"]]):
            with pytest.raises(InvalidArgument):
                await stage(wrong)
        assert await stage([t.other])
        await t.send(t.bob, ROLLBACK, t.anchor, t.start, {"own": True})
        for read in (cluster.read_only, table_prefix(LOCKS)):
            (t.start,) = await t.send(t.bob, TSO, 1)
            t.anchor, t.other, _ = cluster.fresh()
            for _ in range(2):
                assert not await stage([t.other], [read + b"k"]), "it is flipped"
            (now,) = await t.send(t.bob, TSO, 1)
            found = await t.by("node", CHECK, t.anchor, t.start, 0, TTL_MS, t.anchor, "bob")
            assert found[0] == PENDING, "nobody recovers it, and fences what others write"
            assert await t.send(t.bob, COMMIT, t.anchor, t.start, now) == [COMMITTED, now, 0]
        t.close()

    asyncio.run(run())


@pytest.mark.parametrize("verb", ["RESOLVE", "FINISH"])
def test_what_a_node_looks_up_for_others_is_theirs_to_see_and_small(
    cluster: Cluster, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever named many keys had the node hold the values of all of them, those of tables that he
    does not see, too.
    """
    most: list[int] = []
    real = TxnClient.multi_get

    async def multi_get(self: TxnClient, keys: Sequence[bytes], *args: Any, **said: Any) -> Any:
        most.append(len(keys))
        return await real(self, keys, *args, **said)

    monkeypatch.setattr(TxnClient, "multi_get", multi_get)
    keys = [cluster.prefix + b"%06d" % number for number in range(100)]

    def says(t: Transaction, anchor: bytes | None, keys: list[bytes], at: int = 0) -> Any:
        if verb == "RESOLVE":
            return t.start, 0, keys
        return ([[t.start, anchor, at or t.start + 1, keys]],)

    async def run() -> None:
        t = Transaction(cluster)
        await t.begin()
        late = asyncio.get_running_loop().time() + 10
        for hidden in (cluster.hidden + b"k", table_prefix(ROLES) + b"bob"):
            where = cluster.where.get(hidden[:4], META_PARTITION), 1
            with pytest.raises(Forbidden):
                await t.bob.send(NUMBERS[verb], 5_000, late, (*where, *says(t, None, [hidden])))
        assert not most
        deputy = Deputy(cluster.db._async._backend.kv, cluster.db._async._backend.txn)
        (version,) = await t.send(t.bob, NUMBERS["WRITE"], [put(t.between)], t.start, 1)
        said = says(t, t.between, keys, version)
        row = [1, NUMBERS[verb], 0, cluster.partition, 1, *said]
        await asyncio.to_thread(cluster.db._call, deputy(row))
        assert sum(most) == len(keys)
        assert max(most) <= FEW_KEYS
        t.close()

    asyncio.run(run())


def test_a_batch_ends_what_its_own_tasks_laid(cluster: Cluster) -> None:
    """A writer of Spark said that rows of another transaction are his batch's: they went with it,
    committed or not.
    """

    async def run() -> None:
        t = Transaction(cluster)
        await t.begin()
        laid = pack_laid([(t.start, t.anchor[4:], t.other[4:], 1)])
        await t.send(t.bob, SINK_BEGIN, "a", cluster.table, TTL_MS)
        placed = (await t.send(t.bob, SINK_PLACE, "a", cluster.table, 0, "task", t.start))[0]
        assert placed is True
        crc = add_crc(0, 0, laid)
        sealed = (0, "task", 1, 1, crc, laid, [[t.start, 0]], 1)
        await t.send(t.bob, SINK_SEAL, "a", cluster.table, *sealed)
        await t.send(t.bob, SINK_ABORT, "a", cluster.table)
        await t.commit()
        t.close()

    asyncio.run(run())


def test_a_users_batch_is_committed_from_where_it_was_laid(cluster: Cluster) -> None:
    """Rows that a user lays under a record that the master keeps for him would belong to nobody."""

    async def run() -> tuple[bytes, bytes]:
        t = Transaction(cluster)
        await t.begin()
        await t.send(t.ann, ROLLBACK, t.anchor, t.start)
        first, last, _ = cluster.fresh()
        attempt, task = "whole", "task"
        (start,) = await t.send(t.bob, TSO, 1)
        await t.send(t.bob, SINK_BEGIN, attempt, cluster.table, TTL_MS)
        for _ in range(2):  # the second keeps it alive
            placed = await t.send(t.bob, SINK_PLACE, attempt, cluster.table, 0, task, start)
            assert placed == [True]
        rows = ([first, last], [b"1", b"2"])
        own = task_key(attempt, task)
        low, *_ = await t.send(t.bob, PREWRITE_ROWS, start, own, TTL_MS, *rows)
        laid = pack_laid([(start, first[4:], last[4:], 2)])
        crc = add_crc(0, 0, laid)
        sealed = (0, task, 1, 2, crc, laid, [[start, low]], 2)
        await t.send(t.bob, SINK_SEAL, attempt, cluster.table, *sealed)
        batch = {
            "attempt": attempt,
            "table": cluster.table,
            "app": "",
            "version": 0,
            "query": "",
            "manifest": [[0, task, 1, 2, crc]],
            "placed": True,
        }
        while (await t.send(t.bob, SINK_COMMIT, batch))[0]:
            pass
        t.close()
        return first, last

    table = cluster.db.table("shop", "orders")
    for key, value in zip(asyncio.run(run()), (b"1", b"2"), strict=True):
        assert table.get(key[4:]).value == value

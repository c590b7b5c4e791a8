"""One scenario for every built-in procedure: what there is before, its arguments, and what must be
true when it happened, and when it did not. The harness finds the types in the registry of a real
node; one without a scenario fails the test.

`again` is how the same submission ends once it has happened: the same effect, or the refusal that
says that it is there. `may_fail`: losing a node that takes part is a reason of its own to fail (and
then it must not have happened at all).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kv.base import limits
from kv.base.errors import KvorumError, Refused
from kv.base.keys import u32
from procedures.bus.settings import read_setting
from procedures.master.map.nodes import NodeState, all_nodes
from procedures.sink.format.sink_records import attempt_key, marker_key
from sqlproxy.catalog import catalog
from sqlproxy.catalog.catalog import CATALOG_TTL_S
from tests.harness.site_scenarios import left_nothing, linked, to_link
from tests.harness.sql_scenarios import SQL_SCENARIOS
from tests.harness.transfer_scenarios import TRANSFER_SCENARIOS
from tests.harness.user_scenarios import FLOW, a_table, counted
from tests.harness.world import ROWS, TABLE, Place
from tests.procedures.sink.world import Client, Task

SUCCESS = "SUCCESS"
Prepare = Callable[[Place], Awaitable[Any]]
Check = Callable[[Place, Any, bool], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`check` gives a complaint, or nothing; it is asked again until there is none."""

    prepare: Prepare
    check: Check
    again: str = SUCCESS
    nodes: int = 3
    may_fail: bool = False
    best_effort: bool = False  # what a lost node makes impossible is left, and told: not a failure
    reads: bool = True  # the table and its rows are there whatever happens
    start: Callable[[Place, str, Any, str], Awaitable[int]] | None = None  # else it is submitted


NAME = {"namespace": "default", "name": "t"}


async def _nothing(place: Place, args: Any, happened: bool) -> Any:
    return None


async def _loss(place: Place) -> Any:
    await place.table()
    return {"lost": ["node=1"]}


async def _t(place: Place) -> Any:
    await place.table()
    return NAME


async def _bulk(place: Place) -> Any:
    await place.table()
    wanted = {"type": "nobody", "state": "WAITING"}
    return {"what": "abort", "filter": wanted, "reason": "why", "actor": "ann"}


async def _empty(place: Place) -> Any:
    await place.table()
    return {}


# ---------------------------------------------------------------------- namespaces and tables


async def _shop(place: Place) -> Any:
    await place.table()
    return {"namespace": "shop"}


async def _made_shop(place: Place) -> Any:
    await place.table()
    await place.run("CreateNamespace", {"namespace": "shop"})
    return {"namespace": "shop"}


async def _shop_is_there(place: Place, args: Any, happened: bool) -> Any:
    there = "shop" in await place.db.namespaces()
    return None if there == happened else f"namespace shop is there: {there}"


async def _shop_is_gone(place: Place, args: Any, happened: bool) -> Any:
    return await _shop_is_there(place, args, not happened)


async def _new_table(place: Place) -> Any:
    await place.table()
    return {"namespace": "default", "name": "new", "split_keys": [b"g", b"p"], "replicas": 3}


async def _new_is_there(place: Place, args: Any, happened: bool) -> Any:
    names = [t.name for t in await place.db.tables("default")]
    if ("new" in names) != happened or len(await place.map()) != (4 if happened else 1):
        return f"{names}, {len(await place.map())} partitions"
    if happened:
        await place.db.table("default", "new").put("k", "v")
    return None


async def _three_parts(place: Place) -> Any:
    await place.table(split_keys=["g", "p"])
    return NAME


async def _t_is_gone(place: Place, args: Any, happened: bool) -> Any:
    names = [t.name for t in await place.db.tables("default")]
    if names != ([] if happened else ["t"]) or len(await place.map()) != (0 if happened else 3):
        return f"{names}, {len(await place.map())} partitions"
    return None


async def _fewer(place: Place) -> Any:
    await place.table()
    return {**NAME, "replicas": 2}


async def _two_copies(place: Place, args: Any, happened: bool) -> Any:
    row, (table,) = await place.only(), await place.db.tables("default")
    wanted = 2 if happened else 3
    return None if row.replicas == table.replicas == wanted else f"{row}, {table}"


async def _open(place: Place) -> Any:
    await place.table()
    return NAME


async def _shut(place: Place) -> Any:
    await place.table()
    await place.run("DisableTable", NAME)
    return NAME


async def _is_shut(place: Place, args: Any, happened: bool) -> Any:
    """Nobody gets in while it is, and all rows are there again when it is opened."""
    (table,) = await place.db.tables("default")
    if table.state != ("disabled" if happened else "public"):
        return f"{table}"
    for number in sorted(place.cluster.nodes):
        db = place.at(number)
        try:
            await db.table(*TABLE).get("a1")
            await db.table(*TABLE).put("new", "1")
            refused = False
        except Refused as error:
            refused = error.code == "TABLE_DISABLED"
        if refused != happened:
            return f"node {number} refuses: {refused}"
    return None


async def _is_open(place: Place, args: Any, happened: bool) -> Any:
    await asyncio.sleep(CATALOG_TTL_S)
    return await _is_shut(place, args, not happened)


async def _of_namespace(place: Place) -> Any:
    await place.table()
    return {"namespace": "default"}


async def _shut_namespace(place: Place) -> Any:
    await _shut(place)
    await place.run("DisableNamespace", {"namespace": "default"})
    return {"namespace": "default"}


async def _namespace_is_shut(place: Place, args: Any, happened: bool) -> Any:
    """Its tables are, and none is made in it."""
    namespace = await catalog.lookup_namespace(place.txn, "default")
    if namespace.state != ("disabled" if happened else "public"):
        return f"{namespace}"
    return await _is_shut(place, args, happened)


async def _namespace_is_open(place: Place, args: Any, happened: bool) -> Any:
    await asyncio.sleep(CATALOG_TTL_S)
    return await _namespace_is_shut(place, args, not happened)


async def _heirs(place: Place) -> Any:
    """One table that says nothing of replicas, and one that does."""
    await place.table(replicas=None)
    spec = {"namespace": "default", "name": "own", "replicas": 3}
    await place.run("CreateTable", spec)
    return {"namespace": "default", "replicas": 2, "shard": "apart"}


async def _is_inherited(place: Place, args: Any, happened: bool) -> Any:
    namespace = await catalog.lookup_namespace(place.txn, "default")
    rows = (await place.map()).values()
    shards = {namespace.shard, *(row.descriptor.shard for row in rows)}
    found = shards, namespace.replicas, *(row.replicas for row in rows)
    wanted = ({"apart"}, 2, 2, 3) if happened else ({""}, None, 0, 3)
    return None if found == wanted else f"{found}"


async def _sql(place: Place) -> Any:
    await place.table()
    columns = [{"name": "id", "type": "bigint"}]
    spec = {"namespace": "default", "name": "sql", "columns": columns, "primary_key": ["id"]}
    await place.run("CreateTable", {**spec, "replicas": 3})
    added = [{"name": "note", "type": "text"}]
    return {
        "namespace": "default",
        "name": "sql",
        "add_columns": added,
        "replicas": 2,
        "shard": "a",
    }


async def _is_modified(place: Place, args: Any, happened: bool) -> Any:
    table = await catalog.lookup(place.txn, "default", "sql")
    rows = (await place.map()).values()
    row = next(row for row in rows if row.descriptor.start[:4] == u32(table.id))
    placed = table.replicas, row.replicas, table.shard, row.descriptor.shard
    found = [c.name for c in table.columns], *placed
    wanted = (["id", "note"], 2, 2, "a", "a") if happened else (["id"], 3, 3, "", "")
    return None if found == wanted else f"{found}"


# ---------------------------------------------------------------------- replicas and nodes


async def _lacking(place: Place) -> Any:
    await place.table()
    row = await place.only()
    (free,) = {1, 2, 3, 4} - set(row.nodes)
    place.before["free"] = free
    return {"partition": row.descriptor.id, "start": row.descriptor.start, "node": free}


async def _has(place: Place, args: Any, happened: bool) -> Any:
    row = await place.only()
    there = args["node"] in row.descriptor.voters
    count = 3 + ("node" in args and place.before.get("free") == args["node"]) * happened
    if there != happened or len(row.nodes) != count:
        return f"{args}: {row.nodes}"
    return None


async def _having(place: Place) -> Any:
    await place.table(replicas=None)
    row = await place.only()
    return {"partition": row.descriptor.id, "start": row.descriptor.start, "node": 3}


async def _has_not(place: Place, args: Any, happened: bool) -> Any:
    nodes = (await place.only()).nodes
    return None if (args["node"] not in nodes) == happened else f"{args}: {nodes}"


async def _has_anew(place: Place, args: Any, happened: bool) -> Any:
    """A child that failed may have left it removed: the master's schedulers add it again."""
    nodes = (await place.only()).descriptor.voters
    return None if not happened or args["node"] in nodes else f"{args}: {nodes}"


async def _one_lacks(place: Place) -> Any:
    """AddReplicas and RemoveReplicas are about what the arguments name of all partitions."""
    args = await _having(place)
    await place.run("RemoveReplica", args)
    return {"node": 3, "partitions": [args["partition"]]}


async def _all_have(place: Place, args: Any, happened: bool) -> Any:
    nodes = (await place.only()).descriptor.voters
    return None if (args["node"] in nodes) == happened else f"{args}: {nodes}"


async def _one_has(place: Place) -> Any:
    args = await _having(place)
    return {"node": 3, "partitions": [args["partition"]]}


async def _leaving(place: Place) -> Any:
    """Not the master, nor one that dies: it could not come back to tell."""
    await place.table(split_keys=["m"])
    leaving = max(n for n, node in place.cluster.nodes.items() if node.master.executor is None)
    place.off_limits.add(leaving)
    return {"node": leaving}


async def _left(place: Place, args: Any, happened: bool) -> Any:
    state = {row.id: row.state for row in await all_nodes(place.txn)}[args["node"]]
    has = any(args["node"] in row.nodes for row in (await place.map()).values())
    if (state is NodeState.GONE) != happened or (happened and has):
        return f"{args}: it is {state}, has replicas: {has}"
    return None


async def _mover(place: Place) -> Any:
    await place.table()
    row = await place.only()
    (free,) = {1, 2, 3, 4} - set(row.nodes)
    place.before["nodes"] = set(row.nodes)
    return {"partition": row.descriptor.id, "from": row.nodes[-1], "to": free}


async def _moved(place: Place, args: Any, happened: bool) -> Any:
    wanted = place.before["nodes"]
    if happened:
        wanted = wanted - {args["from"]} | {args["to"]}
    nodes = (await place.only()).nodes
    return None if set(nodes) == wanted else f"{args}: {nodes}"


async def _leading(place: Place) -> Any:
    await place.table()
    (row,) = [row for row in await place.db.partitions() if row["id"] != 1]
    target = next(n for n in row["replicas"] if n != row["leader"])
    return {"partition": row["id"], "to": target}


async def _same_nodes(place: Place, args: Any, happened: bool) -> Any:
    """Who leads changes when a node dies; that somebody does, and that all have it, does not."""
    row = await place.only()
    return None if len(row.descriptor.voters) == 3 else f"{row}"


async def _beside(place: Place) -> Any:
    await place.table(replicas=2, split_keys=["m"])
    first, second = sorted(await place.map())
    rows = await place.map()
    want, have = rows[first].nodes, rows[second].nodes
    for source, target in zip(
        sorted(set(have) - set(want)), sorted(set(want) - set(have)), strict=True
    ):
        await place.run("kvorum.move_replica", {"partition": second, "from": source, "to": target})
    return {"partition": second, "beside": first}


async def _apart(place: Place, args: Any, happened: bool) -> Any:
    rows = await place.map()
    both = set(rows[args["partition"]].nodes) & set(rows[args["beside"]].nodes)
    counts = {len(row.nodes) for row in rows.values()}
    if counts != {2} or (happened and both):
        return f"both at {both}; {counts}"
    return None


async def _elsewhere(place: Place) -> Any:
    """Two neighbours of which no node has both, or only one."""
    await place.table(replicas=2, split_keys=["m"])
    first, second = sorted(await place.map())
    rows = await place.map()
    want, have = set(rows[first].nodes), set(rows[second].nodes)
    if want == have:
        target = next(node for node in (1, 2, 3, 4) if node not in have)
        move = {"partition": second, "from": min(have), "to": target}
        await place.run("kvorum.move_replica", move)
    return {"partition": second, "beside": first}


async def _together(place: Place, args: Any, happened: bool) -> Any:
    rows = await place.map()
    mine, other = (set(rows[args[name]].nodes) for name in ("partition", "beside"))
    if len(mine) != 2 or len(other) != 2 or (happened and mine != other):
        return f"at {mine} and {other}"
    return None


async def _dead(place: Place) -> Any:
    """A node that does not come back, and holds a replica."""
    await place.table(split_keys=["m"])
    master = next(n for n, node in place.cluster.nodes.items() if node.master.executor is not None)
    rows = await place.map()
    dead = next(
        n for n in (5, 4, 3, 2, 1) if n != master and any(n in r.nodes for r in rows.values())
    )
    await place.cluster.crash(dead)
    return {"node": dead}


async def _rebuilt(place: Place, args: Any, happened: bool) -> Any:
    rows = await place.map()
    if happened:
        bad = [r.nodes for r in rows.values() if args["node"] in r.nodes or len(r.nodes) != 3]
        return bad or None
    return None if all(len(r.nodes) == 3 for r in rows.values()) else f"{rows}"


# ---------------------------------------------------------------------- shapes


async def _whole(place: Place) -> Any:
    await place.table()
    return {"partition": (await place.only()).descriptor.id, "at": "h1"}


async def _is_split(place: Place, args: Any, happened: bool) -> Any:
    count = len(await place.map())
    return None if count == (2 if happened else 1) else f"{count} partitions"


async def _halves(place: Place) -> Any:
    await place.table(split_keys=["m"])
    left, right = sorted(await place.map())
    return {"left": left, "right": right}


async def _is_merged(place: Place, args: Any, happened: bool) -> Any:
    return await _is_split(place, args, not happened)


# ---------------------------------------------------------------------- the bus


async def _of_table(place: Place) -> Any:
    await place.table()
    return {"namespace": "default", "table": "t"}


async def _generic(place: Place) -> Any:
    await place.table()
    partitions = sorted(await place.map())
    return {"kind": "flush", "targets": {"partitions": partitions}}


def _at(place: Place, name: str) -> list[bool]:
    return [Path(f"node{n}/points/{name}").exists() for n in range(1, place.cluster.count + 1)]


def _staged_points() -> list[str]:
    return [str(one) for one in Path().glob("node*/points/.staging/*")]


async def _point(place: Place) -> Any:
    await place.table()
    return {"name": "p1"}


async def _generic_point(place: Place) -> Any:
    await place.table()
    body = {"name": "p1", "at_ms": 1}
    return {"kind": "checkpoint", "targets": {"nodes": "all"}, "body": body}


async def _is_taken(place: Place, args: Any, happened: bool) -> Any:
    there = _at(place, "p1")
    staged = _staged_points()
    if set(there) != {happened} or staged:
        return f"the point is at {there}, staged {staged}"
    return None


async def _taken_point(place: Place) -> Any:
    args = await _point(place)
    await place.run("kvorum.checkpoint", args)
    return args


async def _is_dropped(place: Place, args: Any, happened: bool) -> Any:
    there = _at(place, "p1")  # one that failed has dropped some: it is repeated
    return f"the point is at {there}" if happened and any(there) else None


async def _setting(place: Place) -> Any:
    await place.table()
    return {"name": "balance.moves", "value": 7}


async def _is_set(place: Place, args: Any, happened: bool) -> Any:
    _, value = await read_setting(place.txn, args["name"])
    here = [node.bus.settings.value(args["name"]) for node in place.cluster.nodes.values()]
    wanted = args["value"] if happened else 4
    return None if {value, *here} == {wanted} else f"{value}, at nodes {here}"


async def _a_setting(place: Place) -> Any:
    await place.table()
    return {"name": "balance.moves"}


async def _a_node(place: Place) -> Any:
    await place.table()
    return {"node": 2}


# ---------------------------------------------------------------------- locks of users, the sink


async def _lock(place: Place) -> Any:
    await place.table()
    return {"resource": "mine", "exclusive": True, "ttl_ms": 5_000, "owner": "me"}


class _Service:
    """A sink service at whichever node is asked; it says again what got no answer."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kw: Any) -> Any:
            def ask() -> Any:
                nodes = self._place.cluster.nodes
                masters = [n for n, node in nodes.items() if node.master.executor is not None]
                return getattr(nodes[(masters or sorted(nodes))[0]]._sink, name)(*args, **kw)

            return await self._place.patiently(ask)

        return call


def _batch(rows: int) -> Task:
    return Task(0, "t0", {f"s{i:03d}".encode(): b"spark" for i in range(rows)}, chunk_rows=20)


async def _staged(place: Place) -> Any:
    table = await place.table()
    place.before["sink"] = client = Client(_Service(place), "attempt", table)  # type: ignore[arg-type]
    task = _batch(60)
    await client.stage(task)
    return client.request([task], 0)


async def _commit(place: Place, name: str, args: Any, nonce: str) -> int:
    """By the sink's own submission, whose nonce is the attempt: the id of the procedure `name`."""
    sink = _Service(place)
    while (await sink.commit(args, wait_ms=1_000))[0]:
        pass
    return 0


async def _job(place: Place, name: str, args: Any, nonce: str) -> int:
    """A Spark program with one write; a version that is done takes none."""
    named = {"app": "nightly", "version": 1, "name": "nightly"}
    id_ = await place.submit(name, named, nonce)
    part = {key: args[key] for key in ("attempt", "table", "manifest")}
    write = {"do": "add", "ordinal": 0, "table": "shop.t", "part": part}
    for key, told in (("add", write), ("commit", {"do": "commit"})):
        try:
            await place.patiently(
                lambda key=key, told=told: place.db.signal(id_, "job", told, key=key)
            )
        except KvorumError as error:
            if error.code != "ENDED":
                raise
    info = await place.end_of(id_)
    if info.state != "SUCCESS":
        raise AssertionError(f"the job ended {info.state}: {info.error}")
    return 0


async def _is_written(place: Place, args: Any, happened: bool) -> Any:
    rows = await place.rows()
    found = sum(key.startswith("s") for key in rows)
    if found != (60 if happened else 0):
        return f"{found} rows"
    if happened:
        key = attempt_key("attempt")
        staged = (await place.txn.scan(key, key + b"\xff", limit=5)).items
        if staged:
            return f"staged: {staged}"
        locks = [lock for node in place.cluster.nodes.values() for lock in _intents(node)]
        return f"intents: {locks[:3]}" if locks else None
    return None


async def _job_is_true(place: Place, args: Any, happened: bool) -> Any:
    """A job that failed behind its commit (in its last step) is undone in name only: its ledger
    says that the rows are there.
    """
    if not happened:
        found = await place.txn.get(marker_key("nightly", 0))
        happened = found[0] is not None
    return await _is_written(place, args, happened)


async def _is_cleaned(place: Place, args: Any, happened: bool) -> Any:
    """The batch was committed before; what a failed one leaves goes when its lease ends."""
    if happened:
        return await _is_written(place, args, True)
    found = sum(key.startswith("s") for key in await place.rows())
    return None if found == 60 else f"{found} rows"


def _intents(node: Any) -> list[Any]:
    return [
        lock
        for replica in node.store.manager.replicas()
        if replica.leads()
        for lock in replica.state.locks
    ]


def _large_batches() -> dict[str, int]:
    """So that a few rows take the long way: write, flip, and a procedure that cleans up."""
    return {"SINK_SMALL_ROWS": 10, "SINK_STEP_ROWS": 30, "SINK_STEP_CHUNKS": 2}


LIMITS = _large_batches()
assert all(hasattr(limits, name) for name in LIMITS)

SCENARIOS: dict[str, Scenario] = {
    "CreateNamespace": Scenario(_shop, _shop_is_there, "ALREADY_EXISTS"),
    "DropNamespace": Scenario(_made_shop, _shop_is_gone, "NAMESPACE_NOT_FOUND"),
    "CreateTable": Scenario(_new_table, _new_is_there, "ALREADY_EXISTS"),
    "DropTable": Scenario(_three_parts, _t_is_gone, "TABLE_NOT_FOUND", reads=False),
    "DisableTable": Scenario(_open, _is_shut, reads=False),
    "EnableTable": Scenario(_shut, _is_open, reads=False),
    "DisableNamespace": Scenario(_of_namespace, _namespace_is_shut, reads=False),
    "EnableNamespace": Scenario(_shut_namespace, _namespace_is_open, reads=False),
    "ModifyNamespace": Scenario(_heirs, _is_inherited),
    "ModifyTable": Scenario(_sql, _is_modified, "ALREADY_EXISTS"),
    **{name: Scenario(*parts) for name, parts in SQL_SCENARIOS.items()},
    **{name: Scenario(*parts) for name, parts in TRANSFER_SCENARIOS.items()},
    "kvorum.site": Scenario(to_link, left_nothing, start=linked),
    "kvorum.place_table": Scenario(_fewer, _two_copies),
    "AddReplica": Scenario(_lacking, _has, nodes=4, may_fail=True),
    "RemoveReplica": Scenario(_having, _has_not, may_fail=True),
    "AddReplicas": Scenario(_one_lacks, _all_have, may_fail=True),
    "RemoveReplicas": Scenario(_one_has, _has_not, may_fail=True),
    "Decommission": Scenario(_leaving, _left, nodes=4),
    "kvorum.move_replica": Scenario(_mover, _moved, "MOVE_REFUSED", nodes=4, may_fail=True),
    "kvorum.transfer_leader": Scenario(_leading, _same_nodes, may_fail=True),
    "kvorum.move_apart": Scenario(_beside, _apart, nodes=4, may_fail=True, best_effort=True),
    "kvorum.move_beside": Scenario(_elsewhere, _together, nodes=4, may_fail=True),
    "kvorum.server_crash": Scenario(_dead, _rebuilt, nodes=5, may_fail=True, best_effort=True),
    "kvorum.rebuild_replica": Scenario(_having, _has_anew, may_fail=True),
    "kvorum.split_partition": Scenario(_whole, _is_split, "CANNOT_SPLIT"),
    "kvorum.merge_partitions": Scenario(_halves, _is_merged, "PARTITION_NOT_FOUND", may_fail=True),
    "kvorum.flush_table": Scenario(_of_table, _nothing, may_fail=True),
    "kvorum.compact_table": Scenario(_of_table, _nothing, may_fail=True),
    "kvorum.bus_one_phase": Scenario(_generic, _nothing, may_fail=True),
    "kvorum.bus_two_phase": Scenario(_generic_point, _is_taken, "POINT_EXISTS", may_fail=True),
    "kvorum.checkpoint": Scenario(_point, _is_taken, "POINT_EXISTS", may_fail=True),
    "kvorum.drop_checkpoint": Scenario(_taken_point, _is_dropped, may_fail=True),
    "kvorum.list_checkpoints": Scenario(_taken_point, _nothing, may_fail=True),
    "kvorum.set_setting": Scenario(_setting, _is_set),
    "kvorum.check_setting": Scenario(_a_setting, _nothing),
    "kvorum.list_settings": Scenario(_empty, _nothing),
    "kvorum.recover_node": Scenario(_a_node, _nothing, may_fail=True),
    "kvorum.explain_balance": Scenario(_empty, _nothing),
    "kvorum.bulk": Scenario(_bulk, _nothing),
    "kvorum.explain_partitions": Scenario(_empty, _nothing),
    "kvorum.explain_loss": Scenario(_loss, _nothing),
    "kvorum.explain_table": Scenario(_t, _nothing),
    "kvorum.lock": Scenario(_lock, _nothing),
    "kvorum.sink_commit": Scenario(_staged, _is_written, start=_commit),
    "kvorum.sink_clean": Scenario(_staged, _is_cleaned, start=_commit),
    "kvorum.spark_job": Scenario(_staged, _job_is_true, start=_job),
    FLOW: Scenario(a_table, counted),
}


async def unchanged(place: Place) -> Any:
    """The rows that were there before are there."""
    rows = await place.rows()
    lost = {key: value for key, value in ROWS.items() if rows.get(key) != value}
    return f"lost from {TABLE}: {lost}" if lost else None


async def eventually(place: Place, scenario: Scenario, args: Any, happened: bool) -> None:
    """All the checks of one end."""
    await place.until(lambda: scenario.check(place, args, happened))
    if scenario.reads:
        await place.until(lambda: unchanged(place))
    await asyncio.sleep(0)

"""Sites far apart, in virtual time: what tables with a goal survive, where they are led, and how
long reads and writes take (docs/decisions/1495). `python -m tests.kvorum.cluster.test_regions`
prints the table that docs/guides/regions.md speaks of.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any, Final, cast

import pytest

import kvorum
from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import NodeId, PartitionId
from kv.base.placement import SURVIVE
from kvorum.cluster.placement import SpreadPartitions
from kvorum.sdk.database import AsyncDatabase
from procedures.verbs import CAMPAIGN
from tests.kvorum.cluster.test_balancing import KEYS, SPLITS, Sites, read, simulated, write

ROUND_TRIP_MS: Final = {("a", "b"): 20, ("a", "c"): 60, ("b", "c"): 120}
FIVE: Final = {1: "a/1", 2: "a/2", 3: "a/3", 4: "b/1", 5: "c/1"}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "a copy at every node": {},
    "survive rack, leaders dc=a": {"survive": "rack", "leaders": "dc=a"},
    "survive datacenter, leaders dc=a": {"survive": "datacenter", "leaders": "dc=a"},
    "survive datacenter, leaders dc=c": {"survive": "datacenter", "leaders": "dc=c"},
}


def at(places: dict[int, str], **more: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Settings of nodes at DC/RACK; `more`: by n1, n2, …"""
    pairs = ((number, place.split("/")) for number, place in places.items())
    return {
        number: {"labels": (f"dc={dc}", f"rack={rack}"), **more.get(f"n{number}", {})}
        for number, (dc, rack) in pairs
    }


def stretch(made: Sites, places: dict[int, str]) -> None:
    """As far apart as the sites are."""
    for one, other in itertools.permutations(places, 2):
        pair = tuple(sorted((places[one][0], places[other][0])))
        made.network.ways_s[one, other] = ROUND_TRIP_MS.get((pair[0], pair[1]), 0) / 2000


async def leaders(made: Sites) -> dict[int, int | None]:
    rows = await made.any().partitions()
    return {row["id"]: row["leader"] for row in rows if row["id"] != 1}


async def explained(made: Sites, what: str, args: dict[str, Any]) -> Any:
    db = made.any()
    return await db.wait(await db.submit(f"kvorum.explain_{what}", args))


def test_i12_a_new_partition_is_led_at_home_from_the_start() -> None:
    """Leaderships go home one in two seconds: a table of a hundred partitions would be far away for
    minutes.
    """
    told: list[tuple[int, int, object]] = []

    class Calls:
        async def call_at(self, node: int, method: int, arg: object, budget_ms: int) -> object:
            told.append((node, method, arg))
            return None

    async def homes() -> dict[PartitionId, NodeId]:
        return {PartitionId(7): NodeId(3), PartitionId(8): NodeId(9)}

    nodes = tuple(map(NodeId, (1, 2, 3)))
    made = [PartitionDescriptor(PartitionId(n), b"a", b"b", 1, nodes) for n in (6, 7, 8)]
    none: Any = None
    maker: Any = SpreadPartitions(cast(Any, Calls()), none, none, none, none, homes)
    asyncio.run(maker.create(made))
    asked = {node: ids for node, method, ids in told if method == CAMPAIGN}
    assert asked == {1: [6], 3: [7, 8]}, "node 9 has no replica of 8: as its id says"


@pytest.mark.slow
def test_f16_a_table_survives_the_datacenter_that_it_is_led_in() -> None:
    """What was promised by `survive datacenter`, and told by `explain`, before and after."""

    async def scenario(made: Sites) -> None:
        db = made.any()
        await db.create_table(
            "default", "t", split_keys=SPLITS, survive="datacenter", leaders="dc=b"
        )
        found = await made.where()
        assert all({FIVE[n][0] for n in nodes} == {"a", "b", "c"} for nodes in found.values())
        await write(db, KEYS, "v")

        async def led_in_b() -> bool:
            return set((await leaders(made)).values()) == {4}

        await made.until(led_in_b)
        loss = await explained(made, "loss", {"lost": ["dc=b"]})
        assert (loss["nodes"], loss["meta"]) == ([4], "serves")
        (row,) = loss["tables"]
        assert (row["survive"], row["serves"], row["hit"]) == ("datacenter", len(found), [])
        loss = await explained(made, "loss", {"lost": ["dc=b", "dc=c"]})
        assert loss["total"] == {"lost": 0, "stops": len(found), "serves": 0}
        table = await explained(made, "table", {"namespace": "default", "name": "t"})
        assert (table["copies"], table["preferred"], table["holds"]) == (3, [4], True)
        assert table["stopped_by"] == {"server": [], "rack": [], "datacenter": []}
        await made.crash(4)

        async def led_elsewhere() -> bool:
            return (
                4 not in (await leaders(made)).values()
                and None not in (await leaders(made)).values()
            )

        await made.until(led_elsewhere)
        await write(made.any(), KEYS, "w")
        assert set((await read(made.any())).values()) == {b"w"}
        await made.start(4)
        await made.until(led_in_b, 300)

    simulated(scenario, 5, at(FIVE))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 8, 10])
def test_f16_whatever_place_is_lost_tables_that_survive_it_go_on(seed: int) -> None:
    """A promise that holds in the map only, or in the shapes that somebody thought of."""
    rng = random.Random(seed)
    places = {n: f"{rng.choice('abc')}/{rng.choice('12')}" for n in range(1, 7)}
    lost = {f"dc={place[0]}": SURVIVE[2:] for place in places.values()}
    lost |= {f"dc={p[0]},rack={p[2]}": SURVIVE[1:] for p in places.values()}
    lost |= {f"node={n}": SURVIVE for n in places}

    async def scenario(made: Sites) -> None:
        goals: dict[str, str] = {}
        for survive, replicas in itertools.product(SURVIVE, (3, 5)):
            name, leaders = f"{survive}{replicas}", rng.choice(["", "dc=a", "dc=b,rack=1"])
            options: Any = {"survive": survive, "replicas": replicas, "leaders": leaders}
            with suppress(kvorum.Refused):
                await made.any().create_table("default", name, **options)
                goals[name] = survive
        assert len(goals) >= 4

        async def served(names: list[str], value: str) -> bool:
            tables = [made.any().table("default", name) for name in names]
            try:
                await asyncio.gather(*(table.put("k", value) for table in tables))
            except kvorum.KvorumError:
                return False
            return {(await table.get("k")).value for table in tables} == {value.encode()}

        async def whole() -> bool:
            told = [
                await explained(made, "table", {"namespace": "default", "name": name})
                for name in goals
            ]
            return all(one["holds"] and not one["short"] for one in told)

        tried = 0
        for text in rng.sample(sorted(lost), len(lost)):
            loss = await explained(made, "loss", {"lost": [text]})
            going_on = [name for name, goal in goals.items() if goal in lost[text]]
            if loss["meta"] != "serves" or not going_on or tried == 3:
                continue
            tried += 1
            hit = {row["name"] for row in loss["tables"] if row["hit"]}
            assert hit.isdisjoint(going_on), text
            for node in loss["nodes"]:
                await made.crash(node)
            await made.until(partial(served, going_on, text), 60)
            await asyncio.sleep(rng.choice([0, 60]))  # within a minute they are rebuilt elsewhere
            for node in loss["nodes"]:
                await made.start(node)
            await made.until(whole, 300)
        assert tried

    simulated(scenario, len(places), at(places), seed)


@pytest.mark.slow
def test_f17_two_datacenters_with_copies_and_a_witness_survive_the_loss_of_any() -> None:
    """Three copies in two places, of which one place has the majority, survive only the other."""
    places = {1: "a/1", 2: "b/1", 3: "c/1", 4: "a/2"}
    witness = {"witness": True}

    async def where(made: Sites) -> list[tuple[str, list[int]]]:
        """By partition: the datacenters of its copies, and its witnesses."""
        table = await explained(made, "table", {"namespace": "default", "name": "t"})
        return [
            ("".join(sorted(places[node][0] for node in row["copies"])), row["witnesses"])
            for row in table["partitions"]
        ]

    async def becomes(made: Sites, survive: str, expected: tuple[str, list[int]]) -> None:
        await made.any().modify_table("default", "t", survive=survive)

        async def so() -> bool:
            return await where(made) == [expected]

        await made.until(so)

    async def scenario(made: Sites) -> None:
        db = made.any()
        await db.create_table("default", "t", survive="datacenter")
        assert await where(made) == [("ab", [3])]
        await db.drop_table("default", "t")
        await db.create_table("default", "t", replicas=1)
        await write(db, KEYS, "v")
        await becomes(made, "datacenter", ("ab", [3]))
        for site in ("dc=a", "dc=b", "dc=c"):
            loss = await explained(made, "loss", {"lost": [site]})
            assert loss["total"] == {"lost": 0, "stops": 0, "serves": 1}
        both = await explained(made, "loss", {"lost": ["dc=a", "dc=b"]})
        assert both["total"] == {"lost": 1, "stops": 0, "serves": 0}, "the witness has no rows"
        await made.crash(2)
        await write(made.any(), KEYS, "w")
        await made.start(2)
        assert set((await read(made.any())).values()) == {b"w"}
        await becomes(made, "server", ("aab", []))  # a copy takes the witness's place
        await becomes(made, "datacenter", ("ab", [3]))
        assert set((await read(made.any())).values()) == {b"w"}

    settings = at(places, n3=witness)
    for one in settings.values():
        one["witnesses"] = (3,)
    simulated(scenario, 4, settings)


def test_i12_a_goal_that_the_members_cannot_give_is_refused_and_nothing_is_changed() -> None:
    """A promise that nobody can keep, or half of a change."""
    places = {1: "a/1", 2: "a/2", 3: "b/1"}

    async def scenario(made: Sites) -> None:
        db = made.any()
        await db.create_table("default", "t", replicas=2)
        for change in (
            lambda: db.create_table("default", "u", survive="datacenter"),
            lambda: db.modify_table("default", "t", survive="datacenter"),
            lambda: db.modify_namespace("default", survive="datacenter"),
        ):
            with pytest.raises(kvorum.Refused, match="in 2 of them") as refused:
                await change()
            assert refused.value.code == "CANNOT_SURVIVE"
        assert {t.name: (t.survive, t.replicas) for t in await db.tables("default")} == {
            "t": ("", 2)
        }
        assert (await db.namespace("default")).survive == ""
        await db.modify_namespace("default", survive="rack", leaders="dc=a")

        async def three() -> bool:
            return set((await made.where()).values()) == {(1, 2, 3)}

        await made.until(three)

    simulated(scenario, 3, at(places))


async def measured(made: Sites, places: dict[int, str]) -> dict[str, dict[str, tuple[int, ...]]]:
    """By kind of table and site of the client: ms of a write, of a read, and of a read of a minute
    ago (medians).
    """
    db = made.any()
    versions: list[int] = []
    for number, options in enumerate(KINDS.values()):
        await db.create_table("default", f"t{number}", **options)
        versions.append(await db.table("default", f"t{number}").put("k", "v"))
    await asyncio.sleep(60)  # leaderships go home
    clients = {places[n][0]: n for n in sorted(places, reverse=True)}
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for number, kind in enumerate(KINDS):
        found[kind] = {}
        for dc, node in sorted(clients.items()):
            table = AsyncDatabase(made.nodes[node].backend, made._rng).table(
                "default", f"t{number}"
            )
            calls: list[Callable[[], Awaitable[object]]] = [
                partial(table.put, "k", "w"),
                partial(table.get, "k"),
                partial(table.get, "k", at=versions[number]),
            ]
            found[kind][dc] = tuple(
                [round(median([await _ms(made, call) for _ in range(9)])) for call in calls]
            )
    return found


async def _ms(made: Sites, call: Callable[[], Awaitable[object]]) -> float:
    began = made.loop.time()
    await call()
    return 1000 * (made.loop.time() - began)


def _table(clock: str) -> dict[str, dict[str, tuple[int, ...]]]:
    found: dict[str, dict[str, tuple[int, ...]]] = {}

    async def scenario(made: Sites) -> None:
        stretch(made, FIVE)
        found.update(await measured(made, FIVE))

    settings = at(FIVE)
    for one in settings.values():
        one["clock"] = clock
    simulated(scenario, 5, settings)
    return found


@pytest.mark.slow
def test_f16_a_table_that_is_led_at_home_is_fast_there() -> None:
    """What goals and preferences are for: no ocean between a client and its rows."""
    found = _table("oracle")
    at_home = found["survive rack, leaders dc=a"]["a"]
    assert max(at_home) < 15, found
    put, get, _ = found["survive datacenter, leaders dc=a"]["a"]
    assert get < 15, found
    assert 20 <= put < 60, "a majority is one hop to b away"
    far = found["survive datacenter, leaders dc=c"]
    assert far["a"][0] >= 60, found
    assert far["a"][2] < 15, "the nearest copy answers reads of the past"


if __name__ == "__main__":
    for clock in ("oracle", "hybrid"):
        print(f"| clock {clock}: table | " + " | ".join(f"client in {dc}" for dc in "abc") + " |")  # noqa: T201
        print("|---" * 4 + "|")  # noqa: T201
        for kind, sites in _table(clock).items():
            cells = " | ".join(" / ".join(map(str, ms)) for ms in sites.values())
            print(f"| {kind} | {cells} |")  # noqa: T201

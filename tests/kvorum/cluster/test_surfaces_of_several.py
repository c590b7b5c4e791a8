"""What users see of a cluster: nodes, partitions, leaders, transactions that live at one node."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from kvorum.connecting import aconnect
from tests.kvorum.cluster.three import Trio, client, trio


async def rows_until(made: Trio, node: int, ready: Any) -> tuple[list[Any], list[Any]]:
    """Nodes and partitions as one node tells them, once they are as wanted."""
    async with client(made, node) as db, asyncio.timeout(20):
        while True:
            nodes, partitions = await db.nodes(), await db.partitions()
            if ready(nodes, partitions):
                return nodes, partitions
            await asyncio.sleep(0.05)


def test_a8_any_node_tells_how_all_of_them_stand() -> None:
    """An operator would see the leaders of the node that was asked, or of an hour ago."""

    async def main() -> None:
        async with trio() as made:
            async with client(made) as db:
                await db.create_table("default", "t", split_keys=["h", "p"])
                await db.table("default", "t").put("k", "v")

            def settled(nodes: list[Any], partitions: list[Any]) -> bool:
                led = [p["leader"] for p in partitions]
                still = sum(n["leaders"] for n in nodes) == len(led)  # none moved in between
                return (
                    still
                    and None not in led
                    and not any(any(p["lag"].values()) for p in partitions)
                )

            for number in made.nodes:
                nodes, partitions = await rows_until(made, number, settled)
                assert [(n["id"], n["state"]) for n in nodes] == [
                    (1, "live"),
                    (2, "live"),
                    (3, "live"),
                ]
                assert len(partitions) == 4
                assert all(n["replicas"] == 4 for n in nodes)
                for row in partitions:
                    assert sorted(row["replicas"]) == [1, 2, 3]
                    assert row["learners"] == row["witnesses"] == []
                    assert row["term"] >= 1
                    others = {"1", "2", "3"} - {str(row["leader"])}
                    assert set(row["lag"]) == others
                (put,) = [p for p in partitions if p["size"] and p["id"] != 1]
                assert put["entries"] > 0
            victim = await made.led()
            await made.stop(victim)

            def another(nodes: list[Any], partitions: list[Any]) -> bool:
                return all(p["leader"] not in (None, victim) for p in partitions)

            survivor = next(iter(made.nodes))
            nodes, partitions = await rows_until(made, survivor, another)
            assert {n["id"]: n["state"] for n in nodes}[victim] == "down"
            assert {n["id"]: n["leaders"] for n in nodes}[victim] == 0
            assert all(str(victim) in p["lag"] for p in partitions)

    asyncio.run(main())


def test_a1_a_client_of_several_addresses_needs_one_that_lives() -> None:
    """A client would end with the first node of its URL."""

    async def main() -> None:
        async with trio() as made:
            async with client(made) as db:
                await db.create_table("default", "t")
            await made.led()
            await made.stop(1)
            await made.led()
            async with await aconnect(made.url) as db:
                table = db.table("default", "t")
                await table.put("k", "1")
                await made.start(1)
                await made.stop(2)
                await table.put("k", "2")
                found = await table.get("k")
                assert found is not None
                assert found.value == b"2"

    asyncio.run(main())


@pytest.mark.slow
def test_a8_http_at_any_node_and_transactions_at_their_own() -> None:
    """A request of a transaction at another node would be answered "aborted"; its client would run
    the work again beside the first.
    """

    async def main() -> None:
        async with trio(http=True) as made:
            async with client(made) as db:
                await db.create_table("default", "t", split_keys=["m"])
            bases = [address.rpartition(":") for address in made.addresses]
            urls = [f"http://{host}:{int(port) + 2}" for host, _, port in bases]
            async with httpx.AsyncClient(timeout=20) as web:
                for url in urls:
                    put = await web.put(f"{url}/v1/kv/default/t/k", content=url.encode())
                    assert put.status_code == 200, put.text
                    for other in urls:
                        got = await web.get(f"{other}/v1/kv/default/t/k")
                        assert got.content == url.encode()
                txn = (await web.post(f"{urls[0]}/v1/txn", json={})).json()["txn"]
                row = {"ns": "default", "table": "t", "key": "z", "value": "1"}
                assert (await web.post(f"{urls[0]}/v1/txn/{txn}/put", json=row)).status_code == 200
                for verb, body in (("put", row), ("commit", {}), ("heartbeat", {})):
                    wrong = await web.post(f"{urls[1]}/v1/txn/{txn}/{verb}", json=body)
                    assert wrong.status_code == 503
                    error = wrong.json()["error"]
                    assert (error["code"], error["retry"]) == ("REROUTE", "reroute")
                    assert error["details"]["address"] == urls[0].removeprefix("http://")
                assert (await web.get(f"{urls[1]}/v1/txn/{txn}")).json() == {"status": "pending"}
                done = await web.post(f"{urls[0]}/v1/txn/{txn}/commit", json={})
                assert done.status_code == 200, done.text
                for url in urls:
                    told = (await web.get(f"{url}/v1/txn/{txn}")).json()
                    assert told["status"] == "committed"
                    again = await web.post(f"{url}/v1/txn/{txn}/commit", json={})
                    assert again.json() == done.json()
                over = (await web.post(f"{urls[0]}/v1/txn", json={})).json()["txn"]
                assert (await web.post(f"{urls[0]}/v1/txn/{over}/put", json=row)).status_code == 200
                ended = await web.post(f"{urls[1]}/v1/txn/{over}/abort", json={})
                assert ended.status_code == 200, "whoever is in the way can be ended at any node"
                late = await web.post(f"{urls[0]}/v1/txn/{over}/commit", json={})
                assert (late.status_code, late.json()["error"]["code"]) == (409, "TXN_ABORTED")
                page = (await web.get(f"{urls[2]}/metrics")).text
                assert "kvorum_partition_lag" in page
                assert "kvorum_client_refreshes_total" in page

    asyncio.run(main())

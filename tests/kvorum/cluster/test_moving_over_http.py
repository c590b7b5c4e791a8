"""Moving replicas and leaderships over HTTP, and the refusals that people read."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.kvorum.cluster.three import client, trio

pytestmark = pytest.mark.slow


def test_f5_moves_and_transfers_over_http() -> None:
    """202 with a procedure, whose end says what came of it; wrong bodies are refused at once."""

    async def main() -> None:
        async with trio(http=True, tags=("ssd",), labels=("dc=fra",)) as made:
            async with client(made) as db:
                await db.create_table("default", "t", replicas=2, tags=["ssd"])
                (row,) = [row for row in await db.partitions() if row["id"] != 1]
            host, _, port = made.addresses[0].rpartition(":")
            url = f"http://{host}:{int(port) + 2}"
            at, (free,) = row["replicas"], {1, 2, 3} - set(row["replicas"])
            async with httpx.AsyncClient(timeout=40) as web:

                async def ended(path: str, body: Any) -> Any:
                    told = await web.post(f"{url}/v1/partitions/{row['id']}/{path}", json=body)
                    assert told.status_code == 202, told.text
                    id_ = told.json()["id"]
                    return (await web.get(f"{url}/v1/procedures/{id_}?wait_ms=20000")).json()

                moved = await ended("move", {"from": at[0], "to": free})
                assert moved["result"] == {"partition": row["id"], "from": at[0], "to": free}
                led = await ended("transfer", {"to": free})
                assert led["state"] == "SUCCESS"
                wrong = await ended("move", {"from": at[0], "to": free})
                assert wrong["error"]["code"] == "MOVE_REFUSED"
                assert f"node {at[0]} has no replica" in wrong["error"]["message"]
                bad = await web.post(f"{url}/v1/partitions/{row['id']}/move", json={"from": "x"})
                assert bad.status_code == 400
                nodes = (await web.get(f"{url}/v1/nodes")).json()["items"]
                assert nodes[0]["tags"] == ["ssd"]
                assert nodes[0]["labels"]["dc"] == "fra"
                why = await web.post(f"{url}/v1/procedures/kvorum.explain_balance", json={})
                told = await web.get(f"{url}/v1/procedures/{why.json()['id']}?wait_ms=20000")
                assert {one["id"] for one in told.json()["result"]["nodes"]} == {1, 2, 3}

    asyncio.run(main())

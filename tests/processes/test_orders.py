"""Orders between nodes, given by somebody who is none: to real processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import kvorum
from kv.base.adapters import LoopTimers, SystemRng
from kv.base.credentials import Credential
from kv.base.errors import Forbidden
from kv.client.client import connect
from kv.client.connection import open_connection
from procedures.verbs import CHANGE_REPLICAS, DROP_PARTITION
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess


@pytest.mark.slow
def test_a_client_cannot_drop_a_partition(tmp_path: Path) -> None:
    """One message took a cluster's committed data away, another one a voter of the meta partition,
    whoever sent it.
    """
    config = tmp_path / "node.toml"
    config.write_text('cluster_secret = "a secret of the whole cluster"\n')
    with NodeProcess(tmp_path / "data", free_port_base(), "--config", str(config)) as node:
        node.start()
        with kvorum.connect(node.url) as db:
            db.create_table("default", "t")
            db.table("default", "t").put("k", b"v")
            partitions = [row["id"] for row in db.partitions()]

            async def orders() -> None:
                address = ("127.0.0.1", node.base)
                timers = LoopTimers(asyncio.get_running_loop())
                client = await connect([address], timers=timers, rng=SystemRng())
                with pytest.raises(Forbidden):
                    await client.call_at(address, DROP_PARTITION, partitions)
                with pytest.raises(Forbidden):
                    await client.call_at(address, CHANGE_REPLICAS, 1, "remove", 1)
                client.close()
                for secret in (b"", b"another secret"):
                    link = await open_connection(
                        *address, timers=timers, node=1, credential=Credential(secret=secret)
                    )
                    with pytest.raises(Forbidden):
                        await link.send(
                            DROP_PARTITION, 5_000, timers.monotonic() + 5, (partitions,)
                        )
                    link.close()

            asyncio.run(orders())
            found = db.table("default", "t").get("k")
            assert found is not None
            assert found.value == b"v"
        assert "DROP_PARTITION was refused to 127.0.0.1" in node.tail()

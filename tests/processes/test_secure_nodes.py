"""Certificates of three nodes that run: who may join them, and how they are replaced, authority and
all, while clients work.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psycopg
import pytest

import kvorum
from kv.base.errors import KvorumError
from kv.base.tls import CA, client_files, client_tls
from kvorum.security import certificates
from procedures.master.members.membership import DECOMMISSION
from tests.kit.processes import NodeProcess
from tests.kit.secured import NOW, PASSWORD, Secured, secured
from tests.kit.waiting import poll

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(600)]

REFUSED_S = 60.0
JOINERS = {
    "a foreign certificate": "believe|not believed|TLS",
    "an ended certificate": "believe|not believed|TLS|expired",
    "no TLS": "TLS",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as made:
        yield made


def joiner(made: Secured, name: str, files: Path | None) -> NodeProcess:
    at = made.home / name.replace(" ", "-")
    return NodeProcess(at, made.bases[-1], "--join", made.join, tls_dir=files)


@pytest.mark.parametrize("whose", JOINERS)
def test_who_may_not_join(cluster: Secured, whose: str) -> None:
    """Who is no node of this cluster becomes one; or an operator is not told why it does not."""
    files = None
    if whose == "a foreign certificate":
        files = cluster.node_files("joins-foreign", certificates.authority(NOW))
    elif whose == "an ended certificate":
        files = cluster.node_files("joins-ended", days=-1)
    with joiner(cluster, whose, files) as node:
        node.spawn()
        log = poll(lambda: _told(node, JOINERS[whose]), REFUSED_S)
        assert not node.ready(), log
    with kvorum.connect(cluster.url, tls_dir=cluster.home / "boss") as db:
        assert len(db.nodes()) == 3


def _told(node: NodeProcess, pattern: str) -> str:
    """What it wrote, once it says so."""
    text = node.tail()
    assert "Traceback" not in text, text
    return text if re.search(pattern, text) else ""


def test_a_fourth_node_joins(cluster: Secured) -> None:
    """A node with a certificate of this cluster does not get in, or gets no data."""
    with joiner(cluster, "fourth", cluster.node_files("joins")) as node:
        node.start()
        with kvorum.connect(cluster.url, tls_dir=cluster.home / "boss") as db:
            poll(lambda: all(4 in row["replicas"] for row in db.partitions()))
            poll(lambda: [row["state"] for row in db.nodes()] == ["live"] * 4)
            db.wait(db.submit(DECOMMISSION, {"node": 4}), timeout_ms=120_000)


def test_drivers_of_python(cluster: Secured) -> None:
    """psycopg and asyncpg: by a password that is bound to the certificate, or by a certificate."""
    at, port = cluster.home / "ann", cluster.bases[0] + 3
    where = f"host=localhost port={port} user=ann dbname=postgres connect_timeout=60"
    full = f"{where} sslmode=verify-full sslrootcert={at / CA}"
    with psycopg.connect(f"{full} password='{PASSWORD}' channel_binding=require") as session:
        assert session.execute("SELECT current_user").fetchone() == ("ann",)

    async def by_certificate() -> object:
        address = {"host": "localhost", "port": port, "user": "ann", "database": "postgres"}
        session = await asyncpg.connect(**address, ssl=client_tls(at).peer, timeout=60)
        try:
            return await session.fetchval("SELECT current_user")
        finally:
            await session.close()

    assert asyncio.run(by_certificate()) == "ann"


def test_another_authority(cluster: Secured) -> None:
    """A certificate that was replaced is shown until a restart; clients that work are cut off; or
    an authority that was taken out is believed on.
    """
    new, old = certificates.authority(NOW), cluster.ca
    everybody = [cluster.home / name for name in ("node1", "node2", "node3", "boss", "ann")]

    def believe(*authorities: certificates.Made) -> None:
        for at in everybody:
            (at / "ca.new").write_bytes(b"".join(one.certificate for one in authorities))
            (at / "ca.new").replace(at / CA)

    def answers() -> bool:
        with kvorum.connect(cluster.url, tls_dir=cluster.home / "boss") as one:
            return bool(one.nodes())

    with kvorum.connect(cluster.url, tls_dir=cluster.home / "boss") as db:
        db.create_table("default", "rotated")
        table = db.table("default", "rotated")
        for stage in range(4):
            if stage == 0:
                believe(old, new)
            elif stage == 1:
                for number in (1, 2, 3):
                    cluster.node_files(f"node{number}", new)
                    believe(old, new)
            elif stage == 2:
                made = certificates.client(new, "boss", NOW)
                names = client_files("boss")
                certificates.save(cluster.home / "boss", names, made, renew=True)
            else:
                believe(new)
            table.put("k", str(stage))
            assert table.get("k").value == str(stage).encode()
            assert answers()
    for base in cluster.bases[:3]:
        with pytest.raises(KvorumError, match="may not believe"):
            kvorum.connect(f"kvorums://127.0.0.1:{base}", tls_dir=cluster.home / "ann")
    for node in cluster.nodes:  # their connections of before end: the others take the new ones
        node.stop()
        node.spawn()
        cluster.wait(node)
        assert answers()

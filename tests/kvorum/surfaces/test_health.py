"""/readyz fails while a node does not do its work, and says why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kv.base.adapters import SystemRng
from kv.base.config import NodeConfig
from kv.base.errors import KvorumError
from kv.base.ids import PartitionId
from kvorum.local.ports import system_ports
from kvorum.node.node import Node, build
from kvorum.sdk.database import AsyncDatabase
from kvorum.storage.health import LATE_S, LOOK_S, REMEMBERED_S, Health
from tests.kit.waiting import until


class Scene:
    """A clock, a partition and an oracle that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.undrained = 0
        self.oracle: str | None = None
        self.health = Health(
            lambda: self.now, lambda: [(PartitionId(7), self)], lambda: self.oracle
        )

    def look(self, late_s: float = 0.0) -> str | None:
        """The next look, so late; what is wrong then."""
        due = self.now + LOOK_S
        self.now = due + late_s
        self.health.look(due)
        return self.health.trouble()


def test_a_late_loop_is_told_for_a_moment() -> None:
    """A loop that stood still for seconds is no healthy node's."""
    scene = Scene()
    assert scene.look(LATE_S * 0.9) is None
    assert "did nothing else for 2.5 s" in str(scene.look(2.5))
    assert scene.look() is not None, "whoever asks a little later learns it, too"
    for _ in range(round(REMEMBERED_S / LOOK_S) + 1):
        told = scene.look()
    assert told is None


def test_a_partition_that_is_not_drained_is_told() -> None:
    """Requests that nobody takes: the node answers nobody there, whatever else works."""
    scene = Scene()
    scene.undrained = 3
    assert scene.look() is None
    assert scene.look() is None
    assert "partition 7 has not been drained for 1.0 s" in str(scene.look())
    scene.undrained = 4
    assert scene.look() is None, "it was drained, and wants to be again"
    scene.undrained = 0
    assert scene.look() is None


def test_an_oracle_that_cannot_go_on_is_told() -> None:
    """Without timestamps nothing can be written in the whole cluster."""
    scene = Scene()
    scene.oracle = "the bound"
    assert scene.look() == "the bound"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = await build(NodeConfig(data=tmp_path / "d"), system_ports(asyncio.get_running_loop()))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def until_not_ready(node: Node) -> str:
    await until(lambda: node.not_ready() is not None)
    return str(node.not_ready())


@pytest.mark.slow
async def test_a_pass_that_never_comes_is_not_ready(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests wait, and nobody drains: what one malformed frame once did to a node."""
    db = AsyncDatabase(node.surface("embedded"), SystemRng())
    await db.create_namespace("app")
    await db.create_table("app", "t")
    await until(lambda: node.not_ready() is None)
    real = node.store.scheduler.run
    monkeypatch.setattr(node.store.scheduler, "run", lambda: None)
    put = asyncio.ensure_future(db.table("app", "t").put(b"k", b"v"))
    told = await until_not_ready(node)
    assert "has not been drained" in told or "oracle" in told
    monkeypatch.undo()
    real()
    await put
    await until(lambda: node.not_ready() is None)


@pytest.mark.slow
async def test_a_bound_that_is_not_raised_is_not_ready(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle still answers below its bound; before it is reached the node says so."""
    monkeypatch.setattr(node.store.tso, "_persist", lambda _bound, _done: None)
    assert "the oracle's durable bound could not be raised" in await until_not_ready(node)


@pytest.mark.slow
async def test_a_loop_of_the_node_that_breaks_begins_anew(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in the care for the node must not end what serves everybody."""
    monkeypatch.setattr("kvorum.node.node._LOOP_AGAIN_S", 0.0)
    begun: list[int] = []
    again = asyncio.Event()

    async def breaks() -> None:
        begun.append(1)
        if len(begun) > 2:
            again.set()
            await asyncio.Event().wait()
        raise RuntimeError("a bug")

    before = node.store.faults.count
    node._in_background(node._again_and_again(breaks))
    async with asyncio.timeout(30):
        await again.wait()
    assert node.store.faults.count == before + 2
    assert not node.fatal.done()
    await until(lambda: node.not_ready() is None)


@pytest.mark.slow
async def test_a_bound_whose_persist_breaks_is_tried_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way to the log broke once: the next tick raises the bound."""
    tso = node.store.tso
    real, calls, raised = tso._persist, [], tso.raises

    def once(bound: int, done: object) -> None:
        calls.append(bound)
        if len(calls) == 1:
            raise KvorumError("a bug")
        real(bound, done)  # type: ignore[arg-type]

    monkeypatch.setattr(tso, "_persist", once)
    await until(lambda: tso.raises > raised)
    assert len(calls) > 1

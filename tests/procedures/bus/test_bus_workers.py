"""Workers as targets of operations: a real node and workers over its ports, in one loop (N1, N2,
N5, N6).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import kvorum
from kv.base import limits
from kvorum.programs.worker import serve
from tests.kit.machine import free_port_base
from tests.procedures.bus import worker_operations as told

MODULE = "tests.procedures.bus.worker_operations"
ONE, TWO = "kvorum.bus_one_phase", "kvorum.bus_two_phase"
POOL = {"pool": "shop"}


class Shop:
    """A node with workers of the pool shop."""

    def __init__(self, db: kvorum.AsyncDatabase, base: int) -> None:
        self.db, self._base = db, base
        self._workers: dict[str, asyncio.Task[None]] = {}

    async def hire(self, name: str) -> None:
        ready = asyncio.Event()
        work = serve(
            *([("127.0.0.1", self._base)], [MODULE], "shop", 4, 1, name),
            lambda _worker: ready.set(),
        )
        self._workers[name] = asyncio.get_running_loop().create_task(work)
        async with asyncio.timeout(20):
            await ready.wait()

    async def lose(self, name: str) -> None:
        """It vanishes without a word; then its lease ends."""
        worker = self._workers.pop(name)
        worker.cancel()
        await asyncio.wait([worker])
        await until(lambda: self._is_gone(name))

    async def _is_gone(self, name: str) -> bool:
        return all(one["worker"] != name for one in await self.db.workers())

    async def ends(self, name: str, **args: Any) -> Any:
        return await self.db.wait(await self.db.submit(name, args), timeout_ms=30_000)

    async def close(self) -> None:
        for name in list(self._workers):
            await self.lose(name)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(400):
        if await holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never happened")


def in_shop(tmp_path: Path, test: Callable[[Shop], Awaitable[None]]) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Shop]:
        base = free_port_base()
        async with await kvorum.aopen(tmp_path / "data", port=base) as db:
            shop = Shop(db, base)
            try:
                yield shop
            finally:
                await shop.close()

    async def main() -> None:
        told.seen.clear()
        told.refuses.clear()
        async with asyncio.timeout(90), opened() as shop:
            await test(shop)

    asyncio.run(main())


@pytest.mark.slow
def test_n1_workers_of_a_pool_are_asked(tmp_path: Path) -> None:
    """A worker was not asked, was asked twice, or asked though it had left its pool."""

    async def test(shop: Shop) -> None:
        await shop.hire("a")
        await shop.hire("b")
        found = await shop.ends(ONE, kind="reload", targets=POOL, body={"n": 1})
        assert set(found["targets"]) == {"worker/a", "worker/b"}
        assert Counter(told.seen) == {("do", 1): 2}
        await shop.lose("b")
        found = await shop.ends(ONE, kind="reload", targets=POOL, body={"n": 2})
        assert set(found["targets"]) == {"worker/a"}
        found = await shop.ends(
            ONE, kind="reload", targets={"workers": ["worker/a"]}, body={"n": 3}
        )
        assert set(found["targets"]) == {"worker/a"}
        with pytest.raises(kvorum.InvalidArgument) as nobody:
            await shop.ends(ONE, kind="reload", targets={"pool": "none"}, body={"n": 4})
        assert nobody.value.code == "NO_TARGETS"
        with pytest.raises(kvorum.KvorumError) as unknown:
            await shop.ends(ONE, kind="no-such", targets=POOL, body={"n": 5})
        assert unknown.value.code == "OPERATION_UNKNOWN"

    in_shop(tmp_path, test)


@pytest.mark.slow
def test_n6_workers_switch_together_or_not_at_all(tmp_path: Path) -> None:
    """What one of them could not stage was committed by the other, or stayed staged."""

    async def test(shop: Shop) -> None:
        await shop.hire("a")
        await shop.hire("b")
        found = await shop.ends(TWO, kind="switch", targets=POOL, body={"n": 1})
        assert found["targets"] == {"worker/a": "switched", "worker/b": "switched"}
        assert told.seen == [("stage", 1)] * 2 + [("commit", 1)] * 2
        told.seen.clear()
        told.refuses.add("switch")
        with pytest.raises(kvorum.KvorumError) as refused:
            await shop.ends(TWO, kind="switch", targets=POOL, body={"n": 2})
        assert refused.value.code == "NOT_READY"
        assert ("commit", 2) not in told.seen
        assert told.seen.count(("undo", 2)) == 2

    in_shop(tmp_path, test)


@pytest.mark.slow
def test_n2_a_worker_that_is_gone_has_nothing_to_take_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation that failed waited for ever for a worker that nobody will start again."""
    monkeypatch.setattr(limits, "BUS_LEASE_MS", 4_000)

    async def test(shop: Shop) -> None:
        await shop.hire("a")

        async def begun() -> bool:
            return ("do", 1) in told.seen

        named = {"workers": ["worker/a", "worker/never"]}
        id_ = await shop.db.submit(ONE, {"kind": "reload", "targets": named, "body": {"n": 1}})
        await until(begun)
        await shop.db.abort_procedure(id_, "one of them never was")
        info = await shop.db.procedure(id_, wait_ms=20_000)
        assert info.state == "ROLLED_BACK", info
        assert told.seen == [("do", 1), ("undo", 1)]

    in_shop(tmp_path, test)


@pytest.mark.parametrize("methods", [(), ("stage",), ("commit",), ("undo",)])
def test_n1_an_operation_needs_a_phase(methods: tuple[str, ...]) -> None:
    """A class that can do nothing was taken, and its workers refused every order."""

    async def method(self: Any, job: Any) -> None: ...

    cls = type("Half", (), dict.fromkeys(methods, method))
    with pytest.raises(kvorum.InvalidArgument, match="operation half"):
        kvorum.operation("half")(cls)

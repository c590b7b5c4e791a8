"""Batches that one procedure step commits: the protocol, one rule per test."""

from __future__ import annotations

from tests.sink.world import Client, Life, Task, opened, some_rows
from tests.support import simloop


def test_o3_small_batch_commits_whole() -> None:
    """A batch's rows are not all there after its commit, or its staging stayed."""

    async def main(loop: simloop.SimLoop) -> None:
        async with opened(loop) as world:

            async def work(life: Life) -> None:
                client = Client(life.sink, "a1")
                rows = some_rows(300, "x")
                tasks = [
                    Task(0, "t0", dict(list(rows.items())[:150])),
                    Task(1, "t1", dict(list(rows.items())[150:])),
                ]
                for task in tasks:
                    await client.stage(task)
                assert await world.rows() == {}
                await client.commit(tasks, 0)
                assert await world.rows() == rows
                await life.idle()
                assert await world.staged() == []
                print(life.kv.sent)

            await Life(world).run(work)
            assert world.intents() == 0

    simloop.run(main)

"""Crash-point enumeration of the sink: the process dies at every change that it sends to the store,
just before it and just after it, and the next process goes on; then the power fails at random.

The client is Spark: it repeats the message that got no answer. The end must always be the same:
the table equals the winning tasks' rows, the marker was set once, no staging and no intents remain.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kv.base import limits
from kv.base.keys import table_prefix
from kv.base.ops import put
from kvorum.testing.simulation import loop as simloop
from tests.procedures.sink.placed import PlacedTask
from tests.procedures.sink.world import TABLE, Client, Life, Task, World, opened, some_rows

ROWS = 120


class Scenario:
    """A batch of two tasks and a loser, message by message; `progress` survives the process."""

    def __init__(
        self,
        *,
        app: str,
        replaces: bool = False,
        inline: bool = False,
        unique: bool = False,
        world: World | None = None,
    ) -> None:
        """`inline`: nothing is staged. `unique`: its rows are known to have a key each. `world`:
        the first task lays its rows in place there, and so does the second one's first try.
        """
        rows = list(some_rows(ROWS, "v").items())
        self.app, self.inline = app, inline
        # A batch that reads before it writes: what was in the table goes with it.
        self.more: dict[str, Any] = {"replace": [b"", b"", ""]} if replaces else {}
        if unique:
            self.more["twice"] = "refuse"
        self.progress = 0
        size = ROWS if inline else 25
        self.winners = [
            Task(0, "t0", dict(rows[: ROWS // 2]), chunk_rows=size),
            Task(1, "t1", dict(rows[ROWS // 2 :]), chunk_rows=size),
        ]
        if inline:
            self.more["inline"] = {task.name: task.chunks[0] for task in self.winners}
        self.loser = Task(1, "t1-copy", some_rows(30, "loser"), chunk_rows=25)
        self.placed: list[PlacedTask] = []
        self.died = False  # Spark's tasks, which try again
        self.laying: dict[int, asyncio.Task[None]] = {}
        if world is not None:
            self.more["placed"] = True
            life = Life(world)
            client = Client(life.sink, "attempt")
            first, second = dict(rows[: ROWS // 2]), dict(rows[ROWS // 2 :])
            self.placed = [
                PlacedTask(world, life, client, 0, "t0-first", first),
                PlacedTask(world, life, client, 1, "t1-first", dict.fromkeys(second, b"lost")),
            ]

    def messages(self, life: Life) -> list[Callable[[], Awaitable[object]]]:
        client = Client(life.sink, "attempt")
        steps: list[Callable[[], Awaitable[object]]] = self.places(life)
        staged = [self.winners[0], self.loser, self.winners[1]]
        winners: list[Any] = list(self.winners)
        if self.placed and not self.died:
            staged, winners = staged[2:], [self.placed[0], self.winners[1]]
        for task in () if self.inline else staged:
            for seq in range(len(task.chunks) - 1):

                def stage(task: Task = task, seq: int = seq) -> Awaitable[object]:
                    return life.sink.stage(
                        client.attempt, client.table, task.part, task.name, seq, task.chunks[seq]
                    )

                steps.append(stage)

            def seal(task: Task = task) -> Awaitable[object]:
                return client.seal(task, task.chunks[-1])

            steps.append(seal)
        steps.append(lambda: client.commit(winners, 0, app=self.app, **self.more))
        steps.append(life.idle)
        return steps

    def places(self, life: Life) -> list[Callable[[], Awaitable[object]]]:
        """What tasks do that lay rows in place; they outlive the node's processes."""
        steps: list[Callable[[], Awaitable[object]]] = []
        for task in () if self.died else self.placed:
            task.session.life = life
            for number in range(2):

                def lay(task: PlacedTask = task, number: int = number) -> Awaitable[object]:
                    mine = task.part * 2 + number
                    if mine not in self.laying:
                        work = task.lay(20 if not number else 0)
                        self.laying[mine] = asyncio.get_running_loop().create_task(work)
                    return asyncio.shield(self.laying[mine])

                def tell(task: PlacedTask = task, number: int = number) -> Awaitable[object]:
                    if len(task.chunks) == number:
                        task.told()
                    return life.sink.stage(
                        "attempt", TABLE, task.part, task.name, number, task.chunks[number]
                    )

                steps += [task.start, lay, tell]
        if steps:
            steps.insert(-3, self.placed[0].seal)
        return steps

    def power_loss(self, life: Life) -> None:
        """Tasks that lay rows lose their node, and Spark tries them again."""
        if self.progress < len(self.places(life)):
            for laying in self.laying.values():
                laying.cancel()
            self.died, self.progress = True, 0

    async def play(self, life: Life) -> bool:
        steps = self.messages(life)
        while self.progress < len(steps):
            await steps[self.progress]()
            self.progress += 1
        return True

    async def check(self, world: World) -> None:
        """The oracle."""
        assert await world.rows() == some_rows(ROWS, "v")
        assert len(await world.versions_of_marker()) == (1 if self.app else 0)
        last = Life(world)

        async def reap_and_replay(life: Life) -> None:
            await asyncio.sleep(limits.SINK_LEASE_MS / 1000 + 1)
            await life.sink.reap()
            assert await world.staged() == []
            if self.app:  # a replay of the batch under a new attempt is a no-op
                replay = Client(life.sink, "replay")
                assert await life.sink.commit(replay.request([], 0, app=self.app)) == [0]

        await last.run(reap_and_replay)
        await asyncio.sleep(1)  # what was met by reading goes behind it
        assert world.intents() == []
        assert await world.rows() == some_rows(ROWS, "v")


async def begin(world: World, path: str, app: str) -> Scenario:
    """A scenario in its world; what is to be replaced is there."""
    if path == "careful":
        prefix = table_prefix(TABLE)
        old = [
            put(prefix + key, b"old") for key in [*list(some_rows(9, ""))[::2], b"00/old", b"99"]
        ]
        await world.store.txn.write(old)
    ways = {"inline": path.startswith("inline"), "unique": path in ("huge", "inline-large")}
    if path == "placed":
        return Scenario(app=app, unique=True, world=world)
    return Scenario(app=app, replaces=path == "careful", **ways)


def lives(path: str, app: str, crashes: list[tuple[int, bool]], seed: int = 0) -> int:
    """Die like this, then live; how many changes the last process sent."""

    async def main(loop: simloop.SimLoop) -> int:
        async with opened(loop) as world:
            scenario = await begin(world, path, app)
            for at, after in [*crashes, (0, False)]:
                life = Life(world, at, after=after)
                if await life.run(scenario.play):
                    break
            await scenario.check(world)
            return life.kv.changes

    changes: int = simloop.run(main, seed)
    return changes


WAYS = ["small", "large", "huge", "careful", "inline", "inline-large", "placed"]


@pytest.fixture(params=WAYS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All ways of committing, with the same rows."""
    if request.param not in ("small", "inline"):
        monkeypatch.setattr(limits, "SINK_SMALL_ROWS", 10)
    if request.param == "huge":
        monkeypatch.setattr(limits, "SINK_STEP_ROWS", 10)
        monkeypatch.setattr(limits, "SINK_STEP_CHUNKS", 2)
    return str(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("app", ["app", ""])
@pytest.mark.parametrize("after", [False, True])
def test_o9_crash_at_every_change(path: str, after: bool, app: str) -> None:
    """A process that dies at some message loses the batch, writes it twice, or leaves something."""
    changes = lives(path, app, [])
    assert changes > (5 if path == "inline" else 12)
    for at in range(1, changes + 1):
        lives(path, app, [(at, after)], seed=at)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(12))
def test_o9_crash_again_and_again(path: str, seed: int) -> None:
    """Several deaths in a row lead somewhere that one does not."""
    rng = random.Random(seed)
    lives(path, "app", [(rng.randrange(1, 25), rng.random() < 0.5) for _ in range(8)], seed)


@pytest.mark.few(1)
def test_o9_crash_at_every_first_change(path: str) -> None:
    """A process that gets one message further each time never ends, or does a step twice."""
    lives(path, "app", [(1, True)] * 40)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(20))
def test_o9_power_loss(path: str, seed: int) -> None:
    """After a power loss an acknowledged message is forgotten, or half a batch is there."""

    async def main(loop: simloop.SimLoop) -> None:
        rng = random.Random(seed)
        async with opened(loop) as world:
            scenario = await begin(world, path, "app")
            before = await world.rows()
            for _ in range(4):
                life = Life(world)
                kill = loop.call_later(rng.random() * 0.12, life.kv.died.set)
                ended = await life.run(scenario.play)
                kill.cancel()
                if ended:
                    break
                scenario.power_loss(life)
                await world.power_loss(rng)
                assert await world.rows() in (before, some_rows(ROWS, "v"))
            else:
                assert await Life(world).run(scenario.play)
            await scenario.check(world)

    simloop.run(main, seed)

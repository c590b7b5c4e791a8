"""Beats between a node and its master: order, failover, and sections that harm nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import InvalidArgument, NotLeader, Refused, TooLarge, Unavailable
from kv.base.limits import (
    BEAT_GAP_MS,
    BEAT_MS,
    BEAT_SECTION_BYTES_MAX,
    DEAD_AFTER_MS_MIN,
    SUSPECT_MS,
)
from kvorum.api.verbs import BEAT, BEAT_NOW, Beat
from kvorum.cluster.heartbeat import Heart, Pulse
from kvorum.testing.simulation.loop import SimLoop
from procedures.master.map.liveness import Health


class World:
    """Nodes and masters that call each other; `lost` drops calls of a method."""

    def __init__(self) -> None:
        self.timers = LoopTimers(asyncio.get_running_loop())
        self.master = 1
        self.hearts: dict[int, Heart] = {}
        self.pulses: dict[int, Pulse] = {}
        self.lost: set[int] = set()
        self.replies_lost = False
        self._tokens = 0

    def node(self, number: int) -> tuple[Heart, Pulse]:
        heart = Heart(number, bytes([number]) * 8, self, lambda: self.master, self.timers)
        pulse = Pulse(
            number,
            self,
            self.timers,
            dead_after_ms=DEAD_AFTER_MS_MIN,
            token=self._token,
            serves=lambda: self.master == number,
            not_master=lambda: NotLeader("elsewhere", details={"leader": self.master}),
        )
        self.hearts[number], self.pulses[number] = heart, pulse
        return heart, pulse

    def _token(self) -> bytes:
        self._tokens += 1
        return bytes([self._tokens])

    async def call_at(self, node: int, method: int, *args: Any, budget_ms: int = 0) -> list[Any]:
        await asyncio.sleep(0.001)
        if method in self.lost:
            raise Unavailable("cut")
        if method == BEAT_NOW:
            return self.hearts[node].asked(None, list(args))
        assert method == BEAT
        Beat.verb.check([0, BEAT, 0, *args])
        reply = self.pulses[node].handle(None, list(args))
        if self.replies_lost:
            raise Unavailable("cut")
        return reply


class Says:
    """A node's section that tells a list of things."""

    def __init__(self) -> None:
        self.say: list[Any] = []
        self.heard: list[Any] = []
        self.again_called = 0

    def collect(self) -> Any:
        return self.say.pop(0) if self.say else None

    def take(self, reply: Any) -> None:
        self.heard.append(reply)

    def again(self) -> None:
        self.again_called += 1


class Hears:
    """The master's: remembers and echoes."""

    def __init__(self) -> None:
        self.begun = 0
        self.got: list[tuple[int, Any]] = []
        self.answer: Any = None

    def begin(self) -> None:
        self.begun += 1

    def handle(self, node: int, payload: Any) -> Any:
        self.got.append((node, payload))
        return self.answer


class Broken:
    """Raises wherever it is asked, on both sides."""

    def collect(self) -> Any:
        raise RuntimeError("collect")

    def take(self, reply: Any) -> None:
        raise RuntimeError("take")

    def again(self) -> None:
        raise RuntimeError("again")

    def begin(self) -> None:
        raise RuntimeError("begin")

    def handle(self, node: int, payload: Any) -> Any:
        raise RuntimeError("handle")


def _run(main: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def go() -> None:
        await main(World())

    loop = SimLoop(seed=1)
    try:
        loop.run_until_complete(go())
    finally:
        loop.close()


def test_a4_what_a_node_tells_arrives_and_the_answer_comes_back() -> None:
    """Without it no master knows anything of its nodes."""

    async def main(world: World) -> None:
        heart, pulse = world.node(1)
        says, hears = Says(), Hears()
        heart.add("x", says)
        pulse.add("x", hears)
        pulse.role(leader=True)
        says.say, hears.answer = [{"a": [1, b"k"]}], [2]
        assert await heart.beat()
        assert hears.got == [(1, {"a": [1, b"k"]})]
        assert says.heard == [[2]]
        assert await heart.beat()
        assert hears.got[1] == (1, None), "a master may answer a node that has nothing to say"

    _run(main)


def test_a4_after_a_lost_beat_and_at_a_new_master_everything_is_told_anew() -> None:
    """A change that was told to a master that died, or that got lost, would be unknown for ever."""

    async def main(world: World) -> None:
        heart, first = world.node(1)
        _, second = world.node(2)
        says, hears = Says(), Hears()
        heart.add("x", says)
        second.add("x", hears)
        for pulse in (first, second):
            pulse.members([1, 2])
        first.role(leader=True)
        says.say = ["one"]
        assert await heart.beat()
        says.again_called = 0
        world.replies_lost = True
        assert not await heart.beat()
        assert says.again_called == 1, "it may not have arrived"
        world.replies_lost = False
        assert await heart.beat()
        assert says.again_called == 1
        world.master = 2
        second.role(leader=True)
        assert hears.begun == 1
        assert await heart.beat()
        assert says.again_called == 2, "the master is a new one"

    _run(main)


def test_a4_a_new_master_is_told_at_once() -> None:
    """Waiting for the next second would double the time without a picture."""

    async def main(world: World) -> None:
        heart, first = world.node(1)
        _, second = world.node(2)
        for pulse in (first, second):
            pulse.members([1, 2])
        first.role(leader=True)
        loop = asyncio.get_running_loop()
        task = loop.create_task(heart.run())
        await asyncio.sleep(3.3)
        assert first.taken in range(4, 7), "about one a second"
        world.master = 2
        world.node(3)
        world.hearts[2] = heart  # BEAT_NOW reaches every member
        second.role(leader=True)
        await asyncio.sleep(4 * BEAT_GAP_MS / 1000)
        assert second.taken >= 1
        task.cancel()

    _run(main)


def test_a4_a_node_asks_the_one_that_is_named() -> None:
    """Its own knowledge of the leader may be old; the refusal says who leads."""

    async def main(world: World) -> None:
        heart, _ = world.node(1)
        _, second = world.node(2)
        second.members([1])
        heart._leader = lambda: 1
        world.master = 2
        second.role(leader=True)
        assert not await heart.beat()
        assert await heart.beat()
        assert second.taken == 1

    _run(main)


def test_a4_an_urgent_section_does_not_wait_for_the_second() -> None:
    """An acknowledgement of the bus would cost a second each."""

    async def main(world: World) -> None:
        heart, pulse = world.node(1)
        hears = Hears()
        pulse.add("x", hears)
        pulse.role(leader=True)
        task = asyncio.get_running_loop().create_task(heart.run())
        await asyncio.sleep(0.2)
        before = pulse.taken
        heart.hurry()
        await asyncio.sleep(3 * BEAT_GAP_MS / 1000)
        assert pulse.taken == before + 1
        for _ in range(100):
            heart.hurry()
            await asyncio.sleep(0.001)
        assert pulse.taken <= before + 3 + 100 // BEAT_GAP_MS, "however urgent: bounded"
        task.cancel()

    _run(main)


def test_a4_a_section_that_raises_or_says_too_much_harms_no_other() -> None:
    """One bug in one section would make the whole node look dead."""

    async def main(world: World) -> None:
        heart, pulse = world.node(1)
        says, hears, large = Says(), Hears(), Says()
        for name, node, master in (
            ("broken", Broken(), Broken()),
            ("large", large, Hears()),
            ("x", says, hears),
        ):
            heart.add(name, node)
            pulse.add(name, master)
        pulse.role(leader=True)
        says.say, hears.answer = ["one", "two"], "yes"
        large.say = [b"." * (BEAT_SECTION_BYTES_MAX + 1), object()]
        assert await heart.beat()
        assert await heart.beat()
        assert [told for _, told in hears.got] == ["one", "two"]
        assert says.heard == ["yes", "yes"]
        assert heart.left_out >= 4
        assert pulse.health()[1][0] is Health.ALIVE

    _run(main)


def test_f6_the_master_tells_who_is_silent() -> None:
    """A dead node's replicas are rebuilt by what this says."""

    async def main(world: World) -> None:
        heart, pulse = world.node(1)
        pulse.members([1, 2])
        pulse.role(leader=True)
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(heart.run()), loop.create_task(pulse.run())]
        await asyncio.sleep((SUSPECT_MS + BEAT_MS / 2) / 1000)
        assert pulse.health()[1][0] is Health.ALIVE
        assert pulse.health()[2] == (Health.SUSPECT, None)
        await asyncio.sleep((DEAD_AFTER_MS_MIN - SUSPECT_MS) / 1000)
        assert pulse.dead() == [2]
        assert pulse.stats()["nodes.dead"] == 1
        world.master = 0
        pulse.role(leader=False)
        assert pulse.health() == {}
        assert pulse.dead() == [], "who is no master any more declares nobody dead"
        for task in tasks:
            task.cancel()

    _run(main)


def test_a4_strangers_and_those_who_are_no_master_are_refused() -> None:
    """A picture that anybody may enter grows without bound; two masters would both believe it."""

    async def main(world: World) -> None:
        _, pulse = world.node(1)
        asked: list[int] = []
        pulse.on_stranger = lambda: asked.append(1)
        with pytest.raises(NotLeader):
            pulse.handle(None, [1, b"." * 8, 1, {}])
        pulse.role(leader=True)
        with pytest.raises(Refused, match="no member"):
            pulse.handle(None, [9, b"." * 8, 1, {}])
        assert asked == [1], "it may have joined a moment ago: the table is read again"
        world.master = 2
        with pytest.raises(NotLeader):
            pulse.handle(None, [1, b"." * 8, 1, {}])

    _run(main)


@pytest.mark.parametrize(
    "args",
    [
        [],
        [0, b"." * 8, 1, {}],
        [1, b".", 1, {}],
        [1, b"." * 8, 0, {}],
        [1, b"." * 8, 1, []],
        [1, b"." * 8, 1, {"x": "text"}],
        [1, b"." * 8, 1, {1: b""}],
        [1, b"." * 8, 1, {"x" * 65: b""}],
        [1, b"." * 8, 1, {"x": b"." * (BEAT_SECTION_BYTES_MAX + 1)}],
        [1, b"." * 8, 1, {str(i): b"" for i in range(33)}],
    ],
)
def test_a4_malformed_beats_are_refused(args: list[Any]) -> None:
    """What reaches the sections has the right shape and size."""
    with pytest.raises((InvalidArgument, TooLarge), match="BEAT"):
        Beat.verb.check([0, BEAT, 0, *args])


def test_a4_bytes_that_are_no_payload_are_left_out() -> None:
    """A node of another version must not stop the master's beat."""

    async def main(world: World) -> None:
        _, pulse = world.node(1)
        good, bad = Hears(), Hears()
        pulse.add("bad", bad)
        pulse.add("good", good)
        pulse.role(leader=True)
        pulse.handle(None, [1, b"." * 8, 1, {"bad": b"\xc1", "good": msgspec.msgpack.encode(1)}])
        assert bad.got == []
        assert good.got == [(1, 1)]

    _run(main)

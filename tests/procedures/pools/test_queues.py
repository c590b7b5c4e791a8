"""Keys, rates, fair turns and ages of queues: the gate alone, and over failovers. Virtual time."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from kv.base import limits
from kv.base.adapters import LoopTimers
from kv.base.errors import Busy, InvalidArgument
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data, records
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome, State
from procedures.engine.registry import Registry, procedure, step
from procedures.engine.submission import Options, Submission, check, create
from procedures.pools import inbox, windows
from procedures.pools.control import Control
from procedures.pools.rows import ALL_WINDOWS, every
from procedures.pools.start_limits import Bucketed, Gate, Kept, Limit
from procedures.pools.windows import Window
from tests.procedures.lab import CrashingStore, crashed
from tests.procedures.pools.pool_lab import Office, TableRows
from tests.procedures.pools.test_pools import in_office, submission
from tests.procedures.zoo import Zoo, bump


class Wall:
    """kv.base.ports.Clock of a loop."""

    def __init__(self, loop: simloop.SimLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return 1_000_000 + int(self._loop.time() * 1000)


class Door:
    """A gate, and who began when."""

    def __init__(self, loop: simloop.SimLoop) -> None:
        self.loop = loop
        self.began: list[tuple[float, int]] = []
        self.kept: dict[Bucketed, Kept] = {}
        self.gate = Gate(LoopTimers(loop), Wall(loop), self._began, self._keep)

    def _began(self, id: int) -> None:
        self.began.append((self.loop.time(), id))

    def _keep(self, id: int, buckets: dict[Bucketed, Kept]) -> None:
        self.kept |= buckets
        self.gate.kept(id)

    def enter(self, id: int, key: str = "", *, type_: str = "t", **kw: Any) -> None:
        if self.gate.enter(id, ("queue:q", f"type:{type_}"), kw.pop("priority", 0), key, **kw):
            self._began(id)

    def ids(self) -> list[int]:
        return [id for _, id in self.began]

    def end(self, id: int) -> None:
        self.gate.left(id)


def at_door(test: Any, seed: int = 0) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        door = Door(loop)
        await test(door)
        door.gate.close()

    simloop.run(main, seed)


def test_u17_of_one_key_one_at_a_time_in_the_order_of_submission() -> None:
    """Whatever their priorities, and without any setting; other keys do not wait for it."""

    async def test(door: Door) -> None:
        for id in range(1, 5):
            door.enter(id, "ada", priority=id)
        door.enter(9, "bob")
        assert door.ids() == [1, 9]
        assert door.gate.waits(2) == "the limits of key ada of queue:q"
        for id in (1, 2, 3):
            door.end(id)
        assert door.ids() == [1, 9, 2, 3, 4]
        door.end(4)
        assert not door.gate._queues, "nothing is left of it"
        assert door.gate._keys == {("queue:q", "bob"): 1}

    at_door(test)


@pytest.mark.parametrize("key", ["ada", ""])
def test_u17_who_was_submitted_first_goes_first_whatever_its_id(key: str) -> None:
    """Workers reserve ids long before they submit anything with them."""

    async def test(door: Door) -> None:
        door.gate.limit("queue:q", Limit(1))
        door.enter(500, key, since_ms=1)
        door.enter(1_003, key, since_ms=2)
        door.enter(3, key, since_ms=3)
        door.enter(4, key, since_ms=3)
        for id in (500, 1_003, 3):
            door.end(id)
        assert door.ids() == [500, 1_003, 3, 4]

    at_door(test)


def test_u17_a_key_with_very_many_starves_nobody() -> None:
    """Keys take turns, by weight, in a queue that runs one at a time."""

    async def test(door: Door) -> None:
        door.gate.limit("queue:q", Limit(1, key_concurrent=0, weights=(("big", 3),)))
        for id in range(1, 1_001):
            door.enter(id, "flood")
        for n in range(6):
            door.enter(2_000 + n, "big")
            door.enter(3_000 + n, "small")
        for _ in range(10):
            door.end(door.ids()[-1])
        order = [("flood", "", "big", "small")[id // 1_000] for id in door.ids()[1:]]
        assert Counter(order) == {"big": 6, "flood": 2, "small": 2}

    at_door(test)


def test_u17_ages_win_against_priorities_and_floods() -> None:
    """One of low priority begins after so many turns, though better ones come all the time."""

    async def test(door: Door) -> None:
        door.gate.limit("queue:q", Limit(1, aging_ms=1_000))
        wall = Wall(door.loop)
        door.enter(1)
        door.enter(2, priority=0, since_ms=wall.now_ms())
        for n in range(40):
            door.enter(10 + n, priority=5, since_ms=wall.now_ms())
            await asyncio.sleep(0.5)
            door.end(door.ids()[-1])
        at = door.ids().index(2)
        assert 8 <= at <= 13, at

    at_door(test)


OF_KEYS = Limit(key_rate_per_s=2, key_burst=5, key_concurrent=0)


@pytest.mark.parametrize(("limit", "key"), [(Limit(rate_per_s=2, burst=5), ""), (OF_KEYS, "k")])
def test_u17_a_rate_with_a_burst(limit: Limit, key: str) -> None:
    """Never more than burst + rate × t within t; after a pause so many at once."""

    async def test(door: Door) -> None:
        door.gate.limit("queue:q", limit)
        await asyncio.sleep(10)
        for id in range(20):
            door.enter(id, key)
        start = door.loop.time()
        assert len(door.began) == 5
        await asyncio.sleep(3.1)
        assert len(door.began) == 11
        await asyncio.sleep(60)
        times = [when - start for when, _ in door.began]
        for at, first in enumerate(times):
            for more, last in enumerate(times[at:]):
                assert more + 1 <= 5 + 2 * (last - first) + 1e-6

    at_door(test)


@pytest.mark.parametrize("slow", [Limit(rate_per_s=1 / 86_400), Limit(key_rate_per_s=1 / 86_400)])
def test_u17_who_waits_for_a_slow_rate_goes_by_the_new_one(slow: Limit) -> None:
    """A rate that was raised lets nobody begin until a token of the old one would have come."""

    async def test(door: Door) -> None:
        door.gate.limit("queue:q", slow)
        for id in (1, 2):
            door.enter(id, "k")
        door.end(1)
        await asyncio.sleep(30)
        assert door.ids() == [1]
        door.gate.limit("queue:q", Limit(rate_per_s=10, key_rate_per_s=10))
        await asyncio.sleep(1)
        assert door.ids() == [1, 2]
        door.end(2)
        door.enter(3, "k")
        await asyncio.sleep(1)
        assert door.ids() == [1, 2, 3]

    at_door(test)


def test_u17_a_full_type_holds_up_no_other_of_its_queue() -> None:
    """Whose type has no room is passed over by those of other types, keys and queues."""

    async def test(door: Door) -> None:
        door.gate.limit("type:full", Limit(1))
        door.gate.limit("queue:q", Limit(3))
        for id in range(1, 5):
            door.enter(id, type_="full")
        door.enter(5)
        door.enter(6, "key", type_="full")
        door.enter(7, "other")
        assert door.ids() == [1, 5, 7]
        door.end(5)
        assert door.ids() == [1, 5, 7], "those of the full type wait for it alone"
        door.end(1)
        assert len(door.ids()) == 4

    at_door(test)


def test_u17_a_slow_rate_is_written_down_before_it_counts() -> None:
    """A new master goes on from that: neither one too many, nor a whole day anew."""

    async def main(loop: simloop.SimLoop) -> None:
        one = Door(loop)
        limit = Limit(rate_per_s=1 / 3_600, key_rate_per_s=1 / 600, key_concurrent=0)
        one.gate.limit("queue:q", limit)
        one.enter(1, "k")
        assert one.ids() == [1]
        assert set(one.kept) == {("queue:q", ""), ("queue:q", "k")}
        await asyncio.sleep(3_000)
        two = Door(loop)
        two.gate.restore(one.kept)
        two.gate.limit("queue:q", limit)
        two.enter(2, "k")
        two.enter(3, "k")
        await asyncio.sleep(590)
        assert two.ids() == []
        await asyncio.sleep(20)
        assert two.ids() == [2]
        await asyncio.sleep(3_601)
        assert two.ids() == [2, 3]

    simloop.run(main)


def test_u17_who_gives_up_leaves_nothing() -> None:
    """One that waits and is aborted is passed over, and its place is not kept for ever."""

    async def test(door: Door) -> None:
        door.gate.limit("queue:q", Limit(1))
        door.enter(1)
        for id in range(2, 1_002):
            door.enter(id)
        for id in range(3, 1_001):
            door.end(id)
        ((_, stream),) = door.gate._queues["queue:q"].items()
        assert len(stream.heap) < 100
        assert door.gate.figures()["queue:q"] == (1, 2)
        door.end(2)
        door.end(1)
        assert door.ids() == [1, 1_001]

    at_door(test)


class Calls:
    """Counts calls of Python functions."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: Any, event: str, arg: object) -> None:
        self.count += event == "call"


@pytest.mark.parametrize(
    ("keys", "most"), [(1, 10_000), pytest.param(100_000, 100_000, marks=pytest.mark.slow)]
)
def test_u17_a_step_costs_the_same_whatever_waits(keys: int, most: int) -> None:
    """With 100,000 waiting in one queue, of one key or of as many, the next begins as with 100."""

    async def costs(door: Door, waiting: int) -> int:
        limit = Limit(1, key_concurrent=1, key_rate_per_s=1_000_000, aging_ms=9)
        door.gate.limit("queue:q", limit)
        await asyncio.sleep(0.01)
        for id in range(1, waiting):
            door.enter(id, f"k{id % keys}", priority=id % 7)
        calls = Calls()
        sys.setprofile(calls)
        for _ in range(20):
            door.end(door.ids()[-1])
        sys.setprofile(None)
        assert len(door.ids()) == 21
        return calls.count

    found: list[int] = []
    for waiting in (100, most):

        async def test(door: Door, waiting: int = waiting) -> None:
            found.append(await costs(door, waiting))

        at_door(test)
    assert found[1] <= found[0] * 1.2, found


@pytest.mark.few(8)
@pytest.mark.parametrize("seed", range(20))
def test_u17_any_order_of_events_keeps_every_promise(seed: int) -> None:
    """Random keys, types, ends and settings: nobody over a limit, order kept, nobody forgotten."""

    async def test(door: Door) -> None:
        chance = random.Random(seed)
        gate = door.gate
        limit = Limit(4, 50.0, 3, 1, 20.0, 2, chance.choice([0, 200]))
        gate.limit("queue:q", limit)
        gate.limit("type:a", Limit(2))
        keys: dict[int, str] = {}
        types: dict[int, str] = {}
        running: set[int] = set()
        seen = 0
        waiting: dict[str, deque[int]] = {}

        def check() -> None:
            nonlocal seen
            for _, id in door.began[seen:]:
                running.add(id)
                if keys[id]:
                    assert waiting[keys[id]].popleft() == id, "in the order of submission"
            seen = len(door.began)
            held = Counter(keys[id] for id in running)
            assert all(n <= limit.key_concurrent for key, n in held.items() if key)
            assert len(running) <= 4
            assert sum(types[id] == "a" for id in running) <= 2

        for id in range(1, 301):
            keys[id] = chance.choice(["", "x", "y", "z"])
            types[id] = chance.choice("ab")
            waiting.setdefault(keys[id], deque()).append(id)
            door.enter(id, keys[id], type_=types[id], priority=chance.randrange(3))
            check()
            while running and chance.random() < 0.6:
                done = chance.choice(sorted(running))
                running.discard(done)
                door.end(done)
                check()
            if chance.random() < 0.1:
                gate.limit("queue:q", limit._replace(aging_ms=chance.choice([0, 50])))
                check()
            await asyncio.sleep(chance.random() * 0.05)
            check()
        for _ in range(3_000):
            if len(door.began) == 300:
                break
            for done in sorted(running):
                running.discard(done)
                door.end(done)
                check()
            await asyncio.sleep(0.05)
            check()
        assert sorted(door.ids()) == list(range(1, 301))
        for id in sorted(running):
            door.end(id)
        assert (gate._queues, gate._who, gate._keys, gate._count) == ({}, {}, {}, {})

    at_door(test, seed)


# ------------------------------------------------------------------------------ masters and workers
AT_WORK: dict[int, str] = {}  # of the running test
BEGAN: list[tuple[float, int, str]] = []


@procedure("queue.counts", queue="q", key="customer", pool="p")
class Counts(Zoo):
    """Two steps, so that it is seen in between; it notes who is at work beside it."""

    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        customer = ctx.args["customer"]
        if ctx.id not in AT_WORK:
            BEGAN.append((asyncio.get_running_loop().time(), ctx.id, customer))
        assert customer not in [c for id, c in AT_WORK.items() if id != ctx.id], "two at once"
        AT_WORK[ctx.id] = customer
        await asyncio.sleep(0.02)
        return p.suspend(timeout_ms=20, then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        await bump(ctx, f"done {ctx.id}")
        ctx.signal("ended")
        AT_WORK.pop(ctx.id, None)
        return p.done(ctx.args["customer"])


def counted(customer: str, **kw: Any) -> Submission:
    return submission("queue.counts", {"customer": customer}, options=Options(**kw))


@pytest.fixture(autouse=True)
def _nobody_at_work() -> None:
    AT_WORK.clear()
    BEGAN.clear()


@pytest.mark.few(5)
@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_u17_masters_and_workers_come_and_go(seed: int, remote: bool) -> None:
    """Over failovers and kills: never two of a key, in order, within the rate, nothing lost."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Counts], seed=seed)
        chance = random.Random(seed)

        def master() -> Executor:
            return office.executor() if remote else office.executor(office.lab.types)

        executor = await office.open(master())
        if remote:
            office.hire("w1", slots=4)
            await office.entered("w1")
        rate = 20.0
        settings = {"name": "q", "max_concurrent": 3, "rate_per_s": rate, "burst": 4}
        await Control(executor).do("queue.set", settings)
        ids: dict[str, list[int]] = {"ada": [], "bob": [], "cyd": []}
        workers = 1
        for n in range(40):
            customer = chance.choice(sorted(ids))
            ids[customer].append(await executor.submit(counted(customer)))
            await asyncio.sleep(chance.random() / 20)
            if n % 8 == 7:
                await office.close(executor)
                executor = await office.open(master())
            if remote and n % 13 == 12:
                workers += 1
                office.hire(f"w{workers}", slots=4)
                await office.kill(f"w{workers - 1}")
        for mine in ids.values():
            for id in mine:
                record = await executor.wait(id, 60_000)
                assert record.state is State.SUCCESS, record
                assert office.lab.number(f"done {id}") == 1
        for customer, mine in ids.items():
            assert [id for _, id, whose in BEGAN if whose == customer] == mine
        times = [when for when, *_ in BEGAN]
        for at, first in enumerate(times):
            for more, last in enumerate(times[at:]):
                assert more + 1 <= 4 + rate * (last - first) + 2, "over the rate"
        await office.end()
        await office.close(executor)

    simloop.run(main, seed)


@pytest.mark.parametrize("what", ["fork", "reset"])
@pytest.mark.parametrize("failover", [False, True])
def test_u29_what_goes_back_waits_for_its_turn(what: str, failover: bool) -> None:
    """A fork, or one that had ended, runs beside the one that has its key, and counts for no
    limit.
    """

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Counts])
        executor = await office.open(office.executor(office.lab.types))
        await Control(executor).do("queue.set", {"name": "q", "max_concurrent": 1})
        ended = await executor.submit(counted("ada"))
        await executor.wait(ended, 10_000)
        under_way = [await executor.submit(counted(name)) for name in ("ada", "ada", "bob")]
        surgeon = executor.surgeon
        told = await (surgeon.fork if what == "fork" else surgeon.reset)(
            ended, "once more", "ann", step="work"
        )
        again = int(told["forked"]) if what == "fork" else ended
        if failover:
            await asyncio.sleep(0.01)
            await office.close(executor)
            executor = await office.open(office.executor(office.lab.types))
        for id in (*under_way, again):
            assert (await executor.wait(id, 10_000)).state is State.SUCCESS
        of_ada = [id for _, id, whose in BEGAN if whose == "ada"]
        assert of_ada.index(under_way[0]) < len(of_ada) - 1 - of_ada[::-1].index(again)
        await office.close(executor)

    simloop.run(main)


@pytest.mark.parametrize("after", [False, True])
def test_u17_whatever_write_is_the_last(after: bool) -> None:
    """The master dies at each write of a keyed queue: the next one goes on in the same order."""

    async def lives(office: Office, store: CrashingStore, ids: list[int]) -> None:
        async with office.executor(office.lab.types, store=store) as executor:
            for _ in range(3):
                ids.append(await executor.submit(counted("ada")))
            for id in ids:
                await executor.wait(id, 10_000)

    async def story(office: Office, store: CrashingStore) -> int:
        AT_WORK.clear()
        BEGAN.clear()
        ids: list[int] = []
        life = office.loop.create_task(lives(office, store, ids))
        await asyncio.wait([life])
        error = life.exception()
        assert error is None or crashed(error)
        second = await office.open(office.executor(office.lab.types))
        await asyncio.sleep(3)
        assert second.live() == []
        for id in ids:
            assert (await second.find(id)).state is State.SUCCESS
            assert office.lab.number(f"done {id}") == 1
        order = [id for _, id, _ in BEGAN]
        assert order == sorted(order)
        await office.close(second)
        return store.writes

    async def main(loop: simloop.SimLoop) -> None:
        at, writes = 0, 1
        while at <= writes:
            office = Office(loop, [Counts])
            store = CrashingStore(office.lab.store, at, after=after)
            writes = max(writes, await story(office, store))
            at += 1
        assert writes >= 9

    simloop.run(main, 0)


def test_u17_a_child_does_not_wait_for_its_parents_key() -> None:
    """A child of the same key and queue waited for its parent, which waits for it."""

    @procedure("queue.parent", queue="q", key="customer")
    class Parent(Zoo):
        @step(first=True)
        async def work(self, ctx: StepContext) -> Outcome:
            return p.children([("queue.counts", ctx.args)], then="end")

        @step
        async def end(self, ctx: StepContext) -> Outcome:
            return p.done(None)

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Counts, Parent])
        executor = await office.open(office.executor(office.lab.types))
        id = await executor.submit(submission("queue.parent", {"customer": "ada"}))
        assert (await executor.wait(id, 10_000)).state is State.SUCCESS
        await office.close(executor)

    simloop.run(main)


def test_u17_settings_are_kept_checked_and_shown() -> None:
    """What cannot be is refused and changes nothing; the next master has what was set."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Counts])
        executor = await office.open(office.executor())
        control = Control(executor)
        made = await control.do(
            "queue.set",
            {"name": "q", "rate": "100/1h", "key_rate": "5/10s", "weights": {"ada": 3}},
        )
        assert made["rate_per_s"] == pytest.approx(100 / 3600)
        assert made["key_rate_per_s"] == 0.5
        for wrong in (
            {"rate": "100"}, {"rate": "0/1s"}, {"rate": "1/1s", "rate_per_s": 1}, {"burst": -1},
            {"weights": {"a": 0}}, {"weights": [1]}, {"key_concurrent": "1"}, {"what": 1},
            {"kind": "type", "aging_ms": 5}, {"kind": "none"}, {"rate_per_s": 1e-12},
        ):  # fmt: skip
            with pytest.raises(InvalidArgument):
                await control.do("queue.set", {"name": "q", **wrong})
        await control.do("queue.set", {"name": "x", "key_concurrent": 2})
        await office.close(executor)
        executor = await office.open(office.executor(office.lab.types))
        assert executor.crew is not None
        limits = executor.crew.gate.limits
        assert limits["queue:q"].weights == (("ada", 3),)
        assert limits["queue:q"].key_concurrent == 1
        assert limits["queue:x"] == Limit(key_concurrent=2)
        control = Control(executor)
        await asyncio.sleep(3)  # a key's bucket was empty at first
        for customer in ("ada", "ada", "bob"):
            await executor.submit(counted(customer))
        await asyncio.sleep(0.03)
        shown = await control.do("queue.show", {"name": "q"})
        assert shown["weights"] == {"ada": 3}
        assert shown["waiting"] == 2
        assert shown["running"] == 1
        keys = {one["key"]: (one["running"], one["waiting"]) for one in shown["keys"]}
        assert keys == {"ada": (1, 1), "bob": (0, 1)}
        assert 25 <= shown["oldest_ms"] <= 40
        await control.do("queue.set", {"name": "x"})
        assert "queue:x" not in executor.crew.gate.limits
        await office.close(executor)

    simloop.run(main)


# ------------------------------------------------------------------------------ windows
def test_u19_of_one_text_one_within_a_window() -> None:
    """Also over a failover, and told so; afterwards the next one is a new one."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Counts])
        executor = await office.open(office.executor(office.lab.types))
        window = Window("order 7", 60_000)
        first = await Control(executor).windows.begin(counted("ada"), window)
        again = await Control(executor).windows.begin(counted("bob"), window)
        other = submission("queue.counts", {"customer": "ada"})
        assert first[1] == ""
        assert again == (first[0], "deduplicated")
        await office.close(executor)
        executor = await office.open(office.executor(office.lab.types))
        windows = Control(executor).windows
        assert await windows.begin(other, window) == (first[0], "deduplicated")
        mine = Submission("queue.counts", other.args, "somebody else")
        assert (await windows.begin(mine, window))[1] == ""
        both = await asyncio.gather(*(windows.begin(counted("x"), Window("w", 9)) for _ in "ab"))
        assert sorted(why for _, why in both) == ["", "deduplicated"]
        assert both[0][0] == both[1][0]
        await asyncio.sleep(61)
        later = await windows.begin(other, window)
        assert later[1] == ""
        assert later[0] != first[0]
        await asyncio.sleep(181)
        left = [key async for key, _, _ in every(TableRows(office.lab.store.table), ALL_WINDOWS)]
        assert left == [], "they are swept"
        await office.close(executor)

    simloop.run(main)


@pytest.mark.parametrize("first", [False, True])
def test_u19_what_waits_for_its_turn_is_still_the_same_one(first: bool) -> None:
    """While one of the key runs, each submission whose delay is over becomes a procedure of its
    own.
    """

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Counts])
        executor = await office.open(office.executor(office.lab.types))
        window = Window(debounce_ms=5, debounce_max_ms=8, first=first)
        runs = await executor.submit(counted("ada"))
        ids = []
        for n in range(3):
            sub = submission("queue.counts", {"customer": "ada", "n": n})
            ids.append(await Control(executor).windows.begin(sub, window))
            await asyncio.sleep(0.011)
        held = await executor.store.load(runs)
        assert held is not None
        assert not held.record.ended, "it holds its key all the time"
        assert [why for _, why in ids] == ["", "debounced", "debounced"]
        record = await executor.wait(ids[0][0], 10_000)
        assert plain_data.decode(record.args)["n"] == (0 if first else 2)
        assert [id for _, id, _ in BEGAN] == [runs, ids[0][0]]
        await office.close(executor)

    simloop.run(main)


@pytest.mark.parametrize("first", [False, True])
def test_u19_who_is_submitted_again_waits_anew(first: bool) -> None:
    """Its delay begins anew, up to a bound, with the last or first arguments; then a new one."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Counts])
        executor = await office.open(office.executor(office.lab.types))
        window = Window(debounce_ms=1_000, debounce_max_ms=3_000, first=first)
        ids = []
        start = loop.time()
        for n in range(5):
            if n == 2:  # another master
                await office.close(executor)
                executor = await office.open(office.executor(office.lab.types))
            sub = submission("queue.counts", {"customer": "ada", "n": n})
            ids.append(await Control(executor).windows.begin(sub, window))
            await asyncio.sleep(0.7)
        assert [why for _, why in ids] == ["", *["debounced"] * 4]
        assert len({id for id, _ in ids}) == 1
        record = await executor.wait(ids[0][0], 10_000)
        assert BEGAN[0][0] - start == pytest.approx(3.0, abs=0.1)
        assert plain_data.decode(record.args)["n"] == (0 if first else 4)
        sub = submission("queue.counts", {"customer": "ada", "n": 9})
        assert (await Control(executor).windows.begin(sub, window))[1] == ""
        await office.close(executor)

    simloop.run(main)


@pytest.mark.parametrize(
    "given",
    [
        {"dedup": "x"}, {"dedup_ms": 5}, {"debounce": "first"}, {"debounce_max_ms": 5},
        {"debounce_ms": -1}, {"debounce_ms": 5, "debounce": "all"},
        {"debounce_ms": 5, "dedup": "x"}, {"debounce_ms": 5, "dedup": "x", "dedup_ms": 5},
        {"debounce_ms": 9, "debounce_max_ms": 5},
        {"dedup": "x", "dedup_ms": limits.PROCEDURE_DEDUP_MS_MAX + 1},
    ],
)  # fmt: skip
def test_u19_windows_that_mean_nothing_are_refused(given: dict[str, Any]) -> None:
    """Half of what is wanted was taken for none of it."""
    with pytest.raises(InvalidArgument):
        windows.window(given)


def test_u19_one_owner_has_so_many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of keys outlive their procedures: who may submit one type filled the meta partition."""
    monkeypatch.setattr(limits, "PROCEDURE_DEDUPS_OF_ONE_MAX", 2)

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Counts])
        executor = await office.open(office.executor(office.lab.types))
        begin = Control(executor).windows.begin

        async def submit(key: str, ms: int = 30_000) -> str:
            sub = submission("queue.counts", {"customer": "ada", "n": 1})
            return (await begin(sub, Window(dedup=key, dedup_ms=ms)))[1]

        assert [await submit("a"), await submit("b"), await submit("a")] == ["", "", "deduplicated"]
        with pytest.raises(Busy, match="has 2 keys"):
            await submit("c")
        await asyncio.sleep(130)  # they are over, and were swept
        assert await submit("c") == ""
        await office.close(executor)

    simloop.run(main)


# ------------------------------------------------------------------------------ needs
@procedure("queue.gpu", pool="p", needs={"gpu": 1})
class Gpu(Zoo):
    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        AT_WORK[ctx.id] = "gpu"
        await asyncio.sleep(1)
        del AT_WORK[ctx.id]
        return p.done(None)


def test_u19_workers_get_what_fits_them() -> None:
    """Amounts are taken while a worker has it, labels must be there; others run beside them."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1", capacity=(("gpu", 2.0), ("zone", "eu")))
        office.hire("w2")
        await office.entered("w1")
        await office.entered("w2")
        ids = [await executor.submit(submission("queue.gpu")) for _ in range(5)]
        far = await executor.submit(
            submission("queue.gpu", options=Options(needs=(("zone", "us"),)))
        )
        near = await executor.submit(
            submission("queue.counts", {"customer": "z"}, options=Options(needs=(("zone", "eu"),)))
        )
        await asyncio.sleep(0.5)
        assert len([id for id in AT_WORK if AT_WORK[id] == "gpu"]) == 2
        assert executor.crew is not None
        (w1, w2) = executor.crew.workers()
        assert w1["used"] == {"gpu": 2.0}
        assert w2["running"] == 0
        waiting = executor.live_one(ids[4])
        apart = executor.live_one(far)
        assert waiting is not None
        assert apart is not None
        assert "are busy" in executor.crew.why_waits(waiting)
        assert executor.crew.why_waits(apart) == (
            "no worker of pool p has what it needs: gpu=1 or zone=us"
        )
        for id in (*ids, near):
            assert (await executor.wait(id, 10_000)).state is State.SUCCESS
        office.hire("w3", capacity=(("gpu", 1.0), ("zone", "us")))
        assert (await executor.wait(far, 10_000)).state is State.SUCCESS

    in_office(test, [Gpu, Counts])


@procedure("tedious", pool="p")
class Tedious(Zoo):
    @step(first=True)
    async def only(self, _ctx: StepContext) -> Outcome:
        await asyncio.sleep(5)
        return p.done()


def test_u17_a_new_limit_counts_whose_first_step_is_under_way() -> None:
    """Nothing was limited before, so nobody had asked the gate: as many more began."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        for _ in range(3):
            await executor.submit(Submission("tedious", None, "tester"))
        await asyncio.sleep(1)
        live = executor.live()[0]
        assert executor.crew is not None
        executor.crew.limit(live.limits[0], Limit(3))
        more = await executor.submit(Submission("tedious", None, "tester"))
        await asyncio.sleep(1)
        assert executor.crew.gate.waits(more)
        assert (await executor.wait(more, 20_000)).state is State.SUCCESS

    in_office(test, [Tedious])


@pytest.mark.parametrize(("took_s", "sweeps"), [(200, 3), (0, 9)])
def test_one_sweep_runs_at_a_time(
    took_s: float, sweeps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many kept procedures it takes longer than its interval: they piled up. One that took no
    time began again ten times a second.
    """
    began: list[float] = []
    owners = inbox.owners

    async def slow(rows: Any) -> AsyncIterator[int]:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, simloop.SimLoop):  # of a node that other tests have left running
            async for id in owners(rows):
                yield id
            return
        began.append(loop.time())
        await asyncio.sleep(took_s)
        for id in ():
            yield id

    monkeypatch.setattr(inbox, "owners", slow)

    async def test(_office: Office, _executor: Executor) -> None:
        await asyncio.sleep(600)
        assert len(began) == sweeps
        assert all(b - a > took_s + 59 for a, b in pairwise(began))

    in_office(test, [Counts])


# ------------------------------------------------------------------------------ older versions
def test_u17_an_older_program_leaves_alone_what_it_would_lose() -> None:
    """A record that uses a field which came later has a format that older programs refuse."""
    ok = check(counted("ada"), Registry([Counts]))
    record = create(ok, id=7, salt=b"12345678", now_ms=1)
    assert record.key == "ada"
    data = records.encode(record)
    assert msgspec.msgpack.decode(data)[0] == 2
    assert records.decode(data, "here") == record
    plain = msgspec.structs.replace(record, key="")
    assert msgspec.msgpack.decode(records.encode(plain))[0] == 1
    back = msgspec.structs.replace(plain, back=records.Back("one", b"", b"", 0, 0))
    assert msgspec.msgpack.decode(records.encode(back))[0] == 2, "it would undo all of it"


def test_u17_an_older_worker_is_not_given_what_it_would_lose() -> None:
    """It waits for one of this version, and says so."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1", format=1)
        await office.entered("w1")
        id = await executor.submit(counted("ada"))
        await asyncio.sleep(0.5)
        live = executor.live_one(id)
        assert live is not None
        assert "older version of Kvorum" in live.parked
        office.hire("w2")
        assert (await executor.wait(id, 5_000)).state is State.SUCCESS

    in_office(test, [Counts])

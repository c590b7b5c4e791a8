"""Operations from the procedure to the targets and back, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kv.base.errors import InvalidArgument, Unavailable
from kv.base.limits import BUS_LEASE_MS, BUS_UNDO_WAIT_MS
from kvorum.testing.simulation import loop as simloop
from procedures.bus import core, phases
from procedures.bus.handlers import Hands
from procedures.bus.messages import Report, Status, Verb
from procedures.engine import plain_data
from procedures.engine.submission import Submission
from procedures.master.map.nodes import NodeState
from tests.procedures.bus.world import World, effects, leftovers, one_phase

ONE, TWO = "kvorum.bus_one_phase", "kvorum.bus_two_phase"
BOTH = pytest.mark.parametrize("name", [ONE, TWO])
OF_TABLE = {"table": {"namespace": "default", "name": "t"}}


def simulated(body: Callable[[World], Awaitable[None]], *, seed: int = 0) -> None:
    """Run a test against three targets that live."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop, seed=seed)
        world.start()
        await body(world)
        await world.close()

    simloop.run(main, seed)


async def until(world: World, holds: Callable[[], object], seconds: float = 60) -> None:
    end_s = world.loop.time() + seconds
    while not holds():
        assert world.loop.time() < end_s, "it never happened"
        await asyncio.sleep(0.01)


@BOTH
def test_n1_everybody_is_asked_once_and_waited_for(name: str) -> None:
    """An operation that ended before everybody had done it, or was done twice."""

    async def body(world: World) -> None:
        record = await world.lives(name, one_phase(body={"n": 7}))
        assert record.state.name == "SUCCESS", record.error
        assert effects(world, record.id) == [1, 2, 3]
        assert leftovers(world, record.id) == []
        for register in world.registers.values():
            assert [verb for verb, _ in register.ran] == (
                ["do"] if name == ONE else ["stage", "commit"]
            )
            assert register.done[str(record.id)] == {"n": 7}
        told = phases.shown(record, world.courier)["targets"]
        assert {name: (t["state"], t["attempts"]) for name, t in told.items()} == {
            f"node/{n}": ("done", 1) for n in (1, 2, 3)
        }
        if name == ONE:
            assert plain_data.decode(record.result)["targets"]["node/2"] == {"node": 2, "n": 7}

    simulated(body)


def test_n1_state_attempts_progress_and_last_error_of_every_target_are_shown() -> None:
    """People could not see whom an operation waits for, and why."""

    async def body(world: World) -> None:
        world.registers[2].delay_s = 8
        world.registers[3].error = Unavailable("its disk is slow")
        world.registers[3].errors = 5
        async with world.master() as executor:
            id_ = await executor.submit(Submission(ONE, one_phase(), "tester"))
            await asyncio.sleep(0.6)
            told = phases.shown(await executor.find(id_), world.courier)
            assert told["phase"] == "do"
            assert told["targets"]["node/1"]["state"] == "done"
            assert told["targets"]["node/2"]["state"] == "waiting"
            await until(
                world, lambda: "progress" in world.courier.shown(str(id_)).get("node/2", {})
            )
            slow = phases.shown(await executor.find(id_), world.courier)["targets"]
            assert slow["node/2"]["progress"] == {"at": 1}
            await until(
                world, lambda: "last_error" in world.courier.shown(str(id_)).get("node/3", {})
            )
            told = phases.shown(await executor.find(id_), world.courier)["targets"]
            assert "its disk is slow" in told["node/3"]["last_error"]
            record = await executor.wait(id_, 60_000)
            assert record.state.name == "SUCCESS"
            told = phases.shown(record, world.courier)
            assert told["targets"]["node/3"]["attempts"] == 6

    simulated(body)


@BOTH
def test_n2_a_target_that_restarts_is_asked_again_with_one_effect(name: str) -> None:
    """A target keeps nothing over a restart: nobody would have carried out what it was asked."""

    async def body(world: World) -> None:
        world.registers[2].delay_s = 5
        async with world.master() as executor:
            id_ = await executor.submit(Submission(name, one_phase(), "tester"))
            await until(world, lambda: world.registers[2].ran)
            await world.stop(2)
            await asyncio.sleep(1)
            world.registers[2].delay_s = 0
            world.start(2)
            record = await executor.wait(id_, 60_000)
            assert record.state.name == "SUCCESS", record.error
            begun = [verb for verb, _ in world.registers[2].ran].count(
                "do" if name == ONE else "stage"
            )
            assert begun == 2
            assert effects(world, id_) == [1, 2, 3]

    simulated(body)


@BOTH
def test_n3_a_new_master_goes_on_with_one_of_three_answers_in(name: str) -> None:
    """A failover with part of the answers in lost the operation, or asked those again for ever."""

    async def body(world: World) -> None:
        for n in (2, 3):
            world.registers[n].delay_s = 4
        async with world.master() as executor:
            id_ = await executor.submit(Submission(name, one_phase(), "tester"))
            await until(world, lambda: world.registers[1].ran)
            await asyncio.sleep(0.5)
            before = phases.shown(await executor.find(id_), world.courier)["targets"]
            assert [t["state"] for t in before.values()] == ["done", "waiting", "waiting"]
        asked = len(world.registers[1].ran)
        async with world.master() as executor:
            record = await executor.wait(id_, 60_000)
        assert record.state.name == "SUCCESS", record.error
        assert effects(world, id_) == [1, 2, 3]
        again = world.registers[1].ran[asked:]
        assert again == ([] if name == ONE else [("commit", str(id_))]), "its answer was recorded"
        assert [verb for verb, _ in world.registers[2].ran].count("do") <= 1, "it was under way"

    simulated(body)


@pytest.mark.few(2)
@BOTH
@pytest.mark.parametrize("broken", [False, True])
def test_n3_a_master_that_dies_at_any_write(name: str, broken: bool) -> None:
    """Whatever a new master finds, the operation ends: done by all, or taken back by all."""

    def one_run(crashes: list[tuple[int, bool]]) -> int:
        async def body(world: World) -> None:
            if broken:
                world.registers[3].error = InvalidArgument("not with me")
                world.registers[3].delay_s = 0.5
            record = await world.lives(name, one_phase(), crashes)
            assert record.state.name == ("ROLLED_BACK" if broken else "SUCCESS"), record.error
            assert effects(world, record.id) == ([] if broken else [1, 2, 3])
            assert leftovers(world, record.id) == []
            nonlocal writes
            writes = world.writes

        writes = 0
        simulated(body)
        return writes

    for at in range(1, one_run([]) + 1):
        for after in (False, True):
            one_run([(at, after)])
    one_run([(k, False) for k in range(1, 8)])
    one_run([(2, True)] * 6)


def test_n4_heartbeats_alone_carry_operations() -> None:
    """With nothing pushed in either direction, an operation never arrived."""

    async def body(world: World) -> None:
        world.push_blocked = world.tell_blocked = True
        beating = world.loop.create_task(world.beats())
        for name in (ONE, TWO):
            async with world.master() as executor:
                id_ = await executor.submit(Submission(name, one_phase(), "tester"))
                since_s = world.loop.time()
                record = await executor.wait(id_, 60_000)
                assert record.state.name == "SUCCESS", record.error
                assert effects(world, id_) == [1, 2, 3]
                assert world.loop.time() - since_s < 6, "a phase is two beats"
                assert world.courier.pushed == 0
        beating.cancel()

    simulated(body)


def test_n4_a_beat_that_was_lost_is_said_again() -> None:
    """A report that went with a heartbeat that never arrived was never told."""

    async def body(world: World) -> None:
        world.push_blocked = world.tell_blocked = True
        async with world.master() as executor:
            id_ = await executor.submit(Submission(ONE, one_phase({"nodes": [1]}), "tester"))
            await asyncio.sleep(0.1)
            world.beat(1)
            await asyncio.sleep(0.1)
            assert effects(world, id_) == [1]
            assert [r.status for r in world.hands[1].beat()] == [Status.DONE]  # lost
            world.beat(1)
            record = await executor.wait(id_, 1_000)
            assert record.state.name == "SUCCESS"

    simulated(body)


def test_n4_what_a_beat_says_is_said_until_one_is_answered() -> None:
    """The master heard of an end only after it had asked once more, seconds later."""

    async def body(world: World) -> None:
        world.tell_blocked = True
        async with world.master() as executor:
            id_ = await executor.submit(Submission(ONE, one_phase({"nodes": [1]}), "tester"))
            await until(world, lambda: effects(world, id_))
            await asyncio.sleep(0.1)
            hands = world.hands[1]
            for _ in range(2):
                assert [r.status for r in hands.beat()] == [Status.DONE]  # and it is lost
            world.courier.heard("node/1", hands.beat())
            hands.beaten([])
            assert hands.beat() == []
            assert (await executor.wait(id_, 1_000)).state.name == "SUCCESS"

    simulated(body)


def test_n1_a_worker_that_cannot_be_called_asks_by_itself() -> None:
    """Only nodes could be targets: nobody can call a user's worker."""

    async def body(world: World) -> None:
        register = type(world.registers[1])(world, 9)
        hands = Hands({"test": register}, world.timers, world._tell_as("worker/a"))
        running = world.loop.create_task(hands.run())
        async with world.master() as executor:
            args = one_phase({"workers": ["worker/a"]}, body={"n": 1})
            id_ = await executor.submit(Submission(TWO, args, "tester"))
            record = await executor.wait(id_, 1_000)
            assert not record.ended, "nobody has asked"
            asking = world.loop.create_task(ask(world, hands))
            record = await executor.wait(id_, 60_000)
            assert record.state.name == "SUCCESS", record.error
            assert register.done[str(id_)] == {"n": 1}
        for task in (asking, running):
            task.cancel()

    async def ask(world: World, hands: Hands) -> None:
        while True:
            await asyncio.sleep(1)
            hands.take(await world._tell_as("worker/a")([]))

    simulated(body)


def test_n5_all_hosts_of_a_table_are_asked_for_what_they_have() -> None:
    """Hosts without a partition were asked, or some that have one were not."""

    async def body(world: World) -> None:
        world.put_table([1, 2], [2])
        record = await world.lives(ONE, one_phase(OF_TABLE))
        assert record.state.name == "SUCCESS", record.error
        asked = {n: r.done.get(str(record.id)) for n, r in world.registers.items()}
        assert asked == {1: {"partitions": [2]}, 2: {"partitions": [2, 3]}, 3: None}

    simulated(body)


def test_n5_resent_until_it_arrives() -> None:
    """A target that was away for a while was never asked again."""

    async def body(world: World) -> None:
        world.cut.add(2)
        async with world.master() as executor:
            id_ = await executor.submit(Submission(ONE, one_phase(), "tester"))
            await asyncio.sleep(10)
            told = phases.shown(await executor.find(id_), world.courier)["targets"]["node/2"]
            assert told["attempts"] > 3
            assert "does not answer" in told["last_error"]
            world.cut.clear()
            since_s = world.loop.time()
            record = await executor.wait(id_, 60_000)
            assert record.state.name == "SUCCESS"
            assert world.loop.time() - since_s < 6
            assert effects(world, id_) == [1, 2, 3]

    simulated(body)


def test_n5_a_partition_that_moves_is_followed() -> None:
    """Its new host was not asked, or the old one, which has it no more, was waited for for ever."""

    async def body(world: World) -> None:
        first, _ = world.put_table([1], [2])
        world.cut.add(1)
        async with world.master() as executor:
            id_ = await executor.submit(Submission(ONE, one_phase(OF_TABLE), "tester"))
            await asyncio.sleep(2)
            world.move(first, 3)
            record = await executor.wait(id_, 60_000)
            assert record.state.name == "SUCCESS", record.error
        told = phases.shown(record, None)["targets"]
        assert {n: t["state"] for n, t in told.items()} == {
            "node/1": "left",
            "node/2": "done",
            "node/3": "done",
        }
        assert world.registers[3].done[str(id_)] == {"partitions": [2]}

    simulated(body)


def test_n5_a_host_that_gets_more_is_asked_for_all_of_it() -> None:
    """What moved to a host that had answered already was left out."""

    async def body(world: World) -> None:
        first, _ = world.put_table([1], [2])
        world.registers[1].delay_s = 1_000
        async with world.master() as executor:
            id_ = await executor.submit(Submission(ONE, one_phase(OF_TABLE), "tester"))
            await asyncio.sleep(2)
            assert world.registers[2].done[str(id_)] == {"partitions": [3]}
            world.move(first, 2)
            record = await executor.wait(id_, 60_000)
            assert record.state.name == "SUCCESS", record.error
            assert world.registers[2].done[str(id_)] == {"partitions": [2, 3]}

    simulated(body)


@BOTH
def test_n5_a_failure_is_taken_back_by_all(name: str) -> None:
    """One refused for good, and the others kept what they had done."""

    async def body(world: World) -> None:
        world.registers[3].error = InvalidArgument("not with me")
        world.registers[3].delay_s = 0.5
        record = await world.lives(name, one_phase())
        assert record.state.name == "ROLLED_BACK"
        assert record.error is not None
        assert record.error.code == "INVALID_ARGUMENT"
        assert "node/3 failed: not with me" in record.error.message
        assert plain_data.decode(record.error.details)["targets"]["node/1"]["state"] == "done"
        assert effects(world, record.id) == leftovers(world, record.id) == []
        assert all(r.ran[-1][0] == "undo" for r in world.registers.values())

    simulated(body)


@BOTH
def test_n5_an_abort_is_taken_back_by_all(name: str) -> None:
    """What a user aborts went on at the targets."""

    async def body(world: World) -> None:
        world.registers[2].delay_s = 30
        async with world.master() as executor:
            id_ = await executor.submit(Submission(name, one_phase(), "tester"))
            await asyncio.sleep(1)
            await executor.abort(id_, "enough")
            record = await executor.wait(id_, 60_000)
            assert record.state.name == "ROLLED_BACK"
            assert effects(world, id_) == leftovers(world, id_) == []
            await asyncio.sleep(60)
            assert effects(world, id_) == leftovers(world, id_) == [], "it was stopped"

    simulated(body)


def test_n3_a_step_of_an_ended_reign_sends_nothing() -> None:
    """A deposed master went on asking, and renewing leases, for ever."""

    async def body(world: World) -> None:
        world.cut |= {1, 2, 3}
        async with world.master() as executor:
            id_ = await executor.submit(Submission(TWO, one_phase(), "tester"))
            await asyncio.sleep(1)
            op = core.from_plain(plain_data.decode((await executor.find(id_)).data)["bus"])
            world.courier.shut()
            world.courier.open(op)
            assert len(world.courier) == 0
            world.cut.clear()
            await asyncio.sleep(5)
            assert not any(register.ran for register in world.registers.values())
            world.courier.begin()
            record = await executor.wait(id_, 60_000)
            assert record.state.name == "SUCCESS"

    simulated(body)


def test_n5_late_answers_of_what_was_given_up_change_nothing() -> None:
    """An answer that came behind the end woke something, or brought an operation back."""

    async def body(world: World) -> None:
        world.registers[3].error = InvalidArgument("no")
        async with world.master() as executor:
            id_ = await executor.submit(Submission(ONE, one_phase(), "tester"))
            record = await executor.wait(id_, 60_000)
            assert record.state.name == "ROLLED_BACK"
            for verb in (Verb.DO, Verb.COMMIT, Verb.UNDO):
                late = Report(str(id_), verb, 1, Status.DONE)
                world.courier.heard("node/1", [late, late])
            assert len(world.courier) == 0
            assert (await executor.find(id_)).state.name == "ROLLED_BACK"

    simulated(body)


def test_n7_time_fails_it_and_takes_it_back() -> None:
    """A target that never answers held an operation, and those who had staged it, for ever."""

    async def body(world: World) -> None:
        world.cut.add(3)
        record = await world.lives(TWO, one_phase(timeout_ms=5_000))
        assert record.state.name == "ROLLED_BACK"
        assert record.error is not None
        assert record.error.code == "BUS_TIMEOUT"
        assert "1 of 3" in record.error.message
        assert "node/3" in record.error.message
        assert effects(world, record.id) == leftovers(world, record.id) == []
        assert 5_000 <= record.updated_ms - record.created_ms < 5_000 + BUS_LEASE_MS + 10_000

    simulated(body)


def test_n7_what_may_have_been_done_is_taken_back_however_late() -> None:
    """A target that had done it and was then cut off kept it, though the operation had failed."""

    async def body(world: World) -> None:
        world.registers[2].delay_s = 100
        async with world.master() as executor:
            args = one_phase(timeout_ms=5_000)
            id_ = await executor.submit(Submission(ONE, args, "tester"))
            await until(world, lambda: effects(world, id_) == [1, 3])
            world.cut.add(3)
            await asyncio.sleep(100)
            assert not (await executor.find(id_)).ended
            live = executor.live_one(id_)
            assert live is not None
            assert live.retry is not None
            assert "node/3" in live.retry.message
            told = phases.shown(await executor.find(id_), world.courier)
            assert told["phase"] == "undo"
            states = [target["state"] for target in told["targets"].values()]
            assert states == ["done", "done", "waiting"]
            world.cut.clear()
            record = await executor.wait(id_, 60_000)
            assert record.state.name == "ROLLED_BACK"
            assert effects(world, id_) == []

    simulated(body)


def test_n7_time_goes_on_over_a_failover() -> None:
    """A new master began the operation's time anew."""

    async def body(world: World) -> None:
        world.cut.add(3)
        async with world.master() as executor:
            id_ = await executor.submit(Submission(TWO, one_phase(timeout_ms=5_000), "tester"))
            await asyncio.sleep(4.5)
        async with world.master() as executor:
            since_s = world.loop.time()
            await until(world, lambda: world.registers[1].ran[-1][0] == "undo")
            assert world.loop.time() - since_s < 2
            record = await executor.wait(id_, 60_000)
            assert record.error is not None
            assert record.error.code == "BUS_TIMEOUT"

    simulated(body)


def test_n7_who_is_cut_off_takes_it_back_by_itself() -> None:
    """A target that nobody can tell went on holding what it had staged."""

    async def body(world: World) -> None:
        world.registers[3].error = InvalidArgument("no")
        world.registers[3].delay_s = 2
        async with world.master() as executor:
            id_ = await executor.submit(Submission(TWO, one_phase(), "tester"))
            await until(world, lambda: leftovers(world, id_) == [1, 2])
            world.cut.add(1)
            record = await executor.wait(id_, 60_000)
            assert record.state.name == "ROLLED_BACK"
            assert leftovers(world, id_) == [], "before the procedure says that it is undone"

    simulated(body)


@BOTH
def test_a_slow_target_delays_nobody(name: str) -> None:
    """One target that does not take its messages held up those for the others."""

    async def body(world: World) -> None:
        world.fault = lambda _s, target, _n: "late" if target == "node/1" else ""
        async with world.master() as executor:
            slow = await executor.submit(Submission(name, one_phase(), "tester"))
            await asyncio.sleep(0.01)
            since_s = world.loop.time()
            for _ in range(10):
                fast = await executor.submit(
                    Submission(name, one_phase({"nodes": [2, 3]}), "tester")
                )
                assert (await executor.wait(fast, 60_000)).state.name == "SUCCESS"
            assert world.loop.time() - since_s < 1
            assert (await executor.wait(slow, 60_000)).state.name == "SUCCESS"

    simulated(body)


def test_answers_that_come_together_are_recorded_together() -> None:
    """A step for every answer: a thousand targets would be a thousand writes."""

    async def body(world: World) -> None:
        for n in range(4, 31):
            world.put_node(n)
            world.registers[n] = type(world.registers[1])(world, n)
            world.start(n)
        for n, register in world.registers.items():
            register.delay_s = n / 1_000
        record = await world.lives(ONE, one_phase())
        assert record.state.name == "SUCCESS"
        assert len(effects(world, record.id)) == 30
        assert world.writes < 8

    simulated(body)


def test_n6_a_node_that_was_decommissioned_is_not_waited_for() -> None:
    """A commit that was decided waited for ever for a node that will not come back."""

    async def body(world: World) -> None:
        async with world.master() as executor:
            world.registers[3].error = Unavailable("its disk is full")
            world.registers[3].fails = ("commit",)
            id_ = await executor.submit(Submission(TWO, one_phase(), "tester"))
            await until(world, lambda: effects(world, id_) == [1, 2])
            await asyncio.sleep(30)
            assert not (await executor.find(id_)).ended
            assert len(world.registers[3].ran) < 20, "it is asked again, and not all the time"
            world.put_node(3, NodeState.GONE)
            record = await executor.wait(id_, 60_000)
            assert record.state.name == "SUCCESS"

    simulated(body)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (None, "INVALID_ARGUMENT"),
        ({"kind": "test"}, "INVALID_ARGUMENT"),
        ({"kind": "", "targets": {"nodes": "all"}}, "INVALID_ARGUMENT"),
        ({"kind": "test", "targets": {"nodes": []}}, "INVALID_ARGUMENT"),
        ({"kind": "test", "targets": {"nodes": [9]}}, "NOT_FOUND"),
        ({"kind": "test", "targets": {"partitions": [77]}}, "PARTITION_NOT_FOUND"),
        ({"kind": "test", "targets": {"workers": ["node/1"]}}, "INVALID_ARGUMENT"),
        ({"kind": "test", "targets": {"nodes": "all"}, "timeout_ms": 0}, "INVALID_ARGUMENT"),
        ({"kind": "test", "targets": {"nodes": "all"}, "body": {"x": "y" * 70_000}}, "TOO_LARGE"),
    ],
)
def test_n5_what_cannot_be_asked_is_refused_and_nobody_is_told(args: Any, code: str) -> None:
    """Bad arguments reached the targets, or failed without a reason."""

    async def body(world: World) -> None:
        record = await world.lives(ONE, args)
        assert record.state.name == "FAILED"
        assert record.error is not None
        assert record.error.code == code, record.error
        assert not any(register.ran for register in world.registers.values())

    simulated(body)


@pytest.mark.slow
def test_n1_an_operation_that_a_target_does_not_know_fails() -> None:
    """A target of an older version made an operation wait for ever."""

    async def body(world: World) -> None:
        record = await world.lives(ONE, {**one_phase(), "kind": "later"})
        assert record.state.name == "ROLLED_BACK"
        assert record.error is not None
        assert record.error.code == "OPERATION_UNKNOWN"

    simulated(body)


assert BUS_UNDO_WAIT_MS < BUS_LEASE_MS

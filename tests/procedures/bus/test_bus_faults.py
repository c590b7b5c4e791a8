"""What befalls messages, masters and targets: an operation is done by all or by none.

Enumerated: a fault at each message, of each kind. Drawn by hypothesis: anything at any time,
several at once. In the end everything is healed, and the operation has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kv.base.errors import InvalidArgument
from kvorum.testing.simulation import loop as simloop
from procedures.engine.records import Record
from procedures.engine.submission import Submission
from tests.procedures.bus.world import World, effects, leftovers, one_phase

ONE, TWO = "kvorum.bus_one_phase", "kvorum.bus_two_phase"
Event = tuple[int, str, int]
"""After so many ms, what, to which node."""


def check(world: World, record: Record, *, broken: bool) -> None:
    """All or none, and nothing half done."""
    assert record.ended
    if broken:
        assert record.state.name in ("FAILED", "ROLLED_BACK"), record.state
    if record.state.name == "SUCCESS":
        assert effects(world, record.id) == [1, 2, 3]
    else:
        assert effects(world, record.id) == []
    assert leftovers(world, record.id) == []


def with_fault(name: str, fault: str, at: int, *, broken: bool) -> int:
    """One operation in which this befalls the message of this number; how many messages there
    were.
    """

    async def main(loop: simloop.SimLoop) -> int:
        world = World(loop)
        world.start()
        world.fault = lambda _source, _target, number: fault if number == at else ""
        if broken:
            world.registers[3].error = InvalidArgument("not with me")
            world.registers[3].delay_s = 0.3
        record = await world.lives(name, one_phase())
        check(world, record, broken=broken)
        assert (record.state.name == "SUCCESS") is not broken
        await world.close()
        return world.messages

    messages: int = simloop.run(main)
    return messages


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [ONE, TWO])
@pytest.mark.parametrize("fault", ["lost", "twice", "late"])
@pytest.mark.parametrize("broken", [False, True])
def test_n6_a_fault_at_each_message(name: str, fault: str, broken: bool) -> None:
    """A message that was lost, doubled or late left the operation with some and not with others."""
    count = with_fault(name, "", 0, broken=broken)
    assert count >= 9
    for at in range(1, count + 1):
        with_fault(name, fault, at, broken=broken)


def story(
    name: str, events: Sequence[Event], *, broken: bool, rate: float, seed: int, timeout_ms: int
) -> Record:
    """An operation through these events, then everything is healed."""

    async def main(loop: simloop.SimLoop) -> Record:
        world = World(loop, seed=seed)
        world.start()
        chance = world.random
        world.fault = lambda _s, _t, _n: (
            chance.choice(["lost", "twice", "late"]) if chance.random() < rate else ""
        )
        if broken:
            world.registers[3].error = InvalidArgument("not with me")
        for register in world.registers.values():
            register.delay_s = chance.random() * 2
        beating = loop.create_task(world.beats())
        args, id_ = one_phase(timeout_ms=timeout_ms), 0
        for ms, what, node in [*sorted(events), (45_000, "heal", 0)]:
            async with world.master() as executor:
                id_ = await executor.submit(Submission(name, args, "tester", "the one"))
                at_s = ms / 1000
                if what == "heal":
                    world.fault = lambda _s, _t, _n: ""
                    world.cut.clear()
                    for away in sorted(world.registers.keys() - world.hands.keys()):
                        world.start(away)
                    record = await executor.wait(id_, 60_000)
                    break
                await asyncio.sleep(max(0.0, at_s - loop.time()))
                await happens(world, what, node)
        await asyncio.sleep(100)  # leases end
        check(world, record, broken=broken)
        beating.cancel()
        await world.close()
        return record

    found: Record = simloop.run(main, seed)
    return found


async def happens(world: World, what: str, node: int) -> None:
    """`master`: nothing but the change of masters that follows every event."""
    if what == "stop" and node in world.hands:
        await world.stop(node)
    elif what == "wipe" and node in world.hands:  # its files are gone with it
        await world.stop(node)
        world.registers[node].staged.clear()
        world.start(node)
    elif what == "start" and node not in world.hands:
        world.start(node)
    elif what == "cut":
        world.cut ^= {node}


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 9_000),
        st.sampled_from(["master", "stop", "start", "wipe", "cut"]),
        st.integers(1, 3),
    ),
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    events=EVENTS,
    broken=st.booleans(),
    rate=st.sampled_from([0.0, 0.1, 0.4]),
    seed=st.integers(0, 1_000),
    timeout_ms=st.sampled_from([2_000, 600_000]),
)
def test_n6_all_or_none_whatever_happens(
    events: list[Event], broken: bool, rate: float, seed: int, timeout_ms: int
) -> None:
    """A two-phase operation that counts at some targets and not at others."""
    story(TWO, events, broken=broken, rate=rate, seed=seed, timeout_ms=timeout_ms)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    events=EVENTS,
    broken=st.booleans(),
    rate=st.sampled_from([0.0, 0.1, 0.4]),
    seed=st.integers(0, 1_000),
    timeout_ms=st.sampled_from([2_000, 600_000]),
)
def test_n5_done_by_all_or_taken_back_by_all(
    events: list[Event], broken: bool, rate: float, seed: int, timeout_ms: int
) -> None:
    """A one-phase operation that failed, and went on counting where it could not be told."""
    story(ONE, events, broken=broken, rate=rate, seed=seed, timeout_ms=timeout_ms)

"""Crash-point enumeration over the whole registry of test procedures, forward and back.

Every write to the store is a point. For each one the process dies there, once before the write
(the step has run, nothing is stored: it runs twice) and once after it (it is stored, nobody was
told); then a new executor over the same store goes on. The end must be the one without a crash.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kv.base.keys import table_prefix
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine.records import Record
from procedures.engine.submission import Submission
from tests.procedures.lab import TABLE, CrashingStore, Lab, crashed
from tests.procedures.stores import Looks
from tests.procedures.zoo import CASES, TYPES, Case


async def _life(lab: Lab, case: Case, store: CrashingStore) -> Record | None:
    """One process: submit (the nonce makes it the same procedure), wait, fetch. None: it died."""
    try:
        async with lab.executor(store) as executor:
            id = await executor.submit(Submission(case.name, case.args, "tester", "the one"))
            record = await executor.wait(id, 60_000)
            assert record.ended, f"stuck: {record}"
            await executor.acknowledge(id)
            return record
    except BaseException as error:
        if not crashed(error):
            raise
        return None


def _lives(case: Case, crashes: list[tuple[int, bool]], seed: int = 0) -> int:
    """Run a case through these crashes, check its end; how many writes the last process did."""

    async def main(loop: simloop.SimLoop) -> int:
        lab = Lab(loop, TYPES, seed=seed)
        inner = lab.store
        ended: Record | None = None
        writes = 0
        for at, after in [*crashes, (0, False)]:
            store = CrashingStore(inner, at, after=after)
            lab.running.clear()
            record = await _life(lab, case, store)
            writes = store.writes
            ended = record or ended
            if record is not None:
                break
            # the acknowledgement may have been the last thing stored: then the end is gone with it
            if after and at and not inner.rows():
                return writes
        assert ended is not None
        await check_end(lab, case, ended, Looks(inner).value)
        assert inner.rows() == 0, "something of a forgotten procedure is left in the store"
        return writes

    result: int = simloop.run(main, seed)
    return result


async def check_end(
    lab: Lab, case: Case, record: Record, value: Callable[[bytes], Awaitable[bytes | None]]
) -> None:
    """Everything that the case says of its end; `value` reads a storage key."""
    prefix = table_prefix(TABLE)
    assert record.state.name == case.state, (record.state, record.error, record.history)
    if case.name != "outside":
        assert plain_data.decode(record.result) == case.result
    assert (record.error.code if record.error else "") == case.error
    numbers = {key: int(await value(prefix + key.encode()) or b"0") for key in case.numbers}
    assert numbers == case.numbers
    if case.undone is not None:
        assert (await value(prefix + b"trace") or b"").decode() == case.undone
    if case.outside is not None:
        assert sorted(lab.outside.values()) == case.outside


@pytest.mark.parametrize("case", CASES, ids=str)
def test_j1_ends_as_declared(case: Case) -> None:
    """A procedure ended in another state, with another result or other effects than declared."""
    _lives(case, [])


@pytest.mark.few(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_j9_crash_at_every_write(case: Case) -> None:
    """A crash lost a step, or let one take effect twice, or left something half done."""
    for at in range(1, _lives(case, []) + 1):
        for after in (False, True):
            _lives(case, [(at, after)])


@pytest.mark.few(8)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_j12_every_step_twice(case: Case) -> None:
    """A process that dies at its first write, each time after one more, ran a step twice with two
    effects.
    """
    writes = _lives(case, [])
    # dying before write k in life k: every step runs at least twice, many in several lives
    _lives(case, [(k, False) for k in range(1, writes + 1)])
    # dying right after each write: no process ever does more than one
    _lives(case, [(1, True)] * (writes + 5))


@pytest.mark.parametrize("seed", range(30))
def test_j9_random_crashes(seed: int) -> None:
    """Several crashes at random points, under any order of events, changed the end."""
    rng = random.Random(seed)
    case = CASES[seed % len(CASES)]
    crashes: list[Any] = [
        (rng.randrange(1, 12), rng.random() < 0.5) for _ in range(rng.randrange(1, 6))
    ]
    _lives(case, crashes, seed=seed + 1)

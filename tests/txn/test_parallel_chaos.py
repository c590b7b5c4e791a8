"""Parallel commit while coordinators die at every message and effect, and messages come twice, late
or never (D13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kv.base.errors import KvorumError
from kv.base.limits import RECOVERY_GRACE_MS, TXN_TTL_MS_DEFAULT
from kv.base.ops import put
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.fake_kv import Cluster
from tests.txn.si_checker import Txn, anomalies
from tests.txn.test_parallel_commit import test_d13_late_prewrite_meets_the_fence
from tests.txn.test_txn_d1 import KEYS, appender, listed
from tests.txn.wire import NoisyKv
from tests.txn.world import WORLDS, DyingKv, DyingTso, World, k
from txn.client import TxnClient
from txn.commit import core
from txn.commit import effects as msg

PLACES = [k("b"), k("c"), k("g"), k("z")]  # three partitions
OLD, NEW = b"old", b"new"
REAL_CORE = core.CommitCore
BOUND_S = 0.5  # what deciding may take beyond the ttl, or beyond the grace of a staged one


class Doomed:
    """Makes commit machines whose process dies before it performs effect number `dies_at` (0:
    never); the effects that came before are on their way.
    """

    def __init__(self, dies_at: int) -> None:
        self.dies_at = dies_at
        self.effects: list[str] = []
        self.kv: DyingKv | None = None

    def __call__(self, *args: Any, **more: Any) -> core.CommitCore:
        made = REAL_CORE(*args, **more)
        made.start = self._cut(made.start)  # type: ignore[method-assign]
        made.step = self._cut(made.step)  # type: ignore[method-assign]
        made.beat = self._cut(made.beat)  # type: ignore[method-assign]
        return made

    def _cut(self, real: Callable[..., list[msg.Effect]]) -> Callable[..., list[msg.Effect]]:
        def step(*args: Any) -> list[msg.Effect]:
            performed: list[msg.Effect] = []
            for effect in real(*args):
                self.effects.append(type(effect).__name__)
                if len(self.effects) == self.dies_at and self.kv is not None:
                    self.kv.dead = True
                    self.kv.died.set()
                if self.kv is not None and self.kv.dead:
                    # nothing more leaves this process; the machine's shell still needs an effect
                    performed.append(msg.TakeTimestamp(0))
                    break
                performed.append(effect)
            return performed

        return step


async def attack(
    loop: SimLoop, make: type[World], doom: Doomed, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(loop)
    await world.start()
    setup = world.client()
    await setup.write([put(key, OLD) for key in PLACES])
    await setup.close()
    kv = DyingKv(loop, world.kv(), dies_at=10**9)
    client = world.client(kv, DyingTso(kv, world.tso()))
    doom.kv = kv
    t = await client.begin()
    for key in PLACES:
        t.put(key, NEW)
    monkeypatch.setattr("txn.commit.shell.CommitCore", doom)
    commit = loop.create_task(t.commit())
    await asyncio.wait([commit, loop.create_task(kv.died.wait())], return_when="FIRST_COMPLETED")
    await asyncio.sleep(0.1)
    acknowledged = commit.result() if commit.done() and not commit.exception() else 0
    monkeypatch.undo()

    reader = world.client()
    await asyncio.sleep(TXN_TTL_MS_DEFAULT / 1000 + BOUND_S)
    state = await reader.status(t.id)
    at = await reader.now()
    rows, _ = await reader.multi_get(PLACES, at)
    values = {row[0] for row in rows if row}
    assert values in ({OLD}, {NEW}), f"half of it: {doom.effects}"
    if values == {NEW}:
        assert state.status == "committed"
        assert {row[1] for row in rows if row} == {state.commit_ts}
    else:
        # without a record nobody has heard of it; it holds nothing any more
        assert state.status in ("aborted", "unknown")
        assert world.locked() == []
    if acknowledged:
        assert state.commit_ts == acknowledged
    began = loop.time()
    await reader.write([put(key, b"after") for key in PLACES])
    assert loop.time() - began < BOUND_S, "decided, so nobody waits"
    await reader.close()
    assert (await world.client().multi_get(PLACES, at))[0] == rows
    commit.cancel()
    await asyncio.wait([commit])  # what it begins at its end must get its first step
    await asyncio.sleep(0)
    world.close()


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(2))
@WORLDS
def test_d13_coordinator_dies_before_every_effect(
    make: type[World], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enumerated: the scenario is run to its end once, then again for each effect, dying there. All
    or none, an acknowledged commit is there, and it is decided within the ttl and a bound.
    """
    whole = Doomed(0)
    run(lambda loop: attack(loop, make, whole, monkeypatch), seed)
    assert whole.effects == (
        ["Group", "Prewrite", "Prewrite", "Prewrite", "Finish", "Flip", "Resolve"]
    )
    for dies_at in range(1, len(whole.effects) + 1):
        doom = Doomed(dies_at)
        run(lambda loop, doom=doom: attack(loop, make, doom, monkeypatch), seed)
        assert len(doom.effects) >= dies_at


@WORLDS
def test_d13_implicit_window_is_decided_after_the_grace(make: type[World]) -> None:
    """A dead coordinator whose intents are all there, or all but one, need not wait for any ttl."""

    async def main(loop: SimLoop) -> None:
        for dies_at in range(2, 40):
            world = make(loop)
            await world.start()
            kv = DyingKv(loop, world.kv(), dies_at)
            client = world.client(kv, DyingTso(kv, world.tso()))
            t = await client.begin()
            for key in PLACES:
                t.put(key, NEW)
            commit = loop.create_task(t.commit())
            await asyncio.wait(
                [commit, loop.create_task(kv.died.wait())], return_when="FIRST_COMPLETED"
            )
            await asyncio.sleep(0.05)
            if not kv.dead:
                await client.close()
                return
            staged = k("b") in world.locked()
            reader = world.client()
            began = loop.time()
            await reader.multi_get(PLACES)
            if staged:
                await reader.write([put(k("b"), b"mine")])
                assert loop.time() - began < RECOVERY_GRACE_MS / 1000 + BOUND_S
            commit.cancel()
            await asyncio.wait([commit])
            await client.close(drain_s=0)
            await reader.close()
            world.close()
        raise AssertionError("the whole protocol was gone through")

    run(main)


async def histories(
    loop: SimLoop, make: type[World], clients: int, count: int, split: bool
) -> list[str]:
    """List-append transactions over a bad network; what is wrong with what they saw."""
    world = make(loop)
    await world.start()
    noisy = [NoisyKv(loop, world.kv()) for _ in range(clients)]
    made: Sequence[TxnClient] = [world.client(kv) for kv in noisy]
    history: list[Txn] = []
    ids = [0]
    work = [loop.create_task(appender(c, world, history, ids, count)) for c in made]
    if split:
        await asyncio.sleep(0.2)
        world.split(k("c"))
        world.split(k("f"))
    await asyncio.gather(*work)
    for kv in noisy:
        await kv.quiet()
    await asyncio.sleep(TXN_TTL_MS_DEFAULT / 1000)
    reader = world.client()
    rows, _ = await reader.multi_get([k(key) for key in KEYS])
    final = {key: listed(row[0]) if row else () for key, row in zip(KEYS, rows, strict=True)}
    seen = {value for values in final.values() for value in values}
    known = {t.id for t in history}
    history += [
        Txn(lost, appends={key: lost for key, values in final.items() if lost in values})
        for lost in seen - known
    ]
    history = [t for t in history if t.ended < float("inf") or t.id in seen or not t.appends]
    assert len([t for t in history if t.appends and t.ended < float("inf")]) > count
    assert sum(kv.again for kv in noisy) > 10, "messages came twice"
    for client in made:
        await client.close()
    world.close()
    return anomalies(history, final)


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(10))
@WORLDS
def test_d13_histories_over_a_bad_network_are_snapshot_isolated(
    make: type[World], seed: int
) -> None:
    """Duplicate, late and lost messages of every kind: a second intent, a second outcome or a fence
    that came too late would show as an anomaly.
    """
    wrong = run(lambda loop: histories(loop, make, 4, 12, split=seed % 2 == 0), seed)
    assert wrong == []


def test_d13_a_recovery_that_does_not_fence_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that passes without the fence would not test it."""
    real = Cluster._recover

    def recover(self: Cluster, *args: Any) -> list[Any]:
        reply = real(self, *args)
        self.fences.clear()
        return reply

    monkeypatch.setattr(Cluster, "_recover", recover)
    with pytest.raises(AssertionError):
        test_d13_late_prewrite_meets_the_fence(World)


def test_d13_a_recovery_that_guesses_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for committed elsewhere, what is missing would be lost."""
    real = Cluster._recover

    def recover(self: Cluster, *args: Any) -> list[Any]:
        _, bound = real(self, *args)
        return [True, bound or self.take()]

    monkeypatch.setattr(Cluster, "_recover", recover)
    monkeypatch.setattr("txn.intents.resolver.RECOVERY_GRACE_MS", 2)

    def wrong(seed: int) -> bool:
        try:
            return bool(run(lambda loop: histories(loop, World, 4, 12, split=False), seed))
        except (AssertionError, KvorumError):
            return True

    assert any(wrong(seed) for seed in range(20))

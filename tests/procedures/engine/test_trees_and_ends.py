"""Families of procedures, and what is known and kept of procedures, over crashes (J15, J16, M6,
M7).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from kv.base.errors import KvorumError, NotFound
from kvorum.testing.simulation import loop as simloop
from procedures.engine.procedure import State
from procedures.engine.records import Record
from procedures.engine.store import Stored
from procedures.engine.submission import Submission
from tests.harness.world import Place
from tests.procedures.engine.test_procedures_store import end, fresh
from tests.procedures.lab import CrashingStore, Lab, crashed
from tests.procedures.stores import KINDS, opened
from tests.procedures.zoo import TYPES

TREE = {"depth": 2, "key": "r", "do": ["fail"]}
UNDONE = "ryy ryx rxy rxx"
"""The leaf that fell first, then what had grown, the last of it first."""


async def _life(lab: Lab, store: CrashingStore, name: str, args: Any) -> Record | None:
    """One process that submits it and waits; None: it died."""
    try:
        async with lab.executor(store) as executor:
            id = await executor.submit(Submission(name, args, "me", "the one"))
            return await executor.wait(id, 60_000)
    except BaseException as error:
        if not crashed(error):
            raise
        return None


def _writes(name: str, args: Any) -> int:
    """How many there are when nothing happens."""

    async def main(loop: simloop.SimLoop) -> int:
        lab = Lab(loop, TYPES)
        store = CrashingStore(lab.store)
        assert await _life(lab, store, name, args) is not None
        return store.writes

    return simloop.run(main)


@pytest.mark.parametrize("after", [False, True])
def test_j15_a_crash_leaves_no_child_or_all(after: bool) -> None:
    """A parent's step was stored without its children, or with some of them."""
    seen: Counter[int] = Counter()

    async def dies(loop: simloop.SimLoop, at: int) -> None:
        lab = Lab(loop, TYPES)
        store = CrashingStore(lab.store, at, after=after)
        assert await _life(lab, store, "rounds", None) is None, "it dies"
        found = [one.record for one in await lab.store.newest(0, 100)]
        families = [record for record in found if not record.parent]
        children = [record for record in found if record.parent]
        rounds = sum(count for parent in families for _, count in parent.rounds)
        assert len(children) == rounds, "what its parent knows is there, and nothing else"
        assert rounds in (0, 3, 6), "a round is whole"
        seen[rounds] += 1
        record = await _life(lab, CrashingStore(lab.store), "rounds", None)
        assert record is not None
        assert record.state is State.SUCCESS
        assert [one.record.parent for one in await lab.store.newest(0, 100)].count(record.id) == 6

    for at in range(1, _writes("rounds", None) + 1):
        simloop.run(lambda loop, at=at: dies(loop, at))
    assert set(seen) == {0, 3, 6}, "crashes before, between and behind the two rounds"


def test_j16_a_tree_of_three_levels_is_undone_in_reverse() -> None:
    """A leaf fell, and something of the tree stayed, or was undone before what came after it."""

    async def whole(loop: simloop.SimLoop, at: int, after: bool) -> None:
        lab = Lab(loop, TYPES)
        record = await _life(lab, CrashingStore(lab.store, at, after=after), "tree", TREE)
        if record is None:
            record = await _life(lab, CrashingStore(lab.store), "tree", TREE)
        assert record is not None
        assert record.error is not None
        assert record.error.message.endswith("leaf ryy fell")
        assert record.state is State.ROLLED_BACK
        assert {lab.number(f"leaf r{a}{b}") for a in "xy" for b in "xy"} == {0}
        assert (lab.row("trace") or b"").decode() == UNDONE

    writes = _writes("tree", TREE)
    assert writes > 20, "three levels, forward and back"
    for at in range(writes + 1):
        for after in (False, True):
            simloop.run(lambda loop, at=at, after=after: whole(loop, at, after))


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_m6_the_outcome_is_known_when_the_master_is_back(seed: int) -> None:
    """A master was lost with a submission, and nobody could say what had become of it."""

    async def main(loop: simloop.SimLoop) -> None:
        place = Place(loop, seed, 3)
        await place.start()
        chance = random.Random(seed)
        for round_ in range(3):
            names = [f"n{round_}{i}" for i in range(4)]
            asked = [asyncio.ensure_future(_ask(place, name)) for name in names]
            await asyncio.sleep(chance.random() * 0.03)
            master = await _master(place)
            await place.cluster.crash(master)
            answers = await asyncio.gather(*asked)
            await place.cluster.start(master)
            for name, first in zip(names, answers, strict=True):
                # whatever was answered: asked with its nonce, it is one procedure, and it has ended
                id_ = await place.submit("CreateNamespace", {"namespace": name}, name)
                assert first in (None, id_)
                info = await place.end_of(id_)
                assert info.state == "SUCCESS", info.error
            assert set(names) <= set(await place.db.namespaces())
        found = list(await place.db.procedures(name="CreateNamespace"))
        assert len(found) == 12, "each of them once"
        await place.cluster.close()

    simloop.run(main, seed)


async def _ask(place: Place, name: str) -> int | None:
    """One attempt; None: it is not known, or it did not begin."""
    try:
        async with asyncio.timeout(5):
            return await place.db.submit("CreateNamespace", {"namespace": name}, nonce=name)
    except (KvorumError, TimeoutError):
        return None


async def _master(place: Place) -> int:
    while True:
        for number, node in place.cluster.nodes.items():
            if node.master.executor is not None:
                return number
        await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_m7_a_soak_leaves_no_nonces(kind: str) -> None:
    """Rows of nonces stayed behind when their procedures were forgotten."""

    async def main(loop: simloop.SimLoop) -> None:
        async with opened(kind, loop) as looks:
            store, chance = looks.store, random.Random(7)
            base, alive = await looks.rows(), dict[str, Stored]()
            for number in range(120):
                nonce = f"nonce {number}"
                alive[nonce] = await fresh(store, nonce=nonce)
                while len(alive) > 5:
                    gone = chance.choice(sorted(alive))
                    stored = alive.pop(gone)
                    change = end(stored.record)
                    version = await store.update(stored.version, change)
                    await store.remove([Stored(change.record, version)])
                    assert await store.find_nonce("me", gone) is None
                assert await looks.rows() - base <= 4 * len(alive), "it follows what lives"
            for nonce, stored in alive.items():
                assert await store.find_nonce("me", nonce) == stored.record.id
                change = end(stored.record)
                version = await store.update(stored.version, change)
                await store.remove([Stored(change.record, version)])
            assert await looks.rows() == base

    simloop.run(main)


def test_m7_a_nonce_ends_with_its_procedure() -> None:
    """Retention forgot a procedure and kept its nonce: the same request was never done again."""

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, TYPES)
        async with lab.executor() as executor:
            ids = set()
            for number in range(40):
                sub = Submission("three", None, "me", f"n{number % 8}")
                id = await executor.submit(sub)
                ids.add(id)
                assert (await executor.wait(id, 60_000)).ended
                if number % 2:
                    await executor.acknowledge(id)
                    with pytest.raises(NotFound):
                        await executor.wait(id, 0)
            assert len(ids) > 20, "what was forgotten is done again"
            await asyncio.sleep(2 * 3_600 + 120)  # the retention, and the next look
            assert lab.store.rows() == 0

    simloop.run(main)

"""Several records in one commit, as a bypass of a tree writes them, over every store."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kvorum.testing.simulation import loop as simloop
from procedures.engine.core import Change, Flow
from procedures.engine.procedure import State
from procedures.engine.registry import Registry
from procedures.engine.store import Fenced, Stored
from procedures.engine.submission import Submission, check, create
from tests.procedures.engine.test_surgery import TYPES
from tests.procedures.stores import STORES, opened


@STORES
def test_m8_records_that_change_together_are_fenced_together(kind: str) -> None:
    """One record of a commit was written although another one had moved on."""

    async def main(loop: simloop.SimLoop) -> None:
        async with opened(kind, loop) as looks:
            store, types = looks.store, Registry(TYPES)
            found: list[Stored] = []
            for _ in range(3):
                ok = check(Submission("op.two", {}, "tester", ""), types)
                id = await store.take_ids(1)
                stored = await store.insert(create(ok, id=id, salt=b"12345678", now_ms=1))
                assert isinstance(stored, Stored)
                found.append(stored)
            moved = await store.update(found[2].version, Change(found[2].record, Flow.MORE))
            ended = [
                Change(replace(one.record, state=State.BYPASSED, updated_ms=2), Flow.ENDED)
                for one in found
            ]

            def whole(last: int) -> Change:
                others = ((found[1].version, ended[1]), (last, ended[2]))
                return Change(ended[0].record, Flow.ENDED, others=others)

            with pytest.raises(Fenced):
                await store.update(found[0].version, whole(found[2].version))
            page = await store.live(0, 10)
            assert [one.record.id for one in page.stored] == [one.record.id for one in found]
            version = await store.update(found[0].version, whole(moved))
            assert not (await store.live(0, 10)).stored
            for one in found:
                stored = await store.load(one.record.id)
                assert (stored.record.state, stored.version) == (State.BYPASSED, version)
            assert len((await store.expired(1 << 50, 10))[0]) == 3

    simloop.run(main, 0)

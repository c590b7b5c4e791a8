"""What fails at a link, for as long as it does: a procedure of a rule, the undo of a role."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, Final

import pytest

from kv.base.errors import Refused
from kv.base.keys import table_prefix
from kv.base.limits import SITE_ASK_MS
from kv.base.ops import delete, put
from kv.base.timestamps import compose
from kvorum.api.site_links import SITE_ROLE
from kvorum.sites import role
from kvorum.sites.links import LinkedTable
from kvorum.sites.marks import Mark
from kvorum.sites.role import SiteRole
from kvorum.sites.rules import Change, Joined, Standing
from kvorum.sites.taking import Counts, Step, Taken, Taker
from kvorum.testing.simulation import loop as simloop
from procedures.engine.procedure import State
from procedures.engine.submission import Submission
from tests.procedures.lab import TABLE, Lab

SITE: Final = table_prefix(TABLE) + b"berlin"


def link(procedure: str, role: str = "active") -> bytes:
    told = {"procedure": procedure, "role": role, "tables": [{"table": ["default", "t"]}]}
    return json.dumps(told).encode()


@pytest.mark.parametrize("meanwhile", ["", "removed", "made anew"])
@pytest.mark.parametrize("switched", [[["default", "t", 7]], []])
def test_r3_a_role_is_taken_back_of_its_own_link(
    meanwhile: str, switched: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The undo would run for ever and hold the site's lock once its link is gone, change another
    link, or leave a role in the list that no table has.
    """
    asked: list[tuple[list[tuple[str, str]], str]] = []

    async def switch(_ctx: object, tables: Any, to: str, _changed: object) -> list[list[Any]]:
        asked.append((list(tables), to))
        return switched

    monkeypatch.setattr(role, "switch", switch)

    async def test(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [])
        nothing: Any = None
        lab.types.add(SiteRole, make=lambda: SiteRole(nothing, nothing))
        lab.store.table.write([put(SITE, link("1"))])
        async with lab.executor() as executor:
            said = Submission(SITE_ROLE, {"site": "berlin", "role": "standby"}, "tester", "")
            id = await executor.submit(said)
            await asyncio.sleep(0.1)
            assert json.loads(lab.row("berlin") or b"")["role"] == "standby"
            asked.clear()
            if meanwhile:
                anew = put(SITE, link("2", "standby"))
                lab.store.table.write([delete(SITE) if meanwhile == "removed" else anew])
            await executor.abort(id, "it is not wanted any more")
            assert (await executor.wait(id, 60_000)).state is State.ROLLED_BACK
        if meanwhile:
            assert not asked
            assert lab.row("berlin") == (None if meanwhile == "removed" else anew.value)
        else:
            tables = [(namespace, name) for namespace, name, _ in switched]
            assert asked == [(tables, "active")]
            assert json.loads(lab.row("berlin") or b"")["role"] == "active"

    simloop.run(test)


class Failing:
    """A cluster and its session in one, with one row; and a procedure that always fails."""

    def __init__(self) -> None:
        self.txn: Any = self
        self.start_ts = compose(10 * SITE_ASK_MS)
        self.mark, self.value = Mark(0, 10), b"here"
        self.nonces: list[str] = []

    async def now(self) -> int:
        return self.start_ts

    async def begin_of_link(self) -> Failing:
        return self

    async def get(self, *_key: object) -> Any:
        return SimpleNamespace(value=self.mark.encode())

    async def multi_get(self, _keys: object) -> list[Any]:
        return [SimpleNamespace(value=self.value, version=10)]

    async def abort(self) -> None:
        pass

    async def join(self, _row: Taken, _here: Standing, nonce: str) -> Joined:
        self.nonces.append(nonce)
        raise Refused("always", code="FAILED")


def test_r3_a_failing_procedure_of_a_rule_is_not_submitted_again_at_once() -> None:
    """Each retry of the link, every two seconds, would leave a procedure more, for ever."""

    async def test() -> None:
        here: Any = Failing()
        taker = Taker(here, "me", "other", here.join, Counts())
        row = Taken(LinkedTable("default", "t", "procedure", "p"), b"k", Change(b"there", 11, 5))

        async def ask(ahead_ms: int, value: bytes, procedure: str = "p") -> None:
            here.start_ts, here.value = compose(10 * SITE_ASK_MS + ahead_ms), value
            table = row.table._replace(procedure=procedure)
            step = Step([row._replace(table=table)], here.mark._replace(at=11))
            with pytest.raises(Refused):
                await taker.take([step], here.mark)

        for ahead_ms in (0, 2_000, SITE_ASK_MS - 1):
            await ask(ahead_ms, b"here")
        assert len(set(here.nonces)) == 1
        await ask(SITE_ASK_MS, b"here")
        await ask(0, b"other")
        await ask(0, b"here", "mended")
        assert len(set(here.nonces)) == 4, "something else is asked, or the time is over"

    asyncio.run(test())

"""Actions on all that fit a filter, and rules of how long ended ones are kept. Virtual time, over
the KV store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kv.base import limits
from kv.base.errors import Busy, InvalidArgument, NotFound, TooLarge
from kv.base.keys import successor
from kvorum.testing.simulation import loop as simloop
from procedures.engine import audit as audit_rows
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome, State
from procedures.engine.registry import procedure, step
from procedures.engine.submission import Submission
from procedures.pools.bulk import BULK, Bulk, _is_meant
from procedures.pools.control import Control
from tests.procedures.lab import CrashingStore, Lab, crashed, refusal
from tests.procedures.stores import opened
from tests.procedures.zoo import Zoo

_AUDIT_KEYS = audit_rows.HEAD[:-1] + b"\x03"
DAY = 60_000  # short ones: each of them is many turns of the loop


@procedure("bulk.task", retention_ms=10 * DAY, attributes={"n": int})
class Task(Zoo):
    @step(first=True)
    async def go(self, ctx: StepContext) -> Outcome:
        ctx.attributes(n=ctx.args["n"])
        if ctx.args.get("bad"):
            return p.fail("BAD", "it is")
        if ctx.args.get("wait"):
            return ctx.until_signal("go", then="end")
        return p.done(ctx.args["n"])

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        signal = await ctx.receive("go")
        return p.done(None if signal is None else signal.payload)


class Place:
    def __init__(self, lab: Lab, executor: Executor, txn: Any) -> None:
        self.lab, self.executor, self.txn = lab, executor, txn
        self.control = Control(executor)

    async def submit(self, n: int, **args: Any) -> int:
        return await self.executor.submit(Submission("bulk.task", {"n": n, **args}, "tester"))

    async def bulk(self, what: str, wanted: dict[str, Any], **more: Any) -> dict[str, Any]:
        """What it came to."""
        said = {"what": what, "filter": wanted, "reason": "why", "actor": "ann", **more}
        told = await self.control.do("bulk", said)
        record = await self.executor.wait(int(told["id"]), 60_000)
        assert record.state is State.SUCCESS, record.error
        found: dict[str, Any] = plain_data.decode(record.result)
        return found

    async def states(self, ids: list[int]) -> list[str]:
        return [(await self.executor.find(id)).state.name for id in ids]


def types(lab: Lab, masters: list[Executor]) -> None:
    lab.types.add(Bulk, make=lambda: Bulk(lambda: Control(masters[-1])))
    lab.types.users_follow()
    lab.types.add(Task)


def at_place(test: Callable[[Place], Awaitable[None]]) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        async with opened("model", loop) as looks:
            lab = Lab(loop, [], store=looks.store)
            masters: list[Executor] = []
            types(lab, masters)
            async with lab.executor(rows=looks.txn) as executor:
                masters.append(executor)
                await test(Place(lab, executor, looks.txn))

    simloop.run(main, 0)


def test_more_than_can_be_paused_is_refused_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tried the first one too many again and again, for ever."""
    monkeypatch.setattr(limits, "PAUSES_OF_ONE_MAX", 2)

    async def test(place: Place) -> None:
        for n in range(4):
            await place.submit(n, wait=True)
        await asyncio.sleep(1)
        found = await place.bulk("pause", {"type": "bulk.task"})
        assert (found["matched"], found["changed"], found["refused"]) == (4, 2, 2)
        assert {one["code"] for one in found["errors"]} == {"PAUSES_FULL"}

    at_place(test)


def test_u28_all_that_fit_are_acted_on_page_after_page() -> None:
    """None is left out, none is touched twice."""

    async def test(place: Place) -> None:
        waits = [await place.submit(n, wait=True) for n in range(50)]
        done = [await place.submit(n) for n in range(5)]
        await asyncio.sleep(1)
        wanted = {"type": "bulk.task", "where": "n<45", "state": "WAITING"}
        said = {"what": "abort", "filter": wanted, "reason": "why", "actor": "ann"}
        dry: Any = await place.control.do("bulk", {**said, "dry_run": True})
        assert (dry["count"], len(dry["items"])) == (45, 45)
        assert set(await place.states(waits)) == {"WAITING"}
        found = await place.bulk("abort", wanted)
        assert (found["matched"], found["changed"], found["refused"]) == (45, 45, 0)
        await asyncio.sleep(1)
        assert await place.states(waits) == ["FAILED"] * 45 + ["WAITING"] * 5
        assert set(await place.states(done)) == {"SUCCESS"}
        audit: Any = await place.control.audit({"limit": 100})
        (entry,) = [one for one in audit["items"] if one["what"] == "abort"]
        assert entry["count"] == 45
        assert {int(one["procedure"]) for one in entry["procedures"]} == set(waits[:45])
        # All of them, ended ones too: these are counted, with the reason.
        found = await place.bulk("abort", {"type": "bulk.task"})
        assert (found["changed"], found["unchanged"], found["refused"]) == (5, 45, 5)
        assert found["errors"][0]["code"] == "NOT_ABORTABLE"

    at_place(test)


def test_one_that_answers_later_for_ever_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The step ran again and again, and those after it were never acted on."""
    did = Control.do
    asked: dict[int, list[str]] = {}
    steps: list[str] = []
    heals = {"after": 3}

    async def do(self: Control, what: str, args: dict[str, Any]) -> Any:
        if what == "abort":
            keys = asked.setdefault(int(args["id"]), [])
            keys.append(str(args["key"]))
            steps.append((await self._executor.find(int(str(args["key"]).split("/")[1]))).step)
            if args["id"] == stuck[0] or (args["id"] == stuck[1] and len(keys) < heals["after"]):
                raise Busy("its step is under way, and does not end")
        return await did(self, what, args)

    stuck: list[int] = []
    monkeypatch.setattr(Control, "do", do)

    async def test(place: Place) -> None:
        ids = [await place.submit(n, wait=True) for n in range(120)]
        stuck.extend(ids[:2])
        await asyncio.sleep(1)
        found = await place.bulk("abort", {"type": "bulk.task"})
        assert (found["matched"], found["changed"], found["refused"]) == (120, 119, 1)
        (error,) = found["errors"]
        assert (error["procedure"], error["code"]) == (str(ids[0]), "BUSY")
        await asyncio.sleep(1)
        assert await place.states(ids) == ["WAITING"] + ["FAILED"] * 119
        assert len(asked[ids[0]]) == limits.BULK_ACTION_ROUNDS_MAX + 1
        # In a later round by a step that masters without later rounds do not have: they wait.
        assert steps == ["act"] * 120 + ["again"] * (len(steps) - 120)
        for keys in asked.values():  # who is asked again is asked for the same
            assert len(set(keys)) == 1
        assert [len(asked[id]) for id in ids[1:]] == [3] + [1] * 118

    at_place(test)


def test_each_action() -> None:
    """Each has the effect that it has on one procedure alone."""

    async def test(place: Place) -> None:
        ids = [await place.submit(n, wait=True) for n in range(3)]
        await asyncio.sleep(0.5)
        wanted = {"type": "bulk.task"}
        assert (await place.bulk("pause", wanted))["changed"] == 3
        assert len(await place.control.do("pause.list", {})) == 3
        assert (await place.bulk("resume", wanted))["changed"] == 3
        assert await place.control.do("pause.list", {}) == []
        assert (await place.bulk("retry", {**wanted, "where": "n=0"}))["changed"] == 1
        await asyncio.sleep(0.5)
        options = {"name": "go", "payload": 7}
        told = await place.bulk("signal", wanted, options=options)
        assert (told["changed"], told["refused"]) == (2, 1)  # the retried one has ended
        assert told["errors"][0]["code"] == "ENDED"
        await asyncio.sleep(0.5)
        assert await place.states(ids) == ["SUCCESS"] * 3
        assert plain_data.decode((await place.executor.find(ids[1])).result) == 7
        bad = [await place.submit(n, bad=True) for n in range(3)]
        await asyncio.sleep(0.5)
        failed = {"state": "FAILED", **wanted}
        options = {"step": "go", "args": {"n": 9}}
        assert (await place.bulk("reset", failed, options=options))["changed"] == 3
        await asyncio.sleep(0.5)
        assert await place.states(bad) == ["SUCCESS"] * 3
        assert (await place.bulk("forget", wanted))["changed"] == 6
        assert isinstance(await refusal(place.executor.find(bad[0])), NotFound)
        more = await place.submit(1, wait=True)
        await asyncio.sleep(0.5)
        assert (await place.bulk("bypass", wanted))["changed"] == 1
        assert await place.states([more]) == ["BYPASSED"]

    at_place(test)


@pytest.mark.parametrize(
    "wrong",
    [
        {"what": "eat"},
        {"filter": {}},
        {"filter": {"owner": "", "type": [], "state": None}},
        {"filter": {"size": 1}},
        {"reason": ""},
        {"options": {"step": "x"}},
        {"what": "signal"},
        {"more": 1},
    ],
)
def test_what_is_no_bulk_action_is_refused(wrong: dict[str, Any]) -> None:
    """Wrong arguments start nothing."""

    async def test(place: Place) -> None:
        said = {"what": "abort", "filter": {"type": "x"}, "reason": "why", "actor": "ann"}
        error = await refusal(place.control.do("bulk", said | wrong))
        assert isinstance(error, InvalidArgument)
        error = await refusal(place.executor.submit(Submission(BULK, said | wrong, "ann")))
        assert isinstance(error, InvalidArgument)

    at_place(test)


def test_what_is_the_databases_own_is_meant_when_it_is_named() -> None:
    """A change of a table under way would be ended where it stands by who meant his own."""

    def meant(name: str, *named: str) -> bool:
        record: Any = SimpleNamespace(name=name, ended=False, updated_ms=0)
        return _is_meant(record, named, 0)

    assert [meant(name) for name in ("DropTable", "kvorum.backup", "pay", "shop.Pay")] == [
        *(False, False),
        *(True, True),
    ]
    assert meant("DropTable", "DropTable")


@pytest.mark.parametrize("after", [False, True])
def test_u28_a_new_master_goes_on_with_it(after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Died at each write in turn; each procedure is acted on, and counted once."""
    monkeypatch.setattr("procedures.pools.bulk._PAGE", 3)

    async def main(loop: simloop.SimLoop) -> None:
        for at in range(1, 200):
            async with opened("model", loop) as looks:
                lab = Lab(loop, [], store=looks.store)
                now: list[Executor] = []
                types(lab, now)
                store = CrashingStore(looks.store, at, after=after)
                died, bulk, ids = False, 0, []
                try:
                    async with lab.executor(store, rows=looks.txn) as executor:
                        now.append(executor)
                        place = Place(lab, executor, looks.txn)
                        ids = [await place.submit(n, wait=True) for n in range(5)]
                        await asyncio.sleep(0.5)
                        said: Any = {"what": "bypass", "filter": {"type": "bulk.task"}}
                        said |= {"reason": "why", "actor": "ann", "key": "k"}
                        bulk = int((await place.control.do("bulk", said))["id"])
                        await executor.wait(bulk, 10_000)
                except BaseException as error:
                    if not crashed(error):
                        raise
                    died = True
                if bulk:
                    async with lab.executor(rows=looks.txn) as executor:
                        now.append(executor)
                        record = await executor.wait(bulk, 30_000)
                        assert record.state is State.SUCCESS
                        place = Place(lab, executor, looks.txn)
                        assert await place.states(ids) == ["BYPASSED"] * 5
                        found = plain_data.decode(record.result)
                        assert found["matched"] == 5
                if not died:
                    return
        raise AssertionError("it never ran to its end")

    simloop.run(main, 0)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["signal", "pause", "resume", "forget"])
def test_u28_each_action_counts_once(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The master died in the middle of a page: what it had done counted as unchanged, or as
    refused, when it was asked for again; what has no key was done again.
    """
    monkeypatch.setattr("procedures.pools.bulk._PAGE", 3)
    ended = what == "forget"

    async def main(loop: simloop.SimLoop) -> None:
        for at in range(1, 200):
            async with opened("model", loop) as looks:
                lab = Lab(loop, [], store=looks.store)
                now: list[Executor] = []
                types(lab, now)
                said: Any = {"what": what, "filter": {"type": "bulk.task"}, "key": "k"}
                said |= {"reason": "why", "actor": "ann"}
                said |= {"options": {"name": "go"} if what == "signal" else {}}
                async with lab.executor(rows=looks.txn) as executor:
                    now.append(executor)
                    place = Place(lab, executor, looks.txn)
                    for n in range(4):
                        await place.submit(n, wait=not ended)
                    await asyncio.sleep(0.5)
                    if what == "resume":
                        await place.bulk("pause", {"type": "bulk.task"})
                store, died, bulk = CrashingStore(looks.store, at), False, 0
                try:
                    async with lab.executor(store, rows=looks.txn) as executor:
                        now.append(executor)
                        bulk = int((await Control(executor).do("bulk", said))["id"])
                        await executor.wait(bulk, 10_000)
                except BaseException as error:
                    if not crashed(error):
                        raise
                    died = True
                if bulk:
                    async with lab.executor(rows=looks.txn) as executor:
                        now.append(executor)
                        record = await executor.wait(bulk, 30_000)
                        found = plain_data.decode(record.result)
                        assert (found["changed"], found["matched"]) == (4, 4), (at, found)
                        audit: Any = await Control(executor).audit({"limit": 100})
                        done = [one for one in audit["items"] if one["what"] == what]
                        assert sum(one["count"] for one in done) == (
                            0 if what in ("signal", "forget") else 4
                        )
                if not died:
                    return
        raise AssertionError("it never ran to its end")

    simloop.run(main, 0)


@pytest.mark.slow
def test_u28_a_bulk_action_leaves_others_in_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry per action pushed out all that others had done in 90 days, and its own first ones.
    Each of its procedures is found by its id all the same.
    """
    monkeypatch.setattr(limits, "AUDIT_ROWS_MAX", 8)

    async def test(place: Place) -> None:
        mine = await place.submit(-1, wait=True)
        ids = [await place.submit(n, wait=True) for n in range(120)]
        await asyncio.sleep(1)
        said = {"id": str(mine), "reason": "by hand", "actor": "bob"}
        await place.control.do("abort", said)
        wanted = {"type": "bulk.task", "where": "n>=0", "state": "WAITING"}
        for what in ("pause", "abort"):
            assert (await place.bulk(what, wanted))["changed"] == 120
        audit: Any = await place.control.audit({"limit": 100})
        assert [one["count"] for one in audit["items"]] == [20, 50, 50, 20, 50, 50, 1]
        assert audit["items"][-1]["reason"] == "by hand"
        for id in (ids[0], ids[60], ids[-1]):
            of_one: Any = await place.control.audit({"id": str(id)})
            assert [one["what"] for one in of_one["items"]] == ["abort", "pause"]

    at_place(test)


def test_u28_an_action_with_a_key_is_done_once_however_many_others_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its key was looked for in the last 100 entries. What goes from the audit takes its key along,
    and somebody else's action of the same key is another one.
    """

    async def test(place: Place) -> None:
        id = await place.submit(1, wait=True)
        await asyncio.sleep(0.5)
        said = {"id": str(id), "reason": "why", "actor": "ann", "step": "go", "key": "k"}
        first = await place.control.do("retry", said)
        pause = {"kind": "type", "name": "x", "note": "why", "actor": "bob"}
        for n in range(120):
            await place.control.do("pause.set", {**pause, "key": f"{n}"})
        assert await place.control.do("retry", said) == first
        await place.control.do("retry", {**said, "actor": "bob"})
        audit: Any = await place.control.audit({"limit": 1000})
        assert [one["actor"] for one in audit["items"] if one["what"] == "retry"] == ["bob", "ann"]
        monkeypatch.setattr(limits, "AUDIT_ROWS_MAX", 10)
        for n in range(60):
            await place.control.do("pause.set", {**pause, "key": f"more {n}"})
        audit = await place.control.audit({"limit": 1000})
        assert len(audit["items"]) == 10
        keys = await place.txn.scan(_AUDIT_KEYS, successor(_AUDIT_KEYS), limit=1000)
        assert len(keys.items) == 10

    at_place(test)


@pytest.mark.slow
def test_u28_rules_say_how_long_ended_ones_are_kept() -> None:
    """The rule of the type and state decides, else the general one."""

    async def test(place: Place) -> None:
        do = place.control.do
        await do("retention.set", {"type": "bulk.task", "state": "SUCCESS", "keep_ms": DAY})
        await do("retention.set", {"type": "bulk.task", "state": "FAILED", "keep_ms": 30 * DAY})
        good = [await place.submit(n) for n in range(3)]
        bad = [await place.submit(n, bad=True) for n in range(3)]
        await asyncio.sleep(DAY / 1000 - 5)
        assert await place.states(good) == ["SUCCESS"] * 3
        late = await place.submit(9)
        await asyncio.sleep(36)
        for id in good:
            assert isinstance(await refusal(place.executor.find(id)), NotFound)
        assert await place.states([late, *bad]) == ["SUCCESS", *["FAILED"] * 3]
        await asyncio.sleep(11 * DAY / 1000)
        assert await place.states(bad) == ["FAILED"] * 3
        await asyncio.sleep(19 * DAY / 1000)
        for id in bad:
            assert isinstance(await refusal(place.executor.find(id)), NotFound)
        assert await do("search", {}) == {"items": [], "token": "", "looked": 0}

    at_place(test)


def test_rules_say_how_many_are_kept() -> None:
    """The oldest beyond the number go."""

    async def test(place: Place) -> None:
        do = place.control.do
        ids = []
        for n in range(12):
            ids.append(await place.submit(n))
            await asyncio.sleep(0.1)
        bad = await place.submit(0, bad=True)
        rule = await do("retention.set", {"state": "SUCCESS", "most": 5})
        assert rule == {"type": None, "state": "SUCCESS", "keep_ms": None, "most": 5}
        await asyncio.sleep(5)
        page: Any = await do("search", {"type": "bulk.task", "state": "SUCCESS"})
        assert [int(one["id"]) for one in page["items"]] == ids[:6:-1]
        assert await place.states([bad]) == ["FAILED"]
        await do("retention.set", {"type": "bulk.task", "keep_ms": 9 * DAY})  # more exact
        more = [await place.submit(n) for n in range(12)]
        await asyncio.sleep(60)
        assert await place.states(more) == ["SUCCESS"] * 12
        await do("retention.remove", {"type": "bulk.task"})
        assert isinstance(await refusal(do("retention.remove", {"type": "bulk.task"})), NotFound)
        await asyncio.sleep(60)
        page = await do("search", {"type": "bulk.task", "state": "SUCCESS"})
        assert len(page["items"]) == 5
        for wrong in ({"keep_ms": -1}, {}, {"most": "x"}, {"most": 1, "state": "WAITING"}):
            error = await refusal(do("retention.set", wrong))
            assert isinstance(error, InvalidArgument | TooLarge)

    at_place(test)


@procedure("bulk.family", retention_ms=10**9)
class Family(Zoo):
    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return p.children([("bulk.task", {"n": 0})] * 3, then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.done(None)


def test_rules_leave_children_to_their_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that was older than its rule said was loaded at every sweep, as long as its parent was
    kept; and they pushed others out, of which so many were to be kept.
    """

    async def test(place: Place) -> None:
        place.lab.types.add(Family)
        do, executor = place.control.do, place.executor
        alone = [await place.submit(n) for n in range(2)]
        await asyncio.sleep(0.2)
        parent = await executor.submit(Submission("bulk.family", None, "tester"))
        await executor.wait(parent, 10_000)

        async def kept() -> set[int]:
            page: Any = await do("search", {"type": "bulk.task"})
            return {int(one["id"]) for one in page["items"]}

        children = await kept() - set(alone)
        assert len(children) == 3
        await do("retention.set", {"type": "bulk.task", "most": 2})
        await asyncio.sleep(1)
        assert await kept() == {*children, *alone}
        loaded: list[int] = []
        load = executor.store.load

        async def watched(id: int) -> Any:
            loaded.append(id)
            return await load(id)

        monkeypatch.setattr(executor.store, "load", watched)
        await do("retention.set", {"type": "bulk.task", "keep_ms": 500})
        await asyncio.sleep(1)
        assert set(loaded) == set(alone)
        assert await kept() == children

    at_place(test)


def test_rules_hold_for_the_next_master() -> None:
    """Rules are rows, not what a master remembers."""

    async def main(loop: simloop.SimLoop) -> None:
        async with opened("model", loop) as looks:
            lab = Lab(loop, [], store=looks.store)
            types(lab, [])
            async with lab.executor(rows=looks.txn) as executor:
                place = Place(lab, executor, looks.txn)
                await place.control.do("retention.set", {"type": "bulk.task", "keep_ms": 60_000})
                id = await place.submit(1)
                await executor.wait(id, 1_000)
            async with lab.executor(rows=looks.txn) as executor:
                await asyncio.sleep(120)
                assert isinstance(await refusal(executor.find(id)), NotFound)

    simloop.run(main, 0)

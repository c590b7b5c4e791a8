"""Search by type, state, time, error, schedule, parent and attributes; what it costs. Virtual time,
over the KV store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from kv.base import limits, system
from kv.base.errors import InvalidArgument, TooLarge
from kv.base.keys import table_range
from kvorum.testing.simulation import loop as simloop
from procedures.engine import attributes
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.flow import Flow
from procedures.engine.ordered_ids import OrderedIds
from procedures.engine.procedure import Outcome
from procedures.engine.registry import procedure, step, undo
from procedures.engine.submission import Options, Submission
from procedures.engine.workflow import workflow
from procedures.pools.control import Control
from tests.procedures.lab import Lab, refusal, run
from tests.procedures.stores import opened
from tests.procedures.zoo import Zoo

SAID = {
    "customer": "text",
    "amount": int,
    "rate": float,
    "urgent": bool,
    "due": datetime,
    "tags": list,
}


@procedure("search.order", attributes=SAID)
class Order(Zoo):
    """Waits, fails or succeeds, as its arguments say."""

    @step(first=True, undo="back")
    async def take(self, ctx: StepContext) -> Outcome:
        if (ctx.args or {}).get("more"):
            ctx.attributes(**ctx.args["more"])
        match (ctx.args or {}).get("do"):
            case "wait":
                return p.suspend(event="go", then="end")
            case "fail":
                return p.fail("NO_STOCK", "there is none")
            case "children":
                calls = [("search.order", {"n": i}) for i in range(5)]
                return p.children(calls, then="end")
        return p.done(None)

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        ctx.attributes(customer=None)
        if (ctx.args or {}).get("late"):
            return p.fail("TOO_LATE", "much too late")
        return p.done(None)

    @undo
    async def back(self, ctx: StepContext) -> None:
        pass


@procedure("other", attributes={"customer": str, "amount": "text"})
class Other(Zoo):
    @step(first=True)
    async def go(self, ctx: StepContext) -> Outcome:
        return p.done(None)


@workflow("flows", attributes={"stage": str})
async def flows(flow: Flow) -> int:
    async def work(ctx: StepContext) -> int:
        ctx.attributes(stage="worked")
        return 1

    flow.attributes(stage="begun")
    await flow.sleep(1_000)
    return int(await flow.step(work))


class Place:
    def __init__(self, lab: Lab, executor: Executor, txn: Any) -> None:
        self.lab, self.executor, self.txn = lab, executor, txn
        self.control = Control(executor)

    async def submit(self, name: str = "search.order", args: Any = None, **said: Any) -> int:
        options = Options(attributes=said)
        return await self.executor.submit(Submission(name, args, "tester", options=options))

    async def ended(self, name: str = "search.order", args: Any = None, **said: Any) -> int:
        id = await self.submit(name, args, **said)
        assert (await self.executor.wait(id, 10_000)).ended
        await asyncio.sleep(0.01)
        return id

    async def found(self, **wanted: Any) -> list[int]:
        ids: list[int] = []
        token = ""
        while True:
            page: Any = await self.control.do("search", {**wanted, "token": token})
            ids += [int(one["id"]) for one in page["items"]]
            token = page["token"]
            if not token:
                return ids

    async def rows(self) -> int:
        """Everything that search has written."""
        low, high = table_range(system.WORKERS)
        page = await self.txn.scan(low, high, limit=10_000)
        return sum(key[4] in (0x24, 0x25) for key, _, _ in page.items)


def at_place(test: Callable[[Place], Awaitable[None]], kind: str = "model") -> None:
    async def main(loop: simloop.SimLoop) -> None:
        async with opened(kind, loop) as looks:
            lab = Lab(loop, [Order, Other, flows], store=looks.store)
            async with lab.executor(rows=looks.txn) as executor:
                await test(Place(lab, executor, looks.txn))

    simloop.run(main, 0)


@pytest.mark.parametrize("kind", ["model", "real"])
def test_what_ended_and_what_lives_is_found_in_order(kind: str) -> None:
    """Pages follow one another without a gap, in either order."""

    async def test(place: Place) -> None:
        done = [await place.ended() for _ in range(3)]
        failed = [await place.ended(args={"do": "fail"}) for _ in range(3)]
        other = await place.ended("other")
        waits = [await place.submit(args={"do": "wait"}) for _ in range(3)]
        await asyncio.sleep(0.1)
        live, ended = waits[::-1], [*failed[::-1], *done[::-1]]
        assert await place.found(type="search.order") == [*live, *ended]
        assert await place.found(type="search.order", limit=2) == [*live, *ended]
        assert await place.found() == [*live, other, *ended]
        assert await place.found(limit=1) == [*live, other, *ended]
        assert await place.found(state="FAILED") == failed[::-1]
        assert (
            await place.found(state=["SUCCESS", "WAITING"], type="search.order")
            == live + done[::-1]
        )
        assert await place.found(error="NO_") == failed[::-1]
        assert await place.found(error="there is none", type="other") == []
        assert await place.found(state="SUCCESS", queue="other") == [other]
        at = (await place.executor.find(failed[1])).updated_ms
        assert await place.found(ended_from=at, ended_to=at + 1) == [failed[1]]
        assert await place.found(ended_from=at, type="search.order") == failed[:0:-1]
        assert await place.found(submitted_from=at + 1, state="FAILED") == [failed[2]]
        counted: Any = await place.control.do("count", {})
        assert {(o["type"], o["state"]): o["count"] for o in counted["items"]} == {
            ("search.order", "WAITING"): 3,
            ("search.order", "SUCCESS"): 3,
            ("search.order", "FAILED"): 3,
            ("other", "SUCCESS"): 1,
        }
        some: Any = await place.control.do("count", {"error": "NO_STOCK"})
        assert (some["count"], some["more"]) == (3, False)

    at_place(test, kind)


def test_u27_attributes_are_found_until_their_procedure_is_forgotten() -> None:
    """Rows of attributes live as long as what they are about."""

    async def test(place: Place) -> None:
        due = int(datetime(2026, 5, 1, tzinfo=UTC).timestamp() * 1000)
        ann = [
            await place.ended(
                *("search.order", {"do": "fail"} if i == 2 else None),
                customer="ann",
                amount=i * 10 - 20,
                rate=i / 2,
                urgent=i % 2 == 0,
                due=due + i,
                tags=["a", f"t{i}"],
            )
            for i in range(5)
        ]
        bob = await place.ended(customer="bob\x00", amount=-20)
        wait = await place.submit(args={"do": "wait"}, customer="ann")
        assert await place.found(where="customer=ann") == [wait, *ann[::-1]]
        assert await place.found(where="customer=ann", limit=2) == [wait, *ann[::-1]]
        assert await place.found(where=["customer=ann"], state="FAILED") == [ann[2]]
        assert await place.found(where="customer^=bob") == [bob]
        assert await place.found(where="customer=bob") == []
        order = {"type": "search.order"}
        assert await place.found(where=["amount>=0"], **order) == ann[:1:-1]
        assert await place.found(where=["amount>=-10", "amount<10"], **order) == [ann[2], ann[1]]
        assert await place.found(where=["amount<=-20"], **order) == [bob, ann[0]]
        assert await place.found(where=["amount=-20", "customer!=ann"], **order) == [bob]
        assert await place.found(where="rate>0.9", limit=1) == ann[:1:-1]
        assert await place.found(where="urgent=true") == [ann[4], ann[2], ann[0]]
        assert await place.found(where="due<2026-05-01T00:00:00.002+00:00") == [ann[1], ann[0]]
        assert await place.found(where="tags=a") == ann[::-1]
        assert await place.found(where=["tags=a", "tags!=t1"]) == [ann[4], ann[3], ann[2], ann[0]]
        shown: Any = await place.control.do("search", {"where": "tags=t1"})
        assert shown["items"][0]["attributes"]["tags"] == ["a", "t1"]
        # A step takes one away, in its transaction.
        place.executor.signal("go")
        await place.executor.wait(wait, 1_000)
        assert await place.found(where="customer=ann") == ann[::-1]
        for id in [*ann, bob, wait]:
            await place.executor.acknowledge(id)
        assert await place.found(where="customer=ann") == []
        assert await place.found() == []
        assert await place.rows() == 0

    at_place(test)


def test_what_a_failed_step_said_is_not_found() -> None:
    """Attributes are of the step's transaction: what is rolled back was never said."""

    async def test(place: Place) -> None:
        more = {"customer": "eve"}
        failed = await place.ended(args={"do": "fail", "more": more}, customer="ann")
        assert await place.found(where="customer=ann") == [failed]
        done = await place.ended(args={"more": more}, customer="ann", amount=5)
        assert await place.found(where="customer=eve") == [done]
        assert await place.found(where="customer=ann") == [failed]
        record = await place.executor.find(done)
        assert record.attributes == (("amount", 5), ("customer", "eve"))

    at_place(test)


def test_workflows_say_by_what_they_are_found() -> None:
    """Functions declare and set attributes as classes do."""

    async def test(place: Place) -> None:
        id = await place.submit("flows")
        await asyncio.sleep(0.5)
        assert await place.found(where="stage=begun") == [id]
        await place.executor.wait(id, 5_000)
        assert await place.found(where="stage=worked") == [id]
        assert await place.found(where="stage=begun") == []

    at_place(test)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"size": 1}, "ATTRIBUTE_UNKNOWN"),
        ({"amount": "1"}, "BAD_ATTRIBUTE"),
        ({"amount": True}, "BAD_ATTRIBUTE"),
        ({"amount": 1 << 63}, "BAD_ATTRIBUTE"),
        ({"urgent": 1}, "BAD_ATTRIBUTE"),
        ({"rate": float("nan")}, "BAD_ATTRIBUTE"),
        ({"due": datetime(2026, 1, 1)}, "BAD_ATTRIBUTE"),  # noqa: DTZ001
        ({"tags": "a"}, "BAD_ATTRIBUTE"),
        ({"tags": [1]}, "BAD_ATTRIBUTE"),
        ({"customer": "\ud800"}, "BAD_ATTRIBUTE"),
        ({"customer": "x" * 257}, "TOO_LARGE"),
        ({"tags": ["x"] * 21}, "TOO_LARGE"),
    ],
)
def test_what_is_no_attribute_is_refused_before_anything_is_stored(
    said: dict[str, Any], code: str
) -> None:
    """A wrong name or kind begins no procedure."""

    async def test(place: Place) -> None:
        error = await refusal(place.submit(**said))
        assert error.code == code
        failed = await run(place.executor, "search.order", {"more": {"amount": "x"}})
        assert failed.error is not None
        assert failed.error.code == "BAD_ATTRIBUTE"
        await place.executor.acknowledge(failed.id)
        assert await place.found() == []

    at_place(test)


@pytest.mark.parametrize(
    "wanted",
    [
        {"size": 1},
        {"state": "DONE"},
        {"state": 5},
        {"where": "customer"},
        {"where": "size=1"},
        {"where": "amount=1"},  # it is a number of the one and a text of the other
        {"where": "amount=x", "type": "search.order"},
        {"where": "urgent>true", "type": "search.order"},
        {"where": "rate^=1"},
        {"where": [f"customer={i}" for i in range(21)]},
        {"ended_from": -1},
        {"ended_to": "soon"},
        {"parent": "x"},
        {"limit": 0.5},
        {"limit": 1_001},
        {"token": "nonsense"},
        {"token": 5},
    ],
)
def test_what_is_no_filter_is_refused(wanted: dict[str, Any]) -> None:
    """The error names the part that is not understood."""

    async def test(place: Place) -> None:
        assert isinstance(await refusal(place.control.do("search", wanted)), InvalidArgument)

    at_place(test)


@pytest.mark.parametrize("given", [{"a b": str}, {"x": bytes}, {"x": "words"}])
def test_a_declaration_names_kinds(given: dict[str, Any]) -> None:
    """An attribute of an unknown kind is refused where it is declared."""
    with pytest.raises(InvalidArgument) as told:
        procedure("bad", attributes=given)(type("Bad", (Other,), {}))
    assert told.value.code == "PROCEDURE_DECLARATION"


def test_children_are_found_by_their_parent_and_runs_by_their_schedule() -> None:
    """Who started it is a way to find it."""

    async def test(place: Place) -> None:
        parent = await place.ended(args={"do": "children"})
        children = await place.found(parent=str(parent))
        assert len(children) == 5
        assert children == sorted(children, reverse=True)
        assert await place.found(parent=parent, limit=2) == children
        for name in ("s", "s/2"):
            every = {"name": name, "procedure": "other", "every_ms": 60_000}
            await place.control.do("schedule.set", every)
        await asyncio.sleep(300)
        runs = await place.found(schedule="s")
        assert len(runs) == 5
        assert {(await place.executor.find(id)).nonce.rpartition("/")[0] for id in runs} == {
            "schedule/s"
        }
        assert await place.found(schedule="s", limit=2) == runs
        told: Any = await place.control.do("schedule.trigger", {"name": "s", "key": "k"})
        asked = int(told["started"][0])
        assert await place.found(schedule="s") == [asked, *runs]

    at_place(test)


@pytest.mark.parametrize("looked", [3, 2_000])
def test_runs_of_a_schedule_are_found_however_many_there_are(
    looked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more than are sorted it was refused for good: a run each minute, kept for a week. Those
    that somebody asked for, for times long ago or of now, are at their times.
    """
    monkeypatch.setattr(limits, "SEARCH_SORTED_MAX", 5)
    monkeypatch.setattr(limits, "PROCEDURE_LOOKED_MAX", looked)

    async def test(place: Place) -> None:
        do, now_ms = place.control.do, place.executor.now_ms
        every = {"name": "s", "procedure": "other", "every_ms": 1_000}
        began = now_ms() // 1_000 * 1_000
        await do("schedule.set", every)
        await asyncio.sleep(10)
        await do("schedule.trigger", {"name": "s", "key": "a/7"})
        await do("schedule.trigger", {"name": "s", "key": "b"})
        times = {"from_ms": began - 7_000, "to_ms": began - 1, "key": "old"}
        await do("schedule.backfill", {"name": "s", **times, "overlap": "allow_all"})
        await asyncio.sleep(2)
        await do("schedule.remove", {"name": "s"})
        await asyncio.sleep(1)

        async def time(id: int) -> tuple[int, int]:
            return int((await place.executor.find(id)).nonce.rpartition("/")[2]), id

        for limit in (1, 4, 100):
            runs = await place.found(schedule="s", limit=limit)
            assert len(set(runs)) == len(runs)
            assert 11 + 2 + 7 <= len(runs) <= 13 + 2 + 7
            placed = [await time(id) for id in runs]
            assert placed == sorted(placed, reverse=True)

    at_place(test)


def test_a_child_that_was_rolled_back_is_not_found_as_ended_well() -> None:
    """Its state in the index is the one that it has."""

    async def test(place: Place) -> None:
        parent = await place.ended(args={"do": "children", "late": True})
        assert (await place.executor.find(parent)).error is not None
        assert await place.found(parent=parent, state="SUCCESS") == []
        assert len(await place.found(state="ROLLED_BACK")) == 6
        await place.executor.acknowledge(parent)
        assert await place.rows() == 0

    at_place(test)


def test_u27_the_cost_goes_with_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among very many others: neither reads nor looks at all of them."""

    async def test(place: Place) -> None:
        for i in range(300):
            await place.submit(args={"do": "wait"}, customer=f"c{i}")
            await place.submit("other", customer="x")
        await asyncio.sleep(1)
        loads, scans = 0, 0
        store: Any = place.executor.store
        load_many, scan = store.load_many, place.txn.scan

        async def counted(ids: Any) -> Any:
            nonlocal loads
            loads += len(ids)
            return await load_many(ids)

        async def scanned(*args: Any, **kw: Any) -> Any:
            nonlocal scans
            page = await scan(*args, **kw)
            scans += len(page.items)
            return page

        monkeypatch.setattr(store, "load_many", counted)
        monkeypatch.setattr(place.txn, "scan", scanned, raising=False)
        assert len(await place.found(where="customer=c7")) == 1
        page: Any = await place.control.do("search", {"type": "search.order", "limit": 10})
        assert len(page["items"]) == 10
        page = await place.control.do("search", {"state": "FAILED", "type": "search.order"})
        assert (page["items"], page["token"]) == ([], "")
        page = await place.control.do("search", {"state": "SUCCESS", "limit": 5})
        assert len(page["items"]) == 5
        assert loads < 60
        assert scans < 600

    at_place(test)


def test_a_page_ends_after_so_many_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that fits nothing costs a bounded page, and goes on by its token."""
    monkeypatch.setattr(limits, "PROCEDURE_LOOKED_MAX", 20)
    monkeypatch.setattr("procedures.engine.search._GLANCED_MAX", 10)
    monkeypatch.setattr(limits, "SEARCH_SORTED_MAX", 30)

    async def test(place: Place) -> None:
        first = await place.submit(args={"do": "wait"}, customer="ann", amount=1)
        for i in range(50):
            await place.submit(args={"do": "wait"}, customer="bob", amount=i)
        await asyncio.sleep(1)
        page: Any = await place.control.do("search", {"error": "X"})
        assert (page["items"], page["looked"]) == ([], 20)
        assert page["token"]
        assert await place.found(error="X") == []
        assert await place.found(queue="nowhere") == []
        assert await place.found(where=["customer=bob", "amount=0"], type="search.order") != [first]
        wide = place.control.do("search", {"where": "amount>=0", "type": "search.order"})
        assert isinstance(await refusal(wide), TooLarge)

    at_place(test)


def test_ordered_ids() -> None:
    """Ids of ended ones sort as their times do."""
    here: set[int] = set()
    ids = OrderedIds(here)
    for id in (5, 9, 7, 8):
        here.add(id)
        ids.add(id)
    assert list(ids.newest()) == [9, 8, 7, 5]
    assert list(ids.newest(8)) == [7, 5]
    here.discard(8)
    ids.discard()
    assert list(ids.newest()) == [9, 7, 5]
    here.add(8)
    ids.add(8)
    assert list(ids.newest()) == [9, 8, 7, 5]
    for id in range(10, 5_000):
        here.add(id)
        ids.add(id)
        here.discard(id)
        ids.discard()
    assert len(ids._ids) < 2_000
    assert list(ids.newest()) == [9, 8, 7, 5]


def test_keys_of_values_have_their_order() -> None:
    """Ranges over attributes are ranges of keys."""
    numbers = [-1e300, -2.5, -0.0, 1e-9, 2.0, float("inf")]
    whole = [-(1 << 63), -1, 0, 1, (1 << 63) - 1]
    texts = ["", "\x00", "a", "a\x00", "a\x00b", "ab", "b"]
    for kind, values in (("number", numbers), ("integer", whole), ("text", texts)):
        keys = [attributes.key_of(kind, value) for value in values]
        assert keys == sorted(keys)

"""The client's view (M1 to M4, M7): ids, results, lists, acknowledgement, over PROC_*."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
import pytest

from kv.base import errors, limits, rpc
from kv.base.adapters import LoopTimers
from kv.base.errors import DeadlineExceeded, InvalidArgument, KvorumError, NotFound, Refused
from kv.base.rights import Kind, Resource
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.client import ProcedureClient
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome
from procedures.engine.registry import procedure, step
from procedures.engine.service import ProcedureService
from procedures.verbs import PROC_GET, PROC_SUBMIT
from tests.procedures.engine.test_procedures_lifecycle import ALL
from tests.procedures.lab import Lab, refusal
from tests.procedures.zoo import Three, Zoo


class Caller:
    def __init__(self, deadline: float, user: str = "") -> None:
        self.deadline, self.user = deadline, user

    def reads(self, _resource: Resource) -> bool:
        return True

    def reads_some(self, _kind: Kind) -> bool:
        return True


class Wire:
    """A node's methods behind a wire: everything becomes msgpack and back, errors too."""

    def __init__(self, loop: simloop.SimLoop) -> None:
        self.loop = loop
        self.handlers: dict[int, Callable[[Any, list[Any]], Any]] = {}
        self.calls = 0

    def register(self, method: int, handler: Callable[[Any, list[Any]], Any]) -> None:
        self.handlers[method] = handler

    async def call_node(self, method: int, *args: Any, budget_ms: int = 0) -> Any:
        self.calls += 1
        budget_s = (budget_ms or limits.DEADLINE_MS_DEFAULT) / 1000
        try:
            async with asyncio.timeout(budget_s):
                work: Awaitable[list[Any]] = self.handlers[method](
                    Caller(self.loop.time() + budget_s), _wire(list(args))
                )
                return _wire(await work)
        except KvorumError as error:
            raise errors.from_wire(_wire(errors.to_wire(error))) from None
        except TimeoutError:
            raise DeadlineExceeded("no answer in time") from None


def _wire(data: list[Any]) -> list[Any]:
    return rpc.decode(msgpack.packb(data))


@procedure("keepsake", retention_ms=60_000)
class _Keepsake(Zoo):
    """Kept for a minute; `rounds` has the hour of those that say nothing."""

    @step(first=True)
    async def only(self, _ctx: StepContext) -> Outcome:
        return p.done("kept")


class Desk:
    """A lab with a client at its wire; `open` starts an executor behind it."""

    def __init__(self, loop: simloop.SimLoop) -> None:
        self.lab = Lab(loop, [*ALL, _Keepsake])
        self.loop = loop
        self.wire = Wire(loop)
        self.client = ProcedureClient(self.wire, LoopTimers(loop), owner="tester")

    def open(self) -> Executor:
        executor = self.lab.executor()
        service = ProcedureService(executor, self.lab.clock, LoopTimers(self.loop))
        service.register(self.wire)
        return executor


def at_desk(test: Callable[[Desk], Awaitable[None]]) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        await test(Desk(loop))

    simloop.run(main)


def test_m1_submit_answers_at_once() -> None:
    """A submission waited for its end, or its id meant nothing after a restart."""

    async def test(desk: Desk) -> None:
        async with desk.open():
            before = desk.loop.time()
            id = await desk.client.submit(Three, {"do": []}, nonce="n")
            assert desk.loop.time() == before
            told = await desk.client.get(id)
            assert (told["id"], told["name"], told["state"]) == (str(id), "three", "RUNNABLE")
            waiting = await desk.client.submit("waiter")
        async with desk.open():
            assert (await desk.client.wait(id))["result"] == {"seen": "two"}
            assert (await desk.client.get(waiting))["state"] in ("WAITING", "RUNNABLE")

    at_desk(test)


def test_m1_what_ended_with_its_submission_is_told_with_its_id() -> None:
    """Who waits for it asked once more for what the node knew when it answered; or was told what
    may have changed since: a look without waiting, what was acknowledged, what failed.
    """

    async def test(desk: Desk) -> None:
        async with desk.open():
            id = await desk.client.submit("swift", nonce="n")
            assert desk.wire.calls == 1
            told = await desk.client.wait(id)
            assert (told["id"], told["state"], told["result"]) == (str(id), "SUCCESS", "swiftly")
            assert desk.wire.calls == 1
            asked = await desk.client.wait(id)
            assert desk.wire.calls == 2
            assert {**asked, "age_ms": 0} == {**told, "age_ms": 0}
            assert await desk.client.submit("swift", nonce="n") == id
            assert (await desk.client.get(id))["state"] == "SUCCESS"
            assert desk.wire.calls == 4, "who does not wait wants to know what is now"
            assert await desk.client.submit("swift", nonce="n") == id
            await desk.client.acknowledge(id)
            assert (await refusal(desk.client.wait(id))).code == "PROCEDURE_NOT_FOUND"
            before = desk.wire.calls
            assert (await desk.client.wait(await desk.client.submit("three")))["state"] == "SUCCESS"
            assert desk.wire.calls == before + 2
            many = limits.PROCEDURE_RESULTS_MAX + 1
            ids = [await desk.client.submit("swift") for _ in range(many)]
            before = desk.wire.calls
            for one in ids:
                assert (await desk.client.wait(one))["result"] == "swiftly"
            assert desk.wire.calls == before + 1, "those that nobody waits for are kept for ever"

    at_desk(test)


def test_m2_result_or_error_comes_back() -> None:
    """A client got another result, or an error without the original code, type and message."""

    async def test(desk: Desk) -> None:
        async with desk.open():
            id = await desk.client.submit("three")
            assert await desk.client.result(id) == {"seen": "two"}
            id = await desk.client.submit("three", {"do": ["raise two"]})
            error = await refusal(desk.client.result(id))
            assert isinstance(error, Refused)
            assert (error.code, error.message) == ("STEP_ERROR", "two broke")
            assert error.details == {
                "procedure": str(id),
                "state": "ROLLED_BACK",
                "type": "ValueError",
            }
            id = await desk.client.submit("rounds", {"do": ["fail child"]})
            error = await refusal(desk.client.result(id))
            assert (error.code, error.message) == ("LEAF", "leaf b1 fell")
            assert error.details["child_name"] == "leaf"
            unknown = await refusal(desk.client.submit("nowhere"))
            assert isinstance(unknown, NotFound)
            assert unknown.code == "PROCEDURE_UNKNOWN"

    at_desk(test)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        b"\x81",
        b"\x81\x90\xc0",
        b"\xa1\xff",
        b"\xc7\x01\x05x",
        b"\x91" * 200_000,
        b"{}",
    ],
    ids=["empty", "reserved", "torn", "list-as-key", "no-utf8", "extension", "deep", "two-values"],
)
def test_j3_arguments_of_strangers_are_refused(packed: bytes) -> None:
    """Bytes that are no plain value would break the node's handler, or be stored."""

    async def test(desk: Desk) -> None:
        async with desk.open() as executor:
            call = desk.wire.call_node(PROC_SUBMIT, "three", packed, "tester", None)
            assert isinstance(await refusal(call), InvalidArgument)
            assert not executor.live()

    at_desk(test)


def test_m2_a_wait_ends_with_the_procedure() -> None:
    """A wait polled, or answered late, or not within what its caller grants."""

    async def test(desk: Desk) -> None:
        async with desk.open() as executor:
            id = await desk.client.submit("waiter")
            calls = desk.wire.calls
            waits = [asyncio.ensure_future(desk.client.wait(id)) for _ in range(5)]
            await asyncio.sleep(150)
            assert desk.wire.calls - calls == 5 * 3, "one call a minute each"
            before = desk.loop.time()
            await executor.abort(id, "enough")
            for told in await asyncio.gather(*waits):
                assert told["error"]["code"] == "ABORTED"
            assert desk.loop.time() - before < 0.1
            id = await desk.client.submit("waiter")
            late = await refusal(desk.client.wait(id, timeout_ms=1_500))
            assert isinstance(late, DeadlineExceeded)
            assert late.details == {"procedure": str(id), "state": "WAITING"}
            # a caller with little patience is answered within it
            told = (await desk.wire.call_node(PROC_GET, id, 60_000, budget_ms=2_000))[0]
            assert plain_data.decode(told)["state"] == "WAITING"
            for wait_ms in (-1, limits.WAIT_MS_MAX + 1):
                assert isinstance(
                    await refusal(desk.client.get(id, wait_ms=wait_ms)), InvalidArgument
                )

    at_desk(test)


def test_m3_list_shows_what_runs() -> None:
    """A client that lost its ids could not find its procedures, or whose they are."""

    async def test(desk: Desk) -> None:
        async with desk.open() as executor:
            waiting = [await desk.client.submit("waiter") for _ in range(3)]
            other = ProcedureClient(desk.wire, LoopTimers(desk.loop), owner="other")
            theirs = await other.submit("waiter")
            ended = await desk.client.submit("three")
            await desk.client.wait(ended)
            await asyncio.sleep(5)

            async def ids(**filters: Any) -> list[int]:
                return [int(told["id"]) for told in await desk.client.list(**filters)]

            assert await ids() == [ended, theirs, *reversed(waiting)]
            assert await ids(state="WAITING") == [theirs, *reversed(waiting)]
            assert await ids(state="WAITING", owner="tester") == list(reversed(waiting))
            assert await ids(state="SUCCESS") == [ended]
            assert await ids(name="three") == [ended]
            assert await ids(limit=2) == [ended, theirs]
            assert await ids(limit=2, before=theirs) == list(reversed(waiting))[:2]
            assert await ids(state="WAITING", limit=1, before=str(theirs)) == [waiting[-1]]
            (told,) = await desk.client.list(name="three")
            assert told["owner"] == "tester"
            assert told["locks"][1] == {"mode": "shared", "resource": "bank"}
            assert 5_000 <= told["age_ms"] < 6_000
            assert told["parent"] is None
            parent = await desk.client.submit("rounds")
            await executor.wait(parent, 1_000)
            assert {t["parent"] for t in await desk.client.list(name="leaf")} == {str(parent)}
            for bad in ({"state": "DONE"}, {"colour": "red"}, {"limit": 0.5}, {"before": "x"}):
                assert isinstance(await refusal(desk.client.list(**bad)), InvalidArgument), bad
            assert isinstance(await refusal(desk.client.list(owner=5)), InvalidArgument)

    at_desk(test)


def test_m3_large_results_are_listed_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of large results was a reply above the size of a frame: it could not be had at all."""
    monkeypatch.setattr(limits, "SCAN_PAGE_BYTES_MAX", 500)  # two or three of these

    async def test(desk: Desk) -> None:
        async with desk.open():
            ended = [await desk.client.submit("three") for _ in range(10)]
            for id in ended:
                assert "steps" in await desk.client.wait(id)
            running = [await desk.client.submit("waiter") for _ in range(10)]
            await asyncio.sleep(1)
            for filters, ids in (({}, ended + running), ({"state": "WAITING"}, running)):
                calls = desk.wire.calls
                told = await desk.client.list(**filters)
                assert [int(one["id"]) for one in told] == ids[::-1]
                assert not any("steps" in one for one in told)
                assert desk.wire.calls - calls > 1
                told = await desk.client.list(limit=7, **filters)
                assert [int(one["id"]) for one in told] == ids[:-8:-1]

    at_desk(test)


def test_a_page_of_a_list_has_looked_at_so_many_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may see no type had the master read all that is kept, with each request."""
    monkeypatch.setattr(limits, "PROCEDURE_LOOKED_MAX", 3)
    monkeypatch.setattr(limits, "PROCEDURE_PASSED_MAX", 3)

    async def test(desk: Desk) -> None:
        async with desk.open() as executor:
            kept = [await desk.client.submit("three") for _ in range(7)]
            for id in kept:
                await desk.client.wait(id)
            service = ProcedureService(executor, desk.lab.clock, LoopTimers(desk.loop))
            pages, before = 0, 1 << 32
            while before:
                rows, before = await service.page({"before": before}, lambda _name: False)
                assert not rows
                pages += 1
                assert before in (*kept, 0)
            assert pages == 3
            assert await service.page({"name": "three"}, lambda _name: False) == ([], 0)
            told = await desk.client.list(name="three")
            assert [int(one["id"]) for one in told] == kept[::-1]
            assert await desk.client.list(owner="nobody") == []

    at_desk(test)


def test_m4_kept_until_acknowledged() -> None:
    """A result went before it was fetched, or stayed after it was acknowledged."""

    async def test(desk: Desk) -> None:
        async with desk.open():
            id = await desk.client.submit("three", nonce="n")
            first = await desk.client.wait(id)
            assert await desk.client.get(id) == first, "a get without ack repeats"
        async with desk.open():
            again = await desk.client.get(id)
            assert (again["result"], again["steps"]) == (first["result"], first["steps"])
            await desk.client.acknowledge(id)
            gone = await refusal(desk.client.get(id))
            assert isinstance(gone, NotFound)
            assert gone.code == "PROCEDURE_NOT_FOUND"
            await desk.client.acknowledge(id)  # a lost answer: asked again
            assert desk.lab.store.rows() == 0
            waiting = await desk.client.submit("waiter")
            assert (await refusal(desk.client.acknowledge(waiting))).code == "NOT_ENDED"
            parent = await desk.client.submit("rounds")
            await desk.client.wait(parent)
            child = int((await desk.client.list(name="leaf"))[0]["id"])
            assert (await refusal(desk.client.acknowledge(child))).code == "HAS_PARENT"

    at_desk(test)


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True])
def test_m5_forgotten_after_its_retention(restart: bool) -> None:
    """A result that nobody fetched was kept for ever, or went too early; so did its nonce (M7)."""

    async def test(desk: Desk) -> None:
        hour = limits.PROCEDURE_RETENTION_MS_DEFAULT / 1000
        async with desk.open():
            ids = [await desk.client.submit("rounds", nonce=f"n{i}") for i in range(3)]
            for id in ids:
                await desk.client.wait(id)
            await asyncio.sleep(hour / 2)
            later = await desk.client.submit("three")
            await desk.client.wait(later)
            if not restart:
                await _retention(desk, ids, later, hour)
        if restart:
            async with desk.open():
                await _retention(desk, ids, later, hour)

    at_desk(test)


async def _retention(desk: Desk, ids: list[Any], later: Any, hour: float) -> None:
    await asyncio.sleep(hour / 2 - 60)
    for id in ids:
        assert (await desk.client.get(id))["state"] == "SUCCESS"
    await asyncio.sleep(120)
    for id in ids:
        assert isinstance(await refusal(desk.client.get(id)), NotFound)
    assert (await desk.client.get(later))["state"] == "SUCCESS"
    await asyncio.sleep(hour)
    assert desk.lab.store.rows() == 0


@pytest.mark.parametrize("restart", [False, True])
def test_m5_each_type_says_how_long_its_results_are_kept(restart: bool) -> None:
    """A setting for all would keep what runs each second as long as what somebody fetches tomorrow;
    what is declared would be forgotten with the process that knew it.
    """

    async def test(desk: Desk) -> None:
        async with desk.open():
            brief = await desk.client.submit("keepsake", nonce="n")
            usual = await desk.client.submit("rounds")
            for id in (brief, usual):
                await desk.client.wait(id)
            if not restart:
                await looked_at(desk, brief, usual)
        if restart:
            async with desk.open():
                await looked_at(desk, brief, usual)

    async def looked_at(desk: Desk, brief: Any, usual: Any) -> None:
        await asyncio.sleep(50)
        assert (await desk.client.get(brief))["result"] == "kept"
        await asyncio.sleep(70)
        assert isinstance(await refusal(desk.client.get(brief)), NotFound)
        assert (await desk.client.get(usual))["state"] == "SUCCESS"
        again = await desk.client.submit("keepsake", nonce="n")
        assert again != brief, "its nonce went with it"
        await desk.client.wait(again)

    at_desk(test)


def test_abort_over_the_wire() -> None:
    """An abort was not answered, or a refusal came back without its code."""

    async def test(desk: Desk) -> None:
        async with desk.open():
            id = await desk.client.submit("waiter")
            await desk.client.abort(id, "not needed")
            told = await desk.client.wait(id)
            assert (told["state"], told["error"]["message"]) == ("FAILED", "aborted: not needed")
            ended = await desk.client.submit("three")
            await desk.client.wait(ended)
            assert (await refusal(desk.client.abort(ended, "x"))).code == "NOT_ABORTABLE"

    at_desk(test)


def test_stopping_engine_answers() -> None:
    """Who waits at an engine that stops waited for ever, or took it for a failure."""

    async def test(desk: Desk) -> None:
        async with desk.open():
            id = await desk.client.submit("waiter")
            waiting = asyncio.ensure_future(desk.client.get(id, wait_ms=60_000))
            await asyncio.sleep(1)
        error = await refusal(waiting)
        assert (error.code, error.disposition) == ("UNAVAILABLE", "retry")
        assert (await refusal(desk.client.submit("waiter"))).code == "UNAVAILABLE"

    at_desk(test)

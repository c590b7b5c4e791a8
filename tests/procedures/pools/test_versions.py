"""Versions side by side: which one new procedures begin with, drains, moves. Virtual time."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import sys
import token
import tokenize
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kv.base import limits
from kv.base.errors import InvalidArgument, Refused
from kvorum.testing.simulation import loop as simloop
from procedures.engine import deploys, plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.deploys import BY_CODE, Deploy
from procedures.engine.executor import Executor
from procedures.engine.flow import Flow
from procedures.engine.procedure import Outcome, State
from procedures.engine.registry import Registry, declaration, procedure, step
from procedures.engine.workflow import workflow
from procedures.pools.control import Control
from procedures.pools.describe import described, remote_type
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import in_office, submission
from tests.procedures.zoo import Zoo

TWO = {1: 0, 2: 0}


class Ships(Zoo):
    @step(first=True)
    async def pack(self, ctx: StepContext) -> Outcome:
        return p.suspend(event=f"go {ctx.id}", then="send")


@procedure("boat", version=1, pool="p")
class Ship1(Ships):
    @step
    async def send(self, ctx: StepContext) -> Outcome:
        return p.done(1)


@procedure("boat", version=2, pool="p")
class Ship2(Ships):
    @step
    async def send(self, ctx: StepContext) -> Outcome:
        return p.done(2)


@procedure("boat", version=3, pool="p")
class Ship3(Ships):
    @step(first=True)
    async def pack(self, ctx: StepContext) -> Outcome:
        return p.suspend(event=f"go {ctx.id}", then="fly")

    send = None  # type: ignore[assignment]

    @step
    async def fly(self, ctx: StepContext) -> Outcome:
        return p.done(3)


@procedure("pinned", version=1, pool="p", pinned=True)
class Pinned1(Ship1):
    pass


@procedure("pinned", version=2, pool="p", accepts=[1])
class Pinned2(Ship2):
    pass


SHIPS = [Ship1, Ship2, Ship3, Pinned1, Pinned2]


async def _version(executor: Executor, name: str = "boat") -> int:
    id = await executor.submit(submission(name))
    return (await executor.find(id)).version


async def _waiting(office: Office, executor: Executor, name: str = "boat") -> int:
    id = await executor.submit(submission(name))
    await office.until(lambda: executor.live_one(id).event)  # type: ignore[union-attr]
    return id


async def _end(executor: Executor, id: int) -> object:
    executor.signal(f"go {id}")
    record = await executor.wait(id, 5_000)
    assert record.state is State.SUCCESS, record
    return plain_data.decode(record.result)


# ------------------------------------------------------------------------------ decisions
def test_u18_a_share_by_id_stays_with_its_ids() -> None:
    """Who has the new version at 10 percent has it at 20, too; and the share is what was said."""
    ids = range(1, 20_001)
    at = {
        share: {id for id in ids if deploys.chosen(Deploy(1, 2, share), TWO, id) == 2}
        for share in (0, 10, 20, 100)
    }
    assert at[0] == set()
    assert at[10] < at[20] < at[100] == set(ids)
    assert len(at[10]) == pytest.approx(2_000, rel=0.05)
    first = [deploys.chosen(Deploy(1, 2, 10), TWO, id) for id in range(1, 201)]
    assert 10 <= first.count(2) <= 30, "neighbours are spread"


def test_u18_what_new_ones_begin_with() -> None:
    """The newest that is not drained, what is set, or by code the one that was declared last."""
    assert deploys.chosen(deploys.NONE, TWO, 5) == 2
    assert deploys.chosen(Deploy(drained=(2,)), TWO, 5) == 1
    assert deploys.chosen(Deploy(default=1), TWO, 5) == 1
    assert deploys.chosen(Deploy(default=9), TWO, 5) == 2, "it is not there any more"
    late, early = BY_CODE + 1, BY_CODE + 9
    assert deploys.chosen(deploys.NONE, {7: 0, late: 200, early: 100}, 5) == late
    ramped = deploys.changed(deploys.NONE, TWO, {"ramp": 2, "percent": 5})
    assert deploys.given_out(ramped, TWO) == {2: 5, 1: 95}
    whole = deploys.changed(ramped, TWO, {"percent": 100})
    assert deploys.given_out(whole, TWO) == {2: 100.0}


@pytest.mark.parametrize(
    "said",
    [
        {"default": 3}, {"ramp": "2"}, {"ramp": 2, "percent": 101}, {"percent": -1}, {"drain": 9},
        {"default": 2, "drain": 2}, {"undrain": True},
    ],
)  # fmt: skip
def test_u18_settings_that_cannot_be_are_refused(said: dict[str, Any]) -> None:
    """A version that nobody has was made the default, and new ones waited for ever."""
    with pytest.raises(InvalidArgument):
        deploys.changed(deploys.NONE, TWO, said)


def test_u18_somebody_must_be_left() -> None:
    """All versions were drained."""
    one = deploys.changed(deploys.NONE, TWO, {"drain": 2})
    assert deploys.chosen(one, TWO, 5) == 1
    with pytest.raises(InvalidArgument, match="all versions would be drained"):
        deploys.changed(one, TWO, {"drain": 1})


def test_u18_the_way_back() -> None:
    """A rollback ends a ramp, else it is the default before; twice is there and back."""
    two = deploys.changed(Deploy(default=1), TWO, {"default": 2})
    back = deploys.rolled_back(two, TWO)
    assert back.default == 1
    assert deploys.rolled_back(back, TWO).default == 2
    ramped = deploys.changed(Deploy(default=1), TWO, {"ramp": 2, "percent": 50})
    assert deploys.given_out(deploys.rolled_back(ramped, TWO), TWO) == {1: 100.0}
    assert deploys.rolled_back(deploys.NONE, TWO).default == 1
    with pytest.raises(InvalidArgument, match="no version before"):
        deploys.rolled_back(deploys.NONE, {1: 0})


def test_u18_the_words_of_an_f_string_are_one_as_every_python_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Since 3.12 it is many tokens: after an upgrade of Python, or with two Pythons side by side,
    the same code was another version, and what was live waited for workers of the old one.
    """
    source = 'x = 1\ny = f"a{x:>{2}}b" "c"\n'
    told = tokenize.generate_tokens(io.StringIO(source).readline)
    said = [word for word in deploys.words(source, told) if word.strip()]
    assert said == ["x", "=", "1", "y", "=", 'f"a{x:>{2}}b"', '"c"']
    for number, kind in ((901, "FSTRING_START"), (902, "FSTRING_MIDDLE"), (903, "FSTRING_END")):
        monkeypatch.setitem(tokenize.tok_name, number, kind)
    line = 'y = f"a{x}b" + f"""\n{f"{x}"}"""\n'
    tokens = [  # as 3.12 has them: kind, text, where it begins and ends
        (token.NAME, "y", (1, 0), (1, 1)),
        (token.OP, "=", (1, 2), (1, 3)),
        (901, 'f"', (1, 4), (1, 6)),
        (902, "a", (1, 6), (1, 7)),
        (token.OP, "{", (1, 7), (1, 8)),
        (token.NAME, "x", (1, 8), (1, 9)),
        (token.OP, "}", (1, 9), (1, 10)),
        (902, "b", (1, 10), (1, 11)),
        (903, '"', (1, 11), (1, 12)),
        (token.OP, "+", (1, 13), (1, 14)),
        (901, 'f"""', (1, 15), (1, 19)),
        (902, "\n", (1, 19), (2, 0)),
        (token.OP, "{", (2, 0), (2, 1)),
        (901, 'f"', (2, 1), (2, 3)),
        (token.NAME, "x", (2, 4), (2, 5)),
        (903, '"', (2, 6), (2, 7)),
        (token.OP, "}", (2, 7), (2, 8)),
        (903, '"""', (2, 8), (2, 11)),
    ]
    infos = [tokenize.TokenInfo(*one, line) for one in tokens]
    assert list(deploys.words(line, infos)) == ["y", "=", 'f"a{x}b"', "+", 'f"""\n{f"{x}"}"""']


def test_u18_changed_code_is_another_version() -> None:
    """Of its words, not of comments or empty lines; the same code is the same version anywhere."""

    def one(ctx: object) -> int:
        return 1

    def other(ctx: object) -> int:
        return 2

    def spaced(ctx: object) -> int:

        # the same
        return 1  # as one

    first = deploys.code_version({"one": one})
    assert first == deploys.code_version({"one": one}) >= BY_CODE
    assert first != deploys.code_version({"one": other})
    spaced.__name__ = "one"
    assert deploys.code_version({"x": spaced}) != first

    @procedure("coded", version="code")
    class Coded:
        @step(first=True)
        async def only(self, ctx: StepContext) -> Outcome:
            return p.done(None)

    assert declaration(Coded).version >= BY_CODE
    with pytest.raises(InvalidArgument, match='or "code"'):
        procedure("coded.wrong", version="text")(Coded)


_MODULE = """
from procedures.engine.procedure import done
from procedures.engine.registry import procedure, step
from procedures.engine.workflow import workflow

RATE = 2  # percent

@workflow("used.flow", version="code")
async def flowing(flow):
    return await flow.step(charge)

@procedure("used.class", version="code")
class Classy:
    @step(first=True)
    async def begin(self, ctx):
        return self._end(ctx)

    def _end(self, ctx):
        return done(fee(1))

    def unused(self):
        return 1

def charge(ctx):
    return fee(100)

def fee(amount):
    return amount * RATE

def other():
    return 3

@workflow("used.other", version="code")
async def starts(flow):
    return await flow.start(flowing)
"""
FLOW, CLASS, STARTS = "flowing", "Classy", "starts"


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("fee(100)", "fee(200)", {FLOW}),
        ("amount * RATE", "amount + RATE", {FLOW, CLASS}),
        ("RATE = 2  # percent", "RATE = 3", {FLOW, CLASS}),
        ("RATE = 2  # percent", "RATE = 2", set()),
        ("done(fee(1))", "done(fee(2))", {CLASS}),
        ("return 1", "return 2", set()),
        ("return 3", "return 4", set()),
        ("flow.step(charge)", "flow.step(charge, 1)", {FLOW}),
        ("flow.start(flowing)", "flow.start(flowing, 1)", {STARTS}),
    ],
)
def test_u18_a_version_by_code_covers_what_it_uses_of_its_module(
    tmp_path: Path, old: str, new: str, changes: set[str]
) -> None:
    """A helper was changed, and live ones went on with the new one as if nothing had been."""
    assert _MODULE.count(old) == 1
    before, after = (
        _versions(tmp_path / str(number) / "used_sample.py", text)
        for number, text in enumerate((_MODULE, _MODULE.replace(old, new)))
    )
    assert {name for name in before if before[name] != after[name]} == changes


def _versions(path: Path, text: str) -> dict[str, int]:
    path.parent.mkdir()
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[path.stem]
    return {name: declaration(getattr(module, name)).version for name in (FLOW, CLASS, STARTS)}


# ------------------------------------------------------------------------------ masters and workers
def test_u18_versions_are_shown_with_who_has_them() -> None:
    """Counts, shares, workers, and which may go: while new ones or live ones need it, not."""

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        office.hire("old", types=office.types(["boat"], [1]))
        await office.entered("old")
        ids = [await _waiting(office, executor) for _ in range(2)]
        office.hire("new", types=office.types(["boat"], [1, 2]))
        await office.entered("new")
        assert await _version(executor) == 2
        await control.do("version.set", {"name": "boat", "default": 1})
        assert await _version(executor) == 1
        await control.do("version.set", {"name": "boat", "default": 2, "drain": 1})
        (shown,) = (await control.do("version.page", {"name": "boat"}))["items"]
        first, second = shown["versions"]
        assert (first["version"], first["live"], first["workers"]) == (1, 3, ["new", "old"])
        assert not first["safe_to_stop"]
        assert first["why_not"] == "3 live procedures run with it"
        assert (second["new_percent"], second["safe_to_stop"]) == (100.0, False)
        for id in ids:
            assert await _end(executor, id) == 1
        await control.do("version.set", {"name": "boat", "undrain": 1, "default": 1})
        assert (await control.do("version.rollback", {"name": "boat"}))["default"] == 2
        with pytest.raises(InvalidArgument, match="no version 7"):
            await control.do("version.set", {"name": "boat", "default": 7})

    in_office(test, SHIPS)


def test_u18_the_next_master_has_what_was_set() -> None:
    """Also which version was declared when, and a ramp by the same ids."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, SHIPS)
        executor = await office.open(office.executor())
        office.hire("w", types=office.types(["boat"], [1, 2]))
        await office.entered("w")
        wanted = {"name": "boat", "default": 1, "ramp": 2, "percent": 30}
        await Control(executor).do("version.set", wanted)
        found = Counter([await _version(executor) for _ in range(40)])
        await office.close(executor)
        executor = await office.open(office.executor())
        for _ in range(40):
            found[await _version(executor)] += 1
        assert 10 <= found[2] <= 40
        assert found[1] + found[2] == 80
        await office.end()
        await office.close(executor)

    simloop.run(main)


OLD, NEW = BY_CODE + 7, BY_CODE + 3


def _dock(loop: simloop.SimLoop, *versions: int) -> Office:
    """An office whose workers have a type in these versions by code: of each deploy one."""
    office = Office(loop, [])
    for version in versions:
        declared = replace(declaration(Ship1), name="sloop", version=version)
        office.lab.types.put(declared)
    return office


def _hire(office: Office, name: str, *versions: int) -> None:
    office.hire(name, types=office.types(["sloop"], list(versions)))


async def _new_ones_begin_with(office: Office, executor: Executor, version: int) -> None:
    await office.until(lambda: executor.types.get("sloop").version == version)
    assert await _version(executor, "sloop") == version


def test_u18_a_number_is_newer_than_code_that_was_declared_before_it() -> None:
    """Who went back to numbers had new ones begin with code that nobody had any more; or a lower
    number takes over from a higher one.
    """
    for since, wanted in (
        ({1: 10, 2: 5}, 2),
        ({1: 10, OLD: 20}, OLD),
        ({1: 10, OLD: 20, 2: 30}, 2),
        ({1: 30, OLD: 20, 2: 10}, OLD),
        ({OLD: 20, NEW: 40, 2: 30}, NEW),
        ({2: 20, OLD: 20}, OLD),
        ({}, 0),
    ):
        assert deploys.newest(since) == wanted, since
    assert deploys.newest({1: 10, OLD: 20, 2: 30}, [2]) == OLD
    assert deploys.newest({1: 10, OLD: 20, 2: 30}, [2, OLD]) == 1


def test_u18_from_code_to_numbers_and_back() -> None:
    """Each deploy takes the new ones over, in whichever way it counts, also for the next master;
    workers that drain what was before change nothing, until they are all that is left.
    """

    async def main(loop: simloop.SimLoop) -> None:
        office = _dock(loop, 1, OLD, 2)
        executor = await office.open(office.executor())
        for name, version in (("w1", 1), ("w2", OLD), ("w3", 2)):
            _hire(office, name, version)
            await office.entered(name)
            assert await _version(executor, "sloop") == version
        await office.dismiss("w1")
        await office.dismiss("w2")
        for name, version in (("drains", OLD), ("counts", 1)):
            _hire(office, name, version)
            await office.entered(name)
        await asyncio.sleep(60)
        assert await _version(executor, "sloop") == 2
        await office.close(executor)
        executor = await office.open(office.executor())
        assert await _version(executor, "sloop") == 2
        await office.until(
            lambda: len(executor.crew.hands) == 3  # type: ignore[union-attr]
        )
        await office.dismiss("w3")
        await _new_ones_begin_with(office, executor, OLD)
        _hire(office, "w4", 2)
        await office.entered("w4")
        await _new_ones_begin_with(office, executor, 2)
        await office.end()
        await office.close(executor)

    simloop.run(main)


def test_u18_older_code_that_is_deployed_again_is_the_newest() -> None:
    """It kept the time of its first deploy: new ones went on beginning with a version that no
    worker had any more, and waited for ever. Also for the next master, and the other way round.
    """

    async def main(loop: simloop.SimLoop) -> None:
        office = _dock(loop, OLD, NEW)
        executor = await office.open(office.executor())
        _hire(office, "w1", OLD)
        await office.entered("w1")
        await office.dismiss("w1")
        _hire(office, "w2", NEW)
        await office.entered("w2")
        assert await _version(executor, "sloop") == NEW
        _hire(office, "w3", OLD)  # one's way back, beside the bad one …
        await office.entered("w3")
        await office.dismiss("w2")  # … and instead of it
        await _new_ones_begin_with(office, executor, OLD)
        assert await _end(executor, await _waiting(office, executor, "sloop")) == 1
        await office.close(executor)
        executor = await office.open(office.executor())
        assert await _version(executor, "sloop") == OLD
        await office.until(lambda: "w3" in executor.crew.hands)  # type: ignore[union-attr]
        await office.dismiss("w3")
        await asyncio.sleep(60)
        _hire(office, "w4", NEW)
        await office.entered("w4")
        await _new_ones_begin_with(office, executor, NEW)
        await office.end()
        await office.close(executor)

    simloop.run(main)


def test_u18_workers_that_drain_older_code_do_not_make_it_the_newest() -> None:
    """They come and go beside those of the last deploy; these may start again, too. Only when they
    are gone new ones begin with the older code, and with the newer when somebody has it again.
    """

    async def main(loop: simloop.SimLoop) -> None:
        office = _dock(loop, OLD, NEW)
        executor = await office.open(office.executor())
        for name, version in (("old", OLD), ("new", NEW)):
            _hire(office, name, version)
            await office.entered(name)
        await office.dismiss("old")
        await asyncio.sleep(60)
        _hire(office, "older", OLD)
        await office.entered("older")
        assert await _version(executor, "sloop") == NEW
        await office.dismiss("new")
        await asyncio.sleep(5)
        assert await _version(executor, "sloop") == NEW
        _hire(office, "newer", NEW)
        await office.entered("newer")
        await asyncio.sleep(60)
        assert await _version(executor, "sloop") == NEW
        await office.kill("newer")
        await _new_ones_begin_with(office, executor, OLD)
        _hire(office, "again", NEW)
        await office.entered("again")
        await _new_ones_begin_with(office, executor, NEW)
        await office.end()
        await office.close(executor)

    simloop.run(main)


def test_u18_a_new_master_lets_the_newest_code_be() -> None:
    """Its workers come back one after the other: who is first has not declared anything anew."""

    async def main(loop: simloop.SimLoop) -> None:
        office = _dock(loop, OLD, NEW)
        executor = await office.open(office.executor())
        for name, version in (("old", OLD), ("new", NEW)):
            _hire(office, name, version)
            await office.entered(name)
        await office.close(executor)
        office.ways["new"].cut = True
        executor = await office.open(office.executor())
        await office.until(lambda: "old" in executor.crew.hands)  # type: ignore[union-attr]
        assert await _version(executor, "sloop") == NEW
        office.ways["new"].cut = False
        await office.until(lambda: "new" in executor.crew.hands)  # type: ignore[union-attr]
        assert await _version(executor, "sloop") == NEW
        await office.end()
        await office.close(executor)

    simloop.run(main)


def test_u18_versions_by_code_go_when_nobody_needs_them() -> None:
    """Each deploy left one for ever: a row, a line of each list, and more for each worker to read.
    What lives, what is set and the last few stay.
    """
    kept = limits.VERSIONS_BY_CODE_KEPT
    versions = [BY_CODE + 100 - n for n in range(kept + 5)]

    async def main(loop: simloop.SimLoop) -> None:
        office = _dock(loop, *versions)
        executor = await office.open(office.executor())
        waits = 0
        for n, version in enumerate(versions):
            _hire(office, f"w{n}", version)
            await office.entered(f"w{n}")
            if n == 1:
                waits = await _waiting(office, executor, "sloop")
            if n == 2:
                control = Control(executor)
                await control.do("version.set", {"name": "sloop", "drain": version})
            await office.dismiss(f"w{n}")
            await asyncio.sleep(0.01)
        left = sorted([versions[1], versions[2], *versions[-kept:]])
        await asyncio.sleep(70)  # a sweep

        async def there(executor: Executor) -> list[int]:
            (shown,) = (await Control(executor).do("version.page", {"name": "sloop"}))["items"]
            return [one["version"] for one in shown["versions"]]

        assert await there(executor) == left
        await office.close(executor)
        executor = await office.open(office.executor())
        assert await there(executor) == left
        _hire(office, "back", versions[0], versions[1])  # what is gone is declared again
        await office.entered("back")
        await _new_ones_begin_with(office, executor, versions[0])
        assert await _end(executor, waits) == 1
        await office.end()
        await office.close(executor)

    simloop.run(main)


def test_u18_what_workers_had_goes_and_what_runs_here_stays() -> None:
    """Nodes that took over a type and its version from workers lost it with the workers' row."""
    types = Registry([Ship1])
    for declared in (Ship1, Ship2):
        types.learn(remote_type(described(declaration(declared), "p")))
    for version in (1, 2):
        types.forget("boat", version)
    assert list(types.since("boat")) == [1]
    assert types.get("boat", 1).remote is False


def test_u18_live_ones_move_or_say_why_not() -> None:
    """All or none; with the ids of those that cannot; `partial` moves the others."""

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        office.hire("w1", types=office.types(["boat"], [1]))
        await office.entered("w1")
        ids = [await _waiting(office, executor) for _ in range(3)]
        office.hire("w2", types=office.types(["boat"], [2, 3]))
        await office.entered("w2")
        with pytest.raises(Refused) as met:
            await control.do("version.move", {"name": "boat", "to": 3})
        assert met.value.code == "NOT_MOVABLE"
        assert [one["id"] for one in met.value.details["refused"]] == [str(id) for id in ids]
        assert "has no step 'send'" in met.value.message
        tried = await control.do("version.move", {"name": "boat", "to": 2, "dry_run": True})
        assert (tried["moved"], tried["refused"]) == (3, [])
        assert (await executor.find(ids[0])).version == 1
        done = await control.do("version.move", {"name": "boat", "to": 2, "actor": "ada"})
        assert done["moved"] == 3
        (shown,) = (await control.do("version.page", {"name": "boat"}))["items"]
        assert shown["versions"][0]["safe_to_stop"]
        await office.dismiss("w1")
        for id in ids:
            assert await _end(executor, id) == 2
        audit = await control.do("audit.page", {})
        assert [(one["what"], one["count"]) for one in audit["items"]] == [("move", 3)]

    in_office(test, SHIPS)


def test_u18_very_many_are_moved_so_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request had a master busy for minutes, and its caller without an answer."""
    monkeypatch.setattr(limits, "VERSION_MOVES_MAX", 2)

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        office.hire("w1", types=office.types(["boat"], [1, 2]))
        await office.entered("w1")
        await control.do("version.set", {"name": "boat", "default": 1})
        ids = [await _waiting(office, executor, "boat") for _ in range(5)]
        after, moved = "0", []
        while not moved or after != "0":
            asked = {"name": "boat", "to": 2, "after": after}
            page = await control.do("version.move", asked)
            moved.append(page["moved"])
            after = page["after"]
        assert moved == [2, 2, 1]
        assert {(await executor.find(id)).version for id in ids} == {2}
        with pytest.raises(InvalidArgument, match="after"):
            await control.do("version.move", {"name": "boat", "to": 2, "after": "x"})

    in_office(test, SHIPS)


def test_u18_what_is_pinned_ends_with_its_version() -> None:
    """Neither a newer version that accepts it has it, nor is it moved to that."""

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        office.hire("w1", types=office.types(["pinned"], [1]))
        await office.entered("w1")
        id = await _waiting(office, executor, "pinned")
        await office.dismiss("w1")
        office.hire("w2", types=office.types(["pinned"], [2]))
        await office.entered("w2")
        with pytest.raises(Refused, match="it is pinned to version 1"):
            await control.do("version.move", {"name": "pinned", "to": 2})
        executor.signal(f"go {id}")
        await asyncio.sleep(1)
        live = executor.live_one(id)
        assert live is not None
        assert executor.crew is not None
        why = executor.crew.why_waits(live)
        assert why == "no worker of pool p serves pinned of version 1"
        office.hire("w3", types=office.types(["pinned"], [1]))
        assert plain_data.decode((await executor.wait(id, 5_000)).result) == 1

    in_office(test, SHIPS)


async def reserve(ctx: StepContext) -> int:
    return 1


async def other(ctx: StepContext) -> int:
    return 2


@workflow("wares", version=1, pool="p")
async def wares1(flow: Flow) -> Any:
    await flow.step(reserve)
    return await flow.signal("go")


@workflow("wares", version=2, pool="p")
async def wares2(flow: Flow) -> Any:
    await flow.step(reserve)
    return [await flow.signal("go")]


@workflow("wares", version=3, pool="p")
async def wares3(flow: Flow) -> Any:
    await flow.step(other)
    return await flow.signal("go")


def test_u18_a_workflows_code_says_whether_it_fits() -> None:
    """Its step is always there: only a worker that has its code can tell."""

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        office.hire("w1", types=office.types(["wares"], [1]))
        await office.entered("w1")
        id = await _waiting(office, executor, "wares")
        office.hire("w2", types=office.types(["wares"], [2, 3]))
        await office.entered("w2")
        with pytest.raises(Refused, match="reserve"):
            await control.do("version.move", {"name": "wares", "to": 3})
        assert (await control.do("version.move", {"name": "wares", "to": 2}))["moved"] == 1
        await office.dismiss("w1")
        await control.do("signal", {"id": id, "name": "go", "payload": 5})
        assert plain_data.decode((await executor.wait(id, 5_000)).result) == [5]

    in_office(test, [wares1, wares2, wares3])

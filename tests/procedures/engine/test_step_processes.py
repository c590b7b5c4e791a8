"""Steps in processes beside their engine: they do there what they do here, and whatever a step does
to its process, the engine goes on. Real processes, real time.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kv.base import limits
from kv.base.adapters import LoopTimers, SystemClock, SystemRng
from kv.base.errors import InvalidArgument, KvorumError, Refused, Unavailable
from kvorum.steps.step_processes import StepProcesses
from procedures.engine import core, plain_data
from procedures.engine.executor import Executor
from procedures.engine.memory_store import MemoryStore
from procedures.engine.procedure import State
from procedures.engine.records import Record
from procedures.engine.registry import Registry, declared_in
from procedures.engine.submission import Submission
from procedures.pools import emitted, inbox
from tests.kit.waiting import until
from tests.procedures import harmful
from tests.procedures.lab import OneTable
from tests.procedures.pools.pool_lab import TableRows

pytestmark = pytest.mark.timeout(300)
MODULES = [harmful.__name__]
_WAIT_MS = 200_000  # a loaded machine starts a process in seconds, and a step may run twice
Test = Callable[[Executor], Awaitable[Any]]


def served(
    test: Test,
    *,
    apart: bool = True,
    store: MemoryStore | None = None,
    modules: Sequence[str] = MODULES,
    threads: int = limits.PROCEDURE_THREADS_DEFAULT,
) -> Any:
    """Run `test` with an executor whose users' steps run apart, or here."""

    async def main() -> Any:
        timers = LoopTimers(asyncio.get_running_loop())
        own = MemoryStore() if store is None else store
        registry = Registry()
        registry.users_follow()
        for cls in declared_in(modules):
            registry.add(cls)
        runner = StepProcesses(modules, timers, threads=threads) if apart else None
        executor = Executor(
            *(own, registry, OneTable(), SystemClock(), timers, SystemRng()),
            rows=TableRows(own.table),
            runner=runner,
            threads=threads,
        )
        try:
            async with executor:
                return await test(executor)
        finally:
            if runner is not None:
                runner.close()
                await runner.closed()

    return asyncio.run(main())


async def submitted(executor: Executor, name: str, args: Any) -> int:
    return await executor.submit(Submission(name, args, "tester"))


async def over(executor: Executor, id: int) -> Record:
    """As it has ended, however loaded the machine is."""
    for _ in range(-(-_WAIT_MS // limits.WAIT_MS_MAX)):
        record = await executor.wait(id, limits.WAIT_MS_MAX)
        if record.ended:
            break
    return record


async def ended(executor: Executor, name: str, args: Any) -> Record:
    record = await over(executor, await submitted(executor, name, args))
    assert record.ended, record
    return record


async def set_aside(executor: Executor, id: int) -> str:
    told = await until(lambda: (live := executor.live_one(id)) is not None and live.parked)
    return str(told)


def _shown(record: Record) -> list[Any]:
    error = None if record.error is None else record.error.to_plain()
    if error is not None and "traceback" in error:  # below the user's line are other frames of ours
        error["traceback"] = error["traceback"].splitlines()[:3]
    return [record.state.name, record.step, plain_data.decode(record.result), error]


_CASES = [
    ("every.reads", {"a": [1, None]}),
    ("every.outcomes", None),
    *[
        ("every.error", how)
        for how in (
            "raise",
            "fail",
            "nothing",
            "unknown",
            "not plain",
            "too large",
            "no table",
            "read no table",
            "condition",
            "empty key",
            "exit",
            "generator exit",
            "keyboard",
            "none of ours",
            "child",
            "nobody",
        )
    ],
    *[
        ("every.async_error", how)
        for how in ("raise", "exit", "generator exit", "keyboard", "none of ours")
    ],
    ("every.large", None),
]


@pytest.mark.slow
def test_a_step_does_apart_what_it_does_here() -> None:
    """Results, states, errors with their words and details, rows: the same on both ways."""

    async def test(executor: Executor) -> list[list[Any]]:
        found = [_shown(await ended(executor, name, args)) for name, args in _CASES]
        table = executor.store.table  # type: ignore[attr-defined]
        rows = [table.read(key, table.clock) for key in table.keys(b"", b"")]
        return [*found, [None if row is None else row.value for row in rows]]

    there, here = served(test), served(test, apart=False)
    for (name, args), one, other in zip(_CASES, there, here, strict=False):
        assert one == other, (name, args)
    assert there[-1] == here[-1]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exit", "kill", "segv"])
def test_a_step_that_ends_its_process_is_set_aside(how: str, tmp_path: Path) -> None:
    """It ended every process that ran it, for ever, and its locks were held from others."""
    log, mended = tmp_path / "log", tmp_path / "mended"
    args = {"how": how, "log": str(log), "mended": str(mended)}
    store = MemoryStore()

    async def first(executor: Executor) -> int:
        id = await submitted(executor, "harmful.ends", args)
        why = await set_aside(executor, id)
        assert "its step work ended 3 processes" in why
        assert f"kvorum proc retry {id}" in why
        assert "exclusive harmful/lock" in why
        attempts = [line.split()[-1] for line in log.read_text().splitlines()]
        assert attempts == ["1", "2", "3"]
        waits = await submitted(executor, "harmful.ends", {"how": ""})
        told = await executor.explain(waits)
        assert f"held by procedure {id} (harmful.ends, left alone)" in told["sentence"]
        assert "set aside" in (await executor.explain(id))["sentence"]
        assert (await ended(executor, "harmful.quick", 5)).state is State.SUCCESS
        return id

    id = served(first, store=store)

    async def then(executor: Executor) -> None:
        await set_aside(executor, id)  # a new start does not run it again
        assert len(log.read_text().splitlines()) == limits.PROCEDURE_DEATHS_MAX
        await executor.surgeon.retry(id, "once more", "tester")
        again = 2 * limits.PROCEDURE_DEATHS_MAX
        await until(lambda: len(log.read_text().splitlines()) == again)
        await set_aside(executor, id)
        assert core.aside(await executor.find(id))
        mended.touch()
        await executor.surgeon.retry(id, "mended", "tester")
        record = await over(executor, id)
        assert record.state is State.SUCCESS

    served(then, store=store)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["abort", "bypass"])
def test_one_set_aside_can_be_ended(what: str) -> None:
    """Nothing but its step could end it; its locks stayed."""

    async def test(executor: Executor) -> None:
        id = await submitted(executor, "harmful.ends", {"how": "exit"})
        await set_aside(executor, id)
        await getattr(executor.surgeon, what)(id, "enough", "tester")
        record = await over(executor, id)
        ends = {"abort": State.ROLLED_BACK, "bypass": State.BYPASSED}
        assert record.state is ends[what]
        assert (await ended(executor, "harmful.ends", {"how": ""})).state is State.SUCCESS

    served(test)


@pytest.mark.slow
def test_an_undo_that_ends_its_process_is_set_aside() -> None:
    """An undo is tried for ever: this one ended its process each time."""

    async def test(executor: Executor) -> None:
        id = await submitted(executor, "harmful.undo", {})
        assert "its step undo:back ended 3 processes" in await set_aside(executor, id)
        await executor.surgeon.bypass(id, "enough", "tester")

    served(test)


@pytest.mark.slow
def test_what_ran_beside_it_goes_on(tmp_path: Path) -> None:
    """Steps that shared the process with one that ended it were set aside with it."""
    log, go = tmp_path / "log", tmp_path / "go"

    async def test(executor: Executor) -> None:
        until = {"until": str(go), "log": str(log)}
        beside = await submitted(executor, "harmful.waits", until)
        args = {"how": "exit", "log": str(log), "wait_for": str(log)}
        harms = await submitted(executor, "harmful.ends", args)
        await set_aside(executor, harms)
        go.touch()
        record = await over(executor, beside)
        assert record.state is State.SUCCESS
        assert log.read_text().count("harmful.ends") == limits.PROCEDURE_DEATHS_MAX

    served(test)


@pytest.mark.slow
def test_long_steps_beside_it_do_not_hide_it(tmp_path: Path) -> None:
    """Those that had shared its process ran alone, one beside the other, until the last had ended:
    so long nobody was told what had ended it.
    """
    log, go = tmp_path / "log", tmp_path / "go"

    async def test(executor: Executor) -> None:
        until_go = {"until": str(go), "log": str(log)}
        count = limits.STEP_PROCESSES_ALONE_NEW_MAX
        beside = [await submitted(executor, "harmful.waits", until_go) for _ in range(count)]
        await until(lambda: log.exists() and log.read_text().count("\n") == count)
        harms = await submitted(executor, "harmful.ends", {"how": "exit"})
        await set_aside(executor, harms)
        go.touch()
        for id in beside:
            assert (await over(executor, id)).state is State.SUCCESS

    served(test)


@pytest.mark.slow
def test_a_step_that_died_once_goes_on() -> None:
    """A death that did not come again was counted for the next step, or nothing was told of it."""

    async def test(executor: Executor) -> None:
        record = await ended(executor, "harmful.ends", {"how": "exit", "times": 1})
        assert (record.state, record.deaths, record.lost) == (State.SUCCESS, 0, 0)
        assert plain_data.decode(record.result) == 2
        assert [one.outcome.partition(":")[0] for one in record.history] == ["next", "died", "done"]

    served(test)


@pytest.mark.slow
def test_a_step_that_blocks_its_loop_holds_up_nobody(tmp_path: Path) -> None:
    """An async step that blocks stopped the loop that serves requests, and all other steps."""
    log, go = tmp_path / "log", tmp_path / "go"

    async def test(executor: Executor) -> None:
        args = {"until": str(go), "log": str(log)}
        id = await submitted(executor, "harmful.blocks", args)
        await until(log.exists)  # this loop goes round
        for n in range(3):
            assert (await ended(executor, "harmful.quick", n)).state is State.SUCCESS
        assert not (await executor.find(id)).ended
        go.touch()
        record = await over(executor, id)
        assert plain_data.decode(record.result) == 1
        assert log.read_text().count("\n") == 1

    served(test)


@pytest.mark.slow
def test_what_was_given_to_another_process_is_not_begun(tmp_path: Path) -> None:
    """The loop that was blocked had heard of it, and ran it, too, as soon as it went round."""
    log, go = tmp_path / "log", tmp_path / "go"

    async def test(executor: Executor) -> None:
        assert (await ended(executor, "harmful.quick", 0)).ended
        blocks = {"until": str(go)}
        beside = {"until": str(tmp_path), "log": str(log)}
        first, second = await asyncio.gather(
            submitted(executor, "harmful.blocks", blocks),
            submitted(executor, "harmful.waits", beside),
        )
        assert (await over(executor, second)).ended
        go.touch()
        assert (await over(executor, first)).ended
        for n in range(5):
            assert (await ended(executor, "harmful.quick", n)).ended
        assert log.read_text().count("\n") == 1

    served(test)


@pytest.mark.slow
def test_who_has_nowhere_else_to_go_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all processes were held up, a step was sent to one of them again and again: what it did
    not read filled the memory.
    """
    monkeypatch.setattr(limits, "STEP_PROCESSES_MAX", 1)
    log, go = tmp_path / "log", tmp_path / "go"

    async def test(executor: Executor) -> None:
        runner: Any = executor._runner
        first = await submitted(executor, "harmful.blocks", {"until": str(go), "log": str(log)})
        await until(log.exists)
        second = await submitted(executor, "harmful.quick", 2)
        (process,) = [one for one in runner._all if not one.timed]
        await until(lambda: process.silent)
        await asyncio.sleep(5 * limits.STEP_PROCESS_BEAT_MS / 1000)  # it is looked at
        assert next(runner._numbers) <= 3
        go.touch()
        for id in (first, second):
            assert (await over(executor, id)).state is State.SUCCESS

    served(test)


@pytest.mark.slow
def test_steps_under_way_end_with_the_executor(tmp_path: Path) -> None:
    """A process outlived its engine, with a step that could still do things outside."""
    log = tmp_path / "log"

    async def test(executor: Executor) -> Any:
        args = {"until": str(tmp_path / "never"), "log": str(log)}
        await submitted(executor, "harmful.blocks", args)
        return await until(log.exists)

    assert served(test)  # a process that is left is a ResourceWarning, which is an error


def test_a_process_that_is_told_to_stop_goes_on() -> None:
    """Stopping a service tells all of its processes: each time its steps were counted as deadly."""

    async def test(executor: Executor) -> None:
        record = await ended(executor, "harmful.told", {})
        assert plain_data.decode(record.result) == [1, -signal.SIGTERM]

    served(test)


@pytest.mark.slow
def test_what_had_not_begun_is_not_counted(tmp_path: Path) -> None:
    """Whatever was on its way to a process that ended was taken for a cause of it."""
    log, go = tmp_path / "log", tmp_path / "go"

    async def test(executor: Executor) -> None:
        args = {"until": str(go), "log": str(log), "how": "exit"}
        harms = await submitted(executor, "harmful.blocks", args)
        await until(log.exists)
        ids = [await submitted(executor, "harmful.quick", n) for n in range(10)]
        lives = [executor.live_one(id) for id in ids]
        await until(lambda: all(live is None or live.step_began[0] for live in lives))
        go.touch()
        for n, id in enumerate(ids):
            record = await over(executor, id)
            assert plain_data.decode(record.result) == n
            assert [one.outcome for one in record.history] == ["done"]
        await set_aside(executor, harms)

    served(test)


def test_what_has_no_words_fails() -> None:
    """What the other process could not say was waited for, for ever."""

    async def test(executor: Executor) -> None:
        record = await ended(executor, "every.error", "no words")
        assert record.error is not None
        assert (record.error.code, record.error.type) == ("STEP_ERROR", "ValueError")

    served(test)


def test_ending_the_processes_is_no_death_of_their_steps(tmp_path: Path) -> None:
    """Three restarts of a node, and a long step would be set aside."""
    log = tmp_path / "log"

    async def test(executor: Executor) -> None:
        args = {"until": str(tmp_path / "never"), "log": str(log)}
        id = await submitted(executor, "harmful.waits", args)
        await until(log.exists)
        executor._runner.close()
        retry = await until(lambda: (live := executor.live_one(id)) is not None and live.retry)
        assert retry.code == "STEP_PROCESS"
        record = await executor.find(id)
        assert (record.deaths, record.lost) == (0, 0)

    served(test)


_CHANGES = """
import os
from pathlib import Path
import kvorum

@kvorum.procedure("changes")
class Changes:
    @kvorum.step(first=True)
    def {step}(self, ctx):
        if ctx.attempt == 1:
            Path(__file__).write_text(ctx.args)
            os._exit(1)
        return kvorum.done(ctx.attempt)
"""


@pytest.mark.slow
def test_code_that_changed_on_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A younger process has no such step: nobody was told, and the step seemed to run for ever."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    module = tmp_path / "changes_on_disk.py"
    module.write_text(_CHANGES.format(step="work"))
    importlib.import_module(module.stem)

    async def test(executor: Executor) -> None:
        id = await submitted(executor, "changes", _CHANGES.format(step="other"))
        retry = await until(lambda: (live := executor.live_one(id)) is not None and live.retry)
        assert retry.code == "STEP_PROCESS"
        assert "changes has no 'work' in the modules as they are now on disk" in retry.message
        module.write_text(_CHANGES.format(step="work"))
        record = await over(executor, id)
        assert record.state is State.SUCCESS
        assert record.error is None

    served(test, modules=[module.stem])


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["plain", "blocked", "locked", "stubborn", "awaits"])
def test_a_step_is_ended_at_its_deadline(how: str, tmp_path: Path) -> None:
    """It went on for as long as it liked, also beside what undoes it; or others, who have no
    deadline, were ended with it.
    """
    lives, go, log = tmp_path / "lives", tmp_path / "go", tmp_path / "log"
    lives.touch()

    async def test(executor: Executor) -> None:
        other = await submitted(executor, "harmful.waits", {"until": str(go), "log": str(log)})
        args = {"how": how, "s": 600, "lives": str(lives), "log": str(log)}
        record = await ended(executor, "harmful.timed", args)
        assert record.state is State.ROLLED_BACK
        assert record.error is not None
        assert record.error.code == "DEADLINE"
        took_ms = record.history[1].took_ms
        assert 1_000 <= took_ms < 1_000 + 3 * limits.STEP_PROCESS_GRACE_MS
        size = int(lives.with_suffix(".undo").read_text())
        assert size > 5 or how not in ("plain", "blocked")
        assert lives.stat().st_size == size, "it lives beside what undoes it"
        go.touch()
        assert plain_data.decode((await over(executor, other)).result) == 1
        assert log.read_text().count("harmful.timed") == 1

    served(test)


@pytest.mark.slow
def test_j23_workflows_run_apart() -> None:
    """A workflow did something else in a process for steps than here."""

    async def both(executor: Executor) -> list[Any]:
        found: list[Any] = []
        for said in ("on", "fail"):
            id = await submitted(executor, "harmful.flow", None)
            await until(lambda id=id: _waits(executor, id))
            found.append(await executor.query(id, "shown", 5))
            assert executor.rows is not None
            data = plain_data.pack(said)
            await inbox.Senders(executor.rows).send(id, "go on", data, None, executor.reign)
            executor.signal(inbox.signal_event(id, "go on"))
            record = await over(executor, id)
            steps = [(one.step, one.outcome) for one in record.history]
            found.append([_shown(record)[:3], steps])
        record = await ended(executor, "harmful.plain_flow", None)
        return [*found, _shown(record)]

    apart = served(both)
    assert apart == served(both, apart=False)
    assert apart[1][0] == ["SUCCESS", "run", [3, "second", True]]
    assert apart[3][0][0] == "ROLLED_BACK"
    assert apart[4][2] == ["p", 1]


def _waits(executor: Executor, id: int) -> bool:
    live = executor.live_one(id)
    return live is not None and live.event.startswith("signal:") and not live.running


@pytest.mark.slow
@pytest.mark.parametrize(("how", "runs"), [("hangs", 3), ("value", 3), ("key", 1)])
def test_j22_a_policy_counts_for_steps_that_run_apart(how: str, runs: int, tmp_path: Path) -> None:
    """An attempt that hangs in another process was not ended, or what a policy says of an exception
    was not known to who decides.
    """
    args = {"how": how, "log": str(tmp_path / "log")}
    record = served(lambda executor: ended(executor, "harmful.retried", args))
    assert len((tmp_path / "log").read_text().splitlines()) == runs
    assert record.state is (State.FAILED if how == "key" else State.SUCCESS), record.error
    assert how == "key" or plain_data.decode(record.result) == runs


@pytest.mark.slow
def test_who_shares_a_process_with_one_that_is_ended_runs_again(tmp_path: Path) -> None:
    """It failed, or counted as one that ends its process; one that ends in a moment may."""

    async def test(executor: Executor) -> list[Any]:
        ids = [
            await submitted(executor, "harmful.timed", {"how": how, "s": s, **more})
            for how, s, more in (
                ("beside", 1.5, {}),
                ("beside", 6, {}),
                ("plain", 600, {"lives": str(tmp_path / "lives")}),
            )
        ]
        return [await over(executor, id) for id in ids]

    short, long, late = served(test)
    assert [one.state for one in (short, long, late)] == [
        State.SUCCESS,
        State.SUCCESS,
        State.ROLLED_BACK,
    ]
    assert (plain_data.decode(short.result), plain_data.decode(long.result)) == (1, 2)
    assert long.deaths == 0
    assert not any("died" in one.outcome for one in long.history)


@pytest.mark.parametrize("apart", [True, False])
def test_waiting_for_a_thread_is_not_the_steps_time(apart: bool, tmp_path: Path) -> None:
    """Of 40 plain steps of half a second with a deadline of a second 24 failed, most of them never
    having run: 16 have threads, and the others' time went by meanwhile.
    """
    log, go = tmp_path / "log", tmp_path / "go"

    async def test(executor: Executor) -> None:
        args = {"until": str(go), "log": str(log)}
        ids = [await submitted(executor, "harmful.queued", args) for _ in range(3)]
        await until(log.exists)
        places = [vars(executor._runner).get(name) for name in ("_places", "_timed")]
        await until(lambda: sum(len(one._queue) for one in places if one is not None) == 2)
        due = [(await executor.store.load(id)).record.step_due_ms > 0 for id in ids]  # type: ignore[union-attr]
        assert sum(due) == 1, "of the one that runs"
        go.touch()
        for id in ids:
            assert (await over(executor, id)).state is State.SUCCESS

    served(test, apart=apart, threads=1)


@pytest.mark.slow
def test_a_late_step_in_the_programs_own_process_is_dropped(tmp_path: Path) -> None:
    """A plain method cannot be ended there; what it did must not be kept, and it is undone only
    when it is over.
    """

    async def test(executor: Executor) -> Record:
        args = {"how": "plain", "s": 2, "lives": str(tmp_path / "lives")}
        return await ended(executor, "harmful.timed", args)

    record = served(test, apart=False)
    assert record.state is State.ROLLED_BACK
    assert record.error.code == "DEADLINE"
    assert record.history[1].took_ms >= 2_000
    lives = tmp_path / "lives"
    assert lives.stat().st_size == int(lives.with_suffix(".undo").read_text())


BAD = {
    "spin": "took more than 1000 ms: it must be quick",
    "hold": "took more than 1000 ms: it must be quick",
    "raise": "KeyError: 'amount'",
    "leave": "SystemExit: 3",
    "exit": "ended the process that ran it with exit code 7",
    "segv": "ended the process that ran it by signal 11",
}


async def longest_pause(work: Awaitable[Any]) -> tuple[Any, float]:
    """What it gives, and how long the loop stood still meanwhile."""
    loop, longest = asyncio.get_running_loop(), 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            at = loop.time()
            await asyncio.sleep(0.01)
            longest = max(longest, loop.time() - at)

    ticking = loop.create_task(tick())
    try:
        return await work, longest
    finally:
        ticking.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["harmful.rule", "harmful.checked"])
@pytest.mark.parametrize("how", BAD)
def test_a_rule_of_users_cannot_stop_its_engine(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock rule, or a check of arguments, that spins, keeps Python's lock or ends its process
    stopped the node that was asked to start it; or one behind it was refused, too.
    """
    rule = name == "harmful.rule"

    def patience(*, short: bool) -> None:  # a loaded machine: only who hangs shall hear of it
        ms = 1_000 if short and how in ("spin", "hold") else _WAIT_MS
        monkeypatch.setattr(limits, "PROCEDURE_LOOK_MS", ms)

    async def test(executor: Executor) -> None:
        args = {"how": how, "n": 1} if rule else {"how": how}
        good = {"how": "", "n": 1} if rule else {"count": 2}

        async def asked() -> KvorumError:
            try:
                await submitted(executor, name, args)
            except KvorumError as error:
                return error
            raise AssertionError("it was taken")

        patience(short=True)
        error, paused_s = await longest_pause(asked())
        patience(short=False)
        assert isinstance(error, InvalidArgument)
        assert BAD[how] in error.message
        assert paused_s < 10  # it stood still for good
        want = True if rule else {"count": 2}
        assert plain_data.decode((await ended(executor, name, good)).result) == want
        patience(short=True)
        calls = [("harmful.quick", 1), (name, args)]
        record, paused_s = await longest_pause(ended(executor, "harmful.family", calls))
        assert record.state is State.ROLLED_BACK, "its brother had ended well"
        assert record.error is not None
        assert BAD[how] in record.error.message
        assert paused_s < 10  # it stood still for good

    served(test)


@pytest.mark.parametrize("apart", [True, False])
def test_a_check_that_raises_refuses_its_arguments(apart: bool) -> None:
    """In a program's own process a check that raised KeyError was an internal error, and a parent
    that wanted such a child was left alone for ever.
    """

    async def test(executor: Executor) -> None:
        with pytest.raises(InvalidArgument, match="KeyError: 'amount'"):
            await submitted(executor, "harmful.checked", {"how": "raise"})
        record = await ended(executor, "harmful.family", [("harmful.checked", {"how": "raise"})])
        assert record.error is not None
        assert "KeyError: 'amount'" in record.error.message

    served(test, apart=apart)


def test_what_rules_of_users_say_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that a rule in another process tells are not taken, or arguments are not compared as
    their type reads them.
    """

    monkeypatch.setattr(limits, "PROCEDURE_LOOK_MS", _WAIT_MS)  # a loaded machine

    async def test(executor: Executor) -> None:
        calls = [("harmful.rule", {"how": "", "n": n % 2}) for n in range(4)]
        record = await ended(executor, "harmful.family", calls)
        assert plain_data.decode(record.result) == [True] * 4
        ids = [
            await executor.submit(Submission("harmful.checked", args, "tester", "n"))
            for args in ({"count": 1}, {"count": 1.0, "how": ""}, {})
        ]
        assert len(set(ids)) == 1
        with pytest.raises(Refused, match="other arguments"):
            await executor.submit(Submission("harmful.checked", {"count": 2}, "tester", "n"))
        with pytest.raises(InvalidArgument, match="the field count"):
            await executor.submit(Submission("harmful.checked", {"count": "x"}, "tester"))

    served(test)


@pytest.mark.slow
def test_an_early_step_is_not_slow_for_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many at once wait for their process: each of them was taken for slow, ran twice, and its type
    cost twice as much for minutes. One that is slow itself would hold up its submission.
    """
    monkeypatch.setattr(limits, "PROCEDURE_EARLY_APART_MS", _WAIT_MS)  # a loaded machine
    monkeypatch.setenv(harmful.EARLY_MS, "3000")
    log, go = tmp_path / "log", tmp_path / "go"

    async def test(executor: Executor) -> None:
        blocking = await submitted(executor, "harmful.blocks", {"until": str(go), "log": str(log)})
        await until(log.exists)
        asked = [asyncio.ensure_future(submitted(executor, "harmful.early", 0)) for _ in range(5)]
        await asyncio.sleep(3 * limits.PROCEDURE_EARLY_MS / 1000)
        assert not any(one.done() for one in asked)
        go.touch()
        for id in [blocking, *await asyncio.gather(*asked)]:
            assert (await over(executor, id)).state is State.SUCCESS
        told = executor.counters()
        assert (told["early"], told["early_dropped"]) == (5, 0)
        await submitted(executor, "harmful.early", 60)
        assert executor.counters()["early_dropped"] == 1
        await ended(executor, "harmful.early", 0)
        assert executor.counters()["early"] == 5, "its type rests"

    served(test)


def test_a_rule_that_cannot_be_asked_is_asked_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine had no room for one more process: who submitted was told of an internal error."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    async def test(executor: Executor) -> None:
        with pytest.raises(Unavailable, match="it cannot be started: No such file"):
            await submitted(executor, "harmful.rule", {"how": "", "n": 1})
        monkeypatch.undo()
        assert (await ended(executor, "harmful.rule", {"how": "", "n": 1})).error is None

    served(test)


@pytest.mark.slow
def test_a_rule_that_was_late_once_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that stood still for two seconds had good arguments refused, and a child that had
    them failed, for good.
    """
    once = tmp_path / "once"

    async def test(executor: Executor) -> None:
        args = {"how": "", "n": 1, "once": str(once)}
        asked = asyncio.ensure_future(submitted(executor, "harmful.rule", args))
        await until(once.exists)
        monkeypatch.setattr(limits, "PROCEDURE_LOOK_MS", _WAIT_MS)  # a loaded machine
        assert (await over(executor, await asked)).state is State.SUCCESS

    served(test)


@pytest.mark.slow
def test_a_rule_that_hangs_is_not_another_ones_fault(tmp_path: Path) -> None:
    """Who asked a moment later waited behind it in the same process, and was refused with it."""

    async def test(executor: Executor) -> None:
        bad = asyncio.ensure_future(submitted(executor, "harmful.rule", {"how": "spin", "n": 1}))
        await asyncio.sleep(0.05)
        good = [
            asyncio.ensure_future(submitted(executor, "harmful.rule", {"how": "", "n": n}))
            for n in range(3)
        ]
        with pytest.raises(InvalidArgument, match="it must be quick"):
            await bad
        for id in await asyncio.gather(*good):
            assert (await over(executor, id)).state is State.SUCCESS

    served(test)


@pytest.mark.slow
def test_j37_a_silent_step_in_a_process_is_ended() -> None:
    """It hung for ever, or the next attempt began anew, or what the first one emitted was told."""

    async def test(executor: Executor) -> None:
        record = await ended(executor, "harmful.beating", None)
        assert plain_data.decode(record.result) == [3, 6]
        assert [one.outcome for one in record.history] == ["retry:HEARTBEAT_TIMEOUT", "done"]
        assert executor.rows is not None
        told = await emitted.after(executor.rows, record.id, 0, 100)
        assert [(one.position, one.value) for one in told] == [(1, 3), (2, 4), (3, 5)]

    served(test)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "args", "gives", "silent"),
    [
        ("harmful.calling", "plain", [3, 6], 1),
        ("harmful.calling", "blocking", "HEARTBEAT_TIMEOUT", 2),
        ("harmful.calling_plain", None, [3, 6], 1),
    ],
)
def test_j37_a_silent_step_of_a_workflow_is_ended_with_its_process(
    name: str, args: Any, gives: Any, silent: int
) -> None:
    """Nobody can cancel a thread, or a loop that is held up: it hung for ever."""

    async def test(executor: Executor) -> None:
        record = await ended(executor, name, args)
        failed = None if record.error is None else record.error.code
        assert (failed or plain_data.decode(record.result)) == gives
        outcomes = [one.outcome.rpartition(":")[2] for one in record.history]
        assert outcomes.count("HEARTBEAT_TIMEOUT") == silent
        assert not record.deaths

    served(test)

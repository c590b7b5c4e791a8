"""What is counted of types, steps and queues, whoever runs them, and how much at most."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kvorum.http.metrics.procedure_metrics import ProcedureMetrics
from kvorum.local.logs import JsonLines
from kvorum.testing.simulation import loop as simloop
from procedures.engine import figures
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome
from procedures.engine.registry import procedure, step
from procedures.engine.retries import retry
from procedures.pools.control import Control
from tests.procedures.lab import Lab, run
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import in_office, submission
from tests.procedures.zoo import Zoo

log = logging.getLogger("shop")


@procedure("counted", queue="line", retry=retry(attempts=2, first_ms=10))
class Counted(Zoo):
    @step(first=True)
    async def first(self, ctx: StepContext) -> Outcome:
        await asyncio.sleep(0.2)
        return p.next("second")

    @step
    async def second(self, ctx: StepContext) -> Outcome:
        if ctx.args == "bad":
            raise ValueError("bad")
        return p.done(None)


def shown(executor: Executor) -> dict[str, float]:
    """Every sample of the page."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ProcedureMetrics(lambda: executor))
    page = generate_latest(registry).decode()
    return {name: float(value) for name, value in re.findall(r"^(\w+\S*) (\S+)$", page, re.M)}


def test_steps_are_counted_wherever_they_run() -> None:
    """Else figures of types whose steps run at workers would be missing."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        for args in (None, None, "bad"):
            await run(executor, "counted", args)
        told = shown(executor)
        first, second = '{step="first",type="counted"}', '{step="second",type="counted"}'
        assert told[f"kvorum_procedure_step_seconds_count{first}"] == 3
        assert (
            told['kvorum_procedure_step_seconds_bucket{le="0.1",step="first",type="counted"}'] == 0
        )
        assert (
            told['kvorum_procedure_step_seconds_bucket{le="0.5",step="first",type="counted"}'] == 3
        )
        assert told[f"kvorum_procedure_step_seconds_count{second}"] == 2
        assert told[f"kvorum_procedure_step_retries_total{second}"] == 1
        assert told[f"kvorum_procedure_step_failures_total{second}"] == 1
        assert told['kvorum_procedure_ended_total{state="SUCCESS",type="counted"}'] == 2
        assert told['kvorum_procedure_ended_total{state="FAILED",type="counted"}'] == 1
        assert told['kvorum_procedure_seconds_count{type="counted"}'] == 3

    in_office(test, [Counted])


def test_how_long_the_oldest_of_a_queue_waits() -> None:
    """For a worker, and behind a limit."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        await run(executor, "counted")
        await office.dismiss("w1")
        for _ in range(3):
            await executor.submit(submission("counted"))
            await asyncio.sleep(1)
        told = shown(executor)
        assert told['kvorum_procedure_queue_waiting{queue="line"}'] == 3
        assert 3 <= told['kvorum_procedure_queue_oldest_seconds{queue="line"}'] < 3.5
        limit: Any = {"name": "line", "max_concurrent": 3}
        await Control(executor).do("queue.set", limit)
        await executor.submit(submission("counted"))
        assert shown(executor)['kvorum_procedure_queue_waiting{queue="line"}'] == 4

    in_office(test, [Counted])


@procedure("talks")
class Talks(Zoo):
    @step(first=True)
    async def aloud(self, ctx: StepContext) -> Outcome:
        log.warning("async %s", ctx.id)
        await asyncio.sleep(0.01)
        return p.next("plainly")

    @step
    def plainly(self, ctx: StepContext) -> Outcome:
        log.warning("plain %s", ctx.id)
        return p.done(None)


def test_what_a_step_logs_says_of_which_procedure() -> None:
    """The lines of a hundred procedures at once could not be told apart."""

    async def main(loop: simloop.SimLoop) -> None:
        async with Lab(loop, [Talks]).executor() as executor:
            await asyncio.gather(*(run(executor, "talks") for _ in range(3)))

    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.setLevel(logging.WARNING)  # whatever tests before this one made of the root
    try:
        simloop.run(main, 0)
    finally:
        log.removeHandler(handler)
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(told) == 6
    for line in told:
        assert line["message"].split()[1] == line["procedure"]
        assert line["type"] == "talks"
        assert line["step"] == ("aloud" if line["message"].startswith("async") else "plainly")


def test_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type or step for each customer would fill the memory of whoever keeps the figures."""
    monkeypatch.setattr(figures, "_TYPES_MAX", 0)
    monkeypatch.setattr(figures, "_STEPS_MAX", 1)

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        await run(executor, "counted")
        assert list(executor.figures.types) == [figures.OTHER]
        assert set(executor.figures.types[figures.OTHER].steps) <= {"first", "second", "other"}
        assert len(executor.figures.types[figures.OTHER].steps) == 2

    in_office(test, [Counted])

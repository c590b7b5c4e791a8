"""A task that works keeps its attempt; one whose attempt has ended says nothing more."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest

import kvorum
from procedures.sink.format.sink_parts import SPARK_JOB
from procedures.verbs import SINK_ABORT, SINK_BEGIN
from pyspark_kvorum.attempt_lease import Alive
from pyspark_kvorum.options import Options
from pyspark_kvorum.session import Session
from tests.clients.spark.conftest import namespace_of
from tests.kit.processes import NodeProcess
from tests.kit.waiting import poll

NAMESPACE = namespace_of(__name__)
pytestmark = [pytest.mark.spark, pytest.mark.slow]

SHORT_MS = 1_000
WITHIN_S = 10.0


def test_o9_a_task_that_computes_keeps_its_lease(
    node: NodeProcess, db: kvorum.Database, options: Callable[..., dict[str, str]]
) -> None:
    """The staging of tasks that have ended goes while the last one computes for longer than a
    lease: its batch fails, and fails again whenever it is tried.
    """
    db.create_table(NAMESPACE, "leases")
    parsed = Options.parse(options("leases"))
    with (
        kvorum.spark.sinks(f"127.0.0.1:{node.base}") as sinks,
        Session(parsed) as session,
    ):
        table = session.table

        def left_ms() -> int:
            return next(one.left_ms or 0 for one in sinks.attempts() if one.attempt == "works")

        session.run(session.ask(SINK_BEGIN, "works", table.id, SHORT_MS))
        assert left_ms() <= SHORT_MS
        with Alive(parsed, table, "works", beat_s=0.05) as alive:
            poll(lambda: left_ms() > 10 * SHORT_MS)
            session.run(session.ask(SINK_ABORT, "works"))
            poll(lambda: not alive._thread.is_alive())
        with Alive(parsed, table, "short") as alive:
            assert alive._thread.is_alive()
        assert not alive._thread.is_alive(), "a task that ends does not wait for its next beat"
        assert "short" not in {one.attempt for one in sinks.attempts()}


def test_o10_a_program_says_that_it_lives(
    node: NodeProcess, db: kvorum.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job without app_id ends while its program computes, or is told of after its end."""
    module = importlib.import_module("kvorum.spark.sinks")  # the name is a function's, too
    monkeypatch.setattr(module, "SINK_JOB_SILENT_MS", 250)  # of the program; not of the node
    with kvorum.spark.sinks(f"127.0.0.1:{node.base}") as sinks:
        args = {"app": "random", "version": 0, "name": "j", "once": True}
        job = int(sinks.ask(sinks.procedures.submit(SPARK_JOB, args)))

        times: set[int] = set()

        def rounds() -> int:
            times.add(int(sinks.ask(sinks.procedures.get(job))["updated_ms"]))
            return len(times)

        sinks.keep_alive(job)
        poll(lambda: rounds() >= 4)
        sinks.abort_job(job)
        poll(lambda: sinks._beating is not None and sinks._beating.done())

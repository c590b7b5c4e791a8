"""Spans and metrics for OpenTelemetry, recorded by a tracer of the test's own."""

from __future__ import annotations

import itertools
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import typer
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

import kvorum
from kv.client.client import KvClient
from kvorum import observability
from kvorum.cli.main import app
from procedures.engine.executor import Executor
from procedures.engine.turn import Turns
from tests.kit.machine import free_port_base
from tests.kit.waiting import poll
from txn.client import TxnClient
from txn.transaction import Transaction

MODULE = "tests.kvorum.surfaces.observed_procedures"
_ids = itertools.count(1)


class Span(trace.Span):
    def __init__(self, name: str, parent: SpanContext | None, kind: Any, said: Any) -> None:
        self.name, self.parent, self.kind, self.said = name, parent, kind, dict(said or {})
        trace_id = parent.trace_id if parent is not None and parent.trace_id else next(_ids)
        flags = TraceFlags(TraceFlags.SAMPLED)
        self.own = SpanContext(trace_id, next(_ids), is_remote=False, trace_flags=flags)
        self.ended = False

    def end(self, end_time: Any = None) -> None:
        self.ended = True

    def get_span_context(self) -> SpanContext:
        return self.own

    def set_attribute(self, key: str, value: Any) -> None:
        self.said[key] = value

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        self.said.update(attributes)

    def add_event(self, *_: Any, **__: Any) -> None: ...

    def update_name(self, name: str) -> None: ...

    def is_recording(self) -> bool:
        return True

    def set_status(self, *_: Any) -> None:
        self.said["failed"] = True

    def record_exception(self, *_: Any, **__: Any) -> None: ...


class Recorder(trace.TracerProvider, trace.Tracer):
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        return self

    def start_span(self, name: str, context: Any = None, kind: Any = None, **how: Any) -> Span:  # type: ignore[override]
        parent = trace.get_current_span(context).get_span_context()
        span = Span(name, parent if parent.is_valid else None, kind, how.get("attributes"))
        self.spans.append(span)
        return span

    @contextmanager
    def start_as_current_span(  # type: ignore[override]
        self, name: str, context: Any = None, kind: Any = None, **how: Any
    ) -> Iterator[Span]:
        span = self.start_span(name, context, kind, **how)
        token = contexts.attach(trace.set_span_in_context(span, context))
        try:
            yield span
        finally:
            contexts.detach(token)
            span.end()

    def named(self, name: str) -> list[Span]:
        return [span for span in list(self.spans) if span.name == name]

    def above(self, span: Span) -> list[str]:
        """The names of what it is within, from the outermost."""
        by_id = {one.own.span_id: one for one in list(self.spans)}
        found: list[str] = []
        while span.parent is not None and (outer := by_id.get(span.parent.span_id)) is not None:
            found.insert(0, outer.name)
            span = outer
        return found


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    found = Recorder()
    observability.start(found)
    yield found
    observability.stop()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[kvorum.Database, int]]:
    port = free_port_base()
    data: Path = tmp_path_factory.mktemp("observed") / "data"
    with kvorum.open(data, port=port, procedure_modules=[MODULE]) as db:
        db.create_table("default", "observed", exists_ok=True)
        yield db, port


def test_j39_spans_go_from_the_submission_to_partitions(
    base: tuple[kvorum.Database, int], recorder: Recorder
) -> None:
    """A step belonged to no submission, a child to no step, or a request to no transaction."""
    db, _ = base
    with recorder.start_as_current_span("mine") as mine:
        id = db.submit("observed.parent", "fail")
    with pytest.raises(kvorum.Refused):
        db.wait(id)
    poll(lambda: len(recorder.named("step observed.child.write")) == 2 or None)
    poll(lambda: all(one.ended for one in recorder.named("step observed.child.write")) or None)
    begin, *_ = recorder.named("step observed.parent.begin")
    assert recorder.above(begin) == ["mine", "submit observed.parent"]
    assert begin.kind is SpanKind.CONSUMER
    assert begin.said["kvorum.procedure.id"] == str(id)
    for child in recorder.named("step observed.child.write"):
        assert recorder.above(child) == [*recorder.above(begin), begin.name]
        assert child.own.trace_id == mine.own.trace_id
    (back,) = recorder.named("undo observed.parent.back")
    assert recorder.above(back) == ["mine", "submit observed.parent"]
    within = [recorder.above(one) for one in recorder.spans if one.name.startswith("partition ")]
    assert ["mine", "submit observed.parent", begin.name, "write"] in within
    wrote = db.table("default", "observed").get(f"child {id + 1}")
    told = {} if wrote is None else {wrote.value.decode().split("-")[1]}
    assert told <= {f"{mine.own.trace_id:032x}"}


def test_j39_a_header_says_what_it_belongs_to(
    base: tuple[kvorum.Database, int], recorder: Recorder
) -> None:
    """A service that starts procedures over HTTP lost its trace there; or a bad header was an
    error.
    """
    db, port = base
    url = f"http://127.0.0.1:{port + 2}/v1/procedures/observed.child"
    for header, belongs in ((f"00-{'ab' * 16}-{'cd' * 8}-01", True), ("nonsense", False)):
        started = httpx.post(url, headers={"traceparent": header})
        assert started.status_code == 202, started.text
        id = started.json()["id"]
        db.wait(int(id))
        (step,) = [
            one
            for one in recorder.named("step observed.child.write")
            if one.said["kvorum.procedure.id"] == id
        ]
        assert (step.own.trace_id == int("ab" * 16, 16)) == belongs
    with kvorum.connect(f"http://127.0.0.1:{port + 2}") as http:
        with recorder.start_as_current_span("outside") as outside:
            id = http.submit("observed.child")
        assert http.wait(id).split("-")[1] == f"{outside.own.trace_id:032x}"


def test_j39_who_does_not_start_it_pays_nothing(base: tuple[kvorum.Database, int]) -> None:
    """A question on every operation, or a wrapper that stayed."""
    watched = [
        *((Turns, "_step"), (Turns, "context"), (Executor, "begin"), (KvClient, "call")),
        *((TxnClient, "write"), (Transaction, "commit")),
    ]
    before = [getattr(cls, name) for cls, name in watched]
    assert not any(hasattr(one, "__wrapped__") for one in before)
    observability.start(Recorder())
    assert all(hasattr(getattr(cls, name), "__wrapped__") for cls, name in watched)
    observability.start(Recorder())
    observability.stop()
    assert [getattr(cls, name) for cls, name in watched] == before
    db, _ = base
    assert db.wait(db.submit("observed.child")) == ""
    assert not observability.start_if_asked({})


GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "observability.md"


def test_j39_the_guide_works_as_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Users copied an example that does not work, or looked for spans that there are not."""
    text, recorder = GUIDE.read_text(), Recorder()
    for words in map(shlex.split, re.findall(r"opentelemetry-instrument kvorum (.*)", text)):
        command: Any = typer.main.get_command(app)
        command.commands[words[0]].make_context(words[0], words[1:])
    module, program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "bank.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: recorder)
    try:
        with kvorum.open(
            tmp_path / "data", port=free_port_base(), procedure_modules=["bank"]
        ) as db:
            exec(compile(program, "guide", "exec"), {"__name__": "guide", "db": db})
    finally:
        observability.stop()
        sys.modules.pop("bank", None)
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\)  # (.*)", program)
    found = {(one.name, *recorder.above(one)[-1:]) for one in recorder.spans}
    for wanted in _printed(text):
        assert wanted in found


def _printed(text: str) -> list[tuple[str, ...]]:
    """Of each submission and step of the tree its name, and that of the line above it."""
    (tree,) = re.findall(r"```\n(mine .*?)```", text, re.DOTALL)
    above: list[tuple[int, str]] = []
    found = []
    for line in tree.splitlines():
        depth = len(line) - len(line.lstrip(" │├└─"))
        name = re.split(r"  +", line[depth:])[0]
        above = [one for one in above if one[0] < depth]
        if name.startswith(("mine", "submit ", "step ")):
            found.append((name, *(one for _, one in above[-1:])))
        above.append((depth, name))
    assert len(found) == 4
    return found


def test_j39_opentelemetry_reads_the_metrics() -> None:
    """A figure of /metrics was missing, or one that came later was never shown."""
    made: dict[str, Any] = {}

    def make(kind: str) -> Any:
        def create(name: str, callbacks: Any, description: str) -> None:
            made[name] = (kind, callbacks[0], description)

        return create

    meter: Any = SimpleNamespace(
        create_observable_gauge=make("gauge"), create_observable_counter=make("counter")
    )
    from kvorum.http.metrics.metrics import Metrics

    metrics = Metrics()
    figures: dict[str, float] = {"live": 3, "commits": 5}
    metrics.add("procedure", lambda: figures)
    metrics.requests.observe("/v1/kv", 200, 0.25)
    observability.bridge(metrics.collect, meter)
    kind, read, _ = made["kvorum_procedure_live"]
    assert kind == "gauge"
    assert [one.value for one in read(None)] == [3]
    figures["live"] = 4
    figures["retries"] = 1
    assert [one.value for one in read(None)] == [4]
    assert "kvorum_procedure_retries" in made
    seconds = list(made["kvorum_http_request_seconds"][1](None))
    assert [(one.value, one.attributes["part"]) for one in seconds] == [(1, "count"), (0.25, "sum")]

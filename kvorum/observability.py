"""Traces and metrics for OpenTelemetry (docs/guides/observability.md).

    from kvorum import observability

    observability.start()       # after the program has set up its OpenTelemetry SDK

Spans go from a submission over each step to its transactions and to the requests to partitions. The
context of a submission is stored with the procedure, so that its steps belong to it whenever and
wherever they run; what a step submits, starts or has as children belongs to the step.

Nothing of Kvorum knows of this. `start` puts a function around those where a span begins, `stop`
takes it away: who does not start it pays nothing, not even a question. `opentelemetry-api` is
imported by `start` alone; without an SDK that the program has set up its spans are nobody's.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.ops import Op
from kv.base.verbs import VERBS
from kv.client.client import KvClient
from procedures.engine import executor as executor_module
from procedures.engine.context import StepContext, StepTxn
from procedures.engine.early_steps import Early
from procedures.engine.records import Record
from procedures.engine.registry import ProcedureType, StepDef
from procedures.engine.roster import Live
from procedures.engine.submission import Submission
from procedures.engine.turn import Turns
from txn.client import TxnClient
from txn.transaction import Transaction

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter, Observation
    from opentelemetry.trace import Span, SpanKind, Tracer, TracerProvider
    from opentelemetry.util.types import AttributeValue
    from prometheus_client.metrics_core import Metric

VARIABLE: Final = "KVORUM_TELEMETRY"
"""Of the environment: nodes and workers start it if it is 1."""
_NAME: Final = "kvorum"
_P = ParamSpec("_P")
_S = TypeVar("_S")  # whose method it is
_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., object])
_Step = Callable[Concatenate[Turns, Live, Record, ProcedureType, str, _P], Awaitable[_T]]
_Stepping = Callable[..., Coroutine[object, None, _T]]
_instead: list[tuple[type, str, object]] = []  # what was there before


def start(provider: TracerProvider | None = None) -> None:
    """Make spans from now on, in this process, by the program's tracer provider (or this one). A
    second time it does nothing. Raises InvalidArgument: opentelemetry-api is not installed.
    """
    if _instead:
        return
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise InvalidArgument(
            "OpenTelemetry is not installed: pip install 'kvorum[telemetry]', and an SDK"
        ) from error
    spans = _Spans(trace.get_tracer(_NAME, tracer_provider=provider), trace.SpanKind)
    for cls in _backends():
        _around(cls, "submit", spans.submitting)
    _around(executor_module.Executor, "begin", spans.beginning)
    _around(Turns, "_step", spans.stepping)
    _around(Turns, "_undo", spans.undoing)
    _around(Early, "_stored", spans.stored_early)
    _around(Turns, "context", spans.context)
    _around(Transaction, "commit", spans.committing)
    _around(TxnClient, "write", spans.writing)
    _around(KvClient, "call", spans.asking)


def stop() -> None:
    """Make none any more."""
    while _instead:
        cls, name, before = _instead.pop()
        setattr(cls, name, before)


def started() -> bool:
    return bool(_instead)


def start_if_asked(environment: Mapping[str, str] = os.environ) -> bool:
    """`start`, if the environment says so. Whether it did."""
    if environment.get(VARIABLE) != "1":
        return False
    start()
    return True


def _backends() -> list[type]:
    from kvorum.http.client.http_backend import HttpBackend
    from kvorum.native.native import NativeBackend

    return [NativeBackend, HttpBackend]


def _around(cls: type, name: str, make: Callable[[_F], Callable[..., object]]) -> None:
    before = getattr(cls, name)
    _instead.append((cls, name, cls.__dict__.get(name, before)))
    setattr(cls, name, functools.wraps(before)(make(before)))


# ---------------------------------------------------------------------- contexts
def carried() -> str:
    """The context of the current span as one line (W3C traceparent); "" = there is none."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


def _context_of(trace: str) -> Context | None:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": trace}) if trace else None


class _Spans:
    """The functions around ours."""

    def __init__(self, tracer: Tracer, kinds: type[SpanKind]) -> None:
        self._tracer, self._kinds = tracer, kinds

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, said: Mapping[str, AttributeValue], trace: str = ""
    ) -> Iterator[Span]:
        """A current span, that says how what is within it ended. `trace`: what it belongs to."""
        from opentelemetry.trace import Status, StatusCode

        with self._tracer.start_as_current_span(
            name,
            context=_context_of(trace),
            kind=kind,
            attributes={f"{_NAME}.{key}": value for key, value in said.items()},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except KvorumError as error:
                span.set_attribute(f"{_NAME}.error", error.code)
                span.set_status(Status(StatusCode.ERROR, error.message[:200]))
                raise

    # -- submissions
    def submitting(
        self, submit: Callable[[_S, str, object, str | None, dict[str, object]], Awaitable[int]]
    ) -> Callable[..., Coroutine[object, None, int]]:
        async def traced(
            self_: _S,
            name: str,
            args: object,
            nonce: str | None,
            options: dict[str, object] | None = None,
        ) -> int:
            within = (options or {}).get("trace")
            said, trace = {"procedure.type": name}, within if isinstance(within, str) else ""
            with self._span(f"submit {name}", self._kinds.PRODUCER, said, trace) as span:
                more = {**(options or {}), "trace": carried()}
                id = await submit(self_, name, args, nonce, more)
                span.set_attribute(f"{_NAME}.procedure.id", str(id))
                return id

        return traced

    def beginning(
        self, begin: Callable[Concatenate[_S, Submission, _P], Awaitable[_T]]
    ) -> Callable[..., Coroutine[object, None, _T]]:
        """Of programs that have an executor of their own."""

        async def traced(self_: _S, sub: Submission, *more: _P.args, **named: _P.kwargs) -> _T:
            if not sub.trace and (trace := carried()):
                sub = replace(sub, trace=trace)
            return await begin(self_, sub, *more, **named)

        return traced

    # -- steps
    def context(
        self, context: Callable[_P, tuple[_T, StepContext]]
    ) -> Callable[_P, tuple[_T, StepContext]]:
        def traced(*given: _P.args, **more: _P.kwargs) -> tuple[_T, StepContext]:
            txn, ctx = context(*given, **more)
            ctx.trace = carried() or ctx.trace
            return txn, ctx

        return traced

    def stepping(self, step: _Step[_P, _T]) -> _Stepping[_T]:
        return self._carrying_out("step", step)

    def undoing(self, undo: _Step[_P, _T]) -> _Stepping[_T]:
        return self._carrying_out("undo", undo)

    def _carrying_out(self, what: str, method: _Step[_P, _T]) -> _Stepping[_T]:
        async def traced(
            self_: Turns,
            live: Live,
            record: Record,
            declared: ProcedureType,
            name: str,
            *more: _P.args,
            **named: _P.kwargs,
        ) -> _T:
            with self._step(f"{what} {record.name}.{name}", record, name):
                return await method(self_, live, record, declared, name, *more, **named)

        return traced

    def stored_early(
        self,
        stored: Callable[
            [Early, Record, ProcedureType, StepDef, StepTxn, StepContext], Awaitable[_T]
        ],
    ) -> Callable[..., Coroutine[object, None, _T]]:
        async def traced(
            self_: Early,
            record: Record,
            declared: ProcedureType,
            definition: StepDef,
            txn: StepTxn,
            ctx: StepContext,
        ) -> _T:
            with self._step(f"step {record.name}.{record.step}", record, record.step):
                ctx.trace = carried()
                return await stored(self_, record, declared, definition, txn, ctx)

        return traced

    def _step(self, title: str, record: Record, name: str) -> AbstractContextManager[Span]:
        said: dict[str, AttributeValue] = {
            "procedure.id": str(record.id),
            "procedure.type": record.name,
            "procedure.step": name,
            "procedure.seq": record.seq,
            "procedure.failed": record.failed,
            "procedure.queue": record.queue,
        }
        return self._span(title, self._kinds.CONSUMER, said, record.trace)

    # -- transactions and partitions
    def committing(
        self, commit: Callable[[Transaction], Awaitable[int]]
    ) -> Callable[[Transaction], Coroutine[object, None, int]]:
        async def traced(self_: Transaction) -> int:
            said = {"txn.start_ts": str(self_.start_ts)}
            with self._span("commit", self._kinds.INTERNAL, said) as span:
                version = await commit(self_)
                span.set_attribute(f"{_NAME}.txn.commit_ts", str(version))
                return version

        return traced

    def writing(
        self, write: Callable[Concatenate[TxnClient, Sequence[Op], _P], Awaitable[int]]
    ) -> Callable[..., Coroutine[object, None, int]]:
        def traced(
            self_: TxnClient, ops: Sequence[Op], *given: _P.args, **more: _P.kwargs
        ) -> Coroutine[object, None, int]:
            async def written() -> int:
                said = {"txn.writes": len(ops)}
                with self._span("write", self._kinds.INTERNAL, said) as span:
                    version = await write(self_, ops, *given, **more)
                    span.set_attribute(f"{_NAME}.txn.commit_ts", str(version))
                    return version

            return written()

        return traced

    def asking(
        self, call: Callable[Concatenate[KvClient, int, bytes, _P], Awaitable[_T]]
    ) -> Callable[..., Coroutine[object, None, _T]]:
        async def traced(
            self_: KvClient, method: int, key: bytes, *args: _P.args, **more: _P.kwargs
        ) -> _T:
            verb = VERBS.get(method)
            name = str(method) if verb is None else verb.name
            where = self_.located(key)
            said = {} if where is None else {"partition": int(where.id)}
            with self._span(f"partition {name}", self._kinds.CLIENT, said):
                return await call(self_, method, key, *args, **more)

        return traced


# ---------------------------------------------------------------------- metrics
def bridge(collect: Callable[[], Iterable[Metric]], meter: Meter | None = None) -> None:
    """Have OpenTelemetry read what /metrics shows, whenever it reads. `collect`: the families of
    prometheus-client, that of kvorum.http.metrics. A family that comes later is found then.
    """
    if meter is None:
        from opentelemetry import metrics

        meter = metrics.get_meter(_NAME)
    _Bridge(collect, meter).look()


class _Bridge:
    def __init__(self, collect: Callable[[], Iterable[Metric]], meter: Meter) -> None:
        self._collect, self._meter = collect, meter
        self._known: set[str] = set()

    def look(self) -> None:
        """Make an instrument for each family that has none."""
        for family in list(self._collect()):
            if family.name not in self._known:
                self._known.add(family.name)
                self._make(family)

    def _make(self, family: Metric) -> None:
        meter, read = self._meter, functools.partial(self._read, family.name)
        if family.type == "gauge":
            meter.create_observable_gauge(family.name, [read], description=family.documentation)
        else:
            meter.create_observable_counter(family.name, [read], description=family.documentation)

    def _read(self, name: str, _options: object) -> Iterable[Observation]:
        from opentelemetry.metrics import Observation

        families = list(self._collect())
        for family in families:
            if family.name != name:
                continue
            for sample in family.samples:
                if sample.name.endswith("_bucket"):
                    continue  # sums and counts say the mean; buckets are at /metrics
                said = dict(sample.labels)
                part = sample.name.removeprefix(name).strip("_")
                yield Observation(sample.value, said | ({"part": part} if part else {}))
        if any(family.name not in self._known for family in families):
            self.look()

"""What a run amounts to: figures, anomalies, verdict; as data and as lines that a person reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import Event, History, Operation
from kvorum.verify.run_workload import PHASE_HEALED, PHASE_LOAD

ACKNOWLEDGED_MIN: Final = 20
"""Below it a clean history proves nothing, and the verdict says so."""

_SHOWN = 10
_UNDECIDED = "undecided"

Verdict = Literal["clean", "anomalies", "undecided", "too little"]


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time in which no operation was acknowledged. `during`: the fault that was begun
    last before its end.
    """

    seconds: float
    ended_s: float
    during: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """One workload's run, judged."""

    workload: str
    isolation: str
    operations: int
    acknowledged: int
    unknown: int
    failed: Mapping[str, int]
    """By code; refusals of the product such as WRITE_CONFLICT are failures, too."""
    gap: Gap
    anomalies: Sequence[Anomaly] = field(default_factory=tuple)

    @property
    def verdict(self) -> Verdict:
        if any(a.kind != _UNDECIDED for a in self.anomalies):
            return "anomalies"
        if self.anomalies:
            return "undecided"
        return "clean" if self.acknowledged >= ACKNOWLEDGED_MIN else "too little"

    def to_plain(self) -> dict[str, object]:
        """As `--json` prints it."""
        return {
            "workload": self.workload,
            "isolation": self.isolation,
            "verdict": self.verdict,
            "operations": self.operations,
            "acknowledged": self.acknowledged,
            "unknown": self.unknown,
            "failed": dict(self.failed),
            "longest_gap_s": round(self.gap.seconds, 3),
            "anomalies": [
                {"kind": a.kind, "text": a.text, "operations": list(a.operations)}
                for a in self.anomalies
            ],
        }


def report(history: History, anomalies: Sequence[Anomaly]) -> Report:
    """The figures of a history, with what the checkers found."""
    operations = history.operations()
    failed = Counter(o.error for o in operations if o.outcome == "fail")
    return Report(
        workload=history.header.workload,
        isolation=history.header.isolation,
        operations=len(operations),
        acknowledged=sum(o.acknowledged for o in operations),
        unknown=sum(o.outcome == "unknown" for o in operations),
        failed=dict(failed.most_common()),
        gap=longest_gap(history.events),
        anomalies=tuple(anomalies),
    )


def longest_gap(events: Sequence[Event]) -> Gap:
    """While the load ran; without phases in the history: from its first event to its last."""
    last = began = events[0].time_s if events else 0.0
    gap, fault = Gap(0.0, began), ""
    for event in events:
        if event.type == "note" and event.f == PHASE_LOAD:
            last, gap, fault = event.time_s, Gap(0.0, event.time_s), ""
        elif event.type == "note" and event.info.get("fault"):
            fault = f"{event.f} at {event.time_s:.1f} s"
        elif event.type == "ok" or (event.type == "note" and event.f == PHASE_HEALED):
            if event.time_s - last > gap.seconds:
                gap = Gap(event.time_s - last, event.time_s, fault)
            last = event.time_s
            if event.type == "note":
                return gap
    return gap


def lines(summary: Report, history: History) -> Iterator[str]:
    """The report in words."""
    failed = sum(summary.failed.values())
    yield (
        f"{summary.workload} ({summary.isolation}): {summary.operations:,} operations, "
        f"{summary.acknowledged:,} acknowledged, {summary.unknown:,} unknown, {failed:,} failed"
    )
    if summary.failed:
        yield "  failed: " + ", ".join(f"{code} {n:,}" for code, n in summary.failed.items())
    during = f", after {summary.gap.during}" if summary.gap.during else ""
    yield (
        f"  longest time without an acknowledgement: {summary.gap.seconds:.2f} s, until "
        f"{summary.gap.ended_s:.1f} s{during}"
    )
    match summary.verdict:
        case "clean":
            yield "  no anomaly"
        case "too little":
            yield (
                f"  TOO LITTLE: with fewer than {ACKNOWLEDGED_MIN} acknowledged operations nothing "
                "is shown; run it longer"
            )
        case "undecided" | "anomalies":
            yield from _anomalies(summary, history)


def _anomalies(summary: Report, history: History) -> Iterator[str]:
    kinds = Counter(a.kind for a in summary.anomalies)
    yield "  ANOMALIES: " + ", ".join(f"{kind} {n}" for kind, n in kinds.most_common())
    known = {o.id: o for o in history.operations()}
    for anomaly in summary.anomalies[:_SHOWN]:
        yield f"  - {anomaly.kind}: {anomaly.text}"
        for number in anomaly.operations[:_SHOWN]:
            if number in known:
                yield f"      {operation_line(known[number])}"
    if len(summary.anomalies) > _SHOWN:
        yield f"  … and {len(summary.anomalies) - _SHOWN} more (--json has them all)"


def operation_line(o: Operation) -> str:
    """One operation of a history on one line: when, who, what, and what came of it."""
    end = "…" if o.outcome == "unknown" else f"{o.ended_s:.3f}"
    outcome = {"ok": "→", "fail": "failed:", "unknown": "unknown:"}[o.outcome]
    result = _short(o.result) if o.acknowledged else o.error
    info = " ".join(f"{name}={value}" for name, value in o.info.items())
    args = "" if o.args is None else f" {_short(o.args)}"
    return (
        f"#{o.id} {o.began_s:.3f}-{end} s, process {o.process}: {o.f}{args} {outcome} {result} "
        f"{info}"
    ).rstrip()


def _short(value: object, chars: int = 300) -> str:
    text = str(value)
    return text if len(text) <= chars else text[:chars] + " …"

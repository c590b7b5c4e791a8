"""What happened in a run, as plain data: who asked for what, when, and what the answer was.

    {"format": 1, "workload": "bank", "seed": 7, "isolation": "snapshot", "parameters": {…}}
    {"type": "invoke", "process": 3, "time_s": 0.0125, "f": "transfer", "value": {…}}
    {"type": "ok",     "process": 3, "time_s": 0.0161, "f": "transfer", "value": {…}, "op": 0}

One JSON document per line: the header, then the events in the order in which they were observed.
An operation is an `invoke` and at most one completion, which names it by the position of its
`invoke` (`op`):

    ok        it happened, and this is what it answered
    fail      it certainly did not happen, and never will
    unknown   it may have happened, may happen later, or never; so may one without a completion

`note` events (faults, phases) belong to no operation.

Invariants. One recorder on one event loop writes a history, so *positions* are the real-time order:
A came before B if A's completion stands before B's invocation. Times are for people: in virtual
time many events share one. A process does one thing after the other, and gets a new number after an
unknown outcome, for its old request may still be on its way (as in Jepsen; Kingsbury 2013).

Values are what JSON holds: numbers, text, lists, maps with text as keys. The shapes of each
workload's values are said in its module. `["append", key, element]` and `["r", key, list]` are the
micro-operations of `txn`, as in Elle (Kingsbury & Alvaro 2020).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from kv.base.errors import InvalidArgument, KvorumError

FORMAT: Final = 1
FOREVER: Final = 1 << 62
"""The end of an operation whose outcome is unknown: after everything."""

EventType = Literal["invoke", "ok", "fail", "unknown", "note"]
Outcome = Literal["ok", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history. `time_s`: seconds since the run began. `op`: the position of the
    invocation that this completes, -1 for invocations and notes.
    """

    type: EventType
    process: int
    time_s: float
    f: str
    value: Any = None
    op: int = -1
    error: str = ""
    """The code of what went wrong, of `fail` and `unknown`."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """What explains it to people, and to checkers that ask for more: txn, version."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An invocation and its completion. `id` and `began`: the position of the invocation, `ended`:
    of the completion, FOREVER if the outcome is unknown.
    """

    id: int
    process: int
    f: str
    args: Any
    outcome: Outcome
    result: Any
    began: int
    ended: int
    began_s: float
    ended_s: float
    error: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def acknowledged(self) -> bool:
        return self.outcome == "ok"


@dataclass(frozen=True, slots=True)
class Header:
    """What was run. `parameters` are the workload's own, which its checker needs."""

    workload: str
    seed: int = 0
    isolation: str = "snapshot"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT


class History:
    """Header and events; written by one loop, read by checkers."""

    def __init__(self, header: Header, events: Iterable[Event] = ()) -> None:
        self.header = header
        self.events: list[Event] = list(events)

    def operations(self, *names: str) -> list[Operation]:
        """The operations in the order of their invocations; only those called so, if names are
        given.
        """
        completions = {event.op: at for at, event in enumerate(self.events) if event.op >= 0}
        return [
            _operation(at, event, completions.get(at), self.events)
            for at, event in enumerate(self.events)
            if event.type == "invoke" and (not names or event.f in names)
        ]

    # ------------------------------------------------------------------------------ JSON lines

    def lines(self) -> Iterator[str]:
        """The file, line by line, without line ends."""
        header = self.header
        yield _json(
            {
                "format": header.format,
                "workload": header.workload,
                "seed": header.seed,
                "isolation": header.isolation,
                "parameters": dict(header.parameters),
            }
        )
        for event in self.events:
            yield _json(_plain(event))

    @staticmethod
    def parse(lines: Iterable[str]) -> History:
        """The history that `lines` made. Raises InvalidArgument naming the line."""
        made: History | None = None
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if made is None:
                    made = History(_header(row))
                else:
                    made.events.append(_event(row, made.events))
            except (ValueError, TypeError, KeyError) as error:
                raise InvalidArgument(f"line {number} of the history: {error}") from error
        if made is None:
            raise InvalidArgument("the history is empty: its first line must be the header")
        return made


class Recorder:
    """Writes a history: `invoke`, then one of `ok`, `fail`, `unknown`.

    `monotonic` gives seconds, of any origin. `on_event` is called with every event, for progress.
    """

    def __init__(
        self,
        header: Header,
        monotonic: Callable[[], float],
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.history = History(header)
        self._monotonic = monotonic
        self._began_s = monotonic()
        self._on_event = on_event

    def invoke(self, process: int, f: str, args: object = None) -> int:
        """An operation begins. Returns what its completion takes."""
        return self._add(Event("invoke", process, self._now(), f, args))

    def ok(self, op: int, result: object = None, **info: object) -> None:
        self._complete("ok", op, result, "", info)

    def fail(self, op: int, error: str, **info: object) -> None:
        self._complete("fail", op, None, error, info)

    def unknown(self, op: int, error: str, **info: object) -> None:
        self._complete("unknown", op, None, error, info)

    def note(self, what: str, **info: object) -> None:
        """Something that explains the rest: a fault, a phase."""
        self._add(Event("note", -1, self._now(), what, info=info))

    def _now(self) -> float:
        return round(self._monotonic() - self._began_s, 6)

    def _complete(
        self, outcome: Outcome, op: int, result: object, error: str, info: Mapping[str, object]
    ) -> None:
        began = self.history.events[op]
        assert began.type == "invoke"
        process, f = began.process, began.f
        self._add(Event(outcome, process, self._now(), f, result, op, error, info))

    def _add(self, event: Event) -> int:
        events = self.history.events
        events.append(event)
        if self._on_event is not None:
            self._on_event(event)
        return len(events) - 1


def outcome_of(error: KvorumError) -> Outcome:
    """What an error says about a *write*: `fail` is a promise that nothing was done, which checkers
    hold the cluster to. (A read that failed did nothing in any case.)
    """
    unknown = error.disposition == "unknown_outcome" or type(error) is KvorumError
    return "unknown" if unknown else "fail"


def _operation(at: int, event: Event, end: int | None, events: list[Event]) -> Operation:
    asked = (at, event.process, event.f, event.value)
    if end is None:
        never = float("inf")
        return Operation(*asked, "unknown", None, at, FOREVER, event.time_s, never, "NO_ANSWER")
    done = events[end]
    assert done.type in ("ok", "fail", "unknown")
    ended = FOREVER if done.type == "unknown" else end
    times = (at, ended, event.time_s, done.time_s)
    return Operation(*asked, done.type, done.value, *times, done.error, done.info)


def _plain(event: Event) -> dict[str, object]:
    row: dict[str, object] = {"type": event.type, "process": event.process}
    row |= {"time_s": event.time_s, "f": event.f, "value": event.value}
    if event.op >= 0:
        row["op"] = event.op
    if event.error:
        row["error"] = event.error
    if event.info:
        row["info"] = dict(event.info)
    return row


def _header(row: object) -> Header:
    if not isinstance(row, dict) or "workload" not in row:
        raise ValueError('the first line must be the header: {"format": 1, "workload": …}')
    if row.get("format") != FORMAT:
        raise ValueError(f"format {row.get('format')!r} is not {FORMAT}, which this version reads")
    return Header(
        workload=str(row["workload"]),
        seed=int(row.get("seed", 0)),
        isolation=str(row.get("isolation", "snapshot")),
        parameters=dict(row.get("parameters", {})),
    )


def _event(row: Any, before: list[Event]) -> Event:
    if row["type"] not in get_args(EventType):
        raise ValueError(f"{row['type']!r} is no type of event")
    event = Event(
        type=row["type"],
        process=int(row["process"]),
        time_s=float(row["time_s"]),
        f=str(row["f"]),
        value=row.get("value"),
        op=int(row.get("op", -1)),
        error=str(row.get("error", "")),
        info=dict(row.get("info", {})),
    )
    if event.type in get_args(Outcome) and not (
        0 <= event.op < len(before) and before[event.op].type == "invoke"
    ):
        raise ValueError(f"op {event.op} is not the position of an invocation before it")
    return event


def _json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

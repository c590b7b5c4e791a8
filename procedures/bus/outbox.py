"""What the master still has to send, pure: per operation and target one line with the order, when
it is due, and what came back.

    open, close    what an operation wants now; nothing more of it
    due, take, ask the orders that are due, of all targets or of one; taking them counts an attempt
    arrived        a target has them: it is asked again after BUS_RENEW_MS, which also renews its
                   lease, unless its answer comes before
    lost           they did not arrive: again soon, the pause doubles
    heard          reports, by whatever way they came; says whose answers are new

Lives in memory, for one reign: a new master fills it from the procedures' records, and targets are
asked once more. An answer stays here until a record has it (`open` with an operation that no longer
waits for the target).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kv.base import limits
from procedures.bus.core import Operation
from procedures.bus.messages import Order, Report, Status, Verb, bounded
from procedures.engine.plain_data import Plain


@dataclass(slots=True)
class _Line:
    order: Order
    due_s: float
    attempts: int = 0
    failures: int = 0  # in a row
    arrived: bool = False
    error: str = ""  # of the last attempt that failed, or of the target
    progress: object = None
    answer: Report | None = None


class Outbox:
    """See the module. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, _Line]] = {}  # target → operation → line
        self._targets: dict[str, set[str]] = {}  # operation → targets
        self._since: dict[str, tuple[Verb, float]] = {}  # operation → its phase, and since when

    # ------------------------------------------------------------------------------ operations

    def open(self, op: Operation, now_s: float) -> None:
        """Send what this operation wants of those that it waits for, and nothing else of it."""
        wanted = set(op.waiting())
        for target in self._targets.get(op.id, set()) - wanted:
            self._drop(op.id, target)
        for target in sorted(wanted):
            lines = self._lines.setdefault(target, {})
            order, known = op.order(target), lines.get(op.id)
            if known is None or known.order != order:
                lines[op.id] = _Line(order, now_s)
        self._targets[op.id] = wanted
        if self._since.get(op.id, (None,))[0] is not op.verb:
            self._since[op.id] = op.verb, now_s

    def age_s(self, op: str, now_s: float) -> float:
        """How long the phase that it is in has been sent."""
        return now_s - self._since[op][1] if op in self._since else 0.0

    def close(self, op: str) -> None:
        """Nothing more is sent of it; what is still heard of it changes nothing."""
        self._since.pop(op, None)
        for target in self._targets.pop(op, ()):
            self._drop(op, target)

    def clear(self) -> None:
        """Another node is the master."""
        self._lines.clear()
        self._targets.clear()
        self._since.clear()

    def answers(self, op: str) -> list[tuple[str, Report]]:
        """What was answered and no record has yet, in the order of the targets."""
        found = []
        for target in sorted(self._targets.get(op, ())):
            answer = self._lines[target][op].answer
            if answer is not None:
                found.append((target, answer))
        return found

    def is_open(self, op: str) -> bool:
        return op in self._targets

    def answered(self, op: str) -> bool:
        """Whether nobody's answer is missing, or somebody failed for good."""
        answers = [self._lines[target][op].answer for target in self._targets.get(op, ())]
        failed = any(answer is not None and answer.status is Status.FAILED for answer in answers)
        return failed or None not in answers

    def shown(self, op: str) -> dict[str, Plain]:
        """For people: attempts, and, when there is one, progress and the last error."""
        found: dict[str, dict[str, object]] = {}
        for target in sorted(self._targets.get(op, ())):
            line = self._lines[target][op]
            shown: dict[str, object] = {"attempts": line.attempts}
            if line.progress is not None:
                shown["progress"] = line.progress
            if line.error:
                shown["last_error"] = line.error
            found[target] = shown
        return found

    def __len__(self) -> int:
        return len(self._targets)

    # ------------------------------------------------------------------------------ sending

    def due(self, now_s: float) -> list[str]:
        """The targets that have orders due."""
        return sorted(target for target in self._lines if self._due_lines(target, now_s))

    def next_s(self, reachable: Callable[[str], bool]) -> float | None:
        """When the next order is due for a target that can be sent something, None for never."""
        times = [
            line.due_s
            for target, lines in self._lines.items()
            if reachable(target)
            for line in lines.values()
            if line.answer is None
        ]
        return min(times, default=None)

    def take(self, target: str, now_s: float) -> list[Order]:
        """The orders that are due for a target, at most one message: they are on their way now."""
        return self._take(self._due_lines(target, now_s), now_s)

    def ask(self, target: str, now_s: float) -> list[Order]:
        """The same for a target that asks by itself: it also gets what did not arrive yet, however
        lately that was sent. So it is reached though nothing that is pushed arrives.
        """
        lines = self._lines.get(target, {}).values()
        open_ = [line for line in lines if line.answer is None]
        return self._take([x for x in open_ if not x.arrived or x.due_s <= now_s], now_s)

    def _take(self, lines: list[_Line], now_s: float) -> list[Order]:
        lines = lines[: bounded([line.order for line in lines])]
        for line in lines:
            line.attempts += 1
            line.due_s = now_s + _pause_s(line.failures)
        return [line.order for line in lines]

    def arrived(self, target: str, orders: Iterable[Order], now_s: float) -> None:
        """The target has these orders."""
        for line in self._of(target, orders):
            self._has(line, now_s)

    def lost(self, target: str, orders: Iterable[Order], why: str, now_s: float) -> None:
        """These orders did not arrive, as far as anybody knows."""
        for line in self._of(target, orders):
            line.arrived = False
            self._fail(line, why, now_s)

    def heard(self, target: str, reports: Sequence[Report], now_s: float) -> set[str]:
        """What a target reports; the operations that have a new answer."""
        changed: set[str] = set()
        for report in reports:
            line = self._lines.get(target, {}).get(report.op)
            if line is None or line.answer is not None:
                continue
            if (report.verb, report.round) != (line.order.verb, line.order.round):
                continue
            if report.status is Status.WORKING:
                line.progress = report.plain()
                self._has(line, now_s)
            elif report.status is Status.FAILED and not _for_good(report):
                code, message, _ = report.plain()
                line.arrived = True  # it has the order, and is asked again when it is due
                self._fail(line, f"{code}: {message}", now_s)
            else:
                line.answer = report
                changed.add(report.op)
        return changed

    # ------------------------------------------------------------------------------ details

    def _due_lines(self, target: str, now_s: float) -> list[_Line]:
        lines = self._lines.get(target, {}).values()
        return [line for line in lines if line.answer is None and line.due_s <= now_s]

    def _of(self, target: str, orders: Iterable[Order]) -> list[_Line]:
        lines = self._lines.get(target, {})
        found = [(order, lines.get(order.op)) for order in orders]
        return [
            line
            for order, line in found
            if line is not None and line.order == order and line.answer is None
        ]

    @staticmethod
    def _has(line: _Line, now_s: float) -> None:
        line.arrived, line.failures = True, 0
        line.due_s = now_s + limits.BUS_RENEW_MS / 1000

    @staticmethod
    def _fail(line: _Line, why: str, now_s: float) -> None:
        line.error = why[: limits.BUS_ERROR_CHARS_MAX]
        line.failures += 1
        line.due_s = now_s + _pause_s(line.failures)

    def _drop(self, op: str, target: str) -> None:
        lines = self._lines.get(target)
        if lines is not None:
            lines.pop(op, None)
            if not lines:
                del self._lines[target]


def _for_good(report: Report) -> bool:
    """Whether asking again is of no use. What was decided is asked for until it is done."""
    return bool(report.plain()[2]) and report.verb in (Verb.DO, Verb.STAGE)


def _pause_s(failures: int) -> float:
    pause = limits.BUS_RETRY_MS_FIRST << min(failures, 20)
    return min(limits.BUS_RETRY_MS_MAX, pause) / 1000

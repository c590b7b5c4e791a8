"""Queues: their limits, turns and order hold, and each ticket is one procedure (shapes of
workloads/queues.py).

Versions order what was committed; between those of its two rows a ticket had certainly begun, and
had not ended. Positions in the history order what was asked and answered.

Finds

    two-ids       one text, two procedures
    twice         a step whose effect is there more than once, or not at all
    from-nowhere  a ticket that nobody submitted, or that was refused
    unfinished    an acknowledged ticket whose end nobody could wait for
    result        a procedure that is another one's
    at-once       more had begun than the queue, or one of its keys, lets run at once
    order         of one key a ticket began before one that was acknowledged before it was asked for
    rate          more had ended than could have begun by then
    unfair        while one key had somebody who could begin, another one had many turns, and so it
                  was for half of its tickets (a single one may only have been late)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import FOREVER, History, Operation

_CLOCKS: Final = 1.05
"""Clocks of nodes may run so much faster."""
_JUDGED_MIN: Final = 6
"""Tickets of a key, before it is said that it was treated unfairly."""


@dataclass(slots=True)
class _Ticket:
    name: str
    key: str
    asked: int  # the position of the first time
    answered: int = FOREVER  # … and of the first answer
    id: int = 0
    operation: int = 0  # which said so
    marked: int = 0  # a version by which it waited; 0: not known
    began: int = 0
    ended: int = 0


def check(history: History) -> list[Anomaly]:
    """See the module."""
    parameters = history.header.parameters
    operations = history.operations()
    tickets, found = _tickets(operations)
    awaits = [o for o in operations if o.f in ("await", "final await") and o.acknowledged]
    found += [
        Anomaly("result", f"#{o.id}: procedure {o.args['id']} says {o.result!r}", (o.id,))
        for o in awaits
        if o.result != o.args["ticket"]
    ]
    found += _rate(operations, awaits, int(parameters["rate"]), int(parameters["burst"]))
    ends = [o for o in operations if o.f == "final read" and o.acknowledged]
    if not ends:
        return found
    end = ends[-1]
    ended = {o.args["id"] for o in awaits}
    for one in tickets.values():
        if one.id and one.id not in ended:
            text = f"#{one.operation}: {one.name} ({one.id}) did not succeed"
            found.append(Anomaly("unfinished", text, (one.operation,)))
    found += _once(tickets, operations, end)
    there = sorted((one for one in tickets.values() if one.began), key=lambda one: one.began)
    found += _at_once("the queue", there, int(parameters["at_once"]), end)
    by_key: dict[str, list[_Ticket]] = defaultdict(list)
    for one in there:
        by_key[one.key].append(one)
    for key, mine in by_key.items():
        found += _at_once(f"key {key}", mine, 1, end)
        found += _order(key, mine)
        found += _unfair(key, mine, by_key, int(parameters["turns"]), end)
    return found


def _tickets(operations: Sequence[Operation]) -> tuple[dict[str, _Ticket], list[Anomaly]]:
    tickets: dict[str, _Ticket] = {}
    found = []
    for o in operations:
        if o.f == "mark" and o.acknowledged:
            tickets[o.args["ticket"]].marked = int(o.info["version"])
        if o.f not in ("enqueue", "final enqueue"):
            continue
        name = o.args["ticket"]
        one = tickets.setdefault(name, _Ticket(name, o.args["key"], o.began))
        if not o.acknowledged:
            continue
        if one.id and one.id != o.result:
            text = f"{name} is procedure {one.id} and {o.result}"
            found.append(Anomaly("two-ids", text, (one.operation, o.id)))
        if o.ended < one.answered:
            one.id, one.operation, one.answered = o.result, o.id, o.ended
    return tickets, found


def _once(
    tickets: dict[str, _Ticket], operations: Sequence[Operation], end: Operation
) -> Iterator[Anomaly]:
    maybe = {
        o.args["ticket"] for o in operations if o.f.endswith("enqueue") and o.outcome != "fail"
    }
    for name, (began, begins, ended, ends) in end.result.items():
        if name not in maybe:
            text = f"{name} began, though it was never taken on"
            yield Anomaly("from-nowhere", text, (end.id,))
            continue
        one = tickets[name]
        one.began, one.ended = began, ended or FOREVER
        if begins > 1 or ends > 1:
            text = f"{name} began {begins} times and ended {ends} times"
            yield Anomaly("twice", text, (one.operation, end.id))
    for one in tickets.values():
        if one.id and not (one.began and one.ended != FOREVER):
            text = f"#{one.operation}: {one.name} ({one.id}) left no trace of both its steps"
            yield Anomaly("twice", text, (one.operation, end.id))


def _at_once(what: str, tickets: Sequence[_Ticket], most: int, end: Operation) -> Iterator[Anomaly]:
    events = [(one.began, 1, one) for one in tickets] + [(one.ended, 0, one) for one in tickets]
    running: dict[str, _Ticket] = {}
    for _, begins, one in sorted(events, key=lambda event: event[:2]):
        if not begins:
            running.pop(one.name, None)
            continue
        running[one.name] = one
        if len(running) > most:
            text = f"{what} had {', '.join(running)} at once; it may have {most}"
            yield Anomaly(
                "at-once", text, (*(other.operation for other in _known(running)), end.id)
            )


def _known(running: dict[str, _Ticket]) -> list[_Ticket]:
    return [one for one in running.values() if one.id]


def _order(key: str, tickets: Sequence[_Ticket]) -> Iterator[Anomaly]:
    """`tickets` as they began."""
    last: _Ticket | None = None
    for one in tickets:
        if last is not None and one.answered < last.asked:
            text = f"key {key}: {last.name} began before {one.name}, which was there before it"
            known = [other.operation for other in (one, last) if other.id]
            yield Anomaly("order", text, tuple(known))
        if last is None or one.asked > last.asked:
            last = one


def _rate(
    operations: Sequence[Operation], awaits: Sequence[Operation], rate: int, burst: int
) -> Iterator[Anomaly]:
    began_s = min((o.began_s for o in operations if o.f == "enqueue"), default=0.0)
    ended: set[int] = set()
    for o in sorted(awaits, key=lambda o: o.ended):
        ended.add(o.args["id"])
        passed_s = o.ended_s - began_s
        if len(ended) > burst + rate * passed_s * _CLOCKS + 1:
            text = f"#{o.id}: {len(ended)} had ended after {passed_s:.2f} s, at {rate} per second"
            yield Anomaly("rate", text, (o.id,))
            return  # what comes after it is the same again


def _unfair(
    key: str,
    tickets: Sequence[_Ticket],
    by_key: dict[str, list[_Ticket]],
    turns: int,
    end: Operation,
) -> Iterator[Anomaly]:
    """While a ticket waited, and none of its key was before it."""
    begins = {name: [one.began for one in mine] for name, mine in by_key.items() if name != key}
    most, free = [], 0
    for one in tickets:
        if one.marked:
            since = max(one.marked, free)
            passed = [bisect_left(b, one.began) - bisect_left(b, since) for b in begins.values()]
            most.append(max([0, *passed]))
        free = max(free, one.ended)
    middle = sorted(most)[len(most) // 2] if most else 0
    if len(most) >= _JUDGED_MIN and middle > turns:
        text = (
            f"key {key}: another had {middle} turns while it could begin, for half of its tickets"
        )
        yield Anomaly("unfair", text, (end.id,))

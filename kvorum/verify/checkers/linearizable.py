"""Is each key one linearizable register? (Herlihy & Wing 1990)

The search is Porcupine's (Athalye 2017), after Wing & Gong 1993 with Lowe's memory of what was
tried (2017): the events of a key in a doubly linked list; take the first call that the model allows
out of it, and start again at the front; at the return of an operation that was not taken, undo the
last choice. A set of operations with the state that they led to is never tried twice. Keys are
checked on their own: linearizability is local.

- An operation without a certain outcome may take effect at any time after its call, or never: it
  has no return, so the search need not take it. Such writes whose value nobody saw are left out
  when no refused comparison could be due to them: each would double the search for nothing.
- A `fail` did nothing; it is left out, so a value that it wrote after all is one from nowhere.

Deliberately missing: the search is exponential in the number of concurrent operations of one key
when the history is wrong or many outcomes are unknown. After `steps_max` steps it gives up and says
so (`undecided`); nothing is claimed about such a key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import FOREVER, History, Operation

STEPS_MAX: Final = 2_000_000

_Value = str | int | None


@dataclass(frozen=True, slots=True)
class _Call:
    """An operation as the model sees it: it needs the state `old` (if it needs any) and leaves
    `new` (if it changes it). `unless`: `old` is what the state must *not* be.
    """

    operation: Operation
    needs: bool
    old: _Value
    unless: bool
    writes: bool
    new: _Value

    def allowed(self, state: _Value) -> bool:
        return not self.needs or (state == self.old) is not self.unless


class _GaveUp(Exception):
    """The search took more steps than it may."""


def check(history: History, *, steps_max: int = STEPS_MAX) -> list[Anomaly]:
    """One anomaly per key that is not linearizable, or that could not be decided."""
    found = []
    for key, operations in sorted(by_key(history.operations()).items()):
        anomaly = check_key(key, operations, steps_max=steps_max)
        if anomaly is not None:
            found.append(anomaly)
    return found


def by_key(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    """The operations of each key, in the order of their calls."""
    keys: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        keys[operation.args["key"]].append(operation)
    return dict(keys)


def check_key(
    key: str, operations: Sequence[Operation], *, steps_max: int = STEPS_MAX
) -> Anomaly | None:
    """Judge the operations of one key, which begins as None (absent)."""
    calls = _calls(operations)
    try:
        if _search(calls, steps_max) is None:
            return None
        return _explained(key, calls, steps_max)
    except _GaveUp:
        return Anomaly(
            "undecided",
            f"key {key}: {len(calls)} operations, too many of them concurrent or unknown to decide "
            f"in {steps_max:,} steps; use fewer clients",
        )


# ------------------------------------------------------------------------------------- the model


def _calls(operations: Sequence[Operation]) -> list[_Call]:
    """What happened or may have; reads without an answer say nothing."""
    seen = {o.result for o in operations if _is_read(o) and o.acknowledged}
    seen |= {o.args["old"] for o in operations if o.f == "cas" and o.result is True}
    compared = any(o.f == "cas" and o.result is False for o in operations)
    return [
        _call(o)
        for o in operations
        if o.acknowledged
        or (o.outcome == "unknown" and not _is_read(o) and (compared or _written(o) in seen))
    ]


def _is_read(o: Operation) -> bool:
    return o.f in ("read", "final read")


def _written(o: Operation) -> _Value:
    value: _Value = o.args["new"] if o.f == "cas" else o.args["value"]
    return value


def _call(o: Operation) -> _Call:
    if _is_read(o):
        return _Call(o, True, o.result, False, False, None)
    if o.f == "write":
        return _Call(o, False, None, False, True, o.args["value"])
    assert o.f == "cas", o.f
    if o.result is False:
        return _Call(o, True, o.args["old"], True, False, None)
    return _Call(o, True, o.args["old"], False, True, o.args["new"])


# ------------------------------------------------------------------------------------ the search


def _search(calls: Sequence[_Call], steps_max: int) -> int | None:
    """None if there is an order that explains all answers; else the index of the call at whose
    return the search was stuck for good, the furthest that it ever came.
    """
    events = _Events(calls)
    tried: set[tuple[int, _Value]] = set()
    stack: list[tuple[int, _Value]] = []
    taken, state, left = 0, None, events.returns
    furthest, steps = -1, 0
    at = events.first()
    while left:
        steps += 1
        if steps > steps_max:
            raise _GaveUp
        index = events.call_at(at)
        if index is None:  # a return: its operation should have been taken before
            furthest = max(furthest, at)
            if not stack:
                return events.returned(furthest)
            index, state = stack.pop()
            taken ^= 1 << index
            left += events.put_back(index)
            at = events.after(index)
            continue
        call = calls[index]
        following = call.new if call.writes else state
        if call.allowed(state) and (mark := (taken | 1 << index, following)) not in tried:
            tried.add(mark)
            stack.append((index, state))
            taken, state = mark
            left -= events.take_out(index)
            at = events.first()
        else:
            at = events.after(index)
    return None


class _Events:
    """Calls and returns of one key in real-time order, as a doubly linked list of slots. Slot 0 is
    the front.
    """

    def __init__(self, calls: Sequence[_Call]) -> None:
        times = [(c.operation.began, i, True) for i, c in enumerate(calls)]
        ends = [
            (c.operation.ended, i, False)
            for i, c in enumerate(calls)
            if c.operation.ended < FOREVER
        ]
        order = sorted(times + ends)
        self.returns = len(ends)
        self._call_of: list[int | None] = [None]
        self._owner = [-1]
        self._slot_of_call = [0] * len(calls)
        self._slot_of_return = [0] * len(calls)
        for slot, (_, index, is_call) in enumerate(order, start=1):
            self._call_of.append(index if is_call else None)
            self._owner.append(index)
            (self._slot_of_call if is_call else self._slot_of_return)[index] = slot
        last = len(order)
        self._next: list[int] = [*range(1, last + 1), 0]
        self._prev: list[int] = [last, *range(last)]

    def first(self) -> int:
        return self._next[0]

    def after(self, index: int) -> int:
        """The slot after a call's."""
        return self._next[self._slot_of_call[index]]

    def call_at(self, slot: int) -> int | None:
        """The index of the call there; None for a return."""
        return self._call_of[slot]

    def returned(self, slot: int) -> int:
        return self._owner[slot]

    def take_out(self, index: int) -> int:
        """Remove an operation; 1 if it has a return."""
        ended = self._slot_of_return[index]
        self._unlink(self._slot_of_call[index])
        if ended:
            self._unlink(ended)
        return 1 if ended else 0

    def put_back(self, index: int) -> int:
        """Undo the last `take_out`: it must be this operation's."""
        ended = self._slot_of_return[index]
        if ended:
            self._link(ended)
        self._link(self._slot_of_call[index])
        return 1 if ended else 0

    def _unlink(self, slot: int) -> None:
        before, after = self._prev[slot], self._next[slot]
        self._next[before], self._prev[after] = after, before

    def _link(self, slot: int) -> None:
        self._next[self._prev[slot]] = slot
        self._prev[self._next[slot]] = slot


# ----------------------------------------------------------------------------------- the message


def _explained(key: str, calls: Sequence[_Call], steps_max: int) -> Anomaly:
    """The shortest beginning of the history that has no explanation, found by bisection (every
    beginning of a linearizable history is linearizable): its last answer is the one to look at.
    """
    ends = sorted(c.operation.ended for c in calls if c.operation.ended < FOREVER)
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if _search(_until(calls, ends[middle]), steps_max) is None:
            low = middle + 1
        else:
            high = middle
    shortest = _until(calls, ends[low])
    last = next(c.operation for c in shortest if c.operation.ended == ends[low])
    around = [
        c.operation
        for c in shortest
        if c.operation.id != last.id and c.operation.ended > last.began
    ]
    before = [c.operation for c in shortest if c.operation.ended < last.began][-4:]
    story = [*before, *around, last]
    lines = "; ".join(f"#{o.id} {describe(o)}" for o in story)
    return Anomaly(
        "not-linearizable",
        f"key {key}: no order of its operations explains #{last.id} {describe(last)} "
        f"(answered at {last.ended_s:.3f} s). The last before it and those beside it: {lines}",
        tuple(o.id for o in story),
    )


def _until(calls: Sequence[_Call], end: int) -> list[_Call]:
    """The history as it was when `end` had just happened: later answers had not come yet."""
    known = []
    for c in calls:
        o = c.operation
        if o.began > end:
            continue
        if o.ended <= end:
            known.append(c)
        elif c.writes:
            known.append(_Call(_open(o), c.needs, c.old, c.unless, True, c.new))
    return known


def _open(o: Operation) -> Operation:
    return Operation(
        o.id, o.process, o.f, o.args, "unknown", None, o.began, FOREVER, o.began_s, float("inf")
    )


def describe(o: Operation) -> str:
    """An operation in a few words, with its process."""
    match o.f:
        case "read" | "final read":
            what = f"read → {o.result}"
        case "write":
            what = "delete" if o.args["value"] is None else f"write {o.args['value']}"
        case _:
            done = {True: "done", False: "refused"}.get(o.result, "?")
            what = f"cas {o.args['old']} to {o.args['new']} → {done}"
    doubt = "" if o.acknowledged else " (unknown)"
    return f"{what}{doubt} by {o.process}"

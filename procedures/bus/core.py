"""An operation as its procedure sees it, pure: whom it asked for what, and who has answered.

    begin      a set of targets → an operation in which nobody has answered
    heard      an operation and a target's report → the operation with that answer, or unchanged
    retarget   where the partitions are now → who must be asked anew, who need not be waited for
    verdict    AllDone | Broken (somebody failed for good) | Expired | Waiting
    turned     the same targets, asked for the next thing: COMMIT, or UNDO

    WAITING ──▶ DONE                     LEFT: what it was asked is no business of it any more (its
       ├──────▶ FAILED                   partitions moved, it was decommissioned). Nobody waits for
       └──────▶ LEFT                     it, but it must take back what it may have done.

Everything here is durable: `to_plain` is what the procedure's record keeps. An answer that is not
about the verb and the round that are wanted changes nothing, nor does a second one: so late answers
of an operation that was given up are harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from kv.base import limits
from kv.base.errors import InvalidArgument, TooLarge
from procedures.bus.messages import Order, Report, Status, Verb
from procedures.engine import plain_data
from procedures.engine.plain_data import Plain

WAITING: Final = "waiting"
DONE: Final = "done"
FAILED: Final = "failed"
LEFT: Final = "left"


@dataclass(frozen=True, slots=True)
class Asked:
    """One target. `result` of a success, `error` ({code, message}) of a failure for good."""

    body: Any
    round: int = 1
    state: str = WAITING
    result: Any = None
    error: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """See the module. `targets` in the order of their names."""

    id: str
    kind: str
    verb: Verb
    targets: Mapping[str, Asked]
    deadline_ms: int = 0
    """Wall clock; 0 = it is waited for ever, as for a commit that was decided."""

    def order(self, target: str) -> Order:
        """What a target is sent."""
        asked = self.targets[target]
        body = plain_data.pack(asked.body)
        return Order(self.id, self.verb, asked.round, self.kind, body, limits.BUS_LEASE_MS)

    def waiting(self) -> list[str]:
        """Whose answer is missing."""
        return [name for name, asked in self.targets.items() if asked.state == WAITING]


@dataclass(frozen=True, slots=True)
class Waiting:
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AllDone:
    results: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Broken:
    """The first of the targets that failed for good."""

    target: str
    error: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Expired:
    targets: tuple[str, ...]


Verdict: TypeAlias = Waiting | AllDone | Broken | Expired


def begin(
    id: str, kind: str, verb: Verb, wanted: Mapping[str, object], *, deadline_ms: int = 0
) -> Operation:
    """`wanted`: what each target is asked. Raises InvalidArgument, TooLarge."""
    check_bodies(wanted)
    targets = {name: Asked(wanted[name]) for name in sorted(wanted)}
    return Operation(id, kind, verb, targets, deadline_ms)


def check_bodies(wanted: Mapping[str, object]) -> None:
    """Raises InvalidArgument (nobody to ask), TooLarge (too many, or too much for one)."""
    if not wanted:
        raise InvalidArgument(
            "the operation has no target: no node holds what it is about", code="NO_TARGETS"
        )
    if len(wanted) > limits.BUS_TARGETS_MAX:
        raise TooLarge(
            f"{len(wanted)} targets of one operation, the limit is {limits.BUS_TARGETS_MAX}; "
            "make several operations, each as a child",
            details={
                "what": "targets",
                "limit": limits.BUS_TARGETS_MAX,
                "actual": len(wanted),
            },
        )
    for name, body in wanted.items():
        plain_data.encode(body, f"what {name} is asked", limits.BUS_BODY_BYTES_MAX)


def heard(op: Operation, target: str, report: Report) -> Operation:
    """The operation after a report of a target; the same object if it changes nothing."""
    asked = op.targets.get(target)
    if asked is None or asked.state != WAITING:
        return op
    if (report.op, report.verb, report.round) != (op.id, op.verb, asked.round):
        return op
    match report.status:
        case Status.DONE:
            return _with(op, target, replace(asked, state=DONE, result=report.plain()))
        case Status.FAILED:
            code, message, for_good = report.plain()
            if not for_good or op.verb in (Verb.COMMIT, Verb.UNDO):
                return op  # asked again: what was decided is carried out, however long it takes
            error = {"code": code, "message": message}
            return _with(op, target, replace(asked, state=FAILED, error=error))
        case _:
            return op  # it works on it


def retarget(op: Operation, wanted: Mapping[str, object]) -> Operation:
    """The operation when `wanted` is what should be asked now: the same object if nothing changed.

    A target that did what is wanted, or more, has done it; one that is asked something else gets a
    new round. Who is not wanted any more is left.
    """
    targets = dict(op.targets)
    for name, asked in op.targets.items():
        if name not in wanted and asked.state == WAITING:
            targets[name] = replace(asked, state=LEFT)
    for name in sorted(wanted):
        body, known = wanted[name], targets.get(name)
        if known is None:
            targets[name] = Asked(body)
        elif (
            known.state == LEFT
            or (known.state == WAITING and known.body != body)
            or (known.state == DONE and not _covers(known.body, body))
        ):
            targets[name] = Asked(body, known.round + 1)
    if targets == op.targets:
        return op
    check_bodies({name: asked.body for name, asked in targets.items()})
    return replace(op, targets={name: targets[name] for name in sorted(targets)})


def without(op: Operation, gone: frozenset[str]) -> Operation:
    """Nobody waits for targets that are gone for good."""
    lost = [name for name in op.waiting() if name in gone]
    for name in lost:
        op = _with(op, name, replace(op.targets[name], state=LEFT))
    return op


def turned(op: Operation, verb: Verb) -> Operation:
    """The next phase: nobody has answered. A commit is not for those who left; a taking back is for
    all, and neither ends by time.
    """
    targets = {
        name: asked
        if verb is Verb.COMMIT and asked.state == LEFT
        else replace(asked, state=WAITING, result=None, error=None)
        for name, asked in op.targets.items()
    }
    return replace(op, verb=verb, targets=targets, deadline_ms=0)


def verdict(op: Operation, now_ms: int) -> Verdict:
    """How it stands. A failure counts before everything else, then completeness, then time."""
    for name, asked in op.targets.items():
        if asked.state == FAILED:
            assert asked.error is not None, name
            return Broken(name, asked.error)
    missing = tuple(op.waiting())
    if not missing:
        return AllDone({n: a.result for n, a in op.targets.items() if a.state == DONE})
    if op.deadline_ms and op.deadline_ms <= now_ms:
        return Expired(missing)
    return Waiting(missing)


def partitions_of(state: object) -> frozenset[int]:
    """The partitions that an operation, as a record keeps it, is about."""
    targets = state.get("targets") if isinstance(state, dict) else None
    found: set[int] = set()
    for row in targets.values() if isinstance(targets, dict) else ():
        body = row[0]
        if isinstance(body, dict):
            found.update(p for p in body.get("partitions", ()) if type(p) is int)
    return frozenset(found)


def to_plain(op: Operation) -> dict[str, object]:
    """For the procedure's record."""
    return {
        "id": op.id,
        "kind": op.kind,
        "verb": int(op.verb),
        "deadline_ms": op.deadline_ms,
        "targets": {
            name: [asked.body, asked.round, asked.state, asked.result, asked.error]
            for name, asked in op.targets.items()
        },
    }


def from_plain(data: Plain) -> Operation:
    """What `to_plain` gave."""
    targets = {name: Asked(*row) for name, row in data["targets"].items()}
    return Operation(data["id"], data["kind"], Verb(data["verb"]), targets, data["deadline_ms"])


def _with(op: Operation, target: str, asked: Asked) -> Operation:
    return replace(op, targets={**op.targets, target: asked})


def _covers(had: object, wanted: object) -> bool:
    """Whether who did `had` did `wanted`: the same, or the same for fewer partitions."""
    if had == wanted:
        return True
    if not isinstance(had, dict) or not isinstance(wanted, dict) or "partitions" not in wanted:
        return False
    rest = {**had, "partitions": wanted["partitions"]}
    return rest == wanted and set(wanted["partitions"]) <= set(had.get("partitions", ()))

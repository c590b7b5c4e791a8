"""How a procedure looks from outside: the map that PROC_GET and PROC_LIST answer.

id (decimal string), name, state, step, locks, owner, parent (None or decimal string), created_ms,
updated_ms, age_ms, attempt, and, when there is one: result, error, retrying, scheduled_ms; `retry`
of a step that its policy has run again: {failed, of (null: any number), due_ms}. Only in
PROC_GET: `steps`, `children`, the rounds of them: {first, count}, ids from `first` on, and of types
of users `args` and `ctx_state` (`args_bytes`, `ctx_state_bytes` instead, if they are large).
"""

from __future__ import annotations

from collections.abc import Sequence

from kv.base import limits
from procedures.engine import attributes, plain_data
from procedures.engine.core import CHILDREN_STEP
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import State
from procedures.engine.records import Entry, Failure, Record


def shown_state(record: Record) -> tuple[str, str]:
    """Run state and step as users see them (J2): a rollback is RUNNABLE, its step "undo:NAME"."""
    if record.state is not State.ROLLING_BACK:
        return record.state.name, record.step
    top = record.undo[-1].method if record.undo else ""
    return State.RUNNABLE.name, f"undo:{top or CHILDREN_STEP}"


def info(
    record: Record,
    history: Sequence[Entry] | None,
    now_ms: int,
    *,
    running: bool = False,
    retrying: Failure | None = None,
    parked: str = "",
    more: dict[str, object] | None = None,
    own: bool = False,
) -> Plain:
    """`history` None: say nothing of steps, arguments and tracebacks. `own`: of a type of the
    database's own, whose arguments and state are nobody's business. `running`: a worker has it now,
    whatever its record says. `retrying`: why it pauses. `more`: what only who runs it knows.
    """
    state, step = shown_state(record)
    if running and not record.ended:
        state = State.RUNNABLE.name
    shown: dict[str, object] = {
        "id": str(record.id),
        "name": record.name,
        "state": state,
        "step": step,
        "locks": [{"mode": mode, "resource": resource} for mode, resource in record.locks],
        "owner": record.owner,
        "parent": str(record.parent) if record.parent else None,
        "created_ms": record.created_ms,
        "updated_ms": record.updated_ms,
        "age_ms": max(0, now_ms - record.created_ms),
        "attempt": record.attempt + record.lost + record.failed + 1,
    }
    shown |= {"version": record.version, "queue": record.queue, "priority": record.priority}
    if record.attributes:
        shown["attributes"] = attributes.shown(record.attributes)
    if record.pool:
        shown["pool"] = record.pool
    if record.scheduled_ms:
        shown["scheduled_ms"] = record.scheduled_ms
    if record.state is State.WAITING and record.due_ms:
        shown["due_ms"] = record.due_ms
    shown |= more or {}
    if history is not None:
        shown["steps"] = [_step(entry) for entry in history]
        if record.rounds:
            rounds = record.rounds
            shown["children"] = [{"first": str(first), "count": n} for first, n in rounds]
        if not own:
            shown |= _given("args", record.args) | _given("ctx_state", record.data)
    if record.state is State.SUCCESS:
        shown["result"] = plain_data.decode(record.result)
    if record.error is not None:
        shown["error"] = record.error.to_plain(traced=history is not None)
    shown |= _retries(record, retrying, traced=history is not None)
    if parked:
        shown["parked"] = parked
    return shown


def _retries(record: Record, retrying: Failure | None, *, traced: bool) -> dict[str, object]:
    """Why its step runs again, and how often that was so by its policy."""
    shown: dict[str, object] = {}
    if (one := record.trying) is not None:
        shown["retry"] = {"failed": one.failed, "of": one.most or None, "due_ms": one.due_ms}
        retrying = retrying or one.error
    return shown if retrying is None else shown | {"retrying": retrying.to_plain(traced=traced)}


def _given(name: str, data: bytes) -> dict[str, object]:
    """What it was given, or keeps; of much only how much."""
    if len(data) > limits.PROCEDURE_SHOWN_BYTES_MAX:
        return {f"{name}_bytes": len(data)}
    return {name: plain_data.decode(data)}


def _step(entry: Entry) -> dict[str, object]:
    return {
        "step": entry.step,
        "outcome": entry.outcome,
        "attempt": entry.attempt,
        "start_ms": entry.start_ms,
        "took_ms": entry.took_ms,
    }

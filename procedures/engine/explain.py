"""What a procedure waits for, since when, and who could help: as data and in one sentence. Pure.

One procedure waits for one thing at a time; where several are true at once, the one that holds up
the others comes first: code that is missing, a step under way (and the key that its commit waits
for), locks, children, a worker or a limit, a pause after an error, an event or a time, its turn.

`kind` of a wait: ended, parked, key, step, stuck, lock, order, children, worker, retry, event,
time, turn. `holder` is a procedure's id, `holder_txn` a transaction's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from procedures.engine.locks import Link
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import State, said
from procedures.engine.records import Failure, Record, Trying
from procedures.engine.view import shown_state

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What whoever runs it knows beside its record."""

    here: bool  # somebody runs it: it is among the live ones
    parked: str = ""
    running: bool = False
    worker: str = ""  # that has it
    began_ms: int = 0  # the step under way …
    limit_ms: int = 0  # … and how long it may take
    slow_ms: int = 0  # … for how long it has run already, if that is too long
    links: Sequence[Link] = ()
    holders: Mapping[int, str] | None = None  # procedure → name
    children: Sequence[tuple[int, str, str, str]] = ()  # id, name, state, step
    keys: Sequence[
        Mapping[str, Any]
    ] = ()  # what its commit waits for (kvorum/storage/cluster_waits.py)
    pool_wait: str = ""  # workers, limits
    retry: Failure | None = None
    tries: int = 0
    retry_in_ms: int = 0


def explained(record: Record, facts: Facts, now_ms: int) -> dict[str, object]:
    """See the module."""
    state, step = shown_state(record)
    waits = _waits(record, facts, now_ms, step)
    first = waits[0]
    since = first.get("since_ms")
    ago = f", for {_duration(now_ms - since)}" if since else ""
    return {
        "id": str(record.id),
        "name": record.name,
        "state": state,
        "step": step,
        "sentence": f"procedure {record.id} ({record.name}) {first['text']}{ago}",
        "waits": waits,
    }


def _waits(record: Record, facts: Facts, now_ms: int, step: str) -> list[Plain]:
    if record.ended:
        why = f": {record.error.sentence}" if record.error is not None else ""
        return [_wait("ended", f"ended {record.state.name}{why}", record.updated_ms)]
    found: list[dict[str, object]] = []
    since = record.updated_ms
    if not facts.here:
        found.append(_wait("parked", "is run by nobody: it is taken in within a minute", since))
    if facts.parked:
        found.append(_wait("parked", f"is left alone: {facts.parked}", since))
    if facts.running:
        found += _running(record, facts, now_ms, step)
        return found
    for link in facts.links:
        found.append(_lock(link, facts.holders or {}, since))
    if facts.children:
        some = ", ".join(
            f"{id} ({name}, {state} at {at})" for id, name, state, at in facts.children[:_SHOWN]
        )
        more = len(facts.children) - _SHOWN
        text = f"waits for its children {some}{f' and {more} more' if more > 0 else ''}"
        wait = _wait("children", text, since)
        found.append(wait | {"children": [str(id) for id, *_ in facts.children]})
    if facts.pool_wait:
        found.append(_wait("worker", f"waits: {facts.pool_wait}", since))
    if facts.retry is not None:
        text = (
            f"tries its step {step} again in {_duration(facts.retry_in_ms)}, after {facts.tries} "
            f"times {facts.retry.code}: {facts.retry.sentence:.400}"
        )
        found.append(_wait("retry", text, since) | {"error": facts.retry.to_plain()})
    if record.trying is not None and facts.retry is None:
        found.append(_policy(record.trying, step, now_ms, since))
    if not found and record.state is State.WAITING and (record.event or record.due_ms):
        found += _event(record, now_ms)
    return found or [_wait("turn", f"waits for its turn to run {step}", since)]


def _running(record: Record, facts: Facts, now_ms: int, step: str) -> list[dict[str, object]]:
    where = f"worker {facts.worker}" if facts.worker else "the master"
    found = []
    for key in facts.keys:
        place = f"{key['ns']}.{key['table']}" if key.get("table") else "a system table"
        who = f"transaction {key['holder']}" if key.get("holder") else "nobody any more"
        owner = f" of {key['holder_owner']}" if key.get("holder_owner") else ""
        text = (
            f"waits to write key {key['key']!r:.80} of {place}, held by {who}{owner} "
            f"(kvorum txn abort {key['holder']} ends it)"
        )
        wait = _wait("key", text, now_ms - key["waited_ms"])
        found.append(wait | {"holder_txn": key.get("holder"), "key": key["key"]})
    began = facts.began_ms or (now_ms - facts.slow_ms if facts.slow_ms else 0)
    late = facts.slow_ms > 0 or (began > 0 and now_ms - began > facts.limit_ms > 0)
    if late:
        text = f"is stuck: {where} runs its step {step}, which takes longer than it may"
        found.append(_wait("stuck", text, began) | {"worker": facts.worker or None})
    else:
        text = f"waits for nothing: {where} runs its step {step}"
        found.append(_wait("step", text, began or None) | {"worker": facts.worker or None})
    return found


def _lock(link: Link, names: Mapping[int, str], since: int) -> dict[str, object]:
    name = names.get(link.blocker, "")
    who = f"procedure {link.blocker}{f' ({name})' if name else ''}"
    if link.order:
        text = f"waits for the lock of {link.resource}, after {who}, which came earlier"
    else:
        text = f"waits for the lock of {link.resource}, held by {who}"
    wait = _wait("order" if link.order else "lock", text, since)
    return wait | {"resource": link.resource, "holder": str(link.blocker)}


def _event(record: Record, now_ms: int) -> list[dict[str, object]]:
    due = f"in {_duration(record.due_ms - now_ms)}" if record.due_ms > now_ms else "now"
    if not record.event:
        text = f"waits for a time: it runs {record.step} {due}"
        return [_wait("time", text, record.updated_ms) | {"due_ms": record.due_ms}]
    until = f", or runs {record.step} without it {due}" if record.due_ms else ""
    text = f"waits for the event {said(record.event)}{until}"
    wait = _wait("event", text, record.updated_ms) | {"event": record.event}
    return [wait | {"due_ms": record.due_ms} if record.due_ms else wait]


def _policy(trying: Trying, step: str, now_ms: int, since: int) -> dict[str, object]:
    of = f" of {trying.most}" if trying.most else ""
    text = (
        f"tries its step {step} again in {_duration(trying.due_ms - now_ms)}, after {trying.failed}"
        f"{of} attempts, the last with {trying.error.code}: {trying.error.sentence:.400}"
    )
    wait = _wait("retry", text, since)
    return wait | {"error": trying.error.to_plain(), "due_ms": trying.due_ms}


def _wait(kind: str, text: str, since_ms: int | None) -> dict[str, object]:
    return {"kind": kind, "text": text, "since_ms": since_ms}


def _duration(ms: int) -> str:
    ms = max(0, ms)
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 120_000:
        return f"{ms / 1_000:.1f} s"
    minutes = ms // 60_000
    return f"{minutes} min" if minutes < 180 else f"{minutes // 60} h"

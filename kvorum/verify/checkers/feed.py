"""The change feed: nothing lost, nothing twice, whole transactions in commit order (shapes of
workloads/feed.py). Finds

    order          an event whose version is not above the one before it, of the same consumer
    lost           an acknowledged write that a consumer did not get, though its position is above
    torn           an event that is not all that its transaction changed (to delete what is not
                   there changes nothing, so it need not come)
    from-nowhere   an event of a write that was refused, or that nobody made, or too early
    version        an event whose version is not the one that was acknowledged
    disagree       two consumers got different things of one version
    state          the events in their order do not make the rows that are there at the end
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import History, Operation


def check(history: History) -> list[Anomaly]:
    """See the module."""
    operations = history.operations()
    writes = [o for o in operations if o.f == "write"]
    consumers: dict[int, list[Operation]] = defaultdict(list)
    for o in operations:
        if o.f == "event" and o.acknowledged:
            consumers[o.args["consumer"]].append(o)
    positions = {
        o.args["consumer"]: o for o in operations if o.f == "final position" and o.acknowledged
    }
    ends = [o for o in operations if o.f == "final read" and o.acknowledged]
    by_id = {str(o.args["id"]): o for o in writes}
    found: list[Anomaly] = []
    for events in consumers.values():
        found += _order(events)
        there: set[str] = set()
        for event in events:
            found += _source(event, by_id, there)
            for key, value in event.result["changes"].items():
                (there.discard if value is None else there.add)(key)
    for consumer, position in positions.items():
        found += _lost(position, consumers[consumer], writes)
        if ends:
            found += _state(ends[-1], consumers[consumer], position)
    return found + _agree(consumers)


def _version(event: Operation) -> int:
    return int(event.result["version"])


def _order(events: Sequence[Operation]) -> list[Anomaly]:
    return [
        Anomaly(
            "order",
            f"consumer {a.args['consumer']} got version {_version(b)} after {_version(a)}",
            (a.id, b.id),
        )
        for a, b in pairwise(events)
        if _version(b) <= _version(a)
    ]


def _source(event: Operation, by_id: Mapping[str, Operation], there: set[str]) -> list[Anomaly]:
    """Whose event it is, and whether it is all of that, on the rows that were `there`."""
    changes: Mapping[str, Any] = event.result["changes"]
    ids = sorted({value for value in changes.values() if value is not None})
    version = _version(event)
    if len(ids) != 1 or ids[0] not in by_id:
        text = f"#{event.id}: version {version} has changes of {', '.join(ids) or 'nobody'}"
        return [Anomaly("from-nowhere", f"{text}: {dict(changes)}", (event.id,))]
    write = by_id[ids[0]]
    both = (write.id, event.id)
    if write.outcome == "fail" or write.began > event.ended:
        why = f"was refused ({write.error})" if write.outcome == "fail" else "had not begun"
        return [Anomaly("from-nowhere", f"#{event.id}: write {ids[0]} {why}, and came", both)]
    found = []
    wanted: Mapping[str, object] = write.args["changes"]
    needed = {key for key, value in wanted.items() if value is not None or key in there}
    if not needed <= changes.keys() or not changes.items() <= wanted.items():
        text = f"#{event.id}: version {version} is {dict(changes)}, not {write.args['changes']}"
        found.append(Anomaly("torn", text, both))
    if write.acknowledged and write.info.get("version") != version:
        text = f"#{event.id}: write {ids[0]} has version {write.info.get('version')}, not {version}"
        found.append(Anomaly("version", text, both))
    return found


def _lost(
    position: Operation, events: Sequence[Operation], writes: Sequence[Operation]
) -> list[Anomaly]:
    came = {_version(event) for event in events}
    return [
        Anomaly(
            "lost",
            f"consumer {position.args['consumer']} got everything up to {position.result}, "
            f"but not #{w.id}, acknowledged with version {w.info['version']}",
            (w.id, position.id),
        )
        for w in writes
        if w.acknowledged and w.info["version"] <= position.result and w.info["version"] not in came
    ]


def _state(end: Operation, events: Sequence[Operation], position: Operation) -> list[Anomaly]:
    rows: dict[str, list[object]] = {}
    for event in sorted(events, key=_version):
        for key, value in event.result["changes"].items():
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = [value, _version(event)]
    wrong = sorted(
        key for key in rows.keys() | end.result.keys() if rows.get(key) != end.result.get(key)
    )
    if not wrong:
        return []
    key = wrong[0]
    text = (
        f"consumer {position.args['consumer']}: by the events {key} is {rows.get(key)}, at the end "
        f"it is {end.result.get(key)} (so {len(wrong)} keys)"
    )
    return [Anomaly("state", text, (position.id, end.id))]


def _agree(consumers: Mapping[int, Sequence[Operation]]) -> list[Anomaly]:
    first: dict[int, Operation] = {}
    found = []
    for events in consumers.values():
        for event in events:
            other = first.setdefault(_version(event), event)
            if other.result["changes"] != event.result["changes"]:
                text = (
                    f"version {_version(event)} is {other.result['changes']} to consumer "
                    f"{other.args['consumer']}, {event.result['changes']} to "
                    f"{event.args['consumer']}"
                )
                found.append(Anomaly("disagree", text, (other.id, event.id)))
    return found

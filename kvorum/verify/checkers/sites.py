"""Two clusters that took over from each other (shapes of workloads/sites.py).

Finds

    differ        both clusters do not have the same rows in the end
    from-nowhere  a row of `last` that nobody wrote
    overtaken     a row of `last` below an acknowledged write of a higher version
    vanished      an acknowledged write of `last` that is neither there, nor seen by the one that is
                  after it, nor in a conflict that was told
    lost          an acknowledged increment or element is not there
    doubled       more increments than were asked for, or an element that nobody added

Writes whose outcome is unknown may be there or not.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import History, Operation


@dataclass
class _Key:
    """What was written to a key: acknowledged, and what may have been."""

    acked: dict[str, Operation] = field(default_factory=dict)
    maybe: dict[str, Operation] = field(default_factory=dict)


def check(history: History) -> list[Anomaly]:
    """See the module."""
    keys: dict[tuple[str, str], _Key] = defaultdict(_Key)
    for o in history.operations("write"):
        if o.outcome != "fail":
            of = keys[o.args["table"], o.args["key"]]
            (of.acked if o.acknowledged else of.maybe)[o.args["told"]] = o
    ends = [o for o in history.operations("final") if o.acknowledged]
    told = [o for o in history.operations("final-conflicts") if o.acknowledged]
    if not ends or not told:
        return []  # whoever runs it says so
    here, there = ends[-1].result
    found = []
    if here != there:
        names = sorted(name for name in {*here, *there} if here.get(name) != there.get(name))
        shown = "; ".join(f"{n} is {here.get(n)} and {there.get(n)}" for n in names[:5])
        found.append(Anomaly("differ", shown, (ends[-1].id,)))
    numbers = {value.partition("<")[0] for value in told[-1].result}
    for (table, key), of in sorted(keys.items()):
        name = f"{table}/{key}"
        value = here.get(name)
        match table:
            case "counter":
                found += _counter(name, of, value, ends[-1])
            case "set":
                found += _set(name, of, value, ends[-1])
            case _:
                found += _last(name, of, value, ends[-1], numbers)
    return found


def _counter(name: str, of: _Key, value: str | None, end: Operation) -> Iterator[Anomaly]:
    count, least, most = int(value or 0), len(of.acked), len(of.acked) + len(of.maybe)
    if count < least:
        yield Anomaly("lost", f"{name} is {count}, {least} were acknowledged", (end.id,))
    if count > most:
        yield Anomaly("doubled", f"{name} is {count}, {most} were asked for", (end.id,))


def _set(name: str, of: _Key, value: str | None, end: Operation) -> Iterator[Anomaly]:
    there = [str(element) for element in json.loads(value or "[]")]
    for told, o in of.acked.items():
        if told not in there:
            yield Anomaly("lost", f"{name} lacks {told}, acknowledged", (o.id, end.id))
    strange = [one for one in there if one not in of.acked and one not in of.maybe]
    if strange or len(set(there)) < len(there):
        why = f"nobody added {strange}" if strange else "an element is there twice"
        yield Anomaly("doubled", f"{name} is {value}: {why}", (end.id,))


def _last(
    name: str, of: _Key, value: str | None, end: Operation, told: set[str]
) -> Iterator[Anomaly]:
    every = {**of.acked, **of.maybe}
    if value not in every:
        if of.acked:
            yield Anomaly("from-nowhere", f"{name} is {value}, which nobody wrote", (end.id,))
        return
    versions: Sequence[int] = [int(o.info["version"]) for o in of.acked.values()]
    if value in of.acked and int(of.acked[value].info["version"]) < max(versions):
        yield Anomaly("overtaken", f"{name} is {value}, not the last one", (of.acked[value].id,))
    seen = {one.partition("<")[2] for one in every}
    for one, o in of.acked.items():
        number = one.partition("<")[0]
        if one != value and number not in seen and number not in told:
            text = f"{name}: {one} is gone, and no conflict tells of it"
            yield Anomaly("vanished", text, (o.id,))

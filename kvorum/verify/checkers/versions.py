"""Do the versions of a key agree with real time? A second opinion on registers, in linear time.

Every answer about a key carries the version (commit timestamp) that it wrote or read. As versions
order the writes, a register with versions is linearizable only if (Gibbons & Korach 1997, the case
in which the order of writes is known)

- a version has one value, and a value one version;
- whoever asks after an answer came hears of no older version than that answer named;
- whoever writes after an answer came gets a greater version.

Unlike the search of linearizable.py it never gives up; but it says nothing about refused
comparisons and unknown writes that nobody read. Absence has no version: reads of nothing are left
to the search.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.checkers.linearizable import by_key, describe
from kvorum.verify.history import History, Operation


def check(history: History) -> list[Anomaly]:
    """Anomalies of kind "version-twice", "written-twice", "went-back" and "version-order"."""
    found: list[Anomaly] = []
    for key, operations in sorted(by_key(history.operations()).items()):
        said = [o for o in operations if o.acknowledged and o.info.get("version")]
        found += _one_each(key, [o for o in said if not _refused(o)])
        found += _in_order(key, said)
    return found


def _refused(o: Operation) -> bool:
    return o.f == "cas" and o.result is False


def _writes(o: Operation) -> bool:
    return o.f in ("write", "cas") and not _refused(o)


def _version(o: Operation) -> int:
    return int(o.info["version"])


def _value(o: Operation) -> object:
    if o.f == "cas":
        return o.args["new"]
    return o.args["value"] if o.f == "write" else o.result


def _one_each(key: str, said: Sequence[Operation]) -> list[Anomaly]:
    found = []
    of_version: dict[int, Operation] = {}
    of_value: dict[object, Operation] = {}
    for o in said:
        other = of_version.setdefault(_version(o), o)
        if _value(other) != _value(o):
            text = (
                f"key {key}: version {_version(o)} is {_value(other)!r} in #{other.id} and "
                f"{_value(o)!r} in #{o.id}"
            )
            found.append(Anomaly("version-twice", text, (other.id, o.id)))
        if _value(o) is None:  # deletes are many
            continue
        other = of_value.setdefault(_value(o), o)
        if _version(other) != _version(o):
            text = (
                f"key {key}: {_value(o)!r} was written once and has version {_version(other)} in "
                f"#{other.id}, {_version(o)} in #{o.id}"
            )
            found.append(Anomaly("written-twice", text, (other.id, o.id)))
    return found


def _in_order(key: str, said: Sequence[Operation]) -> list[Anomaly]:
    """Sweep over calls and returns with the greatest version that was answered so far."""
    found = []
    calls = [(o.began, True, o) for o in said]
    events = sorted(calls + [(o.ended, False, o) for o in said], key=lambda event: event[0])
    greatest: Operation | None = None
    before: dict[int, Operation | None] = {}
    for _, begins, o in events:
        if begins:
            before[o.id] = greatest
            continue
        known = before[o.id]
        if known is not None and (
            _version(o) <= _version(known) if _writes(o) else _version(o) < _version(known)
        ):
            kind = "version-order" if _writes(o) else "went-back"
            found.append(
                Anomaly(
                    kind,
                    f"key {key}: #{o.id} {describe(o)} has version {_version(o)}, but it began "
                    f"after #{known.id} {describe(known)} had answered {_version(known)}",
                    (known.id, o.id),
                )
            )
        if greatest is None or _version(o) > _version(greatest):
            greatest = o
    return found

"""Causal consistency (shapes of workloads/causal.py), in linear time: versions order the writes of
a key, and every value says which write it is from (Bouajjani et al. 2017, the differentiated case).

What a session *knows* is a version of each key: of what it wrote, read, was told of by a token, and
of all that the writer of any of these knew when it wrote. Then

    stale                what a read returns is at least as new as what its session knows, counting
                         what the same read tells: a snapshot has the causes of all that is in it
    effect-before-cause  a write's version is above all that its session knows
    version-twice        one value has one version
    from-nowhere         a value that nobody wrote, or whose write was refused
    lost                 the newest value at the end is not older than one that was acknowledged
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import History, Operation

Known = dict[str, int]
"""Key → version."""
_WRITES = ("write", "derive")


def check(history: History) -> list[Anomaly]:
    """See the module."""
    return list(_Sessions(history).anomalies())


class _Sessions:
    def __init__(self, history: History) -> None:
        self._operations = history.operations()
        self._writes = {o.args["value"]: o for o in self._operations if o.f in _WRITES}
        self._versions: dict[str, tuple[int, int]] = {}  # of a value: and which operation said so
        self._of: dict[int, Known] = {}  # by process
        self._at: dict[int, Known] = {}  # what the session knew when the operation began
        self._past: dict[str, Known] = {}  # of a value: what its writer knew
        self._open: set[str] = set()

    def anomalies(self) -> Iterator[Anomaly]:
        moments = [(o.began, o, True) for o in self._operations]
        moments += [(o.ended, o, False) for o in self._operations if o.acknowledged]
        for _, o, begins in sorted(moments, key=lambda moment: moment[0]):
            if begins:
                self._at[o.id] = dict(self._of.get(o.process, {}))
            else:
                yield from self._ended(o)
        yield from self._lost()

    def _ended(self, o: Operation) -> Iterator[Anomaly]:
        known = self._of.setdefault(o.process, {})
        match o.f:
            case "read":
                yield from self._reads(o, o.result, known)
            case "derive":
                yield from self._reads(o, o.result, known)
                yield from self._wrote(o, known)
            case "write":
                yield from self._wrote(o, known)
            case "resume":
                _merge(known, self._at.get(o.args["from"], {}))
            case _:
                pass  # tokens and the end

    def _reads(self, o: Operation, result: Mapping[str, Any], known: Known) -> Iterator[Anomaly]:
        for key, found in result.items():
            if found is None:
                continue
            value, version = found
            write = self._writes.get(value)
            if write is None or write.outcome == "fail" or write.args["key"] != key:
                text = f"#{o.id} read {value} from {key}, which nobody has written there"
                yield Anomaly("from-nowhere", text, (o.id,))
                continue
            yield from self._one_version(o, value, version)
            _merge(known, {key: version})
            _merge(known, self._past_of(value))
        for key, found in result.items():
            version = found[1] if found is not None else 0
            if version < known.get(key, 0):
                text = (
                    f"#{o.id} read version {version} of {key}, but it knows of version "
                    f"{known[key]}, by what it or others it read from had seen"
                )
                yield Anomaly("stale", text, (o.id,))

    def _wrote(self, o: Operation, known: Known) -> Iterator[Anomaly]:
        version = int(o.info["version"])
        yield from self._one_version(o, o.args["value"], version)
        highest = max(self._past_of(o.args["value"]).values(), default=0)
        if version <= highest:
            text = f"#{o.id} wrote version {version}, but its session knew of {highest}"
            yield Anomaly("effect-before-cause", text, (o.id,))
        _merge(known, {o.args["key"]: version})

    def _one_version(self, o: Operation, value: str, version: int) -> Iterator[Anomaly]:
        said, by = self._versions.setdefault(value, (version, o.id))
        if said != version:
            text = f"{value} has version {said} for #{by} and {version} for #{o.id}"
            yield Anomaly("version-twice", text, (by, o.id))

    def _past_of(self, value: str) -> Known:
        """What the writer of a value knew. It had begun before anybody could read it; what it read
        itself is known if it was acknowledged.
        """
        past = self._past.get(value)
        if past is not None:
            return past
        write = self._writes[value]
        past = dict(self._at.get(write.id, {}))
        if write.f == "derive" and write.acknowledged and value not in self._open:
            self._open.add(value)  # a broken database may have two that read each other
            for key, found in write.result.items():
                if found is not None and found[0] in self._writes:
                    _merge(past, {key: found[1]})
                    _merge(past, self._past_of(found[0]))
            self._open.discard(value)
        self._past[value] = past
        return past

    def _lost(self) -> Iterator[Anomaly]:
        newest: dict[str, Operation] = {}
        for o in self._operations:
            if o.f in _WRITES and o.acknowledged:
                other = newest.setdefault(o.args["key"], o)
                if int(o.info["version"]) > int(other.info["version"]):
                    newest[o.args["key"]] = o
        for o in self._operations:
            write = newest.get(o.args["key"]) if o.f == "final" and o.acknowledged else None
            if write is None:
                continue
            version = o.result[1] if o.result is not None else 0
            if version < int(write.info["version"]):
                text = (
                    f"#{o.id} found version {version} of {o.args['key']} at the end; "
                    f"#{write.id} was acknowledged with {write.info['version']}"
                )
                yield Anomaly("lost", text, (write.id, o.id))


def _merge(known: Known, more: Mapping[str, int]) -> None:
    for key, version in more.items():
        if version > known.get(key, 0):
            known[key] = version

"""List-append transactions: is there an order in which all of it makes sense? (Elle; Kingsbury &
Alvaro 2020, after Adya 1999.)

Every element is appended once and a read returns the whole list, so the longest list that was read
of a key is the order of its writers, and each read says whom it saw and whom it did not:

    ww         the writer of an element → the writer of the next one
    wr         the writer of the last element of a read → the reader
    rw         the reader → the writer of the first element that it did not see
    session    an operation of a process → its next one
    real-time  an operation that was answered before another began → that one

What single reads show:

    internal            a read contradicts the transaction's own reads or appends before it
    G1a                 a read of an append that was refused, or that nobody ever made
    G1b                 a read of the middle of somebody's transaction
    duplicate           an element twice in a list: an append was executed twice
    incompatible-order  two reads of a key of which neither is the beginning of the other
    lost-update         two that read the same list of a key and both appended to it
    lost                an acknowledged append that a later read does not show
    version-order       commit versions that do not rise along a list

and what cycles show, each also as "-session" or "-realtime" if it needs such an edge:

    G0              writes in a circle
    G1c             … with reads: each saw the other
    G-single        … with one rw: a reader saw a part of somebody (read skew)
    G-nonadjacent   … with several rw, never two in a row (long fork)
    G2-item         … with two rw in a row (write skew): snapshot isolation permits it, `isolation`
                    "serializable" does not

An operation whose outcome is unknown counts as done if somebody saw one of its appends; what it
read is not known. Appends that were never read come after all that were, if they were acknowledged.

Deliberately missing: predicates (G2 over ranges), other data than lists.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.checkers.graph import Edge, Graph, Kind, Rw, Search, cycles
from kvorum.verify.history import History, Operation

_SHOWN_MAX: Final = 20
"""Anomalies of one kind: a broken store makes thousands of one fault."""

Elements = tuple[int, ...]


@dataclass(slots=True)
class Txn:
    """A transaction that committed, as far as anybody knows."""

    op: Operation
    reads: dict[str, Elements] = field(default_factory=dict)
    """Of each key what its snapshot held: its own appends are taken off."""
    appends: dict[str, list[int]] = field(default_factory=dict)

    @property
    def id(self) -> int:
        return self.op.id


def check(history: History) -> list[Anomaly]:
    """See the module. `history.header.isolation` says what is forbidden; operations whose names end
    in "txn" are transactions.
    """
    return Checker(history).anomalies()


class Checker:
    """One pass over one history."""

    def __init__(self, history: History) -> None:
        self._isolation = history.header.isolation
        self._operations = [o for o in history.operations() if o.f.endswith("txn")]
        self._refused: dict[tuple[str, int], Operation] = {}
        self._writer: dict[tuple[str, int], Operation] = {}
        self._txns: dict[int, Txn] = {}
        self._orders: dict[str, Elements] = {}
        self._found: list[Anomaly] = []
        self._graph = Graph()

    def anomalies(self) -> list[Anomaly]:
        self._collect()
        for t in list(self._txns.values()):
            self._sources(t)
        self._order()
        self._unread()
        self._lost_updates()
        self._edges()
        self._time()
        self._cycles()
        return self._bounded()

    def _say(self, kind: str, text: str, *operations: int) -> None:
        self._found.append(Anomaly(kind, text, operations))

    def _bounded(self) -> list[Anomaly]:
        shown: dict[str, int] = defaultdict(int)
        kept = []
        for anomaly in self._found:
            shown[anomaly.kind] += 1
            if shown[anomaly.kind] <= _SHOWN_MAX:
                kept.append(anomaly)
        return kept

    # ------------------------------------------------------------------ who wrote what

    def _collect(self) -> None:
        """Who appended what, and which of those that nobody knows the outcome of were done."""
        for o in self._operations:
            into = self._refused if o.outcome == "fail" else self._writer
            for what, key, element in o.args:
                if what == "append":
                    into[key, element] = o
        for o in self._operations:
            if o.acknowledged:
                self._txns[o.id] = self._replayed(o)
        seen = {
            self._writer[key, element].id: self._writer[key, element]
            for t in self._txns.values()
            for key, elements in t.reads.items()
            for element in elements
            if (key, element) in self._writer
        }
        for o in seen.values():
            if o.id not in self._txns:
                self._txns[o.id] = Txn(o, appends=_appends(o.args))
        self._txns = dict(sorted(self._txns.items()))

    def _replayed(self, o: Operation) -> Txn:
        """What it read of its snapshot. Finds `internal`."""
        t = Txn(o)
        for what, key, value in o.result:
            mine = t.appends.setdefault(key, [])
            if what == "append":
                mine.append(value)
                continue
            elements = tuple(value or ())
            saw = f"{_name(o)} read {key} as {_short(elements)}"
            if mine and list(elements[-len(mine) :]) != mine:
                self._say("internal", f"{saw} after it had appended {mine} itself", o.id)
                continue
            snapshot = elements[: len(elements) - len(mine)]
            if t.reads.setdefault(key, snapshot) != snapshot:
                own = f" and its own {mine}" if mine else ""
                before = _short(t.reads[key])
                self._say("internal", f"{saw}, after it had read {before}{own}", o.id)
        t.appends = {key: mine for key, mine in t.appends.items() if mine}
        return t

    def _sources(self, t: Txn) -> None:
        """G1a, G1b, duplicates: a read alone."""
        for key, elements in t.reads.items():
            saw = f"{_name(t.op)} read {key} as {_short(elements)}"
            if len(set(elements)) != len(elements):
                self._say("duplicate", f"{saw}: an append was executed twice", t.id)
            for element in elements:
                if (key, element) in self._refused:
                    other = self._refused[key, element]
                    why = f"{element} is of {_name(other)}, which was refused ({other.error})"
                    self._say("G1a", f"{saw}, but {why}", other.id, t.id)
                elif (key, element) not in self._writer:
                    self._say("G1a", f"{saw}, but nobody ever appended {element}", t.id)
            if not elements or (key, elements[-1]) not in self._writer:
                continue
            writer = self._writer[key, elements[-1]]
            last = _appends(writer.args)[key][-1]
            if writer.id != t.id and last != elements[-1]:
                why = f"{_name(writer)} appended {last}, too"
                self._say("G1b", f"{saw}, the middle of a transaction: {why}", writer.id, t.id)

    # ------------------------------------------------------------------ the order of each key

    def _order(self) -> None:
        """The longest list that was read of each key; all others must be its beginnings."""
        longest: dict[str, tuple[Elements, int]] = {}
        for t in self._txns.values():
            for key, elements in t.reads.items():
                if key not in longest or len(elements) > len(longest[key][0]):
                    longest[key] = elements, t.id
        for t in self._txns.values():
            for key, elements in t.reads.items():
                whole, by = longest[key]
                if whole[: len(elements)] != elements:
                    text = (
                        f"{_name(t.op)} read {key} as {_short(elements)}, "
                        f"#{by} as {_short(whole)}: neither is the beginning of the other"
                    )
                    self._say("incompatible-order", text, by, t.id)
        self._orders = {key: elements for key, (elements, _) in longest.items()}
        for key, elements in self._orders.items():
            self._versions(key, elements)

    def _versions(self, key: str, elements: Elements) -> None:
        for a, b in pairwise(self._written_by(key, elements)):
            before, after = a.op.info.get("version"), b.op.info.get("version")
            if before is not None and after is not None and int(before) >= int(after):
                text = (
                    f"{key}: {_name(b.op)} stands after {_name(a.op)} in the list, but its commit "
                    f"version is {after}, not above {before}"
                )
                self._say("version-order", text, a.id, b.id)

    def _written_by(self, key: str, elements: Sequence[int]) -> list[Txn]:
        """The writers of elements in their order, each once in a row."""
        writers: list[Txn] = []
        for element in elements:
            o = self._writer.get((key, element))
            t = None if o is None else self._txns.get(o.id)
            if t is not None and (not writers or writers[-1] is not t):
                writers.append(t)
        return writers

    def _unread(self) -> None:
        """Acknowledged appends that a read which began later does not show."""
        last_read: dict[str, Txn] = {}
        for t in self._txns.values():
            for key in t.reads:
                if key not in last_read or t.op.began > last_read[key].op.began:
                    last_read[key] = t
        for t in self._txns.values():
            for key, mine in t.appends.items():
                known = set(self._orders.get(key, ()))
                reader = last_read.get(key)
                gone = [element for element in mine if element not in known]
                if gone and t.op.acknowledged and reader and t.op.ended < reader.op.began:
                    text = (
                        f"{_name(t.op)} appended {gone} to {key} and was acknowledged, but nobody "
                        f"ever read that, not even {_name(reader.op)} later"
                    )
                    self._say("lost", text, t.id, reader.id)

    def _lost_updates(self) -> None:
        """Two that read the same version of a key and both wrote it."""
        first: dict[tuple[str, Elements], Txn] = {}
        for t in self._txns.values():
            for key, elements in t.reads.items():
                if key not in t.appends or not t.op.acknowledged:
                    continue
                other = first.setdefault((key, elements), t)
                if other is not t:
                    text = (
                        f"{_name(other.op)} and {_name(t.op)} both read {key} as "
                        f"{_short(elements)} and both appended to it"
                    )
                    self._say("lost-update", text, other.id, t.id)

    # ------------------------------------------------------------------ edges

    def _edges(self) -> None:
        at = {key: {e: i for i, e in enumerate(order)} for key, order in self._orders.items()}
        unread = self._never_read(at)
        for key, order in self._orders.items():
            writers = self._written_by(key, order)
            for a, b in pairwise(writers):
                self._graph.add(a.id, b.id, "ww", f"its append to {key} is the next one")
            for t in unread.get(key, ()):
                if writers:
                    self._graph.add(writers[-1].id, t.id, "ww", f"its append to {key} came later")
        for t in self._txns.values():
            for key, elements in t.reads.items():
                self._read_edges(t, key, elements, at[key], unread.get(key, ()))

    def _never_read(self, at: Mapping[str, Mapping[int, int]]) -> dict[str, list[Txn]]:
        """By key, acknowledged transactions whose appends to it nobody read."""
        unread: dict[str, list[Txn]] = defaultdict(list)
        for t in self._txns.values():
            for key, mine in t.appends.items():
                if t.op.acknowledged and mine[0] not in at.get(key, ()):
                    unread[key].append(t)
        return unread

    def _read_edges(
        self, t: Txn, key: str, elements: Elements, at: Mapping[int, int], unread: Sequence[Txn]
    ) -> None:
        order, saw = self._orders[key], f"read {key} as {_short(elements)}"
        if elements and (o := self._writer.get((key, elements[-1]))) is not None:
            self._graph.add(o.id, t.id, "wr", f"{saw}, which ends with its append")
        after = at[elements[-1]] + 1 if elements and elements[-1] in at else len(elements)
        for element in order[after:]:
            o = self._writer.get((key, element))
            if o is not None:
                self._graph.add(t.id, o.id, "rw", f"{saw}, before it appended {element}")
                return
        for other in unread:
            self._graph.add(t.id, other.id, "rw", f"{saw}, before it appended something")

    def _time(self) -> None:
        """Sessions, and the chain of moments at which something ended."""
        last: dict[int, Txn] = {}
        events: list[tuple[int, Txn, bool]] = []
        for t in self._txns.values():
            before = last.get(t.op.process)
            if before is not None and before.op.acknowledged:
                self._graph.add(before.id, t.id, "session")
            last[t.op.process] = t
            events.append((t.op.began, t, True))
            if t.op.acknowledged:
                events.append((t.op.ended, t, False))
        moment = 0
        for _, t, begins in sorted(events, key=lambda event: event[0]):
            if begins:
                if moment:
                    self._graph.add(moment, t.id, "real-time")
                continue
            if moment:
                self._graph.add(moment, moment - 1, "real-time")
            moment -= 1
            self._graph.add(t.id, moment, "real-time")

    # ------------------------------------------------------------------ cycles

    def _cycles(self) -> None:
        """From the worst to what only time makes wrong. Whoever was named once is not again."""
        shown: set[int] = set()
        for search in _searches(self._isolation):
            for way in cycles(self._graph, search):
                operations = [edge.source for edge in way]
                if shown.isdisjoint(operations):
                    shown.update(operations)
                    self._say(_kind(way), self._shown(way), *operations)

    def _shown(self, way: Sequence[Edge]) -> str:
        lines = [f"{len(way)} transactions each come before the next:"]
        for edge in way:
            source, target = (_name(self._txns[id].op) for id in (edge.source, edge.target))
            match edge.kind:
                case "wr":
                    why = f"{target} {edge.why}"
                case "rw":
                    why = f"{source} {edge.why}"
                case "ww":
                    why = f"of {target}, {edge.why}"
                case "session":
                    why = "the same process, one after the other"
                case _:
                    ended, began = self._txns[edge.source].op, self._txns[edge.target].op
                    why = f"answered at {ended.ended_s:.3f} s, begun at {began.began_s:.3f} s"
            lines.append(f"  {source} -{edge.kind}→ {target}: {why}")
        return "\n".join(lines)


def _searches(isolation: str) -> Iterator[Search]:
    of_time: tuple[tuple[Kind, ...], ...] = ((), ("session",), ("session", "real-time"))
    for more in of_time:
        yield Search(("ww", *more), "none")
        yield Search(("ww", "wr", *more), "none")
        how: tuple[Rw, ...] = ("apart", "any") if isolation == "serializable" else ("apart",)
        for rw in how:
            yield Search(("ww", "wr", *more), rw)


def _kind(way: Sequence[Edge]) -> str:
    kinds = [edge.kind for edge in way]
    rw = kinds.count("rw")
    in_a_row = any(a == b == "rw" for a, b in pairwise([*kinds, kinds[0]]))
    if in_a_row:
        name = "G2-item"
    elif rw:
        name = "G-single" if rw == 1 else "G-nonadjacent"
    else:
        name = "G1c" if "wr" in kinds else "G0"
    if "real-time" in kinds:
        return f"{name}-realtime"
    return f"{name}-session" if "session" in kinds else name


def _appends(args: Any) -> dict[str, list[int]]:
    appends: dict[str, list[int]] = {}
    for what, key, element in args:
        if what == "append":
            appends.setdefault(key, []).append(element)
    return appends


def _name(o: Operation) -> str:
    txn = o.info.get("txn")
    return f"#{o.id}" if txn is None else f"#{o.id} (transaction {txn})"


def _short(elements: Elements) -> str:
    """The end of a long list is what distinguishes reads."""
    if len(elements) <= 8:
        return str(list(elements))
    return f"[… {len(elements) - 8} more, {', '.join(map(str, elements[-8:]))}]"

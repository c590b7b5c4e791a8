"""The graph of list-append transactions: every anomaly has a history that must be rejected, and
what is permitted must be accepted.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from kvorum.verify.checkers.transactions import check
from kvorum.verify.history import Header, History, Recorder


class Clock:
    """A second per look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def r(key: str, *elements: int) -> list[Any]:
    return ["r", key, list(elements)]


def a(key: str, element: int) -> list[Any]:
    return ["append", key, element]


class Maker:
    """Writes a history; transactions overlap unless `apart` says that they follow each other."""

    def __init__(self, isolation: str = "snapshot") -> None:
        self.recorder = Recorder(Header("list-append", isolation=isolation), Clock())
        self._open: list[tuple[int, list[Any], str, dict[str, Any]]] = []
        self._process = 0

    def txn(self, *ops: list[Any], end: str = "ok", process: int = -1, **info: Any) -> Maker:
        """It begins now and ends at the next `apart`."""
        self._process += 1
        args = [[op[0], op[1], None if op[0] == "r" else op[2]] for op in ops]
        number = self._process if process < 0 else process
        op = self.recorder.invoke(number, "txn", args)
        self._open.append((op, list(ops), end, info))
        return self

    def apart(self) -> Maker:
        for op, ops, end, info in self._open:
            if end == "ok":
                self.recorder.ok(op, ops, **info)
            elif end == "fail":
                self.recorder.fail(op, "CONFLICT")
            elif end == "unknown":
                self.recorder.unknown(op, "UNKNOWN_OUTCOME")
        self._open = []
        return self

    def history(self) -> History:
        return self.apart().recorder.history


def kinds(history: History) -> set[str]:
    return {anomaly.kind for anomaly in check(history)}


KNOWN_BAD = {
    "internal": Maker().txn(a("x", 1), r("x")),
    "G1a": Maker().txn(a("x", 1), end="fail").txn(r("x", 1)),
    "G1b": Maker().txn(a("x", 1), a("x", 2)).txn(r("x", 1)).txn(r("x", 1, 2)),
    "duplicate": Maker().txn(a("x", 1)).txn(r("x", 1, 1)),
    "incompatible-order": (
        Maker().txn(a("x", 1)).txn(a("x", 2)).txn(r("x", 1, 2)).txn(r("x", 2, 1))
    ),
    "lost-update": Maker().txn(r("x"), a("x", 1)).txn(r("x"), a("x", 2)).txn(r("x", 1, 2)),
    "lost": Maker().txn(a("x", 1)).apart().txn(r("x")),
    "version-order": (
        Maker().txn(a("x", 1), version=20).txn(a("x", 2), version=10).txn(r("x", 1, 2))
    ),
    "G0": (
        Maker()
        .txn(a("x", 1), a("y", 1))
        .txn(a("x", 2), a("y", 2))
        .txn(r("x", 1, 2))
        .txn(r("y", 2, 1))
    ),
    "G1c": Maker().txn(r("y", 2), a("x", 1)).txn(r("x", 1), a("y", 2)),
    "G-single": Maker().txn(r("x"), r("y", 2)).txn(a("x", 2), a("y", 2)).txn(r("x", 2)),
    "G-nonadjacent": (
        Maker().txn(a("x", 1)).txn(a("y", 2)).txn(r("x", 1), r("y")).txn(r("x"), r("y", 2))
    ),
    "G-single-realtime": (Maker().txn(a("x", 1)).apart().txn(r("x")).txn(r("x", 1))),
    "G0-realtime": (Maker().txn(a("x", 1)).apart().txn(a("x", 2)).apart().txn(r("x", 2, 1))),
    "G-single-session": (
        Maker().txn(a("x", 1), process=7).apart().txn(r("x"), process=7).txn(r("x", 1))
    ),
}


@pytest.mark.parametrize("kind", KNOWN_BAD)
def test_txn_checker_rejects(kind: str) -> None:
    """Each of these is forbidden; a checker that accepts it would accept it from a broken build."""
    found = check(KNOWN_BAD[kind].history())
    assert kind in {anomaly.kind for anomaly in found}
    assert all(anomaly.operations and anomaly.text for anomaly in found)


def skew(isolation: str) -> History:
    make = Maker(isolation).txn(r("x"), r("y"), a("x", 1)).txn(r("x"), r("y"), a("y", 2))
    return make.apart().txn(r("x", 1), r("y", 2)).history()


def test_txn_checker_permits_write_skew_to_snapshots_only() -> None:
    """Snapshot isolation permits it, so a report would be a false alarm; serializability does not,
    and there silence would be the mistake.
    """
    assert kinds(skew("snapshot")) == set()
    assert kinds(skew("serializable")) == {"G2-item"}


def test_txn_checker_accepts_unknown_outcomes_either_way() -> None:
    """An operation without an answer may have been done or not, but not half of it."""
    done = Maker().txn(a("x", 1), a("y", 1), end="unknown").apart().txn(r("x", 1), r("y", 1))
    never = Maker().txn(a("x", 1), end="none").apart().txn(r("x"))
    half = Maker().txn(a("x", 1), a("y", 1), end="unknown").apart().txn(r("x", 1), r("y"))
    assert kinds(done.history()) == kinds(never.history()) == set()
    assert kinds(half.txn(r("y", 1)).history()) == {"G-single"}


def test_txn_checker_names_transactions_and_edges() -> None:
    """A cycle that nobody can follow helps nobody."""
    history = Maker().txn(r("y", 2), a("x", 1), txn=77).txn(r("x", 1), a("y", 2)).history()
    (anomaly,) = check(history)
    assert anomaly.operations == (0, 1)
    assert "#0 (transaction 77) -wr→ #1: #1 read x as [1], which ends with" in anomaly.text
    assert "#1 -wr→ #0 (transaction 77)" in anomaly.text


class Store:
    """Snapshot isolation by the book, in memory: what a correct history looks like."""

    def __init__(self, seed: int, *, serializable: bool = False) -> None:
        self.rng, self.serializable = random.Random(seed), serializable
        self.versions: dict[str, list[tuple[int, int]]] = {f"k{i}": [] for i in range(20)}
        self.now = self.unique = 0
        self.recorder = Recorder(
            Header("list-append", isolation="serializable" if serializable else "snapshot"),
            Clock(),
        )

    def run(self, transactions: int) -> History:
        open_: list[tuple[int, int, list[Any]]] = []
        process = 0
        while process < transactions or open_:
            if process < transactions and (len(open_) < 8 and self.rng.random() < 0.6):
                ops = self._draw()
                op = self.recorder.invoke(process, "txn", ops)
                open_.append((op, self.now, ops))
                process += 1
            elif open_:
                self._end(*open_.pop(self.rng.randrange(len(open_))))
        return self.recorder.history

    def _draw(self) -> list[Any]:
        ops: list[Any] = []
        for key in self.rng.sample(sorted(self.versions), 1 + self.rng.randrange(4)):
            if self.rng.random() < 0.5:
                ops.append(["r", key, None])
            else:
                self.unique += 1
                ops.append(["append", key, self.unique])
        return ops

    def _end(self, op: int, start: int, ops: list[Any]) -> None:
        written = {op[1] for op in ops if op[0] == "append"}
        read = {op[1] for op in ops} if self.serializable and written else written
        if any(self.versions[key][-1][0] > start for key in read if self.versions[key]):
            self.recorder.fail(op, "CONFLICT")
            return
        result = [
            ["r", key, [e for at, e in self.versions[key] if at <= start]]
            if what == "r"
            else [what, key, element]
            for what, key, element in ops
        ]
        self.now += 1
        for what, key, element in ops:
            if what == "append":
                self.versions[key].append((self.now, element))
        self.recorder.ok(op, result, version=self.now)


@pytest.mark.parametrize("serializable", [False, True])
def test_txn_checker_accepts_what_a_correct_store_makes(serializable: bool) -> None:
    """A false alarm in a clean history would be believed once and never again."""
    for seed in range(5):
        assert check(Store(seed, serializable=serializable).run(400)) == []


@pytest.mark.slow
def test_txn_checker_judges_10_000_transactions_in_seconds() -> None:
    """Histories of ten minutes are that long; a slow checker is not run."""
    history = Store(1).run(10_000)
    began = time.process_time()
    assert check(history) == []
    assert time.process_time() - began < 15

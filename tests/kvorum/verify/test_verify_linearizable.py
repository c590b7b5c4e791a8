"""Linearizability of single keys: known histories, a brute-force twin, and its speed."""

from __future__ import annotations

import dataclasses
import itertools
import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from kvorum.verify.checkers import linearizable, versions
from kvorum.verify.history import FOREVER, Header, History, Operation, Recorder
from tests.kvorum.verify.story import Story

K = {"key": "k"}


def story() -> Story:
    return Story("register")


def write(value: Any) -> dict[str, Any]:
    return {"key": "k", "value": value}


def cas(old: Any, new: Any) -> dict[str, Any]:
    return {"key": "k", "old": old, "new": new}


def overlapping_reads_disagree() -> Story:
    """new, then old, one after the other while the write is under way."""
    s = story().does("write", write(1))
    op = s.begins("write", write(2), process=1)
    return s.does("read", K, 2).does("read", K, 1).ends(op)


BAD = {
    "stale read": story().does("write", write(1)).does("write", write(2)).does("read", K, 1),
    "lost write": story().does("write", write(1)).does("read", K, None),
    "from nowhere": story().does("read", K, 7),
    "refused but done": story().fails("write", write(1)).does("read", K, 1),
    "new, then old": overlapping_reads_disagree(),
    "unknown seen, then gone": (
        story()
        .does("write", write(1))
        .maybe("write", write(2))
        .does("read", K, 2)
        .does("read", K, 1)
    ),
    "unknown done twice": (
        story()
        .maybe("write", write(1))
        .does("read", K, 1)
        .does("write", write(2))
        .does("read", K, 1)
    ),
    "deleted and there": (
        story().does("write", write(1)).does("write", write(None)).does("read", K, 1)
    ),
    "two winners": (
        story().does("write", write(1)).does("cas", cas(1, 2), True).does("cas", cas(1, 3), True)
    ),
    "refused for nothing": story().does("write", write(1)).does("cas", cas(1, 2), False),
    "absent for nothing": story().does("cas", cas(None, 1), False),
    "before it was written": story().does("read", K, 1).does("write", write(1)),
}


@pytest.mark.parametrize("name", BAD)
def test_a8_known_bad_histories_are_rejected(name: str) -> None:
    """What no single copy of the data could have answered must be found."""
    (found,) = linearizable.check(BAD[name].history)
    assert found.kind == "not-linearizable"
    last = BAD[name].history.operations()[-1]
    assert found.operations
    assert f"#{found.operations[-1]} " in found.text
    assert found.operations[-1] <= last.id


def write_ends_late() -> Story:
    s = story().does("write", write(1))
    op = s.begins("write", write(2), process=1)
    return s.does("read", K, 1).does("read", K, 2).does("read", K, 2).ends(op)


def unknown_comes_late() -> Story:
    """The write takes effect long after its client gave up: between two reads."""
    return (
        story()
        .does("write", write(1))
        .maybe("write", write(2))
        .does("read", K, 1)
        .does("write", write(3))
        .does("read", K, 3)
        .does("read", K, 2)
    )


GOOD = {
    "empty": story(),
    "in order": story().does("write", write(1)).does("read", K, 1).does("cas", cas(1, 2), True),
    "write ends late": write_ends_late(),
    "unknown comes late": unknown_comes_late(),
    "unknown explains a refusal": (
        story().does("write", write(1)).maybe("write", write(2)).does("cas", cas(1, 3), False)
    ),
    "unknown never happens": (
        story().does("write", write(1)).maybe("cas", cas(1, 2)).does("read", K, 1)
    ),
    "failed reads say nothing": story().fails("read", K).does("write", write(1)),
    "keys are apart": (
        story().does("write", {"key": "a", "value": 1}).does("read", {"key": "b"}, None)
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a8_clean_histories_are_accepted(name: str) -> None:
    """An unknown outcome permits both; who forgets that cries wolf."""
    assert linearizable.check(GOOD[name].history) == []


# ------------------------------------------------------------------------------ brute-force twin


def brute_force(operations: Sequence[Operation]) -> bool:
    """Every order of every choice of the unknown operations, after the definition."""
    sure = [o for o in operations if o.outcome == "ok"]
    maybe = [o for o in operations if o.outcome == "unknown" and o.f != "read"]
    for count in range(len(maybe) + 1):
        for some in itertools.combinations(maybe, count):
            if any(_explains(order) for order in itertools.permutations([*sure, *some])):
                return True
    return False


def _explains(order: Sequence[Operation]) -> bool:
    for i, later in enumerate(order):
        if any(after.ended < later.began for after in order[i:]):
            return False
    state = None
    for o in order:
        match o.f:
            case "read":
                if o.result != state:
                    return False
            case "write":
                state = o.args["value"]
            case _:
                if o.outcome == "ok" and o.result is not (state == o.args["old"]):
                    return False
                if state == o.args["old"]:
                    state = o.args["new"]
    return True


def random_history(rng: random.Random) -> History:
    """Three processes, six operations, answers at random: most are wrong, some by a hair."""
    recorder = Recorder(Header("register"), time.monotonic)
    open_: dict[int, tuple[int, str, dict[str, Any]]] = {}
    values = itertools.count(1)
    made, written = 0, [None]
    while made < 6 or open_:
        process = rng.randrange(3)
        if process in open_:
            op, f, args = open_.pop(process)
            roll = rng.random()
            if roll < 0.15:
                recorder.unknown(op, "?")
            elif roll < 0.2:
                recorder.fail(op, "no")
            else:
                result = {"read": rng.choice(written), "cas": rng.random() < 0.6}.get(f)
                recorder.ok(op, result)
        elif made < 6:
            made += 1
            f = rng.choice(["read", "read", "write", "write", "cas"])
            args: dict[str, Any] = {"key": "k"}
            if f != "read":
                args["new" if f == "cas" else "value"] = fresh = next(values)
                if f == "cas":
                    args["old"] = rng.choice(written)
                written.append(fresh)
            open_[process] = (recorder.invoke(process, f, args), f, args)
    return recorder.history


@pytest.mark.slow
def test_a8_search_agrees_with_brute_force() -> None:
    """The search skips orders that it believes to be hopeless; the definition skips none."""
    rng = random.Random(8)
    verdicts = {True: 0, False: 0}
    for _ in range(1_500):
        history = random_history(rng)
        expected = brute_force(history.operations())
        assert (linearizable.check(history) == []) is expected, list(history.lines())
        verdicts[expected] += 1
    assert min(verdicts.values()) > 300


# ------------------------------------------------------------------------------------------ size


def long_history(operations: int, clients: int, rng: random.Random, lost: float) -> History:
    """A correct register under concurrency; each operation takes effect when it ends or is lost."""
    recorder = Recorder(Header("register"), lambda: 0.0)
    state: str | None = None
    waiting: dict[int, tuple[int, str, dict[str, Any]]] = {}
    unique = itertools.count(1)
    names = list(range(clients))
    for _ in range(2 * operations):
        at = rng.randrange(clients)
        process = names[at]
        if process not in waiting:
            f = rng.choice(["read", "write", "cas"])
            args: dict[str, Any] = {"key": "k"}
            if f == "write":
                args["value"] = str(next(unique))
            elif f == "cas":
                args |= {"old": state, "new": str(next(unique))}
            waiting[process] = (recorder.invoke(process, f, args), f, args)
            continue
        op, f, args = waiting.pop(process)
        gone = rng.random() < lost
        if gone and rng.random() < 0.5:
            recorder.unknown(op, "?")
            names[at] += clients
            continue
        result: Any = state
        if f == "write":
            state, result = args["value"], None
        elif f == "cas":
            result = state == args["old"]
            state = args["new"] if result else state
        if gone:
            recorder.unknown(op, "?")
            names[at] += clients
        else:
            recorder.ok(op, result)
    return recorder.history


@pytest.mark.few(1)
@pytest.mark.parametrize("lost", [0.0, 0.003])
def test_a8_ten_thousand_operations_of_one_key_in_seconds(lost: float) -> None:
    """A checker that needs an hour is not run."""
    history = long_history(10_000, 8, random.Random(5), lost)
    began = time.process_time()
    assert linearizable.check(history) == []
    assert time.process_time() - began < 20


@pytest.mark.slow
def test_a8_one_stale_read_in_ten_thousand_is_found() -> None:
    """The search must not only be fast where everything is right."""
    history = long_history(10_000, 6, random.Random(6), 0.0)
    reads = [o for o in history.operations("read") if o.acknowledged]
    late = reads[len(reads) // 2]
    before = next(o for o in reads if o.result is not None)
    event = history.events[late.ended]
    history.events[late.ended] = dataclasses.replace(event, value=before.result)
    (found,) = linearizable.check(history)
    assert late.id in found.operations


def test_a8_a_search_that_gives_up_claims_nothing() -> None:
    """Undecided is neither clean nor an anomaly."""
    history = long_history(300, 8, random.Random(7), 0.0)
    (found,) = linearizable.check(history, steps_max=50)
    assert found.kind == "undecided"


# -------------------------------------------------------------------------------------- versions


VERSIONS_BAD = {
    "version-twice": story().does("write", write(1), version=5).does("read", K, 2, version=5),
    "written-twice": story().does("read", K, 1, version=5).does("read", K, 1, version=6),
    "went-back": story().does("write", write(2), version=7).does("read", K, 1, version=5),
    "version-order": story().does("write", write(1), version=7).does("write", write(2), version=6),
}


@pytest.mark.parametrize("kind", VERSIONS_BAD)
def test_a8_versions_that_contradict_real_time_are_rejected(kind: str) -> None:
    """A version is what users compare by: it must order writes as they happened."""
    found = versions.check(VERSIONS_BAD[kind].history)
    assert kind in {a.kind for a in found}


def test_a8_versions_of_overlapping_operations_may_come_in_any_order() -> None:
    """Two writes at once have no order in time."""
    s = story()
    first, second = s.begins("write", write(1)), s.begins("write", write(2), process=1)
    s.ends(first, version=9).ends(second, version=8)
    s.does("read", K, 1, version=9).does("write", write(None), version=10).does(
        "read", K, None, version=0
    )
    assert versions.check(s.history) == []
    assert all(o.ended < FOREVER for o in s.history.operations())

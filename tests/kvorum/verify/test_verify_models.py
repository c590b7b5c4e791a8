"""The very workloads of `kvorum verify` over a model: what a correct database does is accepted,
what a broken one does is found, and so is one corrupted answer.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest

from kvorum.verify.catalog import WORKLOADS, judge
from kvorum.verify.history import Event, History
from kvorum.verify.report import ACKNOWLEDGED_MIN, report
from tests.kvorum.verify.model import history_of

SEEDS = range(3)

FOUND = {  # of two clusters: tests/kvorum/sites/test_two_sites.py
    "register": ("stale-read", "forgets", "refused-but-done", "twice"),
    "list-append": ("stale-read", "forgets", "no-conflicts", "torn", "refused-but-done", "twice"),
    "bank": ("stale-read", "forgets", "no-conflicts", "torn", "refused-but-done", "twice"),
    "set": ("stale-read", "forgets", "refused-but-done"),
    "cycle": ("no-conflicts", "torn", "twice"),
    "long-fork": ("stale-read", "forgets", "refused-but-done"),
    "monotonic": ("stale-read", "forgets", "no-conflicts", "refused-but-done", "twice"),
    "batch": ("stale-read", "forgets", "torn", "refused-but-done"),
    "stale": ("lags", "stale-read", "forgets", "torn", "refused-but-done"),
    "unique-ids": ("oracle-back",),
    "procedure": ("forgets", "refused-but-done", "twice"),
    "queue": (
        *("forgets", "refused-but-done", "twice"),
        *("no-keys", "no-limit", "no-rate", "no-turns", "last-first", "no-dedup"),
    ),
    "feed": ("forgets", "torn", "refused-but-done", "twice", "feed-drops", "feed-repeats"),
    "skew": ("no-conflicts", "skips-guards"),
    "causal": ("stale-read", "forgets", "own-writes-only", "refused-but-done", "twice"),
}


def isolation(name: str) -> str:
    return WORKLOADS[name].isolations[0]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("faults", [0.0, 0.08])
def test_verify_accepts_what_a_correct_database_does(name: str, faults: float) -> None:
    """A checker that cries wolf is switched off."""
    for seed in SEEDS:
        history = history_of(name, seed=seed, faults=faults, isolation=isolation(name))
        assert judge(history) == []
        told = report(history, [])
        assert told.acknowledged > 100
        assert told.verdict == "clean"
        assert (told.unknown > 0) <= (faults > 0)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["list-append", "bank", "cycle", "monotonic", "long-fork"])
def test_verify_accepts_serializable_runs(name: str) -> None:
    """What holds under snapshot isolation holds under the stronger one."""
    for seed in SEEDS:
        history = history_of(name, seed=seed, faults=0.05, isolation="serializable")
        assert judge(history) == []


@pytest.mark.few(4)
@pytest.mark.parametrize("broken", ["", "forgets-locks"])
def test_verify_judges_locks_at_read_committed(broken: str) -> None:
    """Who locks what he changes loses no update there; a database that forgets locks does."""
    kinds = []
    for seed in range(10 if broken else 3):
        history = history_of(
            "bank", seed=seed, faults=0.05, broken=broken, isolation="read_committed"
        )
        kinds += [a.kind for a in judge(history) if a.kind != "undecided"]
        if kinds:
            break
    assert bool(kinds) is bool(broken)


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "broken"), [(n, b) for n in FOUND for b in FOUND[n]])
def test_verify_finds_broken_databases(name: str, broken: str) -> None:
    """A workload whose checker accepts a broken database proves nothing about a good one."""
    kinds = []
    for seed in range(20):
        history = history_of(name, seed=seed, faults=0.05, broken=broken, isolation=isolation(name))
        kinds += [a.kind for a in judge(history) if a.kind != "undecided"]
        if kinds:
            return
    raise AssertionError(f"{name} accepts {broken}")


@pytest.mark.slow
def test_verify_same_seed_same_history() -> None:
    """A finding that cannot be repeated cannot be reduced."""
    first, again, other = (
        list(history_of("bank", seed=seed, faults=0.05).lines()) for seed in (1, 1, 2)
    )
    assert first == again != other


# --------------------------------------------------------------------- one corrupted answer each

Corruption = Callable[[Any, random.Random], Any]
"""A result → another one that is certainly wrong."""


def _bank_read(result: dict[str, int], rng: random.Random) -> dict[str, int]:
    account = rng.choice(sorted(result))
    return result | {account: result[account] + rng.choice([-1, 1])}


def _bank_journal(result: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    victim = rng.choice(sorted(result))
    if rng.random() < 0.5:
        return {number: row for number, row in result.items() if number != victim}
    return result | {victim: [*result[victim][:2], result[victim][2] + 1]}


def _final_set(result: list[int], rng: random.Random) -> list[int]:
    match rng.randrange(3):
        case 0:
            return [*result, 10**9]
        case 1:
            return [*result, rng.choice(result)]
        case _:
            return []


def _tickets(result: dict[str, list[int]], rng: random.Random) -> dict[str, list[int]]:
    ticket = rng.choice(sorted(result))
    began, times, ended, again = result[ticket]
    wrong = [[began, times + 1, ended, again], [began, times, 0, 0]]
    return result | {ticket: rng.choice(wrong)}


def _ring(result: dict[str, str], rng: random.Random) -> dict[str, str]:
    a, b = rng.sample(sorted(result), 2)
    return result | {a: result[b], b: result[a]}  # two rings, always


def _batch_read(result: list[Any], rng: random.Random) -> list[Any]:
    at = rng.randrange(len(result))
    changed = list(result)
    changed[at] = None if changed[at] else [10**9, 1]
    return changed


def _counter(result: int, rng: random.Random) -> int:
    return result + rng.choice([-1, 1]) * 10**6


CORRUPTIONS: dict[str, tuple[str, Corruption]] = {
    "register": ("read", lambda _r, _rng: "from nowhere"),
    "bank": ("read", _bank_read),
    "bank journal": ("final journal", _bank_journal),
    "set": ("final", _final_set),
    "cycle": ("read", _ring),
    "monotonic": ("final", _counter),
    "batch": ("read", _batch_read),
    "stale": ("read", _batch_read),
    "procedure": ("final read", lambda r, rng: r | {rng.choice(sorted(r)): rng.choice([3, 5])}),
    "queue": ("final read", _tickets),
    "queue id": ("enqueue", lambda r, _rng: r + 10**6),
    "procedure id": ("submit", lambda r, _rng: r + 10**6),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_verify_finds_one_corrupted_answer(name: str) -> None:
    """One wrong answer in a thousand right ones is what a run is made for."""
    f, corrupt = CORRUPTIONS[name]
    for seed in SEEDS:
        rng = random.Random(seed)
        history = history_of(name.split()[0], seed=seed, faults=0.05)
        assert judge(history) == []
        at = rng.choice(_places(history, f))
        event = history.events[at]
        wrong = corrupt(event.value, rng)
        history.events[at] = dataclasses.replace(event, value=wrong)
        found = judge(history)
        assert found, f"seed {seed}: {event.value} → {wrong} was accepted"
        assert report(history, found).verdict == "anomalies"


def _places(history: History, f: str) -> list[int]:
    """Where an answer can be made wrong: those that say something."""
    return [
        at
        for at, event in enumerate(history.events)
        if event.type == "ok" and event.f == f and event.value not in (None, [], {})
    ]


def _swap(history: History, first: int, second: int) -> None:
    events = history.events
    a, b = events[first], events[second]
    events[first] = dataclasses.replace(a, value=b.value, info=b.info)
    events[second] = dataclasses.replace(b, value=a.value, info=a.info)


def _one_after_the_other(history: History, f: str) -> list[tuple[int, int]]:
    """Pairs of answers of which the second was asked for after the first had come."""
    done = [(at, e) for at, e in enumerate(history.events) if e.type == "ok" and e.f == f]
    return [(a, b) for (a, x), (b, y) in zip(done, done[20:], strict=False) if a < y.op and x != y]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "f"), [("unique-ids", "take"), ("monotonic", "increment")])
def test_verify_finds_two_answers_that_changed_places(name: str, f: str) -> None:
    """Right numbers in the wrong order break the order in real time, which clients rely on."""
    for seed in SEEDS:
        history = history_of(name, seed=seed, faults=0.05)
        pairs = _one_after_the_other(history, f)
        if name == "monotonic":
            pairs = [(a, b) for a, b in pairs if _key(history, a) == _key(history, b)]
        _swap(history, *random.Random(seed).choice(pairs))
        assert judge(history)


def _key(history: History, at: int) -> str:
    return str(history.events[history.events[at].op].value["key"])


def test_verify_says_when_a_run_shows_nothing() -> None:
    """An empty history has no anomaly; calling that clean would be a lie."""
    history = history_of("bank", seed=1)
    few: list[Event] = history.events[:ACKNOWLEDGED_MIN]
    few = [e for e in few if e.op < 0 or e.op < len(few)]
    short = History(history.header, few)
    assert report(short, judge(short)).verdict == "too little"

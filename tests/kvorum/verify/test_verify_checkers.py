"""Every checker rejects its known-bad histories, by the kind that it names, and accepts clean ones.

(Registers: test_verify_linearizable.py; lists: test_verify_transactions.py.)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kv.base.errors import InvalidArgument
from kvorum.verify.catalog import CHECKERS, WORKLOADS, judge
from kvorum.verify.history import Header, History
from tests.kit.each import each
from tests.kvorum.verify.story import Story

# ------------------------------------------------------------------------------------------ bank


def bank() -> Story:
    return Story("bank", accounts=["a", "b"], balance=10)


def transfer(number: int, amount: int) -> dict[str, Any]:
    return {"id": number, "from": "a", "to": "b", "amount": amount}


def read(**balances: int) -> tuple[str, dict[str, Any], dict[str, int]]:
    return "read", {"how": "scan"}, balances


def bank_end(story: Story, a: int, b: int, **journal: int) -> Story:
    story.does("final read", {"how": "scan"}, {"a": a, "b": b})
    rows = {number[1:]: ["a", "b", amount] for number, amount in journal.items()}
    return story.does("final journal", None, rows)


MOVED = {"from": 7, "to": 13}
BANK = {
    "total": bank().does(*read(a=10, b=13)),
    "total at the end": bank_end(bank(), 9, 10),
    "negative": bank().does(*read(a=-1, b=21)),
    "missing": bank().does(*read(a=20)),
    "lost": bank_end(bank().does("transfer", transfer(1, 3), MOVED), 10, 10),
    "from-nowhere: never made": bank_end(bank(), 7, 13, t1=3),
    "from-nowhere: refused": bank_end(bank().fails("transfer", transfer(1, 3)), 7, 13, t1=3),
    "from-nowhere: too little": bank_end(bank().does("transfer", transfer(1, 30)), 7, 13, t1=3),
    "from-nowhere: another amount": bank_end(bank().maybe("transfer", transfer(1, 3)), 6, 14, t1=4),
    "balance": bank_end(bank().does("transfer", transfer(1, 3), MOVED), 10, 10, t1=3),
}
BANK_CLEAN = [
    bank().does(*read(a=0, b=20)),
    bank_end(bank().does("transfer", transfer(1, 3), MOVED), 7, 13, t1=3),
    bank_end(bank().maybe("transfer", transfer(1, 3)), 10, 10),
    bank_end(bank().maybe("transfer", transfer(1, 3)), 7, 13, t1=3),
    bank_end(bank().fails("transfer", transfer(1, 3)).does("transfer", transfer(2, 90)), 10, 10),
    bank().fails("read", {"how": "scan"}),
]

# ------------------------------------------------------------------------------------------- set


def add(element: int) -> dict[str, int]:
    return {"round": 0, "element": element}


ROUND = {"round": 0}


def seen_early() -> Story:
    s = Story("set")
    s.does("read", ROUND, [1])
    return s.does("add", add(1))


SET = {
    "lost": Story("set").does("add", add(1)).does("final", ROUND, []),
    "lost meanwhile": Story("set").does("add", add(1)).does("read", ROUND, []),
    "vanished": Story("set").maybe("add", add(1)).does("read", ROUND, [1]).does("read", ROUND, []),
    "from-nowhere": Story("set").does("final", ROUND, [1]),
    "from-nowhere: refused": Story("set").fails("add", add(1)).does("final", ROUND, [1]),
    "from-nowhere: too early": seen_early(),
    "twice": Story("set").does("add", add(1)).does("final", ROUND, [1, 1]),
}


def added_during_a_scan() -> Story:
    s = Story("set")
    scan = s.begins("read", ROUND)
    return s.does("add", add(1)).ends(scan, []).does("final", ROUND, [1])


SET_CLEAN = [
    added_during_a_scan(),
    Story("set").maybe("add", add(1)).does("read", ROUND, []).does("final", ROUND, [1]),
    Story("set").fails("add", add(1)).does("final", ROUND, []),
    Story("set")
    .does("add", add(1))
    .does("add", {"round": 1, "element": 2})
    .does("final", ROUND, [1]),
]

# ----------------------------------------------------------------------------------------- cycle


def ring() -> Story:
    return Story("cycle", nodes=["a", "b", "c", "d"])


def walk(order: str) -> tuple[str, dict[str, str], dict[str, str]]:
    return "read", {"how": "scan"}, dict(zip(order, order[1:] + order[:1], strict=True))


CYCLE = {
    "broken-ring": ring().does("read", {}, {"a": "b", "b": "a", "c": "d", "d": "c"}),
    "broken-ring: a tail": ring().does("final", {}, {"a": "b", "b": "c", "c": "b", "d": "a"}),
    "broken-ring: a stranger": ring().does("read", {}, {"a": "b", "b": "x", "c": "d", "d": "a"}),
    "missing": ring().does("read", {}, {"a": "b", "b": "a"}),
    "missing in a swap": ring().does("swap", {"at": "a"}, None),
    "short-path": ring().does("swap", {"at": "a"}, ["a", "b", "a", "b"]),
}
CYCLE_CLEAN = [
    ring().does(*walk("abcd")).does("swap", {"at": "a"}, ["a", "b", "c", "d"]).does(*walk("acbd")),
    ring().fails("swap", {"at": "a"}).maybe("swap", {"at": "a"}),
]

# ------------------------------------------------------------------------------------- long fork

G = {"group": 1}


def forked() -> Story:
    s = Story("long-fork")
    both = [s.begins("write", {"group": 1, "key": k}, process=9) for k in ("x", "y")]
    one, other = s.begins("read", G, process=1), s.begins("read", G, process=2)
    s.ends(one, {"x": True, "y": False}).ends(other, {"x": False, "y": True})
    return s.ends(both[0]).ends(both[1])


def forgot() -> Story:
    s = Story("long-fork").maybe("write", {"group": 1, "key": "x"})
    return s.does("read", G, {"x": True}).does("read", G, {"x": False})


WRITE_X = {"group": 1, "key": "x"}
LONG_FORK = {
    "long-fork": forked(),
    "stale": Story("long-fork").does("write", WRITE_X).does("read", G, {"x": False}),
    "stale: seen before": forgot(),
    "from-nowhere": Story("long-fork").does("read", G, {"x": True}),
    "from-nowhere: refused": Story("long-fork")
    .fails("write", WRITE_X)
    .does("read", G, {"x": True}),
    "from-nowhere: too early": (
        Story("long-fork").does("read", G, {"x": True}).does("write", WRITE_X)
    ),
}


def read_beside_a_write() -> Story:
    s = Story("long-fork")
    write = s.begins("write", WRITE_X, process=1)
    return s.does("read", G, {"x": False}).does("read", G, {"x": True}).ends(write)


LONG_FORK_CLEAN = [
    read_beside_a_write(),
    Story("long-fork").maybe("write", WRITE_X).does("read", G, {"x": False}),
]

# ------------------------------------------------------------------------------------- monotonic

C = {"key": "c"}


def counter() -> Story:
    return Story("monotonic", counters=["c"])


MONOTONIC = {
    "went-back": counter().does("increment", C, 2).does("read", C, 1),
    "went-back: versions": counter().does("read", C, 1, version=9).does("read", C, 1, version=8),
    "lost-update: same value": counter().does("increment", C, 1).does("increment", C, 1),
    "lost-update": counter().does("increment", C, 1).does("final", C, 0),
    "done-twice": counter().does("increment", C, 1).does("final", C, 2),
    "done-twice: refused": counter().fails("increment", C).does("final", C, 1),
    "version-order": (
        counter().does("increment", C, 1, version=7).does("increment", C, 2, version=5)
    ),
}


def increments_at_once() -> Story:
    s = counter()
    first, second = s.begins("increment", C), s.begins("increment", C, process=1)
    return s.ends(second, 2, version=6).ends(first, 1, version=5).does("final", C, 2, version=6)


MONOTONIC_CLEAN = [
    increments_at_once(),
    counter().maybe("increment", C).does("final", C, 0),
    counter().maybe("increment", C).does("final", C, 1),
]

# ----------------------------------------------------------------------------------------- batch

ONE, TWO = [[1, 5], [1, 5]], [[2, 6], [2, 6]]


def batch_write(value: int | None) -> dict[str, Any]:
    return {"group": 1, "value": value}


GET = {"group": 1, "how": "multi_get"}
PAST = {"group": 1, "how": "past", "at": 5}


def batches() -> Story:
    return Story("batch").does("write", batch_write(1), version=5)


BATCH = {
    "torn": batches().does("read", GET, [[1, 5], None]),
    "torn: two batches": (
        batches().does("write", batch_write(2), version=6).does("read", GET, [[1, 5], [2, 6]])
    ),
    "torn: two versions": batches().does("read", GET, [[1, 5], [1, 6]]),
    "wrong-past": batches().does("write", batch_write(2), version=6).does("read", PAST, TWO),
    "wrong-past: nothing": batches().does("read", PAST, [None, None]),
    "from-nowhere": batches().does("read", GET, [[3, 7], [3, 7]]),
    "from-nowhere: refused": batches().fails("write", batch_write(2)).does("read", GET, TWO),
    "from-nowhere: too early": batches()
    .does("read", GET, TWO)
    .does("write", batch_write(2), version=6),
    "went-back": batches().does("write", batch_write(2), version=6).does("read", GET, ONE),
    "lost": batches().does("final", GET, [None, None]),
}
BATCH_CLEAN = [
    batches()
    .does("read", GET, ONE)
    .does("write", batch_write(2), version=6)
    .does("read", PAST, ONE),
    batches().maybe("write", batch_write(None)).does("final", GET, [None, None]),
    batches().does("write", batch_write(None), version=6).does("read", GET, [None, None]),
    batches().maybe("write", batch_write(2)).does("read", GET, ONE).does("read", GET, TWO),
    Story("batch").does("read", GET, [None, None]),
]

# ----------------------------------------------------------------------------------------- stale

AT_5 = {"group": 1, "how": "past", "at": 5}
AT_6 = {"group": 1, "how": "past", "at": 6}


def stale() -> Story:
    return Story("stale").does("write", batch_write(1), version=5)


STALE = {
    "missed": stale().does("write", batch_write(2), version=6).does("read", AT_6, ONE),
    "missed: nothing": stale().does("read", AT_6, [None, None]),
    "missed: not yet acknowledged when it was read": stale()
    .does("read", AT_6, ONE)
    .does("write", batch_write(2), version=6),
    "future": stale().does("write", batch_write(2), version=6).does("read", AT_5, TWO),
    "went-back": stale()
    .maybe("write", batch_write(2))
    .does("read", AT_6, TWO)
    .does("read", AT_6, ONE),
    "torn": stale().does("read", AT_5, [[1, 5], None]),
    "went-back: now": stale().does("write", batch_write(2), version=6).does("read", GET, ONE),
}
STALE_CLEAN = [
    stale()
    .does("write", batch_write(2), version=6)
    .does("read", AT_5, ONE)
    .does("read", AT_6, TWO),
    stale().maybe("write", batch_write(2)).does("read", AT_6, ONE).does("read", AT_6, ONE),
    stale().maybe("write", batch_write(2)).does("read", AT_6, TWO).does("read", AT_5, ONE),
    Story("stale").does("read", AT_5, [None, None]),
]

# ------------------------------------------------------------------------- ids, procedures, skew


def procedures() -> Story:
    return Story("procedure", steps=4)


NONCE = {"nonce": "n1"}
PROCEDURE = {
    "steps: one lost": (
        procedures()
        .does("submit", NONCE, 8)
        .does("await", {"id": 8}, 4)
        .does("final read", None, {"n1": 3})
    ),
    "steps: one twice": (
        procedures()
        .does("submit", NONCE, 8)
        .does("final await", {"id": 8}, 4)
        .does("final read", None, {"n1": 5})
    ),
    "result": procedures().does("submit", NONCE, 8).does("await", {"id": 8}, 5),
    "from-nowhere": procedures().does("final read", None, {"n1": 4}),
    "from-nowhere: refused": procedures()
    .fails("submit", NONCE)
    .does("final read", None, {"n1": 4}),
    "two-ids": procedures().does("submit", NONCE, 8).does("final submit", NONCE, 9),
    "unfinished": (procedures().does("submit", NONCE, 8).does("final read", None, {"n1": 4})),
}
PROCEDURE_CLEAN = [
    procedures()
    .maybe("submit", NONCE)
    .does("final submit", NONCE, 8)
    .does("final await", {"id": 8}, 4)
    .does("final read", None, {"n1": 4}),
    procedures().fails("submit", NONCE).does("final read", None, {}),
]


def tickets(*, turns: int = 2) -> Story:
    return Story("queue", at_once=2, rate=1_000, burst=5, turns=turns)


def asked(story: Story, *some: tuple[str, str, int]) -> Story:
    """(ticket, key, id): submitted, one after the other, and waited for."""
    for ticket, key, id in some:
        story.does("enqueue", {"ticket": ticket, "key": key}, id)
    for ticket, _, id in some:
        story.does("await", {"ticket": ticket, "id": id}, ticket)
    return story


def lines(*, fair: bool) -> Story:
    """Ten of ada wait while bob has his turns."""
    story, end, at = tickets(), dict[str, list[int]](), 0
    for n in range(10):
        story.does("enqueue", {"ticket": f"a{n}", "key": "ada"}, n + 1)
        story.does("mark", {"ticket": f"a{n}"}, version=at + 1)
        for turn in range(1 if fair else 4):
            name, at = f"b{n}.{turn}", at + 10
            asked(story, (name, "bob", 100 + 10 * n + turn))
            end[name] = [at, 1, at + 1, 1]
        at += 10
        end[f"a{n}"] = [at, 1, at + 1, 1]
        story.does("await", {"ticket": f"a{n}", "id": n + 1}, f"a{n}")
    return story.does("final read", None, end)


def fast() -> Story:
    story = Story("queue", at_once=2, rate=1, burst=2, turns=4)
    op = story.begins("enqueue", {"ticket": "n1", "key": "k"})
    story.ends(op, 1)
    began = story.recorder.history.events[op].time_s
    for id in range(1, 9):
        story.does("await", {"ticket": f"n{id}", "id": id}, f"n{id}")
    events = story.recorder.history.events
    events[:] = [dataclasses.replace(event, time_s=began) for event in events]
    return story


A, B = ("n1", "ada", 1), ("n2", "ada", 2)
QUEUE = {
    "two-ids": asked(tickets(), A).does("enqueue", {"ticket": "n1", "key": "ada"}, 9),
    "twice": asked(tickets(), A).does("final read", None, {"n1": [5, 2, 6, 1]}),
    "twice: lost": asked(tickets(), A).does("final read", None, {}),
    "from-nowhere": tickets().does("final read", None, {"n1": [5, 1, 6, 1]}),
    "from-nowhere: refused": tickets()
    .fails("enqueue", {"ticket": "n1", "key": "ada"})
    .does("final read", None, {"n1": [5, 1, 6, 1]}),
    "unfinished": tickets()
    .does("enqueue", {"ticket": "n1", "key": "ada"}, 1)
    .does("final read", None, {"n1": [5, 1, 6, 1]}),
    "result": tickets().does("await", {"ticket": "n1", "id": 1}, "n2"),
    "at-once: of a key": asked(tickets(), A, B).does(
        "final read", None, {"n1": [5, 1, 8, 1], "n2": [7, 1, 9, 1]}
    ),
    "at-once: of the queue": asked(tickets(), A, ("m", "bob", 3), ("o", "cyd", 4)).does(
        "final read", None, {"n1": [5, 1, 9, 1], "m": [6, 1, 10, 1], "o": [7, 1, 8, 1]}
    ),
    "order": asked(tickets(), A, B).does(
        "final read", None, {"n1": [7, 1, 8, 1], "n2": [5, 1, 6, 1]}
    ),
    "rate": fast(),
    "unfair": lines(fair=False),
}
QUEUE_CLEAN = [
    asked(tickets(), A, B).does("final read", None, {"n1": [5, 1, 6, 1], "n2": [7, 1, 8, 1]}),
    tickets()
    .maybe("enqueue", {"ticket": "n1", "key": "ada"})
    .does("final enqueue", {"ticket": "n1", "key": "ada"}, 1)
    .does("final await", {"ticket": "n1", "id": 1}, "n1")
    .does("final read", None, {"n1": [5, 1, 6, 1]}),
    tickets().fails("enqueue", {"ticket": "n1", "key": "ada"}).does("final read", None, {}),
    lines(fair=True),
]

UNIQUE = {
    "twice": Story("unique-ids").does("take", None, 5).does("take", None, 5),
    "went-back": Story("unique-ids").does("take", None, 5).does("take", None, 4),
    "went-back at the end": Story("unique-ids").does("take", None, 5).does("final", None, 4),
}


def taken_at_once() -> Story:
    s = Story("unique-ids")
    first, second = s.begins("take"), s.begins("take", process=1)
    return s.ends(first, 6).ends(second, 5).does("take", None, 7)


def skew() -> Story:
    return Story("skew", isolation="serializable")


CLAIM = {"group": 1, "side": "a"}
SKEW = {
    "write-skew": skew().does("claim", CLAIM, True).does("claim", CLAIM, True),
    "write-skew: seen": skew().maybe("claim", CLAIM).does("read", G, ["a1", "t1"]),
    "lost": skew().does("claim", CLAIM, True).does("read", G, []),
}
SKEW_CLEAN = [
    skew().does("claim", CLAIM, True).does("claim", CLAIM, False).does("read", G, ["a1"]),
    Story("skew").does("claim", CLAIM, True).does("claim", CLAIM, True),  # snapshot permits it
]

F0 = {"consumer": 0}


def fed() -> Story:
    return Story("feed").does("write", {"id": 1, "changes": {"a": "1", "b": None}}, version=5)


def event(version: int, **changes: str | None) -> dict[str, Any]:
    return {"version": version, "changes": changes}


FIRST = event(5, a="1", b=None)
SECOND = {"id": 2, "changes": {"a": "2"}}
FEED = {
    "lost": fed().does("event", F0, event(4, a="1", b=None)).does("final position", F0, 6),
    "order: twice": fed().does("event", F0, FIRST).does("event", F0, FIRST),
    "order": (
        fed()
        .does("write", SECOND, version=6)
        .does("event", F0, event(6, a="2"))
        .does("event", F0, FIRST)
    ),
    "torn": (
        fed()
        .does("write", {"id": 4, "changes": {"c": "4", "d": "4"}}, version=6)
        .does("event", F0, event(6, c="4"))
    ),
    "torn: a delete is missing": (
        Story("feed")
        .does("write", {"id": 3, "changes": {"b": "3"}}, version=4)
        .does("write", {"id": 1, "changes": {"a": "1", "b": None}}, version=5)
        .does("event", F0, event(4, b="3"))
        .does("event", F0, event(5, a="1"))
    ),
    "torn: more": fed().does("event", F0, event(5, a="1", b=None, c="1")),
    "from-nowhere": fed().does("event", F0, event(6, a="9")),
    "from-nowhere: two in one": (
        fed().does("write", SECOND, version=6).does("event", F0, event(6, a="2", b="1"))
    ),
    "from-nowhere: refused": fed().fails("write", SECOND).does("event", F0, event(6, a="2")),
    "from-nowhere: too early": Story("feed").does("event", F0, FIRST).does("write", SECOND),
    "version": fed().does("event", F0, event(6, a="1", b=None)),
    "disagree": fed().does("event", F0, FIRST).does("event", {"consumer": 1}, event(5, a="1")),
    "state": (
        fed()
        .does("event", F0, FIRST)
        .does("final position", F0, 6)
        .does("final read", None, {"a": ["1", 5], "b": ["1", 5]})
    ),
    "state: unknown write": (
        fed()
        .maybe("write", SECOND)
        .does("event", F0, FIRST)
        .does("final position", F0, 6)
        .does("final read", None, {"a": ["2", 6]})
    ),
}
FEED_CLEAN = [
    fed()
    .does("event", F0, FIRST)
    .does("final position", F0, 6)
    .does("final read", None, {"a": ["1", 5]}),
    fed()
    .maybe("write", SECOND)
    .does("event", F0, FIRST)
    .does("event", F0, event(6, a="2"))
    .does("final position", F0, 7)
    .does("final read", None, {"a": ["2", 6]}),
    fed().does("final position", F0, 4).fails("write", SECOND),
    fed().does("event", F0, event(5, a="1")),  # there was no b to delete
]

# ----------------------------------------------------------------------------------------- sites


def put(told: str, table: str = "last") -> tuple[str, dict[str, Any]]:
    return "write", {"site": 0, "table": table, "key": "a", "told": told}


def two_sites() -> Story:
    """A counter and a set with one of each, and a row that was replaced once."""
    story = Story("sites").does(*put("1<"), version=10).does(*put("2<1"), version=20)
    return story.does(*put("4", "counter"), version=11).does(*put("6", "set"), version=13)


def sites_end(story: Story, *told: str, there: dict[str, str] | None = None, **here: str) -> Story:
    """`here` is what both have at key a, but for `there`, of the second."""
    rows = {f"{table}/a": value for table, value in (SITES_END | here).items()}
    story.does("final", {}, [rows, {**rows, **(there or {})}])
    return story.does("final-conflicts", {}, list(told))


SITES_END = {"last": "2<1", "counter": "1", "set": "[6]"}
SITES = {
    "differ": sites_end(two_sites(), there={"last/a": "1<"}),
    "from-nowhere": sites_end(two_sites(), last="9<"),
    "overtaken": sites_end(two_sites(), last="1<"),
    "vanished": sites_end(two_sites().does(*put("3<1"), version=30), last="3<1"),
    "lost: of a counter": sites_end(two_sites(), counter="0"),
    "lost: of a set": sites_end(two_sites(), set="[]"),
    "doubled: of a counter": sites_end(two_sites(), counter="2"),
    "doubled: of a set": sites_end(two_sites(), set="[6, 6]"),
    "doubled: nobody's": sites_end(two_sites(), set="[6, 7]"),
}
SITES_CLEAN = [
    sites_end(two_sites()),
    sites_end(two_sites().does(*put("3<1"), version=30), "2<1", last="3<1"),
    sites_end(two_sites().maybe(*put("5", "counter")), counter="2"),
    sites_end(two_sites().maybe(*put("5", "counter"))),
    sites_end(two_sites().maybe(*put("3<2")), last="3<2"),
    sites_end(two_sites().fails(*put("3<2"))),
    two_sites(),
]

WRONG = {
    "refused": Story("set").fails("add", add(1), wrong="the key is empty").does("final", ROUND, []),
}

ALL_BAD = {
    "bank": BANK,
    "set": SET | WRONG,
    "cycle": CYCLE,
    "long-fork": LONG_FORK,
    "monotonic": MONOTONIC,
    "batch": BATCH,
    "stale": STALE,
    "procedure": PROCEDURE,
    "queue": QUEUE,
    "unique-ids": UNIQUE,
    "skew": SKEW,
    "feed": FEED,
    "sites": SITES,
}
ALL_CLEAN = {
    "bank": BANK_CLEAN,
    "set": SET_CLEAN,
    "cycle": CYCLE_CLEAN,
    "long-fork": LONG_FORK_CLEAN,
    "monotonic": MONOTONIC_CLEAN,
    "batch": BATCH_CLEAN,
    "stale": STALE_CLEAN,
    "procedure": PROCEDURE_CLEAN,
    "queue": QUEUE_CLEAN,
    "unique-ids": [taken_at_once()],
    "skew": SKEW_CLEAN,
    "feed": FEED_CLEAN,
    "sites": SITES_CLEAN,
}


@each(("name", "case"), [(n, c) for n, some in ALL_BAD.items() for c in some])
def test_verify_rejects_known_bad_histories(name: str, case: str) -> None:
    """A checker that misses its own textbook case misses the real one."""
    story = ALL_BAD[name][case]
    found = judge(story.history)
    kind = case.split(":")[0]
    assert any(a.kind == kind or case.startswith(f"{a.kind} ") for a in found), found
    known = {o.id for o in story.history.operations()}
    assert all(set(a.operations) <= known for a in found)
    assert all(a.operations or "journal" in a.text for a in found)


@pytest.mark.parametrize("name", ALL_CLEAN)
def test_verify_accepts_clean_histories(name: str) -> None:
    """What was only unlucky (late, unknown, refused, at once) is no anomaly."""
    for story in ALL_CLEAN[name]:
        assert judge(story.history) == []


def test_verify_every_workload_has_bad_histories() -> None:
    """A workload without them has a checker that nobody has seen working."""
    elsewhere = {"register", "list-append", "causal"}  # test_verify_models.py has that one's
    assert set(WORKLOADS) - elsewhere == set(ALL_BAD) == set(ALL_CLEAN)
    assert set(CHECKERS) == set(WORKLOADS)


def test_verify_histories_of_nobody_are_refused() -> None:
    """A file of another program must be refused, not judged clean."""
    with pytest.raises(InvalidArgument, match="no workload 'chess'"):
        judge(History(Header("chess")))
    with pytest.raises(InvalidArgument, match="not one of workload bank"):
        judge(Story("bank").does("read", None, {}).history)
    with pytest.raises(InvalidArgument, match="not one of workload set"):
        judge(Story("set").does("read", 5, []).history)

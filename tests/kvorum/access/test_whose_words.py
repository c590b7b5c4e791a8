"""Who operates on procedures repairs what others began; what one does, its owner's submission says.
Other words than his are a submission of who says them, at both doors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import kvorum
from kv.base.config import HTTP_OFFSET
from kv.base.errors import Forbidden
from kvorum.sdk.sync import Database
from tests.kit.machine import free_port_base

TYPE = "words.pay"
DOORS = ("native", "http")


@kvorum.procedure(TYPE)
class Pay:
    """Says who pays what."""

    @kvorum.step(first=True)
    def begin(self, ctx: Any) -> Any:
        if ctx.args == "wait":
            return kvorum.suspend(event="never", then="begin")
        return kvorum.done([ctx.owner, ctx.args])


class Scene:
    def __init__(self, base: int, db: Database) -> None:
        self.db = db
        self.urls = {
            "native": f"127.0.0.1:{base}",
            "http": f"http://127.0.0.1:{base + HTTP_OFFSET}",
        }
        db.access("init")
        self.tokens = {
            "ann": self.user("ann", "submit", "procedure type", TYPE),
            "operator": self.user("operator", "operate", "procedure type", "*"),
            "both": self.user("both", "operate", "procedure type", "*"),
            "chief": self.user("chief", "operate", "cluster"),
        }
        said = {"role": "both", "actions": ["submit"], "kind": "procedure type", "name": TYPE}
        db.access("grant.give", said)

    def user(self, name: str, action: str, kind: str, of: str = "") -> str:
        self.db.access("user.create", {"name": name})
        grant = {"role": name, "actions": [action], "kind": kind}
        self.db.access("grant.give", grant | ({"name": of} if of else {}))
        return str(self.db.access("token.create", {"user": name, "name": "t"})["token"])

    def as_(self, who: str, door: str) -> Database:
        return kvorum.connect(self.urls[door], token=self.tokens[who])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    base = free_port_base()
    data = tmp_path_factory.mktemp("n") / "data"
    with kvorum.open(data, port=base, procedure_modules=[__name__]) as db:
        yield Scene(base, db)


@pytest.mark.parametrize("door", DOORS)
def test_other_words_need_the_right_to_submit(scene: Scene, door: str) -> None:
    """Who may abort and move procedures of a type ran it with arguments of his choice, in the name
    of somebody else.
    """
    with scene.as_("ann", door) as db:
        id = int(db.submit(TYPE, "a little"))
        assert db.wait(id, timeout_ms=30_000) == ["ann", "a little"]
        id = int(db.submit(TYPE, "more"))
        db.procedure(id, wait_ms=30_000)
    with scene.as_("operator", door) as db:
        for act in (db.fork_procedure, db.reset_procedure):
            for words in ({"args": "all"}, {"state": {"sum": "all"}}):
                with pytest.raises(Forbidden, match="may not submit"):
                    act(id, "mine", **words)
        again = db.fork_procedure(id, "once more", step="begin")
        assert scene.db.wait(int(again["forked"]), timeout_ms=30_000) == ["operator", "more"]
    with scene.as_("both", door) as db:
        other = db.fork_procedure(id, "other words", step="begin", args="all")
        assert scene.db.wait(int(other["forked"]), timeout_ms=30_000) == ["both", "all"]
        assert scene.db.procedure(id).result == ["ann", "more"]


@pytest.mark.parametrize("door", DOORS)
def test_signals_to_many_need_the_right_to_submit(scene: Scene, door: str) -> None:
    """Who may operate the cluster approved what he may not even begin, by a signal to all."""
    with scene.as_("chief", door) as db:
        for wanted in ({"type": TYPE}, {"state": "WAITING"}, {"type": [TYPE, "words.other"]}):
            for dry_run in (False, True):
                with pytest.raises(Forbidden, match="submit procedure type"):
                    db.bulk("signal", "yes", options={"name": "ok"}, dry_run=dry_run, **wanted)
            with pytest.raises(Forbidden, match="submit procedure type"):
                db.bulk("reset", "mine", options={"args": "all"}, **wanted)
        assert db.bulk("abort", "none of it", type=TYPE, dry_run=True)["count"] >= 0
    grant = {"role": "chief", "actions": ["submit"], "kind": "procedure type", "name": TYPE}
    scene.db.access("grant.give", grant)
    try:
        with scene.as_("chief", door) as db:
            sent = db.bulk("signal", "yes", options={"name": "ok"}, dry_run=True, type=TYPE)
            assert "count" in sent
            with pytest.raises(Forbidden):
                db.bulk("signal", "yes", options={"name": "ok"}, type=[TYPE, "words.other"])
    finally:
        scene.db.access("grant.take", grant)


@pytest.mark.parametrize("door", DOORS)
def test_the_audit_names_who_has_submitted_a_bulk_action(scene: Scene, door: str) -> None:
    """One that was submitted as a procedure, past its route, said in its arguments who acts."""
    waits = int(scene.db.submit(TYPE, "wait"))
    while scene.db.procedure(waits).state != "WAITING":
        scene.db.procedure(waits, wait_ms=20)
    said = {"what": "abort", "filter": {"type": TYPE, "state": "WAITING"}, "reason": "forged"}
    with scene.as_("chief", door) as db:
        id = int(db.submit("kvorum.bulk", {**said, "actor": "ann"}))
        scene.db.procedure(id, wait_ms=30_000)
    (entry,) = [one for one in scene.db.audit(waits) if one["reason"] == "forged"]
    assert entry["actor"] == "chief"


@pytest.mark.parametrize("door", DOORS)
def test_what_a_schedule_starts_is_submitted_by_who_sets_it(scene: Scene, door: str) -> None:
    """Who may operate on types alone had one run with arguments of his choice, by a schedule; and
    who may operate the cluster sent the signals that he may not send, by a schedule of
    `kvorum.bulk`.
    """
    signals = {"what": "signal", "filter": {"type": TYPE}, "options": {"name": "ok"}}
    resets = {"what": "reset", "filter": {"type": [TYPE]}, "options": {"args": "all"}}
    aborts = {"what": "abort", "filter": {"type": "none"}}
    said = {"reason": "none", "actor": "ann"}
    day = {"every_ms": 86_400_000}
    scene.db.set_schedule("anns", None, TYPE, "a little", **day)
    scene.db.set_schedule("signals", None, "kvorum.bulk", signals | said, **day)
    with scene.as_("operator", door) as db:
        for act in (
            lambda: db.set_schedule("new", None, TYPE, "all", **day),
            lambda: db.set_schedule("anns", None, TYPE, "all", **day),
            lambda: db.trigger_schedule("anns"),
            lambda: db.backfill_schedule("anns", 0, 1),
            lambda: db.remove_schedule("anns"),
            lambda: db.trigger_schedule("signals"),
            lambda: db.remove_schedule("not there"),
        ):
            with pytest.raises(Forbidden, match="may not"):
                act()
    with scene.as_("chief", door) as db:
        for args in (signals, resets):
            with pytest.raises(Forbidden, match="submit"):
                db.set_schedule("mine", None, "kvorum.bulk", args | said, **day)
        for act in (
            lambda: db.set_schedule("signals", None, "kvorum.bulk", aborts | said, **day),
            lambda: db.trigger_schedule("signals"),
            lambda: db.remove_schedule("signals"),
        ):
            with pytest.raises(Forbidden, match="may not submit"):
                act()
        db.set_schedule("mine", None, "kvorum.bulk", aborts | said, **day)
        db.remove_schedule("mine")
    with scene.as_("ann", door) as db:
        db.set_schedule("anns", None, TYPE, "more", **day)
        (id,) = db.trigger_schedule("anns")["started"]
        assert scene.db.wait(int(id), timeout_ms=30_000) == ["schedule", "more"]
        db.remove_schedule("anns")
        with pytest.raises(Forbidden):
            db.set_schedule("signals", None, TYPE, "more", **day)
    scene.db.remove_schedule("signals")


@pytest.mark.parametrize("door", DOORS)
def test_what_anothers_schedule_starts_is_not_told(scene: Scene, door: str) -> None:
    """A refusal named the type that another's schedule starts, and told that there is one."""
    said = {"what": "abort", "filter": {"type": "none"}, "reason": "none", "actor": "ann"}
    day = {"every_ms": 86_400_000}
    scene.db.set_schedule("anns", None, TYPE, "a little", **day)
    scene.db.set_schedule("kvorums", None, "kvorum.bulk", said, **day)
    if "stranger" not in scene.tokens:
        scene.tokens["stranger"] = scene.user("stranger", "submit", "procedure type", "words.other")
    told = set()
    with scene.as_("stranger", door) as db:
        for name in ("anns", "kvorums", "not there"):
            acts: list[Callable[[], object]] = [
                partial(db.trigger_schedule, name),
                partial(db.backfill_schedule, name, 0, 1),
                partial(db.remove_schedule, name),
            ]
            if name != "not there":
                acts.append(
                    partial(db.set_schedule, name, None, "words.other", every_ms=86_400_000)
                )
            for act in acts:
                with pytest.raises(Forbidden) as refused:
                    act()
                told.add((refused.value.message, str(sorted(refused.value.details.items()))))
    assert len(told) == 1, told
    ((message, details),) = told
    assert "may not submit the procedure type of that" in message
    assert TYPE not in message + details
    assert "cluster" not in message + details
    for name in ("anns", "kvorums"):
        scene.db.remove_schedule(name)


def test_natively_as_over_http(scene: Scene) -> None:
    """Who may operate on types alone limited queues, forgot what has ended, paused pools, and had
    the database's own procedures run by schedules.
    """
    said = {"what": "abort", "filter": {"type": "none"}, "reason": "none", "actor": "ann"}
    scene.db.set_schedule("own", None, "kvorum.bulk", said, every_ms=86_400_000)
    with scene.as_("operator", "native") as db:
        for act in (
            lambda: db.set_limit("q", max_concurrent=1),
            lambda: db.set_retention(type=TYPE, most=1),
            lambda: db.pause("queue", "q", "no"),
            lambda: db.pause("pool", "p", "no"),
            lambda: db.steal_lock("till", "no"),
            lambda: db.bulk("abort", "no", type=TYPE),
            lambda: db.set_schedule("drop", None, "DropTable", {"name": "t"}, every_ms=1_000),
            lambda: db.set_schedule("own", None, TYPE, None, every_ms=1_000),
            lambda: db.trigger_schedule("own"),
            lambda: db.remove_schedule("own"),
        ):
            with pytest.raises(Forbidden):
                act()
        db.pause("type", TYPE, "for a while")
        db.resume("type", TYPE)
    with scene.as_("chief", "native") as db:
        db.set_limit("q", max_concurrent=1)
        db.pause("queue", "q", "for a while")
        db.resume("queue", "q")
        db.remove_schedule("own")

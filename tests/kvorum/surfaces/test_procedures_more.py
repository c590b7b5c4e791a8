"""Typed arguments, signals, completions, delays, limits and schedules through each surface."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

import kvorum
from kvorum.cli.main import app
from tests.kit.machine import free_port_base
from tests.kit.waiting import poll
from tests.kvorum.surfaces.conftest import SURFACES, Served
from tests.kvorum.surfaces.pool_procedures import Order, Typed, typed_talker

MODULE = "tests.kvorum.surfaces.pool_procedures"
_names = itertools.count(1)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = free_port_base()
    data: Path = tmp_path_factory.mktemp("more") / "data"
    with (
        kvorum.open(data, port=base, procedure_modules=[MODULE]) as embedded,
        kvorum.connect(f"kvorum://127.0.0.1:{base}") as sdk,
        kvorum.connect(f"http://127.0.0.1:{base + 2}") as http,
    ):
        yield Served(base, {"embedded": embedded, "sdk": sdk, "http": http})


@pytest.fixture(params=SURFACES)
def db(own: Served, request: pytest.FixtureRequest) -> kvorum.Database:
    return own.by_name[request.param]


def test_j3_arguments_are_typed(db: kvorum.Database) -> None:
    """What does not fit is refused with the field's name, and nothing is stored."""
    assert db.wait(db.submit(Typed, Order("nail", 3))) == ["nail", 3]
    assert db.wait(db.submit("more.order", {"item": "nail"})) == ["nail", 1]
    before = len(db.procedures(name="more.order"))
    for bad, field in (
        ({"item": 7}, "field item"),
        ({}, "`item`"),
        ({"item": "nail", "count": "x"}, "field count"),
    ):
        with pytest.raises(kvorum.InvalidArgument) as told:
            db.submit("more.order", bad)
        assert told.value.code == "BAD_ARGUMENTS"
        assert field in told.value.message
    assert len(db.procedures(name="more.order")) == before


def test_j3_a_result_of_another_type_fails(db: kvorum.Database) -> None:
    """A result that is not what was declared fails the procedure, with the place."""
    assert db.wait(db.submit("more.number", 5)) == 5
    with pytest.raises(kvorum.KvorumError, match=r"result of more\.number"):
        db.wait(db.submit("more.number", "five"))


def test_u1_signals_are_taken_once_and_in_order(db: kvorum.Database) -> None:
    """A signal is kept until a step takes it; the same key is one signal."""
    id = db.submit("more.approval")
    assert db.signal(id, "approval", {"by": "ada"}, key="1")
    assert not db.signal(id, "approval", {"by": "ada"}, key="1")
    poll(lambda: db.procedure(id).state == "WAITING")
    assert db.signal(id, "other", 1)
    assert db.signal(id, "approval", "stop")
    assert db.wait(id) == [{"by": "ada"}, "stop"]
    with pytest.raises(kvorum.Refused) as told:
        db.signal(id, "approval", "late")
    assert told.value.code == "ENDED"


def test_u1_signals_that_came_first_are_all_there(db: kvorum.Database) -> None:
    """A plain step sees the first of three, and then waits for ever beside the others."""
    id = db.submit("more.drain", 3, delay_ms=300)
    for payload in (1, 2, 3):
        db.signal(id, "m", payload)
    assert db.wait(id, timeout_ms=60_000) == [1, 2, 3]


def test_j4_a_nonce_is_for_its_arguments(db: kvorum.Database) -> None:
    """Who pays 3 with the nonce of a payment of 30 would be told that it is paid."""
    nonce = f"nonce {next(_names)}"
    id = db.submit("more.order", {"item": "nail", "count": 2}, nonce=nonce)
    assert db.submit(Typed, Order("nail", 2), nonce=nonce) == id
    for name, args in (("more.order", {"item": "nail", "count": 3}), ("more.drain", 3)):
        with pytest.raises(kvorum.Refused) as told:
            db.submit(name, args, nonce=nonce)
        assert told.value.code == "NONCE_REUSED"
        assert told.value.details["procedure"] == str(id)


def test_u1_progress_is_shown(db: kvorum.Database) -> None:
    """What a step says of itself is in its description while it lives."""
    id = db.submit("more.approval")
    shown = poll(lambda: db.procedure(id).extra.get("progress"))
    assert shown == {"part": 0.5, "text": "waits for approvals"}
    db.signal(id, "approval", "stop")
    db.wait(id)
    assert "progress" not in db.procedure(id).extra


def test_u1_an_outside_system_completes_by_token(db: kvorum.Database) -> None:
    """Once, with a result or an error; another end is refused."""
    name = f"pay{next(_names)}"
    db.create_table("default", name)
    table = db.table("default", name)
    for given in ({"result": {"paid": 7}}, {"error": "no funds"}):
        table.delete("token")
        id = db.submit("more.payment", name)
        token = poll(lambda: table.get("token")).value.decode()
        assert db.complete(token, **given)
        if "error" in given:
            with pytest.raises(kvorum.KvorumError, match="no funds"):
                db.wait(id)
        else:
            assert db.wait(id) == {"paid": 7}
    with pytest.raises(kvorum.InvalidArgument):
        db.complete("nonsense", 1)


def test_u1_completions_by_the_command_line_and_by_http(own: Served) -> None:
    """A token of `ctx.external()` could be completed by the SDK alone, or twice."""
    db, connect = own.by_name["sdk"], f"kvorum://127.0.0.1:{own.base}"
    url = f"http://127.0.0.1:{own.base + 2}/v1/completions"
    name = f"pay{next(_names)}"
    db.create_table("default", name)
    table = db.table("default", name)
    for how in ("line", "http"):
        table.delete("token")
        id = db.submit("more.payment", name)
        token = poll(lambda: table.get("token")).value.decode()
        if how == "line":
            for completed in (True, False):
                said = ["proc", "complete", token, '{"paid": 1}', "--connect", connect, "--json"]
                shown = CliRunner().invoke(app, said)
                assert json.loads(shown.stdout) == {"completed": completed}
            other = ["proc", "complete", token, "--error", "no", "--connect", connect]
            assert CliRunner().invoke(app, other).exit_code == 1
        else:
            told = {"token": token, "result": {"paid": 1}}
            assert httpx.post(url, json=told).json() == {"completed": True}
            assert httpx.post(url, json=told).json() == {"completed": False}
            refused = httpx.post(url, json={"token": token, "error": "no"})
            assert refused.status_code == 409
        assert db.wait(id) == {"paid": 1}


def test_j26_through_every_surface(db: kvorum.Database) -> None:
    """A query, an update, or a signal that starts was not the same over SDK, HTTP and in the
    program.
    """
    handle = db.start(typed_talker, Order("nail", 3))
    assert db.result(handle) == Order("nail", 4)
    assert db.wait(handle.id) == {"item": "nail", "count": 4}
    nonce = f"talker {next(_names)}"
    ids = {
        db.signal_with_start("more.talker", nonce=nonce, signal="begin", payload="hello", key=key)
        for key in ("a", "a", "b")
    }
    (id,) = ids
    assert db.update(id, "say", "tea", key="k") == 1
    assert db.update(id, "say", "something else", key="k") == 1
    with pytest.raises(kvorum.Refused) as refused:
        db.update(id, "say", 5)
    assert (refused.value.code, refused.value.message) == ("NO_TEXT", "only text")
    with pytest.raises(kvorum.Refused) as invalid:
        db.update(id, "say", "too long")
    assert (invalid.value.code, invalid.value.message) == ("TOO_LONG", "say less")
    assert db.query(id, "heard", "!") == ["hello", "tea", "!"]
    with pytest.raises(kvorum.InvalidArgument) as unknown:
        db.query(id, "nothing")
    assert unknown.value.code == "QUERY_UNKNOWN"
    with pytest.raises(kvorum.DeadlineExceeded):
        db.update(id, "nobody takes it", timeout_ms=10)
    assert db.update(id, "say", "stop") == 2
    assert db.wait(id) == ["hello", "tea", "stop"]
    with pytest.raises(kvorum.Refused) as ended:
        db.update(id, "say", "more")
    assert ended.value.code == "ENDED"
    assert db.update(id, "say", "tea", key="k") == 1, "its answer is kept"
    with pytest.raises(kvorum.Refused) as over:
        db.signal_with_start("more.talker", nonce=nonce, signal="begin", key="new")
    assert over.value.code == "ENDED"


def test_u1_delayed_starts(db: kvorum.Database) -> None:
    """Nothing begins before its time, given as a delay or as a time."""
    before = int(time.time() * 1000)  # the store's clock has whole milliseconds
    ids = [
        db.submit("more.quick", delay_ms=700),
        db.submit("more.quick", at=datetime.now(UTC) + timedelta(milliseconds=700)),
    ]
    assert db.procedure(ids[0]).extra["due_ms"] >= before + 700
    for id in ids:
        assert db.wait(id) >= before + 690
    with pytest.raises(kvorum.InvalidArgument):
        db.submit("more.quick", delay_ms=-1)


def test_u1_limits_of_queues(db: kvorum.Database) -> None:
    """No more begin than a queue may have under way; the higher priority goes first."""
    queue = f"q{next(_names)}"
    db.set_limit(queue, max_concurrent=2)
    ids = [db.submit("more.held", queue=queue) for _ in range(3)]
    urgent = db.submit("more.held", queue=queue, priority=5)
    poll(lambda: db.procedure(ids[1]).state == "WAITING")
    told = next(q for q in db.queues() if q["name"] == queue)
    assert (told["running"], told["waiting"], told["max_concurrent"]) == (2, 2, 2)
    assert "limits" in db.procedure(ids[2]).extra["waits"]
    db.signal(ids[0], "go")
    db.wait(ids[0])
    poll(lambda: db.procedure(urgent).state == "WAITING")
    assert db.procedure(ids[2]).state == "RUNNABLE"
    db.set_limit(queue)  # none any more
    poll(lambda: db.procedure(ids[2]).state == "WAITING")
    for id in (ids[1], ids[2], urgent):
        db.signal(id, "go")
        db.wait(id)


@pytest.mark.few(2)
def test_u1_schedules(db: kvorum.Database) -> None:
    """Set, listed with its next time, removed; bad ones are refused with the reason."""
    name = f"s{next(_names)}"
    made = db.set_schedule(name, "30 2 * * *", "more.quick", {"a": 1}, zone="Europe/Berlin")
    assert made["next_ms"] > time.time() * 1000
    assert [s["args"] for s in db.schedules() if s["name"] == name] == [{"a": 1}]
    for cron, zone, what in (("99 * * * *", "UTC", "cron"), ("* * * * *", "Nowhere", "time zone")):
        with pytest.raises(kvorum.InvalidArgument, match=what):
            db.set_schedule(name, cron, "more.quick", zone=zone)
    with pytest.raises(kvorum.NotFound):
        db.set_schedule(name, "* * * * *", "no.such")
    db.remove_schedule(name)
    with pytest.raises(kvorum.NotFound):
        db.remove_schedule(name)


@pytest.mark.few(2)
def test_u1_schedules_are_triggered_filled_and_paused(db: kvorum.Database) -> None:
    """Intervals, overlap and all that is asked of a schedule, through each surface."""
    name = f"s{next(_names)}"
    day = 86_400_000
    made = db.set_schedule(
        *(name, ["0 0 * * *", "@hourly"], "more.quick"),
        every_ms=day,
        exclude="* 0 1 1 *",
        jitter_ms=10,
        overlap="skip",
        remaining=5,
        catch_up_ms=1_000,
        end=datetime.now(UTC) + timedelta(days=1),
    )
    assert (made["overlap"], made["remaining"], made["cron"]) == (
        *("skip", 5),
        ["0 0 * * *", "@hourly"],
    )
    assert 24 <= len(db.schedule_times(name, 100)) <= 26
    paused = db.pause("schedule", name, "later", actor="ann")
    assert paused["note"] == "later"
    assert [one["note"] for one in db.pauses() if one["name"] == name] == ["later"]
    (started,) = db.trigger_schedule(name, key="k")["started"]
    assert db.trigger_schedule(name, key="k")["started"] == []
    db.wait(int(started))
    assert db.backfill_schedule(name, 0, day, overlap="allow_all")["count"] == 24 - 1
    db.resume("schedule", name)
    with pytest.raises(kvorum.InvalidArgument, match="overlap"):
        db.set_schedule(name, "@daily", "more.quick", overlap="sometimes")
    db.remove_schedule(name)


@pytest.mark.few(2)
def test_u1_a_type_is_paused(db: kvorum.Database) -> None:
    """Nothing of a paused type begins; what it waits for is told."""
    db.pause("type", "more.quick", "not now")
    try:
        id = db.submit("more.quick")
        assert db.procedure(id, wait_ms=100).extra["paused"]["note"] == "not now"
    finally:
        db.resume("type", "more.quick")
    db.wait(id)
    with pytest.raises(kvorum.NotFound) as told:
        db.resume("type", "more.quick")
    assert told.value.code == "NOT_PAUSED"


def test_j36_events_through_every_surface(own: Served, db: kvorum.Database) -> None:
    """A client got them otherwise than others, or not at once, or lost its place."""
    id = db.submit("more.teller", 7)
    for said in ("a", {"b": 1}, None):
        db.signal(id, "say", said)
    with db.events(id) as events:
        found = [(event.position, event.name, event.value) for event in events]
    assert found == [
        (1, "begun", {"bytes": b"\xff", "args": 7}),
        (2, "heard", "a"),
        (3, "heard", {"b": 1}),
        (4, "heard", None),
        (5, "end", None),
    ]
    later = list(db.events(id, after=2, name="heard", follow=False))
    assert [event.position for event in later] == [3, 4]
    assert all(event.at_ms > 1_000_000_000_000 for event in later)
    with pytest.raises(kvorum.NotFound) as unknown:
        next(db.events(id + 1_000_000))
    assert unknown.value.code == "PROCEDURE_NOT_FOUND"
    with pytest.raises(kvorum.InvalidArgument):
        db.events(id, after=-1)


def test_j36_over_http_they_are_a_long_poll_or_a_stream(own: Served) -> None:
    """A browser connects again and gets them twice, or a poll returns before there is anything."""
    db, url = own.by_name["sdk"], f"http://127.0.0.1:{own.base + 2}/v1/procedures"
    id = db.submit("more.teller")
    polled = httpx.get(f"{url}/{id}/events", params={"wait_ms": 5_000}).json()
    assert (polled["after"], polled["ended"]) == (1, False)
    assert httpx.get(f"{url}/{id}/events", params={"after": 1}).json()["items"] == []
    headers = {"accept": "text/event-stream"}
    with httpx.stream("GET", f"{url}/{id}/events", headers=headers, timeout=20) as stream:
        lines = stream.iter_lines()
        assert [next(lines) for _ in range(2)] == ["id: 1", "event: emitted"]
        db.signal(id, "say", "x")
        assert "id: 2" in lines
        told = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
        assert (told["position"], told["name"], told["value"]) == (2, "heard", "x")
    db.signal(id, "say", None)
    assert db.wait(id) is None
    again = httpx.get(f"{url}/{id}/events", headers={**headers, "last-event-id": "2"}).text
    assert [line for line in again.split("\n") if line.startswith(("id", "event"))] == [
        *("id: 3", "event: emitted", "id: 4", "event: emitted", "event: end")
    ]
    assert httpx.get(f"{url}/999999999/events", headers=headers).status_code == 404
    assert httpx.get(f"{url}/x/events", headers=headers).status_code == 400


def test_j36_the_command_line_follows(own: Served) -> None:
    """`kvorum proc events --follow` ended before the procedure, or never."""
    db = own.by_name["sdk"]
    id = db.submit("more.teller", 1)
    for said in ("tea", None):
        db.signal(id, "say", said)
    connect = f"kvorum://127.0.0.1:{own.base}"
    shown = CliRunner().invoke(
        app, ["proc", "events", str(id), "--after", "1", "--follow", "--connect", connect]
    )
    assert shown.exit_code == 0, shown.output
    assert shown.stdout == '2\theard\t"tea"\n3\theard\tnull\n4\tend\tnull\n'


def test_j40_a_write_of_anybody_wakes_it(own: Served) -> None:
    """A workflow that waits for a row slept on, or saw it twice."""
    db = own.by_name["sdk"]
    name = f"watched{next(_names)}"
    db.create_table("default", name)
    table = db.table("default", name)
    table.put("watched", "0")
    id = db.submit("more.row_watcher", name)
    poll(lambda: db.procedure(id).state == "WAITING" or None)
    events = db.events(id)
    for value in ("1", "2"):
        table.put("watched", value)
        assert next(events).value == value
    table.put("another", "x")
    table.delete("watched")
    assert db.wait(id, timeout_ms=30_000) == ["1", "2", None]


@pytest.mark.few(1)
def test_u17_queues_and_versions_are_the_same_everywhere(db: kvorum.Database) -> None:
    """Keys, settings, windows and versions, through each surface."""
    queue = f"q{next(_names)}"
    made = db.set_limit(queue, rate="600/1m", burst=3, weights={"ada": 2})
    assert (made["rate_per_s"], made["burst"], made["weights"]) == (10.0, 3, {"ada": 2})
    first, second = (db.enqueue("more.held", queue=queue, key="ada") for _ in range(2))
    poll(lambda: db.procedure(first.id).state == "WAITING")
    shown = db.queue(queue)
    (key,) = shown["keys"]
    assert (key["key"], key["running"], key["waiting"]) == ("ada", 1, 1)
    assert key["next"] == str(second.id)
    assert shown["oldest_ms"] >= 0
    for one in (first, second):
        poll(lambda one=one: db.procedure(one.id).state == "WAITING")
        db.signal(one.id, "go")
        db.wait(one.id)
    once = db.enqueue("more.quick", dedup=queue, dedup_ms=60_000)
    assert once.earlier == ""
    again = db.enqueue("more.quick", dedup=queue, dedup_ms=60_000)
    assert again == kvorum.Enqueued(once.id, "deduplicated")
    late = [db.enqueue("more.quick", key=queue, debounce_ms=1_000) for _ in range(2)]
    assert [one.earlier for one in late] == ["", "debounced"]
    db.wait(late[0].id)
    with pytest.raises(kvorum.InvalidArgument, match="dedup"):
        db.enqueue("more.quick", dedup="x")
    with pytest.raises(kvorum.InvalidArgument, match="needs"):
        db.enqueue("more.quick", needs={"gpu": -1})
    (shown,) = db.versions("more.quick")
    (version,) = shown["versions"]
    assert (version["version"], version["new_percent"]) == (1, 100.0)
    assert db.set_version("more.quick", default=1)["default"] == 1
    with pytest.raises(kvorum.InvalidArgument, match="no version before"):
        db.roll_back_version("more.quick")
    with pytest.raises(kvorum.InvalidArgument, match="version 7"):
        db.move_version("more.quick", 7)
    assert db.set_version("more.quick", default=0)["default"] == 0

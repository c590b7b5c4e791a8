"""Watching a table through every surface: embedded, SDK, HTTP, plain server-sent events, and the
command.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import kvorum
from kv.base.limits import FEED_PART_ROWS_MAX
from kvorum import Delete, Put
from kvorum.http.server import http_server as server
from kvorum.http.wire import sse
from tests.kit.commands import command, run, settings
from tests.kit.machine import ROOT, free_port_base
from tests.kvorum.surfaces.conftest import SURFACES, Served, error_of

Told = list[tuple[int, dict[bytes, bytes | None]]]


def told(watch: kvorum.Watch, transactions: int) -> Told:
    """So many whole transactions of a watch: version, changes by key."""
    found: Told = []
    changes: dict[bytes, bytes | None] = {}
    while len(found) < transactions:
        event = next(watch)
        for change in event.changes:
            assert change.key not in changes, "a key twice in one transaction"
            changes[change.key] = change.value
        if event.last:
            found.append((event.version, changes))
            changes = {}
    return found


def written(db: kvorum.Database, table: kvorum.Table) -> Told:
    """Transactions of every kind over the three partitions of a table, as they must be told."""
    history: Told = [(table.put("a", "1"), {b"a": b"1"})]
    ops = [Put(table.ns, table.name, k, k) for k in ("a", "i", "z")]
    history.append((db.batch(ops), {b"a": b"a", b"i": b"i", b"z": b"z"}))
    history.append((table.delete("i"), {b"i": None}))
    ops = [Delete(table.ns, table.name, "a"), Put(table.ns, table.name, "q", "2")]
    history.append((db.batch(ops), {b"a": None, b"q": b"2"}))
    history.append((table.put("z", ""), {b"z": b""}))
    return history


def test_f14_whole_transactions_in_commit_order(db: kvorum.Database, table: kvorum.Table) -> None:
    """A transaction that is told in pieces, out of order or not at all makes a copy that is
    wrong.
    """
    begin = db.timestamp()
    history = written(db, table)
    with db.watch(table.ns, table.name, from_version=begin) as watch:
        assert told(watch, len(history)) == history
        assert watch.position == history[-1][0]
        more = table.put("b", "new")
        assert told(watch, 1) == [(more, {b"b": b"new"})]


def test_f14_resumed_at_every_version(db: kvorum.Database, table: kvorum.Table) -> None:
    """A consumer that stops anywhere goes on with the next transaction: none lost, none twice."""
    begin = db.timestamp()
    history = written(db, table)
    for n, at in enumerate([begin, *(version for version, _ in history[:-1])]):
        with db.watch(table.ns, table.name, from_version=at) as watch:
            assert told(watch, len(history) - n) == history[n:]


def test_f14_from_now_on(db: kvorum.Database, table: kvorum.Table) -> None:
    """Without a version nothing old is told, and everything that comes after the beginning."""
    table.put("a", "old")
    with db.watch(table.ns, table.name) as watch:
        version = table.put("a", "new")
        assert told(watch, 1) == [(version, {b"a": b"new"})]


def test_f14_all_records_first(db: kvorum.Database, table: kvorum.Table) -> None:
    """From 0 a copy begins with what is there, each record once, and then follows."""
    written(db, table)
    with db.watch(table.ns, table.name, from_version=0) as watch:
        first = next(watch)
        assert (first.kind, first.part, first.last) == ("snapshot", 0, True)
        assert [c[:2] for c in first.changes] == [(b"q", b"2"), (b"z", b"")]
        version = table.delete("q")
        assert version > first.version
        assert told(watch, 1) == [(version, {b"q": None})]


def test_f14_a_prefix_of_a_transaction(db: kvorum.Database, table: kvorum.Table) -> None:
    """A watch of a prefix tells what lies below it, of every transaction that touches it."""
    begin = db.timestamp()
    table.put("ha", "other")
    version = db.batch([Put(table.ns, table.name, k, k) for k in ("h", "i", "i1", "i2", "z")])
    table.put("j", "other")
    with db.watch(table.ns, table.name, from_version=begin, prefix="i") as watch:
        assert told(watch, 1) == [(version, {b"i": b"i", b"i1": b"i1", b"i2": b"i2"})]
        last = table.put("i\xff", "x")
        assert told(watch, 1) == [(last, {"i\xff".encode(): b"x"})]


def test_f14_a_time_to_live_is_told(db: kvorum.Database, table: kvorum.Table) -> None:
    """An expiry is no event: the put says when it will be."""
    begin = db.timestamp()
    version = table.put("a", "v", ttl_ms=60_000)
    with db.watch(table.ns, table.name, from_version=begin) as watch:
        change = next(watch).changes[0]
        assert change.expires_ms == (version >> 18) + 60_000


def test_f14_a_large_transaction_comes_in_parts(db: kvorum.Database, table: kvorum.Table) -> None:
    """A consumer must not have to hold what it can work off in parts; the parts are one event."""
    begin = db.timestamp()
    table.put("a", "before")
    n = 2 * FEED_PART_ROWS_MAX + 10
    keys = [f"{'agqz'[i % 4]}{i:05d}" for i in range(n)]
    version = db.batch([Put(table.ns, table.name, key, "v") for key in keys])
    table.put("z", "after")
    with db.watch(table.ns, table.name, from_version=begin) as watch:
        told(watch, 1)
        parts = [next(watch) for _ in range(3)]
        assert {part.version for part in parts} == {version}
        assert [(p.part, p.last) for p in parts] == [(0, False), (1, False), (2, True)]
        assert [c.key.decode() for p in parts for c in p.changes] == sorted(keys)
        assert told(watch, 1)[0][1] == {b"z": b"after"}


def test_f14_old_transactions_are_refused(db: kvorum.Database, table: kvorum.Table) -> None:
    """A timestamp that nobody gave out yet must not silently skip what is to come."""
    watch = db.watch(table.ns, table.name, from_version=db.timestamp() + (60_000 << 18))
    with pytest.raises(kvorum.InvalidArgument, match="future"):
        next(watch)
    watch.close()
    with pytest.raises(kvorum.NotFound):
        next(db.watch(table.ns, "nowhere"))
    with pytest.raises(kvorum.InvalidArgument, match="from_version"):
        db.watch(table.ns, table.name, from_version=-1)


def test_f14_from_the_future_is_refused_in_the_users_words(
    db: kvorum.Database, table: kvorum.Table
) -> None:
    """It spoke of `at=`, which a watch does not have."""
    ahead = db.timestamp() + (3_600_000 << 18)
    with pytest.raises(kvorum.InvalidArgument) as refused:
        next(db.watch(table.ns, table.name, from_version=ahead))
    assert f"watch from {ahead}" in refused.value.message
    assert "at=" not in refused.value.message
    assert refused.value.details["from_version"] == str(ahead)


def test_f14_waiting_for_an_event_may_have_an_end(db: kvorum.Database, table: kvorum.Table) -> None:
    """`next` of a quiet table never returns, and a program has other things to do."""
    with db.watch(table.ns, table.name) as watch:
        assert watch.poll(50) is None
        version = table.put("k", "v")
        event = watch.poll(10_000)
        assert event is not None
        assert event.version == version
        assert watch.poll(0) is None
        for wrong in (-1, 0.5, None):
            with pytest.raises(kvorum.InvalidArgument, match="timeout_ms"):
                watch.poll(wrong)  # type: ignore[arg-type]
        later = table.put("k", "w")
        assert next(watch).version == later, "what was asked for in vain is not lost"


def test_f14_a_dropped_table_ends_its_watches(db: kvorum.Database, table: kvorum.Table) -> None:
    """A watch of what is gone would wait for ever."""
    with db.watch(table.ns, table.name) as watch:
        db.drop_table(table.ns, table.name)
        with pytest.raises(kvorum.NotFound):
            next(watch)


def test_f14_a_closed_watch_is_over(db: kvorum.Database, table: kvorum.Table) -> None:
    """Closing ends a loop over it, and leaves the database as it was."""
    with db.watch(table.ns, table.name) as watch:
        pass
    assert list(watch) == []
    table.put("a", "1")


def test_f13_writers_do_not_wait_for_watchers(served: Served, table: kvorum.Table) -> None:
    """A consumer that reads nothing must not slow a writer down, nor lose anything by it."""
    begin = served.by_name["sdk"].timestamp()
    watches = [served.by_name[n].watch(table.ns, table.name, from_version=begin) for n in SURFACES]
    versions = [table.put(f"k{i}", str(i)) for i in range(200)]
    for watch in watches:
        with watch:
            assert [version for version, _ in told(watch, 200)] == versions


# ----------------------------------------------------------------------------- the stream itself


def messages(answer: httpx.Response) -> Iterator[tuple[bytes, sse.Message]]:
    """(the id line's value or b"", message) of a stream, comments left out."""
    decoder, rest = sse.Decoder(), b""
    for data in answer.iter_raw():
        rest += data
        while b"\n\n" in rest:
            raw, _, rest = rest.partition(b"\n\n")
            ids = [line[4:] for line in raw.split(b"\n") if line.startswith(b"id: ")]
            for message in decoder.feed(raw + b"\n\n"):
                yield (ids or [b""])[0], message


def test_u6_events_over_http(http: httpx.Client, served: Served) -> None:
    """What curl and a browser's EventSource get is the contract of other people's consumers."""
    db = served.by_name["embedded"]
    begin = db.timestamp()
    first = db.batch(
        [Put("default", "web", "w1", "v"), Put("default", "web", b"\xff", b"\x00\xff")]
    )
    second = db.table("default", "web").delete("w1")
    url = "/v1/watch/default/web"
    with http.stream("GET", url, params={"from": str(begin)}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-store"
        stream = messages(answer)
        id_, message = next(stream)
        assert (id_, message.name) == (b"%d" % first, "changes")
        assert json.loads(message.data) == {
            "version": str(first),
            "part": 0,
            "last": True,
            "changes": [
                {"key": "w1", "value": "v"},
                {"key": {"b64": "/w=="}, "value": {"b64": "AP8="}},
            ],
        }
        id_, message = next(stream)
        assert json.loads(message.data)["changes"] == [{"key": "w1", "value": None}]
        assert id_ == b"%d" % second
    # As a browser does after a break: the URL of the first time, and what it had got.
    again = {"Last-Event-ID": str(first)}
    with http.stream("GET", url, params={"from": str(begin)}, headers=again) as answer:
        assert next(messages(answer))[0] == b"%d" % second
    with http.stream("GET", url) as answer:
        id_, message = next(messages(answer))
        assert message.name == "resolved"
        assert json.loads(message.data) == {"version": id_.decode()}
        assert int(id_) > second


def test_u6_a_large_event_has_its_id_at_the_end(http: httpx.Client, served: Served) -> None:
    """An id on an early part would make a client that breaks off skip the rest."""
    db = served.by_name["embedded"]
    begin = db.timestamp()
    version = db.batch([Put("default", "web", f"l{i:05d}", "v") for i in range(2_001)])
    with http.stream("GET", "/v1/watch/default/web", params={"from": str(begin)}) as answer:
        stream = messages(answer)
        assert [next(stream)[0] for _ in range(3)] == [b"", b"", b"%d" % version]


def test_u6_a_watch_that_cannot_begin_is_refused(http: httpx.Client) -> None:
    """An error behind a 200 would be lost on most clients."""
    url = "/v1/watch/default/web"
    error_of(http.get("/v1/watch/default/nowhere"), 404, "TABLE_NOT_FOUND")
    error_of(http.get(f"{url}?from=x"), 400, "INVALID_ARGUMENT")
    error_of(http.get(f"{url}?from={1 << 63}"), 400, "INVALID_ARGUMENT")
    error_of(http.get(f"{url}?since=1"), 400, "INVALID_ARGUMENT")
    error_of(http.get(url, headers={"Last-Event-ID": "x"}), 400, "INVALID_ARGUMENT")
    error_of(http.post(url), 405, "METHOD_NOT_ALLOWED")
    error_of(http.get("/v1/watch/default"), 404, "ROUTE_NOT_FOUND")


def test_u6_a_client_that_leaves_is_forgotten(http: httpx.Client, served: Served) -> None:
    """A watch of nobody would be asked for until the node stops."""

    def open_watches() -> int:
        text = http.get("/metrics").text
        line = next(row for row in text.splitlines() if "watches_open " in row and row[0] != "#")
        return int(float(line.split()[-1]))

    before = open_watches()
    with http.stream("GET", "/v1/watch/default/web") as answer:
        stream = messages(answer)
        next(stream)
        assert open_watches() == before + 1
    done = threading.Event()
    for _ in range(100):
        if open_watches() == before:
            return
        done.wait(0.02)
    pytest.fail("the watch is still open")


def test_u6_the_command(served: Served) -> None:
    """A shell sees what happens, a line per change, and where to go on when it is interrupted."""
    db = served.by_name["embedded"]
    db.create_table("default", "watched")
    begin = db.timestamp()
    table = db.table("default", "watched")
    first, second = table.put("a", "1"), table.delete("a")
    words = ("watch", "default/watched", "--from", str(begin))
    shown = run(*words, "--count", "2", connect=served.address).out
    assert shown == b"%d\tput\ta\t1\n%d\tdelete\ta\n" % (first, second)
    with subprocess.Popen(
        command(*words, "--json"),
        env=settings(served.address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        shown = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [(s["event"], s["version"]) for s in shown] == [
            ("changes", str(first)),
            ("changes", str(second)),
        ]
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=20)
    assert process.returncode == 0
    assert error == b"kvorum: to go on: --from %d\n" % second


@pytest.mark.slow
def test_u6_a_node_that_stops_ends_its_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that is open must neither hold a stopping node up nor end without a word."""
    monkeypatch.setattr(server, "_DRAIN_S", 90)  # so long it would be held up
    base = free_port_base()
    stopped = threading.Event()
    with kvorum.open(tmp_path / "data", port=base) as db:
        db.create_table("default", "t")
        with httpx.stream("GET", f"http://127.0.0.1:{base + 2}/v1/watch/default/t") as answer:
            stream = messages(answer)
            next(stream)
            stopper = threading.Thread(target=lambda: (db.close(), stopped.set()))
            stopper.start()
            id_, message = next(stream)
            assert (id_, message.name) == (b"", "error")
            body = json.loads(message.data)
            assert (body["status"], body["error"]["code"]) == (503, "STOPPING")
            assert list(stream) == []
            stopper.join(60)
        assert stopped.is_set()


def test_u6_the_guide(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """What the guide shows must run as it stands."""
    db = served.by_name["sdk"]
    for name in ("orders", "copy"):
        db.create_table("default", name)
    guide = (ROOT / "docs" / "guides" / "watch.md").read_text()
    first, second, third = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    names: dict[str, Any] = {}
    exec(first.replace("127.0.0.1:7600", f"127.0.0.1:{served.base}"), names)
    assert "b'1' b'paid'" in capsys.readouterr().out
    orders = db.table("default", "orders")
    writer = threading.Timer(0.3, lambda: orders.put("3", "new"))
    writer.start()
    exec(second, names)
    writer.join()
    assert names["event"].changes == [(b"3", b"new", 0)]
    names["watch"].close()
    names["watch"] = [names["event"]]
    exec(third, names)
    found = {item.key: item.value for item in db.table("default", "copy").rows()}
    assert found == {b"3": b"new", b"position": b"%d" % names["event"].version}
    names["db"].close()

"""Every request is stamped, and the log of stamps agrees with what clients saw (E7)."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import kvorum
from kv.base.adapters import SystemRng
from kv.base.config import NodeConfig
from kv.base.errors import InvalidArgument, Unavailable
from kvorum.api.backend import Backend, Session
from kvorum.audit import audited_backend
from kvorum.audit.audit_log import Asker, Stamp, StampLog
from kvorum.audit.ship_audit_log import Shipper
from kvorum.local.ports import system_ports
from kvorum.node.node import build
from kvorum.sdk.portal import Portal
from kvorum.sdk.sync import Database
from tests.kit.machine import free_port_base
from tests.kvorum.surfaces.conftest import PROCEDURES

Row = dict[str, Any]


@contextmanager
def audited(directory: Path, **more: Any) -> Iterator[tuple[Database, int, Path]]:
    """A node in this process that writes its log; the database in it, its base, the file."""
    base, file = free_port_base(), directory / "audit" / "requests.log"
    config = NodeConfig(
        data=directory / "data",
        port=base,
        audit_log=str(file),
        procedure_modules=(PROCEDURES,),
        **more,
    )
    portal = Portal("audited")

    async def start() -> kvorum.AsyncDatabase:
        node = await build(config, system_ports(asyncio.get_running_loop()))
        await node.start()
        return kvorum.AsyncDatabase(node.surface("embedded"), SystemRng())

    with Database(portal, portal.call(start())) as db:
        yield db, base, file


def rows(*files: Path) -> list[Row]:
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def workload(db: kvorum.Database, seen: list[tuple[str, str, int]]) -> None:
    """What a client does, and the versions that it was told: (what, key, version)."""
    table = db.table("default", "t")
    for i in range(5):
        seen.append(("write", f"k{i}", table.put(f"k{i}", f"v{i}")))
    for i in range(5):
        record = table.get(f"k{i}")
        assert record is not None
        seen.append(("read", f"k{i}", record.version))
    seen.append(("write", "k0", table.delete("k0")))
    with db.transaction() as t:
        mine = t.table("default", "t")
        record = mine.get("k1")
        assert record is not None
        seen.append(("read", "k1", record.version))
        mine.put("k2", b"t")
        mine.put("z9", b"t")
    seen += [("write", "k2", t.version or 0), ("write", "z9", t.version or 0)]
    version = db.batch(
        [kvorum.Put("default", "t", "b1", b"1"), kvorum.Put("default", "t", "z1", b"1")]
    )
    seen += [("write", "b1", version), ("write", "z1", version)]
    with pytest.raises(kvorum.ConditionFailed):
        table.put("k1", b"x", if_absent=True)


@pytest.mark.few(1)
@pytest.mark.parametrize("surface", ["http", "sdk", "embedded"])
def test_e7_the_stamps_of_a_workload_are_complete_and_consistent(
    tmp_path: Path, surface: str
) -> None:
    """A write without a stamp could not be found afterwards, and a stamp that differs from what the
    client was told is worse than none.
    """
    seen: list[tuple[str, str, int]] = []
    with audited(tmp_path, audit_keys=True) as (db, base, file):
        db.create_table("default", "t", split_keys=["m"])
        if surface == "embedded":
            workload(db, seen)
        else:
            url = f"http://127.0.0.1:{base + 2}" if surface == "http" else f"127.0.0.1:{base}"
            with kvorum.connect(url) as client:
                workload(client, seen)
    told = [r for r in rows(file) if r.get("surface") == {"sdk": "native"}.get(surface, surface)]
    assert all(r["node"] == 1 and r["us"] >= 0 and r["time"] > 0 for r in told)
    if surface != "embedded":
        assert all(r["client"].startswith("127.0.0.1:") for r in told)
    keyed = [(r, key) for r in told for key in r.get("key", ())]
    assert {r["table"][0] for r, _ in keyed if len(r["table"]) == 1} >= {"default.t"}
    stamped_commits = {int(r["commit_ts"]) for r in told if "commit_ts" in r}
    for what, key, version in seen:
        if what == "write":
            assert version in stamped_commits, (key, version)
            mine = [r for r, k in keyed if k == key and r["code"] == "OK" and "read_ts" not in r]
            assert mine, f"the write of {key} is not in the log"
        else:
            reads = [r for r, k in keyed if k == key and r.get("version") == str(version)]
            assert reads, f"the read of {key} is not in the log"
            assert all(int(r["read_ts"]) >= version for r in reads), "it saw what came later"
    # what a stamp says was read is the newest version at or below its moment
    history = {k: sorted(v for w, kk, v in seen if w == "write" and kk == k) for _, k, _ in seen}
    for r, key in keyed:
        if "version" in r and "read_ts" in r and key in history:
            below = [v for v in history[key] if v <= int(r["read_ts"])]
            assert below, (key, r)
            assert int(r["version"]) == below[-1], (key, r)
    assert [r["code"] for r in told if r["code"] != "OK"] == ["CONDITION_FAILED"]
    transactions = [r for r in told if "txn" in r]
    assert len({r["txn"] for r in transactions}) <= 2, "the transaction, and the batch over two"
    assert transactions
    assert all(r["start_ts"] == r["txn"] for r in transactions if "start_ts" in r)


def test_e7_requests_of_a_transaction_are_called_as_documented() -> None:
    """Whoever looks for the commits in the log, by the name in the manual, would find none."""
    assert {method: row.name for method, row in audited_backend.SESSION.items()} == {
        method: f"txn.{method}" for method in asked(Session) - {"id", "start_ts", "trace"}
    }


def test_e7_every_request_of_a_surface_is_stamped() -> None:
    """One that is missing in the tables could not be made at an audited node, or left no stamp."""
    by_hand = {"get", "multi_write", "begin"}
    assert asked(Backend) - {"close", "causal_token"} == set(audited_backend.BACKEND) | by_hand
    assert asked(Session) - {"id", "start_ts", "trace"} == set(audited_backend.SESSION)


def asked(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


def test_e7_keys_are_told_only_if_wanted(tmp_path: Path) -> None:
    """Keys may be names of people: a log that has them is another thing to protect."""
    with audited(tmp_path) as (db, base, file):
        db.create_table("default", "t")
        with kvorum.connect(f"127.0.0.1:{base}") as native:
            native.table("default", "t").put("secret-key", b"secret-value")
        with kvorum.connect(f"http://127.0.0.1:{base + 2}") as http:
            http.table("default", "t").get("secret-key")
            http.table("default", "t").multi_get(["secret-key", "other"])
    text = file.read_text()
    assert "secret" not in text
    found = rows(file)
    (put,) = [r for r in found if r["method"] == "PUT"]
    assert (put["table"], put["keys"], put["surface"]) == (["default.t"], 1, "native")
    (many,) = [r for r in found if r["method"] == "multi_get"]
    assert (many["keys"], many["table"]) == (2, ["default.t"])
    assert file.stat().st_mode & 0o077 == 0, "nobody else may read it"


@pytest.mark.slow
def test_e7_procedures_and_refused_requests_are_in_it(tmp_path: Path) -> None:
    """Who started what, and who tried what he may not."""
    with audited(tmp_path) as (_, base, file):
        url = f"http://127.0.0.1:{base + 2}"
        with kvorum.connect(f"127.0.0.1:{base}") as native:
            id_ = native.submit("sample.wait")
            native.abort_procedure(id_, "over")
        with httpx.Client(base_url=url) as http:
            assert http.put("/v1/kv/default/none/k", content=b"v").status_code == 404
            assert http.post("/v1/batch", content=b"{").status_code == 400
            assert http.get("/healthz").status_code == 200
    found = rows(file)
    assert {r["method"] for r in found if r.get("procedure") == str(id_)} >= {
        "PROC_SUBMIT",
        "PROC_CONTROL",
    }
    assert [r["type"] for r in found if r["method"] == "PROC_SUBMIT"] == ["sample.wait"]
    (refused,) = [r for r in found if r["method"] == "put"]
    assert (refused["code"], refused["table"]) == ("TABLE_NOT_FOUND", ["default.none"])
    (malformed,) = [r for r in found if r["method"] == "POST /v1/batch"]
    assert malformed["code"] == "HTTP_400"
    assert not [r for r in found if "healthz" in r["method"]]


@pytest.mark.slow
def test_e7_a_node_that_cannot_write_it_does_not_start(tmp_path: Path) -> None:
    """An audit that is silently off is found out when it is needed."""
    (tmp_path / "audit").write_text("a file, not a directory")
    with pytest.raises(InvalidArgument, match="audit_log"), audited(tmp_path):
        pass


# ------------------------------------------------------------------------------------- the file


async def _in_thread(call: Callable[[], None]) -> None:
    call()


async def _no_names(ids: Any) -> Mapping[int, str]:
    return {}


def stamp_log(path: Path, **more: Any) -> StampLog:
    wanted: dict[str, Any] = {
        "node": 7,
        "show_keys": False,
        "file_bytes": 1 << 20,
        "files": 3,
        "now_ms": lambda: 5,
        "in_thread": _in_thread,
        "names": _no_names,
    }
    return StampLog(path, **{**wanted, **more})


def a_stamp(number: int) -> Stamp:
    return Stamp("http", "c:1", "put", keys=[("default.t", b"key%d" % number)], commit_ts=number)


async def test_e7_what_is_on_its_way_when_the_node_ends_is_written(tmp_path: Path) -> None:
    """The last requests before an end would be in no log: who writes them is cancelled then."""
    path, asked, told = tmp_path / "log", asyncio.Event(), asyncio.Event()

    async def names(_ids: object) -> Mapping[int, str]:
        asked.set()
        await told.wait()
        return {}

    log = stamp_log(path, names=names)
    log.open()
    log.add(Stamp("native", "c:1", "PUT", keys=[(7, b"k")], commit_ts=1))
    running = asyncio.create_task(log.run())
    await asked.wait()
    running.cancel()
    await asyncio.wait([running])
    told.set()
    await log.close()
    assert [row["commit_ts"] for row in rows(path)] == ["1"]


def test_e7_what_did_not_fit_is_said_in_the_log(tmp_path: Path) -> None:
    """A gap that nobody sees makes the rest worthless."""
    path = tmp_path / "log"
    log = stamp_log(path, records_max=10)
    log.open()
    for number in range(1, 26):
        log.add(a_stamp(number))
    asyncio.run(log.flush())
    log.add(a_stamp(26))
    asyncio.run(log.close())
    first, *rest = rows(path)
    assert first == {"time": 5, "node": 7, "lost": 15, "why": "the buffer was full"}
    assert [r["commit_ts"] for r in rest] == [str(n) for n in [*range(1, 11), 26]]
    assert (log.written, log.lost) == (11, 15)


def test_e7_a_disk_that_is_full_costs_lines_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half lines, a gap that nobody sees, or four lines a second of the node's own log, which is on
    that disk, too.
    """
    path, write = tmp_path / "log", os.write
    log = stamp_log(path)
    log.open()

    def full(fd: int, data: memoryview) -> int:
        """Of this file alone: a limit of the process would be one of all nodes in it."""
        there = os.fstat(fd)
        if not os.path.samestat(there, path.stat()):
            return write(fd, data)
        if there.st_size >= 2_500:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[: 2_500 - there.st_size])

    async def some(first: int) -> None:
        for number in range(first, first + 10):
            log.add(a_stamp(number))
        await log.flush()

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for first in range(0, 200, 10):
            asyncio.run(some(first))
    assert len(caplog.records) == 1, [record.getMessage() for record in caplog.records]
    asyncio.run(some(200))
    asyncio.run(log.close())
    found = rows(path)
    lost = sum(row["lost"] for row in found if "lost" in row)
    assert 0 < lost == log.lost < 200
    assert len([row for row in found if "method" in row]) == log.written == 210 - lost
    assert "lost" in found[-11]


def test_e7_keys_in_the_buffer_are_bounded_by_bytes(tmp_path: Path) -> None:
    """Large keys of many requests must not grow the node."""
    log = stamp_log(tmp_path / "log", show_keys=True, bytes_max=100)
    log.open()
    for _ in range(5):
        log.add(Stamp("http", "c:1", "put", keys=[("default.t", b"k" * 40)]))
    assert log.lost == 3
    asyncio.run(log.flush())
    log.add(Stamp("http", "c:1", "put", keys=[("default.t", b"\xff" * 90)]))
    asyncio.run(log.close())
    assert log.lost == 3, "what was written makes room"
    assert rows(tmp_path / "log")[-1]["key"] == [{"b64": "/" * 120}]


LONG = "\x01\ud800" + "x" * 1_000_000
"""What a client may call whatever it likes; a part of a character that no text has."""


@pytest.mark.slow
def test_e7_nobody_fills_the_log_with_what_he_calls_himself(tmp_path: Path) -> None:
    """Ten statements of a client with a long name rotated away all that the log had; and one whose
    text could not be written ended it for good.
    """
    path = tmp_path / "log"
    log = stamp_log(path)
    log.open()
    asker = Asker("eve", "password", "r1", LONG, LONG)
    tables = [f"{LONG}{n}" for n in range(1_000)]
    log.add(Stamp("sql", "c:1", LONG, tables=tables, code="42501", asker=asker, type=LONG))
    log.add(Stamp("sql", "c:1", "login", asker=Asker(LONG, "none", "", "", "no")))
    log.add(a_stamp(1))
    asyncio.run(log.close())
    first, second, third = rows(path)
    assert (first["user"], first["allowed"], first["tables"]) == ("eve", False, 1_000)
    assert (second["allowed"], third["commit_ts"]) == (False, "1")
    whole, login, _ = path.read_bytes().splitlines()
    assert len(whole) < 50_000
    assert len(login) < 500
    assert whole.index(b'"user":"eve"') < 500, "a collector has the beginning of a long line"


async def test_e7_what_was_not_sent_on_is_said_to_whoever_gets_the_rest(tmp_path: Path) -> None:
    """A collector that was away had a gap that nobody saw."""
    sent: list[bytes] = []
    log = stamp_log(tmp_path / "log")
    shipper = Shipper(sent.append, _in_thread, log.gap)
    line = b"x" * 99_999 + b"\n"
    shipper.add(line * 335)
    for _ in range(3):
        shipper.add(line * 2)
    running = asyncio.create_task(shipper.run())
    await asyncio.sleep(0)
    assert shipper.shipped == 335
    shipper.add(b"{}\n")
    await asyncio.sleep(0)
    running.cancel()
    gap, last = sent[-1].splitlines()
    assert json.loads(gap)["lost"] == 6
    assert last == b"{}"
    assert max(map(len, sent)) <= 256 << 10, "no collector refuses one for its size"
    assert b"".join(sent[:-1]) == line * 335


def test_e7_files_rotate_by_size_and_the_oldest_goes(tmp_path: Path) -> None:
    """It would fill the disk that the data are on."""
    path = tmp_path / "log"
    log = stamp_log(path, file_bytes=1_000, files=2)
    log.open()
    for number in range(1, 101):
        log.add(a_stamp(number))
        if number % 5 == 0:
            asyncio.run(log.flush())
    asyncio.run(log.close())
    kept = sorted(p.name for p in tmp_path.iterdir())
    assert kept == ["log", "log.1", "log.2"]
    assert all(p.stat().st_size <= 1_000 for p in tmp_path.iterdir())
    numbers = [int(r["commit_ts"]) for r in rows(tmp_path / "log.2", tmp_path / "log.1", path)]
    assert numbers == list(range(numbers[0], 101)), "the newest, in order, without a gap"
    again = stamp_log(path, file_bytes=1_000, files=2)
    again.open()
    again.add(a_stamp(101))
    asyncio.run(again.close())
    assert rows(path)[-1]["commit_ts"] == "101", "a restart goes on in the same file"


def test_e7_a_full_disk_is_told_when_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a line would break whoever reads the file, and the node must go on."""
    path = tmp_path / "log"
    log = stamp_log(path)
    log.open()
    log.add(a_stamp(1))
    asyncio.run(log.flush())
    real, room = os.write, [20]

    def full(fd: int, data: Any) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        done = real(fd, bytes(data)[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr("kvorum.audit.audit_log.os.write", full)
    log.add(a_stamp(2))
    asyncio.run(log.flush())
    monkeypatch.setattr("kvorum.audit.audit_log.os.write", real)
    log.add(a_stamp(3))
    asyncio.run(log.close())
    first, lost, last = rows(path)
    assert (first["commit_ts"], last["commit_ts"]) == ("1", "3")
    assert lost["lost"] == 1
    assert "No space left" in lost["why"]


def test_e7_names_that_cannot_be_asked_for_are_ids(tmp_path: Path) -> None:
    """While no catalog answers, the log must go on."""

    async def names(_ids: Any) -> Mapping[int, str]:
        raise Unavailable("no leader")

    log = stamp_log(tmp_path / "log", names=names)
    log.open()
    log.add(Stamp("native", "c:1", "PUT", keys=[(77, b"k")]))
    asyncio.run(log.close())
    (row,) = rows(tmp_path / "log")
    assert row["table"] == ["77"]

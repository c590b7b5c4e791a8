"""The `kvorum` command: output, exit codes, one line of error."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.kit.commands import command, run, told
from tests.kit.machine import ROOT, free_port_base
from tests.kvorum.surfaces.conftest import Served


@pytest.mark.slow
def test_cli_records(served: Served) -> None:
    """put, get, scan and delete from a shell, with bytes as they are."""
    address = served.address
    run("table", "create", "default.cli", "--split", "m", connect=address)
    words = ("put", "default/cli/a", "-")
    version = run(*words, stdin=b"\x00\xff", connect=address, apart=True).out.strip()
    assert run("get", "default/cli/a", "--raw", connect=address).out == b"\x00\xff"
    shown = told("get", "default/cli/a", connect=address)
    assert shown == {"key": "a", "value": {"b64": "AP8="}, "version": version.decode()}
    run("put", "default/cli/z", "last", "--if-absent", connect=address)
    error = run("put", "default/cli/z", "x", "--if-absent", connect=address, code=1).err
    assert error.startswith(b"kvorum: CONDITION_FAILED: ")
    assert run("scan", "cli", connect=address).out == b"a\t\\x00\\xff\nz\tlast\n"
    found = told("scan", "cli", "--reverse", "--limit", "1", connect=address)
    assert [i["key"] for i in found["items"]] == ["z"]
    run("delete", "default/cli/a", connect=address)
    run("put", "clinew/made/a/b", "v", "--create", connect=address)
    run("put", "clinew/made/a/b", "w", "--create", connect=address)
    assert run("get", "clinew/made/a/b", connect=address).out == b"w\n"
    missing = run("get", "default/cli/a", connect=address, code=1, apart=True)
    assert missing.err.startswith(b"kvorum: KEY_NOT_FOUND")


def test_cli_records_of_a_table_with_slashes(served: Served) -> None:
    """A table whose name has a slash is taken for another one and a key, so nobody reads it."""
    address, table = served.address, ("--table", "default/cli/odd.name")
    run("put", *table, "k/1", "v", "--create", connect=address)
    assert run("get", *table, "k/1", connect=address).out == b"v\n"
    assert run("scan", table[1], connect=address).out == b"k/1\tv\n"
    run("delete", *table, "k/1", connect=address)
    assert b"KEY_NOT_FOUND" in run("get", *table, "k/1", connect=address, code=1).err
    run("get", *table, "", connect=address, code=2)


def test_cli_procedures_and_transactions(served: Served) -> None:
    """Submit, wait, look, list; and the status of a transaction."""
    address = served.address
    db = served.by_name["embedded"]
    db.create_table("default", "cliproc")
    args = json.dumps({"table": "cliproc", "from": "a", "to": "b", "amount": 1})
    procedure = told("proc", "submit", "sample.transfer", args, "--nonce", "cli", connect=address)[
        "id"
    ]
    again = run("proc", "submit", "sample.transfer", args, "--nonce", "cli", connect=address).out
    assert again.decode().strip() == procedure
    assert told("proc", "wait", procedure, connect=address)["result"] == {"moved": 1}
    assert told("proc", "show", procedure, connect=address)["state"] == "SUCCESS"
    listed = told("proc", "list", "--name", "sample.transfer", connect=address)["items"]
    assert procedure in [p["id"] for p in listed]
    assert run("proc", "abort", procedure, connect=address, code=1).err
    with db.transaction() as t:
        t.table("default", "cliproc").put("k", b"v")
    assert told("txn", str(t.id), connect=address) == {
        "status": "committed",
        "commit_ts": str(t.version),
    }


def test_cli_tables_and_status(served: Served) -> None:
    """Namespaces and tables by name, and a node that says how it is."""
    address = served.address
    run("namespace", "create", "clins", connect=address)
    run(
        *("table", "create", "clins.t", "--column", "id:int8:notnull", "--column", "name:text"),
        *("--primary-key", "id"),
        connect=address,
    )
    (table,) = told("table", "list", "clins", connect=address)["items"]
    assert table["columns"][0] == {"name": "id", "type": "int8", "nullable": False}
    assert run("namespace", "drop", "clins", connect=address, code=1).err
    run("table", "drop", "clins.t", connect=address)
    run("namespace", "drop", "clins", connect=address)
    assert "clins" not in run("namespace", "list", connect=address).out.decode().split()
    assert told("status", connect=address)["nodes"][0]["state"] == "live"


def test_cli_usage_and_unreachable() -> None:
    """2 is wrong usage, 1 is refused or failed: scripts decide by it."""
    address = f"127.0.0.1:{free_port_base()}"
    run("get", connect=address, code=2)
    run("frobnicate", connect=address, code=2)
    run("get", "default/t", connect=address, code=2)
    run("get", "default/t/k", "--no-such-option", connect=address, code=2)
    run("get", "default/t/k", "--at", "0", connect=address, code=2)
    run("put", "default/t/k", "v", "--ttl-ms", "0", connect=address, code=2)
    assert b"UNREACHABLE" in run("get", "default/t/k", connect=address, code=1).err
    error = told("get", "default/t/k", code=1, connect=address)["error"]
    assert error["retry"] == "retry"
    shown = run("start", "--help", connect=address).out.decode()
    for flag in ("--data", "--listen", "--advertise", "--port", "--node-id", "--join", "--roles"):
        assert flag in shown
    assert run("--version", connect=address).out.startswith(b"kvorum 0.")


def test_cli_doctor(served: Served, tmp_path: Path) -> None:
    """Every finding that is not well must say what to do about it."""
    words = ("doctor", "--port", str(served.base), "--data", str(tmp_path))
    report = told(*words, connect=served.address)
    found = {f["check"]: f for f in report["findings"]}
    assert found["node"]["level"] == "ok"
    assert found["clock"]["level"] == "ok"
    assert {"python", "java", "directory", "sync", "disk", "memory", "rocksdict"} <= set(found)
    assert all(f["remedy"] for f in report["findings"] if f["level"] != "ok")
    file = tmp_path / "file"
    file.write_text("")
    words = ("doctor", "--data", str(file), "--port", str(free_port_base()))
    assert b"not a directory" in run(*words, connect="127.0.0.1:1", code=None).out


@pytest.mark.slow
def test_cli_what_stdin_and_stdout_can_do(served: Served) -> None:
    """An endless stdin must not fill the memory, and a full disk must not show a traceback."""
    address = served.address
    run("table", "create", "default.cliedge", connect=address)
    here = ("--connect", address)
    with open("/dev/zero", "rb") as zeros:
        ended = subprocess.run(
            command("put", "default/cliedge/k", "-", *here),
            stdin=zeros,
            capture_output=True,
            cwd=ROOT,
            timeout=50,
            check=False,
        )
    assert (ended.returncode, ended.stderr.count(b"\n")) == (1, 1)
    assert ended.stderr.startswith(b"kvorum: TOO_LARGE: ")
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            command("namespace", "list", *here),
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            timeout=50,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == b"kvorum: cannot write the result: No space left on device\n"


def test_cli_json_is_json_whatever_a_procedure_returned(served: Served) -> None:
    """NaN and bytes are not JSON: a script's parser would stop at them."""
    db = served.by_name["embedded"]
    procedure = db.submit("sample.echo", {"nan": float("nan"), "bytes": b"\xff", "text": "é"})
    db.wait(procedure)
    ended = run("proc", "show", str(procedure), "--json", connect=served.address)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    shown = json.loads(ended.out, parse_constant=refuse)["result"]
    assert shown == {"nan": "nan", "bytes": {"b64": "/w=="}, "text": "é"}


def test_cli_another_port_is_named(served: Served) -> None:
    """Who mixes the ports up must be told that, not that a frame is too large."""
    error = run("get", "default/t/k", connect=f"127.0.0.1:{served.base + 2}", code=1).err
    assert b"not Kvorum's native port" in error
    error = run("get", "default/t/k", connect=f"http://{served.address}", code=1).err
    assert b"BASE+2" in error


def test_cli_queues_and_versions(served: Served) -> None:
    """Settings of queues, what waits, and which version new procedures begin with."""
    address = served.address
    words = ("--rate", "600/1m", "--key-concurrent", "2", "--weight", "ada=3")
    made = told("queue", "set", "cliq", *words, connect=address)
    assert (made["rate_per_s"], made["key_concurrent"], made["weights"]) == (10.0, 2, {"ada": 3})
    run("queue", "set", "cliq", "--weight", "ada", connect=address, code=1)
    assert told("queue", "show", "cliq", connect=address)["waiting"] == 0
    late = ("proc", "submit", "sample.transfer", "null", "--queue", "cliq", "--key", "ada")
    once = (*late, "--dedup", "cli", "--dedup-ms", "60000")
    first, again = (told(*once, connect=address) for _ in range(2))
    assert "earlier" not in first
    assert again == {"id": first["id"], "earlier": "deduplicated"}
    run(*late, "--dedup", "cli", connect=address, code=1)
    assert b" running, " in run("queue", "show", "cliq", connect=address).out
    (shown,) = told("proc", "versions", "sample.transfer", connect=address)["items"]
    assert [one["version"] for one in shown["versions"]] == [1]
    table = run("proc", "versions", "sample.transfer", connect=address).out.decode()
    assert "100% of new ones begin with it" in table
    said = run("proc", "set-version", "sample.transfer", "--default", "1", connect=address).out
    assert said == b"new procedures of sample.transfer: 100% version 1\n"
    refused = run("proc", "set-version", "sample.transfer", "--ramp", "9", connect=address, code=1)
    assert b"there is no version 9" in refused.err
    run("proc", "move", "sample.transfer", "--to", "9", connect=address, code=1)

"""The `kvorum` command as a user runs it: output, exit codes, one line of error. Few,
for each is a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.machine import ROOT, free_port_base
from tests.kvorum.surfaces.conftest import Served


def kvorum(
    *args: str, port: int, code: int | None = 0, stdin: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command against a node and check its exit code."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("KVORUM_")}
    env |= {"KVORUM_CONNECT": f"127.0.0.1:{port}", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "kvorum", *args]
    run = subprocess.run(
        command, env=env, input=stdin, capture_output=True, timeout=50, check=False
    )
    wanted = run.returncode if code is None else code
    assert run.returncode == wanted, (args, run.returncode, run.stdout, run.stderr)
    if code == 1:
        assert run.stderr.count(b"\n") == 1, run.stderr
        assert b"Traceback" not in run.stderr
    return run


def told(*args: str, port: int) -> Any:
    """The JSON document of a command."""
    return json.loads(kvorum(*args, "--json", port=port).stdout)


def test_cli_records(served: Served) -> None:
    """put, get, scan and delete from a shell, with bytes as they are."""
    port = served.base
    kvorum("table", "create", "default.cli", "--split", "m", port=port)
    version = kvorum("put", "default/cli/a", "-", stdin=b"\x00\xff", port=port).stdout.strip()
    assert kvorum("get", "default/cli/a", "--raw", port=port).stdout == b"\x00\xff"
    shown = told("get", "default/cli/a", port=port)
    assert shown == {"key": "a", "value": {"b64": "AP8="}, "version": version.decode()}
    kvorum("put", "default/cli/z", "last", "--if-absent", port=port)
    error = kvorum("put", "default/cli/z", "x", "--if-absent", port=port, code=1).stderr
    assert error.startswith(b"kvorum: CONDITION_FAILED: ")
    assert kvorum("scan", "cli", port=port).stdout == b"a\t\\x00\\xff\nz\tlast\n"
    found = told("scan", "cli", "--reverse", "--limit", "1", port=port)
    assert [i["key"] for i in found["items"]] == ["z"]
    kvorum("delete", "default/cli/a", port=port)
    kvorum("put", "clinew/made/a/b", "v", "--create", port=port)
    kvorum("put", "clinew/made/a/b", "w", "--create", port=port)
    assert kvorum("get", "clinew/made/a/b", port=port).stdout == b"w\n"
    missing = kvorum("get", "default/cli/a", port=port, code=1)
    assert missing.stderr.startswith(b"kvorum: KEY_NOT_FOUND")


@pytest.mark.slow
def test_cli_records_of_a_table_with_slashes(served: Served) -> None:
    """A table whose name has a slash is taken for another one and a key, so nobody reads it."""
    port, table = served.base, ("--table", "default/cli/odd.name")
    kvorum("put", *table, "k/1", "v", "--create", port=port)
    assert kvorum("get", *table, "k/1", port=port).stdout == b"v\n"
    assert kvorum("scan", table[1], port=port).stdout == b"k/1\tv\n"
    kvorum("delete", *table, "k/1", port=port)
    assert b"KEY_NOT_FOUND" in kvorum("get", *table, "k/1", port=port, code=1).stderr
    kvorum("get", *table, "", port=port, code=2)


@pytest.mark.slow
def test_cli_procedures_and_transactions(served: Served) -> None:
    """Submit, wait, look, list; and the status of a transaction."""
    port = served.base
    db = served.by_name["embedded"]
    db.create_table("default", "cliproc")
    args = json.dumps({"table": "cliproc", "from": "a", "to": "b", "amount": 1})
    procedure = told("proc", "submit", "sample.transfer", args, "--nonce", "cli", port=port)["id"]
    again = kvorum("proc", "submit", "sample.transfer", args, "--nonce", "cli", port=port).stdout
    assert again.decode().strip() == procedure
    assert told("proc", "wait", procedure, port=port)["result"] == {"moved": 1}
    assert told("proc", "show", procedure, port=port)["state"] == "SUCCESS"
    listed = told("proc", "list", "--name", "sample.transfer", port=port)["items"]
    assert procedure in [p["id"] for p in listed]
    assert kvorum("proc", "abort", procedure, port=port, code=1).stderr
    with db.transaction() as t:
        t.table("default", "cliproc").put("k", b"v")
    assert told("txn", str(t.id), port=port) == {"status": "committed", "commit_ts": str(t.version)}


@pytest.mark.slow
def test_cli_tables_and_status(served: Served) -> None:
    """Namespaces and tables by name, and a node that says how it is."""
    port = served.base
    kvorum("namespace", "create", "clins", port=port)
    kvorum(
        *("table", "create", "clins.t", "--column", "id:int8:notnull", "--column", "name:text"),
        *("--primary-key", "id"),
        port=port,
    )
    (table,) = told("table", "list", "clins", port=port)["items"]
    assert table["columns"][0] == {"name": "id", "type": "int8", "nullable": False}
    assert kvorum("namespace", "drop", "clins", port=port, code=1).stderr
    kvorum("table", "drop", "clins.t", port=port)
    kvorum("namespace", "drop", "clins", port=port)
    assert "clins" not in kvorum("namespace", "list", port=port).stdout.decode().split()
    assert told("status", port=port)["nodes"][0]["state"] == "live"


def test_cli_usage_and_unreachable() -> None:
    """2 is wrong usage, 1 is refused or failed: scripts decide by it."""
    port = free_port_base()
    kvorum("get", port=port, code=2)
    kvorum("frobnicate", port=port, code=2)
    kvorum("get", "default/t", port=port, code=2)
    kvorum("get", "default/t/k", "--no-such-option", port=port, code=2)
    kvorum("get", "default/t/k", "--at", "0", port=port, code=2)
    kvorum("put", "default/t/k", "v", "--ttl-ms", "0", port=port, code=2)
    assert b"UNREACHABLE" in kvorum("get", "default/t/k", port=port, code=1).stderr
    error = json.loads(kvorum("get", "default/t/k", "--json", port=port, code=1).stderr)["error"]
    assert error["retry"] == "retry"
    shown = kvorum("start", "--help", port=port).stdout.decode()
    for flag in ("--data", "--listen", "--advertise", "--port", "--node-id", "--join", "--roles"):
        assert flag in shown
    assert kvorum("--version", port=port).stdout.startswith(b"kvorum 0.")


def test_cli_doctor(served: Served, tmp_path: Path) -> None:
    """Every finding that is not well must say what to do about it."""
    report = told("doctor", "--port", str(served.base), "--data", str(tmp_path), port=served.base)
    found = {f["check"]: f for f in report["findings"]}
    assert found["node"]["level"] == "ok"
    assert found["clock"]["level"] == "ok"
    assert {"python", "java", "directory", "sync", "disk", "memory", "rocksdict"} <= set(found)
    assert all(f["remedy"] for f in report["findings"] if f["level"] != "ok")
    file = tmp_path / "file"
    file.write_text("")
    run = kvorum("doctor", "--data", str(file), "--port", str(free_port_base()), port=1, code=None)
    assert b"not a directory" in run.stdout


@pytest.mark.slow
def test_cli_what_stdin_and_stdout_can_do(served: Served) -> None:
    """An endless stdin must not fill the memory, and a full disk must not show a traceback."""
    port = served.base
    kvorum("table", "create", "default.cliedge", port=port)
    command = [sys.executable, "-m", "kvorum"]
    here = ["--connect", f"127.0.0.1:{port}"]
    with open("/dev/zero", "rb") as zeros:
        run = subprocess.run(
            [*command, "put", "default/cliedge/k", "-", *here],
            stdin=zeros,
            capture_output=True,
            cwd=ROOT,
            timeout=50,
            check=False,
        )
    assert (run.returncode, run.stderr.count(b"\n")) == (1, 1)
    assert run.stderr.startswith(b"kvorum: TOO_LARGE: ")
    with open("/dev/full", "wb") as full:
        run = subprocess.run(
            [*command, "namespace", "list", *here],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            timeout=50,
            check=False,
        )
    assert run.returncode == 1
    assert run.stderr == b"kvorum: cannot write the result: No space left on device\n"


@pytest.mark.slow
def test_cli_json_is_json_whatever_a_procedure_returned(served: Served) -> None:
    """NaN and bytes are not JSON: a script's parser would stop at them."""
    db = served.by_name["embedded"]
    procedure = db.submit("sample.echo", {"nan": float("nan"), "bytes": b"\xff", "text": "é"})
    db.wait(procedure)
    run = kvorum("proc", "show", str(procedure), "--json", port=served.base)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    shown = json.loads(run.stdout, parse_constant=refuse)["result"]
    assert shown == {"nan": "nan", "bytes": {"b64": "/w=="}, "text": "é"}


@pytest.mark.slow
def test_cli_another_port_is_named(served: Served) -> None:
    """Who mixes the ports up must be told that, not that a frame is too large."""
    native, http = served.base, served.base + 2
    error = kvorum("get", "default/t/k", port=http, code=1).stderr
    assert b"not Kvorum's native port" in error
    address = f"http://127.0.0.1:{native}"
    error = kvorum("get", "default/t/k", "--connect", address, port=native, code=1).stderr
    assert b"BASE+2" in error

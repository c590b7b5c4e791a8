"""`kvorum verify` without a cluster: usage, and files of histories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvorum.cli.main import app
from kvorum.verify.catalog import WORKLOADS
from tests.kit.machine import ROOT
from tests.kvorum.verify.model import history_of


def verify(*args: str) -> Result:
    return CliRunner().invoke(app, ["verify", *args])


def written(path: Path, *, broken: str = "") -> Path:
    history = history_of("bank", seed=1, faults=0.05, broken=broken)
    path.write_text("".join(line + "\n" for line in history.lines()))
    return path


def test_u12_a_file_is_checked_again(tmp_path: Path) -> None:
    """Whoever is sent a history must be able to judge it without the cluster it came from."""
    clean = verify("--check", str(written(tmp_path / "clean.jsonl")))
    assert clean.exit_code == 0, clean.stderr
    assert "VERDICT: no anomaly" in clean.stdout
    bad = verify("--check", str(written(tmp_path / "bad.jsonl", broken="no-conflicts")))
    assert bad.exit_code == 1
    assert "VERDICT: anomalies in bank" in bad.stdout
    assert "- total: #" in bad.stdout
    assert "read {'how':" in bad.stdout, "the operations involved are not shown"


def test_u12_what_is_found_as_json(tmp_path: Path) -> None:
    """Programs that run it must not have to read prose."""
    done = verify("--check", str(written(tmp_path / "h.jsonl", broken="torn")), "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert told["verdict"] == "not clean"
    (one,) = told["workloads"]
    assert one["verdict"] == "anomalies"
    assert {"kind", "text", "operations"} == set(one["anomalies"][0])


def test_u12_damaged_files_are_refused_with_their_line(tmp_path: Path) -> None:
    """Half a file must not be judged as if it were the whole."""
    path = written(tmp_path / "h.jsonl")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:9], lines[9][:20], *lines[10:]]))
    done = verify("--check", str(path))
    assert done.exit_code == 1
    assert "line 10" in done.stderr
    assert verify("--check", str(tmp_path / "none.jsonl")).exit_code == 1


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--workload", "chess"], "there is no workload 'chess'; there are register"),
        (["--nemesis", "burn"], "'burn' is no fault"),
        (["--nodes", "2", "--nemesis", "cut"], "3 nodes or more"),
        (["--connect", "127.0.0.1:1", "--nemesis", "kill"], "--connect runs without faults"),
        (["--workload", "skew"], "only with isolation serializable"),
        (["--isolation", "none"], "snapshot or serializable"),
        (["--seconds", "0"], "seconds must be 1 to 86400"),
        (["--clients", "1000"], "clients must be 1 to 256"),
    ],
)
def test_u12_wrong_usage_ends_before_anything_is_started(args: list[str], says: str) -> None:
    """A typing error must not cost a minute, nor run something else than was meant."""
    done = verify(*args)
    assert done.exit_code == 2, done.stdout + done.stderr
    assert says in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_u12_help_names_every_workload_and_the_guide_tells_what_it_checks() -> None:
    """A workload that nobody can find is not run."""
    told = " ".join(verify("--help").stdout.split())
    guide = (ROOT / "docs/guides/verify.md").read_text()
    for name in WORKLOADS:
        assert name in told
        assert f"\n| `{name}` |" in guide

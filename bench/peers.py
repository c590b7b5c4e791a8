"""The peers' scripts, run one measurement at a time, their results in our terms.

A script starts its store, loads it, prints one JSON line and stops what it started. It gets our
temporary folder, so nothing stays behind even if it is killed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bench.node import work_folder
from bench.stats import Record

_OWN = Path(__file__).resolve().parent / "peers"  # scripts that came with the product
_SECONDS_MAX = 900
_STOP_S = 60
_JDBC_JAR = "/usr/share/java/postgresql.jar"  # where Debian's libpostgresql-jdbc-java puts it


class PeerFailed(Exception):
    """A peer's script did not give a result."""


class Peers:
    """`folder` has the scripts; `home` what bench/peers_setup.sh installed."""

    def __init__(self, folder: Path, home: Path) -> None:
        if not (folder / "peerlib.py").is_file():
            raise PeerFailed(
                f"no peer scripts in {folder}: name their folder with --peers or PEERS_SCRIPTS"
            )
        self._folder, self._home = folder.resolve(), home.resolve()

    def _python(self) -> str:
        installed = self._home / "venv" / "bin" / "python"
        return str(installed) if installed.is_file() else "python3"

    def _environment(self, work: Path, secs: float, **settings: str) -> dict[str, str]:
        found = dict(os.environ)
        # Else Spark's workers are the first python3 of PATH, which need not have psycopg.
        found["PYSPARK_PYTHON"] = self._python()
        etcdload = self._home / "etcdload"
        if etcdload.is_file():
            found.setdefault("PEERS_ETCDLOAD", str(etcdload))
        if Path(_JDBC_JAR).is_file():
            found.setdefault("PEERS_JDBC_JAR", _JDBC_JAR)
        return (
            found
            | {
                "PEERS_WORK": str(work),
                "PEERS_REPS": "1",  # repetitions are ours, in turn with Kvorum's
                "PEERS_SECS": str(secs),
                "PYTHONPATH": str(self._folder),
            }
            | settings
        )

    def _run(self, script: str, *args: str, secs: float, **settings: str) -> dict[str, Any]:
        own = _OWN / script
        command = [
            self._python(),
            str(own if own.is_file() else self._folder / script),
            *args,
        ]
        work = work_folder("peer")
        try:
            child = subprocess.Popen(
                command,
                cwd=work,
                env=self._environment(work, secs, **settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            try:
                out, err = child.communicate(timeout=_SECONDS_MAX)
            except BaseException:
                child.terminate()  # on SIGTERM the script stops its store
                child.wait(_STOP_S)
                raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if not lines:
            raise PeerFailed(
                f"{script} gave no result (exit code {child.returncode}): {err[-500:]}"
            )
        found: dict[str, Any] = json.loads(lines[-1])
        if found.get("_error"):
            raise PeerFailed(f"{script}: {found['_error']}")
        return found

    def etcd(self, op: str, clients: int, size: int, secs: float, *, nodes: int = 1) -> Record:
        """One node or three, the leader asked; `get` is linearizable."""
        found = self._run(
            *("bench_etcd.py", f"nodes={nodes}", f"ops={op}"),
            secs=secs,
            PEERS_CONC=str(clients),
            PEERS_SIZES=str(size),
        )
        return ours(found[f"n{nodes}_{op}_{size}B_c{clients}"])

    def etcd_failover(self, secs: float) -> Record:
        """Three nodes, the leader killed under load: the longest time without a write."""
        found = self._run("bench_etcd.py", "ops=none", "failover", secs=secs)
        return {"gap_s": found["failover"]["gap_s"]}

    def bank(self, clients: int, secs: float) -> Record:
        """Transfers between few accounts in PostgreSQL at repeatable read, commits only."""
        found = self._run("bench_bank_pg.py", secs=secs, PEERS_CONC=str(clients))
        return ours(found[f"bank_c{clients}"]) | {"total_kept": found["total_kept"]}

    def dbos(self, clients: list[int], secs: float) -> dict[tuple[int, int], Record]:
        """By (steps, clients); of its two styles the faster one."""
        found = self._run("bench_dbos.py", "pg", secs=secs, PEERS_CONC=",".join(map(str, clients)))
        return {
            (steps, count): max(
                (ours(found[f"pg_{style}_{steps}step_c{count}"]) for style in ("thread", "async")),
                key=lambda r: float(r["steps_s"]),
            )
            for steps in (1, 10)
            for count in clients
        }

    def spark(self, rows: int, secs: float) -> dict[str, Record]:
        """JDBC and COPY by Spark's tasks to PostgreSQL with a primary key; Parquet's files, and its
        sink's micro-batches.
        """
        jobs = {
            "jdbc_pk": "jdbc_batch10k_rewrite_pk",
            "copy_pk": "foreachPartition_copy_pk",  # psycopg's copy, a row at a time
            "parquet": "parquet",
        }
        found = self._run("bench_spark.py", *jobs.values(), secs=secs, PEERS_ROWS=str(rows))
        results = {}
        for op, job in jobs.items():
            if "rows_s" in found.get(job, {}):
                results[op] = {"rows": rows, "rows_s": found[job]["rows_s"]}
        for kind in ("parquet", "noop"):
            stream = found.get(f"stream_{kind}", {})
            if "addBatch_ms" in stream:
                results[f"stream_{kind}"] = {
                    "add_batch_ms": stream["addBatch_ms"],
                    "trigger_ms": stream["triggerExecution_ms"],
                }
        return results


def ours(row: dict[str, Any]) -> Record:
    """A row of the peers' results under our names."""
    names = {"srv_us_op": "server_us_op", "cli_us_op": "client_us_op", "err": "errors"}
    kept = {names.get(k, k): v for k, v in row.items() if k not in ("runs", "workflows_s")}
    if isinstance(kept.get("other_cores"), list):
        kept["other_cores"] = kept["other_cores"][0]
    return kept

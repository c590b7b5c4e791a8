"""`kvorum verify`: run a workload on a cluster, hurt the cluster, and check what clients saw."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kv.base.errors import KvorumError
from kvorum.cli import output
from kvorum.cli.connection import Clock, Json
from kvorum.cli.verifying import PORT, Verification, check_file


def verify(
    workload: Annotated[
        str, typer.Option(help="Names, with commas between them (run side by side), or all.")
    ] = "bank",
    seconds: Annotated[float, typer.Option(help="How long the load runs.")] = 60.0,
    nemesis: Annotated[
        str, typer.Option(help="Faults: some of kill, pause, cut, restart; or none.")
    ] = "",
    nodes: Annotated[
        int | None, typer.Option(help="Nodes of a new local cluster; 3 if left out (1 of two).")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Directory of a local cluster: one that runs is used and left running, else a "
            "new one is made there. Left out: a new one in a temporary directory."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help=f"Node I of a new one listens from PORT + 10·I. Left out: {PORT} or up."),
    ] = None,
    connect: Annotated[
        str | None,
        typer.Option(help="HOST:BASE[,…] of a running cluster, which is not hurt (no nemesis)."),
    ] = None,
    clients: Annotated[int, typer.Option(help="Concurrent clients of each workload.")] = 8,
    seed: Annotated[
        int | None, typer.Option(help="Of the choices of clients and nemesis; else drawn.")
    ] = None,
    isolation: Annotated[
        str, typer.Option(help="snapshot, serializable, or read_committed.")
    ] = "snapshot",
    clock: Clock = None,
    history: Annotated[
        Path | None,
        typer.Option(
            help="Write what was seen, as JSON lines; of several workloads one file each."
        ),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="Only check a history that --history wrote.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the tables and the temporary directory.")
    ] = False,
    json: Json = False,
) -> None:
    """Run a workload, hurt the cluster, and check that clients saw nothing impossible.

    Use a TEST cluster: faults are real. Workloads: register, list-append, bank, set, cycle,
    long-fork, monotonic, batch, unique-ids, procedure, queue, feed, stale, causal, with --isolation
    serializable skew, and sites, alone: it makes two clusters. Exit code 0: no anomaly, 1:
    anomalies, or a cluster that did not come back, 2: wrong usage.
    """
    try:
        if check is not None:
            raise SystemExit(check_file(check, json=json))
        done = Verification(
            names=workload.split(","),
            seconds=seconds,
            faults=nemesis,
            nodes=nodes,
            data=data,
            port=port,
            connect=connect,
            clients=clients,
            seed=seed,
            isolation=isolation,
            clock=clock,
            history=history,
            keep=keep,
            json=json,
        ).run()
    except KvorumError as e:
        output.die(e, as_json=json)
    except KeyboardInterrupt:
        output.die("interrupted", as_json=json)
    except OSError as e:
        output.die(f"{e.filename or 'verify'}: {e.strerror or e}", as_json=json)
    if done:
        raise SystemExit(done)

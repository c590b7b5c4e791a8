"""`kvorum worker`: run the procedures of some modules; `kvorum workers`: who runs what."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.limits import PROCEDURE_THREADS_DEFAULT, WORKER_SLOTS_DEFAULT, WORKER_SLOTS_MAX
from kvorum.cli import output
from kvorum.cli.connection import DEFAULT, Connect, Json, opened
from procedures.engine.needs import Needs, checked

if TYPE_CHECKING:
    from procedures.pools.worker import Worker


def worker(
    modules: Annotated[
        list[str], typer.Argument(metavar="MODULE…", help="Modules that declare procedures.")
    ],
    pool: Annotated[
        str, typer.Option(help="Pool of those that do not name one themselves.")
    ] = "default",
    slots: Annotated[
        int, typer.Option(help="Procedures that it runs at once.", min=1, max=WORKER_SLOTS_MAX)
    ] = WORKER_SLOTS_DEFAULT,
    threads: Annotated[
        int, typer.Option(help="Of them with steps that are plain (not async) methods.", min=1)
    ] = PROCEDURE_THREADS_DEFAULT,
    name: Annotated[str, typer.Option(help="Its name; made up if left out.")] = "",
    has: Annotated[
        list[str] | None,
        typer.Option(help="NAME=AMOUNT or NAME=LABEL of what procedures need: gpu=1, zone=eu."),
    ] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Run procedures for a pool until SIGTERM or Ctrl-C. What it runs survives it."""
    import uvloop

    from kvorum.api.addresses import parse_url, tls_for
    from kvorum.local import logs
    from kvorum.programs.worker import serve
    from kvorum.steps.modules import load_types

    names = [one for part in modules for one in part.split(",") if one]

    def ready(worker: Worker) -> None:
        served = sorted({f"{t.name}@{t.version}" for t in load_types(names)})
        if json:
            output.emit({"worker": worker.name, "pool": pool, "types": served})
        else:
            output.lines(
                [f"worker   {worker.name}", f"pool     {pool}", f"serves   {', '.join(served)}"]
            )
        sys.stdout.flush()

    logs.configure("warning")
    try:
        scheme, addresses = parse_url(connect or DEFAULT)
        if scheme != "kvorum":
            raise InvalidArgument(f"--connect {connect}: a worker needs HOST:BASE of nodes")
        tls = tls_for(connect or DEFAULT)
        uvloop.run(
            serve(addresses, names, pool, slots, threads, name, ready, tls, _capacity(has or []))
        )
    except KvorumError as e:
        output.die(e, as_json=json)


def _capacity(said: list[str]) -> Needs:
    found: dict[str, float | str] = {}
    for one in said:
        name, is_given, value = one.partition("=")
        if not is_given:
            raise InvalidArgument(f"--has wants NAME=AMOUNT or NAME=LABEL, got {one!r:.60}")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = value
    return checked("--has", found)


def workers(connect: Connect = None, json: Json = False) -> None:
    """Print the workers that are here, what they serve and how much of it they run."""
    with opened(connect, json) as db:
        found = db.workers()
    if json:
        output.emit({"items": found})
        return
    rows = [
        (w["worker"], w["pool"], f"{w['running']}/{w['slots']}", ", ".join(w["types"]))
        for w in found
    ]
    output.table(("WORKER", "POOL", "RUNNING", "TYPES"), rows)

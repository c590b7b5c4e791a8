"""The `kvorum` command: which subcommands there are, and how the process ends.

Exit code 0 done, 1 refused or failed with a one-line reason on stderr, 2 wrong usage.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from kv.base.errors import KvorumError
from kvorum.cli import (
    backup,
    bus,
    check,
    cluster,
    control,
    data,
    doctor,
    explain,
    hold,
    locks,
    members,
    nodes,
    operating,
    output,
    partitions,
    procs,
    shaping,
    snapshots,
    spark,
    sql,
    tables,
    transfer,
    verify,
    watch,
    worker,
)
from kvorum.local.extras import advice

app = typer.Typer(
    name="kvorum",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A Raft-replicated procedure store and transactional key-value service.",
)


@app.callback(invoke_without_command=True)
def version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """A Raft-replicated procedure store and transactional key-value service."""
    if version:
        from kvorum.version import VERSION

        output.lines([f"kvorum {VERSION}"])
        raise typer.Exit


for command in (
    nodes.start,
    nodes.dev,
    nodes.proxy,
    nodes.status,
    data.get,
    data.put,
    data.delete,
    data.scan,
    data.txn,
    sql.sql,
    watch.watch,
    hold.lock,
    locks.locks,
    doctor.doctor,
    verify.verify,
    worker.worker,
    backup.backup,
    backup.restore,
    transfer.export,
    check.check,
    worker.workers,
):
    app.command(command.__name__)(command)
app.command("import")(transfer.import_)
tables.tables.command("flush")(bus.flush)
tables.tables.command("place")(explain.place)
members.partitions.command("move")(explain.move)
members.partitions.command("transfer")(explain.transfer)
app.add_typer(explain.explain, name="explain")
tables.tables.command("compact")(bus.compact)
app.add_typer(bus.checkpoints, name="checkpoint")
app.add_typer(cluster.app, name="cluster")
app.add_typer(members.nodes, name="node")
app.add_typer(members.partitions, name="partition")
members.partitions.command("auto")(shaping.auto)
members.partitions.command("split")(partitions.split)
members.partitions.command("merge")(partitions.merge)
procs.app.command("signal")(control.signal)
procs.app.command("complete")(control.complete)
procs.app.command("check-upgrade")(control.check_upgrade)
for _action in ("abort", "bypass", "retry", "steal", "explain", "audit"):
    procs.app.command(_action)(getattr(operating, _action))
app.add_typer(procs.app, name="proc")
app.add_typer(control.queues, name="queue")
app.add_typer(control.schedules, name="schedule")
app.add_typer(bus.settings, name="setting")
app.add_typer(snapshots.app, name="snapshot")
app.add_typer(spark.app, name="spark")
app.add_typer(tables.namespaces, name="namespace")
app.add_typer(tables.tables, name="table")


def main() -> None:
    """The entry point of the `kvorum` script."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a failure can still be told in one line
    except KvorumError as e:  # of a command that did not expect it
        output.die(e)
    except ImportError as e:
        if words := advice(e):
            output.die(words)
        raise
    except OSError as e:
        # What is left in the buffer would fail once more, and loudly, when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(e, BrokenPipeError):  # the reader has seen enough
            raise SystemExit(output.FAILED) from None
        what = e.filename or "cannot write the result"
        output.die(f"{what}: {e.strerror or e}")

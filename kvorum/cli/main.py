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
    access_commands,
    backup_commands,
    bulk_commands,
    bus_commands,
    cert_commands,
    check_command,
    cluster_commands,
    connection,
    data_commands,
    doctor,
    explain_commands,
    lock_command,
    locks_command,
    member_commands,
    message_commands,
    output,
    partition_auto,
    partition_commands,
    procedure_commands,
    schedule_commands,
    site_commands,
    snapshot_commands,
    spark_commands,
    sql_command,
    start_commands,
    surgery_commands,
    table_commands,
    transfer_commands,
    verify_command,
    watch_command,
    worker_commands,
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
    access_commands.init,
    start_commands.start,
    start_commands.dev,
    start_commands.proxy,
    start_commands.status,
    data_commands.get,
    data_commands.put,
    data_commands.delete,
    data_commands.scan,
    data_commands.txn,
    sql_command.sql,
    watch_command.watch,
    lock_command.lock,
    locks_command.locks,
    doctor.doctor,
    verify_command.verify,
    worker_commands.worker,
    backup_commands.backup,
    backup_commands.restore,
    transfer_commands.export,
    check_command.check,
    worker_commands.workers,
):
    app.command(command.__name__)(command)
app.command("import")(transfer_commands.import_)
table_commands.tables.command("flush")(bus_commands.flush)
table_commands.tables.command("place")(explain_commands.place)
member_commands.partitions.command("move")(explain_commands.move)
member_commands.partitions.command("transfer")(explain_commands.transfer)
app.add_typer(explain_commands.explain, name="explain")
table_commands.tables.command("compact")(bus_commands.compact)
app.add_typer(bus_commands.checkpoints, name="checkpoint")
app.add_typer(cert_commands.app, name="cert")
app.add_typer(access_commands.users, name="user")
app.add_typer(access_commands.groups, name="role")
app.add_typer(access_commands.tokens, name="token")
app.add_typer(access_commands.grants, name="grant")
app.add_typer(cluster_commands.app, name="cluster")
app.add_typer(member_commands.nodes, name="node")
app.add_typer(member_commands.partitions, name="partition")
member_commands.partitions.command("auto")(partition_auto.auto)
member_commands.partitions.command("split")(partition_commands.split)
member_commands.partitions.command("merge")(partition_commands.merge)
procedure_commands.app.command("signal")(message_commands.signal)
procedure_commands.app.command("start-signal")(message_commands.start_signal)
procedure_commands.app.command("query")(message_commands.query)
procedure_commands.app.command("update")(message_commands.update)
procedure_commands.app.command("events")(message_commands.events)
procedure_commands.app.command("complete")(message_commands.complete)
procedure_commands.app.command("check-upgrade")(message_commands.check_upgrade)
procedure_commands.app.command("versions")(message_commands.versions)
procedure_commands.app.command("set-version")(message_commands.set_version)
procedure_commands.app.command("rollback")(message_commands.roll_back)
procedure_commands.app.command("move")(message_commands.move_version)
for _action in ("abort", "bypass", "retry", "steal", "explain", "audit"):
    procedure_commands.app.command(_action)(getattr(surgery_commands, _action))
app.add_typer(procedure_commands.app, name="proc")
app.add_typer(message_commands.queues, name="queue")
app.add_typer(schedule_commands.app, name="schedule")
app.add_typer(bulk_commands.app, name="retention")
for _act in (bulk_commands.reset, bulk_commands.fork, bulk_commands.bulk):
    procedure_commands.app.command()(_act)
for _command in (schedule_commands.pause, schedule_commands.resume, schedule_commands.pauses):
    app.command()(_command)
app.add_typer(bus_commands.settings, name="setting")
app.add_typer(site_commands.app, name="site")
app.add_typer(snapshot_commands.app, name="snapshot")
app.add_typer(spark_commands.app, name="spark")
app.add_typer(table_commands.namespaces, name="namespace")
app.add_typer(table_commands.tables, name="table")


connection.clients(app)


def main() -> None:
    """The entry point of the `kvorum` script."""
    if sys.argv[1:2] != ["export"]:  # whose files may be for others to read, as their maker says
        os.umask(0o077)  # of this process and what it starts: data, logs, backups
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a failure can still be reported in one line
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

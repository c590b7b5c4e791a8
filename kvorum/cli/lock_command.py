"""`kvorum lock RESOURCE -- COMMAND`: run a command while the cluster holds a lock for it."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Annotated, Final

import typer

from kv.base.errors import KvorumError
from kv.base.limits import LOCK_TTL_MS_DEFAULT
from kvorum.cli import output
from kvorum.cli.connection import Connect, opened

_LOOK_S: Final = 0.1
_KILL_S: Final = 5.0  # after asking the command to end


def lock(
    resource: Annotated[str, typer.Argument(help="What to lock, such as table/shop/orders.")],
    command: Annotated[list[str], typer.Argument(help="The command, after --.")],
    shared: Annotated[
        bool, typer.Option("--shared", help="Others may hold it shared, too.")
    ] = False,
    ttl_ms: Annotated[
        int, typer.Option(help="The lock ends when this process is silent for so long.")
    ] = LOCK_TTL_MS_DEFAULT,
    wait_ms: Annotated[
        int | None, typer.Option(help="Wait so long for the lock; for ever if left out.")
    ] = None,
    connect: Connect = None,
) -> None:
    """Run a command under a lock of the cluster.

    The command finds KVORUM_LOCK and KVORUM_LOCK_TOKEN in its environment. If the lock is lost it
    is ended, and the exit code is 1; else the exit code is the command's.
    """
    with (
        opened(connect, False) as db,
        db.lock(
            resource, exclusive=not shared, ttl_ms=ttl_ms, wait_ms=wait_ms, owner=command[0][:100]
        ) as held,
    ):
        env = os.environ | {"KVORUM_LOCK": resource, "KVORUM_LOCK_TOKEN": str(held.token)}
        try:
            child = subprocess.Popen(command, env=env)
        except OSError as error:
            output.die(f"{command[0]} cannot be run: {error.strerror}")
        try:
            while child.poll() is None:
                time.sleep(_LOOK_S)
                held.check()
        except KvorumError as error:
            _end(child)
            output.die(error)
        except BaseException:
            _end(child)
            raise
    raise typer.Exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_KILL_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()

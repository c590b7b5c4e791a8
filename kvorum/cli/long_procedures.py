"""What backup, restore, import, export and check share: run a procedure to its end, here or at the
nodes, with its progress on stderr.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kv.base.errors import InvalidArgument, KvorumError
from kvorum.cli import output
from kvorum.cli.connection import DEFAULT
from kvorum.sdk.progress import Line

if TYPE_CHECKING:
    from kvorum.native.native import NativeBackend

Resume = Annotated[
    int, typer.Option("--resume", metavar="ID", help="Go on with this interrupted one.")
]
Rate = Annotated[
    str, typer.Option(help="At most so many bytes per second, e.g. 20M. Left out: any number.")
]
KeyFile = Annotated[
    str,
    typer.Option(
        "--key-file",
        metavar="FILE",
        envvar="KVORUM_BACKUP_KEY_FILE",
        help="Of an encrypted backup: its key (openssl rand -hex 32). Nodes have their own.",
        show_default=False,
        show_envvar=False,
    ),
]
OnNodes = Annotated[
    bool,
    typer.Option("--on-nodes", help="Let the nodes do it: the path is one that all of them see."),
]
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def rate_of(text: str) -> int:
    """Bytes per second. Raises InvalidArgument."""
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if not text:
        return 0
    if unit not in _UNITS or not number.isdigit():
        raise InvalidArgument(f"--rate {text}: give bytes per second, as 500K, 20M or 1G")
    return int(number) * _UNITS[unit]


def run(
    types: tuple[str, str],
    args: Callable[[NativeBackend], Awaitable[object]],
    *,
    connect: str | None,
    json: bool,
    here: bool,
    resume: int = 0,
    again: str = "",
    same: Mapping[str, object] | None = None,
    attempts: int = 5,
    undo: Callable[[NativeBackend], Awaitable[None]] | None = None,
    key_file: str = "",
) -> Any:
    """The result of a procedure: of `types` the second is run here, the first by the nodes. One
    that fails with the code `again` is submitted anew; one that is resumed must have been begun
    with the arguments `same`. `undo`: what to do when it has failed for good, not when it was
    interrupted. Ends the process at an error.
    """
    import asyncio
    from functools import partial

    from kvorum.local import logs
    from kvorum.transfer.command_worker import Interrupted, ended, run_here, run_there

    logs.configure("error")
    what = types[0].removeprefix("kvorum.")
    name = types[1] if here else types[0]
    drive = partial(run_here, key_file=key_file) if here else run_there
    try:
        for attempt in range(attempts):
            info = asyncio.run(
                drive(
                    connect or DEFAULT, name, args, Line(what).show, resume=resume, same=same or {}
                )
            )
            code = (info.error or {}).get("code")
            if code in again.split(",") and attempt + 1 < attempts:
                continue
            break
        return ended(info)
    except Interrupted as stopped:
        output.die(
            f"interrupted; the procedure waits{_patience(name)}: `kvorum {what} … --resume "
            f"{stopped.id}` goes on, `kvorum proc abort {stopped.id}` and then --resume takes it "
            "back",
            as_json=json,
        )
    except KeyboardInterrupt:
        output.die("interrupted; `kvorum proc list` shows whether it goes on", as_json=json)
    except KvorumError as error:
        if undo is not None and error.disposition == "no":  # it was refused: nothing goes on
            with suppress(KvorumError):
                asyncio.run(_undone(connect or DEFAULT, undo))
        output.die(error, as_json=json)


async def _undone(connect: str, undo: Callable[[NativeBackend], Awaitable[None]]) -> None:
    from kv.base.limits import DEADLINE_MS_DEFAULT
    from kvorum.api.addresses import tls_for
    from kvorum.native.remote import connect_backend
    from kvorum.transfer.command_worker import addresses_of

    backend = await connect_backend(addresses_of(connect), DEADLINE_MS_DEFAULT, tls_for(connect))
    try:
        await undo(backend)
    finally:
        await backend.close()


def _patience(name: str) -> str:
    from kvorum.transfer.abandoned_procedures import PATIENCE_MS

    found = PATIENCE_MS.get(name)
    return "" if found is None else f" for {found // 60_000} minutes"

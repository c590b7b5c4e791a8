"""`kvorum watch`: a table's committed transactions, as they happen."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from kvorum.cli import output
from kvorum.cli.connection import B64, DEFAULT, Connect, Json, errors_shown, key_of, table_of

if TYPE_CHECKING:
    from kvorum.api.watching import AsyncWatch, Event


def watch(
    table: Annotated[str, typer.Argument(metavar="NAMESPACE/TABLE", show_default=False)],
    from_version: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=0,
            help="Changes after this version; 0 = all records first. From now on, if left out.",
            show_default=False,
        ),
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin with this.")] = None,
    count: Annotated[
        int | None,
        typer.Option(help="Transactions, then end. No end, if left out.", min=1),
    ] = None,
    b64: B64 = False,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print a table's changes in commit order: a line each, version, put or delete, key, value.

    With --json a line per transaction (or part of a large one), like the events over HTTP. Ctrl-C
    ends it, and tells where to go on.
    """
    ns, name = table_of(table)
    bytes_ = None if prefix is None else key_of(prefix, b64)
    with errors_shown(json):
        watching = _Watching(_emit_json if json else _emit_lines, from_version, count or 0)
        asyncio.run(watching.run(connect or DEFAULT, ns, name, bytes_))


class _Watching:
    """One run of the command. On the main thread's own loop, which alone notices Ctrl-C at a known
    place: between two events, whatever it does then.
    """

    def __init__(self, emit: Callable[[Event], None], begin: int | None, count: int) -> None:
        self._emit, self._begin, self._left = emit, begin, count
        self._shown = begin  # every transaction at or below was printed
        self._interrupted = False

    async def run(self, url: str, ns: str, name: str, prefix: bytes | None) -> None:
        """Raises KvorumError; KeyboardInterrupt before there is anything to go on from."""
        from kvorum.connecting import aconnect

        task = asyncio.current_task()
        assert task is not None
        self._heed_interrupts(asyncio.get_running_loop(), task)
        try:
            db = await aconnect(url)
            try:
                watching = db.watch(ns, name, from_version=self._begin, prefix=prefix)
                await self._show(watching)
            finally:
                await db.close()
        except (asyncio.CancelledError, KeyboardInterrupt):
            if self._shown is None:
                raise KeyboardInterrupt from None
            sys.stderr.write(f"kvorum: to go on: --from {self._shown}\n")

    async def _show(self, watching: AsyncWatch) -> None:
        try:
            async for event in watching:
                self._emit(event)
                sys.stdout.flush()
                self._shown = watching.position or self._shown
                self._left -= event.last
                if event.last and self._left == 0:
                    break
        except asyncio.CancelledError:
            self._shown = watching.position or self._shown
            raise
        finally:
            await watching.close()

    def _heed_interrupts(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[object]) -> None:
        """The first Ctrl-C ends the task in order, a second one at once."""

        def at_once(_number: int, _frame: object) -> None:
            if self._interrupted:  # perhaps it writes to who does not read, and the loop stands
                raise KeyboardInterrupt
            self._interrupted = True

        loop.add_signal_handler(signal.SIGINT, task.cancel)
        signal.signal(signal.SIGINT, at_once)  # beside the loop's, which hears through its pipe


def _emit_json(event: Event) -> None:
    output.emit(_shown(event))


def _emit_lines(event: Event) -> None:
    output.lines(_lines(event))


def _lines(event: Event) -> list[str]:
    rows = []
    for key, value, _ in event.changes:
        shown = [str(event.version), "delete" if value is None else "put", output.escaped(key)]
        rows.append("\t".join([*shown, *([] if value is None else [output.escaped(value)])]))
    return rows


def _shown(event: Event) -> dict[str, object]:
    changes = []
    for key, value, expires_ms in event.changes:
        row = {"key": output.show(key), "value": None if value is None else output.show(value)}
        if expires_ms:
            row["expires_ms"] = expires_ms
        changes.append(row)
    return {
        "event": event.kind,
        "version": str(event.version),
        "part": event.part,
        "last": event.last,
        "changes": changes,
    }

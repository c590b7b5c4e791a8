"""`kvorum backup TARGET`, `kvorum backup verify SOURCE`, `kvorum restore SOURCE`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kv.base.errors import Refused
from kvorum.cli import long_procedures, output
from kvorum.cli.connection import Connect, Json, errors_shown
from kvorum.cli.long_procedures import KeyFile, OnNodes, Rate, Resume

if TYPE_CHECKING:
    from kvorum.native.native import NativeBackend
    from kvorum.transfer.sealing import Key


def backup(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="Directory or URI; or `verify`.", show_default=False),
    ],
    source: Annotated[
        str | None,
        typer.Argument(metavar="[SOURCE]", help="Behind `verify`.", show_default=False),
    ] = None,
    rate: Rate = "",
    encrypt: Annotated[
        bool,
        typer.Option("--encrypt", help="Refuse if whoever writes it has no key."),
    ] = False,
    key_file: KeyFile = "",
    on_nodes: OnNodes = False,
    resume: Resume = 0,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Copy the whole cluster, as it is at one moment, to an empty directory or URI (s3://…,
    hdfs://…). `kvorum backup verify SOURCE` reads a backup and says whether it is whole.
    """
    from kvorum.transfer.allowed_places import opened
    from kvorum.transfer.backup import BACKUP, BACKUP_HERE, all_tables, lock_names
    from kvorum.transfer.sealing import read_key
    from kvorum.transfer.targets import is_own, uri_of

    if source is not None:
        if target != "verify":
            raise typer.BadParameter(f"got two places; did you mean `backup verify {source}`?")
        with errors_shown(json):
            key = read_key(key_file) if key_file else None
            _verify(opened(source, here=True), json, key)
        return
    with errors_shown(json):
        wanted = long_procedures.rate_of(rate)
        place = uri_of(target)

    here = is_own(target) and not on_nodes

    async def args(backend: NativeBackend) -> object:
        locks = lock_names(await all_tables(backend.txn))
        asked = {"encrypt": True} if encrypt or (key_file and not here) else {}
        return {"target": place, "locks": locks, "rate": wanted, **asked}

    found = long_procedures.run(
        (BACKUP, BACKUP_HERE),
        args,
        connect=connect,
        json=json,
        here=here,
        resume=resume,
        again="SCHEMA_CHANGED",
        same={"target": place},
        key_file=key_file,
    )
    if json:
        output.emit(found)
        return
    output.lines(
        [
            f"backup   {found['target']}",
            f"at       {found['at']}",
            f"holds    {found['tables']} tables, {found['rows']} rows, "
            f"{output.size(found['bytes'])} in {found['files']} files",
            *([f"key      {found['key']}"] if found["key"] else []),
        ]
    )


def _verify(place: Any, json: bool, key: Key | None) -> None:
    from kvorum.transfer.verify import verify

    live = sys.stderr.isatty()

    def said(number: int, of: int) -> None:
        if live:
            sys.stderr.write(f"\r\x1b[Kverify: {number} of {of} files")

    found = verify(place, said, key)
    if live:
        sys.stderr.write("\r\x1b[K")
    m = found.manifest
    if json:
        output.emit(
            {
                "source": place.uri,
                "whole": True,
                "at": str(m.at),
                "cluster": m.cluster,
                "files": m.files,
                "rows": m.rows,
                "bytes": m.size,
                "tables": list(m.tables),
            }
        )
        return
    output.lines(
        [
            f"whole    {place.uri}",
            f"at       {m.at}, of cluster {m.cluster}",
            f"holds    {len(m.tables)} tables, {m.rows} rows, {output.size(m.size)} in {m.files} "
            "files",
        ]
    )


async def _none_under_way(backend: NativeBackend, types: Sequence[str]) -> None:
    """A second restore would wait for the first one without a word, and find what it made. Raises
    Refused.
    """
    for name in types:
        for info in await backend.procedures(state=None, owner=None, name=name):
            if not info.finished:
                raise Refused(
                    f"a restore is not finished: procedure {info.id}. If its command was"
                    f" interrupted, go on with it: --resume {info.id}. To begin anew, end it first:"
                    f" kvorum proc abort {info.id}, then --resume {info.id}, which removes rows",
                    code="RESTORE_UNDER_WAY",
                    details={"procedure": str(info.id)},
                )


def restore(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Directory or URI.", show_default=False)
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Drop everything that is in the cluster first.")
    ] = False,
    rate: Rate = "",
    key_file: KeyFile = "",
    on_nodes: OnNodes = False,
    resume: Resume = 0,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Put a backup into an empty cluster: tables, sequences, roles, the markers of Spark sinks,
    and procedures, which go on.
    """
    from kvorum.transfer.restore import AGAIN, RESTORE, RESTORE_HERE
    from kvorum.transfer.targets import is_own, uri_of

    with errors_shown(json):
        wanted = long_procedures.rate_of(rate)
        place = uri_of(source)

    async def args(backend: NativeBackend) -> object:
        await _none_under_way(backend, (RESTORE, RESTORE_HERE))
        return {"source": place, "force": force, "rate": wanted}

    found = long_procedures.run(
        (RESTORE, RESTORE_HERE),
        args,
        connect=connect,
        json=json,
        here=is_own(source) and not on_nodes,
        resume=resume,
        again=AGAIN,
        same={"source": place},
        key_file=key_file,
    )
    if json:
        output.emit(found)
        return
    output.lines(
        [
            f"restored {found['source']}, as of {found['at']}",
            f"holds    {found['tables']} tables, {found['rows']} rows, "
            f"{output.size(found['bytes'])}; {found['procedures']} procedures go on",
        ]
    )

"""`kvorum get|put|delete|scan|txn`: single records and ranges from the shell."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kv.base.errors import AlreadyExists, NotFound, TooLarge
from kv.base.limits import VALUE_BYTES_MAX
from kvorum.cli import output
from kvorum.cli.connection import B64, Connect, Json, OfTable, key_of, opened, record_of, table_of
from procedures.engine.plain_data import Plain

if TYPE_CHECKING:
    from kvorum.sdk.sync import Database

Table = Annotated[str, typer.Argument(metavar="NAMESPACE/TABLE", show_default=False)]
Path = Annotated[str, typer.Argument(metavar="NAMESPACE/TABLE/KEY", show_default=False)]
At = Annotated[int | None, typer.Option("--at", help="Read the snapshot of this timestamp.", min=1)]
IfVersion = Annotated[
    int | None, typer.Option("--if-version", help="Only if this is its version now.", min=1)
]


def get(
    path: Path,
    table: OfTable = None,
    at: At = None,
    raw: Annotated[bool, typer.Option("--raw", help="The bytes alone, no newline.")] = False,
    b64: B64 = False,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print the value of a key. Exit code 1 if there is none."""
    ns, name, key = record_of(path, b64, table)
    with opened(connect, json) as db:
        record = db.table(ns, name).get(key, at=at)
    if record is None:
        missing = f"table {ns}.{name} has no key {output.escaped(key)!r}"
        output.die(NotFound(missing, code="KEY_NOT_FOUND"), as_json=json)
    if json:
        value, version = output.show(record.value), str(record.version)
        output.emit({"key": output.show(key), "value": value, "version": version})
        return
    output.raw(record.value if raw else record.value + b"\n")


def put(
    path: Path,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="- reads it from stdin.")],
    table: OfTable = None,
    if_absent: Annotated[
        bool, typer.Option("--if-absent", help="Only if the key does not exist.")
    ] = False,
    if_version: IfVersion = None,
    ttl_ms: Annotated[
        int | None, typer.Option("--ttl-ms", help="Milliseconds to live.", min=1)
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make namespace and table if they do not exist.")
    ] = False,
    b64: B64 = False,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Write a value and print its version."""
    ns, name, key = record_of(path, b64, table)
    data = _stdin(json) if value == "-" else value.encode(errors="surrogateescape")
    with opened(connect, json) as db:
        if create:
            _create(db, ns, name)
        version = db.table(ns, name).put(
            key, data, if_absent=if_absent, if_version=if_version, ttl_ms=ttl_ms
        )
    _print_version(version, json)


def delete(
    path: Path,
    table: OfTable = None,
    if_version: IfVersion = None,
    b64: B64 = False,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Remove a key and print the version of the removal."""
    ns, name, key = record_of(path, b64, table)
    with opened(connect, json) as db:
        version = db.table(ns, name).delete(key, if_version=if_version)
    _print_version(version, json)


def scan(
    table: Table,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin with this.")] = None,
    start: Annotated[str | None, typer.Option(help="First key, inclusive.")] = None,
    end: Annotated[str | None, typer.Option(help="Last key, exclusive.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="From the end.")] = False,
    limit: Annotated[int, typer.Option(help="Records at most; 0 = all.", min=0)] = 0,
    at: At = None,
    b64: B64 = False,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print records in key order, one per line: key, tab, value."""
    ns, name = table_of(table)
    bounds: Plain = {
        what: None if text is None else key_of(text, b64)
        for what, text in (("prefix", prefix), ("start", start), ("end", end))
    }
    shown: list[dict[str, object]] = []
    left = limit
    with opened(connect, json) as db:
        for item in db.table(ns, name).rows(**bounds, reverse=reverse, at=at):
            if json:
                shown.append(
                    {
                        "key": output.show(item.key),
                        "value": output.show(item.value),
                        "version": str(item.version),
                    }
                )
            else:
                output.lines([f"{output.escaped(item.key)}\t{output.escaped(item.value)}"])
            left -= 1
            if left == 0:
                break
    if json:
        output.emit({"items": shown})


def txn(
    what: Annotated[
        str, typer.Argument(metavar="[abort] ID", help="`abort` ends it; the id alone asks for it.")
    ],
    txn_id: Annotated[int | None, typer.Argument(metavar="", show_default=False, min=1)] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print what became of a transaction (pending, committed, aborted or unknown), or abort it.

    abort rolls back one that is still pending, whoever began it: one that stands in the way, by its
    id in KEY_LOCKED or in `kvorum locks`. Exit code 1 if it has committed, or nothing is known.
    """
    verb = "status" if txn_id is None else what
    number = what if txn_id is None else str(txn_id)
    if verb not in ("status", "abort") or not (number.isascii() and number.isdigit()):
        raise typer.BadParameter(f"{what!r}: give the id of a transaction, or `abort` and its id")
    with opened(connect, json) as db:
        if verb == "abort":
            db.abort_transaction(int(number))
            answer = {"status": "aborted"}
        else:
            state = db.status(int(number))
            answer = {"status": state.status}
            if state.commit_ts:
                answer["commit_ts"] = str(state.commit_ts)
    if json:
        output.emit(answer)
    else:
        output.lines([" ".join(answer.values())])


def _stdin(as_json: bool) -> bytes:
    """A value from stdin, which may never end: no more is read than a value may have."""
    data = sys.stdin.buffer.read(VALUE_BYTES_MAX + 1)
    if len(data) > VALUE_BYTES_MAX:
        error = TooLarge(
            f"the value on stdin has more than {VALUE_BYTES_MAX} bytes, the limit of a value; cut "
            "it into several records",
            details={"what": "value", "limit": VALUE_BYTES_MAX, "actual": len(data)},
        )
        output.die(error, as_json=as_json)
    return data


def _create(db: Database, ns: str, name: str) -> None:
    """A namespace and a table that may exist already."""
    for make in (lambda: db.create_namespace(ns), lambda: db.create_table(ns, name)):
        with contextlib.suppress(AlreadyExists):
            make()


def _print_version(version: int, json: bool) -> None:
    if json:
        output.emit({"version": str(version)})
    else:
        output.lines([str(version)])

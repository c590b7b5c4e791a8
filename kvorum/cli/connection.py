"""What the client commands share: where to connect, how to read keys and names, how
errors end the process.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer

from kv.base.config import PORT_DEFAULT
from kv.base.errors import InvalidArgument, KvorumError
from kvorum.cli import output

if TYPE_CHECKING:
    from kvorum.sdk.sync import Database

DEFAULT = f"127.0.0.1:{PORT_DEFAULT}"
Connect = Annotated[
    str | None,
    typer.Option(
        "--connect",
        envvar="KVORUM_CONNECT",
        help=f"HOST:BASE[,HOST:BASE…], or http://HOST:PORT; {DEFAULT} if left out.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]
Clock = Annotated[
    str | None,
    typer.Option(
        metavar="oracle|hybrid",
        help="Where timestamps come from, of a new cluster and for good; oracle if left out.",
        show_default=False,
    ),
]
B64 = Annotated[bool, typer.Option("--b64", help="Keys are base64url.")]

OfTable = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="NAMESPACE/TABLE",
        help="The table, which may have slashes in its name; the argument is the key alone then.",
        show_default=False,
    ),
]


_SAID: Final = {
    "tls_dir": ("KVORUM_TLS_DIR", "DIR", "ca.crt and, if there is one, a client's certificate."),
    "ca": ("KVORUM_CA", "FILE", "Who signs the nodes."),
    "token_file": ("KVORUM_TOKEN_FILE", "FILE", "Its first line is a token."),
}


def clients(app: typer.Typer) -> None:
    """Every command below that connects takes the options of _SAID, too. What is given is in the
    environment then, where every way to connect finds it.
    """
    for command in app.registered_commands:
        if command.callback is not None and "connect" in command.callback.__annotations__:
            command.callback = _said_to(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            clients(group.typer_instance)


def _said_to(work: Callable[..., object]) -> Callable[..., object]:
    hints = get_type_hints(work, include_extras=True)
    own = inspect.signature(work).parameters
    more = {
        name: Annotated[
            str | None,
            typer.Option(
                "--" + name.replace("_", "-"),
                metavar=metavar,
                help=f"{words} {variable}",
                show_default=False,
            ),
        ]
        for name, (variable, metavar, words) in _SAID.items()
        if name not in own
    }

    @functools.wraps(work)
    def run(**given: Any) -> object:
        for name in more:
            if (value := given.pop(name, None)) is not None:
                os.environ[_SAID[name][0]] = value
        return work(**given)

    kind = inspect.Parameter.KEYWORD_ONLY
    wanted = [one.replace(annotation=hints[name], kind=kind) for name, one in own.items()]
    wanted += [inspect.Parameter(n, kind, default=None, annotation=a) for n, a in more.items()]
    run.__dict__["__signature__"] = inspect.Signature(wanted)
    run.__annotations__ = {**hints, **more}
    return run


@contextlib.contextmanager
def opened(connect: str | None, as_json: bool) -> Iterator[Database]:
    """A database for one command. Any error ends the process with one line and exit code 1."""
    from kvorum.connecting import connect as connect_to

    with errors_shown(as_json), connect_to(connect or DEFAULT) as db:
        yield db


@contextlib.contextmanager
def errors_shown(as_json: bool) -> Iterator[None]:
    """Any error ends the process with one line and exit code 1."""
    try:
        yield
    except KvorumError as e:
        output.die(e, as_json=as_json)
    except KeyboardInterrupt:
        output.die("interrupted", as_json=as_json)


def table_of(text: str) -> tuple[str, str]:
    """NAMESPACE/TABLE, or NAMESPACE.TABLE; a bare name is a table of the namespace `default`. The
    namespace ends at the first one: a table's name may have more of them.
    """
    parts = re.split("[./]", text, maxsplit=1)
    if not all(parts):
        raise typer.BadParameter(f"{text!r} is not NAMESPACE/TABLE")
    return (parts[0], parts[1]) if len(parts) == 2 else ("default", parts[0])


def record_of(path: str, b64: bool, table: str | None = None) -> tuple[str, str, bytes]:
    """NAMESPACE/TABLE/KEY, as in the HTTP API; the key is all that follows, slashes included. With
    `table`, whose name may have slashes, it is the key alone.
    """
    if table is not None:
        if not path:
            raise typer.BadParameter("the key is empty")
        return *table_of(table), key_of(path, b64)
    parts = path.split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise typer.BadParameter(f"{path!r} is not NAMESPACE/TABLE/KEY")
    return parts[0], parts[1], key_of(parts[2], b64)


def key_of(text: str, b64: bool) -> bytes:
    """A key from the command line. Ends the process if it is not base64 and should be."""
    if not b64:
        return text.encode(errors="surrogateescape")
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        output.die(InvalidArgument(f"{text!r} is not base64url"))

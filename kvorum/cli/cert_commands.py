"""`kvorum cert ca|node|client`: certificates for a cluster, without any other tool.

`cryptography` takes 0.15 s to import, so that only these commands do it.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kv.base import tls
from kvorum.cli import output
from kvorum.cli.connection import Json

if TYPE_CHECKING:
    from kvorum.security.certificates import Made

app = typer.Typer(
    no_args_is_help=True,
    help="Make the certificates of a cluster: an authority, nodes, clients.",
)

Directory = Annotated[
    Path, typer.Option("--dir", help="Where the files are; made if it is missing.")
]
Renew = Annotated[bool, typer.Option("--renew", help="Replace what is there.")]
Days = Annotated[int, typer.Option("--days", help="How long it is valid.", min=1, max=36_500)]


@app.command()
def ca(directory: Directory, days: Days = 3_650, renew: Renew = False, json: Json = False) -> None:
    """Make ca.crt, which everybody gets, and ca.key, which signs: keep it off the nodes."""
    from kvorum.security import certificates

    made = certificates.authority(_now(), days=days)
    _save(directory, certificates.AUTHORITY, made, renew=renew, json=json)


@app.command()
def node(
    directory: Directory,
    host: Annotated[
        list[str],
        typer.Option(help="A name or an address that the node is reached by; several times."),
    ],
    days: Days = 825,
    renew: Renew = False,
    json: Json = False,
) -> None:
    """Make node.crt and node.key of a node or a proxy, signed by the authority in DIR."""
    from kvorum.security import certificates

    made = certificates.node(_signer(directory), host, _now(), days=days)
    _save(directory, tls.NODE, made, renew=renew, json=json)


@app.command()
def client(
    directory: Directory,
    user: Annotated[str, typer.Option(help="The user or service account.")],
    days: Days = 825,
    renew: Renew = False,
    json: Json = False,
) -> None:
    """Make client.USER.crt and client.USER.key, signed by the authority in DIR."""
    from kvorum.security import certificates

    made = certificates.client(_signer(directory), user, _now(), days=days)
    _save(directory, tls.client_files(user), made, renew=renew, json=json)


def _signer(directory: Path) -> Made:
    from kvorum.security import certificates

    return certificates.load(*(directory / name for name in certificates.AUTHORITY))


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _save(directory: Path, names: tuple[str, str], made: Made, *, renew: bool, json: bool) -> None:
    from kvorum.security import certificates

    paths = certificates.save(directory, names, made, renew=renew)
    ends = certificates.expires(made.certificate)
    if json:
        output.emit({"files": [str(p) for p in paths], "expires": ends.isoformat()})
    else:
        output.lines([f"{paths[1]} and {paths[0]}, valid until {ends:%Y-%m-%d}"])

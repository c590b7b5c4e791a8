"""`kvorum init`, and `kvorum user|role|token|grant …`.

Passwords come from a prompt, from stdin (`--password-stdin`) or from a file (`--password-file`),
never from the command line, which everybody on the machine can read.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kv.base.errors import InvalidArgument, Refused, Unauthenticated
from kv.base.rights import Action, Kind
from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened
from procedures.engine.plain_data import Plain

users = typer.Typer(no_args_is_help=True, help="Users and service accounts.", rich_markup_mode=None)
groups = typer.Typer(no_args_is_help=True, help="Groups of users.", rich_markup_mode=None)
tokens = typer.Typer(no_args_is_help=True, help="Tokens of users.", rich_markup_mode=None)
grants = typer.Typer(no_args_is_help=True, help="Who may do what.", rich_markup_mode=None)

_KINDS = {kind.value.partition(" ")[0]: kind for kind in Kind}  # "procedure" for its types
User = Annotated[str, typer.Argument(metavar="USER", show_default=False)]
Group = Annotated[str, typer.Argument(metavar="ROLE", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="NAME", help="What it is for.", show_default=False)]
Actions = Annotated[
    str,
    typer.Argument(
        metavar="ACTION,…",
        help=", ".join(sorted(set(Action) - {Action.NODE})),
        show_default=False,
    ),
]
On = Annotated[
    str,
    typer.Argument(
        metavar="cluster|KIND:NAME",
        help=f"KIND is one of {', '.join(sorted(set(_KINDS) - {'cluster'}))}; a table is named "
        "NAMESPACE.TABLE; NAME* is all that begin so.",
        show_default=False,
    ),
]
Stdin = Annotated[bool, typer.Option("--password-stdin", help="A password: stdin's first line.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", help="A password: the file's first line.", show_default=False),
]


def init(connect: Connect = None, json: Json = False) -> None:
    """Make the first administrator and print its token, once: nobody gets in without one then."""
    with opened(connect, json) as db:
        try:
            made = db.access("init")
        except Unauthenticated:
            raise Refused(
                "this cluster has users already: an admin makes others with `kvorum user create`",
                code="INITIALIZED",
            ) from None
    if json:
        output.emit(made)
    else:
        output.lines(
            [
                f"user   {made['user']}",
                f"token  {made['token']}",
                "Keep it: it is not shown again. Commands take it from KVORUM_TOKEN, or from the "
                "file that KVORUM_TOKEN_FILE names.",
            ]
        )


@users.command("list")
@groups.command("list")
def list_users(connect: Connect = None, json: Json = False) -> None:
    """Print all users and groups."""
    titles = ("NAME", "LOGIN", "SUPERUSER", "PASSWORD", "MEMBER_OF")
    shown = ("name", "login", "superuser", "has_password", "member_of")
    _list("user.list", titles, shown, connect, json)


@users.command("create")
def create_user(
    user: User,
    superuser: Annotated[bool, typer.Option("--superuser", help="It may do everything.")] = False,
    role: Annotated[
        list[str] | None, typer.Option("--role", help="It becomes a member; repeatable.")
    ] = None,
    password: Annotated[bool, typer.Option("--password", help="Ask for a password.")] = False,
    password_stdin: Stdin = False,
    password_file: PasswordFile = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Make a user or a service account. Without a password: by tokens or a certificate."""
    secret = _password(ask=password, stdin=password_stdin, file=password_file)
    named = {"name": user, "superuser": superuser, "groups": role or []}
    _do("user.create", connect, json, **named, password=secret)


@users.command("passwd")
def passwd(
    user: User,
    none: Annotated[bool, typer.Option("--none", help="It has none from now on.")] = False,
    password_stdin: Stdin = False,
    password_file: PasswordFile = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Give a user another password."""
    ask = not none
    secret = None if none else _password(ask=ask, stdin=password_stdin, file=password_file)
    _do("user.password", connect, json, name=user, password=secret)


@users.command("delete")
@groups.command("delete")
def delete_user(user: User, connect: Connect = None, json: Json = False) -> None:
    """Remove a user or a group, with its tokens and grants."""
    _do("user.delete", connect, json, name=user)


@groups.command("create")
def create_group(role: Group, connect: Connect = None, json: Json = False) -> None:
    """Make a group: members have what it is granted; nobody logs in as it."""
    _do("user.create", connect, json, name=role, login=False)


@groups.command("grant")
def grant_role(role: Group, user: User, connect: Connect = None, json: Json = False) -> None:
    """Make a user a member of a group."""
    _do("role.grant", connect, json, user=user, role=role)


@groups.command("revoke")
def revoke_role(role: Group, user: User, connect: Connect = None, json: Json = False) -> None:
    """End a membership."""
    _do("role.revoke", connect, json, user=user, role=role)


@tokens.command("list")
def list_tokens(
    user: Annotated[str | None, typer.Option(help="Only of this user.")] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print the tokens that there are, without their texts."""
    titles = ("USER", "NAME", "CREATED_MS", "EXPIRES_MS", "LIMITS")
    shown = ("user", "name", "created_ms", "expires_ms", "limits")
    _list("token.list", titles, shown, connect, json, user=user)


@tokens.command("create")
def create_token(
    user: User,
    name: Name,
    ttl_hours: Annotated[
        float, typer.Option("--ttl-hours", help="It ends after so long; 0 = never.", min=0)
    ] = 0,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="ACTION,…@cluster|KIND:NAME",
            help="Limit it to this; repeatable.",
        ),
    ] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Make a token and print its text, once."""
    limits = None if not only else [_limit(one) for one in only]
    said = {"user": user, "name": name, "ttl_ms": int(ttl_hours * 3_600_000), "limits": limits}
    with opened(connect, json) as db:
        made = db.access("token.create", said)
    if json:
        output.emit(made)
    else:
        output.lines([made["token"]])


@tokens.command("revoke")
def revoke_token(user: User, name: Name, connect: Connect = None, json: Json = False) -> None:
    """End a token."""
    _do("token.revoke", connect, json, user=user, name=name)


@grants.command("list")
def list_grants(
    role: Annotated[str | None, typer.Option(help="Only of this user or group.")] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print what was granted. What SQL's GRANT gave on its tables is in SQL's catalog."""
    titles = ("ROLE", "ACTIONS", "KIND", "NAMESPACE", "NAME")
    shown = ("role", "actions", "kind", "namespace", "name")
    _list("grant.list", titles, shown, connect, json, role=role)


@grants.command("give")
def give(
    role: Group, actions: Actions, on: On, connect: Connect = None, json: Json = False
) -> None:
    """Grant actions to a user or a group; `public` is everybody."""
    _do("grant.give", connect, json, role=role, **_grant(actions, on))


@grants.command("take")
def take(
    role: Group, actions: Actions, on: On, connect: Connect = None, json: Json = False
) -> None:
    """Take granted actions away."""
    _do("grant.take", connect, json, role=role, **_grant(actions, on))


def _do(what: str, connect: str | None, as_json: bool, **args: object) -> None:
    with opened(connect, as_json) as db:
        answer = db.access(what, args)
    if as_json:
        output.emit(answer)


def _list(
    what: str,
    titles: tuple[str, ...],
    shown: tuple[str, ...],
    connect: str | None,
    as_json: bool,
    **args: object,
) -> None:
    with opened(connect, as_json) as db:
        items = db.access(what, args)
    if as_json:
        output.emit({"items": items})
        return
    output.table(titles, [[_cell(item[name]) for name in shown] for item in items])


def _cell(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "-"
        case dict():
            return f"{_cell(value['actions'])}@{_as_text(value)}"
        case list():
            return (" " if value and isinstance(value[0], dict) else ",").join(
                map(_cell, value)
            ) or "-"
        case None | "" | 0:
            return "-"
        case _:
            return str(value)


def _as_text(grant: Plain) -> str:
    dotted = ".".join(part for part in (grant["namespace"], grant["name"]) if part)
    return f"{grant['kind'].partition(' ')[0]}:{dotted}" if dotted else str(grant["kind"])


def _limit(text: str) -> dict[str, object]:
    actions, at, on = text.partition("@")
    if not at:
        raise typer.BadParameter(f"{text!r} is not ACTION,…@cluster or ACTION,…@KIND:NAME")
    return _grant(actions, on)


def _grant(actions: str, on: str) -> dict[str, object]:
    """As kvorum/native/access.py takes it."""
    kind, colon, name = on.partition(":")
    if kind not in _KINDS or (kind == Kind.CLUSTER) == bool(colon):
        raise typer.BadParameter(f"{on!r} is neither cluster nor {'|'.join(sorted(_KINDS))}:NAME")
    namespace = ""
    if _KINDS[kind] is Kind.TABLE:
        namespace, _, name = name.partition(".")
    return {
        "actions": [one for one in actions.split(",") if one],
        "kind": _KINDS[kind].value,
        "name": name or None,
        "namespace": namespace or None,
    }


def _password(*, ask: bool, stdin: bool, file: Path | None) -> str | None:
    """Raises InvalidArgument."""
    if stdin:
        return _line(sys.stdin.readline(), "stdin")
    if file is not None:
        with file.open() as source:
            return _line(source.readline(), str(file))
    if not ask:
        return None
    if not sys.stdin.isatty():
        raise InvalidArgument(
            "nobody is there to ask for a password: give it by --password-stdin or --password-file"
        )
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))


def _line(text: str, where: str) -> str:
    found = text.rstrip("\r\n")
    if not found:
        raise InvalidArgument(f"{where} has no password in its first line")
    return found

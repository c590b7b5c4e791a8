"""The one door to places: every step of a procedure opens its place here, each time. A node opens
only those that its setting transfer_places lists.

    file:///srv/backup       this directory and what is below it
    s3://bucket/kvorum       this prefix and what is below it; so of gs, hdfs, abfs
    sftp://host/backups      this URL and what is below it, by fsspec
                             (kvorum.transfer.places)
    postgresql://db:5432/x   this server (and this database, this user, if they are named)

Whoever submits a procedure need not own the node's files, nor its credentials, nor what it reaches:
without a list, `file:///etc` would be read, and written, as the node's user, and any server of its
network be asked. Options of a URL (`?endpoint_override=…`, another server) come from the list only.
Links are followed before the comparison, and not after it: somebody else may write there, too. The
process of a command is its user's own: nothing is refused there.

A database's URL is compared by its parts, and only what both urllib and libpq read as the same
server is taken: no list of hosts, no option that names another one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from kv.base.errors import InvalidArgument, KvorumError
from kvorum.transfer import postgresql
from kvorum.transfer.places import Directory, Place, place_of
from kvorum.transfer.targets import (
    FSSPEC_PREFIX,
    check_no_keys,
    is_local,
    local_path,
    scheme_of,
)

SETTING: Final = "transfer_places"
_FILES: Final = frozenset({"file", "local"})
_WITH_QUERIES: Final = frozenset({"http", "https"})
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_DATABASE = re.compile(
    r"postgres(?:ql)?://(?:([^\s@:/,?#\[\]%\\]+)@)?"
    r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?"
    r"(?:/([^\s/?#\\]*))?(?:\?([^\s#]*))?"
)
_OPTIONS: Final = frozenset({"table", "sslmode", "connect_timeout", "application_name"})
_PORT: Final = "5432"
_DATABASES: Final = ("jdbc:", "mysql:", "mariadb:", "oracle:", "sqlserver:", "mssql:", "db2:")


def opened(target: str, *, here: bool, listed: Sequence[str] | None = None) -> Place:
    """The place. `here`: for the process of a command. `listed`: what the node's setting lists;
    None: the node is only its own process's. Blocks. Raises InvalidArgument: a bare path means
    another directory at every node, it is not listed, or it has keys in it.
    """
    check_no_keys(target)
    if target.lower().startswith(_DATABASES):
        raise InvalidArgument(
            f"{target!r}: of databases PostgreSQL's are read (postgresql://USER@HOST/DB?table=…);"
            " of others by Spark, which brings their drivers: spark.read.jdbc(…), written with"
            " format kvorum (docs/guides/import-export.md)"
        )
    if scheme_of(target).removeprefix(FSSPEC_PREFIX) == "memory":
        raise InvalidArgument(
            f"{target!r} is the memory of one process, and gone with it: name a place that stays"
        )
    if not here and is_local(target) and not target.startswith("file:///"):
        raise InvalidArgument(
            f"{target!r} is a path: nodes take URIs that all of them see (s3://…, hdfs://…, or "
            "file:///… of a shared file system)"
        )
    if here or listed is None:
        return _place_of(target)
    if _CONTROL.search(unquote(target)):
        raise InvalidArgument(f"{target!r}: there are control characters in it")
    if is_local(target):
        return _directory(target, listed)
    return _place_of(_listed_url(target, listed), trusted=False)


def _place_of(target: str, *, trusted: bool = True) -> Place:
    try:
        return place_of(target, trusted=trusted)
    except KvorumError as error:
        raise InvalidArgument(error.message) from error


def _directory(target: str, listed: Sequence[str]) -> Place:
    try:
        path = os.path.realpath(local_path(target))
        roots = [os.path.realpath(local_path(one)) for one in listed if is_local(one)]
    except ValueError as error:
        raise InvalidArgument(f"{target!r} is no path: {error}") from error
    if not any(os.path.commonpath((root, path)) == root for root in roots):
        raise _not_listed(target, listed)
    return Directory(Path(path), links=False)


def _listed_url(target: str, listed: Sequence[str]) -> str:
    """The URL to open: it has the options of the listed one."""
    scheme = scheme_of(target).removeprefix(FSSPEC_PREFIX)
    if "::" in target or scheme in _FILES or _climbs(target):
        raise InvalidArgument(
            f"{target!r}: nodes take no chains of URLs, no '..', and their own files as"
            " file:///… alone; without --on-nodes the command takes them"
        )
    if scheme in _WITH_QUERIES:  # of the thing itself
        if not any(_below(one, target) for one in listed):
            raise _not_listed(target, listed)
        return target
    url, given, options = target.partition("?")
    known = [one.partition("?")[2] for one in listed if _below(one.partition("?")[0], url)]
    if not known:
        raise _not_listed(target, listed)
    same = [one for one in known if not given or _options(one) == _options(options)]
    if not same or "#" in target:
        raise InvalidArgument(
            f"{target!r}: nodes take a place's options (after the ?) from their setting"
            f" {SETTING} only: list the place with them there, and leave them out here",
            details={"setting": SETTING},
        )
    return f"{url}?{same[0]}" if same[0] else url


def _options(query: str) -> list[tuple[str, str]]:
    return sorted(parse_qsl(query, keep_blank_values=True))


def _climbs(target: str) -> bool:
    """Whether a server may read a part of it as the directory above: some decode it, take \\ for a
    slash, or cut what follows a semicolon.
    """
    parts = re.split(r"[/\\]", unquote(target))
    return any(part.partition(";")[0].strip() == ".." for part in parts)


def _below(listed: str, target: str) -> bool:
    """Whether it is this URL, or one below."""
    root = listed.rstrip("/")
    return target == root or target.startswith(root + "/")


def check_database(source: str, *, here: bool, listed: Sequence[str] | None = None) -> None:
    """As `opened`, of a postgresql:// URL. Raises InvalidArgument."""
    postgresql.check_no_password(source)
    if here or listed is None:
        return
    asked = _server(source)
    servers = [one for one in map(_server, listed) if one is not None]
    if asked is None or not any(_covers(one, asked) for one in servers):
        raise _not_listed(source, listed)
    names = {name for name, _ in parse_qsl(asked.query, keep_blank_values=True)}
    if extra := sorted(names - _OPTIONS):
        raise InvalidArgument(
            f"{source!r}: the option {extra[0]} could name another server or a file of the node; "
            f"nodes take {', '.join(sorted(_OPTIONS))}; without --on-nodes every option is taken"
        )


class _Server(NamedTuple):
    user: str
    host: str
    port: str
    database: str
    query: str


def _server(url: str) -> _Server | None:
    """None: it is not one that both readers read alike."""
    found = _DATABASE.fullmatch(url)
    if found is None:
        return None
    user, host, port, database, query = (part or "" for part in found.groups())
    return _Server(user, host.lower(), port or _PORT, database, query)


def _covers(one: _Server, asked: _Server) -> bool:
    return (
        (one.host, one.port) == (asked.host, asked.port)
        and one.user in ("", asked.user)
        and one.database in ("", asked.database)
    )


def _not_listed(target: str, listed: Sequence[str]) -> InvalidArgument:
    return InvalidArgument(
        f"{target!r} is none of the places that this node's procedures may use "
        f"({', '.join(listed) or 'none is listed'}): list it in the setting {SETTING} of every "
        "node (--transfer-places, KVORUM_TRANSFER_PLACES), or let the command do it with its own "
        "user's files and credentials: without --on-nodes, of a store as fsspec+s3://…",
        details={"setting": SETTING},
    )

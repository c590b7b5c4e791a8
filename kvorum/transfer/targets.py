"""What people name a place by, as text: a path of this machine, or a URI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from kv.base.config_values import STORES, secret_options
from kv.base.errors import InvalidArgument

LOCAL_SCHEME: Final = "file"
FSSPEC_PREFIX: Final = "fsspec+"
"""Of a URI that fsspec is to open, whoever else could."""
_WITH_PORTS: Final = frozenset({"hdfs", "viewfs", "webhdfs", "swebhdfs", "http", "https"})
"""Schemes whose URLs have a port more often than a password: host:8020/a@b has none."""


def is_local(target: str) -> bool:
    """Whether it names something of one machine: a path, or a file:// URI."""
    return "://" not in target or target.startswith(f"{LOCAL_SCHEME}://")


def scheme_of(target: str) -> str:
    """s3 of s3://…; "" of a path."""
    scheme, found, _ = target.partition("://")
    return scheme.lower() if found else ""


def is_own(target: str) -> bool:
    """Whether the process of a command reads and writes there, if the nodes are not to do it: its
    user's files, and what its user's credentials open.
    """
    return scheme_of(target) not in STORES


def local_path(target: str) -> str:
    """The absolute path of a local target."""
    if "://" in target:
        parts = urlsplit(target)
        if parts.netloc not in ("", "localhost"):
            raise InvalidArgument(
                f"{target!r}: file:// takes an absolute path of this machine (file:///path)"
            )
        target = unquote(parts.path)
    if not target:
        raise InvalidArgument("the path is empty")
    return os.path.abspath(os.path.expanduser(target))


def uri_of(target: str) -> str:
    """As other processes understand it: a path of this machine becomes a file:// URI."""
    return Path(local_path(target)).as_uri() if is_local(target) else target


def check_no_keys(target: str) -> None:
    """Keys of an object store would be kept in clear in the procedure's arguments, its history and
    every backup. Raises InvalidArgument, which does not repeat them.
    """
    scheme, found, rest = target.partition("://")
    if not found or is_local(target):
        return
    # Not everybody quotes a slash in a secret: whatever stands before an @ counts, but host:port/
    # where that is usual.
    user, at, _ = rest.partition("@")
    host, slash, _ = user.partition("/")
    port = bool(slash) and host.rpartition(":")[2].isdigit()
    ported = scheme.lower().removeprefix(FSSPEC_PREFIX) in _WITH_PORTS
    keys = bool(at) and ":" in user and not (port and ported)
    if keys or secret_options(rest.partition("?")[2]):
        raise InvalidArgument(
            f"the {scheme}:// place has keys in it, which would be kept in the procedure's record:"
            " leave them out, and give them to the process that reads and writes there (the"
            " nodes): AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the role of the"
            " machine"
        )

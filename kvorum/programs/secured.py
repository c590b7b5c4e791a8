"""Everything that TLS and a first administrator take, for a cluster on one machine: `kvorum dev
--secure`, `kvorum cluster up --secure`.

    AT/authority/     ca.crt, ca.key: to make more users with `kvorum cert client`
    AT/node/          --tls-dir of its nodes
    AT/admin/         --tls-dir of the administrator; token: what logs in to the console
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Final

from kv.base.tls import CA, NODE, client_files

ADMIN: Final = "admin"  # who `kvorum init` makes
HOSTS: Final = ("localhost", "127.0.0.1", "::1")


def node_dir(at: Path) -> Path:
    return at / "node"


def admin_dir(at: Path) -> Path:
    return at / ADMIN


def logins(at: Path) -> list[str]:
    """How to come as the administrator of a cluster whose files are `at`."""
    admin = admin_dir(at).absolute()
    return [
        f"export KVORUM_TLS_DIR={admin}",
        f"the console takes the token in {admin / 'token'}",
    ]


def make(at: Path, now: datetime) -> None:
    """The files, unless they are there. Raises InvalidArgument, OSError."""
    from kvorum.security import certificates  # takes 0.15 s

    if node_dir(at).exists():
        return
    authority = certificates.authority(now)
    certificates.save(at / "authority", certificates.AUTHORITY, authority)
    for directory, names, made in (
        (admin_dir(at), client_files(ADMIN), certificates.client(authority, ADMIN, now)),
        (node_dir(at), NODE, certificates.node(authority, HOSTS, now)),
    ):
        certificates.save(directory, names, made)
        (directory / CA).write_bytes(authority.certificate)


def initialise(at: Path, addresses: str) -> None:
    """Make the administrator and keep his token, once. Raises KvorumError, OSError."""
    from kvorum.connecting import connect

    token = admin_dir(at) / "token"
    if token.exists():
        return
    with connect(f"kvorums://{addresses}", tls_dir=admin_dir(at)) as db:
        text = db.access("init")["token"]
    with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text + "\n")

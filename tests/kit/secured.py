"""A cluster of real processes with TLS and users, and credentials of every kind, good and bad."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import kvorum
from kv.base.tls import CA, NODE, client_files
from kvorum.security import certificates
from kvorum.security.certificates import Made
from tests.kit.machine import free_port_base
from tests.kit.processes import READY_S, NodeProcess

NOW: Final = datetime.datetime.now(datetime.UTC)
HOSTS: Final = ["localhost", "127.0.0.1"]
PASSWORD: Final = "correct horse battery"


class Secured:
    """`home` has a directory of files for each kind of client:

    boss, ann, eve    a user's certificate: ann may what a test grants her, eve nothing
    foreign           one of ann's name, by an authority that the nodes do not believe
    expired           ann's of last week
    mistaken          ann's, with another authority's ca.crt
    """

    def __init__(self, home: Path, count: int = 3, *options: str) -> None:
        self.home = home
        self.ca = certificates.authority(NOW)
        other = certificates.authority(NOW)
        then = NOW - datetime.timedelta(days=9)
        for user in ("boss", "ann", "eve"):
            self._client(user, certificates.client(self.ca, user, NOW), self.ca)
        self._client("foreign", certificates.client(other, "ann", NOW), self.ca)
        self._client("expired", certificates.client(self.ca, "ann", then, days=1), self.ca)
        self._client("mistaken", certificates.client(self.ca, "ann", NOW), other)
        first = free_port_base(count + 1)
        self.bases = [first + 10 * n for n in range(count + 1)]
        self.join = ",".join(f"127.0.0.1:{base}" for base in self.bases[:count])
        self.options = options
        self.nodes = [
            NodeProcess(
                home / f"data{n}",
                base,
                *(("--join", self.join) if count > 1 else ()),
                *("--node-id", str(n), *options),
                tls_dir=self.node_files(f"node{n}"),
            )
            for n, base in enumerate(self.bases[:count], 1)
        ]

    def _client(self, name: str, made: Made, authority: Made) -> None:
        user = "ann" if name in ("foreign", "expired", "mistaken") else name
        certificates.save(self.home / name, client_files(user), made)
        self._believing(self.home / name, authority)

    def _believing(self, at: Path, authority: Made) -> None:
        (at / CA).write_bytes(authority.certificate)

    def node_files(self, name: str, ca: Made | None = None, days: int = 30) -> Path:
        """A node's directory, which believes the cluster's authority, whoever made its own."""
        then = NOW if days > 0 else NOW - datetime.timedelta(days=9)
        made = certificates.node(ca or self.ca, HOSTS, then, days=abs(days))
        certificates.save(self.home / name, NODE, made, renew=True)
        self._believing(self.home / name, self.ca)
        return self.home / name

    @property
    def url(self) -> str:
        return f"kvorums://{self.join}"

    def start(self) -> None:
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            self.wait(node)

    def wait(self, node: NodeProcess) -> None:
        until = time.monotonic() + READY_S
        while not node.ready():
            assert node.exit_code_now() is None, node.tail()
            assert time.monotonic() < until, node.tail()
            time.sleep(0.05)

    def found_users(self) -> None:
        """`kvorum init`, and its users; each has a token in a file beside its certificate."""
        with kvorum.connect(self.url, ca=self.home / "boss" / CA) as db:
            token = db.access("init")["token"]
        with kvorum.connect(self.url, ca=self.home / "boss" / CA, token=token) as db:
            for user in ("boss", "ann", "eve"):
                said = {"superuser": user == "boss", "password": PASSWORD}
                db.access("user.create", {"name": user, **said})
                made = db.access("token.create", {"user": user, "name": "test"})
                self.private(f"{user}/token", made["token"])
            self.private("boss/password", PASSWORD)

    def private(self, name: str, text: str) -> Path:
        path = self.home / name
        path.touch(mode=0o600)
        path.write_text(text)
        return path

    def right(self, user: str) -> dict[str, Mapping[str, str]]:
        """The ways in which a user logs in, as an environment."""
        at = self.home / user
        with_ca = {"KVORUM_CA": str(at / CA)}
        return {
            "certificate": {"KVORUM_TLS_DIR": str(at)},
            "token": {**with_ca, "KVORUM_TOKEN_FILE": str(at / "token")},
        }

    def wrong(self) -> dict[str, tuple[Mapping[str, str], str]]:
        """By its name, a way that must fail, and what the error must say."""
        at = {name: str(self.home / name) for name in ("foreign", "expired", "mistaken")}
        believed = "believe|certificate|log in|password"
        nobody = {"KVORUM_CA": str(self.home / "boss" / CA)}
        token = {"KVORUM_TOKEN": "kvt_" + "x" * 16 + "_" + "y" * 43}
        return {
            "plain text": ({}, "TLS"),
            "no credential": (nobody, "log in|Log in|password|UNAUTHENTICATED"),
            "another token": (
                {**nobody, **token},
                "verified|password|Log in|failed logins",
            ),
            "another authority": ({"KVORUM_TLS_DIR": at["mistaken"]}, "not believed|verify failed"),
            "a foreign certificate": ({"KVORUM_TLS_DIR": at["foreign"]}, believed),
            "an ended certificate": ({"KVORUM_TLS_DIR": at["expired"]}, believed),
        }

    def stop(self) -> None:
        for node in self.nodes:
            node.__exit__()


@contextmanager
def secured(home: Path, count: int = 3, *options: str) -> Iterator[Secured]:
    """Started, with users."""
    made = Secured(home, count, *options)
    try:
        made.start()
        made.found_users()
        yield made
    finally:
        made.stop()

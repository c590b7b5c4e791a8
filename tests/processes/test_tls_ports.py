"""A node with TLS on all its ports, as a real process: who gets in with which certificate, and what
clients do to it that speak something else, or nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import socket
import ssl
import struct
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import kvorum
from kv.base.errors import KvorumError, Refused
from kv.base.rpc import FrameEncoder, Hello
from kv.base.tls import CA, NODE, Tls, client_files
from kvorum.security import certificates
from raft import handshake
from raft.handshake import Handshake, Identity
from tests.kit.commands import run, told
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess
from tests.kit.waiting import poll

NOW = datetime.datetime.now(datetime.UTC)
HOSTS = ["localhost", "127.0.0.1"]
SSL_REQUEST = struct.pack(">II", 8, 80877103)
GARBAGE = [
    b"\x16",  # a handshake begins, and nothing follows
    b"\x16\x03\x01\xff\xff" + b"\x00" * 64,
    b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
    b"\x16\x03\x01\x40\x00" + bytes(range(256)) * 64,
    b"\x15\x03\x03\x00\x02\x02\x28",
    b"\x80\x2e\x01\x00\x02",  # SSL 2
    b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"\xff" * 70_000,
]
WHOSE = ("nobody", "ann", "node", "stranger", "expired")


def make(at: Path) -> Path:
    """The cluster's certificates, and beside them those of others: DIR/stranger, DIR/expired."""
    ca = certificates.authority(NOW)
    certificates.save(at, certificates.AUTHORITY, ca)
    certificates.save(at, NODE, certificates.node(ca, HOSTS, NOW))
    certificates.save(at, client_files("ann"), certificates.client(ca, "ann", NOW))
    then = NOW - datetime.timedelta(days=9)
    late = certificates.client(ca, "ann", then, days=1)
    certificates.save(at / "expired", client_files("ann"), late)
    other = certificates.authority(NOW)
    posing = certificates.node(other, HOSTS, NOW)
    certificates.save(at / "stranger", client_files("ann"), posing)
    return at


def tls_of(at: Path, whose: str) -> Tls:
    """What a client of that kind shows."""
    if whose == "nobody":
        return Tls(at / CA)
    if whose == "node":
        return Tls(at / CA, (at / NODE[0], at / NODE[1]))
    home = at if whose == "ann" else at / whose
    names = client_files("ann")
    return Tls(at / CA, (home / names[0], home / names[1]))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for all tests of this file."""
    at = make(tmp_path_factory.mktemp("tls"))
    data = tmp_path_factory.mktemp("node") / "data"
    with NodeProcess(data, free_port_base(), tls_dir=at) as one:
        one.start()
        yield one


def files(node: NodeProcess) -> Path:
    assert node.tls_dir is not None
    return node.tls_dir


@contextlib.contextmanager
def dialed(node: NodeProcess, offset: int, whose: str | None) -> Iterator[socket.socket]:
    """A connection to a port, through its handshake; `whose` None: a plain one."""
    with socket.create_connection(("127.0.0.1", node.base + offset), 60) as plain:
        if whose is None:
            yield plain
            return
        if offset == 3:
            plain.sendall(SSL_REQUEST)
            assert plain.recv(1) == b"S"
        with tls_of(files(node), whose).peer.wrap_socket(plain, server_hostname="127.0.0.1") as one:
            yield one


def greeting(offset: int) -> bytes:
    """What the protocol of a port begins with."""
    if offset == 0:
        return FrameEncoder().message(Hello().to_wire())
    if offset == 1:
        me = Identity(cluster="none", node=2, incarnation=b"12345678")
        return Handshake(me, b"", nonce=b"n" * 32, dialer=True, target=1).hello()
    if offset == 2:
        return b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    body = struct.pack(">I", 196608) + b"user\0ann\0database\0postgres\0\0"
    return struct.pack(">I", len(body) + 4) + body


WELCOME = {0: b"kvorum", 1: handshake.WRONG_CLUSTER.encode(), 2: b"200 OK", 3: b"server_version"}


@pytest.mark.few(6)
@pytest.mark.parametrize("offset", range(4))
@pytest.mark.parametrize("whose", WHOSE)
def test_who_gets_through_the_handshake(node: NodeProcess, offset: int, whose: str) -> None:
    """A certificate of another authority, or one that has ended, was taken; or a good one, or none,
    was not; or the port of nodes listened to somebody who is none."""
    welcome = whose in ("nobody", "ann", "node")
    if offset == 1:
        welcome = whose == "node"
    heard = b""
    with contextlib.suppress(ssl.SSLError, ConnectionError), dialed(node, offset, whose) as one:
        one.sendall(greeting(offset))
        while WELCOME[offset] not in heard and (more := one.recv(4096)):
            heard += more
    assert (WELCOME[offset] in heard) == welcome, heard
    if offset == 1 and whose in ("nobody", "ann"):
        assert handshake.CERTIFICATE.encode() in heard


@pytest.mark.parametrize("offset", range(4))
def test_a_plain_client_is_told(node: NodeProcess, offset: int) -> None:
    """Somebody who forgot TLS saw a reset connection, and not what to do."""
    with dialed(node, offset, None) as one:
        one.sendall(greeting(offset))
        heard = b""
        while more := one.recv(4096):
            heard += more
    assert b"TLS only" in heard


@pytest.mark.slow
def test_what_is_not_tls_ends_its_own_connection(node: NodeProcess) -> None:
    """Garbage and silence at any port disturbed other clients, or stayed for ever."""
    with contextlib.ExitStack() as open_ones:
        _silence_and_garbage(node, open_ones)
    assert poll(node.ready)
    assert "Traceback" not in node.tail()


def _silence_and_garbage(node: NodeProcess, open_ones: contextlib.ExitStack) -> None:
    silent = [
        open_ones.enter_context(
            socket.create_connection(("127.0.0.1", node.base + i % 4), timeout=10)
        )
        for i in range(1_100)
    ]
    for offset in range(4):
        for garbage in GARBAGE:
            with dialed(node, offset, None) as one, contextlib.suppress(ConnectionError):
                if offset == 3:
                    one.sendall(SSL_REQUEST)
                    assert one.recv(1) == b"S"
                one.sendall(garbage)
                one.shutdown(socket.SHUT_WR)
                while one.recv(4096):
                    pass
    began = time.monotonic()
    with kvorum.connect(node.url, ca=files(node) / CA) as db:
        db.create_table("default", "quiet")
        assert poll(node.ready)
    assert time.monotonic() - began < 10
    for one in silent:
        one.settimeout(30)  # each is closed by the node
        with contextlib.suppress(ConnectionError):
            while one.recv(4096):
                pass


def asked(url: str) -> None:
    """Over a connection that believes the machine's authorities, if any."""
    with kvorum.connect(url, timeout_ms=2_000) as db:
        db.nodes()


def test_the_sdk_and_the_command_line(node: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database over native TLS and HTTPS; a wrong authority, and a plain client, are told."""
    at = files(node)
    for url in (node.url, f"https://localhost:{node.base + 2}"):
        with kvorum.connect(url, ca=at / CA) as db:
            name = f"over_{url.partition(':')[0]}"
            db.create_table("default", name)
            table = db.table("default", name)
            table.put(b"k", url.encode())
            assert table.get(b"k").value == url.encode()
        with pytest.raises(KvorumError, match="certificate is not believed"):
            asked(url)
    with pytest.raises(Refused, match="TLS only"):
        kvorum.connect(f"127.0.0.1:{node.base}", timeout_ms=2_000)
    with pytest.raises(KvorumError, match="TLS only"):
        asked(f"http://127.0.0.1:{node.base + 2}")


def test_psql_and_drivers(node: NodeProcess) -> None:
    """sslmode=verify-full, require, a user's certificate: each as with PostgreSQL."""
    at = files(node)
    url = f"host=localhost port={node.base + 3} user=ann dbname=postgres"
    full = f"{url} sslmode=verify-full sslrootcert={at / CA}"
    mine = f"sslcert={at / 'client.ann.crt'} sslkey={at / 'client.ann.key'}"
    for one in (full, f"{url} sslmode=require", f"{full} {mine}"):
        with psycopg.connect(one) as conn:
            assert conn.pgconn.ssl_in_use
            assert conn.execute("select 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="TLS only"):
        psycopg.connect(f"{url} sslmode=disable")
    wrong = tls_of(at, "stranger")
    assert wrong.pair is not None
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"{full} sslcert={wrong.pair[0]} sslkey={wrong.pair[1]}")


def test_the_doctor_looks_at_certificates(node: NodeProcess) -> None:
    """A node with TLS could not be asked, or what its certificates are was not told; without
    --tls-dir it is said that it needs one."""
    words = ("doctor", "--port", str(node.base), "--data", str(node.data))
    found = {f["check"]: f for f in told(*words, "--tls-dir", str(files(node)))["findings"]}
    for check in ("node", "clock", "TLS ca.crt", "TLS node.crt", "TLS client.ann.crt"):
        assert found[check]["level"] == "ok", found[check]
    assert "--tls-dir" in str(run(*words, code=1).out)


def test_https_says_so(node: NodeProcess) -> None:
    """The console over TLS has browsers come back over TLS."""
    context = Tls(files(node) / CA).peer
    conn = http.client.HTTPSConnection("localhost", node.base + 2, context=context, timeout=10)
    conn.request("GET", "/console")
    answer = conn.getresponse()
    assert answer.status == 200
    answer.read()
    assert "max-age=" in (answer.headers["strict-transport-security"] or "")
    conn.request("POST", "/console/logout", b"{}", {"content-type": "application/json"})
    answer = conn.getresponse()
    for word in ("Secure", "HttpOnly", "SameSite=Strict"):
        assert word in (answer.headers["set-cookie"] or "")
    conn.close()
    with urllib.request.urlopen(
        f"https://localhost:{node.base + 2}/metrics", context=context, timeout=10
    ) as said:
        assert b"kvorum_tls_expires_seconds" in said.read()

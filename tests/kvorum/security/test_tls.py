"""Certificates as `kvorum cert` makes them, and TLS with them: who is let in, and what a changed
file does.
"""

from __future__ import annotations

import datetime
import shutil
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from kv.base import tls as tls_module
from kv.base.errors import InvalidArgument
from kv.base.tls import (
    CA,
    NODE,
    NODE_NAME,
    Tls,
    certificate_name,
    client_files,
    client_tls,
    node_tls,
)
from kvorum.security import certificates

NOW = datetime.datetime.now(datetime.UTC)


def directory(at: Path, *users: str) -> Path:
    """Files of an authority, a node called localhost, and these users."""
    ca = certificates.authority(NOW)
    certificates.save(at, certificates.AUTHORITY, ca)
    certificates.save(at, NODE, certificates.node(ca, ["localhost", "::1"], NOW))
    for user in users:
        certificates.save(at, client_files(user), certificates.client(ca, user, NOW))
    return at


class Ended:
    """A transport, as far as `certificate_name` looks at it."""

    def __init__(self, end: ssl.SSLObject) -> None:
        self._end = end

    def get_extra_info(self, name: str, default: Any = None, /) -> Any:
        return self._end.getpeercert() if name == "peercert" else default


def shake(server: ssl.SSLContext, client: Tls, host: str = "localhost") -> str:
    """Both ends of one handshake in memory; the name that the client proved. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.peer.wrap_bio(to_client, to_server, server_hostname=host)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    open_ends = [one, other]
    for _ in range(20):
        for end in [*open_ends]:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            open_ends.remove(end)
    assert not open_ends
    other.write(b"x")
    assert one.read() == b"x"  # TLS 1.3: a refused certificate shows at the first read
    if not client.believes(Ended(one)):
        raise ssl.SSLCertVerificationError("not a node")
    return certificate_name(Ended(other))


def nobody(at: Path) -> Tls:
    """A client without a certificate."""
    return Tls(at / CA)


def test_a_client_proves_its_name(tmp_path: Path) -> None:
    """The common name of a verified certificate is the identity; without one it is empty."""
    at = directory(tmp_path, "ann")
    server = node_tls(at).server
    assert shake(server, client_tls(at)) == "ann"
    assert shake(server, nobody(at)) == ""
    assert shake(server, node_tls(at)) == NODE_NAME


def test_a_client_of_several_says_which(tmp_path: Path) -> None:
    """With two users' certificates nobody guesses; without any it is the node's, or none."""
    at = directory(tmp_path, "ann", "bob")
    with pytest.raises(InvalidArgument, match="ann, bob"):
        client_tls(at)
    server = node_tls(at).server
    assert shake(server, client_tls(at, "bob")) == "bob"
    assert shake(server, client_tls(at, "eve")) == ""  # she has a password, say
    for one in at.glob("client.*"):
        one.unlink()
    assert shake(server, client_tls(at)) == NODE_NAME
    (at / "node.crt").rename(at / "other.crt")
    assert client_tls(at).pair is None


def test_a_client_of_another_authority_is_refused(tmp_path: Path) -> None:
    """A certificate that ours did not sign is no identity, and does not count as none."""
    ours, theirs = directory(tmp_path / "ours"), directory(tmp_path / "theirs", "ann")
    stranger = Tls(ours / CA, (theirs / "client.ann.crt", theirs / "client.ann.key"))
    with pytest.raises(ssl.SSLError):
        shake(node_tls(ours).server, stranger)


@pytest.mark.parametrize("host", ["127.0.0.1", "elsewhere"])
def test_a_server_of_another_name_is_refused(tmp_path: Path, host: str) -> None:
    """Clients believe a node only under the names that its certificate has; nodes know each other
    by the common name."""
    at = directory(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(node_tls(at).server, nobody(at), host)
    assert shake(node_tls(at).server, node_tls(at), host) == NODE_NAME


def test_a_clients_certificate_is_no_servers(tmp_path: Path) -> None:
    """Who holds a user's key cannot pose as a node, to clients or to nodes."""
    at = directory(tmp_path, "localhost")
    names = client_files("localhost")
    posing = Tls(at / CA, (at / names[0], at / names[1]))
    for believer in (nobody(at), node_tls(at)):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake(posing.server, believer)


def test_a_server_of_our_authority_is_no_node_by_that(tmp_path: Path) -> None:
    """A server's certificate with another common name proves no node to a node."""
    at = directory(tmp_path)
    ca = certificates.load(at / CA, at / "ca.key")
    made = certificates._leaf(  # what another authority's tools may make
        ca,
        "web",
        x509.SubjectAlternativeName([x509.DNSName("localhost")]),
        NOW,
        9,
        server=True,
    )
    certificates.save(at, ("web.crt", "web.key"), made)
    posing = Tls(at / CA, (at / "web.crt", at / "web.key"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(posing.server, node_tls(at))
    assert shake(node_tls(at).server, posing) == "web"


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    """Neither a node's nor a user's certificate is believed after its end."""
    at = directory(tmp_path)
    ca = certificates.load(at / CA, at / "ca.key")
    then = NOW - datetime.timedelta(days=9)
    late = tmp_path / "late"
    certificates.save(late, client_files("ann"), certificates.client(ca, "ann", then, days=1))
    certificates.save(late, NODE, certificates.node(ca, ["localhost"], then, days=1))
    (late / CA).write_bytes((at / CA).read_bytes())
    with pytest.raises(ssl.SSLError):
        shake(node_tls(at).server, client_tls(late))
    with pytest.raises(ssl.SSLError):
        shake(node_tls(late).server, nobody(at))


def test_old_versions_of_tls_are_not_spoken(tmp_path: Path) -> None:
    """TLS 1.1 is refused, by servers and by who dials."""
    tls = node_tls(directory(tmp_path))
    for context in (tls.server, tls.peer, Tls(None).peer):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_changed_files_are_used_from_then_on(tmp_path: Path) -> None:
    """The next connection shows the new certificate, and no longer believes the old authority."""
    at = directory(tmp_path / "now", "ann")
    tls = node_tls(at)
    old = Path(shutil.copytree(at, tmp_path / "before"))
    (old / "node.crt").unlink()
    old_client = client_tls(old)
    assert shake(tls.server, old_client) == "ann"
    before = tls.server
    assert tls.server is before
    ca = certificates.authority(NOW)
    certificates.save(at, certificates.AUTHORITY, ca, renew=True)
    certificates.save(at, NODE, certificates.node(ca, ["localhost"], NOW), renew=True)
    assert tls.server is not before
    with pytest.raises(ssl.SSLError):
        shake(tls.server, old_client)
    assert shake(tls.server, nobody(at)) == ""
    with pytest.raises(ssl.SSLError):
        shake(tls.server, client_tls(at))  # signed by the old one
    assert shake(tls.server, tls) == NODE_NAME


def test_a_broken_file_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that does not fit is reported once, what was there stays in use, and a good one is
    taken."""
    told: list[str] = []  # commands that ran in this process before may have set up logging
    monkeypatch.setattr(tls_module.log, "warning", lambda words, *args: told.append(words % args))
    at = directory(tmp_path)
    tls = node_tls(at)
    good = (at / "node.key").read_bytes()
    for broken in (certificates.authority(NOW).key, good[: len(good) // 2], b""):
        (at / "node.key").write_bytes(broken)
        for _ in range(3):
            assert shake(tls.server, nobody(at)) == ""
        assert "node.crt" in tls.trouble
    (at / "node.key").unlink()
    assert shake(tls.server, nobody(at)) == ""
    assert "node.key is missing" in tls.trouble
    (at / "node.key").write_bytes(good)
    assert shake(tls.server, nobody(at)) == ""
    assert tls.trouble == ""
    assert 2 <= sum("not used" in line for line in told) <= 4


@pytest.mark.parametrize("name", ["ca.crt", "node.crt", "node.key"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    """The error says which file, and what makes it."""
    at = directory(tmp_path)
    (at / name).unlink()
    with pytest.raises(InvalidArgument, match=f"{name} is missing.*kvorum cert"):
        node_tls(at)


def test_what_a_directory_has_is_examined(tmp_path: Path) -> None:
    """`kvorum doctor` did not see a key that others read, a pair that does not fit, a certificate
    of another authority, or an end that is near.
    """
    at = directory(tmp_path / "one", "ann", "bob", "eve")
    ca = certificates.load(at / CA, at / "ca.key")
    certificates.save(at, NODE, certificates.node(ca, ["a"], NOW, days=3), renew=True)
    (at / "client.ann.key").chmod(0o644)
    (at / "client.bob.key").write_bytes((at / "client.eve.key").read_bytes())
    other = certificates.client(certificates.authority(NOW), "eve", NOW)
    certificates.save(at, client_files("eve"), other, renew=True)
    found = {path.name: ends for path, ends in certificates.examined(at)}
    assert str(found["client.ann.crt"]).count("chmod 600") == 1
    assert "KEY_VALUES_MISMATCH" in str(found["client.bob.crt"])
    assert "has not signed it" in str(found["client.eve.crt"])
    ends = found["node.crt"]
    assert isinstance(ends, datetime.datetime)
    assert (ends - NOW).days in (2, 3)
    assert isinstance(found["ca.crt"], datetime.datetime)
    told = certificates.figures(node_tls(at))
    assert told["expires_seconds"] == ends.timestamp()
    assert told["ca_expires_seconds"] > told["expires_seconds"]
    assert told["files_refused"] == 0
    (at / CA).unlink()
    assert "missing" in str(certificates.examined(at)[0][1])


def test_keys_are_their_owners_alone(tmp_path: Path) -> None:
    """No other user of the machine reads a key; a directory that is made is closed."""
    at = directory(tmp_path / "new", "ann")
    assert stat.S_IMODE(at.stat().st_mode) == 0o700
    for key in at.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    """A second authority in one place would make all certificates worthless."""
    at = directory(tmp_path)
    before = (at / "ca.key").read_bytes()
    with pytest.raises(InvalidArgument, match="--renew"):
        certificates.save(at, certificates.AUTHORITY, certificates.authority(NOW))
    assert (at / "ca.key").read_bytes() == before


@pytest.mark.parametrize("user", ["", "node", "a/b", "../x", "a b", "é", "x" * 64])
def test_names_that_no_client_may_have(user: str) -> None:
    """`node` is the nodes' name, and a name is part of a file's name."""
    with pytest.raises(InvalidArgument):
        certificates.client(certificates.authority(NOW), user, NOW)


def test_a_leaf_does_not_outlive_its_authority() -> None:
    """A certificate that ends after its authority would look valid and not be."""
    ca = certificates.authority(NOW, days=10)
    made = certificates.client(ca, "ann", NOW)
    assert certificates.expires(made.certificate) == certificates.expires(ca.certificate)
    with pytest.raises(InvalidArgument, match="ended at"):
        certificates.client(ca, "ann", NOW + datetime.timedelta(days=11))

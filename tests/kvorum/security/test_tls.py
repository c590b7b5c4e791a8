"""Certificates as `kvorum cert` makes them, and TLS with them: who is let in, and what a changed
file does.
"""

from __future__ import annotations

import datetime
import ssl
import stat
from pathlib import Path

import pytest

from kv.base.errors import InvalidArgument
from kvorum.security import certificates
from kvorum.security.tls import Tls, client_context, peer_name

NOW = datetime.datetime.now(datetime.UTC)


def directory(at: Path, *users: str) -> Path:
    """Files of an authority, a node called localhost, and these users."""
    ca = certificates.authority(NOW)
    certificates.save(at, certificates.AUTHORITY, ca)
    certificates.save(at, certificates.NODE, certificates.node(ca, ["localhost", "::1"], NOW))
    for user in users:
        certificates.save(at, certificates.client_files(user), certificates.client(ca, user, NOW))
    return at


def shake(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> str:
    """Both ends of one handshake in memory; the name that the client proved. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=host)
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
    return peer_name(other)


def test_a_client_proves_its_name(tmp_path: Path) -> None:
    """The common name of a verified certificate is the identity; without one it is empty."""
    at = directory(tmp_path, "ann")
    server = Tls(at).server
    files = at / "client.ann.crt", at / "client.ann.key"
    assert shake(server, client_context(at / "ca.crt", files)) == "ann"
    assert shake(server, client_context(at / "ca.crt")) == ""
    assert shake(server, Tls(at).peer) == certificates.NODE_NAME


def test_a_client_of_another_authority_is_refused(tmp_path: Path) -> None:
    """A certificate that ours did not sign is no identity, and does not count as none."""
    ours, theirs = directory(tmp_path / "ours"), directory(tmp_path / "theirs", "ann")
    files = theirs / "client.ann.crt", theirs / "client.ann.key"
    with pytest.raises(ssl.SSLError):
        shake(Tls(ours).server, client_context(ours / "ca.crt", files))


@pytest.mark.parametrize("host", ["127.0.0.1", "elsewhere"])
def test_a_server_of_another_name_is_refused(tmp_path: Path, host: str) -> None:
    """A node is believed only under the names that its certificate has."""
    at = directory(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(Tls(at).server, client_context(at / "ca.crt"), host)


def test_a_clients_certificate_is_no_servers(tmp_path: Path) -> None:
    """Who holds a user's key cannot pose as a node."""
    at = directory(tmp_path, "localhost")
    posing = Tls(at, certificates.client_files("localhost"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(posing.server, client_context(at / "ca.crt"))


def test_old_versions_of_tls_are_not_spoken(tmp_path: Path) -> None:
    """TLS 1.1 is refused, by servers and by who dials."""
    tls = Tls(directory(tmp_path))
    for context in (
        tls.server,
        tls.peer,
        client_context(tmp_path / "ca.crt"),
        client_context(None),
    ):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_changed_files_are_used_from_then_on(tmp_path: Path) -> None:
    """After `look` a server shows the new certificate, and no longer believes the old authority."""
    at = directory(tmp_path, "ann")
    tls = Tls(at)
    old_ca = client_context(at / "ca.crt", (at / "client.ann.crt", at / "client.ann.key"))
    assert not tls.look()
    ca = certificates.authority(NOW)
    certificates.save(at, certificates.AUTHORITY, ca, renew=True)
    certificates.save(at, certificates.NODE, certificates.node(ca, ["localhost"], NOW), renew=True)
    assert shake(tls.server, old_ca) == "ann"  # nobody has looked yet
    assert tls.look()
    with pytest.raises(ssl.SSLError):
        shake(tls.server, old_ca)
    new = client_context(at / "ca.crt")
    assert shake(tls.server, new) == ""
    new.load_cert_chain(at / "client.ann.crt", at / "client.ann.key")  # signed by the old one
    with pytest.raises(ssl.SSLError):
        shake(tls.server, new)
    assert shake(tls.server, tls.peer) == certificates.NODE_NAME


def test_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    """A key that does not fit is reported, what was there stays in use, and a good one is taken."""
    at = directory(tmp_path)
    tls = Tls(at)
    good = (at / "node.key").read_bytes()
    (at / "node.key").write_bytes(certificates.authority(NOW).key)
    with pytest.raises(InvalidArgument, match=r"node\.crt"):
        tls.look()
    assert shake(tls.server, client_context(at / "ca.crt")) == ""
    (at / "node.key").write_bytes(good)
    assert tls.look()


@pytest.mark.parametrize("name", ["ca.crt", "node.crt", "node.key"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    """The error says which file, and what makes it."""
    at = directory(tmp_path)
    (at / name).unlink()
    with pytest.raises(InvalidArgument, match=f"{name} is missing.*kvorum cert"):
        Tls(at)


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

"""SCRAM-SHA-256: the RFC's example, PostgreSQL's verifiers, and everything that must fail."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from sqlproxy.catalog import scram
from sqlproxy.catalog.scram import Scram, make_verifier, prepared, read_verifier
from sqlproxy.values.errors import SqlError

SALT = b"0123456789abcdef"
VERIFIER = make_verifier("pencil", SALT).text()


def login(
    server: Scram,
    password: str,
    *,
    gs2: str = "n,,",
    mechanism: str = "SCRAM-SHA-256",
    end_point: bytes = b"",
    nonce: str = "clientnonce",
    tamper: str = "",
) -> bytes:
    """What a client does (RFC 5802); `tamper` replaces the nonce of the last message."""
    bare = f"n=,r={nonce}"
    first = server.first(mechanism, (gs2 + bare).encode()).decode()
    fields = dict(piece.split("=", 1) for piece in first.split(","))
    salted = hashlib.pbkdf2_hmac(
        "sha256", prepared(password).encode(), base64.b64decode(fields["s"]), int(fields["i"])
    )
    binding = base64.b64encode(gs2.encode() + end_point).decode()
    without = f"c={binding},r={tamper or fields['r']}"
    auth = f"{bare},{first},{without}".encode()
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), auth, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    final = server.final(f"{without},p={proof}".encode())
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    assert final == b"v=" + base64.b64encode(hmac.digest(server_key, auth, "sha256"))
    return final


def server(verifier: str | None = VERIFIER, end_point: bytes = b"") -> Scram:
    return Scram("bob", verifier, nonce=b"n" * 18, secret=b"secret", end_point=end_point)


def test_right_password_is_let_in_and_wrong_ones_are_not() -> None:
    """The one thing that a password is for."""
    login(server(), "pencil")
    for wrong in ("Pencil", "", "pencil "):
        with pytest.raises(SqlError) as caught:
            login(server(), wrong)
        assert caught.value.sqlstate == "28P01"


def test_unknown_users_fail_like_wrong_passwords() -> None:
    """Whoever asks could find out which users exist: same salt every time, same error."""
    first = server(None).first("SCRAM-SHA-256", b"n,,n=,r=abc")
    again = server(None).first("SCRAM-SHA-256", b"n,,n=,r=abc")
    assert first == again
    assert b",i=4096" in first
    with pytest.raises(SqlError) as caught:
        login(server(None), "pencil")
    assert caught.value.message == 'password authentication failed for user "bob"'


def test_verifier_of_postgresql_is_read() -> None:
    """A verifier copied from pg_authid would lock its user out (this one is psql's of `secret`)."""
    text = make_verifier("secret", SALT).text()
    assert text.startswith("SCRAM-SHA-256$4096:MDEyMzQ1Njc4OWFiY2RlZg==$")
    assert read_verifier(text).text() == text
    login(server(text), "secret")
    dear = text.replace("$4096:", "$2000000000:")
    for broken in (dear, text.replace("$4096:", "$0:"), text.replace("$4096:", "$-1:")):
        with pytest.raises(ValueError, match="iterations"):  # hours of a thread for each login
            read_verifier(broken)
    for broken in (
        "md5abc",
        text.replace("==", "A" * 2_000),
        "SCRAM-SHA-256$x:y$z:w",
        "SCRAM-SHA-1$" + text.split("$", 1)[1],
        "",
    ):
        with pytest.raises(ValueError, match="not a SCRAM-SHA-256 verifier"):
            read_verifier(broken)
    with pytest.raises(SqlError):
        login(server("md5abc"), "secret")


def test_channel_binding_ties_the_login_to_the_certificate() -> None:
    """Somebody between the two, with another certificate, could pass the login on."""
    gs2 = "p=tls-server-end-point,,"
    login(server(end_point=b"hash"), "pencil", gs2=gs2, mechanism=scram.PLUS, end_point=b"hash")
    with pytest.raises(SqlError, match="channel binding check failed"):
        login(server(end_point=b"hash"), "pencil", gs2=gs2, mechanism=scram.PLUS, end_point=b"else")
    with pytest.raises(SqlError, match="thinks the server does not"):
        login(server(end_point=b"hash"), "pencil", gs2="y,,")
    login(server(), "pencil", gs2="y,,")
    assert server().mechanisms == ("SCRAM-SHA-256",)


@pytest.mark.parametrize(
    "first",
    [b"", b"n,,", b"n,,n=,r=", b"x,,n=,r=a", b"\xff\xfe", b"n,,n=,r=a\x00b", b"p=x,,n=,r=abc"],
)
def test_malformed_first_messages_are_refused(first: bytes) -> None:
    """Garbage instead of a login crashed the server."""
    with pytest.raises(SqlError) as caught:
        server().first("SCRAM-SHA-256", first)
    assert caught.value.sqlstate == "08P01"


def test_last_messages_must_belong_to_the_first() -> None:
    """A recorded login could be played again."""
    with pytest.raises(SqlError, match="malformed"):
        login(server(), "pencil", tamper="othernonce")
    begun = server()
    begun.first("SCRAM-SHA-256", b"n,,n=,r=abc")
    for data in (b"", b"c=biws,r=x,p=!!!", b"c=bi\xc3\xa9,r=x,p=AAAA", b"c=biws,r=x", b"\xff"):
        with pytest.raises(SqlError):
            begun.final(data)
    with pytest.raises(SqlError, match="invalid SASL mechanism"):
        server().first("PLAIN", b"")


def test_passwords_are_prepared_as_their_clients_do() -> None:
    """The same password typed with composed and decomposed letters would be two."""
    assert prepared("I\u00adX") == "IX"
    assert prepared("\u2168") == "IX"
    assert prepared("a\u00a0b") == "a b"
    assert prepared("\u0627\u0031") == "\u0627\u0031"  # forbidden: taken as it is
    login(server(make_verifier("p\u00e4ss", SALT).text()), "pa\u0308ss")


def test_example_of_rfc_7677() -> None:
    """Our arithmetic would agree with itself only."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    example = server(make_verifier("pencil", salt).text())
    example._nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"  # which it would have made itself
    first = example.first("SCRAM-SHA-256", b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    both = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert first == b"r=" + both + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proof = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert example.final(b"c=biws,r=" + both + b",p=" + proof) == (
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )

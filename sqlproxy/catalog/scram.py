"""SCRAM-SHA-256, the server's side (RFC 5802, RFC 7677), with verifiers in PostgreSQL's form. Pure.

    SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>          base64 each

The server learns no password, and who steals a verifier cannot log in with it. A user who does not
exist goes through the same steps with a salt made from a secret of the server, and fails at the end
like a wrong password. With TLS and a hash of the certificate, SCRAM-SHA-256-PLUS binds the login to
the channel (RFC 5929, tls-server-end-point); a client that could have used it and was kept from
offering it is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import stringprep
import unicodedata
from dataclasses import dataclass
from typing import Final

from sqlproxy.values.errors import (
    INVALID_AUTHORIZATION,
    INVALID_PASSWORD,
    PROTOCOL_VIOLATION,
    SqlError,
)

MECHANISM: Final = "SCRAM-SHA-256"
PLUS: Final = "SCRAM-SHA-256-PLUS"
ITERATIONS: Final = 4096
ITERATIONS_MAX: Final = 1_000_000  # of a verifier that was made elsewhere: a second of each login
PASSWORD_CHARS_MAX: Final = 1_024  # a megabyte would be prepared for 5 s
VERIFIER_CHARS_MAX: Final = 1_024
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 18
_CLIENT_FIRST = re.compile(
    r"(?P<gs2>(?P<flag>[ny]|p=(?P<bind>[^,]*)),(?:a=[^,]*)?,)(?P<bare>n=[^,]*,r=(?P<nonce>[!-+\--~]+)(?:,.*)?)"
)
_CLIENT_FINAL = re.compile(
    r"(?P<without>c=(?P<bind>[^,]*),r=(?P<nonce>[^,]*)(?:,.*)?),p=(?P<proof>[^,]*)"
)


@dataclass(frozen=True, slots=True)
class Verifier:
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def text(self) -> str:
        salt, stored, server = (
            base64.b64encode(raw).decode() for raw in (self.salt, self.stored_key, self.server_key)
        )
        return f"{MECHANISM}${self.iterations}:{salt}${stored}:{server}"


def make_verifier(password: str, salt: bytes, iterations: int = ITERATIONS) -> Verifier:
    """What is stored of a password; `salt`: SALT_BYTES of chance."""
    salted = hashlib.pbkdf2_hmac("sha256", prepared(password).encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored = hashlib.sha256(client_key).digest()
    return Verifier(iterations, salt, stored, hmac.digest(salted, b"Server Key", "sha256"))


def read_verifier(text: str) -> Verifier:
    """Raises ValueError: not a verifier, or one that costs whoever logs in too much."""
    if len(text) > VERIFIER_CHARS_MAX:
        raise ValueError("not a SCRAM-SHA-256 verifier")
    try:
        mechanism, middle, keys = text.split("$")
        iterations, salt = middle.split(":")
        stored, server = keys.split(":")
        found = Verifier(
            int(iterations),
            base64.b64decode(salt, validate=True),
            base64.b64decode(stored, validate=True),
            base64.b64decode(server, validate=True),
        )
    except ValueError:
        raise ValueError("not a SCRAM-SHA-256 verifier") from None
    if mechanism != MECHANISM or {len(found.stored_key), len(found.server_key)} != {32}:
        raise ValueError("not a SCRAM-SHA-256 verifier")
    if not 0 < found.iterations <= ITERATIONS_MAX:
        raise ValueError(f"a verifier of 1 to {ITERATIONS_MAX} iterations is taken")
    return found


def prepared(password: str) -> str:
    """SASLprep (RFC 4013); a password that it forbids is taken as it is, as PostgreSQL does."""
    if password.isascii():
        return password
    mapped = "".join(
        " " if stringprep.in_table_c12(c) else c for c in password if not stringprep.in_table_b1(c)
    )
    text = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    forbidden = (
        stringprep.in_table_a1,
        stringprep.in_table_c12,
        stringprep.in_table_c21_c22,
        stringprep.in_table_c3,
        stringprep.in_table_c4,
        stringprep.in_table_c5,
        stringprep.in_table_c6,
        stringprep.in_table_c7,
        stringprep.in_table_c8,
        stringprep.in_table_c9,
    )
    if not text or any(table(c) for c in text for table in forbidden):
        return password
    if any(map(stringprep.in_table_d1, text)) and (
        any(map(stringprep.in_table_d2, text))
        or not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1]))
    ):
        return password
    return text


class Scram:
    """One login: `first`, then `final`.

    `verifier` None: the user has none, and the login is doomed. `nonce`: NONCE_BYTES of chance.
    `secret`: the server's, for salts of such users. `end_point`: the hash of the server's
    certificate when the connection is encrypted, else empty.
    """

    def __init__(
        self, user: str, verifier: str | None, *, nonce: bytes, secret: bytes, end_point: bytes
    ) -> None:
        self._user = user
        self._nonce = base64.b64encode(nonce).decode()
        self._end_point = end_point
        self._doomed = verifier is None
        self._verifier = self._mock(secret)
        if verifier is not None:
            try:
                self._verifier = read_verifier(verifier)
            except ValueError:
                self._doomed = True
        self._bare = ""
        self._gs2 = b""
        self._both = ""  # nonces
        self._first = ""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return (PLUS, MECHANISM) if self._end_point else (MECHANISM,)

    def first(self, mechanism: str, data: bytes) -> bytes:
        """The server's first message. Raises SqlError."""
        if mechanism not in self.mechanisms:
            raise SqlError(PROTOCOL_VIOLATION, "client selected an invalid SASL mechanism")
        found = _CLIENT_FIRST.fullmatch(_text(data))
        if found is None:
            raise _malformed()
        self._check_binding(found["flag"], found["bind"], plus=mechanism == PLUS)
        self._gs2 = found["gs2"].encode()
        self._bare = found["bare"]
        self._both = found["nonce"] + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        self._first = f"r={self._both},s={salt},i={self._verifier.iterations}"
        return self._first.encode()

    def final(self, data: bytes) -> bytes:
        """The server's last message: the client proved that it knows the password. Raises SqlError:
        it did not.
        """
        found = _CLIENT_FINAL.fullmatch(_text(data))
        if found is None:
            raise _malformed()
        try:
            binding = base64.b64decode(found["bind"], validate=True)
            proof = base64.b64decode(found["proof"], validate=True)
        except ValueError:  # binascii's is one; of other letters than ASCII's it is no more
            raise _malformed() from None
        wanted = self._gs2 + (self._end_point if self._gs2[:1] == b"p" else b"")
        if not hmac.compare_digest(binding, wanted):
            raise SqlError(INVALID_AUTHORIZATION, "SCRAM channel binding check failed")
        if found["nonce"] != self._both or len(proof) != 32:
            raise _malformed()
        auth = f"{self._bare},{self._first},{found['without']}".encode()
        signature = hmac.digest(self._verifier.stored_key, auth, "sha256")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        known = hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key)
        if self._doomed or not known:
            raise SqlError(
                INVALID_PASSWORD, f'password authentication failed for user "{self._user}"'
            )
        signed = hmac.digest(self._verifier.server_key, auth, "sha256")
        return b"v=" + base64.b64encode(signed)

    def _check_binding(self, flag: str, kind: str | None, *, plus: bool) -> None:
        if flag == "y" and self._end_point:
            raise SqlError(
                INVALID_AUTHORIZATION,
                "the client supports SCRAM channel binding but thinks the server does not",
                detail="Something between the two took it out of the server's offer.",
            )
        if plus != (flag[0] == "p"):
            raise SqlError(PROTOCOL_VIOLATION, "malformed SCRAM message: channel binding")
        if plus and kind != "tls-server-end-point":
            raise SqlError(PROTOCOL_VIOLATION, f'unsupported SCRAM channel-binding type "{kind}"')

    def _mock(self, secret: bytes) -> Verifier:
        """The same for a user every time, so that nobody can tell that there is none."""
        salt = hmac.digest(secret, self._user.encode(), "sha256")[:SALT_BYTES]
        return Verifier(ITERATIONS, salt, bytes(32), bytes(32))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _malformed() from None


def _malformed() -> SqlError:
    return SqlError(PROTOCOL_VIOLATION, "malformed SCRAM message")

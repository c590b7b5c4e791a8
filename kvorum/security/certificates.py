"""Certificates of a cluster: an authority, nodes, clients. Made with `cryptography`, X.509 v3.

    DIR/ca.crt, ca.key             the authority; ca.key signs and is needed nowhere else
    DIR/node.crt, node.key         common name `node`: a node or proxy of this cluster
    DIR/client.USER.crt, .key      common name USER: the identity of that name

The names are those that CockroachDB uses, and any other authority may make the same files: what
counts is the chain to `ca.crt` and the common name. Keys are ECDSA over P-256 (RFC 5480), readable
by their owner alone.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kv.base.errors import InvalidArgument
from kv.base.tls import CA, NODE_NAME, Tls

AUTHORITY_DAYS: Final = 3_650
LEAF_DAYS: Final = 825  # what browsers and Go accept at most
_CLOCKS_DIFFER: Final = datetime.timedelta(hours=1)
_NAME_CHARS_MAX: Final = 63

AUTHORITY: Final = (CA, "ca.key")
_UNREADABLE: Final = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)
"""What `cryptography` raises about bytes that are no certificate or key."""


@dataclass(frozen=True, slots=True)
class Made:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


def authority(now: datetime.datetime, *, days: int = AUTHORITY_DAYS) -> Made:
    """A new authority that signs nodes and clients, and no other authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject("Kvorum CA")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    built = (
        _builder(name, name, key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
    )
    return _made(built.sign(key, hashes.SHA256()), key)


def node(
    signer: Made, hosts: Sequence[str], now: datetime.datetime, *, days: int = LEAF_DAYS
) -> Made:
    """Of a node that is reached by `hosts` (names or addresses). Raises InvalidArgument."""
    if not hosts:
        raise InvalidArgument(
            "a node's certificate needs the names that it is reached by: give --host NAME, once or "
            "several times",
            details={"setting": "host"},
        )
    names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    return _leaf(signer, NODE_NAME, names, now, days, server=True)


def client(signer: Made, user: str, now: datetime.datetime, *, days: int = LEAF_DAYS) -> Made:
    """Of a user or service account. Raises InvalidArgument."""
    if not 1 <= len(user) <= _NAME_CHARS_MAX or user == NODE_NAME or not _plain(user):
        raise InvalidArgument(
            f"{user!r} cannot be the name in a client's certificate: 1 to {_NAME_CHARS_MAX} "
            f"letters, digits and . _ - @, and not {NODE_NAME!r}, which is the nodes' name",
            details={"setting": "user", "limit": _NAME_CHARS_MAX},
        )
    return _leaf(signer, user, None, now, days, server=False)


def load(certificate: Path, key: Path) -> Made:
    """Of two files. Raises InvalidArgument."""
    try:
        made = Made(certificate.read_bytes(), key.read_bytes())
        _parsed(made)
    except OSError as error:
        raise InvalidArgument(
            f"cannot read {error.filename}: {error.strerror}; `kvorum cert ca` makes it",
            details={"setting": "dir"},
        ) from error
    except _UNREADABLE as error:
        raise InvalidArgument(
            f"{certificate} and {key} are no certificate and key in PEM: {error}",
            details={"setting": "dir"},
        ) from error
    return made


def save(directory: Path, names: tuple[str, str], made: Made, *, renew: bool = False) -> list[Path]:
    """Write both files, keys for their owner alone. Nothing is overwritten unless `renew`.

    Raises InvalidArgument (ALREADY_EXISTS).
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = [directory / name for name in names]
    if not renew and (there := [path for path in paths if path.exists()]):
        raise InvalidArgument(
            f"{there[0]} is there already; --renew replaces it",
            code="ALREADY_EXISTS",
            details={"path": str(there[0])},
        )
    # The key first: who sees a new certificate finds its key.
    for path, data, mode in ((paths[1], made.key, 0o600), (paths[0], made.certificate, 0o644)):
        new = path.with_name(path.name + ".new")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    return paths


def end_point(pem: bytes) -> bytes:
    """The hash of a server's certificate that tls-server-end-point binds a login to (RFC 5929, 4);
    empty for signatures without a hash of their own, for which it is not defined, and for those
    that are not known here.
    """
    found = x509.load_pem_x509_certificate(pem)
    try:
        algorithm = found.signature_hash_algorithm
    except UnsupportedAlgorithm:
        algorithm = None
    if algorithm is None:
        return b""
    if algorithm.name in ("md5", "sha1"):
        algorithm = hashes.SHA256()
    return found.fingerprint(algorithm)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a certificate."""

    found: str
    remedy: str


def examined(directory: Path) -> list[tuple[Path, datetime.datetime | Trouble]]:
    """When each certificate of a directory ends, or why it cannot be used."""
    if not (directory / CA).exists():
        return [(directory / CA, Trouble("missing", "make it with `kvorum cert ca`"))]
    return [(path, _examined(path, directory / CA)) for path in sorted(directory.glob("*.crt"))]


def _examined(path: Path, ca: Path) -> datetime.datetime | Trouble:
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        if path == ca:
            return found.not_valid_after_utc
        key = path.with_suffix(".key")
        Tls(ca, (path, key))
        if key.stat().st_mode & 0o077:
            return Trouble(f"others can read {key}", f"chmod 600 {key}")
        authorities = x509.load_pem_x509_certificates(ca.read_bytes())
    except (OSError, *_UNREADABLE) as error:
        return Trouble(f"cannot be read: {error}", "make it with `kvorum cert`")
    except InvalidArgument as error:
        return Trouble(error.message, "bring the certificate and the key that belong together")
    if not any(_signed(found, by) for by in authorities):
        return Trouble(f"{ca} has not signed it", "make it with the authority of this cluster")
    return found.not_valid_after_utc


def _signed(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except (*_UNREADABLE, InvalidSignature):
        return False
    return True


def figures(tls: Tls) -> dict[str, float]:
    """For the metrics: when what is shown and believed ends, and whether newer files do not fit."""
    found: dict[str, float] = {"files_refused": int(bool(tls.trouble))}
    for name, path in (("expires", tls.pair and tls.pair[0]), ("ca_expires", tls.ca)):
        if path is not None:
            with contextlib.suppress(OSError, *_UNREADABLE):
                found[f"{name}_seconds"] = expires(path.read_bytes()).timestamp()
    return found


def expires(pem: bytes) -> datetime.datetime:
    """When a certificate ends, UTC."""
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc


# -- how they are made


def _leaf(
    signer: Made,
    name: str,
    names: x509.SubjectAlternativeName | None,
    now: datetime.datetime,
    days: int,
    *,
    server: bool,
) -> Made:
    signer_certificate, signer_key = _parsed(signer)
    key = ec.generate_private_key(ec.SECP256R1())
    ends = signer_certificate.not_valid_after_utc
    if now >= ends:
        raise InvalidArgument(
            f"the authority's certificate ended at {ends:%Y-%m-%d}: make another one with "
            "`kvorum cert ca --renew`, and new ones for all nodes and clients",
            details={"setting": "dir"},
        )
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if server:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key())
    subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _builder(_subject(name), signer_certificate.subject, key.public_key(), now, days, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(authority_key, critical=False)
        .add_extension(subject_key, critical=False)
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return _made(builder.sign(signer_key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    days: int,
    at_most: datetime.datetime | None = None,
) -> x509.CertificateBuilder:
    ends = now + datetime.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(ends if at_most is None else min(ends, at_most))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Kvorum"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host.encode("idna").decode())
    except UnicodeError as error:
        raise InvalidArgument(
            f"{host!r} is neither a host's name nor an address", details={"setting": "host"}
        ) from error


def _plain(user: str) -> bool:
    return all(c.isascii() and (c.isalnum() or c in "._-@") for c in user)


def _made(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Made:
    return Made(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _parsed(made: Made) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = serialization.load_pem_private_key(made.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not one of an elliptic curve")
    return x509.load_pem_x509_certificate(made.certificate), key

"""TLS of a process: contexts for what it serves and what it dials, from a directory that
`kvorum cert` (or another authority) fills. TLS 1.2 and newer.

    ca.crt                        who signs nodes and clients of this cluster
    node.crt, node.key            of a node or proxy: served, and shown to other nodes
    client.USER.crt, .key         of a client

A server asks for a client's certificate and takes connections without one: whoever has none proves
itself otherwise, or is nobody. A file that changes is noticed by `look`: later connections use it,
those that are open keep what they have. A pair that does not fit, half-written files among them,
changes nothing and is reported.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from kv.base.errors import InvalidArgument
from kvorum.security import certificates

CA: Final = certificates.AUTHORITY[0]
_Stamp = tuple[tuple[int, int, int], ...]


class Tls:
    """The contexts of one process. `server` stays the same object while files change; `peer` is
    read for each connection that is dialed.
    """

    def __init__(self, directory: Path, names: tuple[str, str] = certificates.NODE) -> None:
        """Raises InvalidArgument: a file is missing, or is no certificate or key."""
        self._ca = directory / CA
        self._certificate, self._key = (directory / name for name in names)
        self._stamp = self._now()
        self.server = self._of_servers()
        self.peer = self._of_clients()
        self._current = self.server
        self.server.sni_callback = self._switch

    def look(self) -> bool:
        """Whether files had changed and are used from now on.

        Raises InvalidArgument if they cannot be used; what was loaded before stays in use, and the
        next look tries again.
        """
        stamp = self._now()
        if stamp == self._stamp:
            return False
        self._current, self.peer = self._of_servers(), self._of_clients()
        self._stamp = stamp
        return True

    def _switch(self, handshake: ssl.SSLObject, name: str | None, server: ssl.SSLContext) -> None:
        """Asked in each handshake, with and without a name (RFC 6066)."""
        if handshake.context is not self._current:
            handshake.context = self._current

    def _of_servers(self) -> ssl.SSLContext:
        context = self._loaded(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _of_clients(self) -> ssl.SSLContext:
        return self._loaded(ssl.PROTOCOL_TLS_CLIENT)  # it checks the host's name

    def _loaded(self, protocol: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
            context.load_verify_locations(self._ca)
        except FileNotFoundError as error:
            missing = next(
                (p for p in (self._certificate, self._key, self._ca) if not p.exists()), error
            )
            raise InvalidArgument(
                f"{missing} is missing: make it with `kvorum cert`",
                details={"setting": "tls_dir"},
            ) from error
        except OSError as error:  # an SSLError is one
            raise InvalidArgument(
                f"{self._certificate}, {self._key} and {self._ca} cannot be used for TLS: "
                f"{getattr(error, 'reason', None) or error.strerror or error}",
                details={"setting": "tls_dir"},
            ) from error
        return context

    def _now(self) -> _Stamp:
        """What tells whether a file was replaced or written to."""
        stamps = []
        for path in (self._ca, self._certificate, self._key):
            try:
                status = path.stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(stamps)


def client_context(ca: Path | None, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """For a client: who signs the servers (None: the machine's authorities), and its own
    certificate. Raises InvalidArgument.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if ca is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.load_verify_locations(ca)
        if certificate is not None:
            context.load_cert_chain(*certificate, password=_no_password)
    except OSError as error:
        raise InvalidArgument(
            f"{ca if ca is not None else certificate} cannot be used for TLS: "
            f"{getattr(error, 'reason', None) or error.strerror or error}",
            details={"setting": "ca"},
        ) from error
    return context


def peer_name(transport_object: ssl.SSLObject | ssl.SSLSocket | None) -> str:
    """The common name in the certificate that the other end proved; empty: it showed none."""
    der = None if transport_object is None else transport_object.getpeercert(binary_form=True)
    return certificates.common_name(der) if der else ""


def _no_password() -> bytes:
    """OpenSSL asks the terminal else, and a node has none."""
    return b""

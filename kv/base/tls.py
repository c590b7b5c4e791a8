"""TLS of a process: contexts for what it serves and what it dials, from files that `kvorum cert`
(or another authority) makes. TLS 1.2 and newer.

    ca.crt                        who signs nodes and clients of this cluster
    node.crt, node.key            of a node or proxy: served, and shown to other nodes
    client.USER.crt, .key         of a client

A server asks for a client's certificate and takes connections without one: whoever has none proves
itself otherwise, or is nobody. Nodes know each other by the common name `node`, whatever address
they dial: who holds such a certificate is a node to every node, so a host's name would add nothing.
Clients check the host's name.

Files are looked at whenever a context is asked for, which is once per connection: a file that has
changed counts from the next connection on, those that are open keep what they have. A pair that
does not fit, half-written files among them, changes nothing and is reported. No session is resumed,
so that an authority that is believed no longer ends with its file.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from kv.base.errors import InvalidArgument
from kv.base.tls_stream import TlsStream

TLS_REQUIRED: Final = "TLS_REQUIRED"  # what a port with TLS tells whoever does without
TLS_MISMATCH: Final = "TLS_MISMATCH"  # other settings, or certificates, would reach it
NODE_NAME: Final = "node"  # the common name of every node; no user may have it
TLS_DIR: Final = "KVORUM_TLS_DIR"
"""What `tls_dir` is if nobody says, and KVORUM_CA what `ca` is."""
_CA_FILE: Final = "KVORUM_CA"
CA: Final = "ca.crt"
NODE: Final = ("node.crt", "node.key")
_CLIENT: Final = "client."
_CERTIFICATE: Final = ".crt"
_HANDSHAKE_S: Final = 60.0  # for whoever has no bound of his own
_Stamp = tuple[tuple[int, int, int], ...]

log = logging.getLogger(__name__)


def client_files(user: str) -> tuple[str, str]:
    """Names of a user's certificate and key."""
    return f"{_CLIENT}{user}{_CERTIFICATE}", f"{_CLIENT}{user}.key"


class Tls:
    """The contexts of one process. See the module."""

    def __init__(
        self, ca: Path | None, pair: tuple[Path, Path] | None = None, *, as_node: bool = False
    ) -> None:
        """`ca`: who is believed, None: the machine's authorities. `pair`: what is shown, and
        served. `as_node`: the other end of what is dialed has to be a node, under whatever name.

        Raises InvalidArgument: a file is missing, or is no certificate or key.
        """
        self.ca, self.pair, self.as_node = ca, pair, as_node
        self.trouble = ""  # why changed files are not used
        self._stamp = self._now()
        self._server, self._peer = self._loaded()

    @property
    def server(self) -> ssl.SSLContext:
        """For a connection that comes in."""
        self._look()
        assert self._server is not None, "only who has a certificate serves"
        return self._server

    @property
    def peer(self) -> ssl.SSLContext:
        """For a connection that is dialed; then ask `believes`."""
        self._look()
        return self._peer

    def accepted(self, protocol: asyncio.BaseProtocol) -> TlsStream:
        """Our end of a connection that came in."""
        return TlsStream(protocol, self.server, host=None)

    def dialed(self, protocol: asyncio.BaseProtocol, host: str) -> TlsStream:
        """Our end of a connection to `host`; then ask `believes`."""
        return TlsStream(protocol, self.peer, host=host)

    def is_node(self, transport: _Ended | None) -> bool:
        """Whether the other end of a connection has proved to be a node, by its certificate."""
        return certificate_name(transport) == NODE_NAME

    def believes(self, transport: _Ended | None) -> bool:
        """Whether the other end of what was dialed is who it has to be."""
        return not self.as_node or self.is_node(transport)

    @property
    def user(self) -> str:
        """Whose certificate this client shows, by the name of its file; empty: nobody's."""
        name = "" if self.pair is None else self.pair[0].name
        return name[len(_CLIENT) : -len(_CERTIFICATE)] if name.startswith(_CLIENT) else ""

    @property
    def doubt(self) -> str:
        """What to add to why a connection broke before it was answered: a server does not say that
        it refuses a certificate. Empty if none is shown.
        """
        if self.pair is None:
            return ""
        return f" (it may not believe {self.pair[0]}: `kvorum doctor --tls-dir` looks at it)"

    def _look(self) -> None:
        stamp = self._now()
        if stamp == self._stamp:
            return
        try:
            self._server, self._peer = self._loaded()
        except InvalidArgument as error:
            if error.message != self.trouble:
                self.trouble = error.message
                log.warning("changed TLS files are not used: %s", error.message)
            return
        self._stamp, self.trouble = stamp, ""
        log.info("TLS files have changed: new connections use them")

    def _loaded(self) -> tuple[ssl.SSLContext | None, ssl.SSLContext]:
        server = None
        if self.pair is not None:
            server = self._filled(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            server.verify_mode = ssl.CERT_OPTIONAL
            server.options |= ssl.OP_NO_TICKET
            server.num_tickets = 0
        peer = self._filled(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        peer.check_hostname = not self.as_node
        return server, peer

    def _filled(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            if self.pair is not None:
                context.load_cert_chain(*self.pair, password=_no_password)
            if self.ca is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(self.ca)
        except OSError as error:  # an SSLError is one
            raise self._unusable(error) from error
        return context

    def _unusable(self, error: OSError) -> InvalidArgument:
        files = self._files()
        missing = [path for path in files if not path.exists()]
        if missing:
            what = f"{missing[0]} is missing: make it with `kvorum cert`"
        else:
            why = getattr(error, "reason", None) or error.strerror or error
            what = f"{', '.join(map(str, files))} cannot be used for TLS: {why}"
        return InvalidArgument(what, details={"setting": "tls_dir"})

    def _files(self) -> list[Path]:
        return [*(self.pair or ()), *([] if self.ca is None else [self.ca])]

    def _now(self) -> _Stamp:
        """What tells whether a file was replaced or written to."""
        stamps = []
        for path in self._files():
            try:
                status = path.stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(stamps)


def node_tls(directory: str | Path) -> Tls:
    """Of a node or proxy. Raises InvalidArgument."""
    at = Path(directory)
    return Tls(at / CA, (at / NODE[0], at / NODE[1]), as_node=True)


def client_tls(directory: str | Path, user: str = "") -> Tls:
    """Of a client: the certificate of `user` if there is one; if nobody is named the only one that
    is there, or the node's own on a node's machine; or none. Raises InvalidArgument.
    """
    at = Path(directory)
    if not at.is_dir():
        raise InvalidArgument(
            f"{at} is no directory: tls_dir has ca.crt, and the client's certificate if there is "
            "one",
            details={"setting": "tls_dir"},
        )
    names = client_files(user)
    if not user:
        there = sorted(at.glob(f"{_CLIENT}*{_CERTIFICATE}"))
        if len(there) > 1:
            users = ", ".join(
                path.name.removeprefix(_CLIENT).removesuffix(_CERTIFICATE) for path in there
            )
            raise InvalidArgument(
                f"{at} has certificates of {users}: say which user",
                details={"setting": "user"},
            )
        names = NODE
        if there:
            names = there[0].name, there[0].with_suffix(".key").name
    pair = at / names[0], at / names[1]
    return Tls(at / CA, pair if pair[0].exists() else None)


def tls_of(
    tls_dir: str | Path | None = None, ca: str | Path | None = None, user: str = ""
) -> Tls | None:
    """What a client was given; if nothing, what its environment says; None: no TLS. Raises
    InvalidArgument.
    """
    if tls_dir and ca:
        raise InvalidArgument(
            "tls_dir has its own ca.crt: give tls_dir or ca", details={"setting": "ca"}
        )
    if not (tls_dir or ca):
        tls_dir, ca = os.environ.get(TLS_DIR), os.environ.get(_CA_FILE)
    if tls_dir:
        return client_tls(tls_dir, user)
    return Tls(Path(ca)) if ca else None


class _Ended(Protocol):
    """A transport: an end of a connection."""

    def get_extra_info(self, name: str, default: object = None, /) -> Any: ...


def certificate_name(transport: _Ended | None) -> str:
    """The common name in the certificate that the other end has proved; empty: it showed none, or
    has several.
    """
    found: Mapping[str, Any] | None = None
    if transport is not None:
        found = transport.get_extra_info("peercert")
    names = [
        value
        for part in (found or {}).get("subject", ())
        for name, value in part
        if name == "commonName"
    ]
    return str(names[0]) if len(names) == 1 else ""


_P = TypeVar("_P", bound=asyncio.BaseProtocol)


async def dial(
    factory: Callable[[], _P], host: str, port: int, tls: Tls | None
) -> tuple[asyncio.Transport, _P]:
    """A connection to `host`, encrypted if there is a `tls`. Raises OSError."""
    loop = asyncio.get_running_loop()
    if tls is None:
        transport, plain = await loop.create_connection(factory, host, port)
        return transport, plain
    protocol = factory()
    stream = tls.dialed(protocol, host)
    async with asyncio.timeout(_HANDSHAKE_S):
        await loop.create_connection(lambda: stream, host, port)
        await stream.handshake()
    return stream, protocol


def why(error: OSError) -> str:
    """Why something could not be dialed, in words. asyncio's text repeats the address."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message
        return f"its certificate is not believed: {said} (tls_dir or ca says who signs)"
    if isinstance(error, ssl.SSLError):
        if error.reason == "WRONG_VERSION_NUMBER":
            return "it does not speak TLS"
        return f"TLS failed: {error.reason or error}"
    number = error.errno or 0  # below 0 it is getaddrinfo's
    return (os.strerror(number) if number > 0 else error.strerror) or str(error)


def misfit(error: OSError) -> bool:
    """Whether it fails in the same way until files or settings of TLS change."""
    return isinstance(error, ssl.SSLCertVerificationError) or (
        isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER"
    )


def _no_password() -> bytes:
    """OpenSSL asks the terminal else, and a node has none."""
    return b""

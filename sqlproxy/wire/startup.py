"""From the first packet of a client to its first ReadyForQuery.

    [SSLRequest | GSSENCRequest]… ─▶ startup packet ─▶ [version negotiated]
    ─▶ certificate of that user, trusted, or SCRAM
    ─▶ session opened ─▶ settings, key for cancels, ReadyForQuery

A CancelRequest instead of the startup packet is its connection's only message. What fails here is
FATAL; what it says of users and passwords is the same whether a user exists or not.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from kv.base.connection_slots import Comer
from kv.base.errors import KvorumError
from kv.base.ports import Rng
from kv.base.rights import LOOPBACK, Identity
from kv.base.tls import NODE_NAME
from sqlproxy.catalog.scram import NONCE_BYTES, Scram
from sqlproxy.pg.style import is_utf8
from sqlproxy.values.errors import (
    INVALID_AUTHORIZATION,
    INVALID_PARAMETER,
    INVALID_PASSWORD,
    PROTOCOL_VIOLATION,
    TOO_MANY_CONNECTIONS,
    SqlError,
    at_the_door,
)
from sqlproxy.wire import codec
from sqlproxy.wire.codec import CancelRequest, EncryptionRequest, Fatal, ProtocolError, Startup
from sqlproxy.wire.seam import Session, Sessions

_NOTHING: Final = "none"  # is what he proved himself with
SERVER_VERSION: Final = "15.0 (Kvorum)"
# What is reported to a client at the start; the session's own settings go over these.
REPORTED: Final = {
    "server_version": SERVER_VERSION,
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "application_name": "",
    "default_transaction_read_only": "off",
    "in_hot_standby": "off",
    "is_superuser": "on",
    "session_authorization": "",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
}
_OF_THE_SERVER: Final = frozenset({"auto", "sql_ascii"})  # it is the server's encoding then
_ENCRYPTION_REQUESTS_MAX: Final = 2  # one for TLS, one for GSSAPI
_OWN: Final = frozenset({"user", "database", "options", "replication", "client_encoding"})
_CONNECTION_OPTION: Final = "_pq_."
_KEY_BYTES: Final = 32  # of a cancel key in protocol 3.2
_KEY_BYTES_OLD: Final = 4


class Tls(Protocol):
    @property
    def server(self) -> ssl.SSLContext:
        """For the next connection."""
        ...

    def end_point(self) -> bytes:
        """The hash of its certificate that tls-server-end-point demands (RFC 5929), empty without
        channel binding.
        """
        ...


class Door(Comer, Protocol):
    out: bytearray
    end_point: bytes
    """See Tls, of this connection."""

    @property
    def loopback(self) -> bool: ...

    @property
    def address(self) -> str:
        """Where the other end is; empty if that says nothing."""
        ...

    @property
    def encrypted(self) -> bool: ...

    @property
    def certificate(self) -> str:
        """The common name that the client has proved by TLS; empty: none."""
        ...

    @property
    def unread(self) -> bool:
        """Bytes that came already and are not taken yet."""
        ...

    async def startup_packet(self) -> bytes: ...

    async def message(self) -> tuple[int, bytes | codec.Skipped]: ...

    def flush(self) -> None: ...

    async def encrypt(self, context: ssl.SSLContext) -> None: ...


class Host(Protocol):
    """What the server gives to a greeting."""

    sessions: Sessions
    rng: Rng
    tls: Tls | None
    secret: bytes

    def admit(self, comer: Comer) -> None:
        """Raises Fatal: no room, or stopping."""
        ...

    def cancel(self, process: int, key: bytes) -> None: ...

    def login_wait_ms(self, address: str, user: str) -> int: ...

    def login_failed(self, address: str, user: str) -> None: ...

    def login_decided(self, address: str, who: Identity, refused: SqlError | None) -> None:
        """`who`: by what he proved it, "none" if he did not."""
        ...

    def login_succeeded(self, address: str, user: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Greeted:
    session: Session
    zone: str
    version: int


async def greet(door: Door, host: Host, register: Callable[[bytes], int]) -> Greeted | None:
    """The session of a client that was let in; None: it wanted something else, which is done.
    `register`: remembers the key, gives the number of the process. Raises Fatal, Gone.
    """
    startup = await _packet(door, host)
    if startup is None:
        return None
    if host.tls is not None and not door.encrypted:
        raise Fatal(
            INVALID_AUTHORIZATION,
            "this server takes connections over TLS only",
            hint="Use sslmode=verify-full (with sslrootcert) or sslmode=require.",
        )
    version = _negotiate(door, startup)
    user, database, settings = _wishes(startup)
    host.admit(door)
    who = Identity(user, _NOTHING)
    try:
        who = await _identify(door, host, user)
        session = await host.sessions.open(who, door.address, database, settings)
    except (SqlError, KvorumError) as error:
        refused = _fatal(error if isinstance(error, SqlError) else at_the_door(error))
        host.login_decided(door.address, who, refused)
        raise refused from None
    host.login_decided(door.address, who, None)
    door.out += codec.AUTHENTICATED
    zone = _report(door, session, user, settings)
    key = host.rng.token(_KEY_BYTES if version >= codec.VERSION_3_2 else _KEY_BYTES_OLD)
    door.out += codec.backend_key(register(key), key)
    for notice in session.channel.notices:
        door.out += codec.notice_response(notice)
    session.channel.notices.clear()
    door.out += codec.READY[session.status]
    door.flush()
    return Greeted(session, zone, version)


def _fatal(error: SqlError) -> Fatal:
    if isinstance(error, Fatal):
        return error
    return Fatal(error.sqlstate, error.message, detail=error.detail, hint=error.hint)


async def _packet(door: Door, host: Host) -> Startup | None:
    for _ in range(_ENCRYPTION_REQUESTS_MAX + 1):
        packet = codec.read_startup(await door.startup_packet())
        if isinstance(packet, Startup):
            return packet
        if isinstance(packet, CancelRequest):
            host.cancel(packet.process, packet.key)
            return None
        await _encryption(door, host, packet)
    raise ProtocolError("too many requests for encryption")


async def _encryption(door: Door, host: Host, packet: EncryptionRequest) -> None:
    if not packet.tls or host.tls is None or door.encrypted:
        door.out += b"N"
        door.flush()
        return
    if door.unread:
        # somebody between the two could have put it there (CVE-2021-23214)
        raise ProtocolError("received unencrypted data after SSL request")
    door.out += b"S"
    door.flush()
    context, door.end_point = host.tls.server, host.tls.end_point()
    await door.encrypt(context)


def _negotiate(door: Door, startup: Startup) -> int:
    """3.2 is the newest version that we speak, 3.1 never was; options that we do not know are
    named to the client.
    """
    version = codec.VERSION_3_2 if startup.version >= codec.VERSION_3_2 else codec.VERSION_3_0
    unknown = [name for name in startup.parameters if name.startswith(_CONNECTION_OPTION)]
    if unknown or startup.version > codec.VERSION_3_2:
        door.out += codec.negotiate(version, unknown)
    return version


def _wishes(startup: Startup) -> tuple[str, str, dict[str, str]]:
    """User, database, settings. Raises Fatal."""
    given = startup.parameters
    user = given.get("user", "")
    if not user:
        raise Fatal(INVALID_AUTHORIZATION, "no PostgreSQL user name specified in startup packet")
    if given.get("replication", "false").lower() not in ("", "false", "off", "no", "0"):
        raise Fatal("0A000", "replication connections are not supported")
    encoding = given.get("client_encoding", "UTF8")
    if encoding.lower() not in _OF_THE_SERVER and not is_utf8(encoding):
        raise Fatal(
            INVALID_PARAMETER,
            f'invalid value for parameter "client_encoding": "{encoding}"',
            hint="Only UTF8 is spoken here.",
        )
    settings = _options(given.get("options", ""))
    for name, value in given.items():
        if name not in _OWN and not name.startswith(_CONNECTION_OPTION):
            settings[name] = value
    return user, given.get("database") or user, settings


def _options(text: str) -> dict[str, str]:
    """Settings in the form of command line options: `-c name=value`, `--name=value`; a backslash
    keeps a blank. Raises Fatal.
    """
    words = _words(text)
    settings: dict[str, str] = {}
    while words:
        word = words.pop(0)
        if word == "-c" and words:
            word = words.pop(0)
        elif word.startswith(("-c", "--")):
            word = word[2:]
        else:
            raise Fatal(PROTOCOL_VIOLATION, f'invalid command-line argument: "{word}"')
        name, equals, value = word.partition("=")
        if not equals:
            raise Fatal(PROTOCOL_VIOLATION, f"-c {name} requires a value")
        settings[name.replace("-", "_")] = value
    return settings


def _words(text: str) -> list[str]:
    words: list[str] = []
    word = ""
    at = 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            word += text[at + 1]
            at += 2
            continue
        if text[at].isspace():
            if word:
                words.append(word)
            word = ""
        else:
            word += text[at]
        at += 1
    return [*words, word] if word else words


async def _identify(door: Door, host: Host, user: str) -> Identity:
    """Who it is, proved. Raises SqlError, Fatal, Gone."""
    if await host.sessions.trusted(door.loopback):
        return Identity(user, LOOPBACK.credential)
    if door.certificate == user != NODE_NAME:
        return Identity(user, "certificate")
    _not_too_often(door, host, user)
    try:
        last = await _by_password(door, host, user)
    except SqlError as error:
        _not_too_often(door, host, user)
        if error.sqlstate in (INVALID_AUTHORIZATION, INVALID_PASSWORD):
            host.login_failed(door.address, user)
        raise
    _not_too_often(door, host, user)  # many at once are no way to learn more than one by one
    door.out += last
    host.login_succeeded(door.address, user)
    return Identity(user, "password")


def _not_too_often(door: Door, host: Host, user: str) -> None:
    """Raises Fatal."""
    if wait_ms := host.login_wait_ms(door.address, user):
        raise Fatal(
            TOO_MANY_CONNECTIONS,
            "too many failed logins",
            hint=f"Try again in {wait_ms} ms.",
        )


async def _by_password(door: Door, host: Host, user: str) -> bytes:
    """The last message to whoever has proved to know it. Raises SqlError, Gone."""
    scram = Scram(
        user,
        await host.sessions.verifier(user),
        nonce=host.rng.token(NONCE_BYTES),
        secret=host.secret,
        end_point=door.end_point,
    )
    door.out += codec.sasl_mechanisms(scram.mechanisms)
    mechanism, data = codec.read_sasl_initial(await _password(door))
    door.out += codec.sasl_continue(scram.first(mechanism, data))
    return codec.sasl_final(scram.final(await _password(door)))


async def _password(door: Door) -> bytes:
    kind, body = await door.message()
    if kind != codec.PASSWORD or isinstance(body, codec.Skipped):
        raise ProtocolError(f"expected SASL response, got message type {kind}")
    return body


def _report(door: Door, session: Session, user: str, settings: Mapping[str, str]) -> str:
    """Tells the settings; returns the zone."""
    statuses = dict(REPORTED)
    statuses["session_authorization"] = user
    statuses["application_name"] = settings.get("application_name", "")
    statuses.update(session.channel.parameters)
    session.channel.parameters.clear()
    for name, value in statuses.items():
        door.out += codec.parameter_status(name, value)
    return statuses["TimeZone"]

"""Every decoder that takes bytes of somebody who has proved nothing: with samples of what is good,
and the errors by which it may refuse. Whatever else it raises is a bug.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import json
import shutil
import ssl
import struct
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgpack
import psutil
from joserfc import jws
from joserfc.jwk import ECKey

import kvorum.api.verbs  # noqa: F401 - declares its verbs
from kv.base.errors import KvorumError
from kv.base.rpc import FrameDecoder, FrameEncoder, Hello, decode, error_of, read_hello, requests_of
from kv.base.tls import CA, NODE, Tls
from kv.base.verbs import NODE_METHODS, VERBS
from kvorum.api import cursor
from kvorum.http.server.authentication import user_of
from kvorum.http.wire import codec as http
from kvorum.security import certificates
from kvorum.security.oidc import Issuer
from raft import handshake, wire
from sqlproxy.catalog import scram, tokens
from sqlproxy.pg import binary, oids, text
from sqlproxy.pg.answers import CopyFormat, Field
from sqlproxy.pg.copying import reader as copy_reader
from sqlproxy.pg.style import DEFAULT
from sqlproxy.values.errors import SqlError
from sqlproxy.wire import codec as sql

CPU_S_MAX: Final = 0.2
"""An input may hold a loop for so long."""
_ROWS_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """`run` takes bytes as they come from outside; raises one of `refusals`, or is fine."""

    name: str
    samples: Sequence[bytes]
    run: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = (KvorumError, SqlError)


@dataclass(frozen=True, slots=True)
class Finding:
    target: str
    data: bytes
    what: str

    def __str__(self) -> str:
        return f"{self.target}: {self.what} on {self.data[:2_000]!r} ({len(self.data)} bytes)"


def tried(target: Target, data: bytes) -> Finding | None:
    """What is wrong with the answer, None: nothing."""
    began = time.thread_time()
    try:
        target.run(data)
    except target.refusals as error:
        if getattr(error, "code", "") == "INTERNAL" or getattr(error, "sqlstate", "") == "XX000":
            return Finding(target.name, data, f"an internal error: {error}")
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return Finding(target.name, data, f"{type(error).__name__}: {error}")
    took = time.thread_time() - began
    if took > CPU_S_MAX:
        return Finding(target.name, data, f"it took {took:.2f} s of CPU")
    return None


def memory_bytes() -> int:
    """Of this process."""
    return int(psutil.Process().memory_info().rss)


# -- native protocol


def _frame(rows: list[Any]) -> bytes:
    return FrameEncoder().message(rows)


def _native(data: bytes) -> None:
    """As a server takes them: cut, requests of a frame, arguments of each."""
    decoder = FrameDecoder()
    for piece in (data[:7], data[7:]):
        decoder.push(piece)
        while (message := decoder.pull()) is not None:
            for row in requests_of(message):
                verb = VERBS.get(row[1])
                if verb is not None:
                    verb.check(row)


def _native_samples() -> list[bytes]:
    rows = []
    for number, verb in enumerate(VERBS, 1):
        place = [2, 1] if verb.number < NODE_METHODS else []
        rows.append([number, verb.number, 1_000, *place, *([b"k"] * len(verb.fields))])
    return [_frame([row]) for row in rows] + [_frame(rows[:20])]


def _native_hello(data: bytes) -> None:
    read_hello(decode(data), "c")


def _native_reply(data: bytes) -> None:
    """What a client takes of a server that lies."""
    for row in decode(data):
        if type(row) is list and len(row) >= 2:
            error_of(row)


# -- raft

_MALFORMED: Final = (wire.Malformed,)


def _raft(data: bytes) -> None:
    frames = wire.FrameReader(wire.FRAME_BYTES_MAX)
    room = frames.room()
    count = min(len(data), len(room))
    room[:count] = data[:count]
    for _, body in frames.received(count):
        wire.read_messages(body)


def _raft_body(data: bytes) -> None:
    wire.read_messages(data)


def _raft_samples() -> list[bytes]:
    rows = [
        wire.pack_message(1, {"type": "append_entries", "term": 3, "entries": [[b"x", 4, 3]]}),
        wire.pack_message(2, {"type": "request_vote", "term": 9, "last_log_index": 7}),
    ]
    return [wire.messages_body(rows), wire.messages_body(rows[:1])]


def _hello_of_node() -> bytes:
    identity = handshake.Identity(cluster="c", node=2, incarnation=bytes(16))
    return handshake.Hello(identity, bytes(handshake.NONCE_BYTES), 1).body()


# -- HTTP


def _query(data: bytes) -> None:
    query = http.Query(data)
    for ask in (query.snapshot, query.encoded, lambda: query.integer("limit", 1, 1_000)):
        ask()
    query.data("start", True)
    query.done()


def _basic(data: bytes) -> None:
    user_of(data.decode("latin-1"))


def _cursor_body(data: bytes) -> None:
    """With a checksum that fits: it is no secret."""
    body = b"\x01" + data
    cursor.decode(base64.urlsafe_b64encode(body + zlib.crc32(body).to_bytes(4, "little")).decode())


# -- SQL


def _startup(data: bytes) -> None:
    decoder = sql.Decoder()
    decoder.push(data)
    while (packet := decoder.pull_startup()) is not None:
        sql.read_startup(packet)


_READS: Final[dict[int, Callable[[bytes], object]]] = {
    ord("Q"): sql.read_query,
    ord("P"): sql.read_parse,
    ord("B"): sql.read_bind,
    ord("D"): sql.read_target,
    ord("C"): sql.read_target,
    ord("E"): sql.read_execute,
    ord("F"): sql.read_function_call,
    ord("S"): sql.read_nothing,
    ord("H"): sql.read_nothing,
    ord("p"): sql.read_sasl_initial,
}


def _messages(data: bytes) -> None:
    decoder = sql.Decoder()
    for piece in (data[:9], data[9:]):
        decoder.push(piece)
        decoder.cycle()
        while (found := decoder.pull()) is not None:
            kind, body = found
            if isinstance(body, bytes) and kind in _READS:
                _READS[kind](body)


def _message_samples() -> list[bytes]:
    bind = b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\x01\0\x01"
    return [
        sql.message(b"Q", b"SELECT 1\0"),
        sql.message(b"P", b"s\0SELECT $1::int\0\0\x01\0\0\0\x17") + sql.message(b"S", b""),
        sql.message(b"B", bind) + sql.message(b"E", b"\0\0\0\0\0") + sql.message(b"S", b""),
        sql.message(b"D", b"Ss\0") + sql.message(b"C", b"Pp\0") + sql.message(b"H", b""),
        sql.message(b"p", b"SCRAM-SHA-256\0\0\0\0\x10n,,n=,r=abcdefgh"),
        sql.message(b"F", b"\0\0\0\x01\0\0\0\0\0\0"),
    ]


def _scram(data: bytes) -> None:
    login = scram.Scram("u", None, nonce=bytes(18), secret=b"s", end_point=b"")
    first, _, final = data.partition(b"|")
    login.first(scram.MECHANISM, first)
    login.final(final)


def _verifier(data: bytes) -> None:
    scram.read_verifier(data.decode("latin-1"))


# -- who somebody is

_KEY: Final = {  # known to everybody, so that the same seed gives the same bytes
    "kty": "EC",
    "kid": "k",
    "crv": "P-256",
    "x": "RRvLHvwvqQUNXbXWINOjgxH-cNMPrYkAKxxehLa_sKw",
    "y": "bpE7GsUyL6y0mshvRwUAOU3HIfmtd0lzUqtKhCS52Hc",
    "d": "3BxwEiX1sywX4TM4DGG-q0HERWZpg97QDC8VlpLNbzg",
}
_TOKEN: Final = (
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJpIiwiYXVkIjoiYSIsInN1YiI6InUiLCJ"
    "leHAiOjEwMCwibmJmIjoxfQ.Rhrj-VtbPxMiGnpYo7AKGYUPDus_tC6NbmBz77ekZOcK5dg_eziah29S7HvgDuQo-xE0Kc"
    "HXiQYOEweas1qzEw"
)
_CERTIFICATE: Final = base64.b64decode(
    "MIIBvTCCAWOgAwIBAgIUS0UxI/i3I8EHZW4P/Xd0HAiRAocwCgYIKoZIzj0EAwIwJTEPMA0GA1UECgwGS3ZvcnVtMRIwEAYD"
    "VQQDDAlLdm9ydW0gQ0EwIBcNMjUxMjMxMjMwMDAwWhgPMjEyNTEyMDgwMDAwMDBaMB8xDzANBgNVBAoMBkt2b3J1bTEMMAoG"
    "A1UEAwwDYW5uMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE+eEjrEi+jn2W/MTQB3cBMLRDjpgUkG9g23JhBFTu6n8M4Ox3"
    "MTPyeIBPatjchrBPMrREj8V3V36kDcMegCwnK6N1MHMwDAYDVR0TAQH/BAIwADAOBgNVHQ8BAf8EBAMCB4AwEwYDVR0lBAww"
    "CgYIKwYBBQUHAwIwHwYDVR0jBBgwFoAU36Q4Ub3WGOpAnL4WIXCzZ3z8tkwwHQYDVR0OBBYEFLU9ShJWOhRakxVOhRdjO4i8"
    "3txHMAoGCCqGSM49BAMCA0gAMEUCIAFd74a9cuRIIp4399W+EegnRpA5JEBm3LxOes+tZYxVAiEAhL24ultHCyyNmFTxa/gP"
    "DIQkklcAv6LpEUnqkMFBT/8="
)
_CLIENT_HELLOS: Final = (  # of TLS 1.2 and 1.3
    "FgMBAIMBAAB/AwPXGdMiFHJeztaEdzcrmoYhUrBqmb+sEkDWyC/dL4kWGQAABMAsAP8BAABSAAsABAMAAQIACgAMAAoAHQAX"
    "AB4AGQAYACMAAAAWAAAAFwAAAA0AKgAoBAMFAwYDCAcICAgJCAoICwgECAUIBgQBBQEGAQMDAwEDAgQCBQIGAg==",
    "FgMBAOwBAADoAwOryZwJpTfKyeBc1iBKqsozlnJv97RWsvXAT2BTQ5irgyAg2AsEwTstgOL+c9sy1X877cjGexjN3Sgd7Xbr"
    "6hQqnAAKEwITAxMBwCwA/wEAAJUACwAEAwABAgAKABYAFAAdABcAHgAZABgBAAEBAQIBAwEEACMAAAAWAAAAFwAAAA0AKgAo"
    "BAMFAwYDCAcICAgJCAoICwgECAUIBgQBBQEGAQMDAwEDAgQCBQIGAgArAAUEAwQDAwAtAAIBAQAzACYAJAAdACAv8vz5ygl2"
    "0D5of3fwpc9BX9qQkIdqnhsOEGBr4WnLDg==",
)


def _whose(token: str, keys: bytes) -> None:
    """Up to its user, for an issuer that has those keys."""

    async def at_once(work: Callable[[], None]) -> None:
        work()

    issuer = Issuer("i", "a", "sub", lambda: keys, now_s=lambda: 50.0, in_thread=at_once)
    asking = issuer.subject(token)
    with contextlib.suppress(StopIteration):
        asking.send(None)
        raise AssertionError("it waits for something")


def _of_issuers() -> Iterator[Target]:
    """A token from outside, claims that the issuer has signed, and the issuer's keys."""
    key = ECKey.import_key(_KEY)
    keys = json.dumps({"keys": [key.as_dict(private=False)]}).encode()
    head = _TOKEN.partition(".")[0].encode()
    claims = base64.urlsafe_b64decode(_TOKEN.split(".")[1] + "==")

    def signed(data: bytes) -> None:
        header = {"alg": "ES256", "kid": "k"}
        _whose(jws.serialize_compact(header, data, key, algorithms=["ES256"]), keys)

    yield Target("JWT", [_TOKEN.encode(), head], lambda data: _whose(data.decode("latin-1"), keys))
    yield Target("JWT claims", [claims], signed)
    yield Target("JWKS", [keys], lambda data: _whose(_TOKEN, data))


@functools.cache
def _of_certificates() -> Sequence[Target]:
    """What a stranger says first over TLS; files that are named as certificates."""
    now = datetime.now(UTC)
    authority = certificates.authority(now)
    shown = certificates.node(authority, ["localhost"], now)
    there = Path(tempfile.mkdtemp(prefix="kvorum-attack-"))
    atexit.register(shutil.rmtree, there)
    (there / CA).write_bytes(authority.certificate)
    path, key = certificates.save(there, NODE, shown)
    context = Tls(there / CA, (path, key)).server

    def hello(data: bytes) -> None:
        incoming = ssl.MemoryBIO()
        incoming.write(data)
        context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True).do_handshake()

    def certificate(data: bytes) -> None:
        pem = ssl.DER_cert_to_PEM_cert(data).encode()
        path.write_bytes(pem)
        with warnings.catch_warnings(action="ignore"):  # of numbers that are not allowed any more
            found = certificates.examined(there)
            assert len(found) == 2, found
            certificates.expires(pem)
            certificates.end_point(pem)

    hellos = [base64.b64decode(one) for one in _CLIENT_HELLOS]
    return (
        Target("TLS", hellos, hello, (ssl.SSLError,)),
        Target("certificate", [_CERTIFICATE], certificate, (ValueError,)),
    )


# -- values of SQL


def of_types() -> Iterator[Target]:
    """Values of every type, in text and in binary."""
    texts = [b"1", b"-1.5e3", b"t", b"2024-02-29 12:00:00.5+02", b"1 year 2 mons -3 days 04:05:06"]
    texts += [b"{1,2,NULL}", b"[2:3]={a,b}", b'{"a": [1, 2.5, "x"]}', b"\\xdeadbeef", b"abc"]
    texts += [b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", b"10.0.0.1/8", b"infinity", b"{{1,2},{3,4}}"]
    array = struct.pack(">iiIii", 1, 0, 23, 2, 1) + (struct.pack(">ii", 4, 7)) * 2
    numeric = struct.pack(">hhhh", 2, 1, 0, 4) + struct.pack(">hh", 12, 3400)
    raw = [bytes(n) for n in (0, 1, 2, 4, 8, 12, 16)] + [array, numeric, b"\x01{}", b"text"]
    for oid in sorted({one.oid for one in oids.TYPES.values()}):
        name = oids.TYPES[oid].name
        try:
            parse, read = text.reader(oid), binary.reader(oid)
        except SqlError:
            continue  # a type that clients send no values of
        yield Target(f"text {name}", texts, lambda data, parse=parse: parse(sql.read_text(data)))
        yield Target(f"binary {name}", raw, read)


def _copy(kind: Any) -> Callable[[bytes], object]:
    fields = [Field("a", oids.INT4), Field("b", oids.TEXT), Field("c", oids.NUMERIC)]

    def run(data: bytes) -> None:
        found = copy_reader(
            CopyFormat(kind, delimiter="," if kind == "csv" else "\t"),
            fields,
            DEFAULT,
            _ROWS_BYTES_MAX,
        )
        for piece in (data[:11], data[11:]):
            found.feed_many(piece)
        found.finish()

    return run


def _copied() -> list[bytes]:
    row = struct.pack(">hiiiii", 3, 4, 7, -1, -1, 0)[:-8]
    return [
        b"1\tx\t1.5\n2\t\\N\t\\N\n\\.\n",
        b'1,"a ""b""",2.5\r\n2,,\r\n',
        b"PGCOPY\n\xff\r\n\0" + bytes(8) + row + struct.pack(">ii", -1, -1) + b"\xff\xff",
    ]


def targets() -> list[Target]:
    """All of them."""
    return [*of_messages(), *of_types()]


def of_messages() -> list[Target]:
    """All but values of SQL's types, which are many and alike."""
    json_bodies = [
        json.dumps(one).encode()
        for one in (
            {"ops": [{"op": "put", "ns": "n", "table": "t", "key": "k", "value": {"b64": "AA=="}}]},
            {"keys": [{"ns": "n", "table": "t", "key": "k"}], "at": "123"},
            [1, 2.5, None, True, "\u00e9"],
        )
    ]
    packed = [msgpack.packb(json.loads(one)) for one in json_bodies]
    token = f"kvt_{'a' * 16}_{'b' * 43}".encode()
    verifier = scram.make_verifier("password", bytes(16)).text().encode()
    login = b"n,,n=u,r=abcdef|c=biws,r=abcdef" + base64.b64encode(bytes(18)) + b",p=AAAA"
    startup = struct.pack(">I", 3 << 16) + b"user\0u\0database\0d\0options\0-c x=y\0\0"
    codes = [struct.pack(">II", 8, 80877103), struct.pack(">IIII", 16, 80877102, 1, 2)]
    mark = cursor.encode(cursor.Span(2000, b"a", b"z", False, 7))
    return [
        Target("native frames", _native_samples(), _native),
        Target("native hello", [msgpack.packb(Hello(cluster="c").to_wire())], _native_hello),
        Target("native replies", [msgpack.packb([[1, 1, "CODE", "words", {}]])], _native_reply),
        Target("raft frames", [wire.frame(1, one) for one in _raft_samples()], _raft, _MALFORMED),
        Target("raft messages", _raft_samples(), _raft_body, _MALFORMED),
        Target("raft hello", [_hello_of_node()], handshake.read_hello, (handshake.Refusal,)),
        Target("raft refusal", [msgpack.packb(["SECRET", "no"])], handshake.read_refusal, ()),
        Target("HTTP JSON", json_bodies, lambda data: http.decode(data, False)),
        Target("HTTP msgpack", packed, lambda data: http.decode(data, True)),
        Target("HTTP query", [b"limit=10&at=123&enc=b64&start=YWJj"], _query),
        Target("HTTP path", [b"a%20b%C3%A9"], lambda data: http.path_text(data, "table")),
        Target("cursor", [mark.encode()], lambda data: cursor.decode(http.path_text(data, "c"))),
        Target("cursor's body", [base64.urlsafe_b64decode(mark + "==")[1:-4]], _cursor_body),
        Target("token", [token], lambda data: tokens.parse(data.decode("latin-1"))),
        Target("verifier", [verifier], _verifier, (ValueError,)),
        Target("SCRAM", [login], _scram),
        Target("SQL startup", [struct.pack(">I", len(startup) + 4) + startup, *codes], _startup),
        Target("SQL messages", _message_samples(), _messages),
        Target("COPY text", _copied(), _copy("text")),
        Target("COPY csv", _copied(), _copy("csv")),
        Target("COPY binary", _copied(), _copy("binary")),
        Target("HTTP Basic", [base64.b64encode(b"u:password")], _basic),
        *_of_issuers(),
        *_of_certificates(),
    ]

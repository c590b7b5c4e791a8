"""Lean clients of the native protocol.

Requests are byte templates: everything but the key is packed once. One request is in flight per
connection, so its rid may always be 1, and a good reply begins with known bytes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

from bench.closed_loop import Connection, Failed, Script, Tally
from bench.spec import Spec
from kv.base import methods as m
from kv.base.rpc import HEADER_BYTES, OK, FrameEncoder, Hello, decode, error_of, read_hello

_RID = 1
_LENGTH = struct.Struct("<I")
_length_at = _LENGTH.unpack_from
_RID_AT = HEADER_BYTES + 2  # list of one, list of fields, rid
_STATUS_AT = _RID_AT + 1
_RESULT_AT = _STATUS_AT + 1
_NIL = 0xC0
_encoder = FrameEncoder()


def frame(method: int, *args: Any) -> bytes:
    """A frame with one request."""
    return _encoder.message([[_RID, method, 0, *args]])


ASK = frame(m.TSO, 1)
"""For a timestamp. It goes to the oracle's node, which may be another one than the partition's
leader (`Oracle`)."""


def rest_of(data: bytes | bytearray) -> list[Any]:
    """The result fields of the reply in a frame. Raises Failed with the server's reason."""
    row = decode(bytes(data[HEADER_BYTES:]))[0]
    if row[1] != OK:
        raise Failed(str(error_of(row)))
    result: list[Any] = row[2:]
    return result


class Template:
    """A frame in which only the key changes, from one of the same length to another."""

    __slots__ = ("_after", "_before")

    def __init__(self, key: bytes, method: int, *args: Any) -> None:
        packed = frame(method, *args)
        self._before, found, self._after = packed.partition(key)
        assert found
        assert key not in self._after

    def __call__(self, key: bytes) -> bytes:
        return self._before + key + self._after


class Simple:
    """put, get: one request, and a look at the first bytes of its reply."""

    __slots__ = ("_choose", "_keys", "_must_exist", "_request")

    def __init__(self, spec: Spec, keys: Sequence[bytes], rng: Random, value: bytes) -> None:
        where = (spec.partition, spec.epoch)
        self._request = (
            Template(keys[0], m.PUT, *where, keys[0], value, None, 0)
            if spec.op == "put"
            else Template(keys[0], m.GET, *where, keys[0], 0, None)
        )
        self._keys, self._choose = keys, rng.random
        self._must_exist = spec.op == "get"

    def begin(self) -> bytes:
        keys = self._keys
        return self._request(keys[int(self._choose() * len(keys))])

    def reply(self, data: bytes | bytearray) -> None:
        if data[_STATUS_AT] != OK or data[_RID_AT] != _RID:
            raise Failed(f"unexpected reply {rest_of(data)!r:.200}")
        if self._must_exist and data[_RESULT_AT] == _NIL:
            raise Failed("a loaded key is not there")


class Scan:
    """A page from a random key on; the rows are decoded, as a client needs them."""

    __slots__ = ("_choose", "_end", "_keys", "_rows", "_spec")

    def __init__(self, spec: Spec, keys: Sequence[bytes], rng: Random, value: bytes) -> None:
        self._spec, self._keys, self._choose = spec, keys, rng.random
        self._rows = spec.rows_per_op
        self._end = spec.table_end

    def begin(self) -> bytes:
        last = max(1, len(self._keys) - self._rows)  # so that the page is always full
        start = self._keys[int(self._choose() * last)]
        where = (self._spec.partition, self._spec.epoch)
        return frame(m.SCAN, *where, start, self._end, 0, self._rows, False, None)

    def reply(self, data: bytes | bytearray) -> None:
        rows = rest_of(data)[0]
        if len(rows) != self._rows:
            raise Failed(f"a page of {len(rows)} rows instead of {self._rows}")


class Batch:
    """One atomic write of many random keys."""

    __slots__ = ("_keys", "_rng", "_spec", "_value")

    def __init__(self, spec: Spec, keys: Sequence[bytes], rng: Random, value: bytes) -> None:
        self._spec, self._keys, self._rng, self._value = spec, keys, rng, value

    def begin(self) -> bytes:
        keys = self._rng.sample(self._keys, self._spec.rows_per_op)
        ops = [[m.OP_PUT, key, self._value, None, 0] for key in keys]
        return frame(m.WRITE, self._spec.partition, self._spec.epoch, ops, 0, m.BLIND)

    def reply(self, data: bytes | bytearray) -> None:
        if data[_STATUS_AT] != OK:
            rest_of(data)


class Txn:
    """A start timestamp, a read at it, one write that fails if somebody was faster."""

    __slots__ = ("_choose", "_key", "_keys", "_spec", "_start_ts", "_step", "_value")

    def __init__(self, spec: Spec, keys: Sequence[bytes], rng: Random, value: bytes) -> None:
        self._spec, self._keys, self._choose, self._value = spec, keys, rng.random, value
        self._key, self._start_ts, self._step = keys[0], 0, 0

    def begin(self) -> bytes:
        self._key = self._keys[int(self._choose() * len(self._keys))]
        self._step = 0
        return ASK

    def reply(self, data: bytes | bytearray) -> bytes | None:
        result = rest_of(data)
        where = (self._spec.partition, self._spec.epoch)
        self._step += 1
        if self._step == 1:
            self._start_ts = result[0]
            return frame(m.GET, *where, self._key, self._start_ts, None)
        if self._step == 2:
            ops = [[m.OP_PUT, self._key, self._value, None, 0]]
            return frame(m.WRITE, *where, ops, self._start_ts, 0)
        return None


class Txn2:
    """Two keys read at a fresh timestamp in one request, both written unless somebody was faster:
    a transaction within one partition.
    """

    __slots__ = ("_keys", "_ops", "_rng", "_value", "_where")

    def __init__(self, spec: Spec, keys: Sequence[bytes], rng: Random, value: bytes) -> None:
        self._keys, self._rng, self._value = keys, rng, value
        self._ops: list[list[Any]] = []
        self._where = (spec.partition, spec.epoch)

    def begin(self) -> bytes:
        keys = self._rng.sample(self._keys, 2)
        self._ops = [[m.OP_PUT, key, self._value, None, 0] for key in keys]
        return frame(m.READ_NOW, *self._where, keys, 0, None)

    def reply(self, data: bytes | bytearray) -> bytes | None:
        result = rest_of(data)
        ops, self._ops = self._ops, []
        if not ops:  # it was written
            return None
        rows, start_ts = result
        if None in rows:
            raise Failed("a loaded key is not there")
        return frame(m.WRITE, *self._where, ops, start_ts, 0)


SCRIPTS: dict[str, Callable[[Spec, Sequence[bytes], Random, bytes], Script]] = {
    "put": Simple,
    "get": Simple,
    "scan": Scan,
    "batch": Batch,
    "txn": Txn,
    "txn2": Txn2,
}


ASKING = frozenset({"txn"})  # scripts that ask for timestamps


class NativeConnection(Connection):
    """Says hello, then runs its script."""

    def __init__(self, script: Script, tally: Tally) -> None:
        super().__init__(script, tally)
        self._greeted = False

    def ask_at(self, oracle: Oracle) -> None:
        """From now on, timestamps are asked for there. Both are connected."""
        here, there = self._transport.write, oracle._transport.write
        self._write = lambda data: (there if data is ASK else here)(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._write = self._transport.write
        self._transport.write(_encoder.message(Hello().to_wire()))

    def missing(self, data: bytes | bytearray) -> int:
        if len(data) < HEADER_BYTES:
            return HEADER_BYTES - len(data)
        return max(0, HEADER_BYTES + int(_length_at(data)[0]) - len(data))

    def _answered(self, data: bytes | bytearray) -> None:
        if self._greeted:
            super()._answered(data)
            return
        self._greeted = True
        read_hello(decode(bytes(data[HEADER_BYTES:])), "")
        self.ready.set_result(None)


class Oracle(NativeConnection):
    """A client's second connection, to the oracle's node: its replies are the client's."""

    def __init__(self, client: NativeConnection, tally: Tally) -> None:
        super().__init__(client._script, tally)
        self._client = client

    def _answered(self, data: bytes | bytearray) -> None:
        if self._greeted:
            self._client._answered(data)
        else:
            super()._answered(data)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._stopping:
            self._client.connection_lost(error)

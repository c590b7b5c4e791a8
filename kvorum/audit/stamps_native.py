"""What a request of the native protocol says for the log of stamps: by method, from its arguments
and its reply (kv/base/methods.py). Pure.

Of a read of the newest state the moment is the partition's read point, which its reply was made
at. Arguments may be anything, refused ones are told, too: what cannot be read is left out.

Left out: what nodes ask each other about themselves (heartbeats, orders, waits); only what they
read and write for their clients is a request of somebody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kv.base import methods as m
from kv.base.errors import InvalidArgument
from kvorum.api.method_names import METHOD_NAMES
from kvorum.api.names import PREFIX_BYTES
from kvorum.audit.stamps import OK, Key, Stamp, StampLog
from procedures.engine import plain

_ARGS: Final = 5  # of a partition method, behind rid, method, deadline, partition and epoch
_NODE_ARGS: Final = 3
_SURFACE: Final = "native"

# Where a method has what: (keys, start_ts, read_ts, commit_ts); -1 = nowhere
_PLACES: Final[dict[int, tuple[Callable[[Sequence[Any]], Iterable[bytes]], int, int, int]]] = {}


def _one(args: Sequence[Any]) -> list[bytes]:
    return [args[0]]


def _many(at: int) -> Callable[[Sequence[Any]], list[bytes]]:
    return lambda args: list(args[at])


def _rows(at: int) -> Callable[[Sequence[Any]], list[bytes]]:
    """Of packed rows the first and the last."""
    return lambda args: (
        [args[at][0], args[at][-1]] if isinstance(args[at + 1], bytes) else list(args[at])
    )


def _ops(at: int) -> Callable[[Sequence[Any]], list[bytes]]:
    return lambda args: [op[1] for op in args[at]]


def _anchor(at: int) -> Callable[[Sequence[Any]], list[bytes]]:
    return lambda args: [args[at]]


_PLACES.update(
    {
        m.GET: (_one, -1, 1, -1),
        m.PUT: (_one, -1, -1, -1),
        m.DELETE: (_one, -1, -1, -1),
        m.WRITE: (_ops(0), 1, -1, -1),
        m.WRITE_ROWS: (_many(0), 2, -1, -1),
        m.INGEST: (_many(0), -1, -1, -1),
        m.MGET: (_many(0), -1, 1, -1),
        m.READ_NOW: (_many(0), -1, 1, -1),
        m.SCAN: (_one, -1, 2, -1),
        m.SCAN_VALUES: (_one, -1, 2, -1),
        m.SCAN_SEALED: (_one, -1, 2, -1),
        m.PAIRS: (_one, -1, 2, -1),
        m.PARTS: (_one, -1, -1, -1),
        m.CHANGES: (_one, -1, 2, -1),
        m.AWAIT_CHANGES: (_one, -1, -1, -1),
        m.PREWRITE: (_ops(3), 0, -1, -1),
        m.PREWRITE_ROWS: (_rows(3), 0, -1, -1),
        m.COMMIT: (_anchor(0), 1, -1, 2),
        m.ROLLBACK: (_anchor(0), 1, -1, -1),
        m.CHECK: (_anchor(0), 1, -1, -1),
        m.RESOLVE: (_many(2), 0, -1, 1),
        m.HEARTBEAT: (_anchor(0), 1, -1, -1),
        m.RECOVER: (_many(2), 0, -1, -1),
        m.SETTLE: (_anchor(0), 1, -1, 2),
    }
)
_Found = tuple[Sequence[Key], Sequence[int | str], int, int, int, int, int, int]
"""keys, tables, read_ts, start_ts, commit_ts, version, txn, procedure: as Stamp has them."""
_NOTHING: Final[_Found] = ((), (), 0, 0, 0, 0, 0, 0)
_NAMES: Final = {int(number): name for number, name in METHOD_NAMES.items()}
_VERSION_IS_RESULT: Final = frozenset({m.PUT, m.DELETE, m.WRITE, m.WRITE_ROWS})
_READS: Final = frozenset({m.GET, m.MGET, m.SCAN, m.SCAN_VALUES, m.SCAN_SEALED, m.READ_NOW})
_RANGES: Final = frozenset(
    {m.SCAN, m.SCAN_VALUES, m.SCAN_SEALED, m.CHANGES, m.PAIRS, m.PARTS, m.AWAIT_CHANGES}
)
_PROCEDURE_ARG: Final = frozenset({m.PROC_GET, m.PROC_ACK, m.PROC_ABORT})
_MALFORMED: Final = (IndexError, KeyError, TypeError, ValueError, AttributeError, InvalidArgument)


class NativeStamps:
    """kv.server.tap.Listener."""

    def __init__(self, stamps: StampLog, read_point: Callable[[int], int]) -> None:
        """`read_point(partition)`: what a read of the newest state is served at now."""
        self._stamps, self._read_point = stamps, read_point

    def answered(
        self, client: str, node: int, request: list[Any], reply: list[Any], took_s: float
    ) -> None:
        method = request[1]
        if node and method >= m.NODE_METHODS:
            return
        code = str(reply[3]) if reply[1] and len(reply) > 3 else OK
        name = _NAMES.get(method) or str(method)
        if method == m.FINISH and code == OK:
            self._finished(client, node, request, reply, took_s)
            return
        try:
            found = self._found(method, request, reply)
        except _MALFORMED:  # it was refused for that
            found = _NOTHING
        keys, tables, read_ts, start_ts, commit_ts, version, txn, procedure = found
        told = _SURFACE, client, name, keys, tables, code, took_s
        stamp = Stamp(*told, read_ts, start_ts, commit_ts, version, txn, procedure, node)
        self._stamps.add(stamp)

    def _finished(
        self, client: str, node: int, request: list[Any], reply: list[Any], took_s: float
    ) -> None:
        """Ends of many transactions: a stamp for each."""
        for (start_ts, anchor, commit_ts, keys), (status, _) in zip(
            request[_ARGS], reply[2], strict=True
        ):
            if anchor is not None and status != m.COMMITTED:
                commit_ts = 0  # it was not looked at: COMMIT follows
            named = [_key(key) for key in keys]
            told = _SURFACE, client, "FINISH", named, (), OK, took_s
            self._stamps.add(Stamp(*told, 0, start_ts, commit_ts, 0, start_ts, 0, node))

    def _found(self, method: int, request: list[Any], reply: list[Any]) -> _Found:
        """What a stamp has from its keys to its procedure."""
        done = not reply[1]
        if method >= m.NODE_METHODS:
            return _node_method(method, request[_NODE_ARGS:], reply[2:] if done else [])
        args = request[_ARGS:]
        keys_of, start_at, read_at, commit_at = _PLACES[method]
        keys = [_key(key) for key in keys_of(args)]
        start_ts = args[start_at] if start_at >= 0 else 0
        read_ts = args[read_at] if read_at >= 0 else 0
        commit_ts = args[commit_at] if commit_at >= 0 and done else 0
        version = 0
        if done and method in _VERSION_IS_RESULT:
            commit_ts = reply[2]
        elif done and method == m.COMMIT:
            commit_ts = reply[3] if reply[2] == m.COMMITTED else 0
        elif done and method == m.GET:
            version = reply[3]
        if done and not read_ts and method in _READS:
            read_ts = self._read_point(request[3])
        if method in _RANGES:
            return (), (keys[0][0],), _int(read_ts), 0, 0, 0, 0, 0
        numbers = (read_ts, start_ts, commit_ts, version, start_ts)
        if not all(type(number) is int for number in numbers):
            raise TypeError
        return keys, (), *numbers, 0


def _node_method(method: int, args: Sequence[Any], result: Sequence[Any]) -> _Found:
    read_ts = start_ts = txn = procedure = 0
    if method in _PROCEDURE_ARG:
        procedure = _int(args[0])
    elif method in (m.PROC_SUBMIT, m.PROC_SUBMIT_MORE) and result:
        procedure = _int(result[0])
    elif method == m.PROC_CONTROL:
        procedure = _int(plain.read(args[1], "arguments").get("id", 0))
    elif method in (m.FIND_TXN, m.HOLDS_TXN, m.END_TXN):
        txn = _int(args[0])
    elif method == m.TSO and result:
        start_ts = _int(result[0])
    elif method == m.SNAPSHOT_OPEN and result:
        read_ts = _int(result[1])
    return (), (), read_ts, start_ts, 0, 0, txn, procedure


def _int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _key(key: Any) -> Key:
    if type(key) is not bytes:
        raise TypeError
    return int.from_bytes(key[:PREFIX_BYTES], "big"), key[PREFIX_BYTES:]

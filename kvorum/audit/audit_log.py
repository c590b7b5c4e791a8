"""The log of stamps: every request that this node answers, with its timestamps (E7).

    {"time": ms, "node": 1, "surface": "http", "client": "10.0.0.7:51234", "method": "put",
     "code": "OK", "us": 412, "allowed"?, "user"?, "credential"?, "request"?, "said"?, "denied"?,
     "read_ts"?, "start_ts"?, "commit_ts"?, "version"?, "txn"?, "procedure"?, "type"?,
     "table": ["default.users"], "keys": 1, "key"?}
    {"time": ms, "node": 1, "lost": 12, "why": "…"}

One JSON object a line; timestamps are decimal strings, what does not apply is left out. A request
costs its node one small tuple here; a task encodes and writes them in a thread, some times a
second. What does not fit into the buffer, or cannot be written, is counted, and the log itself says
so before what follows: it has gaps, never silent ones. After a crash the last moment may be
missing: lines are not synced.

`user` is who proved to be it, by `credential`; `request` an id of this node's making, which the
answer has, too, and `said` what the client calls its request. `allowed` is the decision; of one
that was refused for want of a right or of a credential, `denied` says why.

Whatever a client makes long, a name, a key, a list of tables, is cut, and stands behind who it is:
a log full of one text has lost what its client did before, and a collector that cuts lines would
lose who it was.

`time` is when the answer was ready, by the node's clock, for people. The order of things is in the
timestamps.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.limits import (
    AUDIT_BUFFER_BYTES_MAX,
    AUDIT_BUFFER_RECORDS_MAX,
    AUDIT_KEYS_SHOWN_MAX,
    AUDIT_TEXT_CHARS_MAX,
    AUDIT_WRITE_MS,
)

log = logging.getLogger(__name__)

OK: Final = "OK"
NO_FIGURES: Final = {"written": 0, "lost": 0, "waiting": 0}
"""Of a node without the log."""
_FULL: Final = "the buffer was full"
_ROUND_RECORDS: Final = 10_000  # encoded in one go
_MODE: Final = 0o600  # who did what is not everybody's business

Key = tuple[int | str, bytes]
"""A table, by its id or its name, and a key in it."""
TableNames = Callable[[Iterable[int]], Awaitable[Mapping[int, str]]]
InThread = Callable[[Callable[[], None]], Awaitable[None]]


class Asker(NamedTuple):
    """Whose request it is, and what was decided."""

    user: str
    credential: str
    request: str
    said: str  # by the client, of its request
    denied: str  # why; "": it was allowed


class Stamp(NamedTuple):
    """One request. 0 = there is none."""

    surface: str
    client: str
    method: str
    keys: Sequence[Key] = ()
    tables: Sequence[int | str] = ()  # if no keys tell
    code: str = OK
    took_s: float = 0.0
    read_ts: int = 0  # the moment that was read
    start_ts: int = 0
    commit_ts: int = 0
    version: int = 0  # that was read, of one key
    txn: int = 0
    procedure: int = 0
    node: int = 0  # whose request it is; 0 = a client's
    asker: Asker | None = None
    type: str = ""  # of a procedure that is submitted


_NUMBERS: Final = Stamp._fields[7:-3]
"""Those that are written as decimal strings."""


class StampLog:
    """See the module. `open` before the first stamp, then `run`, then `close`."""

    def __init__(
        self,
        path: Path,
        *,
        node: int,
        show_keys: bool,
        file_bytes: int,
        files: int,
        now_ms: Callable[[], int],
        in_thread: InThread,
        names: TableNames,
        ship: Callable[[bytes], None] | None = None,
        records_max: int = AUDIT_BUFFER_RECORDS_MAX,
        bytes_max: int = AUDIT_BUFFER_BYTES_MAX,
    ) -> None:
        """A file ends at `file_bytes`; `files` older ones are kept, FILE.1 the newest of them.
        `ship`: gets whole lines once they are in the file.
        """
        self.written = self.lost = 0
        self._path, self._node, self._show_keys = path, node, show_keys
        self._file_bytes, self._files = file_bytes, files
        self._now_ms, self._in_thread, self._names = now_ms, in_thread, names
        self._ship = ship
        self._records_max, self._bytes_max = records_max, bytes_max
        self._buffer: list[tuple[int, Stamp]] = []
        self._bytes = 0  # of keys in it
        self._unreported: dict[str, int] = {}  # lost and not said in the log yet, by reason
        self._trouble = ""  # why the last lines could not be written
        self._writing: asyncio.Task[None] | None = None
        self._fd = -1
        self._size = 0
        self._encode = msgspec.json.Encoder().encode

    def add(self, stamp: Stamp) -> None:
        """The hot path."""
        size = sum([len(key) for _, key in stamp.keys]) if self._show_keys else 0
        if len(self._buffer) >= self._records_max or self._bytes + size > self._bytes_max:
            self._lose(1, _FULL)
            return
        self._bytes += size
        self._buffer.append((self._now_ms(), stamp))

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        self._unreported[why] = self._unreported.get(why, 0) + count

    def figures(self) -> Mapping[str, int]:
        """For metrics."""
        return {"written": self.written, "lost": self.lost, "waiting": len(self._buffer)}

    # ------------------------------------------------------------------ writing

    def open(self) -> None:
        """Raises InvalidArgument: a node that is to be audited does not run without."""
        try:
            self._open()
        except OSError as error:
            raise InvalidArgument(
                f"audit_log = {self._path} cannot be written: {error.strerror or error}; give "
                "another file, or start without --audit",
                details={"setting": "audit_log"},
            ) from error

    async def run(self) -> None:
        """Write, some times a second, until cancelled."""
        while True:
            await asyncio.sleep(AUDIT_WRITE_MS / 1000)
            # What was begun is finished: the stamps in it are nowhere else.
            self._writing = asyncio.get_running_loop().create_task(self.flush())
            await asyncio.shield(self._writing)

    async def flush(self) -> None:
        """Write what is there."""
        while self._buffer or self._unreported:
            stamps = self._buffer[:_ROUND_RECORDS]
            del self._buffer[:_ROUND_RECORDS]
            if self._show_keys:
                self._bytes -= sum(len(key) for _, stamp in stamps for _, key in stamp.keys)
            unreported, self._unreported = self._unreported, {}
            names = await self._named(stamps)
            failed: list[OSError] = []
            written: list[bytes] = []

            def write(
                stamps: Sequence[tuple[int, Stamp]] = stamps,
                names: Mapping[int, str] = names,
                unreported: Mapping[str, int] = unreported,
                failed: list[OSError] = failed,
                written: list[bytes] = written,
            ) -> None:
                lines = self._lines(stamps, names, unreported)
                try:
                    self._write(lines)
                    written.append(lines)
                except OSError as error:
                    failed.append(error)

            await self._in_thread(write)
            if failed:
                why = f"the file could not be written: {failed[0].strerror or failed[0]}"
                if why != self._trouble:  # several times a second, and on the same disk, perhaps
                    log.warning("audit log %s: %s; what is lost is counted", self._path, why)
                self._trouble = why
                for reason, count in unreported.items():
                    self._unreported[reason] = self._unreported.get(reason, 0) + count
                if stamps:
                    self._lose(len(stamps), why)
                return
            self._trouble = ""
            self.written += len(stamps)
            if self._ship is not None:
                self._ship(written[0])

    async def close(self) -> None:
        """Write the rest."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        with contextlib.suppress(KvorumError):
            await self.flush()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def _named(self, stamps: Sequence[tuple[int, Stamp]]) -> Mapping[int, str]:
        """The names of the tables; without the catalog their ids must do."""
        tables = [t for _, s in stamps for t in s.tables]
        tables += [t for _, s in stamps for t, _ in s.keys]
        ids = {t for t in tables if type(t) is int}
        if not ids:
            return {}
        try:
            return await self._names(ids)
        except KvorumError:
            return {}

    def _lines(
        self,
        stamps: Iterable[tuple[int, Stamp]],
        names: Mapping[int, str],
        unreported: Mapping[str, int],
    ) -> bytes:
        lost = [self.gap(count, why) for why, count in unreported.items()]
        rows = [self._row(time_ms, stamp, names) for time_ms, stamp in stamps]
        return b"".join([*lost, *[self._encode(row) + b"\n" for row in rows]])

    def gap(self, count: int, why: str) -> bytes:
        """The line in place of so many."""
        row = {"time": self._now_ms(), "node": self._node, "lost": count, "why": why}
        return self._encode(row) + b"\n"

    def _row(self, time_ms: int, s: Stamp, names: Mapping[int, str]) -> dict[str, object]:
        surface, client, method, keys, tables, code, took_s, *numbers, node, asker, type_ = s
        row: dict[str, object] = {
            "time": time_ms,
            "node": self._node,
            "surface": surface,
            "client": client,
            "method": _cut(method),
            "code": code,
            "us": round(took_s * 1e6),
        }
        if node:
            row["from_node"] = node
        if asker is not None:
            row["allowed"] = not asker.denied
            row |= {name: _cut(said) for name, said in asker._asdict().items() if said}
        for name, value in zip(_NUMBERS, numbers, strict=True):
            if value:
                row[name] = str(value)
        if type_:
            row["type"] = _cut(type_)
        if len(keys) == 1 and not tables:
            tables = (keys[0][0],)
        elif keys:
            tables = [*_tables(s)]
        if tables:
            some = tables[:AUDIT_KEYS_SHOWN_MAX]
            row["table"] = [_cut(names.get(t, str(t)) if type(t) is int else str(t)) for t in some]
        if len(tables) > AUDIT_KEYS_SHOWN_MAX:
            row["tables"] = len(tables)
        if keys:
            row["keys"] = len(keys)
            if self._show_keys:
                row["key"] = [_shown(key) for _, key in keys[:AUDIT_KEYS_SHOWN_MAX]]
        return row

    # ------------------------------------------------------------------ the file

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE)
        self._size = os.fstat(self._fd).st_size

    def _write(self, data: bytes) -> None:
        """Raises OSError; then some of it may be there, and the next line begins anew."""
        if self._fd < 0:
            self._open()
        if self._size and self._size + len(data) > self._file_bytes:
            self._rotate()
        left = memoryview(data)
        try:
            while left:
                done = os.write(self._fd, left)
                left = left[done:]
                self._size += done
        except OSError:
            if len(left) < len(data):
                with contextlib.suppress(OSError):
                    self._size -= len(data) - len(left)
                    os.ftruncate(self._fd, self._size)  # no half line
            raise

    def _rotate(self) -> None:
        os.close(self._fd)
        self._fd = -1
        for number in range(self._files, 0, -1):
            older = self._numbered(number)
            newer = self._numbered(number - 1) if number > 1 else self._path
            with contextlib.suppress(FileNotFoundError):
                os.replace(newer, older)
        if not self._files:
            self._path.unlink()
        self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _cut(text: str) -> str:
    """Fit for a line: no longer than that, and of characters that can be written."""
    return text[:AUDIT_TEXT_CHARS_MAX].encode("utf-8", "replace").decode()


def _tables(stamp: Stamp) -> Iterable[int | str]:
    return dict.fromkeys([*stamp.tables, *(table for table, _ in stamp.keys)])


def _shown(key: bytes) -> object:
    """Text, or {"b64"}, as everywhere."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(key).decode()}

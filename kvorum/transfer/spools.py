"""How a file of an import is written, and the file as the readers of formats want it: UTF-8, not
compressed, with places that one can go to.

A compressed file, or one in another encoding, has no such places. It is unpacked once per process
into a temporary file without a name, piece by piece, which goes with the import or the process;
SPOOLS_MAX of them are kept. Whoever goes on elsewhere unpacks it again: the bytes are the same.
"""

from __future__ import annotations

import codecs
import gzip
import shutil
import tempfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, BinaryIO, Final, cast

from kv.base.errors import InvalidArgument

SPOOLS_MAX: Final = 4
COMPRESSIONS: Final = ("", "gzip", "none")
_GZIP: Final = b"\x1f\x8b"
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """`delimiter` of csv; `encoding`: a codec of Python's; `compression` "": as the file begins."""

    delimiter: str = ","
    encoding: str = "utf-8"
    compression: str = ""

    @staticmethod
    def of(args: Any) -> Written:
        """Of an import's arguments, left out: the usual. Raises InvalidArgument."""
        found = Written(
            _delimiter(args.get("delimiter", ",")),
            _encoding(args.get("encoding", "utf-8")),
            args.get("compression", ""),
        )
        if found.compression not in COMPRESSIONS:
            raise InvalidArgument(
                f"compression is gzip or none, not {found.compression!r:.40}; left out, a file"
                " says it itself"
            )
        return found

    @property
    def is_utf8(self) -> bool:
        return self.encoding in ("utf-8", "ascii")


def _delimiter(given: Any) -> str:
    named = {"tab": "\t", "\\t": "\t"}
    found = named.get(given, given)
    if not isinstance(found, str) or len(found) != 1 or not found.isascii() or found in '"\r\n\0':
        raise InvalidArgument(
            f"delimiter is one character of ASCII that is no quote and no end of line, or tab; got"
            f" {given!r:.40}"
        )
    return found


def _encoding(given: Any) -> str:
    try:
        found = codecs.lookup(given)
        "".encode(found.name)  # of text, not rot13 or hex
        return found.name
    except (LookupError, TypeError, ValueError):
        raise InvalidArgument(
            f"there is no encoding {given!r:.40}; examples are utf-8, latin-1, cp1252, utf-16"
        ) from None


class Spools:
    """Of one process. Any thread may ask."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], BinaryIO] = OrderedDict()
        self._lock = Lock()

    def opened(
        self, key: tuple[int, str], written: Written, kind: str, open_: Callable[[], BinaryIO]
    ) -> BinaryIO:
        """The file of an import (its procedure and the file's name), for its reader; close it.
        Blocks. Raises InvalidArgument.
        """
        file = open_()
        if kind == "parquet" or not self._is_to_unpack(file, written):
            return file
        with file, self._lock:
            spool = self._kept.pop(key, None)
            if spool is None:
                spool = _unpacked(file, written)
            self._kept[key] = spool
            while len(self._kept) > SPOOLS_MAX:
                self._kept.popitem(last=False)[1].close()
            return cast(BinaryIO, _Kept(spool))

    def drop(self, procedure: int) -> None:
        with self._lock:
            for key in [key for key in self._kept if key[0] == procedure]:
                self._kept.pop(key).close()

    @staticmethod
    def _is_to_unpack(file: BinaryIO, written: Written) -> bool:
        return not written.is_utf8 or is_compressed(file, written)


class _Kept:
    """A spool that its reader does not close."""

    def __init__(self, spool: BinaryIO) -> None:
        self.read, self.seek, self.tell = spool.read, spool.seek, spool.tell

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def close(self) -> None:
        pass


def is_compressed(file: BinaryIO, written: Written) -> bool:
    """What is said of it, else what it begins with."""
    if written.compression:
        return written.compression == "gzip"
    file.seek(0)
    begins = file.read(len(_GZIP))
    file.seek(0)
    return begins == _GZIP


def unpacked_head(file: BinaryIO, written: Written, size: int) -> bytes:
    """The first bytes, as UTF-8. Raises InvalidArgument."""
    try:
        source = _plain(file, written)
        head = source.read(size)
        if written.is_utf8:
            return head
        return codecs.getincrementaldecoder(written.encoding)().decode(head).encode()
    except (OSError, EOFError, zlib.error, UnicodeError) as error:
        raise InvalidArgument(f"it cannot be unpacked: {error}") from error


def _plain(file: BinaryIO, written: Written) -> BinaryIO:
    if not is_compressed(file, written):
        return file
    return cast(BinaryIO, gzip.GzipFile(fileobj=file))


def _unpacked(file: BinaryIO, written: Written) -> BinaryIO:
    # Its end is in other hands (`Spools`).
    spool = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115
    try:
        source = _plain(file, written)
        if written.is_utf8:
            shutil.copyfileobj(source, spool, _READ_BYTES)
        else:
            decoder = codecs.getincrementaldecoder(written.encoding)()
            while data := source.read(_READ_BYTES):
                spool.write(decoder.decode(data).encode())
            spool.write(decoder.decode(b"", final=True).encode())
    except (OSError, EOFError, zlib.error, UnicodeError) as error:
        spool.close()
        raise InvalidArgument(
            f"it cannot be unpacked ({written.compression or 'gzip'}, {written.encoding}): {error}"
        ) from error
    return spool

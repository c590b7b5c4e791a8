"""`engine.Cursor` over a live iterator of the database on disk.

A live iterator sees the moment of its creation, whatever is written later; it pins the memtables
and files of that moment, so a cursor belongs to a bounded job. Two traps of the library are closed
here: the upper bound is a pointer into Python bytes, so `pinned` holds them (and the options with
them) for as long as the iterator lives; and an iterator that met a damaged block looks like one at
its end, so the end is believed only after `status`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kv.base.errors import KvorumError
from kv.storage.engine import cursor_closed


class RawIterator(Protocol):
    """What is needed of the library's iterator; it stands at the first row."""

    def valid(self) -> bool: ...
    def status(self) -> None: ...
    def next(self) -> None: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...


class IteratorCursor:
    """See the module."""

    def __init__(
        self,
        iterator: RawIterator,
        pinned: tuple[object, ...],
        *,
        translated: Callable[[Exception, bytes], KvorumError],
        on_close: Callable[[IteratorCursor], None],
    ) -> None:
        """`translated(error, key)`: the error of ours for one of the library, met at `key`."""
        self._iterator: RawIterator | None = iterator
        self._pinned = pinned
        self._translated = translated
        self._on_close = on_close
        self._last = b""

    def take(self, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        iterator = self._iterator
        if iterator is None:
            raise cursor_closed()
        found: list[tuple[bytes, bytes]] = []
        size = 0
        valid, key_of, value_of, step = iterator.valid, iterator.key, iterator.value, iterator.next
        try:
            while len(found) < rows_max and size < bytes_max:
                if not valid():
                    iterator.status()
                    break
                key: bytes = key_of()
                value: bytes = value_of()
                found.append((key, value))
                size += len(key) + len(value)
                step()
        except Exception as error:
            # Whoever keeps the error must not keep the iterator, and with it the directory locked.
            del iterator, valid, key_of, value_of, step
            raise self._translated(error, found[-1][0] if found else self._last) from error
        if found:
            self._last = found[-1][0]
        return found

    def close(self) -> None:
        if self._iterator is not None:
            self._iterator = None
            self._pinned = ()  # after the iterator: it points into them
            self._on_close(self)

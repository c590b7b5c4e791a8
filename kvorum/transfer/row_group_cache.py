"""What was decoded last of the row groups of Parquet files that imports read: a group can only be
decoded as a whole, and a piece of an import is a small part of it.

    one window of rows per import and file; the pieces of a group follow each other in it

All windows together are at most TRANSFER_GROUP_BYTES; the one that was used longest ago makes room.
Of a larger group the window is a copy of as many whole pieces as fit; after them it is decoded
again. So pieces are the same with and without a window. Any thread may ask.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import TYPE_CHECKING

from kv.base.limits import TRANSFER_GROUP_BYTES
from kvorum.local.extras import needed

if TYPE_CHECKING:
    import pyarrow as pa


class Groups:
    """See the module."""

    def __init__(self, bytes_max: int = TRANSFER_GROUP_BYTES) -> None:
        self._max = bytes_max
        self._kept: OrderedDict[Hashable, tuple[int, pa.Table]] = OrderedDict()
        self._lock = Lock()

    def rows(
        self, key: Hashable, offset: int, most: int, first: int, decode: Callable[[], pa.Table]
    ) -> pa.Table:
        """At most `most` rows (an Arrow table) from `offset` on; their group begins at `first` of
        the file, and `decode` gives all of it.
        """
        with self._lock:
            at, table = self._kept.pop(key, (0, None))
        if table is None or not at <= offset < at + table.num_rows:
            at, table = first, decode()
        found = table.slice(offset - at, most)
        if (after := offset + found.num_rows) < at + table.num_rows:
            self._keep(key, at, table, after, most)
        return found

    def _keep(self, key: Hashable, at: int, table: pa.Table, after: int, most: int) -> None:
        if table.nbytes > self._max:
            rest = table.slice(after - at)
            fitting = self._max * rest.num_rows // max(1, rest.nbytes) // most * most
            if not fitting:
                return
            at, table = after, _copy(rest.slice(0, fitting))
        with self._lock:
            self._kept[key] = at, table
            while self.bytes > self._max:
                self._kept.popitem(last=False)

    @property
    def bytes(self) -> int:
        """Of all that is kept."""
        return sum(int(table.nbytes) for _, table in self._kept.values())


def _copy(rows: pa.Table) -> pa.Table:
    """A slice would hold all of its table. Every type can be written to a stream; not every one
    can be taken by rows.
    """
    pa = needed("pyarrow")

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_all()

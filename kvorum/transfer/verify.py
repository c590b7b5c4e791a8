"""Whether a backup is whole: every file is read and compared. Needs no cluster. Blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kv.base.errors import Corruption
from kvorum.transfer import blocks, manifest
from kvorum.transfer.manifest import Manifest
from kvorum.transfer.places import Place


@dataclass(frozen=True, slots=True)
class Verified:
    manifest: Manifest
    rows: int
    size: int


def verify(place: Place, progress: Callable[[int, int], None] = lambda _n, _of: None) -> Verified:
    """Raises NotFound (NO_BACKUP; a file), Corruption: what is wrong, and where."""
    wanted = manifest.read(place)
    before, rows, size, last_key = blocks.NOTHING_BEFORE, 0, 0, b""
    for number in range(wanted.files):
        name = blocks.file_name(number)
        where = f"{place.uri}/{name}"
        block = blocks.unpack(place.read(name), where, number=number, before=before)
        for key, value, version, _ in block.rows:
            if key <= last_key or not 0 < version <= wanted.at:
                raise Corruption(f"{where}: the row {key[:64]!r} of version {version} is misplaced")
            last_key = key
            size += len(key) + len(value)
        rows += len(block.rows)
        before = block.digest
        progress(number + 1, wanted.files)
    if before.hex() != wanted.last or (rows, size) != (wanted.rows, wanted.size):
        raise Corruption(
            f"{place.uri}: {rows} rows in {wanted.files} files are not what the manifest says "
            f"({wanted.rows}), or its last file is another one"
        )
    return Verified(wanted, rows, size)

"""Whether a backup is whole: every file is read and compared. Needs no cluster. Blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kv.base.errors import Corruption
from kvorum.transfer import blocks, manifest
from kvorum.transfer.manifest import Manifest
from kvorum.transfer.places import Place
from kvorum.transfer.sealing import Key


@dataclass(frozen=True, slots=True)
class Verified:
    manifest: Manifest
    rows: int
    size: int


def verify(
    place: Place,
    progress: Callable[[int, int], None] = lambda _n, _of: None,
    key: Key | None = None,
) -> Verified:
    """Raises NotFound (NO_BACKUP; a file), Corruption: what is wrong, and where; Refused
    (KEY_NEEDED, WRONG_KEY).
    """
    wanted, files = manifest.read(place, key)
    before, rows, size, last_key = blocks.NOTHING_BEFORE, 0, 0, b""
    for number in range(wanted.files):
        name = blocks.file_name(number)
        where = f"{place.uri}/{name}"
        block = blocks.unpack(files.read(name), where, number=number, before=before)
        for row_key, value, version, _ in block.rows:
            if row_key <= last_key or not 0 < version <= wanted.at:
                raise Corruption(
                    f"{where}: the row {row_key[:64]!r} of version {version} is misplaced"
                )
            last_key = row_key
            size += len(row_key) + len(value)
        rows += len(block.rows)
        before = block.digest
        progress(number + 1, wanted.files)
    if before.hex() != wanted.last or (rows, size) != (wanted.rows, wanted.size):
        raise Corruption(
            f"{place.uri}: {rows} rows in {wanted.files} files are not what the manifest says "
            f"({wanted.rows}), or its last file is another one"
        )
    return Verified(wanted, rows, size)

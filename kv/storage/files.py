"""What a database says of its files, for whoever takes care of them (kv.storage.files_to_rewrite).

A table properties collector of our own cannot be put into RocksDB through its Python binding. What
RocksDB itself counts at every flush and compaction it does report, file by file and without a scan:
rows, delete marks, bytes, the first and the last key. It is kept with the file. Which family a file
belongs to is not in that list, but in another one, which has the numbers of the files of a family
(its keys are in hex, so nothing in them can be taken for a line):

    --- level 0 --- version# 15 ---
     15:1234[5 .. 5]['6B0A' seq:5, type:1 .. '6B0B' seq:5, type:1](0)

What a row *means* is counted where rows are applied (kv.partition.collectors).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

_FILE: Final = re.compile(r"^ (\d+):\d+\[", re.MULTILINE)


class FileFacts(NamedTuple):
    """A file of the database. `last` is its last key, so it belongs to the range."""

    family: str
    number: int
    level: int
    first: bytes
    last: bytes
    bytes: int
    entries: int  # rows and delete marks
    deletions: int


class MemoryFacts(NamedTuple):
    """What a family has in memory, not in a file yet."""

    entries: int
    deletions: int


def numbers_of(listing: str) -> set[int]:
    """The files in a family's `rocksdb.sstables`."""
    return {int(number) for number in _FILE.findall(listing)}


def join(files: Iterable[Mapping[str, Any]], numbers: Mapping[str, set[int]]) -> list[FileFacts]:
    """The files of the whole database, split by family. One that came or went between the two
    looks is left out.
    """
    family_of = {number: name for name, all_ in numbers.items() for number in all_}
    found = []
    for file in files:
        number = int(file["name"].lstrip("/").partition(".")[0])
        if (family := family_of.get(number)) is not None:
            found.append(
                FileFacts(
                    family=family,
                    number=number,
                    level=file["level"],
                    first=file["start_key"] or b"",
                    last=file["end_key"] or b"",
                    bytes=file["size"],
                    entries=file["num_entries"],
                    deletions=file["num_deletions"],
                )
            )
    return found

"""Clients that write all the time, and note every answer: `python -m tests.deploy.load URL FILE`.

A line `KEY VERSION` is in FILE for every write that was acknowledged. It ends at SIGTERM, or by
itself after WRITES_MAX. With `--check` it reads what FILE has, and says what is lost.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

import kvorum

WRITERS: Final = 4
WRITES_MAX: Final = 100_000
PAUSE_S: Final = 0.01
MAYBE: Final = (kvorum.UnknownOutcome, kvorum.TryLater, kvorum.Reroute)


def _key(number: int) -> str:
    return f"{'agmsy'[number % 5]}{number}"


async def _write(db: kvorum.AsyncDatabase, numbers: Iterator[int], acknowledged: TextIO) -> None:
    table = db.table("shop", "orders")
    for number in numbers:
        try:
            version = await table.put(_key(number), str(number))
        except MAYBE:
            continue
        acknowledged.write(f"{_key(number)} {version}\n")
        acknowledged.flush()
        await asyncio.sleep(PAUSE_S)


async def load(url: str, file: TextIO) -> None:
    numbers = iter(range(WRITES_MAX))
    async with await kvorum.aconnect(url) as db:
        writers = [asyncio.ensure_future(_write(db, numbers, file)) for _ in range(WRITERS)]
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: [one.cancel() for one in writers])
        ended = await asyncio.gather(*writers, return_exceptions=True)
    for one in ended:
        if isinstance(one, Exception):
            raise one


async def check(url: str, text: str) -> int:
    """How many there are. Raises AssertionError."""
    rows = [line.split() for line in text.splitlines()]
    async with await kvorum.aconnect(url) as db:
        found = {row.key.decode(): row.version async for row in db.table("shop", "orders").rows()}
    lost = [key for key, version in rows if found.get(key, -1) < int(version)]
    assert not lost, f"{len(lost)} of {len(rows)} acknowledged writes are lost: {lost[:5]}"
    return len(rows)


if __name__ == "__main__":
    url, path = sys.argv[1], Path(sys.argv[2])
    if sys.argv[3:] == ["--check"]:
        sys.stdout.write(f"{asyncio.run(check(url, path.read_text()))}\n")
    else:
        with path.open("a") as notes:
            asyncio.run(load(url, notes))

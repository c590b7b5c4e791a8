"""Three nodes whose machines can be hurt from outside: their cables, disks and clocks.

Cables are tests/kit/cables.py; a slow disk and a wrong clock come from machine.c, which stands
between a node and its C library; a full disk is a small one that is mounted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.kit.clusters import Cabled
from tests.kit.waiting import poll

_SOURCE: Final = Path(__file__).with_name("machine.c")
_SMALL_BYTES: Final = 64 << 20


def no_compiler() -> str:
    """Why disks are not slow and clocks not wrong here; "": they can be."""
    return "" if shutil.which("cc") else "needs a C compiler (cc)"


def no_mounts() -> str:
    """Why no disk is full here; "": it can be."""
    return "" if os.geteuid() == 0 and shutil.which("mount") else "needs root, to mount a disk"


class Machines(Cabled):
    """Numbers are node ids, from 1. `close` when the nodes are down."""

    def __init__(self, directory: Path, *, clock: str = "", ahead_ms: tuple[int, ...] = ()) -> None:
        """`ahead_ms`: of the clocks at the beginning."""
        super().__init__(directory / "cluster", 3, clock=clock, spare=3)
        self._directory = directory
        self._mounted: list[Path] = []
        for number in range(1, 7):
            self.machine(number).write_bytes(struct.pack("<2q", 0, 0))
        for number, ms in enumerate(ahead_ms, 1):
            self.wrong_clock(number, ms)
        self._library = directory / "machine.so"
        if not no_compiler():
            words = ["cc", "-shared", "-fPIC", "-O", "-o", self._library, _SOURCE, "-ldl"]
            subprocess.run(words, check=True)

    def machine(self, number: int) -> Path:
        """What machine.c reads."""
        return self._directory / f"machine-{number}"

    def environment(self, number: int) -> dict[str, str]:
        """Of its process; empty where nothing was compiled."""
        if not self._library.exists():
            return {}
        return {"LD_PRELOAD": str(self._library), "DRILL_MACHINE": str(self.machine(number))}

    def launch(self, number: int) -> None:
        said = self.environment(number)
        before = {name: os.environ.get(name) for name in said}
        os.environ |= said
        try:
            super().launch(number)
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    def slow_disk(self, number: int, ms: int) -> None:
        """Every sync of the node takes so much longer from now on."""
        self._set(number, 0, ms)

    def wrong_clock(self, number: int, ms: int) -> None:
        """The node's wall clock is so far ahead from now on."""
        self._set(number, 1, ms)

    def _set(self, number: int, which: int, ms: int) -> None:
        with self.machine(number).open("r+b") as file:
            file.seek(8 * which)
            file.write(struct.pack("<q", ms))

    @contextlib.contextmanager
    def full_disk(self, number: int) -> Iterator[None]:
        """A node that is dead is given a small disk, is started, and finds the disk full; after the
        body there is room again.
        """
        data = self.local.data(number)
        kept = data.with_name("kept")
        data.rename(kept)
        data.mkdir(mode=0o700)
        size = _SMALL_BYTES + 2 * sum(f.stat().st_size for f in kept.rglob("*") if f.is_file())
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", data], check=True
        )
        self._mounted.append(data)
        shutil.copytree(kept, data, dirs_exist_ok=True)
        shutil.rmtree(kept)
        self.start(number)
        filler = data / "filler"
        try:
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))
            yield
        finally:
            filler.unlink()

    def close(self) -> None:
        """Give the disks back."""
        for at in self._mounted:
            poll(lambda at=at: subprocess.run(["umount", at], check=False).returncode == 0)

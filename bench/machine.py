"""What /proc says: CPU time of process trees and of everybody else, memory, the machine."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from bench.stats import Record

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PACKAGES = ("rocksdict", "msgpack", "uvloop", "pysyncobj", "pyspark")


def _processes() -> dict[int, tuple[int, float]]:
    """Of every process: its parent, and the CPU seconds of itself and of its ended children."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            # A process may end while we look.
            with contextlib.suppress(OSError, IndexError):
                fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
                ticks = sum(int(v) for v in fields[11:15])
                found[int(entry)] = (int(fields[1]), ticks / _TICKS_PER_S)
    return found


def tree_cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds so far of these processes and all their descendants."""
    table = _processes()
    return sum(table[pid][1] for pid in _descendants(table, pids))


def own_cpu_us(pid: int) -> float:
    """CPU microseconds so far of a process's threads, to the nanosecond; its children left out."""
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread may end while we look
            total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e3


def tree(pid: int) -> set[int]:
    """The process and its descendants."""
    return _descendants(_processes(), [pid])


def _descendants(table: dict[int, tuple[int, float]], pids: Iterable[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    todo, seen = list(pids), set()
    while todo:
        pid = todo.pop()
        if pid in table and pid not in seen:
            seen.add(pid)
            todo += children.get(pid, [])
    return seen


def busy_cpu_s() -> float:
    """CPU seconds so far of the whole machine, idle and waiting time left out."""
    with open("/proc/stat") as f:
        user, nice, system, _idle, _iowait, irq, softirq, *_ = (
            int(v) for v in f.readline().split()[1:]
        )
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds between two looks."""

    wall_s: float
    server_s: float
    client_s: float
    other_cores: float  # cores that processes which are not ours kept busy


class Meter:
    """Notes the CPU time of a server and of its clients from construction to `read`."""

    def __init__(self, servers: Iterable[int], clients: Iterable[int]) -> None:
        self._servers, self._clients = tuple(servers), tuple(clients)
        self._began = self._look()

    def _look(self) -> tuple[float, float, float, float, float]:
        return (
            time.monotonic(),
            tree_cpu_s(self._servers),
            tree_cpu_s(self._clients),
            tree_cpu_s([os.getpid(), *self._servers]),
            busy_cpu_s(),
        )

    def read(self) -> Usage:
        wall, server, client, own, busy = (
            b - a for a, b in zip(self._began, self._look(), strict=True)
        )
        wall = max(wall, 1e-3)
        return Usage(wall, server, client, round(max(0.0, busy - own) / wall, 2))


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Resident megabytes (10^6 bytes) of a process; field VmHWM: at its highest so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"/proc/{pid}/status has no {field}")


def folder_mb(folder: Path) -> float:
    """Megabytes of the files below a folder."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # a compaction removes files while we look
            total += path.stat().st_size
    return round(total / 1e6, 1)


def filesystem(folder: Path) -> str:
    """The file system type of `folder`. On tmpfs every sync is free: figures mean nothing."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _device, mount, found, *_ = line.split()
        inside = str(folder.resolve()).startswith(mount.rstrip("/") + "/") or mount == "/"
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def describe(folder: Path) -> Record:
    """The machine and the versions, as the first line of results. Names no host and no path."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "bench": "env",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cores": os.cpu_count(),
        "cpu": model,
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "filesystem": filesystem(folder),
        "versions": versions,
    }

"""`kvorum doctor`: what on this machine would keep a node from running well, each with
its remedy.
"""

from __future__ import annotations

import contextlib
import json as json_module
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from kv.base.config import HTTP_OFFSET, PORT_DEFAULT
from kv.base.credentials import from_environment
from kv.base.errors import KvorumError, Rejected
from kv.base.limits import CLOCK_FENCE_MS
from kv.base.tls import TLS_DIR, TLS_REQUIRED, Tls, client_tls
from kvorum.cli import output
from kvorum.cli.connection import Json
from kvorum.local import descriptors

Level = Literal["ok", "warning", "error"]
_MIB: Final = 1 << 20
_DISK_FREE_MIN: Final = 1024 * _MIB
_MEMORY_FREE_MIN: Final = 512 * _MIB
_CLIENTS_MIN: Final = 2_000
_SYNC_MS_MAX: Final = 10.0
_SYNCS: Final = 20
_SKEW_MS_MAX: Final = 1_000
_CERTIFICATE_DAYS_MIN: Final = 30
_PINNED: Final = ("pysyncobj", "rocksdict")
_OFFSET: Final = re.compile(r'^kvorum_tso_clock_offset_ms\{node="(\d+)"\} (\S+)$', re.MULTILINE)
PORT_NAMES: Final = ("native RPC", "Raft peers", "HTTP", "PostgreSQL wire")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `remedy` is empty when all is well."""

    check: str
    level: Level
    found: str
    remedy: str = ""


def doctor(
    data: Annotated[Path, typer.Option(help="The data directory to look at.")] = Path(
        "./kvorum-data"
    ),
    port: Annotated[int, typer.Option(help="BASE of the ports to look at.", min=1)] = PORT_DEFAULT,
    tls_dir: Annotated[
        str,
        typer.Option(
            metavar="DIR", envvar=TLS_DIR, help="The certificates of a node or client to look at."
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Look for what would keep a node from running well. Exit code 1 if there is an error."""
    findings = [f for check in checks(data, port, tls_dir) for f in check()]
    failed = any(f.level == "error" for f in findings)
    if json:
        output.emit({"ok": not failed, "findings": [asdict(f) for f in findings]})
    else:
        output.table(
            ("CHECK", "", "FOUND"), [(f.check, f.level, _with_remedy(f)) for f in findings]
        )
    if failed:
        raise typer.Exit(output.FAILED)


def checks(data: Path, port: int, tls_dir: str) -> list[Callable[[], Iterable[Finding]]]:
    """All checks, in the order in which they are shown."""
    return [
        python,
        versions,
        java,
        lambda: ports(port),
        lambda: directory(data),
        lambda: disk(data),
        memory,
        files,
        lambda: certificates(tls_dir),
        lambda: node(port, tls_dir),
    ]


def _with_remedy(finding: Finding) -> str:
    return f"{finding.found}: {finding.remedy}" if finding.remedy else finding.found


def python() -> Iterable[Finding]:
    """Python 3.11 or newer."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= (3, 11):  # noqa: UP036 - an older one is reported here
        yield Finding("python", "ok", found)
    else:
        yield Finding("python", "error", found, "install Python 3.11 or newer")


def versions() -> Iterable[Finding]:
    """The exact versions of what is pinned, and the rest is there."""
    wanted = {}
    with contextlib.suppress(metadata.PackageNotFoundError):
        for requirement in metadata.requires("kvorum") or ():
            name, _, version = requirement.partition("==")
            if name in _PINNED:
                wanted[name] = version.split(";")[0].strip()
    for name in _PINNED:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Finding(name, "error", "not installed", "run make setup")
            continue
        if wanted.get(name, found) != found:
            yield Finding(name, "error", found, f"install exactly {name}=={wanted[name]}")
        else:
            yield Finding(name, "ok", found)


def java() -> Iterable[Finding]:
    """Java 17 or newer, which only Spark needs."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    remedy = "only Spark needs it: apt-get install openjdk-17-jre-headless"
    if program is None:
        yield Finding("java", "warning", "none", remedy)
        return
    try:
        run = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=20, check=False
        )
        first = (run.stderr or run.stdout).splitlines()[0]
        major = int(first.split('"')[1].split(".")[0])
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError):
        yield Finding("java", "warning", f"{program} does not run", remedy)
        return
    if major >= 17:
        yield Finding("java", "ok", first)
    else:
        yield Finding("java", "warning", first, f"Spark needs Java 17: {remedy}")


def ports(base: int) -> Iterable[Finding]:
    """Whether the four ports of a node are free, or used by a node."""
    live = _http_get(base + HTTP_OFFSET, "/healthz") is not None
    for offset, name in enumerate(PORT_NAMES):
        port = base + offset
        check = f"port {port}"
        if port > 65_535:
            yield Finding(check, "error", "beyond 65535", "choose a lower --port")
            continue
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError as e:
                if live:
                    yield Finding(check, "ok", f"{name}: used by a node")
                else:
                    why = e.strerror or str(e)
                    remedy = "stop what uses it, or choose another --port"
                    yield Finding(check, "error", f"{name}: {why}", remedy)
                continue
        yield Finding(check, "ok", f"{name}: free")


def directory(data: Path) -> Iterable[Finding]:
    """Whether the data directory can be used, and how fast it syncs."""
    existing = _existing(data)
    if not existing.is_dir():
        yield Finding("directory", "error", f"{existing} is not a directory", "choose another one")
        return
    try:
        latency_ms = _sync_latency_ms(existing)
    except OSError as e:
        remedy = "make it writable for this user, or choose another one with --data"
        yield Finding("directory", "error", f"{existing}: {e.strerror}", remedy)
        return
    yield Finding("directory", "ok", f"{data} can be written")
    shown = f"{latency_ms:.2f} ms (median)"
    if latency_ms <= _SYNC_MS_MAX:
        yield Finding("sync", "ok", shown)
    else:
        remedy = "every commit waits for it: use a faster disk for --data"
        yield Finding("sync", "warning", shown, remedy)


def _sync_latency_ms(folder: Path) -> float:
    """Median of an appended block with fdatasync. Raises OSError."""
    taken = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".kvorum-doctor-") as f:
        for _ in range(_SYNCS):
            f.write(bytes(4096))
            f.flush()
            began = time.perf_counter()
            os.fdatasync(f.fileno())
            taken.append(time.perf_counter() - began)
    return sorted(taken)[_SYNCS // 2] * 1000


def disk(data: Path) -> Iterable[Finding]:
    """Free space where the data will lie."""
    usage = shutil.disk_usage(_existing(data))
    shown = f"{usage.free // _MIB} MiB free of {usage.total // _MIB}"
    if usage.free >= _DISK_FREE_MIN:
        yield Finding("disk", "ok", shown)
    else:
        remedy = "free at least 1 GiB: a full disk refuses writes"
        yield Finding("disk", "warning", shown, remedy)


def files() -> Iterable[Finding]:
    """As many files and connections may be open as a node with many clients needs."""
    limit = descriptors.raise_limit()
    clients = descriptors.seats(limit).limit
    found = f"{limit} at once: a node serves {clients} connections"
    if clients >= _CLIENTS_MIN:
        yield Finding("open files", "ok", found)
    else:
        remedy = "raise the hard limit: ulimit -Hn, LimitNOFILE= of systemd, --ulimit nofile="
        yield Finding("open files", "warning", found, remedy)


def memory() -> Iterable[Finding]:
    """Memory that can be had without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        yield Finding("memory", "warning", "unknown", "see that a node has 600 MiB")
        return
    shown = f"{free // _MIB} MiB available"
    if free >= _MEMORY_FREE_MIN:
        yield Finding("memory", "ok", shown)
    else:
        yield Finding("memory", "warning", shown, "a node under load wants up to 600 MiB")


def certificates(directory: str) -> Iterable[Finding]:
    """Those of a directory: each fits its key, is signed by ca.crt, and goes on for a while."""
    if not directory:
        yield Finding("TLS", "ok", "no --tls-dir is given: a node without listens on the loopback")
        return
    from kvorum.security.certificates import Trouble, examined

    for path, ends in examined(Path(directory)):
        check, remedy = f"TLS {path.name}", "make another one with `kvorum cert … --renew`"
        if isinstance(ends, Trouble):
            yield Finding(check, "error", ends.found, ends.remedy)
            continue
        days = (ends - datetime.now(UTC)).days
        shown = f"valid until {ends:%Y-%m-%d}"
        if days >= _CERTIFICATE_DAYS_MIN:
            yield Finding(check, "ok", shown)
        else:
            yield Finding(check, "error" if days < 0 else "warning", shown, remedy)


def node(base: int, tls_dir: str = "") -> Iterable[Finding]:
    """The node that runs at these ports, if one does: is it ready, and does it agree on
    the time.
    """
    try:
        tls = client_tls(tls_dir) if tls_dir else None
    except KvorumError as error:
        yield Finding("node", "error", error.message, "give a directory with ca.crt")
        return
    ready = _http_get(base + HTTP_OFFSET, "/readyz", tls)
    if ready is None:
        yield Finding("node", "ok", f"none runs at port {base}")
        return
    status, body = ready
    if status != 200:
        remedy = "give --tls-dir" if TLS_REQUIRED in body else "look at its log"
        yield Finding("node", "error", f"not ready: {body[:200]}", remedy)
        return
    if "warning" in (answer := json_of(body)):
        yield Finding("node", "warning", str(answer["warning"]), "start it with --tls-dir")
    yield Finding("node", "ok", f"ready at port {base}")
    from kvorum.connecting import connect

    try:
        with connect(f"127.0.0.1:{base}", tls_dir=tls_dir or None) as db:
            ahead_ms = (db.timestamp() >> 18) - time.time_ns() // 1_000_000
    except Rejected as error:
        yield Finding("clock", "warning", f"cannot be asked: {error.message}", "give a token")
        return
    shown = f"its timestamps differ by {ahead_ms} ms from this clock"
    if abs(ahead_ms) <= _SKEW_MS_MAX:
        yield Finding("clock", "ok", shown)
    else:
        yield Finding("clock", "warning", shown, "synchronise the clocks (chrony, ntpd)")
    yield from _other_clocks(base, tls)


def _other_clocks(base: int, tls: Tls | None) -> Iterable[Finding]:
    """Of a cluster with hybrid clocks: how far those of the other nodes are from this node's."""
    from kvorum.http.client.transport import authorization

    said = authorization(from_environment(os.environ))
    metrics = _http_get(base + HTTP_OFFSET, "/metrics", tls, said)
    offsets = _OFFSET.findall(metrics[1]) if metrics is not None else []
    if not offsets:
        return
    shown = ", ".join(f"node {node} {float(ms):+.0f} ms" for node, ms in offsets)
    if max(abs(float(ms)) for _, ms in offsets) <= CLOCK_FENCE_MS / 2:
        yield Finding("other clocks", "ok", shown)
    else:
        remedy = f"beyond {CLOCK_FENCE_MS} ms a node is fenced: synchronise the clocks (chrony)"
        yield Finding("other clocks", "warning", shown, remedy)


def json_of(body: str) -> dict[str, object]:
    """What a node has said; nothing, if it is no object."""
    with contextlib.suppress(ValueError):
        found = json_module.loads(body)
        if isinstance(found, dict):
            return found
    return {}


def _http_get(
    port: int, path: str, tls: Tls | None = None, authorization: str = ""
) -> tuple[int, str] | None:
    """Status and body, None if nobody answers HTTP there."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    if tls is not None:
        # Not all certificates have this name, and it is our own machine.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(tls.ca)
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=2, context=context)
    try:
        said = {"Authorization": authorization} if authorization else {}
        connection.request("GET", path, headers=said)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _existing(path: Path) -> Path:
    """The path, or the nearest parent that exists and can be looked at."""
    path = path.absolute()
    while True:
        with contextlib.suppress(OSError):
            path.stat()
            return path
        path = path.parent

"""An OCI image without an engine: a root file system made of this machine's Python, the libraries
that it needs and the packed environment, as one layer of an image layout in a tar archive.

    python -m scripts.image DIR       DIR/kvorum-VERSION.oci.tar: for `podman load -i`,
                                      `docker load -i`, `skopeo copy oci-archive:…`

There is no shell in it and nothing to install with: a node, and what it loads. deploy/Dockerfile
makes an image of the same use where there is an engine.

    index.json ─▶ manifest ─▶ config          blobs/sha256/DIGEST each
                          └─▶ layer: the tar of the root file system, gzip
"""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from kvorum.version import VERSION
from scripts.packed_environment import AT, PYTHON, UID, USER, make

_PREFIX: Final = Path("usr/local")
_CERTIFICATES: Final = Path("etc/ssl/certs/ca-certificates.crt")
_FILES: Final = {
    "etc/passwd": f"root:x:0:0::/:/\n{USER}:x:{UID}:{UID}::/data:/\n",
    "etc/group": f"root:x:0:\n{USER}:x:{UID}:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
    "etc/ld.so.conf": f"/{_PREFIX}/lib\n",
}
_OWNED: Final = ("data", "tls")  # by the node's user
_LEFT_OUT: Final = ("__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib")
_ALSO_LEFT_OUT: Final = ("_tkinter*", "tkinter", "turtledemo", "lib2to3", "ensurepip", "config-*")
_LIBRARY: Final = re.compile(r"(?:=> |^\t)(/\S+) \(0x", re.M)
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_OCI: Final = "application/vnd.oci.image"
_CONFIG: Final = {
    "User": f"{UID}:{UID}",
    "WorkingDir": "/data",
    "Entrypoint": ["kvorum"],
    "Cmd": ["start", "--data", "/data", "--listen", "0.0.0.0", "--tls-dir", "/tls"],
    "ExposedPorts": {f"{port}/tcp": {} for port in (7600, 7601, 7602, 7603)},
    "Volumes": {"/data": {}},
    "Env": [
        f"PATH=/{AT}/bin:/{_PREFIX}/bin",
        "LANG=C.UTF-8",
        "PYTHONUNBUFFERED=1",
        f"SSL_CERT_FILE=/{_CERTIFICATES}",
    ],
}


# -- the root file system


def root_file_system(root: Path) -> None:
    """All that a node needs, below `root`."""
    for name, text in _FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name in ("tmp", "proc", "dev", "run", *_OWNED):
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    for name in _OWNED:
        (root / name).chmod(0o700)
    _certificates(root / _CERTIFICATES)
    _python(root / _PREFIX)
    make(root, Path("/") / _PREFIX / "bin" / PYTHON)
    _libraries(root)


def _certificates(to: Path) -> None:
    """The authorities of the web, for places and issuers that nodes ask; empty if none are here."""
    to.parent.mkdir(parents=True)
    there = Path("/") / _CERTIFICATES
    to.write_bytes(there.read_bytes() if there.exists() else b"")


def _python(prefix: Path) -> None:
    """The interpreter finds its library by where it lies."""
    (prefix / "bin").mkdir(parents=True)
    shutil.copy(Path(sys.executable).resolve(), prefix / "bin" / PYTHON)
    ignored = shutil.ignore_patterns(*_LEFT_OUT, *_ALSO_LEFT_OUT)
    library = prefix / "lib" / PYTHON
    for name in ("stdlib", "platstdlib"):
        shutil.copytree(sysconfig.get_path(name), library, ignore=ignored, dirs_exist_ok=True)
    compiled = [
        sys.executable,
        "-m",
        "compileall",
        "-q",
        "-j",
        "0",
        "-s",
        prefix.parents[1],
        "-p",
        "/",
    ]
    compiled += ["--invalidation-mode", "unchecked-hash", library]
    subprocess.run([str(word) for word in compiled], check=True)


def _libraries(root: Path) -> None:
    """What programs and extensions are linked with, and the loader itself where they ask for it."""
    asked = [*(root / _PREFIX / "bin").iterdir(), *root.rglob("*.so"), *root.rglob("*.so.*")]
    told = subprocess.run(["ldd", *asked], capture_output=True, text=True, check=False).stdout
    for name in sorted(set(_LIBRARY.findall(told))):
        path = Path(name)
        if path.is_relative_to(root):
            continue
        loader = path.name.startswith("ld-linux")
        to = root / path.relative_to("/") if loader else root / _PREFIX / "lib" / path.name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    subprocess.run(["ldconfig", "-X", "-r", root], check=True)


# -- the layout


def layout(root: Path, target: Path) -> None:
    """An image of one layer, the files below `root`."""
    with TemporaryDirectory(dir=target.parent) as temporary:
        at = Path(temporary)
        blobs = at / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        packed = at / "layer"
        plain = _layer(root, packed)
        layer = _blob(blobs, packed.read_bytes(), f"{_OCI}.layer.v1.tar+gzip")
        packed.unlink()
        about = {
            "architecture": _ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": _CONFIG,
            "rootfs": {"type": "layers", "diff_ids": [plain]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _blob(blobs, _json(about), f"{_OCI}.config.v1+json"),
            "layers": [layer],
        }
        named = _blob(blobs, _json(manifest), f"{_OCI}.manifest.v1+json")
        named["annotations"] = {"org.opencontainers.image.ref.name": f"kvorum:{VERSION}"}
        index = {"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": [named]}
        (at / "index.json").write_bytes(_json(index))
        (at / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
        with tarfile.open(target, "w") as archive:
            for name in ("oci-layout", "index.json", "blobs"):
                archive.add(at / name, name, filter=_as_root)


def _layer(root: Path, to: Path) -> str:
    """Write it, packed; the digest of what is packed."""
    digest = hashlib.sha256()
    with to.open("wb") as file, gzip.GzipFile("", "wb", 3, file, mtime=0) as packing:

        class Both:
            def write(self, data: bytes) -> int:
                digest.update(data)
                return packing.write(data)

        with tarfile.open(fileobj=Both(), mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(root.rglob("*")):
                archive.add(path, str(path.relative_to(root)), recursive=False, filter=_as_root)
    return f"sha256:{digest.hexdigest()}"


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of who made it, and when."""
    entry.uid = entry.gid = UID if entry.name in _OWNED else 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


def _blob(blobs: Path, data: bytes, kind: str) -> dict[str, object]:
    """Its descriptor."""
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def build(directory: Path) -> Path:
    """The whole way; where the image is."""
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / f"kvorum-{VERSION}.oci.tar"
    with TemporaryDirectory(dir=directory) as root:
        Path(root).chmod(0o755)
        root_file_system(Path(root))
        layout(Path(root), target)
    return target


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))

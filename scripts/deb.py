"""A Debian package: the packed environment on Debian's own Python, the unit and its settings.

    python -m scripts.deb DIR         DIR/kvorum_VERSION_ARCHITECTURE.deb; needs dpkg-deb

Extensions are built for one minor version of Python, so that the package wants that one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from kvorum.version import VERSION
from scripts.packed_environment import AT, PYTHON, ROOT, make

_DEPLOY: Final = ROOT / "deploy"
_SCRIPTS: Final = ("postinst", "prerm", "postrm")
_CONFIG: Final = "etc/kvorum/kvorum.toml"
_MINOR: Final = sys.version_info.minor


def _control(root: Path, architecture: str) -> str:
    kib = sum(path.lstat().st_size for path in root.rglob("*")) // 1024
    fields = {
        "Package": "kvorum",
        "Version": VERSION,
        "Architecture": architecture,
        "Maintainer": "The Kvorum authors <kvorum@localhost>",
        "Installed-Size": kib,
        "Depends": f"python3 (>= 3.{_MINOR}), python3 (<< 3.{_MINOR + 1}), libc6 (>= 2.28), passwd",
        "Section": "database",
        "Priority": "optional",
        "Description": "Raft-replicated procedure store and transactional key-value service",
    }
    return "".join(f"{name}: {text}\n" for name, text in fields.items())


def fill(root: Path) -> None:
    """What is beside the environment: the command, the unit, the settings, scripts of dpkg."""
    for name in ("usr/bin", "lib/systemd/system", "etc/kvorum/tls", "DEBIAN"):
        (root / name).mkdir(parents=True)
    (root / "usr/bin/kvorum").symlink_to(f"/{AT}/bin/kvorum")
    shutil.copy(_DEPLOY / "systemd" / "kvorum.service", root / "lib/systemd/system")
    shutil.copy(_DEPLOY / "debian" / "kvorum.toml", root / _CONFIG)
    (root / "DEBIAN" / "conffiles").write_text(f"/{_CONFIG}\n")
    for name in _SCRIPTS:
        shutil.copy(_DEPLOY / "debian" / name, root / "DEBIAN")
        (root / "DEBIAN" / name).chmod(0o755)


def pack(root: Path, directory: Path) -> Path:
    """The package of what `fill` and `make` have laid below `root`."""
    asked = ["dpkg", "--print-architecture"]
    architecture = subprocess.check_output(asked, text=True).strip()
    (root / "DEBIAN" / "control").write_text(_control(root, architecture))
    target = directory / f"kvorum_{VERSION}_{architecture}.deb"
    packing = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z3", "--build", root, target]
    subprocess.run(packing, check=True, stdout=subprocess.DEVNULL)
    return target


def build(directory: Path) -> Path:
    """The whole way; where the package is."""
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=directory) as temporary:
        root = Path(temporary)
        root.chmod(0o755)
        make(root, Path("/usr/bin") / PYTHON)
        fill(root)
        return pack(root, directory)


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))

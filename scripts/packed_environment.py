"""What both the image and the Debian package hold: /opt/kvorum, an environment of Python with the
locked packages of a node and Kvorum itself.

    bin/kvorum, bin/python    the command, and the Python that starts it: a link to `python`
    lib/python3.N/…           packages, with their byte-code: nobody may write there later

The packages are those of this environment, which `scripts/setup.sh` has installed from the locks
with their hashes checked. Nothing is fetched.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[1]
AT: Final = Path("opt/kvorum")
PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
USER: Final = "kvorum"
UID: Final = 7600
_LOCKED: Final = re.compile(r"^[\w.-]+==[^\\\n]+", re.M)
_COMMAND: Final = f"""\
#!/{AT}/bin/python
import sys

from kvorum.cli.main import main

sys.exit(main())
"""


def make(root: Path, python: Path) -> None:
    """Below `root`; `python` is where the interpreter will be there."""
    at = root / AT
    packages = at / "lib" / PYTHON / "site-packages"
    packages.mkdir(parents=True)
    for line in _LOCKED.findall((ROOT / "requirements" / "runtime.lock").read_text()):
        locked = Requirement(line)
        if locked.marker is None or locked.marker.evaluate():
            _copy(locked, packages)
    _own(packages)
    _compile(packages, root)
    (at / "bin").mkdir()
    (at / "bin" / "python").symlink_to(python)
    (at / "bin" / "kvorum").write_text(_COMMAND)
    (at / "bin" / "kvorum").chmod(0o755)
    said = f"home = {python.parent}\ninclude-system-site-packages = false\n"
    (at / "pyvenv.cfg").write_text(said)


def _copy(locked: Requirement, packages: Path) -> None:
    """One package, without its commands, its tests and byte-code."""
    found = importlib.metadata.distribution(locked.name)
    assert found.version in locked.specifier, f"{found.version} is there, not {locked}: make setup"
    for file in found.files or ():
        if ".." in file.parts or "tests" in file.parts or file.suffix == ".pyc":
            continue
        to = packages / file
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(file.locate()), to)


def _own(packages: Path) -> None:
    """What a wheel of Kvorum has, built from a copy: setuptools writes beside what it builds."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    names = {
        pattern.rstrip("*").partition(".")[0] for pattern in tools["packages"]["find"]["include"]
    }
    with TemporaryDirectory() as temporary:
        source = Path(temporary)
        for name in sorted(names):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        for name in ("pyproject.toml", "LICENSE"):
            shutil.copy(ROOT / name, source)
        built = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
        ]
        _run(*built, "--wheel-dir", source / "dist", source)
        (wheel,) = (source / "dist").glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)


def _compile(packages: Path, root: Path) -> None:
    """Byte-code that is believed without a look at the source's time."""
    compiled = [sys.executable, "-m", "compileall", "-q", "-j", "0", "-s", root, "-p", "/"]
    _run(*compiled, "--invalidation-mode", "unchecked-hash", packages)


def _run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, stdin=subprocess.DEVNULL)

"""The Debian package and the unit in it: built, installed by dpkg over a copy of this machine that
only the test sees, started as the unit says, and removed.
"""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from kv.base.config import load
from kvorum.programs.process import STOP_S_MAX
from kvorum.version import VERSION
from scripts import deb
from scripts.packed_environment import PYTHON
from tests.deploy.pods import possible

UNIT: Final = "lib/systemd/system/kvorum.service"
# What systemd does with the unit: its user, its state directory, nothing of its own environment.
MACHINE: Final = """
mount -t tmpfs -o size=2g,mode=755 tmpfs "$AT"
mkdir "$AT/upper" "$AT/work" "$AT/machine"
mount -t overlay overlay -o lowerdir=/,upperdir="$AT/upper",workdir="$AT/work" "$AT/machine"
mount -t proc proc "$AT/machine/proc"
mount --rbind /dev "$AT/machine/dev"
cp "$DEB" "$AT/machine/kvorum.deb"
ip link set lo up
exec chroot "$AT/machine" bash -euc "$WORK"
"""
WORK: Final = """
as_node="setpriv --reuid kvorum --regid kvorum --clear-groups --no-new-privs env -i"
dpkg --force-unsafe-io -i kvorum.deb
$as_node /bin/cat /etc/kvorum/kvorum.toml >/dev/null
if setpriv --reuid 65534 --regid 65534 --clear-groups cat /etc/kvorum/kvorum.toml; then exit 1; fi
systemd-analyze verify /lib/systemd/system/kvorum.service
install -d -m 0700 -o kvorum -g kvorum /var/lib/kvorum
cd /
$as_node PATH=/usr/bin:/bin $START &
node=$!
until curl --silent --fail http://127.0.0.1:7602/readyz; do kill -0 $node; sleep 0.5; done
kvorum put default/greetings/hello world --create
test "$(kvorum get default/greetings/hello)" = world
kvorum sql -c 'SELECT 1'
kill $node
wait $node
dpkg -r kvorum
test -d /var/lib/kvorum/state
test -e /etc/kvorum/kvorum.toml
test ! -e /opt/kvorum
dpkg -P kvorum
test ! -e /etc/kvorum/kvorum.toml
test -d /var/lib/kvorum/state
"""


def unit(root: Path) -> configparser.SectionProxy:
    """[Service]"""
    found = configparser.ConfigParser(interpolation=None, strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(root / UNIT)
    return found["Service"]


needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is Debian's")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """All of the package but the environment."""
    root = tmp_path / "root"
    root.mkdir()
    deb.fill(root)
    return root


@needs_dpkg
def test_r4_a_package_has_a_unit_and_settings_that_a_node_takes(
    small: Path, tmp_path: Path
) -> None:
    """dpkg refuses the package, the unit starts what is not there, overwrites the settings at an
    upgrade, or kills a node that hands over.
    """
    package = deb.pack(small, tmp_path)
    fields = subprocess.check_output(["dpkg-deb", "--field", package], text=True)
    assert f"Package: kvorum\nVersion: {VERSION}\n" in fields
    assert subprocess.check_output(["dpkg-deb", "--info", package, "conffiles"]) == (
        b"/etc/kvorum/kvorum.toml\n"
    )
    unpacked = tmp_path / "unpacked"
    subprocess.run(["dpkg-deb", "--raw-extract", package, unpacked], check=True)
    for script in ("postinst", "prerm", "postrm"):
        subprocess.run(["sh", "-n", unpacked / "DEBIAN" / script], check=True)
    service = unit(unpacked)
    program, *words = service["ExecStart"].split()
    assert (unpacked / program[1:]).is_symlink()
    assert words[:2] == ["start", "--config"]
    config = load({}, {}, config=unpacked / words[2][1:])
    assert config.data == Path("/var/lib") / service["StateDirectory"]
    assert config.on_loopback, "closed until somebody says who may come"
    said = (unpacked / words[2][1:]).read_text().replace("\n# ", "\n")
    (unpacked / "said.toml").write_text(said.split("files of /etc/kvorum/tls:\n")[1])
    assert load({}, {}, config=unpacked / "said.toml").place == 1
    assert int(service["TimeoutStopSec"]) > STOP_S_MAX


@needs_dpkg
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_r4_the_package_is_installed_runs_a_node_and_goes(tmp_path: Path) -> None:
    """A file or a package is missing in it; its user cannot read the settings, or everybody can;
    or who removes it loses the data.
    """
    if why := possible():
        pytest.skip(f"no namespaces here: {why}")
    told = subprocess.run(["dpkg", "-s", PYTHON], capture_output=True, text=True, check=False)
    if "install ok installed" not in told.stdout:
        pytest.skip(f"the package is for {PYTHON}, which is not this Debian's")
    package = deb.build(tmp_path)
    deb.fill(tmp_path / "root")
    at = tmp_path / "at"
    at.mkdir()
    start = unit(tmp_path / "root")["ExecStart"]
    words = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "bash", "-euc"]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "AT": str(at), "DEB": str(package)}
    ended = subprocess.run(
        [*words, MACHINE],
        env=env | {"START": start, "WORK": WORK},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-3000:]

"""The image's layout, of a small root file system. tests/deploy/test_pods.py builds the real one,
and runs nodes of it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import image
from scripts.packed_environment import UID
from tests.deploy.oci import checked, unpacked
from tests.kit.machine import ROOT


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "tool").write_text("#!")
    (made / "bin" / "tool").chmod(0o755)
    (made / "bin" / "link").symlink_to("/bin/tool")
    (made / "data").mkdir(mode=0o700)
    return made


def test_r4_an_image_is_what_its_digests_say(root: Path, tmp_path: Path) -> None:
    """An engine refuses the image, or unpacks other rights, owners and links than were packed; or
    the same files make another image.
    """
    for name in ("one.tar", "two.tar"):
        image.layout(root, tmp_path / name)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    config = checked(tmp_path / "one.tar")
    assert config["config"]["User"] == f"{UID}:{UID}"
    found = unpacked(tmp_path / "one.tar", tmp_path / "unpacked")
    assert (found / "bin" / "tool").stat().st_mode & 0o777 == 0o755
    assert (found / "bin" / "link").readlink() == Path("/bin/tool")
    assert (found / "data").stat().st_mode & 0o777 == 0o700
    assert sorted(p.relative_to(found) for p in found.rglob("*")) == sorted(
        p.relative_to(root) for p in root.rglob("*")
    )


def test_r4_both_images_are_used_alike(root: Path, tmp_path: Path) -> None:
    """A chart or a habit that fits the one image does not fit the other."""
    image.layout(root, tmp_path / "image.tar")
    config = checked(tmp_path / "image.tar")["config"]
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    ports = re.search(r"^EXPOSE (.+)$", dockerfile, re.M)
    assert ports is not None
    assert list(config["ExposedPorts"]) == [f"{port}/tcp" for port in ports[1].split()]
    assert f"--uid {UID}" in dockerfile
    assert config["WorkingDir"] == "/data"
    assert "WORKDIR /data" in dockerfile
    for instruction, words in (("ENTRYPOINT", config["Entrypoint"]), ("CMD", config["Cmd"])):
        assert f"{instruction} {words}".replace("'", '"') in dockerfile

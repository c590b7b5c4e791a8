"""An OCI image layout, read as a stranger would: every descriptor against its blob."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any, Final

_PREFIX: Final = "application/vnd.oci.image."


def _document(archive: tarfile.TarFile, name: str) -> Any:
    return json.loads(_bytes(archive, name))


def _bytes(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None, name
    return file.read()


def _blob(archive: tarfile.TarFile, described: dict[str, Any], kind: str) -> bytes:
    assert described["mediaType"] == _PREFIX + kind
    algorithm, _, digest = described["digest"].partition(":")
    found = _bytes(archive, f"blobs/{algorithm}/{digest}")
    assert (hashlib.new(algorithm, found).hexdigest(), len(found)) == (digest, described["size"])
    return found


def _manifest(archive: tarfile.TarFile) -> dict[str, Any]:
    assert _document(archive, "oci-layout") == {"imageLayoutVersion": "1.0.0"}
    index = _document(archive, "index.json")
    assert (index["schemaVersion"], index["mediaType"]) == (2, f"{_PREFIX}index.v1+json")
    (described,) = index["manifests"]
    found: dict[str, Any] = json.loads(_blob(archive, described, "manifest.v1+json"))
    assert (found["schemaVersion"], found["mediaType"]) == (2, described["mediaType"])
    return found


def checked(image: Path) -> dict[str, Any]:
    """The image's configuration; its layers are what it says."""
    with tarfile.open(image) as archive:
        manifest = _manifest(archive)
        config: dict[str, Any] = json.loads(_blob(archive, manifest["config"], "config.v1+json"))
        layers = [
            gzip.decompress(_blob(archive, one, "layer.v1.tar+gzip")) for one in manifest["layers"]
        ]
        plain = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        assert config["rootfs"] == {"type": "layers", "diff_ids": plain}
    assert config["os"] == "linux"
    return config


def unpacked(image: Path, to: Path) -> Path:
    """Its root file system."""
    to.mkdir()
    with tarfile.open(image) as archive:
        for described in _manifest(archive)["layers"]:
            name = described["digest"].replace(":", "/")
            with tarfile.open(fileobj=archive.extractfile(f"blobs/{name}"), mode="r:gz") as layer:
                layer.extractall(to, filter="fully_trusted")
    return to

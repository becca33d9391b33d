"""Additions of users to the chart's objects and pods are rendered, and keep what the chart needs."""

import pytest

from tests.kubernetes.chart import NAMESPACE, of_kind, one, rendered, template, workloads

#: Without certificates, which take longer to create than the rest of the chart.
QUICK = ("--set", "tls.enabled=false,auth.enabled=false,redis.enabled=false")
PARTS = ("owner", "storage", "zookeeper", "redis")


@pytest.mark.parametrize("part", PARTS)
def test_extras_of_a_component_are_in_its_pods(part: str) -> None:
    """In addition to what the chart puts there."""
    spec = one("extras", "StatefulSet", f"oncelog-{part}")["spec"]
    pod = spec["template"]["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert set(pod["affinity"]) == {"nodeAffinity"}
    assert [each["topologyKey"] for each in pod["topologySpreadConstraints"]] == ["rack"]
    assert [each["name"] for each in pod["initContainers"]] == ["wait"]
    assert [each["name"] for each in pod["containers"]] == [part, "shipper"]
    assert {"tmp", "scratch"} <= {each["name"] for each in pod["volumes"]}
    assert {"/tmp", "/scratch"} <= {each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    for claim in spec.get("volumeClaimTemplates", []):
        assert claim["metadata"]["annotations"] == {"example.com/backup": "yes"}


def test_common_annotations_are_on_every_object() -> None:
    """In addition to the object's own annotations. Objects that the user adds keep the user's annotations."""
    own = {"oncelog-extra", "oncelog-text"}
    for manifest in rendered("extras"):
        if manifest["metadata"]["name"] not in own:
            assert manifest["metadata"]["annotations"]["example.com/owner"] == "platform", manifest["metadata"]["name"]
    assert one("extras", "Service", "oncelog-metadata")["metadata"]["annotations"]["example.com/lb"] == "internal"


def test_extra_objects_are_rendered_with_the_release() -> None:
    """As maps and as text."""
    assert one("extras", "ConfigMap", "oncelog-extra")["data"] == {"release": "oncelog"}
    assert one("extras", "ConfigMap", "oncelog-text")


def test_autoscaler_replaces_replica_count() -> None:
    """A number in the Deployment would overwrite the autoscaler's at each upgrade."""
    deployment = one("extras", "Deployment", "oncelog-metadata")
    (scaler,) = of_kind("extras", "HorizontalPodAutoscaler")
    assert "replicas" not in deployment["spec"]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert scaler["spec"]["scaleTargetRef"]["name"] == "oncelog-metadata"
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 4)
    assert of_kind("default", "HorizontalPodAutoscaler") == []


def test_load_balancer_publishes_no_health_port() -> None:
    """Health and metrics are plain HTTP without a token."""
    service = one("extras", "Service", "oncelog-metadata")["spec"]
    assert [port["name"] for port in service["ports"]] == ["grpc", "rest"]
    assert service["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    assert service["loadBalancerClass"] == "example.com/internal"
    assert (service["loadBalancerIP"], service["externalTrafficPolicy"]) == ("10.0.0.9", "Local")
    assert [port.get("nodePort") for port in service["ports"]] == [31650, None]
    health = one("extras", "Service", "oncelog-metadata-health")["spec"]
    assert health.get("type", "ClusterIP") == "ClusterIP"
    assert [port["name"] for port in health["ports"]] == ["health"]


@pytest.mark.parametrize("size", ["20", "20Ki", "big"])
def test_volume_size_without_a_usable_unit_is_refused(size: str) -> None:
    """Kubernetes reads 20 as 20 bytes, which is too small for any volume."""
    done = template(*QUICK, "--set-string", f"storage.persistence.size={size}")
    assert done.returncode != 0
    assert "storage.persistence.size" in done.stderr


def test_certificate_has_the_full_domain_names() -> None:
    """Some clients resolve a name to its full form and verify that form."""
    names = _certificate_names()
    assert f"oncelog-metadata.{NAMESPACE}.svc.cluster.local" in names
    assert f"*.oncelog-owner-headless.{NAMESPACE}.svc.cluster.local" in names


def _certificate_names() -> list[str]:
    (certificate,) = of_kind("certmanager", "Certificate")
    names: list[str] = certificate["spec"]["dnsNames"]
    return names


def test_extras_add_no_workload() -> None:
    """The control."""
    assert [each["metadata"]["name"] for each in workloads("extras")] == [
        each["metadata"]["name"] for each in workloads("default")
    ]

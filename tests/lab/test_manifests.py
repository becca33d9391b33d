"""A release in Kubernetes as chaos reads it, and the manifests of the pods that it creates."""

import ast
import importlib.util
import json
from dataclasses import replace
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from oncelog_lab.faults.kinds import Component
from oncelog_lab.kubernetes.release import (
    Pod,
    control_pod_manifest,
    control_pod_service,
    count_components,
    nodes_within_budget,
    pause_manifest,
    pods_of,
    unhealthy_nodes,
    workload_manifest,
)

KUBERNETES = "1.33"


def item(name: str, component: str, *, node: str = "n1", **changes: Any) -> dict[str, Any]:
    """A pod as `kubectl get --output json` shows it."""
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"app.kubernetes.io/component": component},
            **changes.get("metadata", {}),
        },
        "spec": {"nodeName": node},
        "status": {
            "phase": changes.get("phase", "Running"),
            "conditions": [{"type": "Ready", "status": changes.get("ready", "True")}],
            "containerStatuses": [{"containerID": f"containerd://id-{name}"}],
        },
    }


def metadata_pod(*, secure: bool) -> dict[str, Any]:
    names = ("ONCELOG_TLS_CA_FILE", "ONCELOG_AUTH_KEY_FILE") if secure else ()
    secrets = [{"name": name, "secret": {"secretName": f"oncelog-{name}"}} for name in ("tls", "auth")]
    container = {"image": "oncelog:1", "env": [{"name": n} for n in names], "securityContext": {"runAsUser": 10001}}
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}, *(secrets if secure else [])]
    return {"spec": {"containers": [container], "volumes": volumes, "securityContext": {"fsGroup": 10001}}}


def test_members_are_running_pods_of_known_components() -> None:
    """Not pods that are ending or have ended, and not test pods."""
    items = [
        item("oncelog-owner-0", "owner"),
        item("oncelog-owner-1", "owner", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        item("oncelog-storage-0", "storage", ready="False"),
        item("oncelog-metadata-x", "metadata", phase="Failed"),
        item("chaos-workload-1", "chaos"),
        {"metadata": {"name": "bare", "uid": "u"}, "spec": {}, "status": {}},
    ]
    pods = pods_of(items)
    assert [(pod.name, pod.component, pod.ready) for pod in pods] == [
        ("oncelog-owner-0", Component.OWNER, True),
        ("oncelog-storage-0", Component.STORAGE, False),
    ]
    assert pods[0].container == "id-oncelog-owner-0"
    assert count_components(pods) == {Component.OWNER: 1, Component.STORAGE: 1}


@pytest.mark.parametrize("address", ["10.0.0.7:6650", "oncelog-owner-0.oncelog-owner-headless.logs.svc:6650"])
def test_pod_is_found_by_its_ip_and_by_its_name(address: str) -> None:
    """Owners advertise their IP, or the name that the user configures."""
    [there] = pods_of([item("oncelog-owner-0", "owner") | {"status": {"podIP": "10.0.0.7"}}])
    assert there.is_at(address)
    assert not replace(there, name="oncelog-owner-1", ip="10.0.0.8").is_at(address)


def test_pod_is_found_by_its_ipv6_address() -> None:
    """In brackets before a port."""
    [there] = pods_of([item("oncelog-owner-0", "owner") | {"status": {"podIP": "fd00::7"}}])
    assert there.is_at("[fd00::7]:6650")


def spread(storage_nodes: str) -> list[Pod]:
    """One owner, metadata service and ZooKeeper server on each of three nodes; storage nodes as given."""
    places = [
        (component, f"n{n}")
        for component in (Component.OWNER, Component.METADATA, Component.ZOOKEEPER)
        for n in (1, 2, 3)
    ]
    places += [(Component.STORAGE, f"n{n}") for n in storage_nodes]
    return [Pod(f"{component}-{at}", "", component, node, True, "") for at, (component, node) in enumerate(places)]


def test_node_with_too_many_members_is_spared() -> None:
    """The loss of two of three copies would stop the topics. The node of the workload is spared, too."""
    assert nodes_within_budget(spread("123"), without="") == ["n1", "n2", "n3"]
    assert nodes_within_budget(spread("123"), without="n2") == ["n1", "n3"]
    assert nodes_within_budget(spread("112"), without="") == ["n2", "n3"]
    assert nodes_within_budget(spread("12"), without="") == ["n3"]


def test_cordoned_or_silent_node_is_unhealthy() -> None:
    """Neither may last into the next step."""
    items = [
        {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
        for name, spec, ready in (("a", {}, "True"), ("b", {"unschedulable": True}, "True"), ("c", {}, "Unknown"))
    ]
    assert unhealthy_nodes(items) == ["b", "c"]


def variables(manifest: Any) -> dict[str, str]:
    return {each["name"]: each["value"] for each in manifest["spec"]["containers"][0]["env"]}


def test_workload_pod_uses_what_the_release_uses() -> None:
    """Its image, its security context, and of its Secrets only the CA and the administrator's token."""
    made: Any = workload_manifest("w", metadata_pod(secure=True), "oncelog-metadata", "logs", ["--seed", "7"])
    kubernetes_validate.validate(made, KUBERNETES, strict=True)
    assert made["spec"]["containers"][0]["command"][-2:] == ["--seed", "7"]
    assert variables(made) == {
        "ONCELOG_URL": "oncelog+tls://oncelog-metadata.logs.svc:6650",
        "ONCELOG_ADMIN_URL": "https://oncelog-metadata.logs.svc:8080",
        "GRPC_VERBOSITY": "NONE",
        "ONCELOG_TLS_CA_FILE": "/etc/oncelog/tls/ca.crt",
        "ONCELOG_TOKEN_FILE": "/etc/oncelog/auth/admin-token",
    }
    keys = [each["key"] for v in made["spec"]["volumes"] if "secret" in v for each in v["secret"]["items"]]
    assert keys == ["ca.crt", "admin-token"]
    assert "tls.key" not in json.dumps(made)


def test_workload_pod_of_an_open_cluster_has_no_secrets() -> None:
    """A release without TLS and tokens."""
    made: Any = workload_manifest("w", metadata_pod(secure=False), "oncelog-metadata", "logs", [])
    kubernetes_validate.validate(made, KUBERNETES, strict=True)
    assert variables(made)["ONCELOG_URL"] == "oncelog://oncelog-metadata.logs.svc:6650"
    assert [volume["name"] for volume in made["spec"]["volumes"]] == ["tmp"]


def test_control_pod_starts_like_metadata_and_has_no_secrets() -> None:
    """The cost of its start depends on its imports and its requests. It needs no permission."""
    model = metadata_pod(secure=True)
    model["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    made: Any = control_pod_manifest("b", "s", model)
    service: Any = control_pod_service("s")
    for manifest in (made, service):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    assert service["spec"]["selector"].items() <= made["metadata"]["labels"].items()
    assert service["metadata"]["labels"] == made["metadata"]["labels"], "both are deleted by this label"
    [container] = made["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "100m"}}
    assert (container["image"], container["securityContext"]) == ("oncelog:1", {"runAsUser": 10001})
    assert made["spec"]["terminationGracePeriodSeconds"] == 0, "it ignores SIGTERM"
    imports = [each for each in ast.walk(ast.parse(container["command"][-1])) if isinstance(each, ast.Import)]
    names = [alias.name for each in imports for alias in each.names]
    assert "oncelog.metadata.service" in names
    assert all(importlib.util.find_spec(name) for name in names)
    assert "secret" not in json.dumps(made)


def test_pause_pod_may_send_signals_and_nothing_else() -> None:
    """It sees the processes of the victim's node, so it has no other privilege."""
    victim = Pod("oncelog-owner-0", "u", Component.OWNER, "n2", True, "abc")
    made: Any = pause_manifest("p", victim, {"image": "oncelog:1"}, 9.5)
    kubernetes_validate.validate(made, KUBERNETES, strict=True)
    assert made["spec"]["nodeName"] == "n2"
    container = made["spec"]["containers"][0]
    assert container["args"] == ["--container", "abc", "--seconds", "9.5"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["KILL"]}
    assert "privileged" not in json.dumps(made)

"""An upgrade succeeds with as many nodes as an install needs, and replaces storage nodes one at a time."""

import pytest

from tests.kubernetes.chart import (
    FILES,
    NAMESPACE,
    RELEASE,
    Manifest,
    environment,
    manifests_in,
    of_kind,
    one,
    template,
    values_of,
)

#: For this long a terminating owner waits for all peers to be present (ONCELOG_STABILITY_TIMEOUT_MS).
STABLE_S = 8


@pytest.mark.parametrize("name", FILES)
def test_metadata_rolls_without_a_node_for_an_additional_pod(name: str) -> None:
    """With anti-affinity on three nodes, a fourth pod would stay pending, and the upgrade would not finish. If pods
    may share a node, no pod stops before its successor is ready."""
    strategy = one(name, "Deployment", "oncelog-metadata")["spec"]["strategy"]
    alone = values_of(name)["spread"]["nodes"] == "hard"
    default = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": int(alone), "maxSurge": 1}}
    assert strategy == (values_of(name)["metadata"]["updateStrategy"] or default)


def test_production_preset_spreads_pods() -> None:
    """The control: both variants are rendered."""
    assert {values_of(name)["spread"]["nodes"] for name in FILES} >= {"hard", "soft"}


def storage(name: str) -> Manifest:
    spec: Manifest = one(name, "StatefulSet", "oncelog-storage")["spec"]
    return spec


@pytest.mark.hazard("update-waits-for-copies")
@pytest.mark.parametrize("name", FILES)
def test_storage_update_waits_for_each_pod(name: str) -> None:
    """Without an updateStrategy of its own, a StatefulSet replaces one pod at a time and waits until the new one is
    ready and stays so. Readiness is the node's own (/readyz of its pod), so two nodes never wait for each other."""
    spec = storage(name)
    assert spec.get("updateStrategy", {}) == values_of(name)["storage"]["updateStrategy"]
    assert spec["minReadySeconds"] == values_of(name)["storage"]["minReadySeconds"]
    (container,) = [each for each in spec["template"]["spec"]["containers"] if each["name"] == "storage"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    assert environment(container)["ONCELOG_HEALTH_PORT"] == "8081"


def test_owners_wait_through_the_update_of_storage_nodes() -> None:
    """Between two restarts all storage nodes are present for the sleep before SIGTERM and minReadySeconds. If that took
    as long as an owner's wait, topics would move between two restarts."""
    values = values_of("default")["storage"]
    assert values["preStopSleepSeconds"] + values["minReadySeconds"] < STABLE_S


@pytest.mark.hazard("update-waits-for-copies")
def test_storage_pod_that_is_not_ready_is_evicted_only_within_the_budget() -> None:
    """It may have the only other copy of an entry. Pods of the other components have no copies."""
    policies = {
        each["metadata"]["name"]: each["spec"]["unhealthyPodEvictionPolicy"]
        for each in of_kind("default", "PodDisruptionBudget")
    }
    assert policies.pop("oncelog-storage") == "IfHealthyBudget"
    assert set(policies.values()) == {"AlwaysAllow"}


def test_volumes_of_storage_nodes_are_kept() -> None:
    """An uninstall or a lower replicaCount deletes no copies."""
    assert storage("default")["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }


def test_change_of_the_trace_collector_restarts_topic_owners_only() -> None:
    """Only they export traces. The spans name release and pod, and their share can be chosen."""

    def pods(*words: str) -> dict[str, Manifest]:
        done = template("--set", "tls.enabled=false,auth.enabled=false,redis.enabled=false", *words)
        assert done.returncode == 0, done.stderr
        found = manifests_in(done.stdout)
        return {
            each["metadata"]["name"]: each["spec"]["template"]
            for each in found
            if each["kind"] in {"StatefulSet", "Deployment"}
        }

    without = pods()
    traced = pods("--set", "otel.endpoint=http://collector:4317,otel.samplingRatio=0.25")
    assert [name for name, pod in traced.items() if pod != without[name]] == ["oncelog-owner"]
    seen = environment(traced["oncelog-owner"]["spec"]["containers"][0])
    assert seen["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4317"
    assert (seen["OTEL_TRACES_SAMPLER"], seen["OTEL_TRACES_SAMPLER_ARG"]) == ("parentbased_traceidratio", "0.25")
    attributes = dict(each.split("=") for each in seen["OTEL_RESOURCE_ATTRIBUTES"].split(","))
    assert attributes == {
        "service.namespace": RELEASE,
        "k8s.namespace.name": NAMESPACE,
        "k8s.pod.name": "<metadata.name>",
    }


@pytest.mark.parametrize("words", [(), ("--set", "levelCheck.enabled=false")])
def test_upgrade_and_roll_back_ask_for_the_level_first(words: tuple[str, ...]) -> None:
    """The Job has the image that Helm goes to, and its own hook runs before a roll-back to this release, too. An
    install has no cluster to ask."""

    def checks(*more: str) -> list[Manifest]:
        done = template("--set", "tls.enabled=false,redis.enabled=false", *words, *more)
        assert done.returncode == 0, done.stderr
        found = [each for each in manifests_in(done.stdout) if each["kind"] == "Job"]
        return [each for each in found if each["metadata"]["name"].endswith("-level")]

    assert checks() == []
    found = checks("--is-upgrade")
    assert len(found) == (0 if words else 1)
    for job in found:
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade,pre-rollback"
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["args"][:5] == ["oncelog.cli", "admin", "cluster", "level", "--require-known"]

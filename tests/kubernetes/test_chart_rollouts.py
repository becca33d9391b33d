"""An upgrade succeeds with as many nodes as an install needs, and replaces storage nodes one at a time. The Jobs that
run before it use what exists then, at the services that run then."""

from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.api_server import answering
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
from tests.kubernetes.test_chart_notes import notes

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


QUICK = ("--set", "tls.enabled=false,redis.enabled=false")
ASKED: dict[str, dict[str, Any]] = {"configmaps/kube-root-ca.crt": {}}
#: made by a former install
KEY = {
    "secrets/oncelog-auth": {
        "data": {"key": "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5emFiY2RlZmdoaWprbA=="}
    }
}


def running(*variables: str) -> dict[str, dict[str, Any]]:
    """The metadata services of a release that have these variables."""
    container = {"name": "metadata", "env": [{"name": name, "value": "x"} for name in variables]}
    return {"deployments/oncelog-metadata": {"spec": {"template": {"spec": {"containers": [container]}}}}}


def upgrade(objects: dict[str, dict[str, Any]], tmp_path: Path, *words: str) -> set[str]:
    """Names of the Jobs that an upgrade has."""
    with answering({**ASKED, **objects}, tmp_path) as kubeconfig:
        done = template(*QUICK, *words, "--is-upgrade", "--dry-run=server", "--kubeconfig", kubeconfig)
    assert done.returncode == 0, done.stderr
    return {each["metadata"]["name"] for each in manifests_in(done.stdout) if each["kind"] == "Job"}


AUTH = "ONCELOG_AUTH_KEY_FILE"


def test_level_is_checked_where_the_secret_exists(tmp_path: Path) -> None:
    assert upgrade({**KEY, **running(AUTH)}, tmp_path) == {"oncelog-level"}


def test_secret_that_the_upgrade_makes_is_not_waited_for(tmp_path: Path) -> None:
    """A pod waits for ever for a Secret that does not exist, and the hook runs before the upgrade makes it: to delete a
    Secret and to run an upgrade would end with a time-out."""
    assert upgrade(running(AUTH), tmp_path) == set()


@pytest.mark.parametrize(
    ("variables", "words"),
    [((), ()), ((AUTH,), ("--set", "auth.enabled=false"))],
    ids=["auth is switched on", "auth is switched off"],
)
def test_services_that_do_not_take_the_new_credentials_are_not_asked(
    variables: tuple[str, ...], words: tuple[str, ...], tmp_path: Path
) -> None:
    """They would refuse, and the upgrade with them."""
    assert upgrade({**KEY, **running("ONCELOG_LISTEN_HOST", *variables)}, tmp_path, *words) == set()


def test_nodes_are_not_removed_where_they_cannot_be_asked(tmp_path: Path) -> None:
    nodes = {"statefulsets/oncelog-storage": {"spec": {"replicas": 5}}}
    with answering({**ASKED, **nodes, **running(AUTH)}, tmp_path) as kubeconfig:
        done = template(*QUICK, "--is-upgrade", "--dry-run=server", "--kubeconfig", kubeconfig)
    assert done.returncode != 0
    assert "the Secret oncelog-auth does not exist, so the upgrade makes it. Make this upgrade with" in done.stderr
    assert "storage.replicaCount=5, and lower it in the next one" in done.stderr


@pytest.mark.parametrize(
    ("objects", "words", "said"),
    [
        ({**KEY, **running(AUTH)}, ("--set", "levelCheck.enabled=false"), "WARNING: levelCheck.enabled is false"),
        (
            running(AUTH),
            (),
            "WARNING: nobody asked the cluster whether this version may take part in it, because the Secret",
        ),
    ],
)
def test_unchecked_level_is_told(
    objects: dict[str, dict[str, Any]], words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """After each upgrade: the value stays as it is in later ones."""
    with answering({**ASKED, **objects}, tmp_path) as kubeconfig:
        text = notes(tmp_path, *QUICK, *words, "--is-upgrade", "--dry-run=server", "--kubeconfig", kubeconfig)
    assert said in text


def test_error_of_a_job_is_in_the_state_of_its_pod() -> None:
    """`kubectl describe pod` shows it also when the log is gone."""
    for name, kind, of in (("everything", "Job", "oncelog-provisioning"), ("pipeline", "CronJob", "oncelog-backup")):
        spec = one(name, kind, of)["spec"]
        pod = (spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]["spec"]
        assert pod["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"

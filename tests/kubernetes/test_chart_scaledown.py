"""An upgrade with fewer storage nodes first moves the copies of those that go, in a Job of Helm's pre-upgrade hook."""

from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import typer

from oncelog.cli.app import app
from oncelog.cli.failures import Exit
from tests.kubernetes.api_server import answering
from tests.kubernetes.chart import NAMESPACE, RELEASE, Manifest, environment, manifests_in, of_kind, one, template

#: Without certificates, which take longer to create than the rest of the chart.
QUICK = ("--set", "tls.enabled=false,redis.enabled=false")
SECRETS = ("--set", "tls.existingSecret=our-tls,auth.existingSecret=our-auth,redis.enabled=false")


def upgraded(tmp_path: Path, replicas: int, *words: str, before: int = 5) -> list[Manifest]:
    """What an upgrade of a release with `before` storage nodes renders."""
    installed: dict[str, dict[str, Any]] = {
        "statefulsets/oncelog-storage": {"spec": {"replicas": before}},
        "secrets/our-tls": {"data": dict.fromkeys(("tls.crt", "tls.key", "ca.crt"), "eA==")},
        "secrets/our-auth": {"data": dict.fromkeys(("key", "service-token", "admin-token"), "eA==")},
    }
    with answering(installed, tmp_path) as kubeconfig:
        sizes = ("--set", f"storage.replicaCount={replicas}")
        done = template(*words, *sizes, "--is-upgrade", "--dry-run=server", "--kubeconfig", kubeconfig)
    assert done.returncode == 0, done.stderr
    return manifests_in(done.stdout)


def drains(manifests: list[Manifest]) -> list[Manifest]:
    return [each for each in manifests if each["kind"] == "Job" and each["metadata"]["name"].endswith("-drain")]


def container_of(job: Manifest) -> Manifest:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    found: Manifest = container
    return found


@pytest.mark.hazard("too-few-nodes")
@pytest.mark.parametrize("replicas", [3, 4])
def test_copies_of_removed_nodes_are_moved_before_the_upgrade(replicas: int, tmp_path: Path) -> None:
    """A StatefulSet removes the pods with the highest numbers. The command waits until no ledger needs these nodes;
    while it fails, Helm changes nothing."""
    (job,) = drains(upgraded(tmp_path, replicas, *QUICK))
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    args = container_of(job)["args"]
    command = ["oncelog.cli", "admin", "storage", "decommission"]
    nodes = [f"oncelog-storage-{n}.oncelog-storage-headless.{NAMESPACE}.svc" for n in range(replicas, 5)]
    assert args == [*command, *nodes, "--wait", "--wait-seconds", "3600", "--allow-plaintext-token"]


def test_nodes_have_the_names_under_which_they_are_registered(tmp_path: Path) -> None:
    """The host that each storage node advertises."""
    (container,) = one("default", "StatefulSet", "oncelog-storage")["spec"]["template"]["spec"]["containers"]
    advertised = environment(container)["ONCELOG_ADVERTISED_HOST"].replace("<metadata.name>", "oncelog-storage-4")
    assert advertised in container_of(drains(upgraded(tmp_path, 4, *QUICK))[0])["args"]


def test_command_of_the_job_exists(tmp_path: Path) -> None:
    """With its options, in the program that the image runs."""
    args = container_of(drains(upgraded(tmp_path, 3, *QUICK))[0])["args"]
    command = typer.main.get_command(app)
    for word in args[1:4]:
        command = command.commands[word]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in args if word.startswith("--")} <= known
    assert any(parameter.nargs == -1 for parameter in command.params), "it takes several nodes"


@pytest.mark.parametrize("replicas", [5, 6])
def test_upgrade_without_fewer_storage_nodes_has_no_job(replicas: int, tmp_path: Path) -> None:
    """Nor has a tool that renders without the cluster: it does not know how many nodes there are."""
    assert not drains(upgraded(tmp_path, replicas, *QUICK))
    assert not of_kind("default", "Job")


@pytest.mark.hazard("too-few-nodes")
def test_fewer_storage_nodes_than_copies_are_refused(tmp_path: Path) -> None:
    """By Helm, before anything is drained."""
    with answering({"statefulsets/oncelog-storage": {"spec": {"replicas": 5}}}, tmp_path) as kubeconfig:
        given = ("--set", "storage.replicaCount=2", "--is-upgrade", "--dry-run=server", "--kubeconfig", kubeconfig)
        done = template(*QUICK, *given)
    assert done.returncode != 0
    assert "owner.writeQuorum is 3 and storage.replicaCount is 2" in done.stderr


def test_job_has_no_permissions_in_the_cluster(tmp_path: Path) -> None:
    """It needs the administrator's token and the CA, and neither a key nor a token of Kubernetes' API. It keeps to the
    restricted standard like all pods."""
    (job,) = drains(upgraded(tmp_path, 3, *SECRETS))
    spec, container = job["spec"]["template"]["spec"], container_of(job)
    assert spec["automountServiceAccountToken"] is False
    items = {
        volume["name"]: [item["key"] for item in volume["secret"]["items"]]
        for volume in spec["volumes"]
        if "secret" in volume
    }
    assert items == {"tls": ["ca.crt"], "auth": ["admin-token"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    assert "--allow-plaintext-token" not in container["args"]
    assert environment(container)["ONCELOG_ADMIN_URL"] == f"https://{RELEASE}-metadata.{NAMESPACE}.svc:8080"
    (check,) = of_kind("default", "Pod")
    assert container["securityContext"] == check["spec"]["containers"][0]["securityContext"]
    assert spec["securityContext"] == check["spec"]["securityContext"]


def test_job_is_valid_in_the_newest_kubernetes(tmp_path: Path) -> None:
    """Strictly: a misspelt field is an error."""
    for job in drains(upgraded(tmp_path, 3, *SECRETS)):
        kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)


def test_network_policies_of_the_installed_release_allow_the_job(tmp_path: Path) -> None:
    """The hook runs before the upgrade changes them, so its pod has the labels of the pod of `helm test`."""
    (job,) = drains(upgraded(tmp_path, 3, *QUICK))
    (check,) = of_kind("default", "Pod")
    own, wanted = job["spec"]["template"]["metadata"]["labels"], check["metadata"]["labels"]
    component = "app.kubernetes.io/component"
    assert own[component] == wanted[component]
    rules = one("certmanager", "NetworkPolicy", f"{RELEASE}-metadata")["spec"]["ingress"]
    allowed = [peer["podSelector"]["matchLabels"] for peer in rules[0]["from"] if set(peer) == {"podSelector"}]
    assert any(labels.items() <= own.items() for labels in allowed)


def test_job_ends_at_its_time_limit(tmp_path: Path) -> None:
    """So that an upgrade does not wait for ever for a ledger that cannot be read. The command then fails with a code
    after which the Job makes no further attempt."""
    (job,) = drains(upgraded(tmp_path, 3, *QUICK, "--set", "storage.drainTimeoutSeconds=90"))
    args = container_of(job)["args"]
    assert args[args.index("--wait-seconds") + 1] == "90"
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [Exit.FAILED, Exit.USAGE]
    assert Exit.UNAVAILABLE not in rule["onExitCodes"]["values"]
    assert rule["onExitCodes"]["containerName"] == container_of(job)["name"]
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert job["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"

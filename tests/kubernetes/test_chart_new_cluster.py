"""The chart lets a metadata service create the cluster only with the proof of all storage nodes: at an install, an
upgrade, by tools that render without the cluster, and over volumes that were kept."""

from pathlib import Path

import pytest

from oncelog.core.address import split_address
from tests.kubernetes.chart import (
    FILES,
    NAMESPACE,
    RELEASE,
    Manifest,
    environment,
    manifests_in,
    one,
    template,
    values_of,
)

pytestmark = pytest.mark.hazard("emptied-zookeeper")

#: Without certificates, which take longer to create than the rest of the chart.
QUICK = ("--set", "tls.enabled=false,auth.enabled=false,redis.enabled=false")


@pytest.mark.parametrize("name", FILES)
def test_metadata_services_ask_every_storage_node(name: str) -> None:
    """Each pod of the StatefulSet, at its health port, under the name that it has before it is ready, too."""
    nodes = one(name, "ConfigMap", f"{RELEASE}-new-cluster")["data"]["storage-nodes"].split()
    assert len(nodes) == len(set(nodes)) == values_of(name)["storage"]["replicaCount"]
    stateful = one(name, "StatefulSet", f"{RELEASE}-storage")["spec"]
    (container,) = [each for each in stateful["template"]["spec"]["containers"] if each["name"] == "storage"]
    for number, node in enumerate(nodes):
        host, port = split_address(node)
        pod = {"<metadata.name>": f"{RELEASE}-storage-{number}"}
        assert host == environment(container)["ONCELOG_ADVERTISED_HOST"].replace(*next(iter(pod.items())))
        assert str(port) == environment(container)["ONCELOG_HEALTH_PORT"]
    assert one(name, "Service", stateful["serviceName"])["spec"]["publishNotReadyAddresses"] is True


@pytest.mark.hazard("older-zookeeper-is-served")
@pytest.mark.parametrize("part", ["metadata", "owner"])
@pytest.mark.parametrize("name", FILES)
def test_file_of_storage_nodes_is_mounted_where_the_setting_says(name: str, part: str) -> None:
    """As a file, so that another number of storage nodes does not restart the services. Owners find there who may prove
    that ZooKeeper is older."""
    kind = "Deployment" if part == "metadata" else "StatefulSet"
    pod = one(name, kind, f"{RELEASE}-{part}")["spec"]["template"]["spec"]
    (container,) = [each for each in pod["containers"] if each["name"] == part]
    folder, _, file = environment(container)["ONCELOG_NEW_CLUSTER_NODES_FILE"].rpartition("/")
    (mount,) = [each for each in container["volumeMounts"] if each["mountPath"] == folder]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    assert file in one(name, "ConfigMap", volume["configMap"]["name"])["data"]


def rendered(*words: str) -> list[Manifest]:
    done = template(*QUICK, *words)
    assert done.returncode == 0, done.stderr
    return manifests_in(done.stdout)


def creating(manifests: list[Manifest]) -> tuple[Manifest, Manifest]:
    """The pods of the metadata services, and the file of storage nodes."""
    found = {(each["kind"], each["metadata"]["name"]): each for each in manifests}
    return (
        found["Deployment", f"{RELEASE}-metadata"]["spec"]["template"],
        found["ConfigMap", f"{RELEASE}-new-cluster"]["data"],
    )


def test_other_number_of_storage_nodes_changes_only_the_file() -> None:
    """The pods of the metadata services are the same."""
    few, many = rendered(), rendered("--set", "storage.replicaCount=5")
    assert creating(few)[0] == creating(many)[0]
    assert creating(few)[1] != creating(many)[1]


def test_proof_does_not_depend_on_how_the_chart_is_rendered() -> None:
    """Tools that render without access to the cluster always render an install. So there is no hook, no Job, and no
    Secret that says whether a cluster was created."""
    install, upgrade = rendered(), rendered("--is-upgrade")
    assert not [each for each in install if each["kind"] == "Job"]
    assert creating(install) == creating(upgrade)


def test_network_policy_lets_metadata_services_and_owners_ask(tmp_path: Path) -> None:
    """Also if only named scrapers may read metrics, which are at the same port."""
    file = tmp_path / "values.yaml"
    file.write_text("networkPolicy: {scrapers: [{namespaceSelector: {matchLabels: {a: b}}}]}")
    (policy,) = [
        each
        for each in rendered("--values", str(file))
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == f"{RELEASE}-storage"
    ]
    (rule,) = [rule for rule in policy["spec"]["ingress"] if rule["ports"] == [{"port": 8081, "protocol": "TCP"}]]
    parts = [
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for peer in rule["from"]
        if "podSelector" in peer
    ]
    assert parts == ["metadata", "owner"]
    assert len(rule["from"]) == 3
    assert NAMESPACE in one("default", "ConfigMap", f"{RELEASE}-new-cluster")["data"]["storage-nodes"]

"""Values that Kubernetes or a program would refuse later, or that would not do what they say: refused by the chart."""

import json
from typing import Any

import jsonschema
import pytest

from tests.kubernetes.chart import of_kind, one, schema, template
from tests.kubernetes.test_chart_values import QUICK, nested

BOTH = "doors.kafka.enabled=true,doors.pulsar.enabled=true"
MIRROR = "mirrors[0].name=a,mirrors[0].source.url=oncelog://a:6650"

#: (the arguments, the text that the error must have)
REFUSED = [
    (
        "owner.resources.limits.memory=128Mi",
        "owner.resources.limits.memory is 128Mi, but owner.resources.requests.memory is 384Mi",
    ),
    ("metadata.resources.limits.cpu=50m", "metadata.resources.limits.cpu is 50m, but"),
    ("backup.resources.limits.memory=1000000", "backup.resources.limits.memory is 1000000, but"),
    (
        "owner.resources.limits.memory=500Mi,owner.settings.entryCacheBytesMax=1073741824",
        "owner may keep 1216 MiB by owner.settings.dedupBatchesBytesMax, entryCacheBytesMax, streamBytesMax",
    ),
    ("metadata.resources.limits.memory=200Mi", "metadata may keep"),
    ("zookeeper.heapMegabytes=1024,zookeeper.resources.limits.memory=1Gi", "zookeeper.heapMegabytes is 1024, and Java"),
    (
        "pipeline.driver.memory=4g,pipeline.driver.resources.limits.memory=3Gi",
        "pipeline.driver.memory is 4g, the heap alone",
    ),
    ("backup.enabled=true,backup.schedule=each hour on time", 'backup.schedule is "each hour on time", which is no'),
    ("backup.enabled=true,backup.schedule=61 * * * *", "which is no schedule"),
    ("backup.enabled=true,backup.schedule=* * 0 * *", "which is no schedule"),
    ("auth.enabled=true,backup.enabled=true,backup.role=oncelog-admin", "backup.role is oncelog-admin, which is a"),
    (
        "auth.enabled=true,auth.superusers={ops},backup.enabled=true,backup.role=ops",
        "backup.role is ops, which is a superuser",
    ),
    (f"{MIRROR},mirrors[0].topics={{o}},mirrors[0].pattern=o", "a has topics and also namespace or pattern"),
    (
        f"{MIRROR},mirrors[0].topics={{o}},mirrors[1].name=a,mirrors[1].topics={{p}},mirrors[1].source.url=oncelog://b:6650",
        "two of them have the name a",
    ),
    (f"{MIRROR},mirrors[0].pattern=o(", "the pattern of a is no regular expression: o("),
    (f"{MIRROR},mirrors[0].topics={{o}},mirrors[0].podDisruptionBudget.maxUnavailable=2", "of 2 pods at most 1"),
    (f"{MIRROR},mirrors[0].topics={{o}},mirrors[0].resources.limits.cpu=1,mirrors[0].resources.requests.cpu=2", "a:"),
    (
        "relay.enabled=true,relay.image.repository=r,relay.existingSecret=s,relay.podDisruptionBudget.maxUnavailable=2",
        "relay.podDisruptionBudget.maxUnavailable is 2: of 2 pods at most 1",
    ),
    (
        (
            "pipeline.enabled=true,pipeline.copy.from=carts\\,public/default/orders,pipeline.copy.to=orders,"
            "pipeline.copy.producerPrefix=p"
        ),
        "pipeline.copy.from and pipeline.copy.to both name orders",
    ),
    ("owner.extraEnv[0].name=ONCELOG_LOG_LEVEL,owner.extraEnv[0].value=debug", "owner.extraEnv has ONCELOG_LOG_LEVEL"),
]
REFUSED_OF_DOORS = [
    ("doors.pulsar.plaintext=true", "doors.pulsar.enabled"),
    ("doors.pulsar.rest=true", "doors.pulsar.enabled"),
    ("doors.pulsar.enabled=true,doors.pulsar.plaintext=true,tls.enabled=false", "tls.enabled"),
    ("doors.pulsar.enabled=true,doors.podDisruptionBudget.maxUnavailable=2", "of 2 pods at most 1"),
    (
        "doors.pulsar.enabled=true,doors.terminationGracePeriodSeconds=20",
        "doors.terminationGracePeriodSeconds is 20",
    ),
    ("doors.service.nodePort=31000", "doors.service.nodePort is set, but doors.service.type is ClusterIP"),
    ("doors.service.loadBalancerIP=10.0.0.9", "Set doors.service.type=LoadBalancer"),
    (
        "doors.service.type=NodePort,doors.service.nodePort=31000,doors.service.tlsNodePort=31000",
        "doors.service.nodePort and tlsNodePort are both 31000",
    ),
    (
        "doors.kafka.advertised=kafka.example:9093",
        "doors.kafka.advertised is set, but doors.kafka.enabled is false",
    ),
    ("doors.kafka.namespace=shop/events", "doors.kafka.namespace is set, but doors.kafka.enabled is false"),
    ("doors.kafka.enabled=true,doors.kafka.advertised=kafka.example", "advertised"),
    ("doors.kafka.enabled=true,doors.kafka.advertised=kafka.example:65536", "advertised"),
    ("doors.kafka.enabled=true,doors.kafka.namespace=shop", "namespace"),
    ("doors.kafka.enabled=true,doors.kafka.nodePort=31000", "doors.service.type is ClusterIP"),
    ("doors.kafka.enabled=true,doors.kafka.loadBalancerIP=10.0.0.9", "Set doors.service.type=LoadBalancer"),
    (
        "doors.kafka.enabled=true,doors.service.type=NodePort,doors.service.nodePort=31000",
        "doors.service.nodePort is that of clients of Pulsar",
    ),
    (
        f"{BOTH},doors.service.type=NodePort,doors.kafka.nodePort=31000,doors.service.nodePort=31000",
        "doors.kafka.nodePort and doors.service.nodePort are both 31000",
    ),
    ("doors.kafka.enabled=true,doors.podDisruptionBudget.maxUnavailable=2", "of 2 pods at most 1"),
    (
        f"{BOTH},doors.settings.doorBytesMax=536870912",
        "doors may keep 1024 MiB",
    ),
    ("doors.settings.doorBytesMax=2147483648", "doors.resources.limits.memory is 1Gi"),
    ("doors.extraEnv[0].name=ONCELOG_LOG_LEVEL,doors.extraEnv[0].value=x", "doors.extraEnv has ONCELOG_LOG_LEVEL"),
]
ACCEPTED = [
    "owner.resources.limits.memory=384Mi",
    "owner.resources.limits.memory=402653184",
    "owner.resources.limits.memory=0.5Gi,owner.resources.limits.cpu=1.5",
    "backup.enabled=true,backup.schedule=*/5 0-6\\,22 1 jan-mar SUN",
    "backup.enabled=true,backup.schedule=@daily",
    f"{MIRROR},mirrors[0].pattern=(?!test).*",
    f"{MIRROR},mirrors[0].pattern=[a-z]+-(eu|us)",
    "metadata.service.type=NodePort,metadata.service.nodePort=31000",
]
#: (the place, the value, the field that the error must name)
REFUSED_BY_SCHEMA: list[tuple[str, Any, str]] = [
    ("metadata.service.nodePort", 80, "nodePort"),
    ("metadata.service.restNodePort", 1023, "restNodePort"),
    ("image.tag", "1.0 beta", "tag"),
    ("relay.image.tag", "-x", "tag"),
    ("image.repository", "my registry/oncelog", "repository"),
    ("fullnameOverride", "x" * 41, "fullnameOverride"),
    ("fullnameOverride", "logs.eu", "fullnameOverride"),
    ("nameOverride", "x" * 41, "nameOverride"),
    ("owner.podLabels", {"team": "x" * 64}, "podLabels"),
    ("commonLabels", {"team": "a b"}, "commonLabels"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED + REFUSED_OF_DOORS)
def test_wrong_values_are_refused(given: str, words: str) -> None:
    """Helm's error names the value and what to change."""
    done = template(*QUICK, "--set", given)
    assert done.returncode != 0, given
    assert words in done.stderr, done.stderr


@pytest.mark.parametrize("given", ACCEPTED)
def test_right_values_are_accepted(given: str) -> None:
    done = template(*QUICK, "--set", given, "-s", "templates/metadata.yaml")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("path", "value", "field"), REFUSED_BY_SCHEMA)
def test_wrong_values_are_refused_by_the_schema(path: str, value: Any, field: str) -> None:
    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.Draft7Validator(schema()).validate(nested(path, value))
    assert field in f"{refused.value.json_path} {refused.value.message}"


def test_relays_mirrors_and_backups_are_placed_as_the_services_are() -> None:
    """Where their values say, and within a budget of disruptions, unless it is switched off."""
    budgets = {
        each["metadata"]["name"]: each["spec"]["maxUnavailable"]
        for each in of_kind("everything", "PodDisruptionBudget")
    }
    assert budgets["oncelog-relay"] == 2
    assert budgets["oncelog-mirror-orders"] == 1
    assert "oncelog-mirror-shop" not in budgets
    relay = one("everything", "Deployment", "oncelog-relay")["spec"]["template"]
    assert relay["spec"]["nodeSelector"] == {"disk": "fast"}
    assert relay["spec"]["tolerations"] == [{"key": "logs", "operator": "Exists"}]
    mirror = one("everything", "Deployment", "oncelog-mirror-shop")["spec"]["template"]
    assert mirror["spec"]["nodeSelector"] == {"zone": "b"}
    assert mirror["spec"]["priorityClassName"] == "low"
    assert mirror["metadata"]["annotations"]["team"] == mirror["metadata"]["labels"]["team"] == "shop"
    backup = one("pipeline", "CronJob", "oncelog-backup")["spec"]["jobTemplate"]["spec"]["template"]
    assert backup["spec"]["nodeSelector"] == {"disk": "slow"}
    assert backup["metadata"]["annotations"]["team"] == "shop"


def test_pods_of_the_former_revision_do_not_count_when_deployments_are_spread() -> None:
    """In a rolling update they are about to go. StatefulSets replace a pod by one of the same name."""
    for kind, keys in (("Deployment", ["pod-template-hash"]), ("StatefulSet", None)):
        for each in of_kind("default", kind):
            (constraint,) = each["spec"]["template"]["spec"]["topologySpreadConstraints"]
            assert constraint.get("matchLabelKeys") == keys, json.dumps(each["metadata"]["name"])

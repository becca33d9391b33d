"""Values: refused values with their messages; schema, defaults, code and README have the same values."""

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from oncelog.runtime.settings import (
    LogStorageSettings,
    MetadataSettings,
    ProcessSettings,
    TopicOwnerSettings,
    load,
    variable,
)
from tests.kubernetes.chart import (
    CHART,
    FILES,
    Manifest,
    containers,
    environment,
    rendered,
    schema,
    template,
    values_of,
)

#: Without certificates, which take longer to create than the rest of the chart.
QUICK = ("--set", "tls.enabled=false,auth.enabled=false,redis.enabled=false")
SETTINGS_OF: dict[str, type[ProcessSettings]] = {
    "": ProcessSettings,
    "metadata": MetadataSettings,
    "owner": TopicOwnerSettings,
    "storage": LogStorageSettings,
}

#: (the arguments, the text that the error must have)
REFUSED_BY_CHECKS = [
    ("relay.enabled=true", "relay.image.repository is empty"),
    ("relay.enabled=true,relay.image.repository=ours", "relay.existingSecret is empty"),
    ("console.enabled=true", "console.enabled is true, but auth.enabled is false"),
    ("owner.ackQuorum=4", "owner.ackQuorum is 4 and owner.writeQuorum is 3"),
    ("owner.writeQuorum=4", "owner.writeQuorum is 4 and storage.replicaCount is 3"),
    ("storage.replicaCount=2", "Raise storage.replicaCount or lower writeQuorum"),
    ("storage.podDisruptionBudget.maxUnavailable=2", "at most 1 storage nodes may be unavailable"),
    (
        "owner.podDisruptionBudget.maxUnavailable=2",
        "owner.podDisruptionBudget.maxUnavailable is 2: of 2 pods at most 1",
    ),
    ("metadata.replicaCount=3,metadata.podDisruptionBudget.maxUnavailable=3", "of 3 pods at most 2 may be unavailable"),
    ("zookeeper.replicaCount=4", "Choose 1, 3 or 5"),
    ("zookeeper.podDisruptionBudget.maxUnavailable=2", "of 3 servers at most 1 may be unavailable"),
    ("zookeeper.enabled=false", "set it to the host:port of your ensemble's servers"),
    ("zookeeper.externalHosts={zk:2181}", "Set zookeeper.enabled=false to use the external ensemble"),
    ("redis.enabled=true,redis.external.urlSecret=ours", "Set redis.enabled=false to use the external Redis"),
    ("zookeeper.external.tls=true", "Set zookeeper.tls.mode for the ensemble of this release"),
    ("zookeeper.enabled=false,zookeeper.tls.mode=prefer,tls.enabled=true", "Set zookeeper.external.tls"),
    ("redis.tls.mode=require,tls.enabled=true", "Begin the URL of an external Redis with rediss://"),
    ("zookeeper.tls.mode=require", "zookeeper.tls.mode is require, but tls.enabled is false"),
    ("redis.external.ca=true", "name the Secret with url and ca.crt"),
    (
        (
            "zookeeper.enabled=false,zookeeper.externalHosts={zk:2181},zookeeper.external.tls=true,"
            "zookeeper.external.clientCertificate=true"
        ),
        "name the Secret with tls.crt and tls.key",
    ),
    ("tls.enabled=true,tls.existingSecret=ours,tls.rotation=prepare", "the release uses another certificate"),
    ("tls.existingSecret=ours,tls.certManager.enabled=true", "choose one"),
    ("tls.enabled=true,tls.certManager.enabled=true", "set it to the name of an Issuer"),
    ("tls.existingSecret=ours,tls.extraNames={log.example}", "Include the names in that certificate"),
    ("auth.enabled=true,auth.adminRole=oncelog-service", "the services need a separate role"),
    ("owner.terminationGracePeriodSeconds=81", "take up to 81 s"),
    ("owner.terminationGracePeriodSeconds=20", "Raise it, or lower stabilityTimeoutMs or drainTimeoutMs"),
    ("owner.terminationGracePeriodSeconds=22,owner.settings.stabilityTimeoutMs=1000", "take up to 22 s"),
    ("storage.settings.drainTimeoutMs=120000", "storage.terminationGracePeriodSeconds is 120"),
    ("settings.drainTimeoutMs=58000", "metadata.terminationGracePeriodSeconds is 60"),
    ("storage.persistence.size=2047Mi", "storage.persistence.size is 2047Mi, but a storage node needs freeBytesMin"),
    ("storage.persistence.size=2147M", "together 2048 MiB"),
    ("storage.persistence.size=20Gi,storage.settings.freeBytesMin=21474836480", "together 21504 MiB"),
    ("storage.settings.segmentBytes=10737418240", "Enlarge the volume, or lower storage.settings.segmentBytes"),
    ("metadata.service.nodePort=31000", "metadata.service.nodePort is set, but metadata.service.type is ClusterIP"),
    ("metadata.service.restNodePort=31000", "Set metadata.service.type to NodePort or LoadBalancer"),
    ("metadata.service.externalTrafficPolicy=Local", "metadata.service.externalTrafficPolicy is set, but"),
    ("metadata.service.type=NodePort,metadata.service.loadBalancerIP=10.0.0.9", "loadBalancerIP is set, but"),
    ("metadata.service.type=NodePort,metadata.service.loadBalancerClass=a/b", "loadBalancerClass is set, but"),
    (
        "metadata.service.type=NodePort,metadata.service.nodePort=31000,metadata.service.restNodePort=31000",
        "metadata.service.nodePort and restNodePort are both 31000",
    ),
]
#: Volumes that are just large enough.
ACCEPTED_SIZES = [
    "storage.persistence.size=2Gi",
    "storage.persistence.size=2.0Gi",
    "storage.persistence.size=2148M",
    "storage.persistence.size=1Ti",
    "storage.persistence.size=500Mi,storage.settings.segmentBytes=67108864,storage.settings.freeBytesMin=209715200",
    "storage.persistence.size=1Mi,storage.persistence.enabled=false",
]
#: (a value that is set, its switch, which is off)
GIVEN_FOR_NOTHING = [
    ("tls.existingSecret=ours", "tls.enabled"),
    ("tls.certManager.enabled=true,tls.certManager.issuerRef.name=ours", "tls.enabled"),
    ("tls.extraNames={log.example}", "tls.enabled"),
    ("tls.rotation=prepare", "tls.enabled"),
    (
        "zookeeper.external.tlsSecret=ours,zookeeper.enabled=false,zookeeper.externalHosts={zk:2181}",
        "zookeeper.external.tls",
    ),
    ("tls.certManager.issuerRef.name=ours", "tls.certManager.enabled"),
    ("auth.existingSecret=ours", "auth.enabled"),
    ("zookeeper.auth.existingSecret=ours", "zookeeper.auth.enabled"),
    ("auth.superusers={operator}", "auth.enabled"),
    ("networkPolicy.clients[0].podSelector.matchLabels.team=orders", "networkPolicy.enabled"),
    ("networkPolicy.scrapers[0].podSelector.matchLabels.team=orders", "networkPolicy.enabled"),
    ("serviceAccount.annotations.note=ours", "serviceAccount.create"),
    ("console.ingress.enabled=true", "console.enabled"),
]
#: (the place, the value, the field that the error must name)
REFUSED_BY_SCHEMA: list[tuple[str, Any, str]] = [
    ("owner.advertisedHost", "owners.example.com", "owner.advertisedHost"),  # the same for each
    ("onwer", {}, "onwer"),
    ("owner.replicas", 3, "replicas"),
    ("owner.replicaCount", 0, "replicaCount"),
    ("owner.replicaCount", "3", "replicaCount"),
    ("owner.settings.ledgerBytes", 1, "ledgerBytes"),
    ("owner.settings.ledgerBytesMax", "1Gi", "ledgerBytesMax"),
    ("owner.settings.grpcPort", 1, "grpcPort"),
    ("settings.logLevel", "loud", "logLevel"),
    ("storage.persistence.size", "20 GB", "size"),
    ("storage.persistence.whenDeleted", "Keep", "whenDeleted"),
    ("image.digest", "abc", "digest"),
    ("tls.enabled", "yes", "enabled"),
    ("spread.nodes", "strict", "nodes"),
    ("zookeeper.externalHosts", ["zk"], "externalHosts"),
    ("zookeeper.chroot", "teams", "chroot"),
    ("auth.superusers", ["a,b"], "superusers"),
    ("networkPolicy.clients", [{"podselector": {}}], "podselector"),
    ("owner.extraEnv", [{"value": "x"}], "extraEnv"),
    ("owner.resources", {"requests": {"cpu": -1}}, "cpu"),
    ("owner.resources", {"requests": {"cpu": "-1"}}, "cpu"),
    ("storage.resources", {"limits": {"memory": -5}}, "memory"),
    ("storage.resources", {"limits": {"memory": "..Gi"}}, "memory"),
    ("storage.persistence.size", ".Gi", "size"),
    ("metadata.service.nodePort", 70000, "nodePort"),
    ("otel.samplingRatio", 2, "samplingRatio"),
    ("otel.samplingRatio", "25%", "samplingRatio"),
    ("metadata.service.externalTrafficPolicy", "local", "externalTrafficPolicy"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED_BY_CHECKS)
def test_contradicting_values_are_refused(given: str, words: str) -> None:
    """Helm's error names the value to change."""
    done = template(*QUICK, "--set", given)
    assert done.returncode != 0
    assert words in done.stderr


@pytest.mark.parametrize("given", ACCEPTED_SIZES)
def test_volume_that_is_just_large_enough_is_accepted(given: str) -> None:
    """freeBytesMin and four segments: the first, the next, the spare one, and one for compaction."""
    done = template(*QUICK, "--set", given, "-s", "templates/storage.yaml")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("given", "switch"), GIVEN_FOR_NOTHING)
def test_values_without_effect_are_refused(given: str, switch: str) -> None:
    """A user who sets tokens, a certificate or allowed clients expects them to be in force. The error names the value
    to set."""
    value = re.split(r"[=[]", given)[0]
    done = template(*QUICK, "--set", given, "--set", f"{switch}=false")
    assert done.returncode != 0
    assert f"{value.removesuffix('.note')} is set, but {switch} is false" in done.stderr
    assert f"Set {switch}=true, or remove" in done.stderr


def nested(path: str, value: Any) -> Manifest:
    for name in reversed(path.split(".")):
        value = {name: value}
    found: Manifest = value
    return found


@pytest.mark.parametrize(("path", "value", "field"), REFUSED_BY_SCHEMA)
def test_unknown_values_and_wrong_types_are_refused(path: str, value: Any, field: str) -> None:
    """A misspelt value must not look as if it were in force."""
    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.Draft7Validator(schema()).validate(nested(path, value))
    assert field in f"{refused.value.json_path} {refused.value.message}"


def test_helm_names_the_value_that_the_schema_refuses() -> None:
    """In the error that users see."""
    done = template(*QUICK, "--set", "owner.replicas=3,storage.persistence.whenDeleted=Keep")
    assert done.returncode != 0
    assert "owner: Additional property replicas is not allowed" in done.stderr
    assert "storage.persistence.whenDeleted" in done.stderr


def objects(node: Any, path: str = "") -> Iterator[tuple[str, Manifest]]:
    """Every part of the schema that describes an object."""
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield path, node
        for name, inner in node.items():
            yield from objects(inner, f"{path}.{name}")
    elif isinstance(node, list):
        for number, inner in enumerate(node):
            yield from objects(inner, f"{path}[{number}]")


def is_closed(node: Manifest) -> bool:
    further = node.get("additionalProperties")
    return further is False or (isinstance(further, dict) and further.get("type") == "string")


def test_schema_refuses_unknown_values_everywhere() -> None:
    """Maps with free names, for example labels, define the type of their values."""
    jsonschema.Draft7Validator.check_schema(schema())
    found = list(objects(schema()))
    assert len(found) > 40
    open_ones = [path for path, node in found if not is_closed(node)]
    assert open_ones == [".properties.global", ".definitions.kubernetes"], "an umbrella's globals, and Kubernetes' own"


def resolved(node: Manifest) -> Manifest:
    reference = node.get("$ref")
    found: Manifest = schema()["definitions"][reference.rpartition("/")[2]] if reference else node
    return found


def keys_of(values: Manifest, path: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{path}{name}"
        if isinstance(value, dict):
            yield from keys_of(value, f"{path}{name}.")


def keys_of_schema(node: Manifest, path: str = "") -> Iterator[str]:
    for name, inner in resolved(node).get("properties", {}).items():
        yield f"{path}{name}"
        yield from keys_of_schema(inner, f"{path}{name}.")


#: Parts that hold Kubernetes' own fields, or a setting each: empty by default.
_FREE = re.compile(
    r"(.*\.)?(settings|resources|nodeSelector|commonLabels|commonAnnotations|labels|annotations|pod\w+s|image|podSecurityContext|config)\..*"
)


def test_defaults_and_schema_have_the_same_values() -> None:
    """Users cannot find a value without a default, and a value without a schema is refused."""
    default = {key for key in keys_of(values_of("default")) if not _FREE.fullmatch(key)}
    known = {key for key in keys_of_schema(schema()) if not _FREE.fullmatch(key)}
    assert default == known


def snake(name: str) -> str:
    return re.sub(r"([A-Z])", r"_\1", name).lower()


@pytest.mark.parametrize("part", SETTINGS_OF)
def test_schema_has_each_setting_of_the_code(part: str) -> None:
    """Except settings that the chart sets itself. Each has the name that the code uses."""
    properties = schema()["properties"]
    node = properties[part]["properties"]["settings"] if part else properties["settings"]
    given = {name for file in ("default", "external") for _, each in containers(file) for name in environment(each)}
    all_fields = {field.name for field in dataclasses.fields(SETTINGS_OF[part])}
    expected = {name for name in all_fields if variable(name) not in given}
    assert {snake(name) for name in node["properties"]} == expected


def test_large_numbers_are_not_rendered_as_floats() -> None:
    """Helm reads numbers as floats: 1073741824 would become 1.073741824e+09, which no service accepts."""
    seen = {
        name: value
        for part, each in containers("everything")
        for name, value in environment(each).items()
        if part == "owner"
    }
    assert seen["ONCELOG_LEDGER_BYTES_MAX"] == "2147483648"
    assert seen["ONCELOG_LOG_LEVEL"] == "info", "a part's own setting goes before that of all"


@pytest.mark.parametrize("name", FILES)
def test_presets_render(name: str) -> None:
    """Including presets that no other test renders."""
    assert rendered(name)


# --- memory -----------------------------------------------------------------------------------------------------------

#: A metadata service without anything to do, and what Python needs besides the bytes that are counted.
IDLE_BYTES = 256 << 20
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


@pytest.mark.parametrize("name", FILES)
def test_metadata_pod_is_limited_and_has_room_for_its_budgets(name: str) -> None:
    """Without a limit, one that holds too much takes the memory of its node."""
    pods = [each for part, each in containers(name) if part == each["name"] == "metadata"]
    for pod in pods:
        number, unit = re.fullmatch(r"(\d+)([MG]i)", pod["resources"]["limits"]["memory"]).groups()  # type: ignore[union-attr]
        settings = load(MetadataSettings, {n: v for n, v in environment(pod).items() if n.endswith("_BYTES_MAX")})
        held = settings.gateway_bytes_max + settings.rest_bodies_bytes_max + settings.consume_bytes_max
        assert int(number) * UNITS[unit] >= held + IDLE_BYTES
    assert pods


# --- README -----------------------------------------------------------------------------------------------------------


def described() -> Iterator[tuple[str, str, str]]:
    """(value, default, meaning) of each line `# -- meaning` in values.yaml, which belongs to the value below it."""
    path: list[tuple[int, str]] = []
    meaning = ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        if found := re.fullmatch(r" *# -- (.*)", line):
            meaning = found.group(1)
        elif found := re.match(r"( *)(\w+):", line):
            indent = len(found.group(1))
            path = [*((i, name) for i, name in path if i < indent), (indent, found.group(2))]
            if meaning:
                names = [name for _, name in path]
                value: Any = values_of("default")
                for name in names:
                    value = value[name]
                yield ".".join(names), json.dumps(value, ensure_ascii=False), meaning
                meaning = ""


def test_each_value_is_described() -> None:
    """By its own comment, or by that of the value that contains it."""
    told = {value for value, _, _ in described()}
    untold = [
        key
        for key in keys_of(values_of("default"))
        if not any(key == value or key.startswith(f"{value}.") or value.startswith(f"{key}.") for value in told)
    ]
    assert untold == []


def test_readme_has_the_table_of_values() -> None:
    """With the descriptions of values.yaml."""
    right = "\n".join(f"| `{value}` | `{default}` | {meaning} |" for value, default, meaning in described())
    text = (CHART / "README.md").read_text()
    assert right in text, f"the table must be:\n| value | default | meaning |\n|---|---|---|\n{right}"


def test_readme_examples_use_values_that_exist() -> None:
    """Each `--set` and each YAML block."""
    text = (CHART / "README.md").read_text()
    known = set(keys_of_schema(schema()))
    named = {name for words in re.findall(r"--set ([\w.=,-]+)", text) for name in re.findall(r"([\w.]+)=", words)}
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    assert named
    assert blocks
    assert named - known == set()
    for block in blocks:
        jsonschema.Draft7Validator(schema()).validate(block)

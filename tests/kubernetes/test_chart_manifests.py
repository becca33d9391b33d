"""The rendered chart is valid for each Kubernetes version, secure, and consistent with the code."""

import base64
import importlib.util
import json
import re
import ssl
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from oncelog.core.errors import PermissionDenied
from oncelog.runtime.health import Health
from oncelog.runtime.security import Security
from oncelog.runtime.settings import MetadataSettings, load
from oncelog.runtime.tls.handshake import refusal
from tests.kubernetes.chart import (
    CHART,
    FILES,
    NAMESPACE,
    RELEASE,
    ROOT,
    SETTINGS,
    Manifest,
    component,
    containers,
    environment,
    helm,
    manifests_in,
    of_kind,
    one,
    pod_templates,
    rendered,
    template,
    values_of,
    workloads,
)

#: What the chart promises (kubeVersion) and what the newest schema in the package is.
VERSIONS = ("1.29", "1.30", "1.31", "1.32", "1.33", kubernetes_validate.latest_version())
#: Resources of operators, which Kubernetes' own schemas do not know.
FOREIGN = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "Certificate"}
#: Together they use every branch of the templates; the presets differ from the default in numbers.
VARIED = ("plain", "external", "certmanager", "everything")
#: of extras.yaml
USERS_CONTAINERS = ("wait", "shipper")
GOLDEN = ROOT / "tests/kubernetes/immutable.yaml"

each_file = pytest.mark.parametrize("name", FILES)


def samples(name: str) -> list[Manifest]:
    """Every workload, and one object of each other built-in kind: further objects differ only in their names."""
    kinds = {manifest["kind"]: manifest for manifest in rendered(name) if manifest["kind"] not in FOREIGN}
    return workloads(name) + [manifest for kind, manifest in kinds.items() if kind not in {"StatefulSet", "Deployment"}]


def test_manifests_are_valid_in_the_newest_kubernetes() -> None:
    """Strictly: a misspelt field is an error, and is not ignored. Manifests that two files share are checked once."""
    distinct = {json.dumps(manifest): manifest for name in VARIED for manifest in samples(name)}
    for manifest in distinct.values():
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_manifests_are_valid_in_every_kubernetes(version: str) -> None:
    """The values file that uses the most features."""
    for manifest in samples("everything"):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_misspelt_field_is_found() -> None:
    """The control."""
    wrong = {**one("default", "Service", "oncelog-metadata"), "specs": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("name", ["dev", "production"])
def test_lint_passes(name: str) -> None:
    """Warnings count."""
    done = helm("lint", "--strict", str(CHART), "--values", str(FILES[name]))
    assert done.returncode == 0, done.stdout


def test_pre_stop_sleep_is_a_program_before_kubernetes_1_30() -> None:
    """The kubelet's own sleep action exists from 1.30 on; before, its field would be dropped and the pod refused."""
    plain = ("--values", str(FILES["plain"]), "--set", "metadata.preStopSleepSeconds=3")
    old = template(*plain, "--kube-version", "1.29.0", "--show-only", "templates/metadata.yaml")
    new = template(*plain, "--kube-version", "1.30.0", "--show-only", "templates/metadata.yaml")
    assert ('command: [sleep, "3"]' in old.stdout, "seconds: 3" in old.stdout) == (True, False)
    assert ('command: [sleep, "3"]' in new.stdout, "seconds: 3" in new.stdout) == (False, True)


def test_versions_are_those_of_the_product() -> None:
    """The chart's default image is the version in pyproject.toml, as docker/build.sh tags it."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    product = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert about["appVersion"] == product
    images = {container["image"] for part, container in containers("default") if part in SETTINGS}
    assert images == {f"oncelog:{product}"}


def test_test_pod_is_kept_until_the_next_test() -> None:
    """`helm test --logs` reads the log of the pod after it has ended, and fails when the pod is gone."""
    (check,) = of_kind("default", "Pod")
    annotations = check["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "test"
    assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation"


# --- immutable fields -------------------------------------------------------------------------------------------------


def immutable(name: str) -> dict[str, Any]:
    """The fields that Kubernetes never lets an upgrade change, by workload."""
    return {
        f"{manifest['kind']} {manifest['metadata']['name']}": {
            field: manifest["spec"][field]
            for field in ("serviceName", "podManagementPolicy", "selector", "volumeClaimTemplates")
            if field in manifest["spec"]
        }
        for manifest in workloads(name)
    }


def test_immutable_fields_are_frozen() -> None:
    """Changing them breaks `helm upgrade` of every existing release. Never edit the golden file."""
    golden = yaml.safe_load(GOLDEN.read_text())
    assert immutable("default").items() <= golden.items()
    assert immutable("pipeline") == golden


@each_file
def test_immutable_fields_depend_on_no_value_except_volumes(name: str) -> None:
    """A value that is changed later must not make an upgrade impossible. The documents state this limit for size,
    class and annotations of volumes."""
    frozen = immutable("pipeline")
    # A copy: what helm rendered is shared by all tests.
    for workload, seen in deepcopy(immutable(name)).items():
        if "-mirror-" in workload:  # as many as there are values; each is known by its name alone
            labels = {"app.kubernetes.io/name": "oncelog", "app.kubernetes.io/instance": "oncelog"}
            mirror = {"app.kubernetes.io/component": workload.removeprefix("Deployment oncelog-")}
            assert seen["selector"] == {"matchLabels": labels | mirror}
            continue
        for claim in seen.get("volumeClaimTemplates", []):
            claim["spec"] = frozen[workload]["volumeClaimTemplates"][0]["spec"]
            claim["metadata"].pop("annotations", None)
        expected = {field: value for field, value in frozen[workload].items() if field in seen}
        assert seen == expected


@each_file
def test_selectors_match_only_their_own_pods(name: str) -> None:
    """Of Services, budgets and policies; a selector without a match protects nothing."""
    pods = {part: pod["metadata"]["labels"] for part, pod in pod_templates(name)}
    for manifest in of_kind(name, "Service", "PodDisruptionBudget", "NetworkPolicy", "StatefulSet", "Deployment"):
        spec = manifest["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        wanted = dict(selector.get("matchLabels", selector))
        wanted.pop("statefulset.kubernetes.io/pod-name", None)  # which the StatefulSet adds to each pod
        found = [part for part, labels in pods.items() if wanted.items() <= labels.items()]
        assert found == [component(manifest)], manifest["metadata"]["name"]


# --- programs and their settings --------------------------------------------------------------------------------------


def services(name: str) -> Iterator[tuple[str, Manifest]]:
    """The chart's own containers, without those that users add."""
    return ((part, container) for part, container in containers(name) if part in SETTINGS and container["name"] == part)


def started_with(container: Manifest) -> dict[str, str]:
    """The environment, with the pod's name and address in place of their field references."""
    return {
        name: value.replace("<status.podIP>", "10.1.2.3").replace("<metadata.name>", "pod-0")
        for name, value in environment(container).items()
    }


@each_file
def test_each_service_accepts_its_environment(name: str) -> None:
    """Loaded by the service's own code: an unknown variable or an invalid value ends a pod at its start."""
    for part, container in services(name):
        settings = load(SETTINGS[part], started_with(container))
        given = values_of(name)[part]["settings"] | {
            key: value
            for key, value in values_of(name)["settings"].items()
            if key not in values_of(name)[part]["settings"]
        }
        for key, value in given.items():
            set_to = getattr(settings, re.sub(r"([A-Z])", r"_\1", key).lower())
            assert set_to == value or (key == "httpHosts" and value in set_to.split(","))
        assert settings.listen_host == values_of(name)["listenHost"]


def test_release_without_authentication_takes_requests_by_its_own_names() -> None:
    """Those of its Services and pods, and by address, as probes, Prometheus and `kubectl port-forward` send them."""
    (rest,) = [each for part, each in services("plain") if part == "metadata"]
    hosts = Security.of(load(MetadataSettings, started_with(rest))).open_to
    assert hosts is not None
    admin_url = urlsplit(environment(rest)["ONCELOG_ADMIN_URL"])
    node = f"oncelog-storage-0.oncelog-storage-headless.{NAMESPACE}.svc:8081"
    for host in (admin_url.netloc, "oncelog-metadata:8080", "10.1.2.3:8081", "localhost:8080", node, "rest.example"):
        hosts.check("DELETE", {"host": host}.get)
    for host in ("attacker.example", f"oncelog-metadata.{NAMESPACE}"):
        with pytest.raises(PermissionDenied):
            hosts.check("DELETE", {"host": host}.get)
    assert all("ONCELOG_HTTP_HOSTS" not in environment(each) for _, each in services("default"))


@each_file
def test_ports_and_probes_are_served(name: str) -> None:
    """Each port is opened by a setting, and each path is served by the health server. Liveness probes never use the
    readiness path."""
    health = Health(lambda: b"", None)
    for part, container in services(name):
        settings = load(SETTINGS[part], started_with(container))
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        opened = {f"{key}": getattr(settings, f"{key}_port") for key in ports}
        assert ports == opened
        for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
            get = container[probe]["httpGet"]
            assert get == {"path": path, "port": "health"}
            assert health._answer(b"GET", path.encode()).status == 200
    for manifest in (*of_kind(name, "ServiceMonitor"), *of_kind(name, "PodMonitor")):
        for endpoint in manifest["spec"].get("endpoints") or manifest["spec"]["podMetricsEndpoints"]:
            assert health._answer(b"GET", endpoint["path"].encode()).status == 200


@each_file
def test_container_programs_exist(name: str) -> None:
    """The first argument is the module that the image's entry point runs with `python -m`."""
    for part, container in containers(name):
        if part in {*SETTINGS, "check"} and container["name"] == part:
            assert importlib.util.find_spec(f"{container['args'][0]}.__main__") is not None
            assert "command" not in container
    entry = (ROOT / "docker/Dockerfile").read_text()
    assert re.search(r'^ENTRYPOINT \[".*python", "-m"\]', entry, re.MULTILINE)


@each_file
def test_services_have_the_names_that_pods_use(name: str) -> None:
    """Each host in a setting is a Service of this release with the port in use."""
    known = {manifest["metadata"]["name"]: manifest for manifest in of_kind(name, "Service")}
    for _, container in containers(name):
        for variable, value in environment(container).items():
            for host in re.findall(rf"([\w-]+)\.{NAMESPACE}\.svc", value):
                assert host in known, f"{variable}={value}"
    for manifest in of_kind(name, "StatefulSet"):
        headless = known[manifest["spec"]["serviceName"]]["spec"]
        assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)


def test_owners_advertise_their_ip() -> None:
    """A name resolves to the previous, dead pod until DNS is updated."""
    told = {part: environment(container)["ONCELOG_ADVERTISED_HOST"] for part, container in services("default")}
    assert (told["owner"], told["metadata"]) == ("<status.podIP>", "<status.podIP>")
    named = {part: environment(container)["ONCELOG_ADVERTISED_HOST"] for part, container in services("everything")}
    assert named["owner"] == values_of("everything")["owner"]["advertisedHost"].replace(
        "$(POD_NAME)", "<metadata.name>"
    )


@each_file
def test_drain_fits_into_the_grace_period(name: str) -> None:
    """If a pod is killed during its drain, its clients wait for a takeover."""
    for part, pod in pod_templates(name):
        if part in SETTINGS:
            container = pod["spec"]["containers"][0]
            settings = load(SETTINGS[part], started_with(container))
            sleep_s = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            drain_ms = settings.drain_timeout_ms + getattr(settings, "stability_timeout_ms", 0)
            assert pod["spec"]["terminationGracePeriodSeconds"] > sleep_s + drain_ms / 1000


def test_falsy_values_are_kept() -> None:
    """False and 0 are values, and do not mean that a value is missing."""
    kinds = {manifest["kind"] for manifest in rendered("plain")}
    assert kinds == {"ConfigMap", "Service", "Deployment", "StatefulSet", "Pod"}
    assert all("lifecycle" not in container for _, container in containers("plain"))
    assert all("volumeClaimTemplates" not in manifest["spec"] for manifest in workloads("plain"))
    assert not [
        variable
        for _, each in containers("plain")
        for variable in environment(each)
        if "TLS" in variable or "AUTH" in variable
    ]


# --- security ---------------------------------------------------------------------------------------------------------


@each_file
def test_every_container_has_requests(name: str) -> None:
    """A namespace with a ResourceQuota admits no pod without them: no upgrade would work there, because of its Jobs.
    Spark gives them to its pods, and users to containers of their own."""
    others = ("driver", "executor", *USERS_CONTAINERS)
    own = [container for _, container in containers(name) if container["name"] not in others]
    assert [each["name"] for each in own if not each.get("resources", {}).get("requests")] == []


@each_file
def test_pods_keep_to_the_restricted_standard(name: str) -> None:
    """Kubernetes' strictest profile, and a read-only root file system."""
    for part, pod in pod_templates(name):
        spec, context = pod["spec"], pod["spec"]["securityContext"]
        # A Spark driver creates its executors itself.
        assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (part == "pipeline", False), part
        assert (context["runAsNonRoot"], context["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
        assert context["runAsUser"] == context["fsGroup"] == values_of(name)["podSecurityContext"]["runAsUser"]
        assert not any(spec.get(field) for field in ("hostNetwork", "hostPID", "hostIPC"))
        assert {kind for volume in spec["volumes"] for kind in volume if kind != "name"} <= {
            "emptyDir", "secret", "configMap", "projected", "persistentVolumeClaim",
        }  # fmt: skip
    for _, container in containers(name):
        security = container["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)


@each_file
def test_mounts_and_volumes_match(name: str) -> None:
    """And every Secret is one of the release or one that the values name."""
    made = {manifest["metadata"]["name"] for manifest in of_kind(name, "Secret", "Certificate")}
    values = values_of(name)
    given = {
        values["auth"]["existingSecret"],
        values["tls"]["existingSecret"],
        values["redis"]["external"]["urlSecret"],
        values["zookeeper"]["external"]["tlsSecret"],
        values["zookeeper"]["auth"]["existingSecret"],
        values["pipeline"]["existingSecret"],
        values["relay"]["existingSecret"],
    }
    for mirror in values["mirrors"]:
        given |= {mirror.get("tokenSecret"), mirror["source"].get("tokenSecret"), mirror["source"].get("caSecret")}
    for manifest in workloads(name):
        pod = manifest["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in manifest["spec"].get("volumeClaimTemplates", [])}
        assert {mount["name"] for each in pod["containers"] for mount in each["volumeMounts"]} == volumes
        secrets = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        assert secrets <= made | given


def secret(name: str, manifest_name: str) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in one(name, "Secret", manifest_name)["data"].items()}


def test_tokens_are_signed_by_the_key() -> None:
    """The chart computes them itself: a JWT library must accept them, and the services must treat their roles as
    superusers."""
    made = secret("default", f"{RELEASE}-auth")
    roles = {
        each: jwt.decode(made[each], made["key"], algorithms=["HS256"], audience="oncelog")["sub"]
        for each in ("service-token", "admin-token")
    }
    assert roles == {"service-token": "oncelog-service", "admin-token": "oncelog-admin"}
    for _, container in services("default"):
        superusers = environment(container)["ONCELOG_AUTH_SUPERUSERS"].split(",")
        assert set(roles.values()) <= set(superusers)
    assert made["key"] != secret("production", f"{RELEASE}-auth")["key"]


def test_certificate_is_valid_for_every_used_name(tmp_path: Path) -> None:
    """`oncelog`, the cluster's name for services and clients, and the names of REST, owners and storage nodes.
    Verified by a handshake of OpenSSL, which takes a certificate for self-signed if its CA has the same name."""
    made = secret("default", f"{RELEASE}-tls")
    assert set(made) == {"tls.crt", "tls.key", "ca.crt"}, "the key of the CA is kept nowhere"
    for key, data in made.items():
        (tmp_path / key).write_bytes(data)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    for name in (
        "oncelog",
        f"oncelog-metadata.{NAMESPACE}.svc",
        f"oncelog-owner-0.oncelog-owner-headless.{NAMESPACE}.svc",
    ):
        assert refusal(serving, trusting, name) is None
    assert "not valid for" in str(refusal(serving, trusting, "another.example"))


def test_certificate_of_cert_manager_has_the_same_and_external_names() -> None:
    """The Secret has the same keys, whether the chart or cert-manager creates it."""
    spec = one("certmanager", "Certificate", f"{RELEASE}-tls")["spec"]
    assert {"oncelog", "localhost", "log.example.com"} <= set(spec["dnsNames"])
    assert spec["ipAddresses"] == ["127.0.0.1", "192.0.2.7"]
    assert spec["secretName"] == f"{RELEASE}-tls"
    assert not [m for m in of_kind("certmanager", "Secret") if m["metadata"]["name"] == f"{RELEASE}-tls"]


def test_network_policies_allow_only_the_required_peers() -> None:
    """ZooKeeper, Redis and storage nodes accept the cluster's own pods only. Clients are those that the values
    name."""

    def sources(name: str, part: str) -> dict[int, Any]:
        rules = one(name, "NetworkPolicy", f"{RELEASE}-{part}")["spec"]["ingress"]
        return {port["port"]: rule.get("from") for rule in rules for port in rule["ports"]}

    def parts(peers: Any) -> list[str]:
        return [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in peers]

    assert parts(sources("default", "zookeeper")[2181]) == ["metadata", "owner", "storage"]
    assert parts(sources("default", "zookeeper")[3888]) == ["zookeeper"]
    assert parts(sources("default", "redis")[6379]) == ["metadata"]
    assert parts(sources("default", "storage")[6650]) == ["metadata", "owner", "storage"]
    assert (sources("default", "metadata")[8080], sources("default", "owner")[8081]) == (None, None)
    limited = sources("certmanager", "owner")
    assert limited[6650][-1] == {"namespaceSelector": {"matchLabels": {"team": "orders"}}}
    assert len(limited[8081]) == 1


def test_two_releases_share_a_namespace() -> None:
    """Names and selectors of two releases do not overlap."""
    done = helm("template", "second", str(CHART), "--namespace", NAMESPACE, "--values", str(FILES["plain"]))
    second = manifests_in(done.stdout)
    assert second
    assert not {(m["kind"], m["metadata"]["name"]) for m in second} & {
        (m["kind"], m["metadata"]["name"]) for m in rendered("plain")
    }

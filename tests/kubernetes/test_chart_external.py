"""External access: a Service for each owner, Ingress or Gateway to the metadata services, and network policies."""

from typing import Any

import pytest

from oncelog.runtime.settings import TopicOwnerSettings, load
from tests.kubernetes.chart import (
    RELEASE,
    Manifest,
    containers,
    environment,
    manifests_in,
    of_kind,
    one,
    template,
)

QUICK = ("--set", "tls.enabled=false,auth.enabled=false,redis.enabled=false")


def manifests(*words: str) -> list[Manifest]:
    done = template(*QUICK, *words)
    assert done.returncode == 0, done.stderr
    return manifests_in(done.stdout)


def named(found: list[Manifest], kind: str, name: str) -> Manifest:
    return next(each for each in found if each["kind"] == kind and each["metadata"]["name"] == name)


def addresses(found: list[Manifest]) -> list[str]:
    """What each owner advertises, by the settings that its pod starts with."""
    workload = named(found, "StatefulSet", "oncelog-owner")
    told = environment(workload["spec"]["template"]["spec"]["containers"][0])
    found_addresses = []
    for ordinal in range(workload["spec"]["replicas"]):
        own = {"<metadata.name>": f"oncelog-owner-{ordinal}", "<status.podIP>": "10.1.2.3"}
        started = {name: own.get(value, value) for name, value in told.items() if name.startswith("ONCELOG_")}
        found_addresses.append(load(TopicOwnerSettings, started).grpc_address(6650))
    return found_addresses


def test_each_owner_has_a_node_port_and_advertises_it() -> None:
    """The pod advertises the port that its Service opens. Services continue to use the pod's own address."""
    given = '{"type": "NodePort", "host": "n.example", "firstPort": 31000}'
    found = manifests("--set", "owner.replicaCount=3", "--set-json", f"owner.external={given}")
    for ordinal in range(3):
        service = named(found, "Service", f"oncelog-owner-{ordinal}")["spec"]
        assert service["type"] == "NodePort"
        assert service["ports"] == [{"name": "grpc", "port": 6650, "targetPort": "grpc", "nodePort": 31000 + ordinal}]
        assert service["selector"]["statefulset.kubernetes.io/pod-name"] == f"oncelog-owner-{ordinal}"
    assert addresses(found) == ["n.example:31000", "n.example:31001", "n.example:31002"]


def test_each_owner_has_a_load_balancer_and_advertises_it() -> None:
    """By a name with its number, or by lists; at the gRPC port unless another port is given."""
    found = manifests("--set-json", 'owner.external={"type":"LoadBalancer","host":"owner-{ordinal}.example"}')
    assert addresses(found) == ["owner-0.example:6650", "owner-1.example:6650"]
    assert named(found, "Service", "oncelog-owner-1")["spec"]["ports"] == [
        {"name": "grpc", "port": 6650, "targetPort": "grpc"}
    ]
    lists = '{"type":"LoadBalancer","hosts":["10.0.0.1","fd00::2"],"ports":[7000,8000],'
    lists += '"loadBalancerSourceRanges":["10.0.0.0/8"]}'
    found = manifests("--set-json", f"owner.external={lists}")
    assert addresses(found) == ["10.0.0.1:7000", "[fd00::2]:8000"]
    service = named(found, "Service", "oncelog-owner-1")["spec"]
    assert service["ports"] == [{"name": "grpc", "port": 8000, "targetPort": "grpc"}]
    assert service["loadBalancerSourceRanges"] == ["10.0.0.0/8"]


def test_owner_advertises_its_own_address_by_default() -> None:
    """Without external access."""
    found = manifests()
    assert addresses(found) == ["10.1.2.3:6650", "10.1.2.3:6650"]
    assert not [each for each in found if each["kind"] in {"Ingress", "GRPCRoute", "HTTPRoute", "Role"}]


@pytest.mark.parametrize(
    ("external", "words"),
    [
        ('{"host": "n.example"}', "owner.external.type is empty"),
        ('{"type": "NodePort", "firstPort": 31000}', "neither owner.external.host nor hosts"),
        ('{"type": "NodePort", "host": "n.example"}', "An owner must advertise its port"),
        ('{"type": "LoadBalancer", "host": "n.example"}', "two owners would have the same address"),
        ('{"type": "LoadBalancer", "hosts": ["a"]}', "owner.external.hosts has 1 entries, but owner.replicaCount is 2"),
        ('{"type": "LoadBalancer", "host": "a", "ports": [1, 2, 3]}', "owner.external.ports has 3 entries"),
        ('{"type": "ClusterIP"}', "owner.external.type"),
        ('{"type": "LoadBalancer", "host": "a:1/"}', "owner.external.host"),
    ],
)
def test_invalid_external_addresses_are_refused(external: str, words: str) -> None:
    """By helm, and the message names the value to set."""
    done = template(*QUICK, "--set-json", f"owner.external={external}")
    assert done.returncode != 0
    assert words in done.stderr


def test_ingress_routes_to_the_gateway() -> None:
    """One host and one port: producers, readers and administration."""
    ingress = named(of_kind("external", "Ingress"), "Ingress", "oncelog")
    assert ingress["spec"]["ingressClassName"] == "nginx"
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "logs.example"
    backend: dict[str, Any] = rule["http"]["paths"][0]["backend"]["service"]
    services = {each["metadata"]["name"]: each for each in of_kind("external", "Service")}
    ports = {port["name"]: port["port"] for port in services[backend["name"]]["spec"]["ports"]}
    assert ports[backend["port"]["name"]] == 6650


def test_ingress_of_the_console_routes_to_rest_and_to_nothing_else_of_it() -> None:
    """Browsers reach /console alone. The other Ingress is for gRPC, which a browser does not speak."""
    ingress = named(of_kind("external", "Ingress"), "Ingress", "oncelog-console")
    assert ingress["metadata"]["annotations"] == {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}
    assert ingress["spec"]["tls"] == [{"hosts": ["console.example"], "secretName": "console-tls"}]
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert (rule["host"], path["path"], path["pathType"]) == ("console.example", "/console", "Prefix")
    assert path["backend"]["service"] == {"name": "oncelog-metadata", "port": {"name": "rest"}}


def test_console_is_off_unless_it_is_enabled() -> None:
    """In the settings of the metadata services, and only there."""
    for name, expected in (("default", "false"), ("external", "true")):
        seen = {part: environment(each).get("ONCELOG_CONSOLE") for part, each in containers(name)}
        assert seen.pop("metadata") == expected
        assert set(seen.values()) == {None}


def test_gateway_api_routes_to_grpc_and_rest() -> None:
    """REST only if it is enabled: it has separate hosts."""
    given = '{"enabled": true, "parentRefs": [{"name": "public"}], "hostnames": ["logs.example"]}'
    found = manifests("--set-json", f"gatewayApi={given}")
    route = named(found, "GRPCRoute", "oncelog-grpc")["spec"]
    assert route["parentRefs"] == [{"name": "public"}]
    assert route["hostnames"] == ["logs.example"]
    assert route["rules"] == [{"backendRefs": [{"name": "oncelog-metadata", "port": 6650}]}]
    assert not [each for each in found if each["kind"] == "HTTPRoute"]
    more = '{"enabled": true, "parentRefs": [{"name": "public"}], "rest": true, "restHostnames": ["rest.example"]}'
    rest = named(manifests("--set-json", f"gatewayApi={more}"), "HTTPRoute", "oncelog-rest")["spec"]
    assert rest["hostnames"] == ["rest.example"]
    assert rest["rules"] == [{"backendRefs": [{"name": "oncelog-metadata", "port": 8080}]}]


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ("ingress.enabled=true", ""),
        ("gatewayApi.enabled=true", ""),
        ("console.ingress.enabled=true", "console.enabled=true,auth.enabled=true"),
    ],
)
def test_ingress_and_gateway_without_a_host_are_refused(given: str, more: str) -> None:
    """Clients could not reach it."""
    done = template(*QUICK, "--set", given, "--set", more)
    assert done.returncode != 0
    assert f"{given.partition('=')[0]} is true, but" in done.stderr


def test_chaos_role_is_limited_to_its_namespace() -> None:
    """No ClusterRole, and no access to Secrets."""
    role = named(of_kind("external", "Role"), "Role", "oncelog-chaos")
    binding = named(of_kind("external", "RoleBinding"), "RoleBinding", "oncelog-chaos")
    assert binding["roleRef"]["name"] == "oncelog-chaos"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "oncelog-chaos", "namespace": "logs"}]
    resources = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert "pods/exec" in resources
    assert not {"secrets", "nodes", "*"} & resources
    assert not of_kind("external", "ClusterRole", "ClusterRoleBinding")


# --- network policies -------------------------------------------------------------------------------------------------


def test_helm_test_may_connect_if_clients_are_limited() -> None:
    """Its pod looks topics up, administers, publishes and reads; a list of named clients must not exclude it."""
    (check,) = of_kind("certmanager", "Pod")
    labels = check["metadata"]["labels"]
    for part, ports in (("metadata", {6650, 8080}), ("owner", {6650})):
        rules = one("certmanager", "NetworkPolicy", f"{RELEASE}-{part}")["spec"]["ingress"]
        open_ports = {
            port["port"]
            for rule in rules
            for port in rule["ports"]
            for peer in rule["from"]
            if set(peer) == {"podSelector"} and peer["podSelector"]["matchLabels"].items() <= labels.items()
        }
        assert open_ports == ports, part


def test_readers_may_connect_to_storage_nodes_only_if_owners_send_them_there() -> None:
    """An open port would serve nobody. Without authentication it would serve everybody."""
    for words, open_to_all in (((), False), (("--set", "owner.settings.storageReads=true"), True)):
        done = template(
            "--set", "tls.enabled=false,redis.enabled=false", *words, "-s", "templates/networkpolicies.yaml"
        )
        assert done.returncode == 0, done.stderr
        policy = done.stdout.split(f"name: {RELEASE}-storage\n")[1].split("---")[0]
        assert ("from:" not in policy.split("port: 6650")[1].split("- ports:")[0]) is open_to_all


def test_storage_nodes_are_opened_only_with_authentication() -> None:
    """Without it, whoever reaches one may write there."""
    words = "tls.enabled=false,redis.enabled=false,auth.enabled=false,owner.settings.storageReads=true"
    done = template("--set", words)
    assert done.returncode != 0
    assert "let everybody write without authentication: set auth.enabled" in done.stderr
    assert template("--set", f"{words},networkPolicy.enabled=false").returncode == 0

"""The chart's doors for clients of Pulsar and of Kafka: off by default; reached, guarded and placed as services are."""

import dataclasses
import importlib.util
import re
from collections.abc import Iterable

import pytest

from oncelog.runtime.settings import DoorSettings, load
from tests.kubernetes.chart import (
    Manifest,
    environment,
    manifests_in,
    of_kind,
    one,
    rendered,
    schema,
    template,
    values_of,
)
from tests.kubernetes.test_chart_values import snake

FILES = ("everything", "plain", "pipeline")
#: {values file: {Service: {port: number}}}; the container has all of them
PORTS = {
    "everything": {
        "pulsar": {"pulsar": 6650, "pulsar-tls": 6651, "pulsar-rest": 8080, "pulsar-rest-tls": 8443},
        "kafka": {"kafka-tls": 9093},
    },
    "plain": {"pulsar": {"pulsar": 6650, "pulsar-rest": 8080}, "kafka": {"kafka": 9092}},
    "pipeline": {"pulsar": {"pulsar-tls": 6651}},
}


def container(name: str) -> Manifest:
    (found,) = one(name, "Deployment", "oncelog-door")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def services_in(manifests: Iterable[Manifest]) -> dict[str, Manifest]:
    """{protocol: Service} of the doors."""
    services = (each for each in manifests if each["kind"] == "Service")
    return {
        protocol: each
        for each in services
        for protocol in ("pulsar", "kafka")
        if each["metadata"]["name"] == f"oncelog-{protocol}"
    }


def rules_in(manifest: Manifest) -> list[Manifest]:
    return [rule for group in manifest["spec"]["groups"] for rule in group["rules"]]


def test_doors_are_off_by_default() -> None:
    """A cluster without clients of Pulsar and Kafka has no further port."""
    for name in ("default", "production", "dev"):
        names = [each["metadata"]["name"] for each in of_kind(name, "Deployment", "Service", "NetworkPolicy")]
        assert [each for each in names if {"door", "pulsar", "kafka"} & set(each.split("-"))] == []


@pytest.mark.parametrize("name", FILES)
def test_door_accepts_its_environment(name: str) -> None:
    """Loaded by its own code; it listens where the Service and the probes ask."""
    own, values = container(name), values_of(name)
    seen = environment(own)
    settings = load(DoorSettings, seen)
    opened = {
        "pulsar": settings.pulsar_address,
        "pulsar-tls": settings.pulsar_tls_address,
        "pulsar-rest": settings.pulsar_rest_address,
        "pulsar-rest-tls": settings.pulsar_rest_tls_address,
        "kafka": settings.kafka_address,
        "kafka-tls": settings.kafka_tls_address,
    }
    listening = {port: int(address.rpartition(":")[2]) for port, address in opened.items() if address}
    hosts = {address.rpartition(":")[0].strip("[]") for address in opened.values() if address}
    assert hosts == {values["listenHost"]} == {settings.listen_host}
    all_ports = {port: number for ports in PORTS[name].values() for port, number in ports.items()}
    assert listening == all_ports
    ports = {port["name"]: port["containerPort"] for port in own["ports"]}
    assert ports == all_ports | {"health": settings.health_port}
    offered = {
        protocol: {port["targetPort"]: port["port"] for port in service["spec"]["ports"]}
        for protocol, service in services_in(rendered(name)).items()
    }
    assert offered == PORTS[name]
    assert settings.url == f"oncelog{'+tls' if values['tls']['enabled'] else ''}://oncelog-metadata.logs.svc:6650"
    assert bool(settings.auth_token_file) is bool(settings.auth_key_file) is values["auth"]["enabled"]
    assert own["args"][1:] == ["serve"]
    assert importlib.util.find_spec(f"{own['args'][0]}.__main__") is not None
    pod = one(name, "Deployment", "oncelog-door")["spec"]["template"]["spec"]
    sleep_s = values["doors"]["preStopSleepSeconds"]
    assert pod["terminationGracePeriodSeconds"] > sleep_s + settings.drain_timeout_ms / 1000


def test_settings_of_doors_are_those_of_the_code() -> None:
    """With the limit of a message that the owners have, unless it has one of its own."""
    known = {field.name for field in dataclasses.fields(DoorSettings)}
    given = schema()["properties"]["doors"]["properties"]["settings"]["properties"]
    assert {snake(name) for name in given} <= known
    values = {"url", "kafka_namespace_name", *(name for name in known if name.endswith("_address"))}
    inherited = {field.name for field in dataclasses.fields(DoorSettings.__mro__[1])}
    assert known - values - inherited <= {snake(name) for name in given}
    settings = load(DoorSettings, environment(container("everything")))
    assert (settings.door_connections_max, settings.door_bytes_max) == (2000, 128 << 20)
    assert (settings.log_level, settings.kafka_request_bytes_max) == ("warning", 8 << 20)
    assert (settings.kafka_partitions, settings.kafka_offsets_retention_ms) == (6, 0)
    assert settings.drain_timeout_ms == values_of("everything")["settings"]["drainTimeoutMs"]
    assert settings.message_bytes_max == values_of("everything")["owner"]["settings"]["messageBytesMax"]
    assert load(DoorSettings, environment(container("pipeline"))).message_bytes_max == 5 << 20


def test_service_of_doors_takes_the_values_of_a_load_balancer() -> None:
    service = one("everything", "Service", "oncelog-pulsar")
    assert service["metadata"]["annotations"] == {"example.com/note": "doors"}
    spec = service["spec"]
    assert (spec["type"], spec["externalTrafficPolicy"]) == ("LoadBalancer", "Local")
    assert (spec["loadBalancerIP"], spec["loadBalancerClass"]) == ("10.0.0.9", "example.com/lb")
    assert spec["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    node_ports = {port["name"]: port.get("nodePort") for port in spec["ports"]}
    assert node_ports == {"pulsar": 31650, "pulsar-tls": 31651, "pulsar-rest": None, "pulsar-rest-tls": None}


def test_service_of_kafka_takes_the_values_of_both_except_addresses() -> None:
    """Two Services cannot have one node port, nor most load balancers one address."""
    service, spec_of_pulsar = (one("everything", "Service", f"oncelog-{name}") for name in ("kafka", "pulsar"))
    assert service["metadata"]["annotations"] == {"example.com/note": "doors", "example.com/name": "kafka.example"}
    spec, shared = service["spec"], spec_of_pulsar["spec"]
    same = ("type", "externalTrafficPolicy", "loadBalancerClass", "loadBalancerSourceRanges", "selector")
    assert [spec[field] for field in same] == [shared[field] for field in same]
    assert spec["loadBalancerIP"] == "10.0.0.10"
    assert [port["nodePort"] for port in spec["ports"]] == [31093]


def test_clients_of_kafka_get_the_address_of_the_service_or_the_given_one() -> None:
    """That of the Service is one that it has, and a name of the certificate."""
    settings = load(DoorSettings, environment(container("everything")))
    assert settings.kafka_advertised_address == "kafka.example:19093"
    assert settings.kafka_namespace_name == "shop/events"
    plain = load(DoorSettings, environment(container("plain")))
    assert plain.kafka_advertised_address == "oncelog-kafka.logs.svc:9092"
    assert plain.kafka_namespace_name == "public/default"


def test_doors_run_for_clients_of_kafka_alone() -> None:
    """Without a listener, a Service or an alert for clients of Pulsar; budgeted, scraped and guarded all the same."""
    given = "doors.kafka.enabled=true,metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true"
    done = template("--set", given)
    assert done.returncode == 0, done.stderr
    found = {(each["kind"], each["metadata"]["name"]): each for each in manifests_in(done.stdout)}
    assert list(services_in(found.values())) == ["kafka"]
    (own,) = found["Deployment", "oncelog-door"]["spec"]["template"]["spec"]["containers"]
    settings = load(DoorSettings, environment(own))
    assert settings.kafka_tls_address.endswith(":9093")
    assert settings.kafka_advertised_address == "oncelog-kafka.logs.svc:9093"
    assert (settings.kafka_address, settings.pulsar_address, settings.pulsar_tls_address) == ("", "", "")
    assert ("PodDisruptionBudget", "oncelog-door") in found
    ingress = found["NetworkPolicy", "oncelog-door"]["spec"]["ingress"]
    assert [{port["port"] for port in way["ports"]} for way in ingress] == [{9092, 9093}, {8081}]
    (programs,) = found["PodMonitor", "oncelog"]["spec"]["selector"]["matchExpressions"]
    assert programs["values"] == ["door"]
    rules = [rule for each in found.values() if each["kind"] == "PrometheusRule" for rule in rules_in(each)]
    alerts = {rule["alert"]: rule for rule in rules if "Door" in rule["alert"]}
    assert set(alerts) == {"OncelogNoDoor", "OncelogDoorConnectionsRefused"}
    for rule in alerts.values():
        assert set(re.findall(r"oncelog_door_\w+", rule["expr"])) <= {
            "oncelog_door_kafka_connections",
            "oncelog_door_kafka_connections_refused_total",
        }
        assert rule["annotations"]["summary"].endswith("clients of Kafka.")


def test_doors_are_placed_budgeted_and_scraped() -> None:
    """As the services are."""
    template_of = one("everything", "Deployment", "oncelog-door")["spec"]["template"]
    assert template_of["spec"]["nodeSelector"] == {"zone": "b"}
    assert template_of["spec"]["priorityClassName"] == "low"
    assert template_of["metadata"]["labels"]["team"] == template_of["metadata"]["annotations"]["team"] == "shop"
    assert container("everything")["image"].endswith("/oncelog:1.2.6")
    assert one("everything", "PodDisruptionBudget", "oncelog-door")["spec"]["maxUnavailable"] == 2
    (monitor,) = of_kind("everything", "PodMonitor")
    assert "door" in monitor["spec"]["selector"]["matchExpressions"][0]["values"]


def test_doors_reach_the_log_and_clients_reach_doors() -> None:
    """As pods of the release, where clients are restricted."""
    client = "networkPolicy.clients[0].podSelector.matchLabels.app=shop"
    only = ("--show-only", "templates/networkpolicies.yaml")
    done = template("--set", f"doors.pulsar.enabled=true,{client}", *only)
    policies = {each["metadata"]["name"]: each["spec"]["ingress"] for each in manifests_in(done.stdout)}
    for part in ("metadata", "owner"):
        peers = [peer["podSelector"]["matchLabels"] for peer in policies[f"oncelog-{part}"][0]["from"]]
        assert "door" in [labels.get("app.kubernetes.io/component") for labels in peers]
    for_clients, for_scrapers = policies["oncelog-door"]
    assert {port["port"] for port in for_clients["ports"]} == {6650, 6651}
    assert for_clients["from"] == [{"podSelector": {"matchLabels": {"app": "shop"}}}]
    assert {port["port"] for port in for_scrapers["ports"]} == {8081}
    done = template("--set", "doors.pulsar.enabled=true,doors.pulsar.rest=true", *only)
    [policy] = [each for each in manifests_in(done.stdout) if each["metadata"]["name"] == "oncelog-door"]
    assert {port["port"] for port in policy["spec"]["ingress"][0]["ports"]} == {6650, 6651, 8080, 8443}


def test_certificate_names_the_service_of_doors() -> None:
    """Also while they are off: a certificate of the chart is kept. By that name HTTP is served only with REST."""
    (certificate,) = of_kind("certmanager", "Certificate")
    for protocol in ("pulsar", "kafka"):
        name = f"oncelog-{protocol}"
        names = {name, f"{name}.logs", f"{name}.logs.svc", f"{name}.logs.svc.cluster.local"}
        assert names <= set(certificate["spec"]["dnsNames"])
    hosts = environment(container("plain"))["ONCELOG_HTTP_HOSTS"].split(",")
    assert [host for host in hosts if "pulsar" in host or "kafka" in host] == [
        "oncelog-pulsar",
        "oncelog-pulsar.logs.svc",
        "oncelog-pulsar.logs.svc.cluster.local",
    ]
    off = "tls.enabled=false,auth.enabled=false,doors.pulsar.enabled=true"
    assert "oncelog-pulsar." not in template("--set", off, "--show-only", "templates/doors.yaml").stdout

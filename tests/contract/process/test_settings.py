"""Settings are read once, and a mistyped setting is an error."""

from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
from kazoo.hosts import collect_hosts

from oncelog.core.errors import InvalidArgument
from oncelog.runtime.settings import (
    ALL,
    DoorSettings,
    LogStorageSettings,
    MetadataSettings,
    ProcessSettings,
    TopicOwnerSettings,
    load,
    to_environment,
)

UNITS = (
    "_ms", "_bytes", "_max", "_min", "_port", "_host", "_hosts", "_quorum", "_level", "_directory", "_block",
    "_file", "_superusers", "_url", "_s", "_check", "balance", "_address", "_addresses", "_name", "_target", "_roles",
    "_partitions", "url",
)  # fmt: skip


def test_absent_settings_have_their_defaults() -> None:
    """An empty environment is enough to start on one machine."""
    settings = load(TopicOwnerSettings, {"PATH": "/bin"})
    assert settings == TopicOwnerSettings()
    assert settings.listen_host == "127.0.0.1"


def test_arguments_override_the_environment() -> None:
    """An argument applies to one run, the environment to all; None counts as absent."""
    environment = {"ONCELOG_GRPC_PORT": "7000", "ONCELOG_DATA_DIRECTORY": "/data", "ONCELOG_FREE_BYTES_MIN": "5"}
    settings = load(LogStorageSettings, environment, grpc_port=7001, free_bytes_min=None)
    assert (settings.grpc_port, settings.data_directory, settings.free_bytes_min) == (7001, Path("/data"), 5)


def test_mistyped_variable_fails_with_the_nearest_name() -> None:
    """The operator would believe the setting to be in force."""
    with pytest.raises(
        InvalidArgument, match=r"ONCELOG_LEDGER_BYTE_MAX; the nearest known one is ONCELOG_LEDGER_BYTES_MAX"
    ):
        load(TopicOwnerSettings, {"ONCELOG_LEDGER_BYTE_MAX": "1"})


def test_variables_of_other_processes_are_accepted() -> None:
    """All processes of a machine may share one environment."""
    load(MetadataSettings, {"ONCELOG_LEDGER_BYTES_MAX": "1"})


def test_argument_without_a_field_fails() -> None:
    """Callers get the same check as operators."""
    with pytest.raises(InvalidArgument, match="no setting ledger_bytes_max"):
        load(MetadataSettings, {}, ledger_bytes_max=1)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("GRPC_PORT", "x", "whole number"),
        ("GRPC_PORT", "-1", "at least 0"),
        ("GRPC_PORT", "65536", "at most 65535"),
        ("DRAIN_TIMEOUT_MS", "0", "at least 1"),
        ("DRAIN_TIMEOUT_MS", "1.5", "whole number"),
        ("LOG_LEVEL", "loud", "one of debug, info, warning, error"),
        ("ACK_QUORUM", "4", "must be 1 to ONCELOG_WRITE_QUORUM"),
        ("MESSAGE_BYTES_MAX", "16777217", "must be at most ONCELOG_FRAME_BYTES_MAX"),
    ],
)
def test_value_out_of_range_fails_and_is_named(name: str, text: str, complaint: str) -> None:
    """At the start, not at the first use of the value."""
    with pytest.raises(InvalidArgument, match=complaint) as caught:
        load(TopicOwnerSettings, {f"ONCELOG_{name}": text})
    assert f"ONCELOG_{name}" in caught.value.message


@pytest.mark.parametrize(
    ("hosts", "wrong"),
    [
        ("", ""),
        ("h:x", "h:x"),
        ("a:1,", ""),
        (":2181", ":2181"),
        ("h:0", "h:0"),
        ("a:1,b:65536/path", "b:65536"),
        ("[::1:1", "[::1:1"),
    ],
)
@pytest.mark.parametrize("cls", ALL)
def test_invalid_zookeeper_hosts_are_refused(cls: type[ProcessSettings], hosts: str, wrong: str) -> None:
    """As an invalid setting, before kazoo raises what looks like a bug."""
    with pytest.raises(InvalidArgument) as caught:
        load(cls, {"ONCELOG_ZOOKEEPER_HOSTS": hosts})
    assert caught.value.message == f"ONCELOG_ZOOKEEPER_HOSTS: {wrong!r} is not host:port"


@pytest.mark.parametrize("hosts", ["h", "a:1,b:2", "a:1, b:2", "[::1]:2181,[fd00::7]/a/b", "zookeeper-0.zk.svc:2181/x"])
def test_zookeeper_hosts_that_kazoo_accepts_are_accepted(hosts: str) -> None:
    """The port and the path may be absent."""
    assert collect_hosts(hosts)[0]
    assert load(MetadataSettings, {"ONCELOG_ZOOKEEPER_HOSTS": hosts}).zookeeper_hosts == hosts


def test_tls_needs_all_three_files_or_none() -> None:
    """With two of them the service would serve plain text while the operator expects TLS."""
    files = {"ONCELOG_TLS_CERTIFICATE_FILE": "a", "ONCELOG_TLS_KEY_FILE": "b", "ONCELOG_TLS_CA_FILE": "c"}
    assert load(MetadataSettings, files).tls_ca_file == "c"
    for missing in files:
        with pytest.raises(InvalidArgument, match=f"{missing} is missing"):
            load(MetadataSettings, {name: path for name, path in files.items() if name != missing})
    with pytest.raises(InvalidArgument, match="CERTIFICATE_FILE and ONCELOG_TLS_CA_FILE are missing: TLS needs"):
        load(MetadataSettings, {"ONCELOG_TLS_KEY_FILE": "b"})


def test_limit_of_one_body_fits_into_the_limit_of_all_bodies() -> None:
    """Otherwise such a body was always refused, with the advice to retry."""
    with pytest.raises(InvalidArgument, match="PUBLISH_BODY_BYTES_MAX must be at most ONCELOG_REST_BODIES_BYTES_MAX"):
        load(MetadataSettings, {"ONCELOG_REST_BODIES_BYTES_MAX": "1000000"})


def test_two_redis_addresses_are_refused() -> None:
    """Only one of them could be in force."""
    with pytest.raises(InvalidArgument, match="ONCELOG_REDIS_URL and ONCELOG_REDIS_URL_FILE are both set"):
        load(MetadataSettings, {"ONCELOG_REDIS_URL": "redis://one", "ONCELOG_REDIS_URL_FILE": "two"})


def test_argument_of_another_type_fails() -> None:
    """The command line parses text before."""
    with pytest.raises(InvalidArgument, match="of type int"):
        load(TopicOwnerSettings, {}, grpc_port="7000")


@pytest.mark.parametrize("cls", ALL)
def test_settings_are_passed_to_another_process(cls: type[ProcessSettings]) -> None:
    """A supervisor passes its settings to its children."""
    settings = load(cls, {}, grpc_port=7000, listen_host="10.0.0.1")
    assert load(cls, to_environment(settings)) == settings


def test_advertised_address_is_where_others_reach_the_process() -> None:
    """By its host name if one is set."""
    assert load(MetadataSettings, {}, listen_host="10.0.0.1").address(6650) == "10.0.0.1:6650"
    assert load(MetadataSettings, {}, advertised_host="metadata-0").address(6650) == "metadata-0:6650"


def test_advertised_port_may_differ_from_the_listening_port() -> None:
    """NAT, a NodePort or a proxy gives the port another number."""
    behind = load(TopicOwnerSettings, {}, advertised_host="logs.example", advertised_port=31000, grpc_port=6650)
    assert behind.grpc_address(6650) == "logs.example:31000"
    assert behind.address(8081) == "logs.example:8081"
    assert behind.internal_address(6650) == "logs.example:31000"
    inside = load(TopicOwnerSettings, {"ONCELOG_INTERNAL_HOST": "10.1.2.3", "ONCELOG_ADVERTISED_PORT": "31000"})
    assert inside.internal_address(6650) == "10.1.2.3:6650"
    assert inside.grpc_address(6650) == "127.0.0.1:31000"


def test_replica_advertises_its_own_of_several_addresses() -> None:
    """All pods of a StatefulSet have the same environment except for their names."""
    addresses = "node-1.example:31000,[fd00::7]:31001"
    for name, address in (("owner-0", "node-1.example:31000"), ("owner-1", "[fd00::7]:31001")):
        one = load(TopicOwnerSettings, {}, advertised_addresses=addresses, pod_name=name, internal_host="10.1.2.3")
        assert one.grpc_address(6650) == address
        assert one.internal_address(6650) == "10.1.2.3:6650"


@pytest.mark.parametrize(
    ("addresses", "name", "words"),
    [
        ("a:1,b:2", "owner-2", "select one, 0 to 1"),
        ("a:1", "owner", "select one, 0 to 0"),
        ("a:1,b", "owner-0", "'b' is not host:port"),
        ("a:0", "owner-0", "not host:port"),
        ("a:1,0.0.0.0:2", "owner-0", "not host:port"),
    ],
)
def test_invalid_advertised_addresses_are_refused(addresses: str, name: str, words: str) -> None:
    """One for each replica, each with its port."""
    with pytest.raises(InvalidArgument, match=words):
        load(TopicOwnerSettings, {}, advertised_addresses=addresses, pod_name=name)


@pytest.mark.parametrize("field", ["advertised_host", "internal_host"])
@pytest.mark.parametrize("host", ["logs.example:6650", "0.0.0.0"])
def test_unreachable_advertised_host_is_refused(field: str, host: str) -> None:
    """At the start, not by each client."""
    with pytest.raises(InvalidArgument, match=f"ONCELOG_{field.upper()}"):
        load(TopicOwnerSettings, {}, **{field: host})


@pytest.mark.parametrize("port", [-1, 65_536])
def test_invalid_advertised_port_is_refused(port: int) -> None:
    """0 means the listening port."""
    with pytest.raises(InvalidArgument, match="ONCELOG_ADVERTISED_PORT"):
        load(TopicOwnerSettings, {}, advertised_port=port)


@pytest.mark.parametrize("address", ["6651", ":6651", "host", "host:x", "host:65536"])
@pytest.mark.parametrize("field", ["pulsar_address", "pulsar_tls_address"])
def test_address_to_listen_on_has_a_host_and_a_port(field: str, address: str) -> None:
    """Port 0 is a free one."""
    with pytest.raises(InvalidArgument, match=f"ONCELOG_{field.upper()}: '{address}' is not host:port"):
        load(DoorSettings, {}, **{field: address})
    for valid in ("0.0.0.0:6651", "[::]:0"):
        assert load(DoorSettings, {}, pulsar_address=valid).pulsar_address == valid


def test_topics_of_kafka_have_partitions_within_the_limit() -> None:
    assert load(DoorSettings, {"ONCELOG_KAFKA_PARTITIONS": "1000"}).kafka_partitions == 1_000
    for count, limit in (("0", "at least 1"), ("1001", "at most 1000")):
        with pytest.raises(InvalidArgument, match=f"ONCELOG_KAFKA_PARTITIONS must be {limit}, not {count}"):
            load(DoorSettings, {"ONCELOG_KAFKA_PARTITIONS": count})


def test_door_with_tls_needs_a_certificate() -> None:
    """Otherwise it would fail when the first client connects."""
    with pytest.raises(InvalidArgument, match="PULSAR_TLS_ADDRESS needs ONCELOG_TLS_CERTIFICATE_FILE"):
        load(DoorSettings, {"ONCELOG_PULSAR_TLS_ADDRESS": "0.0.0.0:6651"})


@pytest.mark.parametrize("cls", ALL)
def test_names_of_numbers_have_a_unit_or_bound(cls: type[ProcessSettings]) -> None:
    """Readers would misread a time without a unit."""
    switches = {name for name, kind in get_type_hints(cls).items() if kind is bool}
    numbers = [field.name for field in fields(cls) if field.name not in switches]
    assert [name for name in numbers if not name.endswith(UNITS)] == []

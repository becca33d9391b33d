"""Settings: one frozen dataclass a process, read once, from arguments and then from the environment.

The variable of the field `ledger_bytes_max` is ONCELOG_LEDGER_BYTES_MAX. Units are the last word of a name. An unknown
variable that begins with ONCELOG_ fails the start, and the error gives the nearest known name: a misspelt setting must
not seem to be in force. The command line warns of it, and goes on.
"""

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints
from urllib.parse import urlsplit

from oncelog.core.address import host_fault, join_address
from oncelog.core.errors import InvalidArgument, InvalidName
from oncelog.core.names import PARTITIONS_MAX, parse_namespace
from oncelog.runtime.logs import LEVELS
from oncelog.runtime.observing.http_hosts import HttpHosts

PREFIX = "ONCELOG_"
#: The SDK packs at least this many messages into one batch.
PUBLISH_MESSAGES_MAX = 4_096
_TLS_FILES = ("tls_certificate_file", "tls_key_file", "tls_ca_file")


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The settings of every service. Port 0: take a free port."""

    #: host to listen on, and host that others use to reach this process; empty: the host it listens on
    listen_host: str = "127.0.0.1"
    advertised_host: str = ""
    #: gRPC port that others connect to, when NAT or a proxy maps it; 0: the port it listens on
    advertised_port: int = 0
    grpc_port: int = 0
    #: /livez, /readyz and /metrics
    health_port: int = 0
    #: host:port[,host:port…][/path]
    zookeeper_hosts: str = "127.0.0.1:2181"
    #: path of a file with user:password for ZooKeeper, which protects the cluster's nodes there; empty: unprotected
    zookeeper_auth_file: str = ""
    #: whether ZooKeeper is connected with TLS
    zookeeper_tls: bool = False
    #: PEM of the CA that signed ZooKeeper's certificates, and the name that they must contain; empty: the CAs of the
    #: system, and the name of each host
    zookeeper_tls_ca_file: str = ""
    zookeeper_tls_server_name: str = ""
    #: PEM files that are presented to ZooKeeper servers that request a certificate; both or none
    zookeeper_tls_certificate_file: str = ""
    zookeeper_tls_key_file: str = ""
    #: ZooKeeper session timeout: after this long without a heartbeat other processes take over
    session_timeout_ms: int = 6_000
    drain_timeout_ms: int = 20_000
    #: how long a start waits for ZooKeeper and the cluster's record
    start_timeout_ms: int = 300_000
    frame_bytes_max: int = 16 * 1024 * 1024
    #: connections at the gRPC port; at most half of the process's limit of open files
    connections_max: int = 10_000
    log_level: str = "info"
    #: paths of PEM files, all three or none: with them all ports but the health port use TLS
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_ca_file: str = ""
    #: path of the secret or public key (PEM, DER, data:;base64,…) that verifies tokens; with it every call needs a
    #: token
    auth_key_file: str = ""
    #: path of the token that this process sends to other services
    auth_token_file: str = ""
    #: roles that may do everything, separated by commas
    auth_superusers: str = ""
    #: host names by which HTTP requests may come while authentication is off, besides IP addresses, localhost and the
    #: advertised host; separated by commas; .example: every name below it; *: all
    http_hosts: str = ""

    def __post_init__(self) -> None:
        if self.log_level.lower() not in LEVELS:
            raise InvalidArgument(f"{variable('log_level')} must be one of {', '.join(LEVELS)}", field="log_level")
        check_host("advertised_host", self.advertised_host)
        HttpHosts.of(self.http_hosts)
        _check_servers("zookeeper_hosts", self.zookeeper_hosts)
        self._check_zookeeper_tls()
        given = {name: bool(getattr(self, name)) for name in _TLS_FILES}
        if any(given.values()) and not all(given.values()):
            missing = [name for name, there in given.items() if not there]
            names = " and ".join(map(variable, missing))
            verb = "is" if len(missing) == 1 else "are"
            raise InvalidArgument(f"{names} {verb} missing: TLS needs all three files or none", field=missing[0])

    def _check_zookeeper_tls(self) -> None:
        names = ("ca_file", "server_name", "certificate_file", "key_file")
        given = [f"zookeeper_tls_{name}" for name in names if getattr(self, f"zookeeper_tls_{name}")]
        if given and not self.zookeeper_tls:
            message = f"{variable(given[0])} needs {variable('zookeeper_tls')}=true"
            raise InvalidArgument(message, field=given[0])
        if bool(self.zookeeper_tls_certificate_file) != bool(self.zookeeper_tls_key_file):
            both = f"{variable('zookeeper_tls_certificate_file')} and {variable('zookeeper_tls_key_file')}"
            raise InvalidArgument(f"{both}: set both or none", field="zookeeper_tls_key_file")

    def address(self, port: int) -> str:
        """host:port by which others reach `port` of this process."""
        return join_address(self.advertised_host or self.listen_host, port)

    def grpc_address(self, port: int) -> str:
        """host:port by which others reach gRPC of this process, which listens on `port`."""
        return self.address(self.advertised_port or port)


@dataclass(frozen=True, slots=True)
class TopicOwnerSettings(ProcessSettings):
    """A topic owner. A ledger is closed at the first of its three limits."""

    #: host by which other services reach this owner, at the port it listens on; empty: the advertised address. When
    #: set, the advertised host and port are only for clients, and may lead through NAT or a proxy.
    internal_host: str = ""
    #: host:port for clients of each replica, separated by commas: the number at the end of pod_name selects one
    advertised_addresses: str = ""
    pod_name: str = ""
    write_quorum: int = 3
    ack_quorum: int = 2
    ledger_bytes_max: int = 1 << 30
    ledger_entries_max: int = 50_000
    ledger_age_max_ms: int = 600_000
    add_timeout_ms: int = 5_000
    snapshot_entries_max: int = 1_000
    snapshot_interval_ms: int = 120_000
    message_bytes_max: int = 5 * 1024 * 1024
    #: memory for entries at the end of the logs, for readers; of all topics
    entry_cache_bytes_max: int = 64 * 1024 * 1024
    #: memory for what waits until consumers and readers read it, of all streams; a larger entry goes alone
    stream_bytes_max: int = 128 * 1024 * 1024
    #: streams of consumers and readers of one role, or without authentication of one host
    caller_streams_max: int = 1_000
    #: whether readers of many older messages are sent to storage nodes, with tickets
    storage_reads: bool = False
    #: memory for the recent batches of all producers of one topic, which answer resends exactly
    dedup_batches_bytes_max: int = 64 * 1024 * 1024
    #: producer ids claimed at once; a crash wastes the unused ones
    producer_id_block: int = 100
    #: path of a file with host:health_port of each storage node, one in each line: these are asked, too, whether
    #: ZooKeeper is older than the data; empty: only those that ZooKeeper names
    new_cluster_nodes_file: str = ""
    #: how long a drain keeps its topics while a storage node or ZooKeeper server is absent, before drain_timeout_ms
    stability_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        # super() without arguments does not find the class that slots=True makes.
        ProcessSettings.__post_init__(self)
        check_host("internal_host", self.internal_host)
        if self.advertised_addresses:
            self._own_address()
        if not 1 <= self.ack_quorum <= self.write_quorum:
            raise InvalidArgument(
                f"{variable('ack_quorum')} must be 1 to {variable('write_quorum')}", field="ack_quorum"
            )
        if self.message_bytes_max > self.frame_bytes_max:
            message = f"{variable('message_bytes_max')} must be at most {variable('frame_bytes_max')}"
            raise InvalidArgument(message, field="message_bytes_max", limit=self.frame_bytes_max)

    def grpc_address(self, port: int) -> str:
        """host:port by which clients reach gRPC of this owner, which listens on `port`."""
        return self._own_address() if self.advertised_addresses else ProcessSettings.grpc_address(self, port)

    def _own_address(self) -> str:
        """This replica's address among the advertised ones. Raises InvalidArgument."""
        name, addresses = variable("advertised_addresses"), self.advertised_addresses.split(",")
        for address in addresses:
            host, _, port = address.rpartition(":")
            if host_fault(host) is not None or not port.isdecimal() or not 0 < int(port) < 65_536:
                raise InvalidArgument(f"{name}: {address[:100]!r} is not host:port", field="advertised_addresses")
        number = re.search(r"[0-9]+$", self.pod_name)
        if number is None or int(number[0]) >= len(addresses):
            raise InvalidArgument(
                f"{name} has {len(addresses)} addresses, and {variable('pod_name')} is {self.pod_name[:100]!r}: the "
                f"number at its end must select one, 0 to {len(addresses) - 1}",
                field="pod_name",
            )
        return addresses[int(number[0])]

    def internal_address(self, port: int) -> str:
        """host:port by which other services reach gRPC of this owner, which listens on `port`."""
        return join_address(self.internal_host, port) if self.internal_host else self.grpc_address(port)


@dataclass(frozen=True, slots=True)
class LogStorageSettings(ProcessSettings):
    """A storage node."""

    data_directory: Path = Path("data/log_storage")
    segment_bytes: int = 256 * 1024 * 1024
    #: below this, new entries are refused; entries of a recovery are still accepted
    free_bytes_min: int = 1 << 30
    #: bytes received and not yet synced
    queue_bytes_max: int = 64 * 1024 * 1024
    #: interval of the reviews: which copies are not needed any more, and which have become complete
    collect_interval_ms: int = 60_000
    #: time for one reading of all stored entries, which finds damage before a reader does
    scrub_interval_ms: int = 7 * 24 * 3600 * 1000
    #: whether an empty directory on the machine's disk is refused where the node had a volume before
    mount_check: bool = True
    #: how long the node that had the address must be unregistered before an empty directory replaces it; 0: no wait
    replace_delay_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class MetadataSettings(ProcessSettings):
    """A metadata service; the default ports are those that clients and browsers try first."""

    grpc_port: int = 6650
    rest_port: int = 8080
    #: whether topics move to owners with fewer topics, and how often the elected replica checks
    balance: bool = True
    balance_interval_ms: int = 5_000
    #: repair of ledgers, by the elected replica: bytes per second that are copied in all, and read back on each node
    repair_bytes_per_s: int = 50 * 1024 * 1024
    #: how long a storage node may be absent before its copies are replaced; those of a retired node are at once
    repair_absent_delay_ms: int = 600_000
    #: how often the elected replica looks for ledgers to repair
    repair_interval_ms: int = 2_000
    #: how often the elected replica compares the notes of all storage nodes with ZooKeeper
    notes_interval_ms: int = 60_000
    #: path of a file with host:health_port of each storage node, one in each line: if ZooKeeper has no cluster, a
    #: metadata service creates it once all of them have answered that their directories are empty; empty: never
    new_cluster_nodes_file: str = ""
    #: whether no other program uses the ZooKeeper ensemble: then the nodes above the cluster's are protected, too
    zookeeper_exclusive: bool = False
    #: connections at the REST port, in all and of one address; a new one replaces the oldest idle one
    rest_connections_max: int = 1_000
    rest_connections_per_peer_max: int = 500
    #: gateway for clients that cannot reach topic owners: streams at once, and bytes of messages being forwarded
    gateway_streams_max: int = 1_000
    gateway_bytes_max: int = 128 * 1024 * 1024
    #: bytes of all request bodies at once
    rest_bodies_bytes_max: int = 64 * 1024 * 1024
    #: HTTP publish: limits of a request body, of a value, and of the messages in a request
    publish_body_bytes_max: int = 8 * 1024 * 1024
    publish_message_bytes_max: int = 5 * 1024 * 1024
    publish_messages_max: int = 1_000
    #: a request that takes longer is answered with an unknown outcome
    publish_timeout_ms: int = 30_000
    #: producers kept open, and topics with idempotency keys at once
    publish_producers_max: int = 1_000
    #: HTTP consume: sessions kept open, and bytes of the messages that wait for all of them
    consume_sessions_max: int = 200
    consume_bytes_max: int = 128 * 1024 * 1024
    #: whether the console is served at /console/; whether it shows values of messages; its live pages at once
    console: bool = False
    console_payloads: bool = True
    console_streams_max: int = 100
    #: copies of ZooKeeper's records: how often the elected replica makes one; a file of keys that encrypt them, the
    #: newest first; a directory that gets each copy, besides the storage nodes; both empty: none
    backup_interval_ms: int = 3_600_000
    backup_key_file: str = ""
    backup_target: str = ""
    #: roles that may make and download these copies, and do nothing else; separated by commas
    backup_roles: str = ""
    #: path of a file for the lines of the audit log, besides the log of the process; empty: none
    audit_file: str = ""
    #: redis://[:password@]host:port/number; empty: no HTTP publish with idempotency keys
    redis_url: str = ""
    #: paths of files with the URL (instead of redis_url) and the password; read again at each connection
    redis_url_file: str = ""
    redis_password_file: str = ""
    #: PEM of the CA that signed the certificate of a rediss:// server, and the name that it must contain; empty: the
    #: CAs of the system, and the name of the host
    redis_tls_ca_file: str = ""
    redis_tls_server_name: str = ""
    #: False: do not check Redis's settings, for a managed Redis that forbids CONFIG; they must be right
    redis_config_check: bool = True
    #: how long an idempotency key is kept, and how long keys are refused after Redis has lost some
    idempotency_window_s: int = 86_400

    def __post_init__(self) -> None:
        ProcessSettings.__post_init__(self)
        if self.publish_messages_max > PUBLISH_MESSAGES_MAX:
            # A request is one batch, so that it is stored whole or not at all.
            message = f"{variable('publish_messages_max')} must be at most {PUBLISH_MESSAGES_MAX}"
            raise InvalidArgument(message, field="publish_messages_max", limit=PUBLISH_MESSAGES_MAX)
        if self.publish_body_bytes_max > self.rest_bodies_bytes_max:
            message = f"{variable('publish_body_bytes_max')} must be at most {variable('rest_bodies_bytes_max')}"
            raise InvalidArgument(message, field="publish_body_bytes_max", limit=self.rest_bodies_bytes_max)
        if self.console and self.console_streams_max > self.rest_connections_max // 2:
            # A live page keeps its connection, so requests would find none.
            message = f"{variable('console_streams_max')} must be at most half of {variable('rest_connections_max')}"
            raise InvalidArgument(message, field="console_streams_max", limit=self.rest_connections_max // 2)
        if self.gateway_bytes_max < self.frame_bytes_max:
            message = f"{variable('gateway_bytes_max')} must be at least {variable('frame_bytes_max')}"
            raise InvalidArgument(message, field="gateway_bytes_max", limit=self.frame_bytes_max)
        if self.redis_url and self.redis_url_file:
            message = f"{variable('redis_url')} and {variable('redis_url_file')} are both set: set only one"
            raise InvalidArgument(message, field="redis_url_file")


@dataclass(frozen=True, slots=True)
class DoorSettings(ProcessSettings):
    """A door (`oncelog_doors`): a gateway for clients of other systems. To the cluster it is a client, so it needs no
    ZooKeeper."""

    #: the metadata services, oncelog[+proxy][+tls]://host:port[,host:port…]
    url: str = "oncelog://127.0.0.1:6650"
    #: host:port for clients of Pulsar, without TLS and with it; port 0: a free one; empty: none
    pulsar_address: str = ""
    pulsar_tls_address: str = ""
    #: the same for `pulsar-admin` and look-ups over HTTP
    pulsar_rest_address: str = ""
    pulsar_rest_tls_address: str = ""
    #: the same for clients of Kafka
    kafka_address: str = ""
    kafka_tls_address: str = ""
    #: host:port that clients of Kafka are told to connect to; empty: the address of this machine that they have used
    kafka_advertised_address: str = ""
    #: of topics that clients of Kafka name without one
    kafka_namespace_name: str = "public/default"
    #: partitions, 1 to 1,000, of topics that clients of Kafka create by their first use, or without a number
    kafka_partitions: int = 1
    #: of one request of a client of Kafka
    kafka_request_bytes_max: int = 16 * 1024 * 1024
    #: a group without members and commits for so long is deleted; 0: never
    kafka_offsets_retention_ms: int = 604_800_000
    #: the topic owners' limit of a message, which clients get when they connect
    message_bytes_max: int = 5 * 1024 * 1024
    #: connections of clients, never more than half of the process's limit of open files; half of them for one role or
    #: address
    door_connections_max: int = 5_000
    #: bytes that clients have sent, and about which the log has not decided yet
    door_bytes_max: int = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        ProcessSettings.__post_init__(self)
        plain, with_tls = (
            ("pulsar_address", "pulsar_rest_address", "kafka_address", "kafka_advertised_address"),
            ("pulsar_tls_address", "pulsar_rest_tls_address", "kafka_tls_address"),
        )
        for field in (*plain, *with_tls):
            check_listening(field, getattr(self, field))
        try:
            parse_namespace(self.kafka_namespace_name)
        except InvalidName as error:
            message = f"{variable('kafka_namespace_name')}: {error}"
            raise InvalidArgument(message, field="kafka_namespace_name") from error
        if self.kafka_partitions > PARTITIONS_MAX:
            message = f"{variable('kafka_partitions')} must be at most {PARTITIONS_MAX}, not {self.kafka_partitions}"
            raise InvalidArgument(message, field="kafka_partitions", limit=PARTITIONS_MAX)
        for field in with_tls:
            if getattr(self, field) and not self.tls_certificate_file:
                message = f"{variable(field)} needs {variable('tls_certificate_file')}"
                raise InvalidArgument(message, field="tls_certificate_file")


SettingsT = TypeVar("SettingsT", bound=ProcessSettings)
#: The settings of all services. Variables of another service are ignored, so one environment can serve all.
ALL: tuple[type[ProcessSettings], ...] = (TopicOwnerSettings, LogStorageSettings, MetadataSettings, DoorSettings)
#: Variables of the command line, of jobs and of programs with effects; services ignore them.
CLIENT_VARIABLES = frozenset(
    {
        "ONCELOG_URL", "ONCELOG_ADMIN_URL", "ONCELOG_TOKEN_FILE", "ONCELOG_DATABASE", "ONCELOG_RELAY_DATABASE",
        "ONCELOG_EFFECTS_REDIS", "ONCELOG_CLOSED_LEDGERS",
    }
)  # fmt: skip


def check_host(field: str, host: str) -> None:
    """Raises InvalidArgument when `host` is set and others could not connect to it."""
    if host and (fault := host_fault(host)) is not None:
        raise InvalidArgument(f"{variable(field)}: {fault}", field=field)


def check_listening(field: str, address: str) -> None:
    """Raises InvalidArgument when `address` is set and is no host:port."""
    host, _, port = address.rpartition(":")
    if address and not (host and port.isdecimal() and int(port) < 65_536):
        raise InvalidArgument(f"{variable(field)}: {address[:100]!r} is not host:port", field=field)


def _check_servers(field: str, servers: str) -> None:
    """Raises InvalidArgument where kazoo, which parses alike, would raise ValueError or take port 0 for 2181."""
    for server in servers.partition("/")[0].split(","):
        try:
            address = urlsplit(f"//{server}")
            valid = bool((address.hostname or "").strip()) and address.port != 0
        except ValueError:  # the port is not a number below 65536, or a bracket is missing
            valid = False
        if not valid:
            raise InvalidArgument(f"{variable(field)}: {server[:100]!r} is not host:port", field=field)


def variable(field_name: str) -> str:
    """Name of the environment variable of a field."""
    return PREFIX + field_name.upper()


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """{name: the nearest known one} of the variables that no program of the project reads."""
    known = sorted({variable(field.name) for settings in ALL for field in fields(settings)} | CLIENT_VARIABLES)
    wrong = [name for name in environment if name.startswith(PREFIX) and name not in known]
    return {name: difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0] for name in wrong}


def load(cls: type[SettingsT], environment: Mapping[str, str], **arguments: object) -> SettingsT:
    """Read the settings of one process. arguments: by field name; they override the environment. None: not given.

    Raises InvalidArgument for an unknown variable or argument, or a value of the wrong type or range.
    """
    for name, near in unknown_variables(environment).items():
        raise InvalidArgument(f"unknown setting {name}; the nearest known one is {near}", field=name)
    hints = get_type_hints(cls)
    own = {field.name for field in fields(cls)}
    if unknown := sorted(set(arguments) - own):
        raise InvalidArgument(f"{cls.__name__} has no setting {unknown[0]}", field=unknown[0])
    given: dict[str, Any] = {
        name: _parsed(name, environment[variable(name)], hints[name])
        for name in sorted(own)
        if variable(name) in environment
    }
    given |= {name: value for name, value in arguments.items() if value is not None}
    for name, value in given.items():
        _check(name, value, hints[name])
    return cls(**given)


def to_environment(settings: ProcessSettings) -> dict[str, str]:
    """The variables that make another process read these settings."""
    return {variable(field.name): shown(getattr(settings, field.name)) for field in dataclasses.fields(settings)}


def shown(value: object) -> str:
    """A value as the text of its variable."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(name: str, text: str, kind: type) -> object:
    if kind is bool:
        if text.lower() not in {"true", "false"}:
            raise InvalidArgument(f"{variable(name)} must be true or false, not {text!r}", field=name)
        return text.lower() == "true"
    if kind is int:
        try:
            return int(text)
        except ValueError as error:
            raise InvalidArgument(f"{variable(name)} must be a whole number, not {text!r}", field=name) from error
    return kind(text)


def _check(name: str, value: object, kind: type) -> None:
    if type(value) is not kind and not (kind is Path and isinstance(value, Path)):
        raise InvalidArgument(f"{variable(name)} must be of type {kind.__name__}", field=name)
    if isinstance(value, int) and not isinstance(value, bool):
        lowest = 0 if name.endswith(("_port", "_delay_ms", "_retention_ms")) else 1
        if value < lowest:
            raise InvalidArgument(f"{variable(name)} must be at least {lowest}, not {value}", field=name, limit=lowest)
        if name.endswith("_port") and value > 65_535:
            raise InvalidArgument(f"{variable(name)} must be at most 65535, not {value}", field=name, limit=65_535)

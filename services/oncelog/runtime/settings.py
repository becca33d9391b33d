"""Settings: one frozen dataclass a process, read once, from arguments and then from the environment.

The variable of the field `ledger_bytes_max` is ONCELOG_LEDGER_BYTES_MAX. Units are the last word of a name. A variable
that begins with ONCELOG_ and belongs to no process fails the start, with the nearest known name: a setting that is
misspelt must not look as if it were in force.
"""

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from oncelog.core.address import host_fault, join_address
from oncelog.core.errors import InvalidArgument
from oncelog.runtime.logs import LEVELS

PREFIX = "ONCELOG_"
#: What the SDK packs into one batch in any case.
PUBLISH_MESSAGES_MAX = 4_096
_TLS_FILES = ("tls_certificate_file", "tls_key_file", "tls_ca_file")


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """What every service has. Ports: 0 takes a free one."""

    #: where to listen, and under which name others reach this process; empty: the host it listens on
    listen_host: str = "127.0.0.1"
    advertised_host: str = ""
    #: the port of gRPC that others connect to, where NAT or a proxy gives it another one; 0: the one it listens on
    advertised_port: int = 0
    grpc_port: int = 0
    #: /livez, /readyz and /metrics
    health_port: int = 0
    #: host:port[,host:port…][/path]
    zookeeper_hosts: str = "127.0.0.1:2181"
    #: path of the user:password with which the cluster's nodes in ZooKeeper are closed to everybody else; empty: open
    zookeeper_auth_file: str = ""
    #: after so long without a word from a process the others take its place
    session_timeout_ms: int = 6_000
    drain_timeout_ms: int = 20_000
    #: how long a start waits for ZooKeeper and for the cluster's record
    start_timeout_ms: int = 300_000
    frame_bytes_max: int = 16 * 1024 * 1024
    #: connections at the gRPC port; never more than half of the open files that the system allows
    connections_max: int = 10_000
    log_level: str = "info"
    #: paths of PEM files, all three or none: with them everything but health speaks TLS
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_ca_file: str = ""
    #: path of the secret or public key (PEM, DER, data:;base64,…) that verifies tokens; with it every call needs one
    auth_key_file: str = ""
    #: path of the token that this process shows to the others
    auth_token_file: str = ""
    #: roles that may do everything, with commas
    auth_superusers: str = ""

    def __post_init__(self) -> None:
        if self.log_level.lower() not in LEVELS:
            raise InvalidArgument(f"{variable('log_level')} is none of {', '.join(LEVELS)}", field="log_level")
        check_host("advertised_host", self.advertised_host)
        given = {name: bool(getattr(self, name)) for name in _TLS_FILES}
        if any(given.values()) and not all(given.values()):
            missing = [name for name, there in given.items() if not there]
            names = " and ".join(map(variable, missing))
            raise InvalidArgument(f"{names} is missing: TLS needs all three files, or none", field=missing[0])

    def address(self, port: int) -> str:
        """host:port under which others reach `port` of this process."""
        return join_address(self.advertised_host or self.listen_host, port)

    def grpc_address(self, port: int) -> str:
        """host:port under which others reach gRPC of this process, which listens on `port`."""
        return self.address(self.advertised_port or port)


@dataclass(frozen=True, slots=True)
class TopicOwnerSettings(ProcessSettings):
    """A topic owner. A ledger rolls at the first of its three limits."""

    #: under which name the other services reach this owner, at the port it listens on; empty: as clients do, by what
    #: is advertised. With it the advertised host and port are for clients alone, and may lead through NAT or a proxy.
    internal_host: str = ""
    #: host:port that clients connect to, of each replica, with commas: the number at the end of pod_name chooses one
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
    #: entries kept in memory for readers at the end of the log, of all topics
    entry_cache_bytes_max: int = 64 * 1024 * 1024
    #: memory for the recent batches of all producers of one topic, by which resends are answered exactly
    dedup_batches_bytes_max: int = 64 * 1024 * 1024
    #: producer ids claimed at once; a crash wastes the rest of them
    producer_id_block: int = 100
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
        """host:port under which clients reach gRPC of this owner, which listens on `port`."""
        return self._own_address() if self.advertised_addresses else ProcessSettings.grpc_address(self, port)

    def _own_address(self) -> str:
        """That of this replica among the advertised ones. Raises InvalidArgument."""
        name, addresses = variable("advertised_addresses"), self.advertised_addresses.split(",")
        for address in addresses:
            host, _, port = address.rpartition(":")
            if host_fault(host) is not None or not port.isdecimal() or not 0 < int(port) < 65_536:
                raise InvalidArgument(f"{name}: {address[:100]!r} is not host:port", field="advertised_addresses")
        number = re.search(r"[0-9]+$", self.pod_name)
        if number is None or int(number[0]) >= len(addresses):
            raise InvalidArgument(
                f"{name} has {len(addresses)} addresses, and {variable('pod_name')} is {self.pod_name[:100]!r}: the "
                f"number at its end chooses one, from 0 to {len(addresses) - 1}",
                field="pod_name",
            )
        return addresses[int(number[0])]

    def internal_address(self, port: int) -> str:
        """host:port under which the other services reach gRPC of this owner, which listens on `port`."""
        return join_address(self.internal_host, port) if self.internal_host else self.grpc_address(port)


@dataclass(frozen=True, slots=True)
class LogStorageSettings(ProcessSettings):
    """A storage node."""

    data_directory: Path = Path("data/log_storage")
    segment_bytes: int = 256 * 1024 * 1024
    #: ordinary adds are refused below this; recovery adds still pass
    free_bytes_min: int = 1 << 30
    #: bytes received and not yet synced
    queue_bytes_max: int = 64 * 1024 * 1024
    #: how often ledgers without a record are looked for; they go at the second look
    collect_interval_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class MetadataSettings(ProcessSettings):
    """A metadata service; the ports are those that clients and browsers try first."""

    grpc_port: int = 6650
    rest_port: int = 8080
    #: whether topics move to owners that have fewer, and how often the elected replica looks
    balance: bool = True
    balance_interval_ms: int = 5_000
    #: whether no other program uses the ensemble: then the nodes above the cluster's are closed as well
    zookeeper_exclusive: bool = False
    #: connections at the REST port, and those of one address among them; the oldest idle one makes room for another
    rest_connections_max: int = 1_000
    rest_connections_per_peer_max: int = 500
    #: for clients that reach topic owners through this service: streams at once, and bytes of messages on their way
    gateway_streams_max: int = 1_000
    gateway_bytes_max: int = 128 * 1024 * 1024
    #: bodies of all requests under way
    rest_bodies_bytes_max: int = 64 * 1024 * 1024
    #: publishing over HTTP: bounds of a request, of a value, of the messages in one request
    publish_body_bytes_max: int = 8 * 1024 * 1024
    publish_message_bytes_max: int = 5 * 1024 * 1024
    publish_messages_max: int = 1_000
    #: a request that takes longer is answered without its outcome
    publish_timeout_ms: int = 30_000
    #: producers kept open, and topics with keys at once
    publish_producers_max: int = 1_000
    #: redis://[:password@]host:port/number; empty: no publishing with idempotency keys
    redis_url: str = ""
    #: paths: of the address in its place, of the password; both are read again at each connection
    redis_url_file: str = ""
    redis_password_file: str = ""
    #: False: Redis is managed and forbids CONFIG; whoever says so answers for its settings
    redis_config_check: bool = True
    #: how long an idempotency key is remembered, and how long keys are refused after Redis has lost some
    idempotency_window_s: int = 86_400

    def __post_init__(self) -> None:
        ProcessSettings.__post_init__(self)
        if self.publish_messages_max > PUBLISH_MESSAGES_MAX:
            # One request is one batch, which is what makes it stored whole or not at all.
            message = f"{variable('publish_messages_max')} must be at most {PUBLISH_MESSAGES_MAX}"
            raise InvalidArgument(message, field="publish_messages_max", limit=PUBLISH_MESSAGES_MAX)
        if self.publish_body_bytes_max > self.rest_bodies_bytes_max:
            message = f"{variable('publish_body_bytes_max')} must be at most {variable('rest_bodies_bytes_max')}"
            raise InvalidArgument(message, field="publish_body_bytes_max", limit=self.rest_bodies_bytes_max)
        if self.gateway_bytes_max < self.frame_bytes_max:
            message = f"{variable('gateway_bytes_max')} must be at least {variable('frame_bytes_max')}"
            raise InvalidArgument(message, field="gateway_bytes_max", limit=self.frame_bytes_max)
        if self.redis_url and self.redis_url_file:
            message = f"{variable('redis_url')} and {variable('redis_url_file')} are both given: choose one"
            raise InvalidArgument(message, field="redis_url_file")


SettingsT = TypeVar("SettingsT", bound=ProcessSettings)
#: Every process's; a variable of another one is known and ignored, so that one environment can serve all.
ALL: tuple[type[ProcessSettings], ...] = (TopicOwnerSettings, LogStorageSettings, MetadataSettings)
#: What the command line reads; a service started from the same environment has no use for them.
CLIENT_VARIABLES = frozenset({"ONCELOG_URL", "ONCELOG_ADMIN_URL", "ONCELOG_TOKEN_FILE"})


def check_host(field: str, host: str) -> None:
    """Raises InvalidArgument where `host` is given and others could not connect to it."""
    if host and (fault := host_fault(host)) is not None:
        raise InvalidArgument(f"{variable(field)}: {fault}", field=field)


def variable(field_name: str) -> str:
    """Name of the environment variable of a field."""
    return PREFIX + field_name.upper()


def load(cls: type[SettingsT], environment: Mapping[str, str], **arguments: object) -> SettingsT:
    """Read the settings of one process. arguments: by field name, above the environment; None: not given.

    Raises InvalidArgument: an unknown variable or argument, or a value that is not of its field's type or range.
    """
    known = {variable(field.name) for settings in ALL for field in fields(settings)} | CLIENT_VARIABLES
    for name in environment:
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)
            raise InvalidArgument(f"unknown setting {name}; the nearest known one is {near[0]}", field=name)
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
    """A value as its variable spells it."""
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
        lowest = 0 if name.endswith("_port") else 1
        if value < lowest:
            raise InvalidArgument(f"{variable(name)} must be at least {lowest}, not {value}", field=name, limit=lowest)
        if name.endswith("_port") and value > 65_535:
            raise InvalidArgument(f"{variable(name)} must be at most 65535, not {value}", field=name, limit=65_535)

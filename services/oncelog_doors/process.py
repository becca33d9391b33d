"""One door process: its parts, started in order and stopped in the reverse."""

import logging
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

from oncelog.client.client import AsyncClient
from oncelog.client.network.addresses import speaks_tls
from oncelog.client.rest_calls import cluster_id_of
from oncelog.core.address import join_address
from oncelog.core.errors import InvalidArgument
from oncelog.core.names import parse_namespace
from oncelog.runtime.descriptors import connections_within
from oncelog.runtime.health import Health
from oncelog.runtime.logs import announce_serving
from oncelog.runtime.process import Shutdown
from oncelog.runtime.security import Security
from oncelog.runtime.settings import DoorSettings, variable
from oncelog.runtime.telemetry import Telemetry
from oncelog_doors.connections.listener import Listener
from oncelog_doors.connections.ports import LoopTimers
from oncelog_doors.core.pulsar.send_budget import SendBudget, SendLimits
from oncelog_doors.core.pulsar.sends import Sends
from oncelog_doors.core.shared.admissions import AdmissionLimits, Admissions
from oncelog_doors.kafka.asking import Address
from oncelog_doors.kafka.connection import Connection as KafkaConnection
from oncelog_doors.kafka.home import KafkaHome
from oncelog_doors.log_client.forwarded_rest import ForwardedRest
from oncelog_doors.log_client.kafka_cluster import KafkaCluster
from oncelog_doors.log_client.sdk_cluster import SdkCluster
from oncelog_doors.metrics import observe, observe_kafka
from oncelog_doors.pulsar.connection import Connection as PulsarConnection
from oncelog_doors.pulsar.home import Home as PulsarHome

logger = logging.getLogger(__name__)

#: Of all bytes that a door keeps, the part of one connection.
_CONNECTION_PART = 4


class DoorProcess:
    """`run` runs until the process ends. cluster, sends: what decides about batches of Pulsar's clients and their
    answers; kafka: about those of Kafka's."""

    def __init__(
        self,
        settings: DoorSettings,
        *,
        cluster: type[SdkCluster] = SdkCluster,
        sends: type[Sends] = Sends,
        kafka: type[KafkaCluster] = KafkaCluster,
    ) -> None:
        self.settings = settings
        self._cluster, self._sends, self._kafka = cluster, sends, kafka
        #: why the door gets no new clients; None once it serves
        self._unready: str | None = "starting"

    async def run(self, shutdown: Shutdown) -> None:
        """Wait for the cluster, listen, report that on standard output, and serve until `shutdown`.

        Raises InvalidArgument for a setting or an address that cannot be used, DeadlineExceeded without a cluster.
        """
        settings = self.settings
        _check_listeners(settings)
        security = Security.of(settings)
        _warn_of_plain_tokens(settings, security)
        telemetry = Telemetry.from_environment("door", uuid4().hex)
        security.observe(telemetry)
        async with AsyncExitStack() as stack:
            stack.callback(telemetry.shut_down)
            health = Health(telemetry.metrics_text, security.open_to)
            health.ready_when("state", lambda: self._unready)
            stack.push_async_callback(health.stop)
            health_port = await health.start(host=settings.listen_host, port=settings.health_port)
            client = await stack.enter_async_context(_client(settings))
            self._unready = f"waiting for the cluster at {settings.url}"
            asked = cluster_id_of(client, settings.start_timeout_ms, where=settings.url)
            cluster_id = await shutdown.or_result(asked)
            if cluster_id is None:
                return
            bytes_max = settings.door_bytes_max
            cluster = self._cluster(
                client, security, batch_bytes_max=settings.message_bytes_max, readers_bytes=bytes_max
            )
            rest = ForwardedRest(await stack.enter_async_context(_client(settings, own_token=False)))
            admissions = Admissions(AdmissionLimits(connections_within(settings.door_connections_max)))
            doors: list[Listener] = []
            serving: dict[str, str] = {}
            if settings.pulsar_address or settings.pulsar_tls_address:
                home = _pulsar_home(settings, cluster, self._sends, admissions)
                observe(telemetry, home)
                doors.append(Listener(home, partial(PulsarConnection, home)))
                stack.push_async_callback(doors[-1].close)
                serving |= await _listen(doors[-1], "pulsar", settings, security)
                serving |= await _serve_rest(stack, settings, security, rest, cluster, serving)
            if settings.kafka_address or settings.kafka_tls_address:
                namespace = parse_namespace(settings.kafka_namespace_name)
                topics = self._kafka(cluster, rest, cluster_id, namespace, partitions_default=settings.kafka_partitions)
                kafka = _kafka_home(settings, topics, admissions)
                observe_kafka(telemetry, kafka)
                doors.append(Listener(kafka, partial(KafkaConnection, kafka)))
                stack.push_async_callback(doors[-1].close)
                serving |= await _listen(doors[-1], "kafka", settings, security)
            self._unready = None
            announce_serving(logger, serving | {"health": settings.address(health_port)})
            await shutdown.wait()
            self._unready = "draining"
            logger.info("draining", extra={"fields": {"connections": sum(map(len, doors))}})


def _check_listeners(settings: DoorSettings) -> None:
    fields = {
        "pulsar_address": "--pulsar",
        "pulsar_tls_address": "--pulsar-tls",
        "kafka_address": "--kafka",
        "kafka_tls_address": "--kafka-tls",
    }
    if not any(getattr(settings, field) for field in fields):
        names = " or ".join(f"{variable(field)} ({option})" for field, option in fields.items())
        raise InvalidArgument(f"the door has no address to listen on: set {names}", field="pulsar_address")
    if settings.kafka_advertised_address and settings.kafka_address and settings.kafka_tls_address:
        message = (
            f"{variable('kafka_advertised_address')} is one address, and clients of both listeners would be told it: "
            f"set only one of {variable('kafka_address')} and {variable('kafka_tls_address')}"
        )
        raise InvalidArgument(message, field="kafka_advertised_address")


def _warn_of_plain_tokens(settings: DoorSettings, security: Security) -> None:
    for field in ("pulsar_address", "pulsar_rest_address", "kafka_address"):
        if getattr(settings, field) and security.authenticator is not None and security.certificate is not None:
            # Without a certificate, Security has warned.
            logger.warning("tokens of clients without TLS are sent in plain text: unset %s", variable(field))


def _client(settings: DoorSettings, *, own_token: bool = True) -> AsyncClient:
    """own_token False: the client has no rights but those of the tokens that it forwards."""
    return AsyncClient(
        settings.url,
        token=Path(settings.auth_token_file) if own_token and settings.auth_token_file else None,
        tls_ca_file=settings.tls_ca_file if settings.tls_ca_file and speaks_tls(settings.url) else None,
        # As for the services: without TLS they run on a trusted network.
        allow_plaintext_token=True,
        # A client of the door withdraws its request, or ends.
        operation_timeout=None,
        # Of messages in chunks: larger ones cannot be delivered.
        max_message_bytes=settings.message_bytes_max,
    )


def _pulsar_home(settings: DoorSettings, cluster: SdkCluster, sends: type[Sends], admissions: Admissions) -> PulsarHome:
    whole = settings.door_bytes_max
    limits = SendLimits(
        connection_bytes=min(SendLimits().connection_bytes, whole // _CONNECTION_PART), process_bytes=whole
    )
    return PulsarHome(
        cluster,
        LoopTimers(),
        server_version=f"Oncelog {version('oncelog')}",
        sends=sends,
        budget=SendBudget(limits),
        admissions=admissions,
    )


def _kafka_home(settings: DoorSettings, cluster: KafkaCluster, admissions: Admissions) -> KafkaHome:
    address = settings.kafka_advertised_address
    advertised = Address(*_host_and_port(address)) if address else None
    return KafkaHome(
        cluster,
        LoopTimers(),
        namespace=parse_namespace(settings.kafka_namespace_name),
        advertised=advertised,
        admissions=admissions,
        request_bytes_max=settings.kafka_request_bytes_max,
        offsets_retention_ms=settings.kafka_offsets_retention_ms,
        bytes_max=settings.door_bytes_max,
    )


async def _listen(door: Listener, protocol: str, settings: DoorSettings, security: Security) -> dict[str, str]:
    """{scheme: host:port}. protocol: the first word of its settings. Raises InvalidArgument."""
    plain, with_tls = f"{protocol}_address", f"{protocol}_tls_address"
    contexts: dict[str, tuple[str, ssl.SSLContext | None]] = {}
    if getattr(settings, plain):
        contexts[protocol] = plain, None
    if getattr(settings, with_tls):
        assert security.certificate is not None, "the settings have one"
        contexts[f"{protocol}+ssl"] = with_tls, security.certificate.ssl_context()
    serving = {}
    for scheme, (field, context) in contexts.items():
        address = getattr(settings, field)
        host, port = _host_and_port(address)
        try:
            found = await door.listen(host, port, context)
        except OSError as error:
            message = f"cannot listen on {address}: {error.strerror or error}; choose another address"
            raise InvalidArgument(message, field=field) from error
        serving[scheme] = join_address(settings.advertised_host or host, found)
    return serving


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def _serve_rest(
    stack: AsyncExitStack,
    settings: DoorSettings,
    security: Security,
    forwarded: ForwardedRest,
    cluster: SdkCluster,
    serving: Mapping[str, str],
) -> dict[str, str]:
    """{scheme: host:port}, if it is wanted. stack: ends it. cluster: the log. serving: what clients with Pulsar's
    protocol connect to. Raises InvalidArgument."""
    wanted = {
        "http": (settings.pulsar_rest_address, None),
        "https": (settings.pulsar_rest_tls_address, security.certificate),
    }
    if not any(address for address, _ in wanted.values()):
        return {}
    # Imported here, because it loads FastAPI, which slows every start.
    from oncelog_doors.rest.listener import RestListener, new_app

    app = new_app(
        forwarded,
        cluster,
        version=f"Oncelog-{version('oncelog')}",
        pulsar_ports={scheme: _host_and_port(address)[1] for scheme, address in serving.items()},
        security=security,
    )
    rest = RestListener(app, connections_max=connections_within(settings.door_connections_max))
    stack.push_async_callback(rest.close)
    found = {}
    for scheme, (address, certificate) in wanted.items():
        if address:
            host, port = _host_and_port(address)
            found[scheme] = join_address(settings.advertised_host or host, rest.listen(host, port, certificate))
    return found

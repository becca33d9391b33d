"""One door process: its parts, started in order and stopped in the reverse."""

import logging
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

from oncelog.client.client import AsyncClient
from oncelog.client.network.addresses import speaks_tls
from oncelog.client.rest_calls import cluster_id_of
from oncelog.core.address import join_address
from oncelog.core.errors import InvalidArgument
from oncelog.runtime.descriptors import connections_within
from oncelog.runtime.health import Health
from oncelog.runtime.logs import announce_serving
from oncelog.runtime.process import Shutdown
from oncelog.runtime.security import Security
from oncelog.runtime.settings import DoorSettings, variable
from oncelog.runtime.telemetry import Telemetry
from oncelog_doors.core.pulsar.send_budget import SendBudget, SendLimits
from oncelog_doors.core.pulsar.sends import Sends
from oncelog_doors.core.shared.admissions import AdmissionLimits, Admissions
from oncelog_doors.log_client.forwarded_rest import ForwardedRest
from oncelog_doors.log_client.sdk_cluster import SdkCluster
from oncelog_doors.metrics import observe
from oncelog_doors.pulsar.door import PulsarDoor
from oncelog_doors.pulsar.home import Home
from oncelog_doors.pulsar.ports import LoopTimers

logger = logging.getLogger(__name__)

#: Of all bytes that a door keeps, the part of one connection.
_CONNECTION_PART = 4


class DoorProcess:
    """`run` runs until the process ends. cluster, sends: what decides about batches and their answers."""

    def __init__(
        self, settings: DoorSettings, *, cluster: type[SdkCluster] = SdkCluster, sends: type[Sends] = Sends
    ) -> None:
        self.settings = settings
        self._cluster, self._sends = cluster, sends
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
            if await shutdown.or_result(asked) is None:
                return
            bytes_max = settings.door_bytes_max
            cluster = self._cluster(
                client, security, batch_bytes_max=settings.message_bytes_max, readers_bytes=bytes_max
            )
            home = _home(settings, cluster, self._sends)
            observe(telemetry, home)
            door = PulsarDoor(home)
            stack.push_async_callback(door.close)
            serving = await _listen(door, settings, security)
            serving |= await _serve_rest(stack, settings, security, cluster, serving)
            self._unready = None
            announce_serving(logger, serving | {"health": settings.address(health_port)})
            await shutdown.wait()
            self._unready = "draining"
            logger.info("draining", extra={"fields": {"connections": len(home.connections)}})


def _check_listeners(settings: DoorSettings) -> None:
    if not settings.pulsar_address and not settings.pulsar_tls_address:
        names = f"{variable('pulsar_address')} (--pulsar) or {variable('pulsar_tls_address')} (--pulsar-tls)"
        raise InvalidArgument(f"the door has no address to listen on: set {names}", field="pulsar_address")


def _warn_of_plain_tokens(settings: DoorSettings, security: Security) -> None:
    for field in ("pulsar_address", "pulsar_rest_address"):
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


def _home(settings: DoorSettings, cluster: SdkCluster, sends: type[Sends]) -> Home:
    whole = settings.door_bytes_max
    limits = SendLimits(
        connection_bytes=min(SendLimits().connection_bytes, whole // _CONNECTION_PART), process_bytes=whole
    )
    connections_max = connections_within(settings.door_connections_max)
    return Home(
        cluster,
        LoopTimers(),
        server_version=f"Oncelog {version('oncelog')}",
        sends=sends,
        budget=SendBudget(limits),
        admissions=Admissions(AdmissionLimits(connections_max)),
    )


async def _listen(door: PulsarDoor, settings: DoorSettings, security: Security) -> dict[str, str]:
    """{scheme: host:port}. Raises InvalidArgument."""
    contexts: dict[str, tuple[str, ssl.SSLContext | None]] = {}
    if settings.pulsar_address:
        contexts["pulsar"] = settings.pulsar_address, None
    if settings.pulsar_tls_address:
        assert security.certificate is not None, "the settings have one"
        contexts["pulsar+ssl"] = settings.pulsar_tls_address, security.certificate.ssl_context()
    serving = {}
    for scheme, (address, context) in contexts.items():
        host, port = _host_and_port(address)
        try:
            found = await door.listen(host, port, context)
        except OSError as error:
            field = "pulsar_tls_address" if context else "pulsar_address"
            message = f"cannot listen on {address}: {error.strerror or error}; choose another address"
            raise InvalidArgument(message, field=field) from error
        serving[scheme] = join_address(settings.advertised_host or host, found)
    return serving


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def _serve_rest(
    stack: AsyncExitStack, settings: DoorSettings, security: Security, cluster: SdkCluster, serving: Mapping[str, str]
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
        ForwardedRest(await stack.enter_async_context(_client(settings, own_token=False))),
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

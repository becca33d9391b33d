"""TLS to ZooKeeper and Redis: the server's certificate is verified, and files that change are used at the next
connection."""

import time
from functools import partial
from pathlib import Path

import pytest

from oncelog.core.errors import IdempotencyUnavailable, InvalidArgument, StoreUnavailable
from oncelog.core.http_publish.key_dataset import FoundDataset
from oncelog.metadata.observing.served_certificates import ServedCertificates, places_of
from oncelog.metadata_store.joining.joining import server_tls
from oncelog.metadata_store.keys.idempotency_redis import RedisKeyServer
from oncelog.metadata_store.keys.redis_address import RedisAddress
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.metadata_store.session.zookeeper_connection import ZooKeeperAccess
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog.runtime.security import Security, ServerCertificate
from oncelog.runtime.settings import MetadataSettings, load
from oncelog.runtime.telemetry import Telemetry
from oncelog.runtime.tls.certificates import new_ca
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.cluster.until import until
from tests.contract.process.security_world import new_pair, renew, tls_environment
from tests.contract.stores.cut_proxy import CutProxy
from tests.contract.stores.redis_process import RedisProcess
from tests.contract.stores.store_backends import DEADLINE_S

NAME = "oncelog"


# --- ZooKeeper --------------------------------------------------------------------------------------------------------


def access(directory: Path, *, ca: str = "ca.crt", name: str = NAME) -> ZooKeeperAccess:
    """As a service gets it from its settings."""
    variables = {"": "true", "_CA_FILE": str(directory / ca), "_SERVER_NAME": name}
    environment = {f"ONCELOG_ZOOKEEPER_TLS{key}": value for key, value in variables.items()}
    return ZooKeeperAccess(tls=server_tls(load(MetadataSettings, environment)))


@pytest.mark.asyncio
async def test_session_with_tls(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> None:
    """The name that is expected may differ from the host name: all servers of a release have one certificate."""
    tls_environment(tmp_path)
    certificate = ServerCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    async with CutProxy.running(zookeeper_server.port, tls=certificate.ssl_context()) as relay:
        session = await ZooKeeperSession.connect(relay.address, access=access(tmp_path), root=f"/tls-{relay.port}")
        await session.ensure_path("")
        await session.create("/large", bytes(500_000))
        await relay.cut()

        async def read_again() -> bool:
            try:
                node = await session.read("/large")
            except StoreUnavailable:
                return False
            return node is not None and len(node.data) == 500_000

        await until(read_again, DEADLINE_S)
        await session.close()


@pytest.mark.asyncio
async def test_renewed_ca_of_zookeeper_is_used_for_the_next_connection(
    zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """A session outlives the certificate that it began with."""
    tls_environment(tmp_path)
    certificate = ServerCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    async with CutProxy.running(zookeeper_server.port, tls=certificate.ssl_context()) as relay:
        session = await ZooKeeperSession.connect(relay.address, access=access(tmp_path), root=f"/tls-{relay.port}")
        await session.ensure_path("")
        other = new_ca()
        (tmp_path / "ca.crt").write_bytes((tmp_path / "ca.crt").read_bytes() + other.certificate)
        renew(tmp_path, other)
        await relay.cut()

        async def answers() -> bool:
            try:
                return await session.children("") == []
            except StoreUnavailable:
                return False

        await until(answers, DEADLINE_S)
        await session.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("ca", "name", "reason"), [("ca.crt", "other", "Hostname mismatch"), ("other.crt", NAME, "issuer certificate")]
)
async def test_zookeeper_with_another_identity_is_refused(
    zookeeper_server: ZooKeeperServer, tmp_path: Path, ca: str, name: str, reason: str
) -> None:
    """The error gives the reason: an address that is right must not be looked for."""
    tls_environment(tmp_path)
    (tmp_path / "other.crt").write_bytes(new_ca().certificate)
    certificate = ServerCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    async with CutProxy.running(zookeeper_server.port, tls=certificate.ssl_context()) as relay:
        with pytest.raises(StoreUnavailable, match=rf"TLS handshake failed \(.*{reason}.*correct the CA file"):
            await ZooKeeperSession.connect(
                relay.address, access=access(tmp_path, ca=ca, name=name), connect_timeout_ms=5_000
            )
        assert relay.sent == b""


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"CA_FILE": "ca.crt"}, "ONCELOG_ZOOKEEPER_TLS_CA_FILE needs ONCELOG_ZOOKEEPER_TLS=true"),
        ({"SERVER_NAME": NAME}, "ONCELOG_ZOOKEEPER_TLS_SERVER_NAME needs"),
        ({"": "true", "KEY_FILE": "tls.key"}, "ONCELOG_ZOOKEEPER_TLS_KEY_FILE: set both or none"),
    ],
)
def test_contradicting_settings_are_refused(variables: dict[str, str], complaint: str) -> None:
    """A CA without TLS would suggest that the connection is protected."""
    environment = {f"ONCELOG_ZOOKEEPER_TLS_{name}".rstrip("_"): value for name, value in variables.items()}
    with pytest.raises(InvalidArgument, match=complaint):
        load(MetadataSettings, environment)


# --- Redis ------------------------------------------------------------------------------------------------------------


def redis_options(directory: Path, port: int) -> list[str]:
    files = ["--tls-cert-file", "tls.crt", "--tls-key-file", "tls.key", "--tls-ca-cert-file", "ca.crt"]
    paths = [str(directory / word) if not word.startswith("--") else word for word in files]
    return ["--tls-port", str(port), "--tls-auth-clients", "no", *paths]


@pytest.mark.asyncio
async def test_redis_with_tls(tmp_path: Path) -> None:
    """CA and name are verified, and a changed CA is used at the next connection."""
    tls_environment(tmp_path)
    (tmp_path / "trusted.crt").write_bytes(new_ca().certificate)
    with (
        claim_port("127.0.0.1") as claim,
        RedisProcess.running(tmp_path / "redis", *redis_options(tmp_path, port_of(claim))),
    ):
        url = f"rediss://127.0.0.1:{port_of(claim)}/0"
        trusted = str(tmp_path / "trusted.crt")
        server = RedisKeyServer(RedisAddress(url, ca_file=trusted, server_name=NAME), "cluster")
        with pytest.raises(IdempotencyUnavailable, match="certificate"):
            await server.look()
        (tmp_path / "trusted.crt").write_bytes((tmp_path / "ca.crt").read_bytes())
        assert isinstance(await server.look(), FoundDataset)
        await server.check_settings()
        await server.close()

        other_name = RedisKeyServer(RedisAddress(url, ca_file=trusted, server_name="other"), "cluster")
        with pytest.raises(IdempotencyUnavailable, match="certificate"):
            await other_name.look()
        await other_name.close()


@pytest.mark.parametrize("field", ["ca_file", "server_name"])
def test_ca_for_redis_without_tls_is_refused(tmp_path: Path, field: str) -> None:
    """It would suggest that the connection is protected."""
    (tmp_path / "ca.crt").write_bytes(new_ca().certificate)
    with pytest.raises(InvalidArgument, match=f"ONCELOG_REDIS_TLS_{field.upper()} needs .* rediss://"):
        RedisAddress("redis://127.0.0.1:1/0", **{field: str(tmp_path / "ca.crt")})


# --- until when -------------------------------------------------------------------------------------------------------


def test_expiry_is_exported(tmp_path: Path) -> None:
    """Of the certificate in use, and of the CA that signed it; also after both were replaced."""
    security = Security.of(load(MetadataSettings, tls_environment(tmp_path)))
    telemetry = Telemetry("test", "1")
    security.observe(telemetry)

    def ends() -> dict[str, float]:
        lines = telemetry.metrics_text().decode().splitlines()
        found = [line for line in lines if line.startswith("oncelog_tls_expiry_timestamp_seconds{")]
        return {line.split('file="')[1].split('"')[0]: float(line.rpartition(" ")[2]) for line in found}

    first = ends()
    assert set(first) == {"certificate", "ca"}
    assert first["ca"] - first["certificate"] > 3_000 * 86_400
    other = new_ca(days=500)
    (tmp_path / "ca.crt").write_bytes((tmp_path / "ca.crt").read_bytes() + other.certificate)
    renew(tmp_path, other)
    assert ends()["ca"] < first["ca"] - 3_000 * 86_400
    telemetry.shut_down()


@pytest.mark.asyncio
async def test_expiry_is_that_of_what_is_served(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> None:
    """Redis reads its certificate at its start only, so a renewed file changes nothing before it restarts. A server
    that does not answer has no expiry."""
    new_pair(tmp_path, days=10)
    certificate = ServerCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    with claim_port("127.0.0.1") as claim:
        redis = f"127.0.0.1:{port_of(claim)}"
        async with CutProxy.running(zookeeper_server.port, tls=certificate.ssl_context()) as zookeeper:
            variables = {
                "ONCELOG_ZOOKEEPER_HOSTS": f"{zookeeper.address}/chroot",
                "ONCELOG_ZOOKEEPER_TLS": "true",
                "ONCELOG_ZOOKEEPER_TLS_CA_FILE": str(tmp_path / "ca.crt"),
                "ONCELOG_REDIS_URL": f"rediss://{redis}/0",
            }
            served = ServedCertificates(partial(places_of, load(MetadataSettings, variables)))

            async def days_left() -> dict[str, int]:
                await served.look()
                return {
                    str(reading.attributes["server"]): round((reading.value - time.time()) / 86_400)
                    for reading in served.readings()
                }

            assert await days_left() == {zookeeper.address: 10}
            with RedisProcess.running(tmp_path / "redis", *redis_options(tmp_path, port_of(claim))):
                new_pair(tmp_path, days=90)
                assert await days_left() == {zookeeper.address: 90, redis: 10}
            with RedisProcess.running(tmp_path / "redis", *redis_options(tmp_path, port_of(claim))):
                assert await days_left() == {zookeeper.address: 90, redis: 90}
                (tmp_path / "ca.crt").write_bytes(b"no certificate")
                assert await days_left() == {zookeeper.address: 90, redis: 90}  # told in the log; the last look counts


def test_servers_without_tls_serve_no_certificate() -> None:
    variables = {"ONCELOG_ZOOKEEPER_HOSTS": "a:2181", "ONCELOG_REDIS_URL": "redis://b:6379/0"}
    assert places_of(load(MetadataSettings, variables)) == {}

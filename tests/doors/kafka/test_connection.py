"""Connections of Kafka's clients: who is let in, in which order requests are answered, and how it ends."""

import asyncio
from struct import pack

import pytest

from oncelog.core.errors import ServiceUnavailable
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.kafka.apis import KNOWN
from oncelog_doors.kafka.asking import Address
from oncelog_doors.kafka.connection import IDLE_MS
from oncelog_doors.wire.kafka_tables import REQUESTS
from tests.cluster.until import until
from tests.doors.kafka.fake_cluster import FakeCluster
from tests.doors.kafka.raw_client import RawClient, kafka_world, raw_client, request
from tests.doors.raw_connection import DEADLINE_S

pytestmark = pytest.mark.asyncio

TOKENS = {"secret": "importer", "newer": "importer", "foreign": "other"}
METADATA = {"topics": [{"name": "orders"}]}


async def sign_in(client: RawClient, token: str, *, user: str = "me", version: int = 1) -> dict[str, object]:
    """The answer to SaslAuthenticate."""
    assert (await client.ask("SaslHandshake", 1, {"mechanism": "PLAIN"}))["error_code"] == 0
    data = f"\0{user}\0{token}".encode()
    return await client.ask("SaslAuthenticate", version, {"auth_bytes": data})


async def test_what_is_offered_is_told_also_to_a_client_of_a_later_version() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        found = await client.ask("ApiVersions", 3, {"client_software_name": "a", "client_software_version": "b"})
        assert {(each["api_key"], each["min_version"], each["max_version"]) for each in found["api_keys"]} == {
            (REQUESTS[api].key, *versions) for api, versions in KNOWN.items()
        }
        client.write(pack(">ihhi", 20, 18, 9, 77) + b"\0" * 12)
        number, later = await client.read("ApiVersions", 0)
        assert (number, later["error_code"]) == (77, ErrorCode.UNSUPPORTED_VERSION)
        assert later["api_keys"] == found["api_keys"]
        assert (await client.ask("Metadata", 0, METADATA))["topics"][0]["name"] == "orders"


@pytest.mark.parametrize("key", [1_000, -1])
async def test_an_unknown_request_ends_the_connection(key: int) -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        client.write(pack(">ihhih", 10, key, 0, 1, -1))
        await client.closed()


async def test_an_unknown_version_ends_the_connection() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        client.write(pack(">ihhih", 10, REQUESTS["Metadata"].key, 12, 1, -1))
        await client.closed()


@pytest.mark.parametrize(
    "data",
    [
        pack(">i", 17 * 1024 * 1024),
        pack(">i", -1),
        pack(">i", 5),
        pack(">ihhih", 10, 3, 0, 1, 100),
        pack(">ihhih", 10, 3, 0, 1, -5),
        request("ApiVersions", 3, {})[:-3],
        pack(">ihhih", 16, 18, 3, 1, -1) + b"\x81\0\0\0\0\0",
        request("Metadata", 0, METADATA)[:-1] + b"\xff",
    ],
)
async def test_broken_frames_end_the_connection(data: bytes) -> None:
    """A frame that is too large is not read."""
    async with kafka_world() as world, raw_client(world.port) as client:
        client.write(data)
        if len(data) == 4 + int.from_bytes(data[:4], "big", signed=True) or len(data) == 4:
            await client.closed()
        else:
            world.timers.advance(IDLE_MS)
            await client.closed()


async def test_requests_are_answered_in_their_order() -> None:
    """A fetch that waits holds the answers behind it, as at Kafka's brokers."""
    async with kafka_world() as world, raw_client(world.port) as client:
        fetch = {"max_wait_ms": 500, "min_bytes": 1, "topics": [
            {"topic": "orders", "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}
        ]}  # fmt: skip
        first, second = client.send("Fetch", 11, fetch), client.send("Metadata", 8, METADATA)
        await until(lambda: len(world.cluster.readers) == 1, DEADLINE_S)
        await until(lambda: world.home.counts.requests["Metadata"] == 1, DEADLINE_S)
        world.timers.advance(500)
        assert (await client.read("Fetch", 11))[0] == first
        assert (await client.read("Metadata", 8))[0] == second


async def test_a_client_that_is_not_authenticated_gets_nothing() -> None:
    async with kafka_world(FakeCluster(TOKENS)) as world, raw_client(world.port) as client:
        await client.ask("ApiVersions", 0, {})
        client.send("Metadata", 8, METADATA)
        await client.closed()


@pytest.mark.parametrize("version", [0, 1])
async def test_a_token_opens_the_connection(version: int) -> None:
    async with kafka_world(FakeCluster(TOKENS)) as world, raw_client(world.port) as client:
        found = await sign_in(client, "secret", version=version)
        assert (found["error_code"], found.get("session_lifetime_ms", 0)) == (0, 0)
        assert (await client.ask("Metadata", 8, METADATA))["topics"][0]["error_code"] == 0


async def test_a_bearer_token_opens_the_connection() -> None:
    async with kafka_world(FakeCluster(TOKENS)) as world, raw_client(world.port) as client:
        await client.ask("SaslHandshake", 1, {"mechanism": "OAUTHBEARER"})
        data = b"n,,\x01auth=Bearer secret\x01\x01"
        assert (await client.ask("SaslAuthenticate", 1, {"auth_bytes": data}))["error_code"] == 0
        await client.ask("Metadata", 8, METADATA)


async def test_another_token_is_refused_with_a_sentence_and_the_connection_ends() -> None:
    async with kafka_world(FakeCluster(TOKENS)) as world, raw_client(world.port) as client:
        found = await sign_in(client, "stolen")
        assert found["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert found["error_message"] == "the token is not valid"
        await client.closed()


async def test_a_token_that_cannot_be_checked_now_is_not_refused() -> None:
    """A client takes every refusal as final; without an answer it connects again."""
    cluster = FakeCluster(TOKENS)
    cluster.token_error = ServiceUnavailable("no key yet")
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        await client.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})
        client.send("SaslAuthenticate", 1, {"auth_bytes": b"\0\0secret"})
        await client.closed()


async def test_other_mechanisms_are_refused_and_ours_are_named() -> None:
    async with kafka_world(FakeCluster(TOKENS)) as world, raw_client(world.port) as client:
        found = await client.ask("SaslHandshake", 1, {"mechanism": "SCRAM-SHA-256"})
        assert found == {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": ["PLAIN", "OAUTHBEARER"]}
        unasked = await client.ask("SaslAuthenticate", 1, {"auth_bytes": b"\0\0secret"})
        assert unasked["error_code"] == ErrorCode.ILLEGAL_SASL_STATE


async def test_a_door_without_authentication_wants_no_token() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        found = await client.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})
        assert found["error_code"] == ErrorCode.ILLEGAL_SASL_STATE


async def test_the_user_name_may_name_a_namespace() -> None:
    cluster = FakeCluster(TOKENS)
    cluster.partition_counts["shop/web/carts"] = 2
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        await sign_in(client, "secret", user="shop/web")
        found = await client.ask("Metadata", 8, {"topics": None})
        assert [(each["name"], len(each["partitions"])) for each in found["topics"]] == [("carts", 2)]


@pytest.mark.hazard("token-ends-between-answers")
async def test_a_connection_ends_with_its_token_between_two_answers() -> None:
    """What was taken is answered first; the client has its rights until then."""
    cluster = FakeCluster(TOKENS)
    cluster.ends_in_ms["secret"] = 60_000
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        assert (await sign_in(client, "secret"))["session_lifetime_ms"] == 60_000
        fetch = {"max_wait_ms": 30_000, "min_bytes": 1, "topics": [
            {"topic": "orders", "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}
        ]}  # fmt: skip
        world.timers.advance(59_000)
        client.send("Fetch", 11, fetch)
        await until(lambda: len(world.cluster.readers) == 1, DEADLINE_S)
        world.timers.advance(1_000)
        assert (await client.read("Fetch", 11))[1]["responses"][0]["partitions"][0]["error_code"] == 0
        await client.closed()


async def test_a_new_token_of_the_role_prolongs_the_connection() -> None:
    cluster = FakeCluster(TOKENS)
    cluster.ends_in_ms |= {"secret": 60_000, "newer": 600_000}
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        await sign_in(client, "secret")
        world.timers.advance(59_000)
        assert (await sign_in(client, "newer"))["session_lifetime_ms"] == 600_000
        world.timers.advance(10_000)
        await client.ask("Metadata", 8, METADATA)


async def test_a_token_of_another_role_ends_the_connection() -> None:
    async with kafka_world(FakeCluster(TOKENS)) as world, raw_client(world.port) as client:
        await sign_in(client, "secret")
        found = await sign_in(client, "foreign")
        assert "is of role other, and the connection of role importer" in str(found["error_message"])
        await client.closed()


async def test_a_silent_client_is_disconnected() -> None:
    async with kafka_world(FakeCluster(TOKENS)) as world, raw_client(world.port) as client:
        await client.ask("ApiVersions", 0, {})
        world.timers.advance(10_000)
        await client.closed()
    async with kafka_world() as world, raw_client(world.port) as client:
        await client.ask("ApiVersions", 0, {})
        world.timers.advance(IDLE_MS - 1)
        await client.ask("ApiVersions", 0, {})
        world.timers.advance(IDLE_MS - 1)
        await client.ask("ApiVersions", 0, {})
        world.timers.advance(IDLE_MS)
        await client.closed()


async def test_clients_are_told_one_broker() -> None:
    """One on this machine stays at the address that it has used."""
    async with kafka_world(advertised=Address("kafka.example.org", 9092)) as world, raw_client(world.port) as client:
        found = await client.ask("Metadata", 8, METADATA)
        assert found["brokers"] == [{"node_id": 0, "host": "127.0.0.1", "port": world.port, "rack": None}]
        assert (found["controller_id"], found["cluster_id"]) == (0, "cluster")
        [connection] = world.home.connections.values()
        assert isinstance(connection.broker, Address)  # type: ignore[attr-defined]
        connection.address = "10.0.0.7"  # type: ignore[attr-defined]
        assert connection.broker == Address("kafka.example.org", 9092)  # type: ignore[attr-defined]


async def test_a_door_that_ends_answers_what_it_has_taken() -> None:
    cluster = FakeCluster()
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        fetch = {"max_wait_ms": 30_000, "min_bytes": 1, "topics": [
            {"topic": "orders", "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}
        ]}  # fmt: skip
        client.send("Fetch", 11, fetch)
        await until(lambda: len(world.cluster.readers) == 1, DEADLINE_S)
        closing = asyncio.ensure_future(world.door.close())
        assert (await client.read("Fetch", 11))[1]["error_code"] == 0
        await client.closed()
        await closing


@pytest.mark.hazard("transactions-wanted")
async def test_one_broker_coordinates_groups_and_transactions_are_refused_for_good() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        group = await client.ask("FindCoordinator", 2, {"key": "g", "key_type": 0})
        assert (group["error_code"], group["node_id"], group["port"]) == (ErrorCode.NONE, 0, world.port)
        transaction = await client.ask("FindCoordinator", 2, {"key": "t", "key_type": 1})
        assert transaction["error_code"] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        begun = await client.ask("InitProducerId", 4, {"transactional_id": "t"})
        assert begun["error_code"] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (await client.ask("DescribeAcls", 2, {}))["error_code"] == ErrorCode.SECURITY_DISABLED

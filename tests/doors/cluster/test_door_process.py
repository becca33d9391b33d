"""The program in front of a cluster of real processes, with TLS and tokens."""

import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

import oncelog
from oncelog.runtime.tls.certificates import KeyPair, new_certificate
from oncelog_doors.core.shared.window_shares import BYTES_MAX
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.commands import environment
from tests.cluster.kills import idle, kill
from tests.cluster.until import until
from tests.contract.process.security_world import bearer, token
from tests.doors.cluster.conftest import NAMES, NewDoor
from tests.doors.cluster.door_program import DEADLINE_S, DoorProgram, connect, trusting
from tests.doors.pulsar.bytes_of_clients import CONNECT, FLOW, PING, SUBSCRIBE, body, command, frame
from tests.doors.pulsar.raw_client import RawClient, producer, raw_client, send

PARTITIONS, GET_TOPICS = 21, 32
EPOCH, TOKEN = 8, 11
UNAUTHENTICATED, UNAUTHORIZED, BUSY = 3, 4, 16
PONG = 19
EARLIEST = body((1, 2**64 - 1), (2, 2**64 - 1))
LOOKED_UP, TOPIC_NOT_FOUND = 0, 11
PING_FRAME = frame(command(PING))


def topic(name: str) -> bytes:
    return f"persistent://public/default/{name}".encode()


def proof(role: str) -> tuple[tuple[int, bytes], ...]:
    """Fields of CONNECT."""
    return (5, b"token"), (3, token(role).encode())


async def look_up(client: RawClient, name: str, *, may_create: bool = True) -> tuple[int, int]:
    """(partitions, error)"""
    found = await client.answer(frame(command(PARTITIONS, (1, topic(name)), (2, 5), (6, int(may_create)))))
    return found.partitions, found.error


async def listed(client: RawClient) -> set[str]:
    """The topics that begin with "listed", or the code of the error."""
    found = await client.answer(frame(command(GET_TOPICS, (1, 9), (2, b"public/default"))))
    if found.DESCRIPTOR.name == "Error":
        return {str(found.error)}
    return {each.rpartition("/")[2] for each in found.topics if "/listed" in each}


async def stored(cluster: Cluster, files: Path, name: str, count: int) -> list[tuple[str | None, int, bytes]]:
    """The first messages of a topic, through the SDK."""
    found = []
    async with (
        oncelog.AsyncClient(cluster.url, token=token("root"), tls_ca_file=files / "ca.crt") as client,
        await client.create_reader(f"public/default/{name}", start=oncelog.EARLIEST) as reader,
    ):
        async for message in reader:
            found.append((message.producer_name, message.sequence_id, message.value))
            if len(found) == count:
                break
    return found


@pytest.mark.asyncio
async def test_client_with_tls_publishes_once(cluster: Cluster, door: DoorProgram, files: Path) -> None:
    """Under the ids and the name that it has chosen; a message that it sends again has the first one's place."""
    async with raw_client(door.port("pulsar+ssl"), trusting(files / "ca.crt")) as client:
        assert (await connect(client, token("importer"))).max_message_size == 5 * 1024 * 1024 - 4096
        assert await look_up(client, "tls") == (0, LOOKED_UP)
        opened = await client.open_producer(topic=topic("tls"))
        assert (opened.name, opened.last_sequence_id) == ("importer", -1)
        first = (await client.answer(send(1, b"one"))).message_id
        assert (await client.answer(send(1, b"one"))).message_id == first
        await client.answer(send(5, b"five"))
        for _ in range(2):
            assert (await client.answer(send(7, b"unchecked", checksum=False))).DESCRIPTOR.name == "SendReceipt"
    expected = [("importer", 1, b"one"), ("importer", 5, b"five"), ("importer", 7, b"unchecked")]
    assert await stored(cluster, files, "tls", 3) == expected


@pytest.mark.asyncio
async def test_client_without_a_valid_token_is_refused(door: DoorProgram) -> None:
    """It learns nothing but that."""
    for given in ("", "no.such.token"):
        async with raw_client(door.port()) as client:
            assert (await connect(client, given)).error == UNAUTHENTICATED
            assert await client.names_until_closed() == []


@pytest.mark.asyncio
async def test_rights_are_those_of_the_role(door: DoorProgram) -> None:
    """As over HTTP and for the SDK: the right to produce creates and publishes, the right to consume sees."""
    async with (
        raw_client(door.port()) as importer,
        raw_client(door.port()) as billing,
        raw_client(door.port()) as stranger,
    ):
        for client, role in ((importer, "importer"), (billing, "billing"), (stranger, "stranger")):
            await connect(client, token(role))
        for client in (billing, importer):
            assert await look_up(client, "rights") == (0, LOOKED_UP)
            assert await look_up(client, "rights", may_create=False) == (0, TOPIC_NOT_FOUND)
        assert await look_up(stranger, "rights") == (0, UNAUTHORIZED)
        for client in (billing, stranger):
            assert (await client.open_producer(topic=topic("rights"))).error == UNAUTHORIZED
        assert (await importer.open_producer(topic=topic("rights"))).name == "importer"
        assert await look_up(billing, "rights", may_create=False) == (0, LOOKED_UP)
        assert await look_up(stranger, "rights") == (0, UNAUTHORIZED)


@pytest.mark.asyncio
async def test_topic_is_created_only_where_its_namespace_allows_it(cluster: Cluster, door: DoorProgram) -> None:
    """As on Pulsar, the question for its partitions creates nothing; what follows it does, or is refused."""
    strict = "/admin/v2/namespaces/public/strict"
    (await cluster.request("PUT", strict, json={"auto_create_topics": False})).raise_for_status()
    (await cluster.request("POST", f"{strict}/permissions/importer", json=["produce"])).raise_for_status()
    async with raw_client(door.port()) as client:
        await connect(client, token("importer"))
        for namespace, error in (("default", None), ("strict", TOPIC_NOT_FOUND)):
            name = f"persistent://public/{namespace}/created".encode()
            for may_create, expected in ((1, LOOKED_UP), (0, TOPIC_NOT_FOUND)):
                found = await client.answer(frame(command(PARTITIONS, (1, name), (2, 5), (6, may_create))))
                assert (found.partitions, found.error) == (0, expected)
            assert getattr(await client.open_producer(topic=name), "error", None) == error


@pytest.mark.asyncio
async def test_partition_is_there_before_its_first_use(cluster: Cluster, door: DoorProgram) -> None:
    """Also for a client that may create no topic: Pulsar creates all partitions with the topic. Java's client asks for
    each of them when it subscribes to a pattern."""
    at = "/admin/v2/persistent/public/default/parts/partitions"
    await cluster.change("PUT", at, content="3", headers={"content-type": "application/json", **bearer("root")})
    async with raw_client(door.port()) as billing:
        await connect(billing, token("billing"))
        assert await look_up(billing, "parts-partition-1", may_create=False) == (0, LOOKED_UP)
        assert await look_up(billing, "parts-partition-3", may_create=False) == (0, TOPIC_NOT_FOUND)
        assert await look_up(billing, "none-partition-0", may_create=False) == (0, TOPIC_NOT_FOUND)
        reading = (8, 0), (9, EARLIEST)
        for number, more in ((1, ()), (2, reading)):
            part = topic(f"parts-partition-{number}")
            asked = command(SUBSCRIBE, (1, part), (2, b"sub"), (3, 0), (4, number), (5, number), *more, (15, 0))
            assert (await billing.answer(frame(asked))).DESCRIPTOR.name == "Success"


@pytest.mark.asyncio
async def test_producer_creates_its_topic(door: DoorProgram) -> None:
    """If its role may. Java's client opens producers of dead letter topics without a look-up that creates them."""
    async with raw_client(door.port()) as importer, raw_client(door.port()) as billing:
        for client, role in ((importer, "importer"), (billing, "billing")):
            await connect(client, token(role))
        assert (await billing.open_producer(topic=topic("letters"))).error == UNAUTHORIZED
        assert await look_up(importer, "letters", may_create=False) == (0, TOPIC_NOT_FOUND)
        assert (await importer.open_producer(topic=topic("letters"))).name == "importer"


@pytest.mark.asyncio
async def test_name_belongs_to_the_role(door: DoorProgram) -> None:
    """Another role with the same right cannot continue it."""
    async with raw_client(door.port()) as importer, raw_client(door.port()) as other:
        await connect(importer, token("importer"))
        await connect(other, token("other"))
        await importer.open_producer(topic=topic("names"), name=b"mine")
        refused = await other.open_producer(topic=topic("names"), name=b"mine")
        assert refused.error == UNAUTHORIZED


@pytest.mark.asyncio
async def test_second_instance_of_a_name_is_busy(door: DoorProgram) -> None:
    """In words of a client of Pulsar. The first one answers, so it keeps the name."""
    async with raw_client(door.port()) as first, raw_client(door.port()) as second:
        for client in (first, second):
            await connect(client, token("importer"))
        await first.open_producer(topic=topic("busy"), name=b"one")
        second.write(producer(topic=topic("busy"), name=b"one"))
        assert (await first.read()).name == "ping"
        first.write(frame(command(PONG)))
        refused = (await second.read()).command.error
        assert (refused.error, refused.message) == (
            BUSY, "another instance of producer 'one' is connected: close it, or use another producer name",
        )  # fmt: skip


@pytest.mark.asyncio
async def test_policies_of_a_topic_decide(cluster: Cluster, door: DoorProgram) -> None:
    """Who has a name, and what becomes of ids that were never stored or are stored with another content. The producer
    that is open follows a change within seconds."""
    path = "/admin/v2/persistent/public/default/policies"
    async with raw_client(door.port()) as first, raw_client(door.port()) as second:
        for client in (first, second):
            await client.answer(frame(command(CONNECT, (1, b"Pulsar-Java-v4.0.7"), (4, 20), *proof("importer"))))
        await first.open_producer(topic=topic("policies"), name=b"one")
        (await cluster.request("POST", f"{path}/pulsarNewInstanceFences", json=True)).raise_for_status()
        second.write(producer(topic=topic("policies"), name=b"one"))
        assert (await first.read()).name == "ping"
        first.write(frame(command(PONG)))
        assert (await second.read()).command.producer_success.name == "one"
        assert (await first.read()).name == "close_producer"
        (await cluster.request("POST", f"{path}/pulsarAcceptOtherContent", json=True)).raise_for_status()
        for number in (5, 9):
            await second.answer(send(number, producer_name=b"one"))
        changed = await second.answer(send(5, b"another", producer_name=b"one"))
        assert (changed.sequence_id, changed.message_id.ledger_id) == (5, 2**64 - 1)
        stale = await second.answer(send(7, producer_name=b"one"))
        assert (stale.sequence_id, stale.error) == (7, 22)
        (await cluster.request("POST", f"{path}/pulsarAcceptStale", json=True)).raise_for_status()

        async def accepted() -> bool:
            return bool((await second.answer(send(7, producer_name=b"one"))).DESCRIPTOR.name == "SendReceipt")

        await until(accepted, DEADLINE_S)


@pytest.mark.asyncio
async def test_partitions_are_those_of_the_topic(cluster: Cluster, door: DoorProgram) -> None:
    """The client then uses each by its name."""
    path = "/admin/v2/persistent/public/default/parted/partitions"
    (await cluster.request("PUT", path, json=3)).raise_for_status()
    async with raw_client(door.port()) as client:
        await connect(client, token("importer"))
        assert await look_up(client, "parted") == (3, LOOKED_UP)
        assert await look_up(client, "parted-partition-2") == (0, LOOKED_UP)
        assert (await client.open_producer(topic=topic("parted-partition-2"))).name == "importer"
        assert (await client.open_producer(producer_id=2, topic=topic("parted"))).error


@pytest.mark.asyncio
async def test_topics_are_listed_for_a_role_that_may_read_them(cluster: Cluster, door: DoorProgram) -> None:
    """As they are after the request; a partitioned one as all of its partitions, used or not."""
    path = "/admin/v2/persistent/public/default/listed-parted/partitions"
    (await cluster.request("PUT", path, json=2)).raise_for_status()
    async with raw_client(door.port()) as importer, raw_client(door.port()) as billing:
        await connect(importer, token("importer"))
        await connect(billing, token("billing"))
        assert await listed(importer) == {str(UNAUTHORIZED)}
        parts = {"listed-parted-partition-0", "listed-parted-partition-1"}
        assert await listed(billing) == parts
        for number, name in enumerate(("listed-one", "listed-parted-partition-1")):
            await importer.open_producer(producer_id=number, topic=topic(name))
        assert await listed(billing) == parts | {"listed-one"}


@pytest.mark.asyncio
async def test_client_goes_on_at_another_door(cluster: Cluster, new_door: NewDoor, files: Path) -> None:
    """The first one is killed. The token says that it is the same instance; what it sends again is stored once."""
    with new_door() as one, new_door() as two:
        async with raw_client(one.port()) as client:
            await connect(client, token("importer"))
            opened = await client.open_producer((EPOCH, 1), topic=topic("moved"))
            places = [(await client.answer(send(number))).message_id for number in range(3)]
            await kill(one.process, once=idle)
            assert await client.names_until_closed() == []
        async with raw_client(two.port()) as client:
            await connect(client, token("importer"))
            again = await client.open_producer((EPOCH, 2), (TOKEN, opened.topic_epoch), topic=topic("moved"))
            assert (again.last_sequence_id, again.topic_epoch) == (2, opened.topic_epoch)
            assert [(await client.answer(send(number))).message_id for number in range(3)] == places
            await client.answer(send(3))
    assert [row[1] for row in await stored(cluster, files, "moved", 4)] == [0, 1, 2, 3]


@pytest.mark.asyncio
async def test_health_port_tells_what_the_door_does(door: DoorProgram) -> None:
    """Ready once the cluster has answered; the numbers are those of its clients."""
    async with (
        raw_client(door.port()) as client,
        raw_client(door.port()) as reader,
        httpx.AsyncClient(trust_env=False) as http,
    ):
        await connect(reader, token("root"))
        url = f"http://{door.serving['health']}"
        assert (await http.get(f"{url}/readyz")).status_code == 200
        await connect(client, token("importer"))
        await client.open_producer(topic=topic("counted"))
        await client.answer(send(1))
        await client.open_producer(producer_id=2, topic=b"non-persistent://public/default/x")
        reading = ((2, b"r"), (3, 0), (5, 50), (8, 0), (9, EARLIEST), (15, 0))
        for number, name in ((1, "counted"), (2, "missing")):  # the second one is refused, and holds nothing
            await reader.answer(frame(command(SUBSCRIBE, (1, topic(name)), (4, number), *reading)))
        reader.write(frame(command(FLOW, (1, 1), (2, 10))))
        assert (await reader.read()).name == "message"
        metrics = (await http.get(f"{url}/metrics")).text
    numbers = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line[0] != "#"
    }
    assert numbers["oncelog_door_connections"] >= 1
    assert numbers["oncelog_door_producers"] >= 1
    assert numbers["oncelog_door_sends_total"] >= 1
    assert numbers["oncelog_door_receipts_total"] >= 1
    assert numbers['oncelog_door_refusals_total{reason="not_allowed_error"}'] >= 1
    assert "oncelog_door_kept_bytes" in numbers
    assert numbers["oncelog_door_consumers"] == 1
    assert numbers["oncelog_door_read_ahead_bytes"] == BYTES_MAX
    assert numbers["oncelog_door_messages_out_total"] >= 1
    assert numbers["oncelog_door_bytes_out_total"] > 10
    assert numbers["oncelog_door_undeliverable_total"] == 0


@pytest.mark.asyncio
async def test_sigterm_ends_the_door_when_its_clients_have_their_receipts(new_door: NewDoor) -> None:
    """With exit code 0."""
    with new_door() as door:
        async with raw_client(door.port()) as client:
            await connect(client, token("importer"))
            await client.open_producer(topic=topic("ended"))
            client.write(send(1))
            assert (await client.read()).name == "send_receipt"
            os.kill(door.process.pid, signal.SIGTERM)
            assert await client.names_until_closed() == []
        assert door.process.wait(DEADLINE_S) == 0


def test_renewed_certificate_is_used_by_the_next_connection(
    cluster: Cluster, tmp_path: Path, variables: Mapping[str, str], authority: KeyPair
) -> None:
    """Without a restart, as at the other services. The pair is a copy, so that the cluster keeps its own."""
    own = dict(variables)
    for name in ("tls_certificate_file", "tls_key_file"):
        variable = f"ONCELOG_{name.upper()}"
        copy = tmp_path / name
        copy.write_bytes(Path(variables[variable]).read_bytes())
        own[variable] = str(copy)
    with DoorProgram.running("--url", cluster.url, "--pulsar-tls", "127.0.0.1:0", settings=own) as door:
        before = ssl.get_server_certificate(("127.0.0.1", door.port("pulsar+ssl")))
        pair = new_certificate(authority, NAMES, days=2)
        Path(own["ONCELOG_TLS_KEY_FILE"]).write_bytes(pair.key)
        Path(own["ONCELOG_TLS_CERTIFICATE_FILE"]).write_bytes(pair.certificate)
        after = ssl.get_server_certificate(("127.0.0.1", door.port("pulsar+ssl")))
    assert after.strip() == pair.certificate.decode().strip()
    assert before != after


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "the door has no address to listen on: set ONCELOG_PULSAR_ADDRESS (--pulsar)"),
        (("--pulsar", "nowhere"), "ONCELOG_PULSAR_ADDRESS: 'nowhere' is not host:port"),
        (("--pulsar-tls", "127.0.0.1:0"), "ONCELOG_PULSAR_TLS_ADDRESS needs ONCELOG_TLS_CERTIFICATE_FILE"),
        (("--pulsar", "127.0.0.1:0", "--url", "http://x"), "oncelog://"),
    ],
)
def test_wrong_settings_end_the_start_with_one_sentence(arguments: tuple[str, ...], says: str) -> None:
    """That names the setting."""
    words = [sys.executable, "-m", "oncelog_doors", "serve", *arguments]
    ended = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 1
    assert says in json.loads(ended.stderr.splitlines()[-1])["msg"]

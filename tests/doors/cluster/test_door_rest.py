"""The REST port of a door process: rights are those of the caller, and clients that look topics up over HTTP."""

import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pulsar
import pytest
from pulsar.schema import JsonSchema, Record, String

from tests.cluster.until import until_sync
from tests.contract.process.security_world import bearer
from tests.doors.cluster.conftest import NewDoor
from tests.doors.cluster.door_program import DEADLINE_S, DoorProgram

TOPIC = "persistent://public/default/by-http"
STATS = "/admin/v2/persistent/public/default/by-http/stats"
DEDUPLICATION = "/admin/v2/namespaces/public/default/deduplication"
_LISTENING = (
    "--pulsar", "127.0.0.1:0", "--pulsar-tls", "127.0.0.1:0",
    "--pulsar-rest", "127.0.0.1:0", "--pulsar-rest-tls", "127.0.0.1:0",
)  # fmt: skip


class Order(Record):  # type: ignore[misc]  # its module has no types
    customer = String()


@pytest.fixture(scope="module")
def rest_door(new_door: NewDoor) -> Iterator[DoorProgram]:
    with new_door(*_LISTENING) as own:
        yield own


@pytest.fixture
def rest(rest_door: DoorProgram, files: Path) -> Iterator[httpx.Client]:
    context = ssl.create_default_context(cafile=str(files / "ca.crt"))
    with httpx.Client(base_url=f"https://{rest_door.serving['https']}", verify=context, trust_env=False) as own:
        yield own


def token_of(role: str) -> str:
    return bearer(role)["Authorization"].removeprefix("Bearer ")


def test_client_that_knows_only_the_rest_port_publishes_and_reads(rest_door: DoorProgram) -> None:
    """It looks the topic up over HTTP, and connects to the address of the answer."""
    url = f"http://{rest_door.serving['http']}"
    with_token = pulsar.AuthenticationToken(token_of("root"))
    client = pulsar.Client(url, authentication=with_token)
    try:
        producer = client.create_producer(TOPIC, producer_name="shop")
        producer.send(b"one", sequence_id=1)
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        assert reader.read_next(timeout_millis=30_000).data() == b"one"
    finally:
        client.close()


def test_door_has_no_rights_of_its_own_for_its_callers(rest: httpx.Client) -> None:
    """Although it is a superuser of the cluster."""
    for headers, status in (({}, 401), ({"Authorization": "Bearer x"}, 401), ({"Authorization": "Basic x"}, 401)):
        answer = rest.get(STATS, headers=headers)
        assert (answer.status_code, [*answer.json()]) == (status, ["reason"])
    assert rest.put("/admin/v2/tenants/mine", headers=bearer("importer")).status_code == 403
    assert rest.post(DEDUPLICATION, json=False, headers=bearer("importer")).status_code == 403
    assert rest.get("/admin/v2/tenants", headers=bearer("root")).json() == ["public"]
    assert rest.get(DEDUPLICATION, headers=bearer("root")).status_code == 204


def says(rest: httpx.Client, stats: str, status: str) -> bool:
    return bool(rest.get(stats).json()["deduplicationStatus"] == status)


def test_switch_of_deduplication(rest: httpx.Client) -> None:
    rest.headers.update(bearer("root"))
    topic = "/admin/v2/persistent/public/default/switched"
    rest.put(topic).raise_for_status()
    rest.get("/lookup/v2/topic/persistent/public/default/switched").raise_for_status()
    for value, status in ((False, "Disabled"), (True, "Enabled")):
        rest.post(DEDUPLICATION, json=value).raise_for_status()
        assert rest.get(DEDUPLICATION).json() is value
        said = partial(says, rest, f"{topic}/stats", status)
        until_sync(said, DEADLINE_S, waiting_for=f"deduplication to be {status} at the owner")
    rest.delete(DEDUPLICATION).raise_for_status()


READABLE = "/admin/v2/persistent/public/default/readable"
SCHEMA = "/admin/v2/schemas/public/default/readable/schema"
AVRO = {"type": "AVRO", "schema": '{"type":"record","name":"Order","fields":[]}', "properties": {}}


@pytest.fixture
def messages(rest_door: DoorProgram) -> list[pulsar.MessageId]:
    """The ids of a batch of three, in a topic that exists once."""
    with_token = pulsar.AuthenticationToken(token_of("root"))
    client = pulsar.Client(f"pulsar://127.0.0.1:{rest_door.port()}", authentication=with_token)
    found: list[pulsar.MessageId] = []
    try:
        producer = client.create_producer(
            READABLE.replace("/admin/v2/persistent/", "persistent://"), producer_name="shop", batching_enabled=True,
            batching_max_publish_delay_ms=60_000, batching_max_messages=3,
        )  # fmt: skip
        for number in range(1, 4):
            properties = {"n": str(number)}
            value = b"value %d" % number
            producer.send_async(value, lambda _, own: found.append(own), sequence_id=number, properties=properties)
        producer.flush()
    finally:
        client.close()
    return found


def test_messages_and_their_ids(rest: httpx.Client, messages: list[pulsar.MessageId]) -> None:
    """As clients have them: the batch by its id, and its messages one by one."""
    rest.headers.update(bearer("root"))
    ledger, entry = messages[0].ledger_id(), messages[0].entry_id()
    found = rest.get(f"{READABLE}/ledger/{ledger}/entry/{entry}")
    assert (found.status_code, found.headers["x-pulsar-num-batch-message"]) == (200, "3")
    assert all(b"value %d" % number in found.content for number in (1, 2, 3))
    assert rest.get(f"{READABLE}/ledger/{ledger}/entry/{entry + 50}").status_code == 404
    for never in (0, ledger + 1_000, (1 << 63) - 1):
        assert rest.get(f"{READABLE}/ledger/{never}/entry/0").status_code == 404, never
    rest.put(f"{READABLE}/subscription/s", json={"ledgerId": -1, "entryId": -1}).raise_for_status()
    for number in (1, 2, 3):
        peeked = rest.get(f"{READABLE}/subscription/s/position/{number}")
        properties = dict(peeked.headers.raw)[b"X-Pulsar-PROPERTY"]  # in this case, also behind the server
        assert (peeked.content, properties) == (b"value %d" % number, b'{"n": "%d"}' % number)
        assert peeked.headers["x-pulsar-message-id"] == f"{ledger}:{entry}:{number - 1}"
        examined = rest.get(f"{READABLE}/examinemessage?initialPosition=earliest&messagePosition={number}")
        assert examined.content == peeked.content
    assert rest.get(f"{READABLE}/examinemessage").content == b"value 3"
    assert rest.get(f"{READABLE}/subscription/s/position/4").status_code == 404
    last = rest.get(f"{READABLE}/lastMessageId").json()
    assert [last[name] for name in ("ledgerId", "entryId", "batchIndex")] == [ledger, entry, 2]
    stored_at = rest.get(f"{READABLE}/messageid/0").json()
    assert (stored_at["ledgerId"], stored_at["entryId"]) == (ledger, entry)
    later = rest.get(f"{READABLE}/messageid/{1 << 52}").json()
    assert (later["ledgerId"], later["entryId"]) == (ledger, entry + 1)
    # Such a place is one for the other calls, too.
    rest.post(f"{READABLE}/subscription/s/resetcursor", json=later).raise_for_status()
    assert rest.get(f"{READABLE}/stats").json()["subscriptions"]["s"]["msgBacklog"] == 0
    rest.delete(READABLE).raise_for_status()
    assert rest.get(f"{READABLE}/ledger/{ledger}/entry/{entry}").status_code == 404


def test_rights_to_messages_and_schemas_are_those_of_clients(
    rest: httpx.Client, messages: list[pulsar.MessageId]
) -> None:
    """`consume` shows messages, `produce` stores schemas, each of both shows them."""
    entry = f"{READABLE}/ledger/{messages[0].ledger_id()}/entry/{messages[0].entry_id()}"
    rest.put(f"{READABLE}/subscription/s", headers=bearer("root")).raise_for_status()
    rest.post(f"{READABLE}/subscription/s/resetcursor/0", headers=bearer("root")).raise_for_status()
    reads = [entry, *(f"{READABLE}/{path}" for path in ("lastMessageId", "examinemessage", "messageid/0"))]
    reads.append(f"{READABLE}/subscription/s/position/1")
    for role, status in (("billing", 200), ("importer", 403), ("stranger", 403)):
        answers = {path: rest.get(path, headers=bearer(role)).status_code for path in reads}
        assert answers == dict.fromkeys(reads, status), role
    assert {rest.get(path).status_code for path in (*reads, SCHEMA)} == {401}
    assert rest.post(SCHEMA, json=AVRO, headers=bearer("billing")).status_code == 403
    assert rest.post(SCHEMA, json=AVRO, headers=bearer("importer")).json() == {"version": {"version": 0}}
    shown = {role: rest.get(SCHEMA, headers=bearer(role)).status_code for role in ("billing", "importer", "stranger")}
    assert shown == {"billing": 200, "importer": 200, "stranger": 403}
    rest.delete(READABLE, headers=bearer("root")).raise_for_status()


def test_schema_of_rest_is_that_of_clients(rest: httpx.Client, rest_door: DoorProgram) -> None:
    """One that was uploaded is the one of a producer, and of a client that looks it up over HTTP."""
    rest.headers.update(bearer("root"))
    assert rest.post(SCHEMA, json=AVRO).status_code == 404  # there is no topic
    rest.put(READABLE).raise_for_status()
    of_json = JsonSchema(Order)
    definition = of_json.schema_info().schema()
    for version, text in enumerate((AVRO["schema"], definition)):
        answer = rest.post(SCHEMA, json={"type": "JSON", "schema": text})
        assert answer.json() == {"version": {"version": version}}
    url = f"http://{rest_door.serving['http']}"
    client = pulsar.Client(url, authentication=pulsar.AuthenticationToken(token_of("root")))
    try:
        topic = READABLE.replace("/admin/v2/persistent/", "persistent://")
        client.create_producer(topic, schema=of_json).send(Order(customer="ada"))
        reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=of_json)
        message = reader.read_next(timeout_millis=30_000)
    finally:
        client.close()
    assert message.schema_version().encode() == (1).to_bytes(8, "big")
    found = rest.get(f"{SCHEMA}s").json()["getSchemaResponses"]
    assert [each["data"] for each in found] == [AVRO["schema"], definition]
    assert 0 < found[0]["timestamp"] <= found[1]["timestamp"] <= message.publish_timestamp()
    rest.delete(READABLE).raise_for_status()

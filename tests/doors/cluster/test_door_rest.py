"""The REST port of a door process: rights are those of the caller, and clients that look topics up over HTTP."""

import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pulsar
import pytest

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

"""The HTTP publisher: it repeats a key until an answer is final. And when it is left out."""

import asyncio
from collections.abc import Sequence

import pytest

from oncelog_lab.access import ClusterAccess, RestAnswer
from oncelog_lab.acknowledgements import AckRecord, SendFate
from oncelog_lab.workload.http_publisher import HttpPublisher, publish_path, why_no_http
from oncelog_lab.workload.publishers import ClientSetup
from tests.contract.rest.http_answers import HttpAnswers

TOPIC = "public/chaos/t-1"


async def fates(statuses: Sequence[int], *, messages: int) -> tuple[list[int], list[str]]:
    """Run it against a server with these answers. Returns the fate of each message, and the keys of all requests."""
    record = AckRecord()
    async with HttpAnswers(statuses) as server:
        access = ClusterAccess("oncelog://127.0.0.1:1", server.url)
        publisher = HttpPublisher("http-1", ClientSetup(TOPIC, access, record, lambda *_, **__: None, 1))
        server.when_exhausted = publisher.stopping.set
        async with asyncio.timeout(60):
            await publisher.run()
    return list(record.fates["http-1"][1 : messages + 1]), server.keys


@pytest.mark.asyncio
async def test_request_is_repeated_with_its_key_until_an_answer_is_final() -> None:
    """In progress, unavailable, an error on the way: the message may be stored."""
    found, keys = await fates([409, 503, 500, 200, 200], messages=2)
    assert found == [SendFate.ACKNOWLEDGED, SendFate.ACKNOWLEDGED]
    assert keys == [f"{TOPIC}:http-1:1"] * 4 + [f"{TOPIC}:http-1:2"]


@pytest.mark.asyncio
async def test_refusal_is_final() -> None:
    """The publisher continues with the next message."""
    found, keys = await fates([422, 200], messages=2)
    assert found == [SendFate.REFUSED, SendFate.ACKNOWLEDGED]
    assert len(set(keys)) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("status", "reason"), [(200, None), (404, "no HTTP publishing"), (405, "no HTTP publishing"), (503, "answers 503")]
)
async def test_cluster_without_http_publishing_is_detected(status: int, reason: str | None) -> None:
    """The workload then runs without this publisher and reports why."""
    async with HttpAnswers([status]) as server:
        rest = ClusterAccess("oncelog://127.0.0.1:1", server.url).rest()
        answer = await why_no_http(rest, TOPIC, "key", b"value")
        await rest.close()
    assert answer is None if reason is None else reason in str(answer)
    assert server.paths == [publish_path(TOPIC)]


@pytest.mark.asyncio
async def test_failure_of_the_network_is_an_answer() -> None:
    """FaultResults are meant to happen: nothing of the network's is raised."""
    rest = ClusterAccess("oncelog://127.0.0.1:1", "http://127.0.0.1:1").rest()
    answer = await rest.call("GET", "/x")
    await rest.close()
    assert answer.status == 0
    assert not answer.ok
    assert RestAnswer(503, {"detail": "keys are not served"}).detail == "keys are not served"

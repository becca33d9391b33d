"""The workload's HTTP publisher: one key until an answer decides, then the next; and when it is left out."""

import asyncio
from collections.abc import Sequence

import pytest

from oncelog.lab.chaos.access import Access, RestAnswer
from oncelog.lab.chaos.checker import Fate
from oncelog.lab.chaos.http_publisher import HttpPublisher, publish_path, why_no_http
from oncelog.lab.chaos.report_lines import Record
from tests.contract.http_answers import HttpAnswers

TOPIC = "public/chaos/t-1"


async def fates(statuses: Sequence[int], *, messages: int) -> tuple[list[int], list[str]]:
    """Run it against a server that answers so; returns each message's fate, and the keys of all requests."""
    record, said = Record(), list[str]()
    async with HttpAnswers(statuses) as server:
        access = Access("oncelog://127.0.0.1:1", server.url)
        publisher = HttpPublisher("http-1", TOPIC, access, record, lambda event, **_: said.append(event), 1)
        server.when_exhausted = publisher.stopping.set
        async with asyncio.timeout(20):
            await publisher.run()
    return list(record.promises.fates["http-1"][1 : messages + 1]), server.keys


@pytest.mark.asyncio
async def test_undecided_answers_are_repeated_under_the_same_key() -> None:
    """In progress, unavailable, an error on the way: none of them says that it is not stored."""
    found, keys = await fates([409, 503, 500, 200, 200], messages=2)
    assert found == [Fate.STORED, Fate.STORED]
    assert keys == [f"{TOPIC}:http-1:1"] * 4 + [f"{TOPIC}:http-1:2"]


@pytest.mark.asyncio
async def test_refusal_is_final() -> None:
    """It goes on with the next one, and what was refused must not be in the log."""
    found, keys = await fates([422, 200], messages=2)
    assert found == [Fate.FAILED, Fate.STORED]
    assert len(set(keys)) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("status", "reason"), [(200, None), (404, "no HTTP publishing"), (405, "no HTTP publishing"), (503, "answers 503")]
)
async def test_cluster_without_http_publishing_is_noticed(status: int, reason: str | None) -> None:
    """Then the workload goes without, and says why."""
    async with HttpAnswers([status]) as server:
        rest = Access("oncelog://127.0.0.1:1", server.url).rest()
        answer = await why_no_http(rest, TOPIC, "key", b"value")
        await rest.close()
    assert answer is None if reason is None else reason in str(answer)
    assert server.paths == [publish_path(TOPIC)]


@pytest.mark.asyncio
async def test_what_is_not_reached_is_an_answer() -> None:
    """Faults are meant to happen: nothing of the network's is raised."""
    rest = Access("oncelog://127.0.0.1:1", "http://127.0.0.1:1").rest()
    answer = await rest.call("GET", "/x")
    await rest.close()
    assert answer.status == 0
    assert not answer.ok
    assert RestAnswer(503, {"detail": "keys are not served"}).detail == "keys are not served"

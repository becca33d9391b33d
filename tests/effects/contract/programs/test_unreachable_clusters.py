"""Programs whose cluster cannot be reached say what they wait for, or end with an error that names it."""

import asyncio
from collections.abc import Coroutine

import httpx
import pytest
from typer.testing import CliRunner

import oncelog
from oncelog.cli.app import app
from oncelog.client.network.backoff import WAITING_TOLD_AFTER_S, WAITING_TOLD_EVERY_S, WaitingReport
from oncelog.core.access import Caller
from oncelog.core.errors import DeadlineExceeded, ServiceUnavailable
from oncelog.core.names import parse_topic
from oncelog.rpc.codecs.metadata_codec import LOOKUP
from oncelog.rpc.server import Server
from oncelog.wire.metadata_pb2 import LookupAnswer, LookupRequest
from oncelog_effects import TopicEffects
from oncelog_effects.cli.mirror.health import observed
from oncelog_effects.mirror.mirror import Mirror
from oncelog_effects.mirror.topics import Choice
from oncelog_effects.processes import Process, run_processes
from tests.cluster.until import until
from tests.contract.storage_client.ledger_world import DEADLINE_S, scripted

#: Nothing listens there.
NOWHERE = "oncelog://127.0.0.1:1"
#: For the answer of the cluster that is reached, too.
REACHED_S = 5.0


def add_topics(server: Server) -> None:
    async def look_up(request: LookupRequest, _caller: Caller) -> LookupAnswer:
        return LookupAnswer(cluster_id="a", topic_id=request.topic, owner_address="127.0.0.1:1")

    server.client_unary(LOOKUP, look_up)


@pytest.mark.asyncio
async def test_copy_of_what_is_there_names_the_target_that_cannot_be_reached() -> None:
    async with (
        scripted(add_topics) as address,
        await oncelog.connect(f"oncelog://{address}") as source,
        await oncelog.connect(NOWHERE) as target,
    ):
        mirror = Mirror(source, target, Choice((parse_topic("orders"),)))
        with pytest.raises(ExceptionGroup) as raised:
            await asyncio.wait_for(mirror.run_once(timeout=REACHED_S), DEADLINE_S)
    (error,) = raised.value.exceptions
    assert isinstance(error, DeadlineExceeded)
    told = "the topic public/default/orders in the target cluster (--to): no answer within 5000 ms"
    assert told in error.message
    assert "127.0.0.1:1" in error.message


@pytest.mark.asyncio
async def test_mirror_that_waits_for_a_cluster_is_not_ready() -> None:
    """From its start on, and it says which one. One that has no answer from its target yet is not ready either."""
    async with (
        scripted(add_topics) as address,
        await oncelog.connect(f"oncelog://{address}") as source,
        await oncelog.connect(NOWHERE) as target,
    ):
        mirror = Mirror(source, target, Choice((parse_topic("orders"),)))

        async def reasons(port: int) -> str:
            async with httpx.AsyncClient(verify=False) as http:
                answer = await http.get(f"http://127.0.0.1:{port}/readyz")
            assert answer.status_code == 503
            return str(answer.json()["reasons"]["topics"])

        async with observed(mirror, "127.0.0.1", 0) as port:
            assert "in the target cluster (--to): it was not asked yet" in await reasons(port)
            work = asyncio.ensure_future(mirror.run())
            told = "the id of the cluster in the target cluster (--to): no answer within"

            async def is_told() -> bool:
                return told in await reasons(port)

            await until(is_told, DEADLINE_S, every_s=0.1)
            assert "public/default/orders: it waits for the number of its partitions" in await reasons(port)
            work.cancel()
            await asyncio.wait([work])


@pytest.mark.parametrize("choice", [["--topic", "orders"], ["--namespace", "public/default"]])
def test_mirror_once_ends_with_its_exit_code_and_names_the_source(choice: list[str]) -> None:
    words = ["mirror", "--from", NOWHERE, "--to", "oncelog://127.0.0.1:2", "--once", "--timeout", "0.5", *choice]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 4, done.output
    assert "public/default" in done.output
    assert "in the source cluster (--from): no answer within 500 ms" in done.output
    assert "127.0.0.1:1" in done.output


@pytest.mark.asyncio
async def test_what_a_program_waits_for_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Of a mirror without --once, and of a function that `oncelog run` runs."""

    async def told(work: Coroutine[object, object, None], text: str) -> None:
        task = asyncio.ensure_future(work)
        await until(lambda: text in caplog.text, DEADLINE_S, waiting_for=text)
        task.cancel()
        await asyncio.wait([task])
        assert "127.0.0.1:1" in caplog.text
        caplog.clear()

    async with await oncelog.connect(NOWHERE) as client:
        mirror = Mirror(client, client, Choice((parse_topic("orders"),)))
        where = "in the source cluster (--from)"
        await told(mirror.run(), f"still waiting for the topic public/default/orders {where}")
        process = Process(lambda _: None, "orders", subscription="billing", effects=TopicEffects(["out"]))
        await told(run_processes(client, [process]), "still waiting for the topic public/default/orders")


def test_wait_is_told_once_and_then_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """An owner that moves takes less than a second, and is not worth a warning."""
    report = WaitingReport("the topic", 100.0)
    first = 100.0 + WAITING_TOLD_AFTER_S
    for now_s in (100.1, first, first + 1, first + WAITING_TOLD_EVERY_S - 1, first + WAITING_TOLD_EVERY_S):
        report.failed(ServiceUnavailable(f"at {now_s:.1f}"), now_s)
    assert [record.getMessage() for record in caplog.records] == [
        f"still waiting for the topic: at {now_s:.1f}" for now_s in (first, first + WAITING_TOLD_EVERY_S)
    ]


def test_wait_with_a_time_limit_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Its error says the rest."""
    report = WaitingReport("the topic", 100.0, 30.0)
    for now_s in (101.0, 102.9, 103.2, 104.0, 129.0):
        report.failed(ServiceUnavailable("refused"), now_s)
    (record,) = caplog.records
    assert record.getMessage() == "still waiting for the topic, for another 27 s: refused"

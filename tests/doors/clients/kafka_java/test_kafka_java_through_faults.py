"""Java's client of Kafka and two tools of Kafka publish through lost answers and kills: each line once, in order."""

import subprocess
from pathlib import Path
from signal import SIGTERM

import pytest

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.conftest import client
from tests.cluster.programs import running
from tests.cluster.until import until
from tests.doors.clients.kafka_java.java_kafka import VERSIONS, JavaKafka
from tests.doors.clients.kafka_lines import PROGRAM_S
from tests.doors.clients.kafka_programs import Options
from tests.doors.clients.kafka_through_kills import (
    LINES,
    ends,
    followed,
    kill_each,
    lose_answers,
    publish_through_kills,
    shared_kafka_cluster,
    values,
    writes_to,
)

__all__ = ["client", "shared_kafka_cluster"]

pytestmark = pytest.mark.asyncio

#: Small batches, so that many are in flight.
SMALL: Options = {"batch.size": 500, "linger.ms": 1}
#: The tools give up after a few attempts unless these options say otherwise.
PATIENT: Options = {**SMALL, "retries": 2**31 - 1, "request.timeout.ms": 30_000, "enable.idempotence": "true"}


@pytest.fixture(scope="module", params=VERSIONS)
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> JavaKafka:
    return JavaKafka(request.param, tmp_path_factory.mktemp("classes"), tmp_path_factory.mktemp("given"))


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> JavaKafka:
    return JavaKafka("4.4", tmp_path_factory.mktemp("classes"), tmp_path_factory.mktemp("given"))


@pytest.mark.hazard("late-answer")
async def test_answers_that_are_lost_store_nothing_twice(
    cluster: Cluster, client: oncelog.AsyncClient, java: JavaKafka
) -> None:
    await lose_answers(cluster, client, java, f"lossy-{id(java)}", SMALL)


async def test_producer_publishes_through_kills(
    cluster: Cluster, client: oncelog.AsyncClient, tools: JavaKafka, tmp_path: Path
) -> None:
    await publish_through_kills(cluster, client, tools, "producer", SMALL, tmp_path / "log")


async def test_console_producer_publishes_through_kills(
    cluster: Cluster, client: oncelog.AsyncClient, tools: JavaKafka, tmp_path: Path
) -> None:
    servers = str(cluster.status()["kafka_servers"])
    words = (
        "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", servers, "--topic", "console",
        "--command-config", tools.properties(servers, PATIENT),
    )  # fmt: skip
    async with (
        followed(client, "console") as found,
        running(tools.programs.start(tmp_path / "log", *words, stdin=subprocess.PIPE)) as run,
    ):
        lines = writes_to(run, lambda first, end: b"".join(line + b"\n" for line in LINES[first:end]))
        await kill_each(cluster, "console", found, lines)
        await ends(run)
    assert await values(client, "console") == LINES


async def test_verifiable_producer_publishes_through_kills(
    cluster: Cluster, client: oncelog.AsyncClient, tools: JavaKafka, tmp_path: Path
) -> None:
    """It sends numbers for as long as it runs."""
    servers = str(cluster.status()["kafka_servers"])
    words = (
        "org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", servers, "--topic", "verifiable",
        "--throughput", "500", "--command-config", tools.properties(servers, PATIENT),
    )  # fmt: skip
    async with (
        followed(client, "verifiable") as found,
        running(tools.programs.start(tmp_path / "log", *words)) as run,
    ):
        await kill_each(cluster, "verifiable", found, lambda first, end: None)
        run.signal(SIGTERM)
        await until(lambda: not run.runs(), PROGRAM_S, waiting_for="the end of the program")
    stored = await values(client, "verifiable")
    assert stored == [b"%d" % number for number in range(len(stored))]
    assert '"name":"producer_send_error"' not in run.text()
    assert run.text().count('"name":"producer_send_success"') == len(stored)

"""Java's client of Kafka and two tools of Kafka publish through lost answers and kills: each line once, in order."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from signal import SIGTERM

import pytest

import oncelog
from oncelog_doors.proof.kafka.proxy import KafkaProxy
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.conftest import client
from tests.cluster.kills import just_seen
from tests.cluster.loads import read_all
from tests.cluster.programs import Running, running
from tests.cluster.until import until
from tests.doors.clients.door_clusters import LASTING_MS, cluster_with_door
from tests.doors.clients.kafka_java.java_kafka import PROGRAM_S, VERSIONS, JavaKafka
from tests.doors.clients.kafka_programs import Message, Options

__all__ = ["client"]

pytestmark = pytest.mark.asyncio

LINES = [b"line %d" % number for number in range(6_000)]
#: Before each kill, and again below it.
LINES_EACH = 1_000
#: Small batches, so that many are in flight.
SMALL: Options = {"batch.size": 500, "linger.ms": 1}
#: The tools give up after a few attempts unless these options say otherwise.
PATIENT: Options = {**SMALL, "retries": 2**31 - 1, "request.timeout.ms": 30_000, "enable.idempotence": "true"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_with_door(tmp_path_factory.mktemp("cluster"), "kafka", session_timeout_ms=LASTING_MS) as own:
        yield own


@pytest.fixture(scope="module", params=VERSIONS)
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> JavaKafka:
    return JavaKafka(request.param, tmp_path_factory.mktemp("classes"), tmp_path_factory.mktemp("given"))


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> JavaKafka:
    return JavaKafka("4.4", tmp_path_factory.mktemp("classes"), tmp_path_factory.mktemp("given"))


async def values(client: oncelog.AsyncClient, topic: str) -> list[bytes]:
    return [bytes(each.value) for each in await read_all(client, topic)]


@pytest.mark.hazard("late-answer")
async def test_answers_that_are_lost_store_nothing_twice(
    cluster: Cluster, client: oncelog.AsyncClient, java: JavaKafka
) -> None:
    """The client sends the same batch again on another connection, and the log finds it as the same bytes."""
    direct = str(cluster.status()["kafka_servers"])
    messages, topic = [Message(line) for line in LINES[:1_000]], f"lossy-{id(java)}"
    async with KafkaProxy.running(lambda: int(direct.rpartition(":")[2])) as proxy:
        proxy.lost["Produce answer"] = range(0, 20, 3)
        offsets = await asyncio.to_thread(java.publish, f"127.0.0.1:{proxy.port}", topic, messages, SMALL)
        assert proxy.seen["Produce answer"] > 20
    assert offsets == list(range(len(messages)))
    assert await values(client, topic) == LINES[:1_000]


@asynccontextmanager
async def followed(client: oncelog.AsyncClient, topic: str) -> AsyncIterator[list[bytes]]:
    """A new topic, and the values in it: more of them come while the block runs."""
    async with await client.create_producer(topic):
        pass
    found: list[bytes] = []

    async def follow(reader: oncelog.AsyncReader) -> None:
        while True:
            found.append(bytes((await reader.read_next()).value))

    async with await client.create_reader(topic, start=oncelog.EARLIEST) as reader:
        following = asyncio.create_task(follow(reader))
        try:
            yield found
        finally:
            following.cancel()
            await asyncio.wait([following])


def _has(found: Sequence[bytes], count: int) -> bool:
    return len(found) >= count


async def kill_each(cluster: Cluster, topic: str, found: Sequence[bytes], give: Callable[[int, int], None]) -> None:
    """Kill the door, the owner and a storage node. give: lines from the first number to the second one."""
    at = 0
    for which in ("door-1", await cluster.owner_of(topic), "storage-1"):
        give(at, at + LINES_EACH)
        await until(partial(_has, found, at + LINES_EACH // 3), 2 * DEADLINE_S, waiting_for=f"the lines behind {at}")
        give(at + LINES_EACH, at + 2 * LINES_EACH)
        at += 2 * LINES_EACH
        await cluster.kill(which, once=just_seen)
        await cluster.healed()


def writes_to(run: Running, words: Callable[[int, int], bytes]) -> Callable[[int, int], None]:
    """What is given to a program goes to its standard input."""

    def give(first: int, end: int) -> None:
        assert run.process.stdin is not None
        run.process.stdin.write(words(first, end))
        run.process.stdin.flush()

    return give


async def ends(run: Running) -> str:
    """Without more lines. Returns what the program has written."""
    assert run.process.stdin is not None
    run.process.stdin.close()
    await until(lambda: not run.runs(), PROGRAM_S, waiting_for="the end of the program")
    return await run.ends()


async def test_producer_publishes_through_kills(
    cluster: Cluster, client: oncelog.AsyncClient, tools: JavaKafka, tmp_path: Path
) -> None:
    """Its offsets are those of the lines."""
    servers, records = str(cluster.status()["kafka_servers"]), tools.records([Message(line) for line in LINES])
    words = ("Publish", records, tools.properties(servers, SMALL), "producer")
    async with (
        followed(client, "producer") as found,
        running(tools.programs.start(tmp_path / "log", *words, stdin=subprocess.PIPE)) as run,
    ):
        await kill_each(cluster, "producer", found, writes_to(run, lambda _, end: b"%d\n" % end))
        written = (await ends(run)).splitlines()
    answers = [line for line in written if line[:1].isdigit()]
    assert answers == [f"{offset + 1} {offset}" for offset in range(len(LINES))]
    assert await values(client, "producer") == LINES


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

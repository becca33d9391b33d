"""Programs with clients of Kafka publish lines through lost answers, and through kills of all that is between them and
the disks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

import oncelog
from oncelog_doors.proof.kafka.proxy import KafkaProxy
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.kills import just_seen
from tests.cluster.loads import read_all
from tests.cluster.programs import Running, running
from tests.cluster.until import until
from tests.doors.clients.door_clusters import LASTING_MS, cluster_with_door
from tests.doors.clients.kafka_lines import PROGRAM_S, KafkaPrograms
from tests.doors.clients.kafka_programs import Message, Options

LINES = [b"line %d" % number for number in range(6_000)]
#: Before each kill, and again below it.
LINES_EACH = 1_000


@pytest.fixture(name="cluster", scope="module")
def shared_kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests of a file, in which no session ends."""
    with cluster_with_door(tmp_path_factory.mktemp("cluster"), "kafka", session_timeout_ms=LASTING_MS) as own:
        yield own


async def values(client: oncelog.AsyncClient, topic: str) -> list[bytes]:
    return [bytes(each.value) for each in await read_all(client, topic)]


async def lose_answers(
    cluster: Cluster, client: oncelog.AsyncClient, programs: KafkaPrograms, topic: str, options: Options
) -> None:
    """The client sends the same batch again on another connection, and the log finds it as the same bytes. options: for
    small batches."""
    direct = str(cluster.status()["kafka_servers"])
    lines = LINES[:LINES_EACH]
    async with KafkaProxy.running(lambda: int(direct.rpartition(":")[2])) as proxy:
        proxy.lost["Produce answer"] = range(0, 20, 3)
        servers, messages = f"127.0.0.1:{proxy.port}", [Message(line) for line in lines]
        offsets = await asyncio.to_thread(programs.publish, servers, topic, messages, options)
        assert proxy.seen["Produce answer"] > 20
    assert offsets == list(range(len(lines)))
    assert await values(client, topic) == lines


async def publish_through_kills(
    cluster: Cluster, client: oncelog.AsyncClient, programs: KafkaPrograms, topic: str, options: Options, log: Path
) -> None:
    """The offsets that the client learns are those of the lines. options: for small batches."""
    servers, records = str(cluster.status()["kafka_servers"]), programs.records([Message(line) for line in LINES])
    words = ("Publish", records, programs.properties(servers, options), topic)
    async with followed(client, topic) as found, running(programs.start(log, *words)) as run:
        await kill_each(cluster, topic, found, writes_to(run, lambda _, end: b"%d\n" % end))
        written = (await ends(run)).splitlines()
    answers = [line for line in written if line[:1].isdigit()]
    assert answers == [f"{offset + 1} {offset}" for offset in range(len(LINES))]
    assert await values(client, topic) == LINES


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


def has(found: Sequence[bytes], count: int) -> bool:
    return len(found) >= count


async def kill_each(cluster: Cluster, topic: str, found: Sequence[bytes], give: Callable[[int, int], None]) -> None:
    """Kill the door, the owner and a storage node. give: lines from the first number to the second one."""
    at = 0
    for which in ("door-1", await cluster.owner_of(topic), "storage-1"):
        give(at, at + LINES_EACH)
        await until(partial(has, found, at + LINES_EACH // 3), 2 * DEADLINE_S, waiting_for=f"the lines behind {at}")
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

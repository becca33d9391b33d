"""Programs with Java clients of Pulsar in front of a door: the examples of its article on effectively-once and of
PIP-6 as they stand there, with the API of the first versions, and a program with today's client."""

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from zlib import crc32

import pytest

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.conftest import client
from tests.cluster.loads import read_all
from tests.cluster.programs import Running, running
from tests.doors.clients.door_clusters import cluster_with_door
from tests.doors.clients.java.java_programs import HERE, JavaPrograms

__all__ = ["client", "cluster"]

TOPIC = "persistent://public/default/{}"
#: Of the article's producer. It sends one after another, so it is far from its end when it is killed.
RECORDS = 600
#: At which the reader and the producer are killed.
READ, SENT = 50, 100


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_with_door(tmp_path_factory.mktemp("java"), "pulsar", storage_nodes=1, owners=1) as own:
        yield own


@pytest.fixture(scope="module")
def first_api(tmp_path_factory: pytest.TempPathFactory) -> JavaPrograms:
    return JavaPrograms.compiled(HERE / "client_1x/pom.xml", tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def todays_client(tmp_path_factory: pytest.TempPathFactory) -> JavaPrograms:
    return JavaPrograms.compiled(HERE / "client_4/pom.xml", tmp_path_factory.mktemp("classes"))


def lines_of(program: Running) -> list[str]:
    """Without what its client logs."""
    return [line for line in program.text().splitlines() if not line.startswith("[")]


def numbers_of(program: Running) -> list[int]:
    return [int(line) for line in lines_of(program) if line.isdigit()]


@pytest.mark.asyncio
async def test_article_publishes_and_processes_each_record_once(
    cluster: Cluster, client: oncelog.AsyncClient, first_api: JavaPrograms, tmp_path: Path
) -> None:
    """Its producer and its reader are killed in the middle, and started again."""
    topic, url = TOPIC.format("article"), cluster.status()["pulsar_url"]
    records = [b"record %d" % number for number in range(RECORDS)]
    source, database = tmp_path / "records", tmp_path / "database"
    source.write_bytes(b"".join(record + b"\n" for record in records))

    def program(name: str, run: int, *arguments: str) -> Running:
        return first_api.start(tmp_path / f"{name}-{run}.log", name, url, topic, *arguments)

    async with running(program("ArticleProducer", 1, str(source))) as first:
        await first.says("begins at")
        async with running(program("ArticleReader", 1, str(database), str(RECORDS))) as reader:
            await first.kill(once=lambda: len(numbers_of(first)) >= SENT)
            await reader.kill(once=lambda: len(numbers_of(reader)) >= READ)
    async with running(program("ArticleProducer", 2, str(source))) as second:
        begins = int((await second.says("begins at")).split()[-1])
        assert begins >= numbers_of(first)[-1] > 0
        await second.ends()
        assert lines_of(second)[-1] == "done"
    assert [(each.producer_name, each.sequence_id, bytes(each.value)) for each in await read_all(client, topic)] == [
        ("my-producer-name", offset, record) for offset, record in zip(offsets(records), records, strict=True)
    ]
    async with running(program("ArticleReader", 2, str(database), str(RECORDS))) as reader:
        await reader.ends()
    _, count, total = database.read_text().split()
    assert (int(count), int(total)) == (RECORDS, sum(map(crc32, records)))


def offsets(records: list[bytes]) -> list[int]:
    """Of the lines in the file."""
    return [0, *accumulate(len(record) + 1 for record in records)][:-1]


@pytest.mark.asyncio
async def test_calls_of_pip_6(
    cluster: Cluster, client: oncelog.AsyncClient, first_api: JavaPrograms, tmp_path: Path
) -> None:
    """An initial id, ids with holes, one that comes twice, what the next instance learns, and an assigned name."""
    topic = TOPIC.format("pip-6")
    async with running(first_api.start(tmp_path / "log", "Pip6", cluster.status()["pulsar_url"], topic)) as program:
        await program.ends()
    assert lines_of(program) == ["last 40", "last 41", "last 1000", "last 1000", "assigned true"]
    assert [(each.sequence_id, bytes(each.value)) for each in await read_all(client, topic)] == [
        (41, b"initial"),
        (100, b"id 100"),
        (107, b"id 107"),
        (1000, b"id 1000"),
    ]


@pytest.mark.asyncio
async def test_what_a_program_with_todays_client_sees(
    cluster: Cluster, client: oncelog.AsyncClient, todays_client: JavaPrograms, tmp_path: Path
) -> None:
    """Stale ids and other content are refused, each alone; a reader that starts at any id of a send misses nothing."""
    topic, url = TOPIC.format("modern"), cluster.status()["pulsar_url"]
    async with running(todays_client.start(tmp_path / "log", "ModernClient", url, topic)) as program:
        await program.ends()
    places = {2: 0, 3: 1, 5: 2, 7: 3, 11: 0, 13: 1, 17: -1, 19: -1}
    behind = [" ".join(map(str, [*places][at:])) for at in range(len(places) + 1)]
    stored = [f"stored {number} at {index}" for number, index in places.items()]
    assert [line.rstrip() for line in lines_of(program)] == [
        "last -1",
        *stored[:7],
        "the first copy's id true",
        "4 NotAllowedException",
        "17 NotAllowedException",
        *stored[7:],
        "last 19",
        "last 19",
        *(
            line
            for at, number in enumerate(places)
            for line in (f"behind {number} {behind[at + 1]}".rstrip(), f"from {number} {behind[at]}")
        ),
        f"all {behind[0]}",
        "none",
    ]
    assert [(each.sequence_id, bytes(each.value)) for each in await read_all(client, topic)] == [
        (number, b"%d" % number) for number in places
    ]

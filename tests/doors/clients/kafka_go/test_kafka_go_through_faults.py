"""Go's clients of Kafka publish and consume through lost answers and kills."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.conftest import client
from tests.doors.clients.door_clusters import servers
from tests.doors.clients.groups.members import Members
from tests.doors.clients.groups.rounds import commit_through_kills
from tests.doors.clients.kafka_go.go_kafka import IDEMPOTENT, GoKafka, build
from tests.doors.clients.kafka_programs import Options
from tests.doors.clients.kafka_through_kills import lose_answers, publish_through_kills, shared_kafka_cluster

__all__ = ["client", "servers", "shared_kafka_cluster"]

pytestmark = pytest.mark.asyncio

#: Small batches, so that many are in flight: each library has one of these options.
SMALL: Options = {"batch.size": 512, "batch.num.messages": 20}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("go"))


@pytest.fixture(params=IDEMPOTENT)
def go(program: str, request: pytest.FixtureRequest, tmp_path: Path) -> GoKafka:
    return GoKafka(program, request.param, tmp_path)


@pytest.fixture
def members(program: str, tmp_path: Path, servers: str) -> Iterator[Members]:
    programs = {library: [program, library, "member"] for library in IDEMPOTENT}
    with Members.of(tmp_path, servers, programs) as own:
        yield own


@pytest.mark.hazard("late-answer")
async def test_answers_that_are_lost_store_nothing_twice(
    cluster: Cluster, client: oncelog.AsyncClient, go: GoKafka
) -> None:
    await lose_answers(cluster, client, go, f"lossy-{go.library}", SMALL)


async def test_producer_publishes_through_kills(
    cluster: Cluster, client: oncelog.AsyncClient, go: GoKafka, tmp_path: Path
) -> None:
    await publish_through_kills(cluster, client, go, f"killed-{go.library}", SMALL, tmp_path / "log")


@pytest.mark.parametrize("library", IDEMPOTENT)
async def test_commits_survive_kills_of_owners_and_of_the_door(
    cluster: Cluster, servers: str, members: Members, library: str
) -> None:
    await commit_through_kills(cluster, servers, members, library, f"group-{library}")

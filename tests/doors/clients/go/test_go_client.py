"""Programs with Pulsar's Go client in front of a door. The go command fetches and builds it."""

from pathlib import Path

import pytest

import oncelog
from oncelog.runtime.orphan_guard import guarded
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.commands import environment
from tests.cluster.conftest import client
from tests.cluster.loads import read_all
from tests.cluster.programs import running, started
from tests.doors.clients.door_clusters import lasting_pulsar_cluster
from tests.doors.clients.file_publisher import Publisher, publish_through_kills
from tests.doors.clients.go_programs import built

__all__ = ["client", "lasting_pulsar_cluster"]

PROGRAMS = Path(__file__).parent / "programs"
#: What Go has fetched and built is kept there.
KEPT = PROGRAMS.parents[4] / "build/pulsar_clients"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return built(PROGRAMS, KEPT, tmp_path_factory.mktemp("go"))


@pytest.mark.asyncio
async def test_what_a_program_sees(
    cluster: Cluster, client: oncelog.AsyncClient, programs: str, tmp_path: Path
) -> None:
    """Stale ids and other content are refused, each alone; a reader that starts at any id of a send misses nothing.

    In a new process the library says -1 for the last sequence id, whatever the door says."""
    topic, url = "persistent://public/default/modern", cluster.status()["pulsar_url"]
    command = guarded([programs, "modern", url, topic])
    async with running(started(tmp_path / "program.log", command, environment(), tmp_path)) as program:
        await program.ends()
    places = {2: 0, 3: 1, 5: 2, 7: 3, 11: 0, 13: 1, 17: 0, 19: 0}
    behind = [" ".join(map(str, [*places][at:])) for at in range(len(places) + 1)]
    stored = [f"stored {number} at {index}" for number, index in places.items()]
    lines = [" ".join(line.split()) for line in program.text().splitlines() if not line.startswith("time=")]
    assert lines == [
        "last -1",
        *stored[:7],
        "the first copy's id true",
        "4 is refused",
        "17 is refused",
        *stored[7:],
        "last 19",
        "last -1",
        *(
            line
            for at, number in enumerate(places)
            for line in (f"behind {number} {behind[at + 1]}".rstrip(), f"from {number} {behind[at]}")
        ),
        f"all {behind[0]}",
        "none",
    ]
    assert [each.sequence_id for each in await read_all(client, topic)] == [*places]


@pytest.mark.asyncio
async def test_each_line_of_a_file_is_stored_once(
    cluster: Cluster, client: oncelog.AsyncClient, programs: str, tmp_path: Path
) -> None:
    publisher = Publisher(tmp_path, [programs, "publish"], cluster.status()["pulsar_url"], resumes=False)
    await publish_through_kills(cluster, client, publisher)

"""The processes of a comparison, with stand-ins for those of Kafka and Pulsar (`peer_fakes`).

That no process is left behind, also after an error, is checked after each test.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog_lab.bench.running import BenchStack
from oncelog_lab.failures import LabFailed
from oncelog_lab.peer_bench import comparison
from oncelog_lab.peer_bench.comparison import System, compare, measure, peers_rows, systems_of
from oncelog_lab.peer_bench.loads import Measured, PeerLoad, Program, python_program
from oncelog_lab.peer_bench.servers import claimed_ports, ended_well
from tests.cluster.until import until
from tests.lab import peer_fakes as fakes

START_S = 120.0
RUN_LINE = python_program("oncelog", (), PeerLoad.CALLBACKS, 1.0).line

_PRINT = """import json, sys
for figure in sys.argv[1:]:
    print(json.dumps({"run": [float(figure)]}), flush=True)
"""


def program(figures: Sequence[float], then: str = "import signal; signal.pause()") -> Program:
    """Prints these figures, and then waits."""
    return Program("the client", (sys.executable, "-c", _PRINT + then, *map(str, figures)), RUN_LINE)


@pytest.fixture
def systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[System]:
    """Kafka and Pulsar."""
    clients = tmp_path / "clients"
    monkeypatch.setenv("PYTHONPATH", fakes.python_clients(clients))
    monkeypatch.syspath_prepend(str(clients))
    monkeypatch.setenv("JAVA_HOME", str(fakes.java_home(tmp_path / "java")))
    kafka, pulsar = fakes.kafka_home(tmp_path / "kafka"), fakes.pulsar_home(tmp_path / "pulsar")
    return systems_of(kafka, pulsar, 0.01)[1:]


@pytest.mark.asyncio
async def test_client_runs_until_its_runs_are_enough() -> None:
    """It is killed then; more lines do not count."""
    found = await measure(program([1, 9, 9, 9, 2, 3, 4, 100, 100]))
    assert (found.warm_up, found.runs) == (((1,), (9,), (9,), (9,)), ((2,), (3,), (4,)))


@pytest.mark.asyncio
async def test_client_that_is_never_steady_has_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That of --warm-up-runs, on its way from the command to each client."""
    assert len((await measure(program([1, 2, 4, 8, 16, 32, 64, 128]), 4)).warm_up) == 4
    seen: list[int] = []

    async def seen_by(_: Program, warm_up_runs: int) -> Measured:
        seen.append(warm_up_runs)
        return Measured((), ((1.0,),), True)

    @asynccontextmanager
    async def served(_: Path) -> AsyncIterator[str]:
        yield "127.0.0.1:1"

    monkeypatch.setattr(comparison, "measure", seen_by)
    monkeypatch.setattr(comparison, "check_disk", lambda *_: None)
    only = System("Oncelog", "1", "", served, lambda *_: [program([])])
    stack = BenchStack(tmp_path, None, "")
    await peers_rows(stack, [only], [PeerLoad.LISTS], lambda _: None, 7)
    assert seen == [7, 7]


@pytest.mark.asyncio
async def test_client_that_runs_once_is_started_again() -> None:
    """As kafka-consumer-perf-test, which prints one figure."""
    assert set((await measure(program([7, 7], ""))).runs) == {(7,)}


@pytest.mark.asyncio
@pytest.mark.parametrize(("figures", "then"), [([], "print('no such topic')"), ([1], "sys.exit('no such topic')")])
async def test_client_that_fails_is_quoted(figures: list[float], then: str) -> None:
    """Without a figure, or with an exit code."""
    with pytest.raises(LabFailed, match=r"(?s)the client ended before its last figure; last lines:.*no such topic"):
        await measure(program(figures, then))


@pytest.mark.asyncio
async def test_command_that_fails_is_quoted() -> None:
    """As Kafka's formatting."""
    with pytest.raises(LabFailed, match=r"(?s)formatting failed with exit code 1.*no such directory"):
        await ended_well("formatting", (sys.executable, "-c", "import sys; sys.exit('no such directory')"))


@pytest.mark.asyncio
@pytest.mark.parametrize("load", [PeerLoad.CALLBACKS, PeerLoad.LATENCY])
async def test_both_orders_run_every_client(systems: list[System], load: PeerLoad, tmp_path: Path) -> None:
    """The servers start, the real client programs and the tools run against them, and all directories are deleted."""
    directory = tmp_path / "data"
    directory.mkdir()
    kafka = ["confluent-kafka", *(["kafka-producer-perf-test"] if load is PeerLoad.CALLBACKS else [])]
    pulsar = ["pulsar-client", "pulsar-perf"]
    cells = await compare(systems, [load], directory, lambda _: None)
    assert [cell.client for cell in cells] == [*kafka, *pulsar, *pulsar, *kafka]
    assert all(figure > 0 for cell in cells for run in cell.measured.runs for figure in run)
    assert list(directory.iterdir()) == []


@pytest.mark.asyncio
@pytest.mark.parametrize("load", [PeerLoad.READ_1K, PeerLoad.READ_BATCHES, PeerLoad.READ_OBJECTS, PeerLoad.LISTS])
@pytest.mark.parametrize("number", [0, 1])
async def test_client_program_runs_every_kind_of_load(
    systems: list[System], number: int, load: PeerLoad, tmp_path: Path
) -> None:
    """Both clients call what their library has; a full queue only delays Kafka's."""
    client = systems[number].programs(tmp_path, "127.0.0.1:1", load)[0]
    smaller = (*client.command[:-1], "1000" if client.command[-1] != "0" else "0")
    found = await measure(Program(client.client, smaller, client.line))
    assert all(figure > 0 for (figure,) in found.runs)


@pytest.mark.asyncio
async def test_server_that_ends_is_quoted(systems: list[System], tmp_path: Path) -> None:
    """For example because of a port. The other servers are ended."""
    (tmp_path / "kafka/libs/broken").touch()
    directory = tmp_path / "data"
    directory.mkdir()
    with pytest.raises(LabFailed, match=r"(?s)Kafka broker 3 has ended with exit code 1.*Address already in use"):
        await compare(systems[:1], [PeerLoad.CALLBACKS], directory, lambda _: None)
    assert list(directory.iterdir()) == []


@pytest.mark.asyncio
async def test_ctrl_c_ends_every_process(systems: list[System], tmp_path: Path) -> None:
    """It cancels the comparison, here after the first client, while the servers run."""
    directory = tmp_path / "data"
    directory.mkdir()
    lines: list[str] = []
    comparing = asyncio.create_task(compare(systems[:1], [PeerLoad.CALLBACKS], directory, lines.append))
    await until(lambda: len(lines) > 2 or comparing.done(), START_S, waiting_for="the first client")
    comparing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await comparing
    assert list(directory.iterdir()) == []


def test_ports_are_different_and_free() -> None:
    """Two runs on one machine do not meet."""
    with claimed_ports(4) as first, claimed_ports(4) as second:
        assert len({*first, *second}) == 8


def test_fakes_are_programs(tmp_path: Path) -> None:
    """A stand-in without the right to run would make every start fail."""
    assert os.access(fakes.java_home(tmp_path) / "bin/java", os.X_OK)

"""The standalone cluster as users run it: real processes, real ZooKeeper, real signals."""

import asyncio
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from oncelog.log_storage.directory import offline
from oncelog.log_storage.directory.directory_starts import read_written
from oncelog.testing.local_cluster import STOP_TIMEOUT_S
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.commands import COMMAND_TIMEOUT_S, command, environment
from tests.cluster.kills import alive, idle, kill_sync
from tests.cluster.until import until_sync

_DEADLINE_S = 60.0
SMALL_SETTINGS = {"ONCELOG_SEGMENT_BYTES": str(8 << 20), "ONCELOG_FREE_BYTES_MIN": str(64 << 20)}
SMALL = ("--storage-nodes", "1", "--owners", "1")
ONE_OF_EACH = {"storage_nodes": 1, "owners": 1}


def published(cluster: Cluster, *lines: str) -> None:
    done = cluster.run("produce", "t", "--stdin", given="".join(f"{line}\n" for line in lines).encode())
    assert done.returncode == 0, done.stderr


def stored(cluster: Cluster) -> list[str]:
    done = cluster.run("read", "t")
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().splitlines()


def first_kinds(data: Path) -> set[str]:
    """The kinds of the first entries of all ledgers, of a stopped cluster."""
    kinds: set[str] = set()
    for node in data.glob("storage-*"):
        for ledger in offline.inspect(node)["ledgers"]:
            (first,) = [each for each in offline.records_of(node, ledger["ledger_id"]) if each.get("entry_id") == 0]
            kinds.add(first["entry_kind"])
    return kinds


def program_of(pid: int) -> str:
    """The first word of its command line."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode()


def pids(cluster: Cluster) -> list[int]:
    return [process["pid"] for process in cluster.processes.values()]


def test_cluster_resumes_after_a_restart_and_after_a_killed_supervisor(tmp_path: Path) -> None:
    """--data holds the whole cluster: the same messages, and the same ports if they were configured. After kill -9 no
    process drains, and the remaining ones hold ports and directories: the next start waits until they end."""
    with Cluster.running(tmp_path, **ONE_OF_EACH) as cluster:
        published(cluster, "one", "two")
        addresses = cluster.url, cluster.admin_url
        ports = [int(address.rpartition(":")[2]) for address in addresses]
        cluster_id = cluster.serving("metadata-1", "cluster_id")
        assert cluster.stop() == 0
    assert "SIGTERM: draining" in cluster.supervisor_log
    assert first_kinds(cluster.data) == {"head_log", "head_snapshots"}
    with Cluster.running(tmp_path, **ONE_OF_EACH, port=ports[0], http_port=ports[1]) as again:
        assert (again.url, again.admin_url) == addresses
        assert again.serving("metadata-1", "cluster_id") == cluster_id
        assert stored(again) == ["one", "two"]
        published(again, "three")
        left = pids(again)
        assert len(left) == 4
        again.kill_supervisor(once=idle)
    with Cluster.running(tmp_path, **ONE_OF_EACH) as last:
        assert not any(map(alive, left))
        assert stored(last) == ["one", "two", "three"]
        (node,) = (last.data / "storage_nodes").read_text().split()
        told = httpx.get(f"http://{node}/directory", trust_env=False).json()
        assert told["cluster_id"] == cluster_id, "a restore finds the nodes where they are now"


def test_temporary_cluster_deletes_its_directory(tmp_path: Path) -> None:
    """Without --data everything is deleted at the end. Ctrl-C in a terminal is a normal end."""
    own = environment() | {"TMPDIR": str(tmp_path)}
    words = ("standalone", "--light", "--port", "0", "--http-port", "0")
    with subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=own, text=True
    ) as process:
        assert process.stdout is not None
        welcome = process.stdout.readline()
        assert welcome.startswith("oncelog is running"), process.communicate()
        assert [path.name.startswith("oncelog-") for path in tmp_path.iterdir()] == [True]
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_TIMEOUT_S) == 0
        said = process.stdout.read()
        assert "oncelog://127.0.0.1:" in said
        assert "ONE of each message" in said
        assert re.search(r"console +http://127\.0\.0\.1:\d+/console/\n", said)
    assert list(tmp_path.iterdir()) == []


def test_cluster_serves_although_neither_its_status_nor_its_addresses_can_be_written(tmp_path: Path) -> None:
    """As on a full disk, which also has the file that standard output goes to."""
    (tmp_path / "standalone.json").mkdir()
    words = ("standalone", "--light", "--port", "0", "--http-port", "0", "--data", str(tmp_path))
    with (
        Path("/dev/full").open("wb") as full,
        subprocess.Popen(command(*words), stdout=full, stderr=subprocess.PIPE, env=environment(), text=True) as process,
    ):
        assert process.stderr is not None
        said = [process.stderr.readline()]
        while said[-1] and "cannot print" not in said[-1]:
            said.append(process.stderr.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_TIMEOUT_S) == 0
        said += process.stderr
    file = tmp_path / "standalone.json"
    assert said.count(f"cannot write {file}, it is out of date: Is a directory: {file}\n") == 1
    assert f"cannot print the addresses, they are in {file}: No space left on device: standard output\n" in said
    assert "SIGINT: draining ...\n" in said


@pytest.mark.parametrize("data", ["orders.jsonl", "orders.jsonl/cluster"])
def test_file_in_place_of_the_directory_is_refused(tmp_path: Path, data: str) -> None:
    """With a message of one sentence, and the file is kept."""
    (tmp_path / "orders.jsonl").write_text("{}")
    words = ("standalone", *SMALL, "--data", str(tmp_path / data))
    done = subprocess.run(
        command(*words), capture_output=True, env=environment(), timeout=COMMAND_TIMEOUT_S, check=False, text=True
    )
    assert done.returncode == 1
    assert f"error: {tmp_path / data} cannot be a directory" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / "orders.jsonl").read_text() == "{}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For the tests below, in their order: the last ones kill processes of it."""
    with Cluster.running(tmp_path_factory.mktemp("standalone"), **ONE_OF_EACH) as own:
        yield own


def test_second_cluster_on_a_directory_is_refused(cluster: Cluster) -> None:
    """Two supervisors would restart each other's processes."""
    supervisor = cluster.supervisor_id
    words = ("standalone", *SMALL, "--port", "0", "--http-port", "0", "--data", str(cluster.data))
    done = subprocess.run(
        command(*words), capture_output=True, env=environment(), timeout=COMMAND_TIMEOUT_S, check=False, text=True
    )
    assert done.returncode == 1
    assert "another cluster is running in" in done.stderr
    assert cluster.supervisor_id == supervisor


@pytest.mark.parametrize(
    ("option", "variable", "sentence"),
    [
        ("--port", {}, "error: port {taken} of 127.0.0.1 cannot be used, because another program listens on it: name"),
        ("--http-port", {"ONCELOG_SEGMENT_BYTE": "1"}, "error: unknown setting ONCELOG_SEGMENT_BYTE; the nearest"),
    ],
)
def test_mistake_is_told_before_anything_starts(
    cluster: Cluster, tmp_path: Path, option: str, variable: dict[str, str], sentence: str
) -> None:
    """A port in use, a wrong setting: one sentence, and no process has run."""
    taken = cluster.url.rpartition(":")[2]
    ports = {"--port": "0", "--http-port": "0"} | {option: taken}
    words = (
        "standalone",
        *SMALL,
        *(word for pair in ports.items() for word in pair),
        "--data",
        str(tmp_path / "other"),
    )
    done = subprocess.run(
        command(*words),
        capture_output=True,
        env=environment() | variable,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(sentence.format(taken=taken))
    assert len(done.stderr.splitlines()) <= 2
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["lock"]


def test_killed_processes_are_restarted_and_reported(cluster: Cluster) -> None:
    """An owner, a metadata service and ZooKeeper are killed. The cluster continues, and clients keep their
    address."""
    published(cluster, "one")
    url = cluster.url
    modules = {name.partition("-")[0]: program_of(process["pid"]) for name, process in cluster.processes.items()}
    assert modules["owner"] == "oncelog.topic_owner", "all but ZooKeeper are forks, which import nothing"
    assert modules["metadata"] == "oncelog.metadata"
    assert modules["storage"] == "oncelog.log_storage"
    for number, name in enumerate(("owner-1", "metadata-1", "zookeeper"), start=2):
        before = cluster.processes[name]
        kill_sync(before["pid"], once=idle)

        def back(name: str = name, pid: int = before["pid"]) -> bool:
            now = cluster.processes[name]
            return now["state"] == "serving" and now["pid"] not in {None, pid} and now["restarts"] == 1

        until_sync(back, _DEADLINE_S, waiting_for=f"{name} to serve again")
        assert f"{name} is ready again" in cluster.supervisor_log
        published(cluster, str(number))
    assert stored(cluster) == ["one", "2", "3", "4"]
    assert cluster.url == url


def _refused_as_older(admin_url: str) -> bool:
    """Whether the metadata service says why it lists no topics. Before a storage node answers, nothing proves it."""
    try:
        answer = httpx.get(f"{admin_url}/admin/v2/persistent/public/default", trust_env=False)
    except httpx.TransportError:
        return False
    return answer.status_code == 503 and "ZooKeeper is older than the data: storage node" in answer.json()["detail"]


@pytest.mark.hazard("emptied-zookeeper", "older-zookeeper-is-served")
def test_directory_without_the_data_of_zookeeper_waits_for_a_restore(cluster: Cluster) -> None:
    """Also the second time, when ZooKeeper's directory is not empty any more. No cluster is created beside the messages
    of the former one. The same with an older copy of ZooKeeper's data. They are served again once the data is back."""
    older = shutil.copytree(cluster.data / "zookeeper", cluster.data.with_name("older"))
    written = read_written(cluster.data / "storage-1")
    created = cluster.run("admin", "topics", "create", "newer")
    assert created.returncode == 0, created.stderr
    published(cluster, "kept")
    lines = stored(cluster)
    # Of the last second nothing proves to a metadata service that ZooKeeper went back.
    until_sync(lambda: read_written(cluster.data / "storage-1") != written, _DEADLINE_S)
    asyncio.run(cluster.kill_all(once=idle))
    data = cluster.data
    aside = (data / "zookeeper").rename(data.with_name("aside"))
    words = ("standalone", *SMALL, "--port", "0", "--http-port", "0", "--data", str(data))
    older.rename(data / "zookeeper")
    newer = f"{data / 'storage-1'} knows of newer changes than {data / 'zookeeper'} has"
    none = f"{data / 'storage-1'} has data of a cluster, but {data / 'zookeeper'} had none"
    for number, told in enumerate((newer, none, none)):
        if number == 1:
            shutil.rmtree(data / "zookeeper")
        said = data.with_name(f"said-{number}")
        with said.open("wb") as log:
            waiting = subprocess.Popen(command(*words), stdout=log, stderr=log, env=environment() | SMALL_SETTINGS)
        try:
            until_sync(lambda at=said: "oncelog admin backup restore" in at.read_text(), _DEADLINE_S)  # type: ignore[misc]
            assert told in said.read_text()
            status = json.loads((data / "standalone.json").read_text())
            assert f"ONCELOG_ADMIN_URL={status['admin_url']} " in said.read_text()
            assert all(process["pid"] for process in status["processes"] if process["name"] == "storage-1")
            assert f"Keep {data}" in said.read_text()
            assert waiting.poll() is None
            if number == 0:
                until_sync(lambda url=status["admin_url"]: _refused_as_older(url), _DEADLINE_S)  # type: ignore[misc]
                owner = data / "logs" / "owner-1.log"
                until_sync(lambda at=owner: "ZooKeeper is older than the data: storage" in at.read_text(), _DEADLINE_S)  # type: ignore[misc]
        finally:
            waiting.terminate()
            assert waiting.wait(STOP_TIMEOUT_S) == 0, said.read_text()
        assert "SIGTERM: stopped before all processes served" in said.read_text()
    shutil.rmtree(data / "zookeeper")
    aside.rename(data / "zookeeper")
    cluster.start()
    assert stored(cluster) == lines
    assert "has data of a cluster" not in cluster.supervisor_log

"""What `oncelog standalone` checks before it starts anything: each mistake is one sentence that says what to do. And
what its processes wait for."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from oncelog.cli.standalone.cluster_plan import ClusterPlan, process_environment
from oncelog.cli.standalone.directory import earlier_gone
from oncelog.cli.standalone.start_checks import check_open_files, check_size, check_space, check_start
from oncelog.cli.standalone.status import ClusterStatus, write_status
from oncelog.cli.standalone.supervisor import (
    OLDER_ZOOKEEPER,
    UNENDED_RESTORE,
    StandaloneFailed,
    loss_told_by,
)
from oncelog.cli.standalone.zookeeper_process import SPARE_BYTES, spare_given_up
from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import InvalidArgument, OncelogError, StorageDirectoryRefused
from oncelog.core.node.era import EraState, StoredEra
from oncelog.metadata_store.joining.joining import why_restoring
from oncelog.metadata_store.records.cluster_store import ClusterRecord
from oncelog.runtime.health import Health
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog.runtime.settings import LogStorageSettings
from oncelog.runtime.tls.certificates import new_ca, new_certificate
from oncelog.runtime.zookeeper_server import EmbeddedZooKeeperMissing
from tests.contract.process.security_world import tls_environment

MIB = 1 << 20
SMALL = LogStorageSettings(segment_bytes=256 * MIB, free_bytes_min=1024 * MIB)


async def checked(data: Path, environment: Mapping[str, str], *, redis: str = "") -> list[str]:
    """The notices of a start with this environment. Raises what the check raises."""
    told: list[str] = []
    plan = ClusterPlan(data, redis_url=redis)
    await check_start(plan, environment, process_environment(environment, redis_url=redis), told.append)
    return told


@pytest.mark.asyncio
async def test_start_without_a_mistake_passes(tmp_path: Path) -> None:
    """And changes nothing. Variables of the command line are no settings of a service."""
    environment = tls_environment(tmp_path) | {"ONCELOG_URL": "oncelog://other:1", "ONCELOG_LOG_LEVEL": "warning"}
    (tmp_path / "data").mkdir()
    assert await checked(tmp_path / "data", environment) == []
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("SCRUB_INTERVALL_MS", "5", "unknown setting .*; the nearest known one is ONCELOG_SCRUB_INTERVAL_MS"),
        ("SEGMENT_BYTES", "1MB", "ONCELOG_SEGMENT_BYTES must be a whole number, not '1MB'"),
        ("LEDGER_AGE_MAX_MS", "-1", "ONCELOG_LEDGER_AGE_MAX_MS must be at least 1, not -1"),
        ("BALANCE", "on", "ONCELOG_BALANCE must be true or false, not 'on'"),
        ("MESSAGE_BYTES_MAX", "99999999", "ONCELOG_MESSAGE_BYTES_MAX must be at most ONCELOG_FRAME_BYTES_MAX"),
        ("TLS_KEY_FILE", "tls.key", "TLS needs all three files or none"),
        ("WRITE_QUORUM", "2", "ONCELOG_WRITE_QUORUM cannot be set for standalone, unset it: use --storage-nodes"),
        ("GRPC_PORT", "7000", "ONCELOG_GRPC_PORT cannot be set for standalone, unset it: use --port"),
        (
            "PULSAR_ADDRESS",
            "0.0.0.0:1",
            "ONCELOG_PULSAR_ADDRESS cannot be set for standalone, unset it: use --pulsar-port",
        ),
        ("LISTEN_HOST", "10.9.8.7", "unset it: all processes listen on 127.0.0.1"),
        ("ZOOKEEPER_HOSTS", "zk:2181", "ONCELOG_ZOOKEEPER_HOSTS .*: standalone starts a ZooKeeper of its own"),
        ("ZOOKEEPER_AUTH_FILE", "/absent", r"cannot read /absent \(No such file or directory\): correct the path"),
        ("AUTH_KEY_FILE", "/absent", "ONCELOG_AUTH_KEY_FILE: cannot read /absent"),
        ("REDIS_URL", "localhost", "ONCELOG_REDIS_URL must be redis://host:port/number"),
    ],
)
@pytest.mark.asyncio
async def test_wrong_setting_of_any_process_is_refused(tmp_path: Path, name: str, value: str, sentence: str) -> None:
    """Not only of the first process that starts. What standalone determines would be ignored, so it is refused."""
    with pytest.raises(InvalidArgument, match=sentence) as refused:
        await checked(tmp_path, {f"ONCELOG_{name}": value})
    assert "\n" not in refused.value.message


@pytest.mark.asyncio
async def test_tls_files_that_are_missing_or_expired_are_refused(tmp_path: Path) -> None:
    """Each process would end with this reason, and the cluster would never be ready."""
    environment = tls_environment(tmp_path)
    with pytest.raises(InvalidArgument, match="ONCELOG_TLS_CERTIFICATE_FILE: cannot read /absent"):
        await checked(tmp_path, environment | {"ONCELOG_TLS_CERTIFICATE_FILE": "/absent"})
    expired_certificate(tmp_path)
    with pytest.raises(InvalidArgument, match=r"ONCELOG_TLS_CERTIFICATE_FILE: .*certificate has expired"):
        await checked(tmp_path, environment)


def expired_certificate(directory: Path) -> None:
    """In place of the one that is there, with its CA: valid until this moment."""
    ca = new_ca()
    pair = new_certificate(ca, [], days=0)
    for name, pem in (("ca.crt", ca.certificate), ("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (directory / name).write_bytes(pem)


@pytest.mark.asyncio
async def test_redis_that_does_not_answer_is_refused(tmp_path: Path) -> None:
    """Otherwise the first publisher with an idempotency key would learn it."""
    with claim_port("127.0.0.1") as claim:
        address = f"redis://127.0.0.1:{port_of(claim)}/0"
        with pytest.raises(
            InvalidArgument, match=rf"--redis or ONCELOG_REDIS_URL: .*{port_of(claim)}.*\): correct the"
        ):
            await checked(tmp_path, {}, redis=address)


@pytest.mark.asyncio
async def test_java_that_is_too_old_or_broken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file `release` tells the version; without one Java is asked."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 3\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EmbeddedZooKeeperMissing, match=r"bin/java does not run .* exit status 3"):
        await checked(tmp_path, {})
    (tmp_path / "release").write_text('JAVA_VERSION="1.7.0_80"\n')
    with pytest.raises(EmbeddedZooKeeperMissing, match="is Java 7, but ZooKeeper needs Java 8 or later: set JAVA_HOME"):
        await checked(tmp_path, {})
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.15"\n')
    assert await checked(tmp_path, {}) == []


@pytest.mark.asyncio
async def test_directory_of_another_format_or_program_is_refused(tmp_path: Path) -> None:
    """Also if it is the last node's."""
    node = tmp_path / "storage-3"
    node.mkdir()
    (node / "identity.json").write_text(json.dumps({"format": 99, "crc32c": 0, **dict.fromkeys(_IDENTITY, 0)}))
    with pytest.raises(StorageDirectoryRefused, match="has format 99, but this version reads format 2"):
        await checked(tmp_path, {})
    (node / "identity.json").rename(node / "orders.jsonl")
    with pytest.raises(StorageDirectoryRefused, match=r"storage-3: not empty \(orders.jsonl\)"):
        await checked(tmp_path, {})


_IDENTITY = ("cluster_id", "incarnation", "created_ms", "first_segment_id")


@pytest.mark.asyncio
async def test_directory_that_cannot_be_written_is_refused() -> None:
    """/proc belongs to the system, and nobody can create a file there."""
    with pytest.raises(OncelogError, match="cannot write to /proc"):
        await checked(Path("/proc/1/fdinfo"), {})


def test_too_little_space_is_refused_for_a_new_cluster(tmp_path: Path) -> None:
    """With the threshold of the storage nodes: each takes a segment, and the last one still needs room for two more
    above the limit. Below it, they would serve and refuse every message."""
    plan, needed = ClusterPlan(tmp_path), (3 + 2) * 256 * MIB + 1024 * MIB
    told: list[str] = []
    check_space(plan, SMALL, needed, told.append)
    with pytest.raises(
        StandaloneFailed, match=r"has 2,304 MiB free, but 3 storage node\(s\) need 2,304 MiB: free some"
    ):
        check_space(plan, SMALL, needed - 1, told.append)
    assert told == []


def test_too_little_space_is_told_for_a_cluster_with_data(tmp_path: Path) -> None:
    """It starts, because deleting messages is a way out."""
    for number in (1, 2, 3):
        (tmp_path / f"storage-{number}" / "segments").mkdir(parents=True)
        (tmp_path / f"storage-{number}" / "identity.json").write_text("{}")
    told: list[str] = []
    check_space(ClusterPlan(tmp_path), SMALL, 1536 * MIB - 1, told.append)
    (sentence,) = told
    assert "need 1,536 MiB: they refuse new messages until you free space or delete messages" in sentence


def test_too_few_open_files_are_refused() -> None:
    """A process without descriptors accepts no connection."""
    check_open_files(256)
    with pytest.raises(StandaloneFailed, match="allows 255 open files, and each process needs 256: raise the limit"):
        check_open_files(255)


def begun(data: Path, storage_nodes: int, *, light: bool) -> None:
    """The directory as a cluster of that size leaves it."""
    for number in range(1, storage_nodes + 1):
        (data / f"storage-{number}" / "segments").mkdir(parents=True)
    write_status(data / "standalone.json", ClusterStatus(1, str(data), True, [], light=light))


def test_light_and_full_cluster_do_not_take_each_others_directory(tmp_path: Path) -> None:
    """Silently, the messages of the light one would seem to have three copies, and those of the full one lose two."""
    told: list[str] = []
    begun(tmp_path / "light", 1, light=True)
    check_size(ClusterPlan(tmp_path / "light", 1, 1, light=True), told.append)
    with pytest.raises(
        InvalidArgument, match="has the data of a light cluster: start it with --light, or name another"
    ):
        check_size(ClusterPlan(tmp_path / "light"), told.append)
    begun(tmp_path / "full", 3, light=False)
    check_size(ClusterPlan(tmp_path / "full"), told.append)
    with pytest.raises(InvalidArgument, match="has the data of a full cluster: start it without --light, or name"):
        check_size(ClusterPlan(tmp_path / "full", 1, 1, light=True), told.append)
    assert told == []


def test_storage_node_with_data_is_not_left_out(tmp_path: Path) -> None:
    """Its copies could not be read. More nodes are welcome, but add no copies to what is stored."""
    begun(tmp_path, 2, light=False)
    told: list[str] = []
    with pytest.raises(InvalidArgument, match=r"storage-2 has data, but with 1 storage node\(s\) .*--storage-nodes 2"):
        check_size(ClusterPlan(tmp_path, 1), told.append)
    check_size(ClusterPlan(tmp_path, 3), told.append)
    assert told == [f"messages that {tmp_path} has keep 2 copies, only new ones get 3"]


LATER = Era(8, "a" * 32)


@pytest.mark.hazard("older-zookeeper-is-served")
@pytest.mark.parametrize(
    ("reason", "loss"),
    [
        (StoredEra(LATER).why_newer(FIRST_ERA), OLDER_ZOOKEEPER),
        (StoredEra(LATER, EraState.CLAIMED).why_newer(FIRST_ERA), UNENDED_RESTORE),
        (why_restoring(ClusterRecord("c", era=LATER)), UNENDED_RESTORE),
        ("waiting for ZooKeeper: no answer", None),
        (None, None),
    ],
)
@pytest.mark.asyncio
async def test_storage_node_that_waits_for_a_restore_is_understood(
    reason: str | None, loss: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the start has no deadline, and the command is printed. A node that does not listen tells nothing. A proxy of
    the user would not reach the nodes."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    health = Health(lambda: b"", None)
    health.ready_when("state", lambda: reason)
    port = await health.start(host="127.0.0.1", port=0)
    try:
        assert await asyncio.to_thread(loss_told_by, ["127.0.0.1:1", f"127.0.0.1:{port}"]) == loss
    finally:
        await health.stop()


def test_status_is_written_in_place_where_no_file_can_be_made_beside_it(tmp_path: Path) -> None:
    """A full disk has space for the bytes that were there before."""
    path = tmp_path / "standalone.json"
    path.write_text("x" * 4096)
    (tmp_path / "standalone.json.new").mkdir()
    status = ClusterStatus(1, str(tmp_path), True, [])
    write_status(path, status)
    assert json.loads(path.read_text()) == status.to_json()


def test_status_that_was_cut_off_does_not_stop_the_next_start(tmp_path: Path) -> None:
    """A full disk may end the supervisor in the middle of it."""
    plan = ClusterPlan(tmp_path, storage_node_count=1)
    (tmp_path / "storage-1").mkdir()
    (tmp_path / "storage-1" / "identity.json").write_text("{}")
    plan.status_path.write_text('{"pid": 1,')
    asyncio.run(earlier_gone(plan.status_path, pytest.fail))
    check_size(plan, pytest.fail)


def test_zookeeper_has_space_to_start_on_a_full_disk(tmp_path: Path) -> None:
    """It writes a snapshot and a log: the space for them is kept while there is some, and given up once."""
    spare = tmp_path / "spare"
    assert not spare_given_up(spare, SPARE_BYTES), "too little to keep any"
    assert not spare.exists()
    assert not spare_given_up(spare, 5 * SPARE_BYTES)
    assert spare.stat().st_blocks * 512 >= SPARE_BYTES
    assert not spare_given_up(spare, SPARE_BYTES)
    assert spare_given_up(spare, 0)
    assert not spare_given_up(spare, 0)

"""What `oncelog standalone` checks before it starts a process: what would end or cripple one of them later.

Each check raises an error of one sentence that names the setting, option, file or address, and what to do. Settings are
read by the classes of the services themselves, TLS files and tokens by their `Security`, directories by the storage
node, Redis by the metadata service. Ports are checked where the supervisor reserves them.
"""

import os
import resource
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from oncelog.cli.extras import DOORS, check_installed
from oncelog.cli.standalone.cluster_plan import HOST, ClusterPlan, Role, quorums
from oncelog.cli.standalone.directory import not_writable
from oncelog.cli.standalone.status import read_status
from oncelog.cli.standalone.supervisor import StandaloneFailed
from oncelog.core.errors import IdempotencyUnavailable, InvalidArgument
from oncelog.core.node.disk_space import refuses_adds
from oncelog.runtime.settings import (
    DoorSettings,
    LogStorageSettings,
    MetadataSettings,
    ProcessSettings,
    TopicOwnerSettings,
    load,
    variable,
)
from oncelog.runtime.zookeeper_server import find_java, find_server_jars

#: Open files that a process needs: half of them are for connections, and ZooKeeper's Java has about 100.
OPEN_FILES_MIN = 256
_OWN_ZOOKEEPER = "standalone starts a ZooKeeper of its own"
#: {setting that standalone determines: how}. In the environment it would have no effect, or be the same for processes
#: that must differ.
_DETERMINED = {
    "listen_host": f"all processes listen on {HOST}",
    "grpc_port": "use --port for the first metadata service, the others take free ports",
    "rest_port": "use --http-port",
    "health_port": "each process takes a free port, which DIR/standalone.json names",
    "pulsar_address": "use --pulsar-port",
    "pulsar_tls_address": "use --pulsar-port: with TLS files it serves TLS",
    "pulsar_rest_address": "use --pulsar-rest-port",
    "pulsar_rest_tls_address": "use --pulsar-rest-port: with TLS files it serves TLS",
    "kafka_address": "use --kafka-port",
    "kafka_tls_address": "use --kafka-port: with TLS files it serves TLS",
    "kafka_advertised_address": "clients of Kafka are told 127.0.0.1 and the port of --kafka-port",
    "advertised_port": "each process has a port of its own, which it advertises",
    "advertised_addresses": "each process has a port of its own, which it advertises",
    "data_directory": "use --data",
    "write_quorum": "use --storage-nodes: with 3 or more each entry has 3 copies, else one on each node",
    "ack_quorum": "use --storage-nodes: with 3 or more, 2 copies are durable before an ack, else all",
    "new_cluster_nodes_file": "standalone knows its storage nodes",
    "zookeeper_hosts": _OWN_ZOOKEEPER,
    "zookeeper_tls": f"{_OWN_ZOOKEEPER}, without TLS",
    "zookeeper_tls_ca_file": f"{_OWN_ZOOKEEPER}, without TLS",
    "zookeeper_tls_server_name": f"{_OWN_ZOOKEEPER}, without TLS",
    "zookeeper_tls_certificate_file": f"{_OWN_ZOOKEEPER}, without TLS",
    "zookeeper_tls_key_file": f"{_OWN_ZOOKEEPER}, without TLS",
}

#: Tells the user a sentence.
Tell = Callable[[str], None]


async def check_start(plan: ClusterPlan, given: Mapping[str, str], own: Mapping[str, str], tell: Tell) -> None:
    """Raises OncelogError. given: the user's environment. own: that of the processes, made from it.

    The directory exists, and is locked by this process.
    """
    for field, how in _DETERMINED.items():
        if variable(field) in given:
            raise InvalidArgument(f"{variable(field)} cannot be set for standalone, unset it: {how}", field=field)
    settings = load(MetadataSettings, own)
    load(TopicOwnerSettings, own)
    storage = load(LogStorageSettings, own)
    if any(plan.doors):
        check_installed(DOORS)
        load(DoorSettings, own)
    check_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    find_java()
    find_server_jars()
    _check_files(settings)
    check_writable(plan)
    check_size(plan, tell)
    _check_directories(plan)
    check_space(plan, storage, shutil.disk_usage(plan.data).free, tell)
    await _check_redis(settings)


def check_open_files(limit: int) -> None:
    """limit: the hard limit of open files, to which each process raises its own. Raises StandaloneFailed."""
    if limit != resource.RLIM_INFINITY and limit < OPEN_FILES_MIN:
        raise StandaloneFailed(
            f"the system allows {limit} open files, and each process needs {OPEN_FILES_MIN}: raise the limit "
            f"(ulimit -Hn {OPEN_FILES_MIN}, or LimitNOFILE= of systemd)",
            limit=limit,
        )


def check_writable(plan: ClusterPlan) -> None:
    """The directory and those of all processes, as an earlier run has left them. Raises InvalidArgument."""
    _refuse_unwritable(plan.data)
    for path in (plan.zookeeper_data, plan.log_path("").parent, *plan.data.glob(f"{Role.STORAGE}-*")):
        _refuse_unwritable(path)
        for inner in path.glob("*/"):
            _refuse_unwritable(inner)


def _refuse_unwritable(path: Path) -> None:
    if path.is_dir() and not os.access(path, os.W_OK | os.X_OK):
        raise not_writable(path)


def _check_files(settings: ProcessSettings) -> None:
    """TLS files, tokens and ZooKeeper's users. All services read the same ones. Raises InvalidArgument."""
    if settings.tls_certificate_file or settings.auth_key_file or settings.auth_token_file or settings.auth_superusers:
        from oncelog.runtime.security import Security

        Security.of(settings)
    if settings.zookeeper_auth_file:
        from oncelog.metadata_store.session.zookeeper_users import read_users

        read_users(Path(settings.zookeeper_auth_file), variable("zookeeper_auth_file"))


def check_size(plan: ClusterPlan, tell: Tell) -> None:
    """That the cluster has the copies that its directory was begun with. Raises InvalidArgument."""
    used = plan.storage_directories
    if not used:
        return
    try:
        begun = read_status(plan.status_path).get("light", plan.light)
    except (OSError, ValueError):  # none, or one that a full disk has cut off
        begun = plan.light
    if begun != plan.light:
        kind, option = ("a light", "with --light") if begun else ("a full", "without --light")
        raise InvalidArgument(
            f"{plan.data} has the data of {kind} cluster: start it {option}, or name another directory with --data",
            field="light",
        )
    if left_out := [path for path in used if path not in plan.storage_paths]:
        raise InvalidArgument(
            f"{left_out[-1]} has data, but with {plan.storage_node_count} storage node(s) it would not be started, and "
            f"messages with copies there could not be read: use --storage-nodes {_highest(left_out)}, or name another "
            "directory with --data",
            field="storage_nodes",
        )
    (before, _), (now, _) = quorums(_highest(used)), quorums(plan.storage_node_count)
    if before != now:
        tell(f"messages that {plan.data} has keep {before} copies, only new ones get {now}")


def _highest(storage: Sequence[Path]) -> int:
    """The number of the last of these directories, storage-N."""
    return max(int(path.name.rpartition("-")[2]) for path in storage)


def _check_directories(plan: ClusterPlan) -> None:
    """Raises StorageDirectoryRefused for one of another format, or of another program."""
    from oncelog.log_storage.directory.storage_directory import cluster_of

    for path in plan.storage_paths:
        cluster_of(path)


def check_space(plan: ClusterPlan, settings: LogStorageSettings, free_bytes: int, tell: Tell) -> None:
    """By the storage nodes' own threshold. free_bytes: of the disk with the directory.

    Raises StandaloneFailed for a new cluster. One with data is started, because deleting messages frees space.
    """
    from oncelog.log_storage.directory.storage_directory import format_bytes, roll_bytes

    paths, segment_bytes = plan.storage_paths, settings.segment_bytes
    taken = sum(format_bytes(path, segment_bytes=segment_bytes) for path in paths)
    taken += max(roll_bytes(path, segment_bytes=segment_bytes) for path in paths)
    if not refuses_adds(free_bytes - taken, free_bytes_min=settings.free_bytes_min):
        return
    needed = taken + settings.free_bytes_min
    lack = f"the disk of {plan.data} has {_mib(free_bytes)} free, but {len(paths)} storage node(s) need {_mib(needed)}"
    if plan.storage_directories:
        tell(f"{lack}: they refuse new messages until you free space or delete messages")
        return
    raise StandaloneFailed(
        f"{lack}: free some, name a directory on another disk with --data, use --light, or lower "
        f"{variable('free_bytes_min')} and {variable('segment_bytes')}",
        free_bytes=free_bytes,
        needed_bytes=needed,
    )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


async def _check_redis(settings: MetadataSettings) -> None:
    """That it answers, and keeps what it is given. Raises InvalidArgument."""
    if not settings.redis_url and not settings.redis_url_file:
        return
    from oncelog.core.http_publish.idempotency import RETRY
    from oncelog.metadata_store.keys.key_server import key_server

    server = key_server(settings, "")
    assert server is not None, "a URL is set"
    try:
        await server.check_settings()
        await server.look()
    except IdempotencyUnavailable as error:
        name = variable("redis_url_file" if settings.redis_url_file else "redis_url")
        reason = error.message.removesuffix(RETRY)
        message = f"--redis or {name}: {reason}: correct the address, correct or start Redis, or start without it"
        raise InvalidArgument(message, field="redis") from error
    finally:
        await server.close()

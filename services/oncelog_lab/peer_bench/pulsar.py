"""Apache Pulsar 4: one ZooKeeper, three bookies and one broker, by the scripts and configuration of a distribution.

A bookie syncs its journal before it answers, and a message is acknowledged after two of three answers, like one of
Oncelog by its storage nodes. The configuration files are those of the distribution; only addresses, directories, the
number of copies and deduplication differ.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx

from oncelog_lab.child_process import LabChild
from oncelog_lab.peer_bench.loads import MESSAGES_PER_S, NUMBER, SHAPES, PeerLoad, Program, python_program
from oncelog_lab.peer_bench.servers import (
    BROKERS,
    HOST,
    claimed_ports,
    distribution_version,
    ended_well,
    until_listening,
    until_serving,
)

CLIENT = "pulsar-client"
SETTINGS = (
    "1 broker, 3 bookies, 1 ZooKeeper; ensemble and write quorum 3, ack quorum 2, journal synced, "
    "brokerDeduplicationEnabled, heap 1 GiB each, ZooKeeper 256 MiB"
)
_CLUSTER = "bench"
_ZOOKEEPER_MEMORY = "-Xms256m -Xmx256m -XX:MaxDirectMemorySize=256m"
_MEMORY = "-Xms1g -Xmx1g -XX:MaxDirectMemorySize=1g"
#: More messages a second than any client sends: the tool has no other way to say "as many as possible".
_UNLIMITED = 100_000_000
#: Of the messages that the others read: the Python client needs about 40 us for each message that it publishes.
_READ_SHARE = 5
#: The health of a broker is a message that it writes and reads.
_HEALTH_TIMEOUT_S = 10.0
#: pulsar-perf produce prints a line each 10 s.
PRODUCED = re.compile(rf"Throughput produced:.* msg --- {NUMBER} msg/s ")
LATENCIES = re.compile(rf"Throughput produced:.* - med:{NUMBER} .* - 99pct:{NUMBER} ")
#: pulsar-perf read prints it at its end.
READ = re.compile(rf"Aggregated throughput stats --- \d+ records received --- {NUMBER} msg/s")


def version_of(home: Path) -> str:
    """Raises LabFailed."""
    return distribution_version("--pulsar", home, "lib/org.apache.pulsar-pulsar-broker-*.jar", ["bin/pulsar-perf"])


def changed(configuration: str, settings: Mapping[str, object]) -> str:
    """A configuration file with these values in place of its own; what it lacks is added."""
    left = dict(settings)
    lines = []
    for line in configuration.splitlines():
        key = line.partition("=")[0].strip()
        lines.append(f"{key}={left.pop(key)}" if key in left else line)
    return "\n".join([*lines, *(f"{key}={value}" for key, value in left.items())]) + "\n"


def zookeeper_settings(port: int, data: Path) -> dict[str, object]:
    return {
        "dataDir": data,
        "clientPort": port,
        "clientPortAddress": HOST,
        "admin.enableServer": "false",
        "metricsProvider.className": "org.apache.zookeeper.metrics.impl.DefaultMetricsProvider",
    }


def bookie_settings(port: int, zookeeper: int, data: Path) -> dict[str, object]:
    return {
        "bookiePort": port,
        "journalDirectory": data / "journal",
        "ledgerDirectories": data / "ledgers",
        "zkServers": f"{HOST}:{zookeeper}",
        "advertisedAddress": HOST,
        "listeningInterface": "lo",
        "allowLoopback": "true",
        "journalSyncData": "true",
        "prometheusStatsHttpEnable": "false",
    }


def broker_settings(port: int, web: int, zookeeper: int) -> dict[str, object]:
    """Bundles are not split: a split closes the topic that is measured."""
    store = f"zk:{HOST}:{zookeeper}"
    return {
        "metadataStoreUrl": store,
        "configurationMetadataStoreUrl": store,
        "clusterName": _CLUSTER,
        "brokerServicePort": port,
        "webServicePort": web,
        "bindAddress": HOST,
        "advertisedAddress": HOST,
        "managedLedgerDefaultEnsembleSize": BROKERS,
        "managedLedgerDefaultWriteQuorum": BROKERS,
        "managedLedgerDefaultAckQuorum": 2,
        "brokerDeduplicationEnabled": "true",
        "loadBalancerAutoBundleSplitEnabled": "false",
    }


@asynccontextmanager
async def servers(home: Path, java: Path, directory: Path) -> AsyncIterator[str]:
    """Start the servers; yields the URL for clients. Raises LabFailed."""
    program = str(home / "bin/pulsar")
    common = _environment(java, directory)
    async with AsyncExitStack() as stack:
        zookeeper, broker, web, *bookies = stack.enter_context(claimed_ports(3 + BROKERS))

        async def start(name: str, role: str, variable: str, file: str, settings: Mapping[str, object]) -> LabChild:
            path = directory / f"{name.replace(' ', '-')}.conf"
            path.write_text(changed((home / "conf" / file).read_text(), settings))
            memory = {"PULSAR_MEM": _ZOOKEEPER_MEMORY} if role == "zookeeper" else {}
            environment = common | memory | {variable: str(path)}
            child = await LabChild.start(f"Pulsar's {name}", (program, role), environment=environment)
            stack.push_async_callback(child.kill)
            return child

        settings = zookeeper_settings(zookeeper, directory / "zookeeper")
        child = await start("ZooKeeper", "zookeeper", "PULSAR_ZK_CONF", "zookeeper.conf", settings)
        await until_listening(child, zookeeper)
        store = f"zk:{HOST}:{zookeeper}"
        words = (
            f"initialize-cluster-metadata --cluster {_CLUSTER} --metadata-store {store} --configuration-metadata-store "
            f"{store} --web-service-url http://{HOST}:{web} --broker-service-url pulsar://{HOST}:{broker}"
        )
        await ended_well("Pulsar's initialize-cluster-metadata", (program, *words.split()), common)
        started = []
        for number, port in enumerate(bookies, 1):
            settings = bookie_settings(port, zookeeper, directory / f"bookie-{number}")
            name = f"bookie {number}"
            started.append(await start(name, "bookie", "PULSAR_BOOKKEEPER_CONF", "bookkeeper.conf", settings))
        for child, port in zip(started, bookies, strict=True):
            await until_listening(child, port)
        settings = broker_settings(broker, web, zookeeper)
        child = await start("broker", "broker", "PULSAR_BROKER_CONF", "broker.conf", settings)
        await until_serving(child, lambda: asyncio.to_thread(_healthy, web))
        yield f"pulsar://{HOST}:{broker}"


def _environment(java: Path, directory: Path) -> dict[str, str]:
    """Of every script of Pulsar."""
    logs = {"PULSAR_LOG_DIR": str(directory / "logs")}
    return {"JAVA_HOME": str(java.resolve().parent.parent), "PULSAR_MEM": _MEMORY, "BOOKIE_MEM": _MEMORY, **logs}


def _healthy(web: int) -> bool:
    try:
        return httpx.get(f"http://{HOST}:{web}/admin/v2/brokers/health", timeout=_HEALTH_TIMEOUT_S).is_success
    except httpx.TransportError:
        return False


def programs(home: Path, java: Path, seconds: float, directory: Path, address: str, load: PeerLoad) -> list[Program]:
    """The clients that run this load. The Python client is the first: it fills the topic."""
    shape = SHAPES[load]
    python = (sys.executable, "-m", "oncelog_lab.peer_bench.peer_client", "pulsar", address)
    messages = shape.messages // _READ_SHARE
    found = [python_program(CLIENT, python, load, seconds, messages)]
    rates = {PeerLoad.CALLBACKS: _UNLIMITED, PeerLoad.LISTS_1K: _UNLIMITED, PeerLoad.LATENCY: MESSAGES_PER_S}
    words, line = "", PRODUCED
    if load in rates:
        words = f"produce {load} --rate {rates[load]} --size {shape.message_bytes}"
    if load is PeerLoad.LATENCY:
        words, line = f"{words} --disable-batching", LATENCIES
    if load is PeerLoad.READ_OBJECTS:
        words, line = f"read {load} --num-messages {messages}", READ
    if words:
        tool = (str(home / "bin/pulsar-perf"), *words.split(), "--service-url", address)
        found.append(Program("pulsar-perf", tool, line, _environment(java, directory)))
    return found

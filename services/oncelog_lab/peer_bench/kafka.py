"""Apache Kafka 4: three brokers that are controllers, too (KRaft), from the jars of a distribution.

Kafka answers `acks=all` when all replicas that are in sync have a message; by default before they sync it to disk. Here
each broker syncs each append (log.flush.interval.messages=1), as the storage nodes of Oncelog do.

A broker is started like `kafka-server-start.sh` does it, with its heap and collector, after `kafka-storage.sh format`.
The classes are run directly: a folder `libs` is enough.
"""

import base64
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from oncelog_lab.child_process import LabChild
from oncelog_lab.peer_bench.loads import NUMBER, SHAPES, PeerLoad, Program, python_program
from oncelog_lab.peer_bench.servers import (
    BROKERS,
    HOST,
    claimed_ports,
    distribution_version,
    ended_well,
    until_listening,
)

CLIENT = "confluent-kafka"
SETTINGS = (
    "3 brokers with controllers, replication 3, min.insync.replicas 2, acks=all, enable.idempotence, each append "
    "synced (log.flush.interval.messages=1), heap 1 GiB each"
)
_HEAP = ("-Xms1g", "-Xmx1g")
#: Those of kafka-run-class.sh. The tools print numbers in the format of the locale.
_JVM = (
    *("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true", "-Duser.language=en"),
)
#: 16 bytes, as Kafka wants them.
_CLUSTER_ID = base64.urlsafe_b64encode(b"oncelog-compared").decode().rstrip("=")
#: So many that the tool is killed before it has sent them.
_ENDLESS = 10**10
_TOOL_TIMEOUT_MS = 60_000
#: kafka-producer-perf-test prints a line each 5 s.
PRODUCED = re.compile(rf"^\d+ records sent, {NUMBER} records/sec ")
#: kafka-consumer-perf-test prints one line: the time of start and end, MB, MB/s, messages, messages/s, ms of joining
#: its group, ms of reading, MB/s and messages/s of reading. The last one is the figure.
CONSUMED = re.compile(rf"^[-\d]+ [:\d]+, [-\d]+ [:\d]+, (?:-?[\d.]+, ){{7}}{NUMBER}$")


def version_of(home: Path) -> str:
    """Raises LabFailed."""
    return distribution_version("--kafka", home, "libs/kafka_2.13-*.jar", ["libs/kafka-tools-*.jar"])


def broker_properties(node: int, ports: list[int], data: Path) -> str:
    """server.properties of broker 1, 2 or 3. ports: of the clients and of the controller of each broker, in turn."""
    voters = ",".join(f"{each}@{HOST}:{ports[each * 2 - 1]}" for each in range(1, BROKERS + 1))
    port, controller = ports[node * 2 - 2 : node * 2]
    return f"""\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}
advertised.listeners=PLAINTEXT://{HOST}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.partitions=1
default.replication.factor={BROKERS}
min.insync.replicas=2
offsets.topic.replication.factor={BROKERS}
transaction.state.log.replication.factor={BROKERS}
transaction.state.log.min.isr=2
group.initial.rebalance.delay.ms=0
log.flush.interval.messages=1
"""


@asynccontextmanager
async def servers(home: Path, java: Path, directory: Path) -> AsyncIterator[str]:
    """Start the brokers; yields their addresses, as clients take them. Raises LabFailed."""
    run = (str(java), *_HEAP, *_JVM, "-cp", f"{home}/libs/*")
    async with AsyncExitStack() as stack:
        ports = stack.enter_context(claimed_ports(2 * BROKERS))
        files = []
        for node in range(1, BROKERS + 1):
            file = directory / f"server-{node}.properties"
            file.write_text(broker_properties(node, ports, directory / f"broker-{node}"))
            files.append(str(file))
            format_it = (*run, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(file))
            await ended_well(f"formatting of Kafka broker {node}", format_it)
        brokers = []
        for node, configuration in enumerate(files, 1):
            child = await LabChild.start(f"Kafka broker {node}", (*run, "kafka.Kafka", configuration))
            stack.push_async_callback(child.kill)
            brokers.append(child)
        for child, port in zip(brokers, ports[::2], strict=True):
            await until_listening(child, port)
        yield ",".join(f"{HOST}:{port}" for port in ports[::2])


def programs(home: Path, java: Path, seconds: float, _: Path, address: str, load: PeerLoad) -> list[Program]:
    """The clients that run this load. The Python client is the first: it creates the topic, and fills it."""
    shape = SHAPES[load]
    python = (sys.executable, "-m", "oncelog_lab.peer_bench.peer_client", "kafka", address)
    found = [python_program(CLIENT, python, load, seconds)]
    tool = (str(java), "-Xmx512m", *_JVM, "-cp", f"{home}/libs/*")
    if load in {PeerLoad.CALLBACKS, PeerLoad.LISTS_1K}:
        words = (
            f"org.apache.kafka.tools.ProducerPerformance --topic {load} --num-records {_ENDLESS} --throughput -1 "
            f"--record-size {shape.message_bytes} --producer-props bootstrap.servers={address} acks=all "
            "enable.idempotence=true"
        )
        found.append(Program("kafka-producer-perf-test", (*tool, *words.split()), PRODUCED))
    elif load is PeerLoad.READ_OBJECTS:
        words = (
            f"org.apache.kafka.tools.ConsumerPerformance --topic {load} --bootstrap-server {address} "
            f"--messages {shape.messages} --timeout {_TOOL_TIMEOUT_MS} --hide-header"
        )
        found.append(Program("kafka-consumer-perf-test", (*tool, *words.split()), CONSUMED))
    return found

"""Clients of Pulsar and of Kafka in front of a door, against the SDK in the same run.

publish      batches of 64 KiB against send_many of the same batches; batches of 1,000 small messages; single messages;
             and what such batches cost the owner
latency      a message that the client of Pulsar for Python sends each 5 ms, against one of the SDK
read         a topic of 1,000 messages a batch: stored by such a client, which goes out as it came, and by the SDK,
             which is converted; against read_batch
consume      messages that are no batches, to the reader and to the consumer of the client of Pulsar for Python, which
             acknowledges each
idle         connections that only send a PING, or ask for the metadata of a topic, each 30 s; and consumers of Kafka
             of a topic to which nothing comes

The CPU of a message, by process, depends less on what else the machine does than the rate. Rows with "bare" have a
client that replays frames (`bare_connection`). The others have Pulsar's client for Python, which is the library for
C++.
"""

from oncelog_lab.bench.door.kafka_rows import kafka_rows
from oncelog_lab.bench.door.pulsar_rows import pulsar_rows
from oncelog_lab.bench.figures import BenchRow
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.cluster import standalone_cluster


async def door_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Twelve rows of Pulsar's clients, and eight of Kafka's."""
    async with (
        standalone_cluster(stack.new_directory(), owners=1, door=True) as cluster,
        await cluster.connect() as client,
    ):
        pulsar = await pulsar_rows(cluster, client, settings, tell)
        return [*pulsar, *await kafka_rows(cluster, client, settings, tell)]

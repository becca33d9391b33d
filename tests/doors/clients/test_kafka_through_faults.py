"""Client libraries of Kafka publish through lost answers and kills: everything is stored once, in its order."""

import asyncio
from functools import partial

import pytest

import oncelog
from oncelog_doors.proof.kafka.proxy import KafkaProxy
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.until import until
from tests.doors.clients.door_clusters import lasting_kafka_cluster
from tests.doors.clients.kafka_programs import PUBLISHERS, READERS, Message, Options
from tests.doors.clients.kafka_through_kills import followed, has

__all__ = ["lasting_kafka_cluster"]

pytestmark = pytest.mark.asyncio

MESSAGES = [Message(b"value %d" % number) for number in range(999)]
#: Small batches, so that many are in flight.
SMALL: dict[str, Options] = {
    "confluent-kafka": {"enable.idempotence": True, "batch.num.messages": 20, "linger.ms": 1},
    "kafka-python": {"batch_size": 500, "max_in_flight_requests_per_connection": 5},
    "aiokafka": {"max_batch_size": 500},
}


def values(servers: str, topic: str) -> list[bytes | None]:
    return [each.message.value for each in READERS["confluent-kafka"](servers, topic, len(MESSAGES))]


@pytest.mark.hazard("late-answer")
async def test_answers_that_are_lost_store_nothing_twice(cluster: Cluster) -> None:
    """The client sends the same batch again on another connection, and the log finds it as the same bytes."""
    direct = str(cluster.status()["kafka_servers"])
    port = int(direct.rpartition(":")[2])
    for library, publish in PUBLISHERS.items():
        async with KafkaProxy.running(lambda: port) as proxy:
            proxy.lost["Produce answer"] = range(0, 20, 3)
            topic, servers = f"lossy-{library}", f"127.0.0.1:{proxy.port}"
            offsets = await asyncio.to_thread(publish, servers, topic, MESSAGES, SMALL[library])
            assert proxy.seen["Produce answer"] > 20
        assert offsets == list(range(len(MESSAGES)))
        assert await asyncio.to_thread(values, direct, topic) == [each.value for each in MESSAGES]


@pytest.mark.hazard("two-gateways-hold-one-client")
async def test_owner_and_door_are_killed(cluster: Cluster) -> None:
    """A publisher goes on at the next owner, and at the door that is started again."""
    servers, topic = str(cluster.status()["kafka_servers"]), "killed-in-the-middle"
    patient: Options = {**SMALL["confluent-kafka"], "batch.num.messages": 5, "message.timeout.ms": 120_000}
    offsets = list[int]()
    async with oncelog.connect(cluster.url) as client, followed(client, topic) as found:
        for which in ("owner", "door-1", "owner"):
            first, end = len(offsets), len(offsets) + len(MESSAGES) // 3
            publish = partial(PUBLISHERS["confluent-kafka"], servers, topic, MESSAGES[first:end], patient)
            publishing = asyncio.ensure_future(asyncio.to_thread(publish))
            name = await cluster.owner_of(topic) if which == "owner" else which
            await cluster.kill(name, once=partial(has, found, first + 20))
            await cluster.healed()
            offsets += await asyncio.wait_for(publishing, 2 * DEADLINE_S)
    assert offsets == list(range(len(MESSAGES)))
    assert await asyncio.to_thread(values, servers, topic) == [each.value for each in MESSAGES]
    await until(lambda: cluster.processes["door-1"]["restarts"] == 1, DEADLINE_S)

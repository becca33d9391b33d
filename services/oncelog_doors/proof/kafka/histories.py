"""Histories in which Kafka's rule for idempotent producers loses, doubles or ends a producer, played with real clients
and real processes.

Each is one function, played on both sides. It says what came of it, and nothing about which side is right: what is
expected is beside it, word by word.
"""

from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.proof.children import wait_for
from oncelog_doors.proof.histories import History
from oncelog_doors.proof.kafka.scene import KafkaClient, Scene
from oncelog_doors.proof.outcome import Outcome
from oncelog_doors.proof.world import lasting

#: A leader that was elected elsewhere. No door says this.
_NOT_LEADER_OR_FOLLOWER = 6
#: Records of a source that is read again; Kafka forgets a producer by such times.
_TWO_DAYS_S = 2 * 24 * 3600
#: After which Kafka's rule has looked for producers to forget.
_SWEPT_S = 1.5
_WRAP = 2**31
#: More than any client is allowed, so that Kafka's five batches are not enough.
_MANY = 1_000


async def first_batch_refused(scene: Scene) -> Outcome:
    """Two batches are on their way to a new topic. The first one comes before its leader knows that it leads."""
    client = await scene.opened(batch=2)
    client.proxy.hold("Produce")
    client.send("1", "2", "3", "4")
    await _held(client, 2)
    client.proxy.refuse_held(_NOT_LEADER_OR_FOLLOWER)
    client.proxy.release()
    await client.answer("1", "2", "3", "4")
    return await scene.outcome()


async def refused_beside_undecided(scene: Scene) -> Outcome:
    """Of partition 0 a batch is stored, and its answer is that this is not known. Of partition 1 a batch is refused, so
    the next one comes too early."""
    await scene.partitioned(2)
    client = await scene.opened()
    await client.send_all("1")
    await client.send_all("2", partition=1)
    client.proxy.hold("Produce")
    client.send("3")
    client.send("4", "5", partition=1)
    await _held(client, 3)
    client.proxy.answer_next(ErrorCode.REQUEST_TIMED_OUT)
    client.proxy.refuse_held(ErrorCode.NOT_ENOUGH_REPLICAS, partition=1)
    client.proxy.release()
    await client.answer("3", "4", "5")
    return await scene.outcome()


async def old_records(scene: Scene) -> Outcome:
    """Records of two days ago. The answer to one is lost; Kafka forgets the producer by the time of its records."""
    client = await scene.opened(age_s=_TWO_DAYS_S)
    await client.send_all("1")
    await _answers_lost(client, "2")
    await client.send_all("3")
    return await scene.outcome()


async def high_first_number(scene: Scene) -> Outcome:
    """The same for a client that has sent 2**31 - 7 records before, of which the topic has none: it was made again."""
    client = await scene.opened(age_s=_TWO_DAYS_S)
    await client.producer_id()
    await client.renumber(_WRAP - 7)
    await _answers_lost(client, "1")
    await client.send_all("2")
    return await scene.outcome()


async def numbers_wrap(scene: Scene) -> Outcome:
    """Numbers reach 2**31 within a batch, whose answer is lost."""
    client = await scene.opened(batch=3)
    await scene.sent_before(await client.producer_id(), _WRAP - 5)
    await client.renumber(_WRAP - 5)
    await client.send_all("1", "2", "3")
    await _answers_lost(client, "4", "5", "6")
    await client.send_all("7", "8", "9")
    return await scene.outcome()


async def six_in_flight(scene: Scene) -> Outcome:
    """Six batches are stored before the first answer, and the connection breaks."""
    client = await scene.opened(in_flight=6)
    await _answers_lost(client, "1", "2", "3", "4", "5", "6", batches=6)
    return await scene.outcome()


async def thousand_in_flight(scene: Scene) -> Outcome:
    """The same with a batch of five records, and a thousand others behind it."""
    client = await scene.opened(batch=5, in_flight=2 * _MANY)
    tags = [str(number) for number in range(1, _MANY + 6)]
    client.proxy.hold("Produce answer")
    client.send(*tags[:5])
    await client.produced(1)
    for number, tag in enumerate(tags[5:], 2):
        client.send(tag)
        await client.produced(number)
    await client.decided(_MANY + 1)
    await client.proxy.cut()
    await client.answer(*tags)
    return await scene.outcome()


async def restart(scene: Scene) -> Outcome:
    """Two batches are stored before the first answer. Then the broker dies."""
    client = await scene.opened()
    await client.send_all("1")
    return await _restarted(scene, client, "2", "3")


async def restart_in_an_epoch(scene: Scene) -> Outcome:
    """The same after the client has raised its epoch, because a batch was refused."""
    client = await scene.opened()
    await client.send_all("1")
    await _refused_as_old(client, "2")
    await client.send_all("3")
    return await _restarted(scene, client, "4", "5")


async def late_copy(scene: Scene) -> Outcome:
    """A batch of two days ago is stuck in the network. The client sends it again, and is refused; in its next epoch it
    sends the record once more. Then the stuck copy comes."""
    client = await scene.opened(age_s=_TWO_DAYS_S)
    await client.send_all("1")
    client.proxy.hold("Produce")
    client.send("2")
    await _held(client, 1)
    client.proxy.strand()
    client.proxy.hold("Produce")
    await _held(client, 2)
    client.proxy.refuse_held(ErrorCode.INVALID_PRODUCER_EPOCH)
    client.proxy.release()
    await client.answer("2")
    await client.send_all("2'")
    await lasting(_SWEPT_S)
    before = client.proxy.seen["Produce answer"]
    client.proxy.arrive_late()
    await client.decided(before + 1)
    return await scene.outcome()


async def packed_again(scene: Scene) -> Outcome:
    """A client sends stored records again, in a larger batch, with new ones behind them."""
    client = await scene.opened(batch=2)
    await client.send_all("1", "2")
    await client.renumber(0)
    await client.send_all("1'", "2'", "3", "4")
    await client.send_all("5", "6")
    return await scene.outcome()


async def other_cluster(scene: Scene) -> Outcome:
    """An address moves here from another cluster, which has given a client the producer id that one here has, too."""
    first = await scene.opened()
    await first.send_all("1")
    second = await scene.client()
    second.proxy.foreign_producer_id = scene.as_elsewhere(await first.producer_id())
    await second.open()
    await second.send_all("2")
    return await scene.outcome()


async def _held(client: KafkaClient, count: int) -> None:
    await wait_for(lambda: client.proxy.held["Produce"] >= count, "batches on the wire")


async def _answers_lost(client: KafkaClient, *tags: str, batches: int = 1) -> None:
    """They are decided, the connection breaks before the answers, and they are sent again."""
    decided = client.proxy.seen["Produce answer"]
    client.proxy.hold("Produce answer")
    client.send(*tags)
    await client.decided(decided + batches)
    await lasting(_SWEPT_S)
    await client.proxy.cut()
    await client.answer(*tags)


async def _refused_as_old(client: KafkaClient, tag: str) -> None:
    """The client fails it, and raises its epoch."""
    held = client.proxy.held["Produce"]
    client.proxy.hold("Produce")
    client.send(tag)
    await _held(client, held + 1)
    client.proxy.refuse_held(ErrorCode.INVALID_PRODUCER_EPOCH)
    client.proxy.release()
    await client.answer(tag)


async def _restarted(scene: Scene, client: KafkaClient, *tags: str) -> Outcome:
    before = client.proxy.seen["Produce answer"]
    client.proxy.hold("Produce answer")
    client.send(*tags)
    await client.decided(before + len(tags))
    await scene.world.crash(scene.side)
    await client.proxy.cut()
    await client.answer(*tags)
    return await scene.outcome()


_LIBRDKAFKA, _PYTHON, _AIOKAFKA = ("confluent-kafka",), ("kafka-python",), ("aiokafka",)

HISTORIES = (
    History(
        "K1",
        "six batches in flight, and the connection breaks",
        six_in_flight,
        "acknowledged 2-6; read 1-6; refused 1",
        "acknowledged 1-6; read 1-6",
        _PYTHON,
    ),
    History(
        "K1",
        "a thousand in flight behind one of five records",
        thousand_in_flight,
        "acknowledged 1001-1005; read 1-1005; refused 1-1000",
        "acknowledged 1-1005; read 1-1005",
        _PYTHON,
    ),
    History(
        "K2",
        "the first batch of a new topic is refused, the next one is not",
        first_batch_refused,
        "acknowledged 1-4; read 3-4; LOST 1-2",
        "acknowledged 1-4; read 1-4",
        _LIBRDKAFKA,
    ),
    History(
        "K3",
        "a batch is refused, while it is unknown whether that of another partition is stored",
        refused_beside_undecided,
        "acknowledged 1-5; read 1-5; DOUBLED 3",
        "acknowledged 1-5; read 1-5",
        _LIBRDKAFKA,
    ),
    History(
        "E4",
        "records of two days ago, and a lost answer",
        old_records,
        "acknowledged 1-3; read 1-3; DOUBLED 2",
        "acknowledged 1-3; read 1-3",
    ),
    History(
        "K5 K10",
        "the same, with a first number of 2**31 - 7",
        high_first_number,
        "acknowledged 1-2; read 1-2; DOUBLED 1",
        "acknowledged 2; read 2; refused 1",
        _PYTHON,
    ),
    History(
        "E6",
        "two batches in flight, and the broker dies",
        restart,
        "acknowledged 1 3; read 1-3; refused 2",
        "acknowledged 1-3; read 1-3",
        _LIBRDKAFKA,
    ),
    History(
        "E6",
        "the same in a higher epoch",
        restart_in_an_epoch,
        "acknowledged 1 3 5; read 1 3-5; refused 2 4",
        "acknowledged 1 3-5; read 1 3-5; refused 2",
        _LIBRDKAFKA,
    ),
    History(
        "K6 K7",
        "numbers reach 2**31 within a batch whose answer is lost",
        numbers_wrap,
        "acknowledged 1-6; read 1-6; refused 7-9",
        "acknowledged 1-9; read 1-9",
        _AIOKAFKA,
    ),
    History(
        "K11",
        "stored records again, in a larger batch",
        packed_again,
        "acknowledged 1-2 5-6; read 1-2 5-6; refused 3-4 1' 2'",
        "acknowledged 1-6 1' 2'; read 1-6",
        _PYTHON,
    ),
    History(
        "K15",
        "a late copy of an older epoch",
        late_copy,
        "acknowledged 1 2'; read 1-2; DOUBLED 2; refused 2",
        "acknowledged 1 2'; read 1-2; refused 2",
        _LIBRDKAFKA,
    ),
    History(
        "K35",
        "a producer id of another cluster, which is in use here",
        other_cluster,
        "acknowledged 1-2; read 1; LOST 2",
        "acknowledged 1; read 1; refused 2",
    ),
)

#: {defects: why no history shows them}
LEFT_OUT = {
    "K13": "librdkafka and aiokafka count offsets from none; neither has 64 batches in flight, "
    "after which a place is forgotten",
    "K16 K17": "a program that starts again has another producer id, here too: names that survive that are not offered",
    "K23": "a broker of Kafka withstands it, too: tests of groups show it here",
}

"""A client that breaks the rules of its side: it leaves gaps, resumes ids without a grant, mixes up producers, and
sends batches whose payload is not what their header says.

None of its batches may be stored. They are in no history, so any of them in the log is an unexpected message.
"""

from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import Checksum, encode_batch
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.compression import Compression
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import Granted, OnConflict, ProducerInstance, ProducerOpening
from oncelog.core.formats.outcome import Outcome
from oncelog.core.ids import Generation, OwnerEpoch, ProducerId, SessionNumber, TopicId
from oncelog.core.topic_events.effects import AnswerOpen
from tests.simulation.network import Network, Stream
from tests.simulation.servers.owners.owner_server import OwnerServer
from tests.simulation.world import Process, World

#: One visit of so many is that of a client whose payloads lie.
LIARS = 3
LIE_COUNT = 1000
NOBODY = ProducerInstance(ProducerId(1 << 40), Generation(1))


class Stranger(Process):
    """One place for such a client. Each visit uses a new stream."""

    def __init__(self, world: World, network: Network, checksum: Checksum) -> None:
        super().__init__(world, "stranger")
        self.network = network
        self.checksum = checksum
        self.visits = 0

    def visit(self, owner: OwnerServer, topic_id: TopicId) -> None:
        self.visits += 1
        Visit(self, owner, topic_id, self.visits)


class Visit:
    """Opens one producer, or resumes one that was never granted, and sends batches that must be refused."""

    def __init__(self, stranger: Stranger, owner: OwnerServer, topic_id: TopicId, number: int) -> None:
        self.stranger = stranger
        self.owner = owner
        self.topic_id = topic_id
        self.stream = Stream(stranger.network, stranger, owner)
        self.stream.on_broken[owner.name] = lambda: owner.link_broken(self)
        self.lies = number % LIARS == 0
        resumes = stranger.world.chance(0.5) and not self.lies
        name, mode = None if resumes else f"stranger {number}", SequenceMode.CONTIGUOUS
        opening = ProducerOpening(number, name, mode, OnConflict.FENCE, NOBODY if resumes else None)
        self.stream.send(stranger, "a stranger opens", lambda: owner.open(self, topic_id, opening))

    def _batch(self, instance: ProducerInstance) -> bytes:
        if self.lies:
            # In order and dense: only the payload shows that no reader could decode what this would store.
            return encode_batch(
                b"no zlib", producer_id=instance.producer_id, generation=instance.generation, first=0,
                last=LIE_COUNT - 1, count=LIE_COUNT, publish_time_ms=0, checksum=self.stranger.checksum,
                compression=Compression.ZLIB, payload_raw_bytes=8 * LIE_COUNT,
            )  # fmt: skip
        return encode_batch(
            encode_values([b"unexpected"]), producer_id=instance.producer_id, generation=instance.generation, first=5,
            last=5, count=1, publish_time_ms=0, checksum=self.stranger.checksum,
        )  # fmt: skip

    def opened(self, answer: AnswerOpen, owner_epoch: OwnerEpoch) -> None:
        result = answer.result
        if isinstance(result, OncelogError):
            self.stranger.world.count(f"stranger refused: {result.code}")
            return
        assert isinstance(result, Granted)
        instance = NOBODY if self.stranger.world.chance(0.3) and not self.lies else result.instance
        session, data = result.session, self._batch(instance)
        self.stream.send(
            self.stranger,
            "a stranger sends",
            lambda: self.owner.receive_bytes(self, self.topic_id, session, data, self.stranger.checksum),
        )

    def answered(
        self, session: SessionNumber, answers: list[tuple[int, Outcome | OncelogError]], owner_epoch: OwnerEpoch
    ) -> None:
        for _, result in answers:
            code = result.code if isinstance(result, OncelogError) else "taken"
            self.stranger.world.count(f"stranger's batch: {code}")

    def ended(self, session: SessionNumber, error: OncelogError, owner_epoch: OwnerEpoch) -> None:
        self.stranger.world.count(f"stranger ended: {error.code}")

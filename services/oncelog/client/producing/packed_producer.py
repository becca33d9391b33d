"""The producer of a gateway: for one client of its own, which packs batches itself, and may come back elsewhere."""

from collections.abc import Callable

from crc32c import crc32c

from oncelog.client.network.network import Network
from oncelog.client.network.session_driver import parted
from oncelog.client.producing.duplicates import ACCEPT_ALL
from oncelog.client.producing.packed_entries import PackedCallback, PackedEntry, PackedResult
from oncelog.client.producing.send_buffer import call, check_callback
from oncelog.client.producing.sender import ProducerOptions, Sender
from oncelog.client.values.results import AnsweredRange, TopicPartition
from oncelog.core.errors import InvariantViolated, OncelogError, ProducerClosed
from oncelog.core.formats.batch import encode_batch, peek_batch
from oncelog.core.formats.client_token import token_of
from oncelog.core.formats.compression import Compression
from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.ids import NO_SEQUENCE, Generation, ProducerId, SequenceId
from oncelog.core.names import TopicName
from oncelog.core.sdk.producer.events import ClientIsThere
from oncelog.core.sdk.producer.opening import ProducerSettings
from oncelog.core.sdk.producer.sequence_ids import BatchIds


class PackedProducer:
    """Publishes the batches of one client of a gateway. Made by `gateways.create_packed_producer`.

    A batch is kept, and sent again after a takeover, until the log has decided about it; batches are stored in the
    order in which they were given. The session comes back by itself, with the same generation. It ends by
    SessionSuperseded when the client has opened its producer again, by ProducerFenced when another instance has the
    name, by SessionEnded when it ends between the chunks of a message, or by any other fatal error. Then nothing is
    opened again, and each open batch fails with that error.

    A message in chunks is a batch in the format CHUNK for each of them, and when all are stored the batch in the format
    CHUNKED that names them (`core.formats.chunks`), with no other batch in between. All have its sequence id.

    Attributes:
        topic: the full name of the topic or partition, tenant/namespace/name.
    """

    def __init__(
        self,
        topic: TopicName,
        settings: ProducerSettings,
        network: Network,
        *,
        pending_bytes_max: int,
        wanted: Callable[[], None] | None,
        create: bool = True,
    ) -> None:
        """settings: with a client. wanted, create: see `create_packed_producer`."""
        self.topic = str(topic)
        options = ProducerOptions(settings, Compression.NONE, pending_bytes_max, pending_bytes_max, ACCEPT_ALL)
        self._network = network
        self._sender = Sender(topic, options, network)
        self._sender.driver.wanted = self._name_wanted
        self._sender.driver.creates_topic = create
        self._wanted = wanted
        self._is_open = False
        self._last = NO_SEQUENCE

    def __repr__(self) -> str:
        ended = "" if self.failure is None else f", failure={type(self.failure).__name__}"
        return f"PackedProducer({self.topic!r}, name={self.name!r}{ended})"

    # --- what was granted ---------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """As given, or assigned."""
        return self._sender.core.opening.name or ""

    @property
    def _instance(self) -> ProducerInstance:
        instance = self._sender.core.opening.instance
        if instance is None:
            raise InvariantViolated("the producer was never granted")
        return instance

    @property
    def producer_id(self) -> ProducerId:
        return self._instance.producer_id

    @property
    def generation(self) -> Generation:
        return self._instance.generation

    @property
    def token(self) -> int:
        """What the client presents when it comes back, through any gateway; above 0, below 2**63."""
        return token_of(self._sender.driver.topic_partition.topic_id, self._instance)

    @property
    def last_sequence_id(self) -> SequenceId:
        """The highest id that was durable when the producer was opened, after the writes in flight had settled; -1:
        none."""
        return self._last

    @property
    def batch_bytes_max(self) -> int:
        """Bytes of the largest payload of a batch."""
        return self._sender.core.message_bytes_max

    # --- sending ------------------------------------------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        """Bytes of the batches about which the log has not decided yet."""
        return self._sender.pending_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Whether a batch of this size may be given now; always True when nothing is pending."""
        return self.failure is None and self._sender.has_room(size_bytes)

    async def room(self, size_bytes: int) -> None:
        """Return when there is room, or when the producer has ended."""
        try:
            await self._sender.room(size_bytes)
        except OncelogError:
            if self.failure is None:
                raise

    def send_nowait(self, entry: PackedEntry, on_result: PackedCallback) -> None:
        """Give one batch. on_result is called once, on the event loop, possibly before this returns.

        Raises TooManyRequests at once when there is no room, InvalidSequenceId when ids and count contradict each
        other, and the error that ended the producer. Then on_result is not called.
        """
        check_callback(on_result)
        entry.check()
        self._sender.send_packed(entry, _PendingPacked(on_result))

    def checksum_of(self, entry: PackedEntry) -> int:
        """Of the batch that the log stores of an entry: the message that names a chunk names its checksum, too."""
        return peek_batch(
            encode_batch(
                entry.payload,
                producer_id=self.producer_id,
                generation=self.generation,
                first=entry.ids.first,
                last=entry.ids.last,
                count=entry.count,
                publish_time_ms=entry.publish_time_ms,
                checksum=crc32c,
                deltas=entry.ids.deltas,
                payload_format=entry.payload_format,
                unit=entry.unit,
            )
        ).checksum

    # --- the client of the gateway ------------------------------------------------------------------------------------

    def _name_wanted(self) -> None:
        """A client whose opening is not answered yet has just asked: it is there."""
        if self._is_open and self._wanted is not None:
            self._wanted()
        else:
            self.client_lives()

    def client_lives(self) -> None:
        """The answer to `wanted`: the client is there, and keeps its name. For one that is gone, close the producer."""
        if self.failure is None:
            self._sender.driver.feed(ClientIsThere())

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def failure(self) -> OncelogError | None:
        """The error that ended this producer; None while it is open."""
        return self._network.inherited or self._sender.core.error

    async def ended(self) -> OncelogError:
        """Return how this producer ended, when it does: ProducerClosed if by `close`."""
        return await self._sender.ended()

    async def open(self, timeout_ms: int | None) -> None:
        """Get the first session. Raises the reason why there is none."""
        await self._sender.open(timeout_ms)
        self._last, self._is_open = self._sender.core.numbers.stored, True

    async def close(self, *, gives_up_name: bool) -> None:
        """End the session. Each open batch fails with ProducerClosed.

        gives_up_name: the client has closed its producer, so the name is free. Otherwise it is kept for 2 s for the
        client and its token. Returns when the owner has answered, after a second at most.
        """
        if self._network.inherited is not None:
            return
        self._network.check_loop()
        if self._sender.core.error is None:
            self._sender.close(ProducerClosed("the producer was closed"), gives_up_name=gives_up_name)
        await parted([self._sender.driver])


class _PendingPacked:
    """The result of one batch."""

    __slots__ = ("_on_result",)

    def __init__(self, on_result: PackedCallback) -> None:
        self._on_result = on_result

    def completed(self, topic: TopicPartition, ids: BatchIds, ranges: list[AnsweredRange]) -> None:
        call(self._on_result, PackedResult(topic, ids, tuple(ranges)), None)

    def failed(self, error: OncelogError) -> None:
        call(self._on_result, None, error)

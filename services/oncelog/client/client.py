"""The asyncio client: `connect`, and the AsyncClient that makes producers, readers and consumers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.consuming.subscribing import SubscriptionTypeName, consumer_settings, first_indexes
from oncelog.client.flushing import flush_all
from oncelog.client.network.addresses import Routing, parse_url, routing_of, speaks_tls
from oncelog.client.network.network import Network
from oncelog.client.network.start_position import Place
from oncelog.client.opening import opening
from oncelog.client.producing.duplicates import rules_of
from oncelog.client.producing.keyed_publish import publish_keyed
from oncelog.client.producing.leases import LeaseWanted, ProducerLease, lease_all, leased
from oncelog.client.producing.message_arguments import Key, plain_key
from oncelog.client.producing.packed_producer import PackedProducer
from oncelog.client.producing.producer import AsyncProducer
from oncelog.client.producing.send_buffer import Properties
from oncelog.client.producing.sender import PENDING_SLACK_BYTES, CompressionName, ProducerOptions, compression_of
from oncelog.client.reading.finding import FoundMessage, find_message
from oncelog.client.reading.log_reader import last_message
from oncelog.client.reading.reader import AsyncReader, ReadStart, check_read_start
from oncelog.client.reading.search import AsyncSearch, readers_of, search_settings, searched_parts, wanted_of
from oncelog.client.still_open import StillOpen
from oncelog.client.values.arguments import CONFLICTS, MODES, check_seconds, check_token, check_type, choice, integer
from oncelog.client.values.encrypted import choices_of
from oncelog.client.values.results import PublishResult
from oncelog.client.values.trace_context import CurrentTrace
from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.chunks import CHUNKED_BYTES_DEFAULT, CHUNKED_BYTES_MAX
from oncelog.core.formats.message_id import EARLIEST, LATEST, MessageId
from oncelog.core.names import check_producer_name, parse_topic
from oncelog.core.sdk.producer.opening import MESSAGE_BYTES_MAX, ProducerSettings
from oncelog.core.sdk.producer.sequence_assignment import check_initial
from oncelog.runtime.credentials import Credentials, Token

BATCH_BYTES_MAX = 262_144
PENDING_BYTES_MAX = 67_108_864
OPERATION_TIMEOUT_S = 30.0
ConsumerT = TypeVar("ConsumerT", bound=AsyncConsumer)


class AsyncClient:
    """A client of one cluster; made by `connect`. One client per process is enough.

    Its users share connections: one publish and one consume stream for each topic owner.

        async with oncelog.connect("oncelog://127.0.0.1:6650") as client:
            producer = await client.create_producer("flights", producer_name="importer")
    """

    def __init__(
        self,
        url: str,
        *,
        token: Token | None = None,
        tls_ca_file: Path | str | None = None,
        allow_plaintext_token: bool = False,
        operation_timeout: float | None = OPERATION_TIMEOUT_S,
        storage_reads: bool = True,
        max_message_bytes: int = CHUNKED_BYTES_DEFAULT,
        internal: bool = False,
    ) -> None:
        """See `connect`. internal: for the cluster's own services; topic owners are reached at their own addresses
        instead of those that they advertise to clients, and a producer has one log: a partitioned topic is refused."""
        check_type("url", url, str, "a string")
        check_token(token)
        if tls_ca_file is not None:
            check_type("tls_ca_file", tls_ca_file, (str, Path), "a path")
        check_type("allow_plaintext_token", allow_plaintext_token, bool, "True or False")
        check_type("storage_reads", storage_reads, bool, "True or False")
        max_message_bytes = integer("max_message_bytes", max_message_bytes, 0, CHUNKED_BYTES_MAX)
        check_seconds("operation_timeout", operation_timeout)
        self._addresses = addresses = parse_url(url)
        credentials = Credentials.of(
            tls=speaks_tls(url),
            token=token,
            tls_ca_file=tls_ca_file,
            plaintext_token_allowed=allow_plaintext_token,
        )
        for address in addresses:
            credentials.check_address(address)
        routing = Routing.INTERNAL if internal else routing_of(url)
        self._network = Network(
            addresses, credentials, routing, storage_reads=storage_reads, message_bytes_max=max_message_bytes
        )
        self._internal = internal
        self._timeout_ms = None if operation_timeout is None else int(operation_timeout * 1000)
        self._producers = StillOpen[AsyncProducer](lambda producer: producer.failure is not None)
        self._packed = StillOpen[PackedProducer](lambda producer: producer.failure is not None)
        self._readers = StillOpen[AsyncReader](lambda reader: reader.closed)
        self._consumers = StillOpen[AsyncConsumer](lambda consumer: consumer.failure is not None)

    def __repr__(self) -> str:
        return f"AsyncClient({', '.join(self._addresses)})"

    @opening
    async def create_producer(
        self,
        topic: str,
        *,
        producer_name: str | None = None,
        initial_sequence_id: int | None = None,
        sequence_mode: Literal["monotonic", "contiguous"] = "monotonic",
        on_conflict: Literal["fence", "refuse"] = "fence",
        send_timeout: float | None = None,
        compression: CompressionName | None = None,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        pending_bytes_max: int = PENDING_BYTES_MAX,
        on_unverified: Literal["accept", "raise"] = "raise",
        on_content_differs: Literal["accept", "raise"] = "raise",
        on_behalf_of: Caller | None = None,
        trace_context: bool = False,
        lease: ProducerLease | None = None,
        chunking: bool = False,
    ) -> AsyncProducer:
        """Open a producer. It fences all older instances of the same producer name on this topic.

        A missing topic is created where the namespace's policy allows it.

        Args:
            topic: `flights` (short for public/default/flights), `tenant/namespace/name`, or a partition,
                `flights-partition-0`. For a partitioned topic the producer publishes to all its partitions: by the hash
                of the key, else by sequence_id modulo their number, else in turn.
            producer_name: 1 to 255 printable characters. Deduplication works per name: give the same name after a
                restart. None assigns a unique name.
            initial_sequence_id: for automatic ids, the last id that was used: the first message gets the next one
                (-1: the first message gets 0). None continues after the last stored id; below it, the next
                messages are repetitions: a warning is logged, and `repeats_ahead` says how many.
            sequence_mode: "monotonic" ids may have gaps; with "contiguous" a gap is an error.
            on_conflict: "fence" ends a connected instance of the same name. "refuse" raises ProducerBusy instead;
                after the topic has moved to another owner, this takes up to 12 s, in which the older instance may
                reconnect.
            send_timeout: seconds until a send fails with DeadlineExceeded. None: no limit.
            compression: "zlib", or "zstd" or "lz4", which need the extra of that name, also where it is read; or None.
            batch_bytes_max: bytes of values in one batch, 1 to 5 MiB.
            pending_bytes_max: bytes that may be given and not answered yet; `send` waits when they are reached.
            on_unverified: what happens to a message whose sequence id is older than all ids that the log remembers of
                the producer; it is not stored now and may never have been. "raise": the send fails with
                UnverifiedSequence. "accept": a result with verified=False, and one warning per producer in the log of
                `oncelog.client.unverified`; for programs that send everything again from a source that keeps it.
            on_content_differs: what happens to a message if another one is stored under its sequence id, as far as the
                log can compare them; it is not stored. "raise": the send fails with ContentDiffers, which has the
                message id of the first copy. "accept": a duplicate with content_differs=True. With trace_context, which
                makes each attempt another message, the difference counts as unknown. With "raise", the first
                duplicates of unknown content are logged as a warning of `oncelog.client.unknown_content`.
            on_behalf_of: for superusers: the caller for whom the producer is opened, and whose role owns the name.
            trace_context: carry the trace context of OpenTelemetry's current span in each message, as the properties
                `traceparent` and `tracestate`, some 70 bytes. A message that has a `traceparent` keeps it.
            chunking: send values above the topic's limit, up to 1 GiB, in chunks of at most 1 MiB and one message that
                names them. Readers and consumers get one message; see `max_message_bytes` of `connect`.
            lease: of this topic, from `lease_producer_ids`: contiguous, behind its last_sequence_id, without a name. A
                saved one repeats what was stored since; see ProducerLease.

        Raises:
            InvalidName, InvalidArgument: an argument is not valid; `field` names it.
            CompressionUnavailable: the library of the compression is not installed; `extra` names what to install.
            TopicNotFound, PermissionDenied: it may not be created; the caller may not publish to it.
            ModeMismatch: the producer name is bound to the other sequence mode.
            ProducerBusy: with on_conflict="refuse", another instance is connected.
            SequenceGap: contiguous, and initial_sequence_id is beyond the last stored id.
            DeadlineExceeded: no topic owner granted it within operation_timeout. ClientClosed: the client is closed.
        """
        self._network.check_open()
        name = parse_topic(topic)
        if initial_sequence_id is not None:
            initial_sequence_id = integer("initial_sequence_id", initial_sequence_id)
        check_initial(initial_sequence_id)
        batch_bytes_max = integer("batch_bytes_max", batch_bytes_max, 1, MESSAGE_BYTES_MAX)
        pending_bytes_max = integer("pending_bytes_max", pending_bytes_max, 1, 1 << 40)
        check_seconds("send_timeout", send_timeout)
        if on_behalf_of is not None:
            check_type("on_behalf_of", on_behalf_of, Caller, "a Caller")
        settings = ProducerSettings(
            name=None if producer_name is None else check_producer_name(producer_name),
            mode=choice("sequence_mode", MODES, sequence_mode),
            on_conflict=choice("on_conflict", CONFLICTS, on_conflict),
            initial_sequence_id=initial_sequence_id,
            send_timeout_ms=None if send_timeout is None else max(1, int(send_timeout * 1000)),
            pending_bytes_max=pending_bytes_max + PENDING_SLACK_BYTES,
            on_behalf_of=on_behalf_of,
        )
        check_type("trace_context", trace_context, bool, "True or False")
        check_type("chunking", chunking, bool, "True or False")
        options = ProducerOptions(
            settings if lease is None else leased(settings, lease, name),
            compression_of(compression),
            batch_bytes_max,
            pending_bytes_max,
            rules_of(on_unverified, on_content_differs, comparable=not trace_context),
            CurrentTrace() if trace_context else None,
            chunking,
        )
        producer = AsyncProducer(name, options, self._network)
        self._producers.add(producer)
        await producer.open(self._timeout_ms, one_log=self._internal)
        return producer

    async def lease_producer_ids(self, wanted: Sequence[LeaseWanted]) -> list[ProducerLease | OncelogError]:
        """Lease producer ids, at most 1,000; each has a lease or an error of its own. A lease is durable when it is
        answered, and survives this program. Raises InvalidArgument."""
        self._network.check_open()
        return await lease_all(self._network, wanted, self._timeout_ms)

    async def publish(
        self,
        topic: str,
        value: Buffer,
        *,
        idempotency_key: str,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> PublishResult:
        """Publish one message that has a key of its own, such as the UUID of a web request, from any process.

        The message of a key is stored once, however often and from however many processes it is published within the
        cluster's window (a day, ONCELOG_IDEMPOTENCY_WINDOW_S), and each call returns the same message id. Unlike a
        producer this needs no name and no sequence ids; it costs two writes to the cluster's Redis for each message.
        The call repeats itself until it is answered, at most operation_timeout. Keys belong to a topic, and to the role
        that used them first; those of HTTP publish are the same.

        Args:
            topic: as in `create_producer`. Of a partitioned topic, the message goes to the partition of its `key`, or
                else of its idempotency key, among the partitions that the topic was created with.
            value: bytes, bytearray or memoryview.
            idempotency_key: 1 to 255 printable ASCII characters.
            key: as in `send` of a producer; must be UTF-8.
            event_time_ms, properties: as in `send` of a producer.

        Raises:
            InvalidArgument: an argument has a wrong type or value; `field` names it.
            MessageTooLarge: the value exceeds the metadata service's limit.
            IdempotencyKeyReused: the key was used for another message, or by another role. Nothing was stored.
            IdempotencyUnavailable: the cluster has no Redis for keys, or it has lost keys and refuses them for longer
                than operation_timeout.
            PermissionDenied: the caller may not publish to the topic.
            TopicNotFound: the topic does not exist and may not be created.
            DeadlineExceeded: no answer within operation_timeout; `stored` is None: call again with the same key.
            ClientClosed: the client is closed.
        """
        self._network.check_open()
        return await publish_keyed(
            self._network,
            parse_topic(topic),
            value,
            idempotency_key=idempotency_key,
            key=key,
            event_time_ms=event_time_ms,
            properties=properties,
            timeout_ms=self._timeout_ms,
        )

    @opening
    async def create_reader(
        self,
        topic: str,
        *,
        start: ReadStart = EARLIEST,
        inclusive: bool = False,
        on_corrupt: Literal["raise", "skip"] = "raise",
        on_encrypted: Literal["raise", "pass"] = "raise",
    ) -> AsyncReader:
        """Open a reader of one topic, with all its partitions.

        A missing topic is created where the namespace's policy allows it and the caller has the right `produce`,
        except with start=LATEST.

        Args:
            topic: as in `create_producer`.
            start: where reading begins.
                EARLIEST: the first message that is kept.
                LATEST: only messages stored from now on; with inclusive=True also the last stored one.
                A MessageId: the message after it; with inclusive=True the message itself.
                A datetime with a time zone: the first message that was appended at or after that time.
                Index(n): message number n of the topic, or the first one after it that is kept.
                A list of MessageIds: for a partitioned topic, the last one read of each partition; a partition without
                one begins with its first message.
            on_corrupt: what happens at an entry that cannot be read. "raise": CorruptEntry or UnreadableEntry, on each
                read. "skip": the entry is skipped with a warning in the log, `reader.skipped` has its position and the
                reason, and later messages keep their index.
            on_encrypted: of a message that a client of Pulsar has encrypted. "raise": MessageEncrypted, on each read.
                "pass": its value is an EncryptedMessage.

        Raises:
            InvalidName, InvalidArgument: an argument is not valid; `field` names it.
            TopicNotFound: it does not exist and was not created. PermissionDenied: the caller may not read it.
            DeadlineExceeded: no answer within operation_timeout. ClientClosed: the client is closed.
        """
        self._network.check_open()
        name = parse_topic(topic)
        check_read_start(start, inclusive)
        skips, passes = choices_of(on_corrupt, on_encrypted)
        reader = AsyncReader(name, self._network, timeout_ms=self._timeout_ms, on_corrupt=skips, on_encrypted=passes)
        await reader.open(start, inclusive=inclusive)
        self._readers.add(reader)
        return reader

    @opening
    async def subscribe(
        self,
        topic: str,
        *,
        subscription: str,
        type: SubscriptionTypeName = "exclusive",  # noqa: A002  # the name that users know
        start: Place = LATEST,
        inclusive: bool = False,
        consumer_name: str | None = None,
        max_deliveries: int | None = None,
        dead_letter_topic: str | None = None,
        ack_timeout: float | None = None,
        receive_window: int | None = None,
        priority: int = 0,
        properties: Mapping[str, str] | None = None,
        on_corrupt: Literal["raise", "skip"] = "raise",
        on_encrypted: Literal["raise", "pass"] = "raise",
    ) -> AsyncConsumer:
        """Open a consumer of a subscription. A missing subscription is created, and a missing topic where the
        namespace's policy allows it.

        Args:
            topic: as in `create_producer`. A partitioned topic means all its partitions; a partition's name,
                `flights-partition-0`, means that one alone.
            subscription: 1 to 255 characters of A-Z a-z 0-9 _ - = : . It keeps its position while nobody is connected.
            type: how the messages are shared out. "exclusive": there is one consumer. "failover": one consumer is
                active for each partition, the others wait for its end. "shared": each message goes to one of the
                consumers. "key_shared": the same, and messages of one key stay in order with one consumer at a time.
            start: where the subscription begins if it is created now; an existing one goes on where it is.
                LATEST: messages stored from now on. EARLIEST, a MessageId, a datetime, Index: as in `create_reader`. A
                message id and an index are places of one partition.
            inclusive: with a message id: begin with that message itself.
            consumer_name: the same characters; unique among the connected consumers of the subscription. None assigns a
                unique name.
            max_deliveries: after so many deliveries without an acknowledgement a message goes to the dead-letter topic.
                None or 0: no limit.
            dead_letter_topic: None: a name derived from topic and subscription. Only with max_deliveries.
            ack_timeout: seconds from `receive`, after which a message that was not acknowledged is delivered again; at
                most a day. None: no limit, while the consumer is connected. Exclusive and failover: everything behind
                it is delivered again, too, in order.
            receive_window: messages that wait in this process for the application, at most, over all partitions. None:
                50,000 for exclusive and failover without ack_timeout, otherwise 10,000.
            priority: of a failover subscription: consumers with lower numbers become active first.
            properties: of the subscription, if it is created now: up to 64, text to text, 16 KiB.
            on_corrupt: what happens at an entry that cannot be read. "raise": if it cannot be decoded, CorruptEntry,
                once for each delivery, and its messages stay unacknowledged; if no storage node can give it any more,
                the consumer ends with UnreadableEntry or EntriesLost. "skip": its messages are acknowledged, with a
                warning in the log, and `consumer.skipped` has them.
            on_encrypted: as in `create_reader`.

        Raises:
            InvalidName, InvalidArgument: an argument is not valid; `field` names it.
            ConsumerBusy: another consumer is connected to the exclusive subscription, or under this name.
            SubscriptionTypeMismatch: the subscription has consumers of another type.
            TopicNotFound: it does not exist and may not be created. PermissionDenied: the caller may not consume it.
            DeadlineExceeded: no topic owner answered within operation_timeout. ClientClosed: the client is closed.
        """
        self._network.check_open()
        name = parse_topic(topic)
        settings = consumer_settings(
            subscription, type, consumer_name, max_deliveries, dead_letter_topic, ack_timeout, receive_window, priority,
            properties,
        )  # fmt: skip
        skips, passes = choices_of(on_corrupt, on_encrypted)
        topics = await first_indexes(self._network, name, start, inclusive=inclusive, timeout_ms=self._timeout_ms)
        self._network.check_open()
        consumer = AsyncConsumer(
            name, settings, self._network, timeout_ms=self._timeout_ms, on_corrupt=skips, on_encrypted=passes
        )
        self._consumers.add(consumer)
        await consumer.open(topics)
        return consumer

    def _adopt(self, made: Callable[[Network, int | None], ConsumerT]) -> ConsumerT:
        self._network.check_open()
        consumer = made(self._network, self._timeout_ms)
        self._consumers.add(consumer)
        return consumer

    async def last_message_id(self, topic: str) -> MessageId | None:
        """The id of the topic's last message; None when the topic holds no message. A partitioned topic has no last
        message: ask for each partition.

        Every message that was acknowledged before the call is counted. Creates no topic. Raises InvalidName,
        TopicNotFound, PermissionDenied, DeadlineExceeded or ClientClosed.
        """
        return (await last_message(self._network, parse_topic(topic), timeout_ms=self._timeout_ms)).message_id

    @opening
    async def search(
        self,
        topic: str,
        *,
        key: Key | None = None,
        text: str | None = None,
        filter: str | None = None,  # noqa: A002  # the name that users know
        producer_name: str | None = None,
        start: Place = EARLIEST,
        backwards: bool = False,
        limit: int | None = None,
        bytes_max: int | None = None,
        on_corrupt: Literal["raise", "skip"] = "raise",
    ) -> AsyncSearch:
        """Search what is stored of a topic now; of a partitioned topic, one partition after the other. See AsyncSearch.

        Args:
            topic: as in `create_producer`. It is not created.
            key: the whole key.
            text: a part of the value, in UTF-8.
            filter: a condition on the value as JSON: a path, and ==, !=, <, <=, >, >= or contains and a JSON value:
                `.order == 17`, `.customer.name contains "Ann"`. A path alone asks whether there is such a value.
            producer_name: of the producer. Of the four, all that are given must hold.
            start: where the search begins, as in `create_reader`.
            backwards: from the end of the topic, the newest message first; not with `start`.
            limit: messages that are returned at most.
            bytes_max: bytes of values that are looked at, about; then the search ends, and `progress.complete` is
                False. None: no limit.
            on_corrupt: as in `create_reader`.

        Raises as `create_reader`, and TopicNotFound for a missing topic.
        """
        self._network.check_open()
        wanted = wanted_of(plain_key(key), text, filter, producer_name)
        settings = search_settings(backwards, start, limit, bytes_max, self._timeout_ms)
        names = await searched_parts(self._network, parse_topic(topic), start, self._timeout_ms)
        open_one = partial(self.create_reader, start=start, on_corrupt=on_corrupt)
        return AsyncSearch(await readers_of(names, open_one), wanted, settings)

    async def find_message(self, topic: str, *, producer_name: str, sequence_id: int) -> list[FoundMessage]:
        """Whether and where the message of a producer name and a sequence id is stored, of any age that is kept; of a
        partitioned topic, what each partition says.

        Raises InvalidName, InvalidArgument, InvalidSequenceId, TopicNotFound, PermissionDenied, and DeadlineExceeded
        when no answer came within operation_timeout.
        """
        self._network.check_open()
        return await find_message(
            self._network, parse_topic(topic), producer_name=producer_name, sequence_id=sequence_id,
            timeout_ms=self._timeout_ms,
        )  # fmt: skip

    async def close(self, *, flush: bool = True) -> None:
        """Close all producers, readers, consumers and connections.

        With flush=True this first waits, at most operation_timeout, until all pending messages and acknowledgements are
        answered. If some are not answered by then, the client closes all the same and raises DeadlineExceeded, which
        states the number of bytes. With flush=False it closes at once: pending messages fail with ProducerClosed, whose
        `stored` is None for those that may be in the log. Raises no error of a single send.

        In a forked child it does nothing: the client belongs to the parent.
        """
        if self._network.inherited is not None:
            return
        self._network.check_loop()
        late = None
        try:
            if flush:
                seconds = None if self._timeout_ms is None else self._timeout_ms / 1000
                late = await flush_all(self._producers, self._consumers, seconds)
        finally:
            for producer in self._producers:
                await producer.close(flush=False)
            await asyncio.gather(*(packed.close(gives_up_name=False) for packed in self._packed))
            for reader in self._readers:
                await reader.close()
            await asyncio.gather(*(consumer.close(flush=False) for consumer in self._consumers))
            await self._network.close()
        if late is not None:
            raise late

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client; wait for pending messages unless the block was left by an exception."""
        await self.close(flush=kind is None)


def network_of(client: AsyncClient) -> Network:
    return client._network  # noqa: SLF001  # for Oncelog's own modules that build on a client


def adopt(client: AsyncClient, made: Callable[[Network, int | None], ConsumerT]) -> ConsumerT:
    """For the same: a consumer of another kind, which is closed with the client. int: the timeout, in milliseconds."""
    return client._adopt(made)  # noqa: SLF001

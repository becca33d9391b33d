"""For gateways: ordinary clients of Oncelog that have clients of their own, which speak another protocol.

A gateway keeps no state. What its client must know to come back through another gateway is in the token, and which of
its openings is the later one is in the epoch. `core.publishing.client_order` has the rules.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.consuming.entry_consumer import (
    ConsumedEntry,
    ConsumerStart,
    EntryConsumer,
    EntryConsumerCallbacks,
)
from oncelog.client.consuming.subscribing import SubscriptionTypeName, consumer_settings
from oncelog.client.network.start_position import ask_index
from oncelog.client.producing.packed_entries import PackedCallback, PackedEntry, PackedResult
from oncelog.client.producing.packed_producer import PackedProducer
from oncelog.client.producing.sender import PENDING_SLACK_BYTES
from oncelog.client.reading.entry_chunks import EntryChunks
from oncelog.client.reading.entry_reader import EntryReader
from oncelog.client.reading.log_reader import last_message
from oncelog.client.subscription_calls import SubscriptionRest
from oncelog.client.values.arguments import CONFLICTS, MODES, check_seconds, check_type, choice, integer
from oncelog.client.values.whole_entries import EntryStart, WholeEntry
from oncelog.core.access import Caller
from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.client_token import decode_token
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import GatewayClient
from oncelog.core.ids import (
    INSTANCE_ID_BYTES,
    NO_INSTANCE,
    NO_SEQUENCE,
    SEQUENCE_ID_MAX,
    InstanceId,
    Position,
    SequenceId,
)
from oncelog.core.names import check_producer_name, parse_topic
from oncelog.core.sdk.producer.opening import ProducerSettings
from oncelog.rpc.codecs.metadata_codec import TOPICS
from oncelog.rpc.codecs.reader_codec import StartEdge, StartIndex, StartMessage, StartTime
from oncelog.wire.metadata_pb2 import TopicsRequest

__all__ = [
    "ConsumedEntry",
    "ConsumerStart",
    "EntryChunks",
    "EntryConsumer",
    "EntryConsumerCallbacks",
    "EntryReader",
    "EntryStart",
    "LogBounds",
    "PackedCallback",
    "PackedEntry",
    "PackedProducer",
    "PackedResult",
    "StartEdge",
    "StartIndex",
    "StartMessage",
    "StartTime",
    "SubscriptionTypeName",
    "WholeEntry",
    "bounds_of",
    "chunks_of",
    "create_packed_producer",
    "index_at",
    "open_entry_consumer",
    "open_entry_reader",
    "topics_of",
]

PENDING_BYTES_MAX = 16 * 1024 * 1024
_EPOCH_MAX = 2**64 - 1
_MODES = {**MODES, "epoched": SequenceMode.EPOCHED}
NO_CALLBACKS = EntryConsumerCallbacks()
#: Of a question about a subscription, and of its deletion.
SUBSCRIPTION_CALL_MS = 30_000


async def create_packed_producer(
    client: AsyncClient,
    topic: str,
    *,
    producer_name: str | None = None,
    token: int = 0,
    epoch: int | None = None,
    sequence_mode: Literal["monotonic", "contiguous", "epoched"] = "monotonic",
    instance_id: bytes | None = None,
    initial_mark: int = NO_SEQUENCE,
    on_behalf_of: Caller | None = None,
    on_conflict: Literal["fence", "refuse"] = "refuse",
    wanted: Callable[[], None] | None = None,
    create: bool = True,
    pending_bytes_max: int = PENDING_BYTES_MAX,
    timeout: float | None = None,
) -> PackedProducer:
    """Open a producer for one client of a gateway. It waits while the topic has no owner, and while it is unknown
    whether another client holds the name; cancelling the call withdraws the request.

    Args:
        topic: `tenant/namespace/name`, or a partition of it, `name-partition-0`; not a topic with partitions.
        producer_name: None assigns one, which the client gives when it comes back.
        token: of an earlier producer of this client, from any gateway; 0: none, so it is a new instance. A token of
            another topic or producer under the same names counts as none.
        epoch: higher than that of each earlier opening of this client; 0 to 2**64 - 1. None: the client does not count
            them, so the later opening wins.
        sequence_mode: "epoched" is for clients of Kafka (`core.formats.epoched_ids`): the name begins with `kafka/`.
        instance_id: of a client that presents no token, 16 bytes, the same from each gateway. The first opening of the
            name has an entry of the log, and each later one goes on with that grant. It ends the session before it as
            superseded, if its epoch is another one: give each opening an epoch of its own, in any order.
        initial_mark: of a new name: ids up to it count as taken; -1: none.
        on_behalf_of: for superusers: the caller whose rights are checked, and whose role owns the name.
        on_conflict: of a new instance. "refuse": ProducerBusy while another client holds the name. Is that the client
            of a gateway, the gateway is asked whether it is there; no answer in 8 s means that it is gone. "fence": the
            name is taken at once.
        wanted: called when another client wants the name, after this call has returned: call `client_lives`, or close
            the producer. None: the answer is at once that the client is there.
        create: a missing topic, with the rights of the gateway, not those of on_behalf_of. False: TopicNotFound.
        pending_bytes_max: bytes that may be given and not decided yet.
        timeout: seconds; None: no limit.

    Raises:
        InvalidName, InvalidArgument: an argument is not valid, or the topic has partitions; `field` names it. `client`:
            the cluster has a lower level than 9, which knows clients of gateways.
        ProducerFenced: the token is of an earlier generation, or the epoch is not above that of the client's session.
        ProducerBusy: see on_conflict.
        ModeMismatch: the name is bound to another sequence mode.
        TopicNotFound, PermissionDenied, ClientClosed, DeadlineExceeded: as `create_producer`.
    """
    network = network_of(client)
    network.check_open()
    name = parse_topic(topic)
    token = integer("token", token)
    check_seconds("timeout", timeout)
    if wanted is not None and not callable(wanted):
        raise InvalidArgument(f"wanted must be a function, not {type(wanted).__name__}", field="wanted")
    if epoch is not None:
        epoch = integer("epoch", epoch, 0, _EPOCH_MAX)
    if instance_id is not None:
        check_type("instance_id", instance_id, bytes, "bytes")
        if len(instance_id) != INSTANCE_ID_BYTES or not any(instance_id) or epoch is None or token:
            message = f"instance_id is {INSTANCE_ID_BYTES} bytes, not all zero, with an epoch and without a token"
            raise InvalidArgument(message, field="instance_id", limit=INSTANCE_ID_BYTES)
    if on_behalf_of is not None:
        check_type("on_behalf_of", on_behalf_of, Caller, "a Caller")
    pending_bytes_max = integer("pending_bytes_max", pending_bytes_max, 1, 1 << 40)
    settings = ProducerSettings(
        name=None if producer_name is None else check_producer_name(producer_name),
        mode=choice("sequence_mode", _MODES, sequence_mode),
        initial_mark=SequenceId(integer("initial_mark", initial_mark, NO_SEQUENCE, SEQUENCE_ID_MAX - 1)),
        instance_id=NO_INSTANCE if instance_id is None else InstanceId(instance_id),
        on_conflict=choice("on_conflict", CONFLICTS, on_conflict),
        pending_bytes_max=pending_bytes_max + PENDING_SLACK_BYTES,
        on_behalf_of=on_behalf_of,
        client=GatewayClient(epoch, decode_token(token) if token else None),
    )
    producer = PackedProducer(
        name, settings, network, pending_bytes_max=pending_bytes_max, wanted=wanted, create=create
    )
    client._packed.add(producer)  # noqa: SLF001  # it is closed with the client, which waits for no results of it
    await producer.open(None if timeout is None else max(1, int(timeout * 1000)))
    return producer


async def open_entry_reader(
    client: AsyncClient,
    topic: str,
    start: EntryStart,
    *,
    create: bool = True,
    window_bytes: int,
    timeout: float | None = None,
) -> EntryReader:
    """Open a reader of whole entries for one client of a gateway. Close it; the client does not.

    The rights are those of the gateway: it checks those of its client itself. window_bytes: of entries that wait in the
    reader. The others as in `EntryReader.open`. Raises as that, InvalidName, InvalidArgument for a topic with
    partitions, ClientClosed, and DeadlineExceeded with the last retriable reason.
    """
    network = network_of(client)
    network.check_open()
    check_seconds("timeout", timeout)
    timeout_ms = None if timeout is None else max(1, int(timeout * 1000))
    reader = EntryReader(parse_topic(topic), network, timeout_ms=timeout_ms, window_bytes=window_bytes)
    await reader.open(start, create=create)
    return reader


class LogBounds(NamedTuple):
    """Of a topic without partitions, or of one partition. first: the index of the first message that is kept. end: the
    index behind the last message; every message that was acknowledged before the call is in front of it."""

    first: int
    end: int


async def bounds_of(client: AsyncClient, topic: str, *, timeout_ms: int, create: bool = False) -> LogBounds:
    """create: the topic if it is missing, as `open_entry_reader` does. Raises TopicNotFound, InvalidName, another fatal
    error, or DeadlineExceeded with the last retriable reason."""
    network = network_of(client)
    network.check_open()
    name, what = parse_topic(topic), f"the first message of {topic}"
    first = await ask_index(network, name, StartEdge.EARLIEST, timeout_ms=timeout_ms, create=create, what=what)
    last = await last_message(network, name, timeout_ms=timeout_ms)
    # Everything in front of the end may have been trimmed since the first question.
    return LogBounds(min(first.first_index, last.next_index), last.next_index)


async def index_at(client: AsyncClient, topic: str, place: StartMessage | StartTime, *, timeout_ms: int) -> int:
    """The index of a message that is stored, or of the first one behind a time; the end if there is none. Creates no
    topic. Raises as `bounds_of`, and the errors of a read of this place."""
    network = network_of(client)
    network.check_open()
    what = f"the index of {place} in {topic}"
    found = await ask_index(network, parse_topic(topic), place, timeout_ms=timeout_ms, create=False, what=what)
    return found.begins_at


def chunks_of(client: AsyncClient, topic: str, entry: WholeEntry) -> EntryChunks:
    """The chunks of a message that was read or consumed without its value (`network.chunk_join.is_chunked`).

    topic: as the reader or consumer was opened with. The rights are those of the gateway. Raises InvalidName,
    ClientClosed, CorruptEntry.
    """
    network = network_of(client)
    network.check_open()
    return EntryChunks(parse_topic(topic), entry.stored, network)


async def topics_of(client: AsyncClient, namespace: str, *, timeout_ms: int) -> list[tuple[str, int]]:
    """The topics of a namespace, sorted, each with the number of its partitions, 0 if it is not partitioned. Partitions
    themselves are not listed. timeout_ms: of one service; it reads a record for each topic.

    Raises:
        InvalidName, NamespaceNotFound, PermissionDenied: `namespace` is tenant/namespace.
        ServiceUnavailable, DeadlineExceeded: no metadata service has answered.
    """
    lookup = network_of(client).lookup
    found = await lookup.ask(TOPICS, TopicsRequest(namespace=namespace), timeout_ms=timeout_ms)
    return [(each.topic, each.partitions) for each in found.topics]


async def open_entry_consumer(
    client: AsyncClient,
    topic: str,
    subscription: str,
    type: SubscriptionTypeName,  # noqa: A002  # as in `subscribe`
    consumer_name: str,
    *,
    start: ConsumerStart,
    create: bool = True,
    priority: int = 0,
    properties: Mapping[str, str] | None = None,
    callbacks: EntryConsumerCallbacks = NO_CALLBACKS,
    window_bytes: int,
    timeout: float | None = None,
) -> EntryConsumer:
    """Attach to a subscription for one client of a gateway. Close the consumer; the client does not.

    The rights are those of the gateway: it checks those of its client itself.

    Args:
        topic: `tenant/namespace/name`, or a partition of it, `name-partition-0`; not a topic with partitions.
        consumer_name: unique among the connected consumers of the subscription.
        start: where the subscription begins if it is missing, and `create`.
        create: create a missing topic, and a missing subscription. Nothing is created later, when it comes back.
        priority: failover: consumers with lower values are active first.
        properties: of the subscription, if it is created.
        window_bytes: of entries that wait in the consumer; one entry always may.
        timeout: seconds; None: no limit.

    Raises:
        InvalidName, InvalidArgument: an argument is not valid, or the topic has partitions; `field` names it. `client`:
            the cluster has a lower level than 9, whose owners may not know consumers of whole entries.
        SubscriptionNotFound, TopicNotFound: it is missing, and create is False.
        ConsumerBusy: the name is taken, or the subscription is exclusive and has another consumer.
        SubscriptionTypeMismatch: the subscription has consumers of another type.
        TooManyRequests, LimitReached, PermissionDenied, ClientClosed, DeadlineExceeded: as `AsyncClient.subscribe`.
    """
    network = network_of(client)
    network.check_open()
    check_seconds("timeout", timeout)
    name = parse_topic(topic)
    check_type("start", start, (StartEdge, StartTime, Position, StartMessage), "a place")
    check_type("create", create, bool, "True or False")
    check_type("callbacks", callbacks, EntryConsumerCallbacks, "callbacks")
    window_bytes = integer("window_bytes", window_bytes, 1, 1 << 30)
    settings = replace(
        consumer_settings(subscription, type, consumer_name, None, None, None, None, priority, properties),
        whole_entries=True,
        receive_bytes=window_bytes,
    )
    calls = SubscriptionRest(client, name, settings.subscription, timeout_ms=SUBSCRIPTION_CALL_MS)
    consumer = EntryConsumer(name, settings, network, calls, callbacks)
    await consumer.open(start, create=create, timeout_ms=None if timeout is None else max(1, int(timeout * 1000)))
    return consumer

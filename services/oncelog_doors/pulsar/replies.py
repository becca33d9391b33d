"""Commands that a door sends, from what the cores decide."""

from collections.abc import Sequence
from typing import Protocol

from oncelog.core.ids import Position
from oncelog_doors.core.pulsar.connecting import PLACE, TOKEN, Admitted
from oncelog_doors.core.pulsar.deliveries import Delivery
from oncelog_doors.core.pulsar.message_ids import DeliveredId
from oncelog_doors.core.pulsar.openings import Succeed
from oncelog_doors.core.pulsar.schemas import FoundSchema
from oncelog_doors.core.pulsar.sends import WriteReceipt, WriteSendError
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError, without_error_names
from oncelog_doors.core.pulsar.token_life import REFRESH
from oncelog_doors.core.pulsar.topic_lists import TopicList
from oncelog_doors.pulsar.commands import command
from oncelog_doors.wire import pulsar_commands_pb2 as pb
from oncelog_doors.wire.pulsar_values_pb2 import AuthData, BrokerEntry, FeatureFlags, MessageId, Schema

#: In a command that answers no request.
NO_REQUEST = 2**64 - 1
#: Of a message that is stored at a place that is not known.
_NOWHERE = MessageId(ledger_id=2**64 - 1, entry_id=2**64 - 1)


def connected(admitted: Admitted, server_version: str, message_bytes_max: int) -> pb.Command:
    return command(
        connected=pb.Connected(
            server_version=server_version,
            protocol_version=admitted.protocol_version,
            max_message_size=message_bytes_max,
            feature_flags=FeatureFlags(partitions_without_creation=True),
        )
    )


def auth_challenge(server_version: str, protocol_version: int) -> pb.Command:
    """The client is asked for a token again."""
    return command(
        auth_challenge=pb.AuthChallenge(
            server_version=server_version,
            challenge=AuthData(method=TOKEN, data=REFRESH),
            protocol_version=protocol_version,
        )
    )


def error(request_id: int, refusal: Refusal) -> pb.Command:
    sentence = without_error_names(refusal.sentence)
    return command(error=pb.Error(request_id=request_id, error=refusal.code, message=sentence))


def success(request_id: int) -> pb.Command:
    return command(success=pb.Success(request_id=request_id))


def located(request_id: int) -> pb.Command:
    return command(
        located=pb.Located(
            request_id=request_id,
            url=PLACE.url,
            url_tls=PLACE.url_tls,
            outcome=pb.Located.CONNECT,
            authoritative=PLACE.authoritative,
            through_service_url=PLACE.through_service_url,
        )
    )


def partitions(request_id: int, count: int) -> pb.Command:
    return command(partitions=pb.Partitions(request_id=request_id, partitions=count, outcome=pb.Partitions.SUCCESS))


def partitions_failed(request_id: int, refusal: Refusal) -> pb.Command:
    return command(
        partitions=pb.Partitions(
            request_id=request_id,
            outcome=pb.Partitions.FAILED,
            error=refusal.code,
            message=without_error_names(refusal.sentence),
        )
    )


def topics(request_id: int, found: TopicList) -> pb.Command:
    """Not filtered: the client applies its pattern itself."""
    return command(
        topics=pb.Topics(
            request_id=request_id, topics=found.names, filtered=False, hash=found.hash, changed=found.changed
        )
    )


def schema_found(request_id: int, found: FoundSchema) -> pb.Command:
    schema = Schema.FromString(found.schema)
    return command(schema_found=pb.SchemaFound(request_id=request_id, schema=schema, version=found.version))


def schema_not_found(request_id: int, refusal: Refusal) -> pb.Command:
    sentence = without_error_names(refusal.sentence)
    return command(schema_found=pb.SchemaFound(request_id=request_id, error=refusal.code, message=sentence))


def schema_stored(request_id: int, version: bytes) -> pb.Command:
    return command(schema_stored=pb.SchemaStored(request_id=request_id, version=version))


def schema_not_stored(request_id: int, refusal: Refusal) -> pb.Command:
    sentence = without_error_names(refusal.sentence)
    return command(schema_stored=pb.SchemaStored(request_id=request_id, error=refusal.code, message=sentence))


def producer_success(request_id: int, opened: Succeed, schema_version: bytes) -> pb.Command:
    """schema_version: empty for a producer without a schema."""
    return command(
        producer_success=pb.ProducerSuccess(
            request_id=request_id,
            name=opened.name,
            last_sequence_id=opened.last_sequence_id,
            schema_version=schema_version,
            topic_epoch=opened.token,
        )
    )


def receipt(producer_id: int, written: WriteReceipt) -> pb.Command:
    place = written.place
    answer = pb.SendReceipt(
        producer_id=producer_id,
        sequence_id=written.ids.sequence_id,
        message_id=_NOWHERE if place is None else MessageId(ledger_id=place.ledger_id, entry_id=place.entry_id),
    )
    if written.ids.highest is not None:
        answer.highest_sequence_id = written.ids.highest
    return command(send_receipt=answer)


def send_error(producer_id: int, written: WriteSendError) -> pb.Command:
    return command(
        send_error=pb.SendError(
            producer_id=producer_id,
            sequence_id=written.sequence_id,
            error=written.refusal.code,
            message=without_error_names(written.refusal.sentence),
        )
    )


def close_producer(producer_id: int) -> pb.Command:
    return command(close_producer=pb.CloseProducer(producer_id=producer_id, request_id=NO_REQUEST))


# --- consumers --------------------------------------------------------------------------------------------------------


def message(
    consumer_id: int,
    at: DeliveredId,
    partition: int,
    redelivery_count: int = 0,
    ack_set: Sequence[int] = (),
    epoch: int | None = None,
) -> pb.Command:
    """The id is that of the entry: clients count the messages of a batch themselves. epoch: None: the client has sent
    none."""
    made = pb.Message(consumer_id=consumer_id, message_id=_message_id(at, partition))
    if redelivery_count:
        made.redelivery_count = redelivery_count
    if ack_set:
        made.ack_set.extend(ack_set)
    if epoch is not None:
        made.consumer_epoch = epoch
    return command(message=made)


def broker_entry(delivery: Delivery) -> BrokerEntry:
    return BrokerEntry(append_time=delivery.append_time_ms, index=delivery.last_index)


class _Began(Protocol):
    @property
    def before(self) -> Position | None: ...


def last_message_id(
    request_id: int, last: DeliveredId | None, partition: int, reader: _Began | None = None
) -> pb.Command:
    """A topic without messages has the last id -1:-1. reader: the answer has its start, too."""
    made = pb.LastMessageId(
        request_id=request_id, message_id=_NOWHERE if last is None else _message_id(last, partition)
    )
    if reader is not None:
        before = reader.before
        made.mark_delete.CopyFrom(_NOWHERE if before is None else _message_id(DeliveredId(before), partition))
    return command(last_message_id=made)


def _message_id(at: DeliveredId, partition: int) -> MessageId:
    """What clients mean as negative is sent as 2**64 more."""
    made = MessageId(ledger_id=at.position.ledger_id, entry_id=at.position.entry_id % 2**64)
    if partition >= 0:
        made.partition = partition
    if at.batch_index >= 0:
        made.batch_index = at.batch_index
    return made


def ack_response(consumer_id: int, request_id: int, refusal: Refusal | None = None) -> pb.Command:
    """refusal: None: all is durably acknowledged."""
    made = pb.AckResponse(consumer_id=consumer_id, request_id=request_id)
    if refusal is not None:
        made.error = refusal.code
        made.message = without_error_names(refusal.sentence)
    return command(ack_response=made)


def no_stats(request_id: int, refusal: Refusal) -> pb.Command:
    message = without_error_names(refusal.sentence)
    return command(consumer_stats=pb.ConsumerStats(request_id=request_id, error=refusal.code, message=message))


def not_open(consumer_id: int) -> Refusal:
    """Of a request for a consumer that the connection does not have."""
    sentence = f"consumer {consumer_id} is not open on this connection: subscribe first"
    return Refusal(ServerError.CONSUMER_NOT_FOUND, sentence)


def active_consumer_change(consumer_id: int, active: bool) -> pb.Command:
    return command(active_consumer_change=pb.ActiveConsumerChange(consumer_id=consumer_id, is_active=active))


def close_consumer(consumer_id: int) -> pb.Command:
    return command(close_consumer=pb.CloseConsumer(consumer_id=consumer_id, request_id=NO_REQUEST))

"""What an application gives to `ack` and `nack`, as ranges of message indexes of one partition each."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from oncelog.client.consuming.consumed_messages import ConsumedMessages, ReceivedPosition
from oncelog.client.values.consumer_batch import ConsumerBatch
from oncelog.client.values.messages import ConsumerDelivery, Message, MessageBatch, Receipt
from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.message_id import MessageId
from oncelog.core.ids import SeekEpoch
from oncelog.core.sdk.consumer.index_set import IndexSet

#: What can be acknowledged.
Received = Message | MessageBatch | ConsumerBatch | MessageId | Receipt
#: {partition, -1 for a topic without partitions: its messages}
Partitions = Mapping[int, ConsumedMessages]


#: What `isinstance` takes for it.
ONE = (Message, MessageBatch, ConsumerBatch, MessageId, Receipt)


class Group(NamedTuple):
    """Messages of one partition and one seek epoch are acknowledged together."""

    runs: ConsumedMessages
    seek_epoch: SeekEpoch


def grouped(partitions: Partitions, messages: Received | Iterable[Received]) -> dict[Group, IndexSet]:
    """The indexes of the messages. Raises InvalidArgument for what this consumer has not received."""
    groups: dict[Group, IndexSet] = {}
    delivery: ConsumerDelivery | None = None
    indexes = IndexSet()
    for each in several(messages):
        match each:
            case Message() | Receipt():
                if each.delivery is not delivery:  # it is the same for the messages of one batch
                    delivery = each.delivery
                    indexes = _indexes_of(groups, source_of(partitions, delivery.source), delivery.seek_epoch)
                index = each.index
                indexes.add(index, index)
            case ConsumerBatch():
                for batch in each.batches:
                    _add_batch(groups, partitions, batch)
            case MessageBatch():
                _add_batch(groups, partitions, each)
            case _:
                runs, place = _place_of(partitions, each)
                _indexes_of(groups, runs, place.seek_epoch).add(place.index, place.index)
    return groups


def several(messages: Received | Iterable[Received]) -> Iterable[Received]:
    """Of one, too. Raises InvalidArgument for what cannot be iterated."""
    if isinstance(messages, ONE):
        return (messages,)
    given: object = messages
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise _no_message(given)
    return messages


def delivery_counts(partitions: Partitions, messages: Iterable[Received]) -> dict[Group, dict[int, int]]:
    """{group: {index: which delivery of the message this was}}, of those above 1. Raises as `grouped`."""
    counts: dict[Group, dict[int, int]] = {}

    def add(runs: ConsumedMessages, seek_epoch: SeekEpoch, found: Mapping[int, int]) -> None:
        of_group = counts.setdefault(Group(runs, seek_epoch), {})
        of_group.update((index, max(count, of_group.get(index, 1))) for index, count in found.items())

    for each in messages:
        match each:
            case ConsumerBatch() | MessageBatch():
                for batch in each.batches if isinstance(each, ConsumerBatch) else (each,):
                    if batch.delivery.delivery_counts:
                        found = counts_between(
                            batch.delivery.delivery_counts, batch.first_index, batch.first_index + batch.count - 1
                        )
                        add(source_of(partitions, batch.delivery.source), batch.delivery.seek_epoch, found)
            case _:
                runs, place = _place_of(partitions, each)
                if place.delivery_count > 1:
                    add(runs, place.seek_epoch, {place.index: place.delivery_count})
    return counts


def counts_between(counts: Mapping[int, int], first: int, last: int) -> dict[int, int]:
    """The delivery counts of the messages first..last."""
    return {index: count for index, count in counts.items() if first <= index <= last}


def last_places(partitions: Partitions, message: Received) -> list[tuple[ConsumedMessages, ReceivedPosition]]:
    """Of each partition, the last of the messages."""
    match message:
        case ConsumerBatch():
            newest = {id(batch.delivery.source): batch for batch in message.batches}
            return [_place_of(partitions, batch[-1]) for batch in newest.values()]
        case MessageBatch():
            return [_place_of(partitions, message[-1])]
        case _:
            return [_place_of(partitions, message)]


def _indexes_of(groups: dict[Group, IndexSet], runs: ConsumedMessages, seek_epoch: SeekEpoch) -> IndexSet:
    group = Group(runs, seek_epoch)
    indexes = groups.get(group)
    if indexes is None:
        indexes = groups[group] = IndexSet()
    return indexes


def _add_batch(groups: dict[Group, IndexSet], partitions: Partitions, batch: MessageBatch) -> None:
    runs = source_of(partitions, batch.delivery.source)
    indexes = _indexes_of(groups, runs, batch.delivery.seek_epoch)
    indexes.add(batch.first_index, batch.first_index + batch.count - 1)


def _place_of(partitions: Partitions, message: object) -> tuple[ConsumedMessages, ReceivedPosition]:
    if isinstance(message, Message | Receipt):
        delivery = message.delivery
        return source_of(partitions, delivery.source), ReceivedPosition(
            message.index, delivery.seek_epoch, delivery.generation, message.delivery_count
        )
    if isinstance(message, MessageId):
        runs = partitions.get(message.partition)
        if runs is None and len(partitions) == 1 and not message.topic_id:
            runs = next(iter(partitions.values()))
        if runs is None:
            raise InvalidArgument(f"message id {message} is of no partition of this consumer", field="messages")
        return runs, runs.find(message)
    raise _no_message(message)


def source_of(partitions: Partitions, source: object) -> ConsumedMessages:
    """The partition from which a message was received. Raises InvalidArgument if this is another consumer's."""
    if isinstance(source, ConsumedMessages) and partitions.get(source.driver.topic_partition.partition) is source:
        return source
    raise InvalidArgument("the message was not received by this consumer", field="messages")


def _no_message(given: object) -> InvalidArgument:
    message = f"messages must be a Message, a batch, a MessageId or a list of these, not {type(given).__name__}"
    return InvalidArgument(message, field="messages")

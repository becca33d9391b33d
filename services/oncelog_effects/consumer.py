"""A consumer of one topic or partition whose messages take effect in a store."""

from dataclasses import replace
from typing import NamedTuple

from oncelog.client.client import AsyncClient, adopt
from oncelog.client.consuming.acknowledging import AckFuture
from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.consuming.consumer_driver import ConsumerDriver
from oncelog.client.consuming.subscribing import consumer_settings
from oncelog.client.values.consumer_batch import ConsumerBatch
from oncelog.client.values.corruption import OnCorrupt
from oncelog.client.values.encrypted import EncryptedMessage, OnEncrypted
from oncelog.client.values.messages import Message
from oncelog.core.acks.changes import IndexRange
from oncelog.core.ids import Generation, SeekEpoch
from oncelog.core.names import TopicName, dead_letter_topic
from oncelog.core.sdk.consumer.events import ConsumerSettings


class Subscribing(NamedTuple):
    """How the consumers of one source attach. type: exclusive or failover. dead_letter_topic: empty: the default."""

    subscription: str
    effect: str
    type: str
    dead_letter_topic: str
    on_corrupt: OnCorrupt
    on_encrypted: OnEncrypted = OnEncrypted.RAISE


class EffectsConsumer(AsyncConsumer):
    """With what only effects need."""

    #: entries that cannot be read, in their order: they are passed in the store first (hazard corrupt-message-rewound)
    unread: list[IndexRange]
    has_dead_letter_topic: bool

    @classmethod
    async def attach(
        cls, client: AsyncClient, topic: TopicName, first_index: int, how: Subscribing, store_id: str, *,
        dead_letters: bool,
    ) -> "EffectsConsumer":  # fmt: skip
        """topic: without partitions, or one partition. dead_letters: whether the owner is to make some; then the caller
        needs the right to produce in the namespace of the dead-letter topic. Raises StoreMismatch, and as
        `subscribe`."""
        settings = consumer_settings(how.subscription, how.type, None, None, None, None, None, 0, None)
        settings = replace(settings, store_id=store_id, effect=how.effect)
        if dead_letters:
            name = dead_letter_topic(topic, how.subscription, how.dead_letter_topic)
            settings = replace(settings, dead_letter_topic=str(name))
        consumer = adopt(
            client,
            lambda network, timeout_ms: cls(
                topic,
                settings,
                network,
                timeout_ms=timeout_ms,
                on_corrupt=how.on_corrupt,
                on_encrypted=how.on_encrypted,
            ),
        )
        consumer.unread = []
        consumer.has_dead_letter_topic = dead_letters
        await consumer.open([(topic, first_index)])
        return consumer

    @property
    def driver(self) -> ConsumerDriver:
        (driver,) = self._drivers
        return driver

    async def until_active(self) -> None:
        """Return while this consumer is the active one. Raises the error that ended it."""
        while not self.driver.generation:
            self._check_open()
            await self._change()

    async def received(self, count_max: int) -> list[Message]:
        """Wait for messages, as `receive_batch`, for some that cannot be read: then `unread` has them; or until this
        consumer is not the active one any more."""
        while not (batches := self._take(count_max)) and not self.unread and self.driver.generation:
            self._check_open()
            await self._change()
        return list(ConsumerBatch(batches))

    def ack_below(self, seek_epoch: SeekEpoch, generation: Generation, below: int) -> AckFuture:
        """Begin to acknowledge everything below this index."""
        (runs,) = self._partitions.values()
        return runs.acks.add_below(seek_epoch, generation, below)

    def _add(self, topic: TopicName, settings: ConsumerSettings) -> None:
        super()._add(topic, settings)
        for runs in self._partitions.values():
            runs.pass_over = self.unread.append


def size_of(message: Message) -> int:
    """Of its value; a client of Pulsar may have sent a null one, or an encrypted one, of which all of its entry counts
    once."""
    value = message.value
    if isinstance(value, EncryptedMessage):
        return 0 if value.batch_index else len(value.entry)
    return 0 if value is None else len(value)

"""A consumer of one topic or partition whose messages take effect in a store."""

from dataclasses import replace

from oncelog.client.client import AsyncClient, adopt
from oncelog.client.consuming.acknowledging import AckFuture
from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.consuming.consumer_driver import ConsumerDriver
from oncelog.client.consuming.subscribing import consumer_settings
from oncelog.client.values.messages import Message
from oncelog.core.names import TopicName


class EffectsConsumer(AsyncConsumer):
    """With what only effects need."""

    @classmethod
    async def attach(
        cls, client: AsyncClient, topic: TopicName, first_index: int, *, subscription: str, type_: str, store_id: str,
        effect: str,
    ) -> "EffectsConsumer":  # fmt: skip
        """topic: without partitions, or one partition. Raises StoreMismatch, and as `subscribe`."""
        settings = consumer_settings(subscription, type_, None, None, None, None, None, 0, None)
        settings = replace(settings, store_id=store_id, effect=effect)
        consumer = adopt(client, lambda network, timeout_ms: cls(topic, settings, network, timeout_ms=timeout_ms))
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

    def ack_below(self, message: Message) -> AckFuture:
        """Begin to acknowledge the message and everything before it."""
        delivery = message.delivery
        (runs,) = self._partitions.values()
        return runs.acks.add_below(delivery.seek_epoch, delivery.generation, message.index + 1)

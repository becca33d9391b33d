"""A consumer whose memory is counted, for Oncelog's own services."""

from collections.abc import Callable

from oncelog.client.client import AsyncClient, adopt, network_of
from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.consuming.subscribing import first_indexes
from oncelog.client.network.start_position import Place
from oncelog.core.errors import OncelogError
from oncelog.core.names import TopicName
from oncelog.core.sdk.consumer.events import ConsumerSettings


async def subscribe_within(
    client: AsyncClient, topic: TopicName, settings: ConsumerSettings, start: Place, holds: Callable[[int], None]
) -> AsyncConsumer:
    """As `AsyncClient.subscribe`, with its errors. holds: as in `AsyncConsumer`."""
    network, timeout_ms = network_of(client), client._timeout_ms  # noqa: SLF001  # see `network_of`
    network.check_open()
    topics = await first_indexes(network, topic, start, inclusive=False, timeout_ms=timeout_ms)
    consumer = adopt(
        client, lambda network, timeout_ms: AsyncConsumer(topic, settings, network, timeout_ms=timeout_ms, holds=holds)
    )
    await consumer.open(topics)
    return consumer


def abandon(consumer: AsyncConsumer, error: OncelogError) -> None:
    """End the consumer with this error at once, and let go what waits there: it is delivered again."""
    consumer._fail(error)  # noqa: SLF001  # see `network_of`
    for driver in consumer._drivers:  # noqa: SLF001
        driver.drop()

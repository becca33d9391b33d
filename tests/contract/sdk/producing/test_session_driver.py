"""A producer's or consumer's session on the network, with scripted routes: which topic it belongs to."""

from collections.abc import Callable

import pytest

from oncelog.client.consuming.consumer_driver import ConsumerDriver
from oncelog.client.network.lookup import Route
from oncelog.client.network.network import Network
from oncelog.client.producing.duplicates import ACCEPT_ALL
from oncelog.client.producing.producer_driver import ProducerDriver
from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import AnswerSubscribe, Subscribed
from oncelog.core.errors import SubscriptionGone, TopicNotFound
from oncelog.core.ids import (
    ConsumerNumber,
    Generation,
    Incarnation,
    OwnerEpoch,
    ProducerId,
    SeekEpoch,
    SequenceId,
    SessionNumber,
    SubscriptionNumber,
    TopicId,
)
from oncelog.core.names import TopicName, parse_topic
from oncelog.core.sdk.consumer.events import ConsumerSettings, OwnerReported
from oncelog.core.sdk.owner_attempts import OpenWanted
from oncelog.core.sdk.producer.opening import ProducerGranted, ProducerSettings
from oncelog.runtime.credentials import PLAIN
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

DEADLINE_S = 30.0
FORMER, ANEW = TopicId("a" * 32), TopicId("b" * 32)
EPOCH = OwnerEpoch(5)
TOPIC = parse_topic("flights")


class ScriptedNetwork(Network):
    """Look-ups find the former topic, whose owner has epoch 5, until `recreated`; then a new one, of epoch 1."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1:1",), PLAIN)
        self.recreated = False

    async def route(
        self, topic: TopicName, *, fresh: bool, owner_epoch: OwnerEpoch = OwnerEpoch(0), create: bool = True
    ) -> Route:
        found = (ANEW, OwnerEpoch(1)) if self.recreated else (FORMER, EPOCH)
        route = Route(found[0], "127.0.0.1:1", found[1], Incarnation("c" * 32))
        self.epochs.believe(route.topic_id, route.owner_epoch)
        return route


def producer_of(network: Network) -> ProducerDriver:
    settings = ProducerSettings(name="importer")
    return ProducerDriver(settings, TOPIC, network, rules=ACCEPT_ALL, changed=lambda: None)


def consumer_of(network: Network) -> ConsumerDriver:
    settings = ConsumerSettings("billing", SubscriptionType.SHARED, "worker", first_index=0)
    return ConsumerDriver(
        settings, TOPIC, network, arrived=lambda: None, changed=lambda: None, unreadable=lambda _: None
    )


def granted(driver: ProducerDriver | ConsumerDriver) -> bool:
    """Grant the session, if an owner is being asked for it. Returns whether it was granted."""
    attempt = driver.core.opening.attempt
    if not driver.core.opening.asks(attempt):
        return driver.core.is_bound
    if isinstance(driver, ProducerDriver):
        driver.feed(
            ProducerGranted(
                attempt, SessionNumber(1), "importer", ProducerId(1), Generation(1), SequenceId(-1), True, EPOCH
            )
        )
    else:
        answer = Subscribed(ConsumerNumber(1), SubscriptionNumber(1), "c" * 32, SeekEpoch(0), Generation(0))
        driver.feed(OwnerReported(attempt, EPOCH, AnswerSubscribe(attempt, answer)))
    return driver.core.is_bound


@pytest.mark.hazard("deposed-owner-refuses")
@pytest.mark.parametrize("new", [producer_of, consumer_of])
async def test_session_ends_with_its_topic_and_keeps_its_epochs_apart(
    new: Callable[[Network], ProducerDriver | ConsumerDriver],
) -> None:
    """A topic created anew under the name is another log: the session does not use it. Its owners count from epoch 1,
    so the epochs of the former topic must not make the client refuse them."""
    network = ScriptedNetwork()
    driver = new(network)
    driver.feed(OpenWanted())
    await until(lambda: granted(driver), DEADLINE_S, every_s=0)  # an attempt lasts as long as a refused connection
    network.recreated = True  # nothing listens at that address, so the stream is lost
    await until(lambda: driver.core.error is not None, DEADLINE_S)
    assert isinstance(driver.core.error, TopicNotFound | SubscriptionGone)
    assert driver.topic_partition.topic_id == FORMER
    assert (network.epochs.highest(FORMER), network.epochs.highest(ANEW)) == (5, 1)
    await network.close()

"""The state of a topic for a request of a metadata service, which has checked the rights of the caller."""

from oncelog.core.delivery.subscription import Subscription
from oncelog.core.errors import SubscriptionNotFound, TopicLoading
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.core.topic.serving import Serving
from oncelog.rpc.codecs.reader_codec import StartAt, StartIndex
from oncelog.topic_owner.shell.log_view import LogView
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner

#: Below the metadata service's timeout of a call, so that the caller learns why there is no answer.
SERVING_TIMEOUT_MS = 3_000


async def current_topic(topics: TopicRegistry, topic: str, topic_id: str) -> tuple[TopicRunner, Serving]:
    """The topic, once this owner has proved that it is the current one. Raises NotOwner, TopicLoading."""
    runner = topics.runner(TopicId(topic_id), topic)
    await runner.ownership_proofs.until_current(OwnerEpoch(0), serving_timeout_ms=SERVING_TIMEOUT_MS)
    return runner, still_served(runner)


def still_served(runner: TopicRunner) -> Serving:
    """Raises TopicLoading."""
    serving = runner.core.serving
    if serving is None:
        raise TopicLoading("the topic is moving to another owner: try again")
    return serving


def subscription_named(serving: Serving, name: str) -> Subscription:
    """Raises SubscriptionNotFound."""
    found = next((each for each in serving.subscriptions if each.state.name == name), None)
    if found is None:
        raise SubscriptionNotFound(f"the topic has no subscription {name}")
    return found


async def index_of(runner: TopicRunner, at: StartAt) -> int:
    """The message at which a place begins, the nearest one that is stored. Raises the errors of a read."""
    return await runner.explained(LogView(runner.log, timeout_ms=SERVING_TIMEOUT_MS).index_of(at))


async def seek_index(runner: TopicRunner, at: StartAt) -> int:
    """Where a seek begins. An index stays as it is: one that the topic does not have is refused. Raises the errors of a
    read."""
    return at.number if isinstance(at, StartIndex) else await index_of(runner, at)

"""The state of a topic for a request of a metadata service, which has checked the rights of the caller."""

from oncelog.core.errors import TopicLoading
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.core.topic.serving import Serving
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

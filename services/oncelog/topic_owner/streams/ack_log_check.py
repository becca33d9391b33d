"""Whether a topic may get its first subscription: all processes must know the ack log that it begins (hazard
older-owner-and-ack-log)."""

from oncelog.core.errors import ServiceUnavailable
from oncelog.topic_owner.shell.topic_runner import TopicRunner

#: Named in the error; the rest is counted.
NAMED_MAX = 5


async def until_acks_are_known(runner: TopicRunner) -> None:
    """Return once the topic has an ack log, or all registered processes know what one is.

    An older owner could not serve the topic again, and an older storage node would erase ledgers of the chain.
    Raises ServiceUnavailable, which names the older processes; StoreUnavailable.
    """
    serving = runner.core.serving
    if serving is not None and serving.acks.state.ever_used:
        return
    older = await runner.parts.ledgers.too_old_for_acks()
    if older:
        named = ", ".join(older[:NAMED_MAX])
        rest = f" and {len(older) - NAMED_MAX} more" if len(older) > NAMED_MAX else ""
        raise ServiceUnavailable(
            f"topic {runner.name} gets no subscription before all processes know subscriptions: upgrade {named}{rest}"
        )

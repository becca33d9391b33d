"""How many producers the log remembers: each takes memory of the topic's owner, and a place in its snapshots.

At a cap no new producer is opened. Known producers go on, and none is evicted: what a producer that was evicted sends
again would be stored twice.
"""

from dataclasses import dataclass

from oncelog.core.errors import LimitReached

#: By default: some 300 MB of an owner's memory for a topic, twice as much for the topics of a namespace.
TOPIC_PRODUCERS_MAX = 1_000_000
NAMESPACE_PRODUCERS_MAX = 2_000_000


@dataclass(frozen=True, slots=True)
class ProducerCaps:
    """0: no cap. namespace: of all topics of the namespace that one owner serves."""

    topic: int = TOPIC_PRODUCERS_MAX
    namespace: int = NAMESPACE_PRODUCERS_MAX

    def refusal(self, in_topic: int, elsewhere: int) -> LimitReached | None:
        """Why a topic with so many producers gets no new one; None: it does. elsewhere: those of the namespace's other
        topics at this owner."""
        if self.topic and in_topic >= self.topic:
            have, limit, policy = f"the topic has {in_topic} producers", self.topic, "maxKnownProducersPerTopic"
        elif self.namespace and in_topic + elsewhere >= self.namespace:
            have = f"the namespace has {in_topic + elsewhere} producers at this topic owner"
            limit, policy = self.namespace, "maxKnownProducersPerNamespace"
        else:
            return None
        advice = (
            "open a name that is known, delete producers that are not used any more (oncelog admin producers delete), "
            "have them expire (chosenProducerExpiry, assignedProducerExpiry; producerLeaseExpiry of new leases), or "
            f"raise {policy}"
        )
        return LimitReached(f"{have}, and at most {limit} are allowed: {advice}", field="producers", limit=limit)

    def share(self, in_topic: int, in_namespace: int) -> float:
        """The higher share of a cap that is used; 1: no new producer is opened."""
        used = ((in_topic, self.topic), (in_namespace, self.namespace))
        return max((count / cap for count, cap in used if cap), default=0.0)

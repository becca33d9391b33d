"""What a door needs of the cluster for administrators among Kafka's clients."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from oncelog.core.names import NamespaceName, TopicName
from oncelog_doors.core.kafka.topic_configs import AppliedConfigs, OwnConfigs

#: What is set on a topic after a change; before it: what is set on the topic, and what applies to it.
ConfigChange = Callable[[OwnConfigs, AppliedConfigs], OwnConfigs]


class KnownProducer(NamedTuple):
    """A producer that a log remembers. producer_id: of the log. persisted: the highest sequence id that is durable; -1:
    none. last_activity_ms: since 1970."""

    name: str
    producer_id: int
    generation: int
    persisted: int
    last_activity_ms: int


class AdministrationPort(Protocol):
    """The cluster, for one client: everything is done with the rights of its token. All raise OncelogError.

    timeout_ms: a change that is not complete is asked for again until then; after it nothing is known of the change.
    """

    async def partitions(self, topic: TopicName) -> int:
        """0: the topic is not partitioned."""

    async def create(self, topic: TopicName, count: int) -> None:
        """Create a partitioned topic. Raises Conflict if there is a topic of this name."""

    async def grow(self, topic: TopicName, count: int, timeout_ms: int) -> None:
        """Give a partitioned topic this number of partitions; the number that it has completes an earlier growth."""

    async def delete(self, topic: TopicName, timeout_ms: int) -> None:
        """Return when the topic and all its messages are deleted, and its name is free."""

    async def trim(self, log: TopicName, before: int | None, timeout_ms: int) -> int:
        """Delete the ledgers of a partition that have only messages below an offset; None: below its present end.
        Returns the first offset that is left."""

    async def configs(self, topic: TopicName) -> AppliedConfigs: ...

    async def configs_of_namespace(self, namespace: NamespaceName) -> AppliedConfigs:
        """Those of a topic that sets none itself."""

    async def change_configs(self, topic: TopicName, change: ConfigChange) -> None:
        """Set what `change` makes of the present configurations; what others change meanwhile is kept."""

    async def sizes(self, namespace: NamespaceName, name: str | None) -> Mapping[str, int]:
        """{full name: stored bytes} of topics without partitions and of partitions; those that are not served or not
        measured now are left out. name: a topic; None: all of the namespace."""

    async def producers(self, log: TopicName) -> Sequence[KnownProducer]:
        """At most 1,000."""

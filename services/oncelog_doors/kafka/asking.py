"""What requests need of their connection, and the log that a partition of a client stands for."""

from typing import NamedTuple, Protocol

from oncelog.core.access import Caller
from oncelog.core.names import NamespaceName, TopicName
from oncelog_doors.core.kafka.topic_names import partition_of, topic_of
from oncelog_doors.kafka.administration_ports import AdministrationPort
from oncelog_doors.kafka.ports import ClusterPort

#: Look-ups of one request at a time.
LOOKUPS_AT_ONCE = 20


class Address(NamedTuple):
    host: str
    port: int


class Asking(Protocol):
    """address: of the client. namespace: of names without one."""

    address: str
    caller: Caller
    cluster: ClusterPort
    namespace: NamespaceName

    @property
    def administration(self) -> AdministrationPort:
        """The cluster, with the rights of the client's own token."""

    @property
    def broker(self) -> Address:
        """Where the client reaches this door, or another one that answers in the same way."""


async def log_of(around: Asking, name: str, index: int) -> TopicName:
    """The log of one partition. Raises OncelogError, TopicNotFound for a partition that the topic does not have."""
    topic = topic_of(name, around.namespace)
    return partition_of(topic, index, await around.cluster.partitions(topic, around.caller, may_create=False))

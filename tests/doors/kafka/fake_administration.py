"""The cluster for administrators in memory, with the rules of the real one."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oncelog.core.errors import (
    Conflict,
    InvalidArgument,
    OncelogError,
    PermissionDenied,
    ServiceUnavailable,
    TopicNotFound,
)
from oncelog.core.names import NamespaceName, TopicName
from oncelog_doors.core.kafka.topic_configs import AppliedConfigs, OwnConfigs, Source
from oncelog_doors.kafka.administration_ports import ConfigChange, KnownProducer

if TYPE_CHECKING:
    from tests.doors.kafka.fake_cluster import FakeCluster


class FakeAdministration:
    """Has the form of `AdministrationPort`. token: of the client; those in `refused` have no right to administer."""

    def __init__(self, cluster: "FakeCluster", token: str | None) -> None:
        self._cluster, self._token = cluster, token

    def _check(self) -> None:
        self._cluster.administered_with.append(self._token)
        if self._cluster.admin_error is not None:
            raise self._cluster.admin_error
        if self._token in self._cluster.no_admins:
            raise PermissionDenied("permission denied: the role has no right to admin in namespace public/default")

    def _count(self, topic: TopicName) -> int:
        if str(topic) not in self._cluster.partition_counts:
            raise TopicNotFound(f"topic {topic} does not exist: create it")
        return self._cluster.partition_counts[str(topic)]

    async def partitions(self, topic: TopicName) -> int:
        return self._count(topic)

    async def create(self, topic: TopicName, count: int) -> None:
        self._check()
        if str(topic) in self._cluster.partition_counts:
            raise Conflict(f"topic {topic} already exists", field="topic")
        self._cluster.partition_counts[str(topic)] = count

    async def grow(self, topic: TopicName, count: int, timeout_ms: int) -> None:
        self._check()
        self._cluster.growths.append((str(topic), self._count(topic), count))
        self._cluster.partition_counts[str(topic)] = count

    async def delete(self, topic: TopicName, timeout_ms: int) -> None:
        self._check()
        await self._cluster.deletions.wait()
        self._count(topic)
        del self._cluster.partition_counts[str(topic)]

    async def trim(self, log: TopicName, before: int | None, timeout_ms: int) -> int:
        self._check()
        found = self._cluster.log(str(log))
        below = found.end if before is None else before
        if below > found.end:
            message = f"before_index is {below}, and the topic ends at {found.end}"
            raise InvalidArgument(message, field="before_index", limit=found.end)
        # An entry of the fake is a ledger.
        found.entries = [each for each in found.entries if each.base + each.count > below]
        found.first = found.entries[0].base if found.entries else max(found.first, below)
        return found.first

    async def configs(self, topic: TopicName) -> AppliedConfigs:
        self._check()
        self._count(topic)
        own = self._cluster.configs.get(str(topic), OwnConfigs())
        of = self._cluster.configs_of_namespace
        retention = (of.retention, of.retention_source) if own.retention is None else (own.retention, Source.TOPIC)
        compact = (of.compact, of.compact_source) if own.compact is None else (own.compact, Source.TOPIC)
        return AppliedConfigs(*retention, *compact)

    async def configs_of_namespace(self, namespace: NamespaceName) -> AppliedConfigs:
        self._check()
        return self._cluster.configs_of_namespace

    async def change_configs(self, topic: TopicName, change: ConfigChange) -> None:
        if self._cluster.config_error is not None:
            raise self._cluster.config_error
        applied = await self.configs(topic)
        self._cluster.configs[str(topic)] = change(self._cluster.configs.get(str(topic), OwnConfigs()), applied)

    async def sizes(self, namespace: NamespaceName, name: str | None) -> Mapping[str, int]:
        if self._cluster.admin_error is not None:
            raise self._cluster.admin_error
        return {log: size for log, size in self._cluster.sizes.items() if name is None or name in log}

    async def producers(self, log: TopicName) -> Sequence[KnownProducer]:
        self._check()
        return self._cluster.known_producers.get(str(log), ())


UNAVAILABLE: OncelogError = ServiceUnavailable("no service answers: ask again")

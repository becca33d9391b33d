"""Groups of consumers of a namespace, in the form that a door needs (`kafka.ports.GroupsPort`)."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from oncelog.client.group_offsets import GroupOffset, GroupOffsets
from oncelog.client.groups import ask_coordinator, coordinator_topic
from oncelog.client.rest_calls import rest, topic_path
from oncelog.core.access import Caller
from oncelog.core.errors import ConsumerFenced, OncelogError, TopicNotFound
from oncelog.core.groups.answers import GroupAnswer
from oncelog.core.groups.events import CommitChecked, JoinRequested
from oncelog.core.ids import Generation
from oncelog.core.names import NamespaceName, TopicName, is_of_doors, parse_topic
from oncelog_doors.core.kafka.topic_names import logs_of
from oncelog_doors.kafka.ports import GroupQuestion
from oncelog_doors.log_client.sdk_cluster import SdkCluster

_LOG = logging.getLogger(__name__)

_CREATION_TIMEOUT_MS = 10_000
#: Subscriptions of one page: the limit of the list.
_PAGE = 1_000
#: Of a subscription that no member of a group and no consumer of the SDK was ever granted.
_NO_GENERATION = Generation(0)


class KafkaGroups:
    """cluster: of all doors of this process."""

    def __init__(self, cluster: SdkCluster) -> None:
        self._cluster = cluster

    async def ask(
        self, namespace: NamespaceName, caller: Caller, question: GroupQuestion, *, timeout_ms: int
    ) -> GroupAnswer:
        client, topic = self._cluster.client, coordinator_topic(namespace)
        try:
            return await ask_coordinator(client, topic, question, on_behalf_of=caller, timeout_ms=timeout_ms)
        except TopicNotFound:
            if not isinstance(question, JoinRequested | CommitChecked):
                raise
        # With the rights of the door, and also where topics are not created by their use.
        await self._cluster.rights(caller, topic).check(may_create=False)
        await rest(client, "PUT", topic_path(topic), may_exist=True, timeout_ms=_CREATION_TIMEOUT_MS)
        return await ask_coordinator(client, topic, question, on_behalf_of=caller, timeout_ms=timeout_ms)

    async def raise_generations(
        self, logs: Sequence[TopicName], caller: Caller, group: str, generation: Generation, *, timeout_ms: int
    ) -> Generation:
        offsets = GroupOffsets(self._cluster.client, group, on_behalf_of=caller, timeout_ms=timeout_ms)
        highest = 0
        for result in (await offsets.raise_generations(logs, generation)).values():
            if isinstance(result, GroupOffset):
                highest = max(highest, result.generation)
            elif not isinstance(result, TopicNotFound):
                raise result
        return Generation(highest)

    async def delete_offsets(
        self,
        namespace: NamespaceName,
        caller: Caller,
        group: str,
        generation: Generation,
        *,
        unused_for_ms: int,
        timeout_ms: int,
    ) -> bool:
        topics = [each for each in await self._cluster.topics_of(namespace, caller) if not is_of_doors(each.local)]
        logs = [log for each in topics for log in logs_of(parse_topic(each.name), each.partitions)]
        offsets = GroupOffsets(self._cluster.client, group, on_behalf_of=caller, timeout_ms=timeout_ms)
        had_any = False
        for result in (await offsets.delete(logs, generation, unused_for_ms=unused_for_ms)).values():
            if isinstance(result, GroupOffset):
                had_any = had_any or result.offset is not None
            elif not isinstance(result, TopicNotFound | ConsumerFenced):  # later use keeps its offsets
                raise result
        return had_any

    async def delete_unused_offsets(
        self, namespace: NamespaceName, caller: Caller, *, unused_for_ms: int, timeout_ms: int
    ) -> Mapping[str, int]:
        deleted = {}
        for group, logs in (await self._unused(namespace, unused_for_ms, timeout_ms)).items():
            offsets = GroupOffsets(self._cluster.client, group, on_behalf_of=caller, timeout_ms=timeout_ms)
            # Owners look at the age again, by their own clocks.
            results = (await offsets.delete(logs, _NO_GENERATION, unused_for_ms=unused_for_ms)).values()
            for error in results:
                if isinstance(error, OncelogError) and not isinstance(error, TopicNotFound | ConsumerFenced):
                    _LOG.warning("could not delete an offset of %s in %s, will retry: %s", group, namespace, error)
            if count := sum(isinstance(each, GroupOffset) and each.offset is not None for each in results):
                deleted[group] = count
        return deleted

    async def _unused(
        self, namespace: NamespaceName, unused_for_ms: int, timeout_ms: int
    ) -> Mapping[str, list[TopicName]]:
        """{group: the logs in which a client without a group has committed so long ago}."""
        before_ms = time.time_ns() // 1_000_000 - unused_for_ms
        logs: dict[str, list[TopicName]] = {}
        query: dict[str, Any] = {"sort": "name", "limit": _PAGE}
        while True:
            path = f"/admin/v2/subscriptions/{namespace}?{urlencode(query)}"
            page = await rest(self._cluster.client, "GET", path, timeout_ms=timeout_ms)
            for each in page["subscriptions"]:
                committed_ms = each.get("committed_ms")  # services of an earlier version do not say it
                if each.get("generation") == _NO_GENERATION and committed_ms is not None and committed_ms <= before_ms:
                    logs.setdefault(each["name"], []).append(parse_topic(each["topic"]))
            if page["next_after"] is None:
                return logs
            query["after"] = page["next_after"]

"""Offsets of groups in the log, in the form that a door needs (`kafka.ports.OffsetsPort`)."""

from collections.abc import Mapping, Sequence

from oncelog.client.group_offsets import GroupOffsets, GroupResult, NewOffset
from oncelog.core.access import Caller
from oncelog.core.ids import Generation
from oncelog.core.names import TopicName
from oncelog_doors.log_client.sdk_cluster import SdkCluster


class KafkaOffsets:
    """cluster: of all doors of this process."""

    def __init__(self, cluster: SdkCluster) -> None:
        self._cluster = cluster

    def _of(self, caller: Caller, group: str, timeout_ms: int) -> GroupOffsets:
        return GroupOffsets(self._cluster.client, group, on_behalf_of=caller, timeout_ms=timeout_ms)

    async def commit(
        self,
        caller: Caller,
        group: str,
        offsets: Mapping[TopicName, NewOffset],
        generation: Generation,
        *,
        timeout_ms: int,
    ) -> Mapping[TopicName, GroupResult]:
        return await self._of(caller, group, timeout_ms).commit(offsets, generation=generation)

    async def fetch(
        self, caller: Caller, group: str, logs: Sequence[TopicName], *, timeout_ms: int
    ) -> Mapping[TopicName, GroupResult]:
        return await self._of(caller, group, timeout_ms).fetch(logs)

    async def delete(
        self, caller: Caller, group: str, logs: Sequence[TopicName], generation: Generation, *, timeout_ms: int
    ) -> Mapping[TopicName, GroupResult]:
        return await self._of(caller, group, timeout_ms).delete(logs, generation)

"""Offsets of groups in the logs of a cluster in memory, with the rules of owners."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oncelog.client.group_offsets import GroupOffset, GroupResult, NewOffset
from oncelog.core.access import UNCHECKED, Caller
from oncelog.core.errors import ConsumerFenced, InvalidArgument, OncelogError, PermissionDenied
from oncelog.core.ids import Generation
from oncelog.core.names import TopicName

if TYPE_CHECKING:
    from tests.doors.kafka.fake_cluster import FakeCluster

NONE = GroupOffset(None)


class FakeOffsets:
    """Has the form of `OffsetsPort`. Each log begins with offset 0, and ends where the cluster's log does."""

    def __init__(self, cluster: "FakeCluster") -> None:
        self._cluster = cluster
        #: {(group, log): its offset}
        self.stored: dict[tuple[str, TopicName], GroupOffset] = {}
        #: {log: what its owner answers}
        self.errors: dict[str, OncelogError] = {}
        #: generations of commits, in order
        self.commits: list[int] = []
        #: while it is clear, commits wait
        self.owned = asyncio.Event()
        self.owned.set()

    def _refusal(self, caller: Caller, log: TopicName) -> OncelogError | None:
        if caller is not UNCHECKED and caller.role in self._cluster.denied:
            return PermissionDenied(f"role {caller.role} may not do that")
        return self.errors.get(str(log))

    async def commit(
        self,
        caller: Caller,
        group: str,
        offsets: Mapping[TopicName, NewOffset],
        generation: Generation,
        *,
        timeout_ms: int,
    ) -> Mapping[TopicName, GroupResult]:
        self.commits.append(generation)
        await self.owned.wait()
        found: dict[TopicName, GroupResult] = {}
        for log, new in offsets.items():
            former = self.stored.get((group, log), NONE)
            if (refusal := self._refusal(caller, log)) is not None:
                found[log] = refusal
            elif not 0 <= new.offset <= self._cluster.log(str(log)).end:
                found[log] = InvalidArgument("the log has no such offset", field="offset")
            elif len(new.metadata) > 4096:
                found[log] = InvalidArgument("it is too long", field="metadata")
            elif generation < former.generation:
                found[log] = ConsumerFenced("a later generation", generation=former.generation)
            else:
                found[log] = self.stored[group, log] = GroupOffset(new.offset, generation, new.metadata)
        return found

    async def fetch(
        self, caller: Caller, group: str, logs: Sequence[TopicName], *, timeout_ms: int
    ) -> Mapping[TopicName, GroupResult]:
        return {log: self._refusal(caller, log) or self.stored.get((group, log), NONE) for log in logs}

    async def delete(
        self, caller: Caller, group: str, logs: Sequence[TopicName], generation: Generation, *, timeout_ms: int
    ) -> Mapping[TopicName, GroupResult]:
        found: dict[TopicName, GroupResult] = {}
        for log in logs:
            former = self.stored.get((group, log), NONE)
            if former.generation > generation:
                found[log] = ConsumerFenced("a later generation", generation=former.generation)
            else:
                found[log] = self._refusal(caller, log) or self.stored.pop((group, log), NONE)
        return found
